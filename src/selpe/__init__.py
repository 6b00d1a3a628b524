"""Differentially private synthetic tables of structured text records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selpe.evaluate.whole import evaluate
    from selpe.schema import Schema
    from selpe.synthesizer import SelPE
    from selpe.table import read_table

__version__ = "0.1.0.dev0"
__all__ = ["Schema", "SelPE", "__version__", "evaluate", "read_table"]

_HOMES = {
    "SelPE": "selpe.synthesizer",
    "Schema": "selpe.schema",
    "evaluate": "selpe.evaluate",
    "read_table": "selpe.table",
}


def __getattr__(name: str) -> Any:
    """Our public names, imported when they are first used: `import selpe` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'selpe' has no attribute '{name}'")
    from importlib import import_module

    if name == "evaluate":
        return import_module("selpe.evaluate")  # a package that can be called: it would take the name in any case
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
