"""The methods that a run can use, by name: SelPE itself, and the baselines on the same interface.

| name | method | needs |
|---|---|---|
| `selpe` | selection-guided progressive evolution, this project's own | |
| `augpe` | private evolution of texts by histogram votes | |
| `wasp` | contrastive prompts from near and far votes, several models | |
| `ctcl` | topic histogram, and a small generator trained with DP-SGD | extra `[train]` |
| `dpgen` | a language model trained with DP-SGD | extra `[train]` |
| `dpds` | a classifier trained with DP-SGD; releases no records | extra `[train]` |

Each name is a module here with a `RECIPE`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.baselines.base import Recipe

METHODS = ("selpe", "augpe", "wasp", "ctcl", "dpgen", "dpds")
_TRAINED = frozenset({"ctcl", "dpgen", "dpds"})


def recipe_of(method: str) -> Recipe:
    """The recipe of a method by its name."""
    if method not in METHODS:
        raise ConfigError(f"there is no method '{method}'", hint=f"the methods are {', '.join(METHODS)}")
    try:
        recipe: Recipe = import_module(f"{__name__}.{method}").RECIPE
    except ModuleNotFoundError as error:
        if method in _TRAINED:
            raise ConfigError(
                f"'{method}' trains a model and needs {error.name}", hint="install selpe[train]", where="method"
            ) from None
        raise
    return recipe
