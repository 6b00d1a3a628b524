"""Data sets from the files as their publishers ship them: one module each, all through one door.

| name | data set | files |
|---|---|---|
| `water` | reviews of water bottles | the csv of the benchmark |
| `mimic-ed` | MIMIC-IV-ED 2.2, triage | the folder, `triage.csv(.gz)` with `edstays` beside it, or the open demo |
| `ktas` | triage in two Korean emergency departments | the csv |
| `loan` | LendingClub loans | `accepted_*.csv(.gz)`, `LoanStats*.csv`, or openintro's table |
| `jobs` | job advertisements, one in ten a fraud | the csv of EMSCAD |
| `b2w` | reviews of a shop, in Portuguese | `B2W-Reviews01.csv` |
| `cfpb` | consumers' complaints, long and without a label | `complaints.csv(.gz)` of the CFPB |

Nothing here sends a row anywhere.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.experiments.loaders.base import Loader

NAMES = ("water", "mimic-ed", "ktas", "loan", "jobs", "b2w", "cfpb")


def loader_of(name: str) -> Loader:
    """The loader of a data set by its name."""
    if name not in NAMES:
        raise ConfigError(f"there is no loader '{name}'", hint=f"the loaders are {', '.join(NAMES)}")
    loader: Loader = import_module(f"{__name__}.{name.replace('-', '_')}").LOADER
    return loader


def recognise(path: Path) -> Loader | None:
    """The loader whose files look like this one, by the names of its columns; None for a table that nobody knows."""
    for name in NAMES:
        loader = loader_of(name)
        if (found := loader.locate(path)) is not None and loader.knows(found):
            return loader
    return None


def find(name: str, folder: Path) -> Path:
    """Where the files of a data set lie in a folder, by their usual names or by their columns."""
    loader = loader_of(name)
    there = [folder / file for file in loader.files if (folder / file).exists()]
    there += sorted(path for path in folder.glob("*.csv*") if path not in there)
    for path in there:
        if (found := loader.locate(path)) is not None and loader.knows(found):
            return path
    raise ConfigError(
        f"there is no file of '{name}' in this folder",
        where=str(folder),
        hint=f"usual names: {', '.join(loader.files)}",
    )
