"""Differentially private synthetic tables of structured text records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selpe.version import __version__

if TYPE_CHECKING:
    from selpe.api import SelPE
    from selpe.intake import read_table
    from selpe.intake.draft import draft_schema
    from selpe.report.evaluate import evaluate
    from selpe.schema import Schema

__all__ = ["Schema", "SelPE", "__version__", "draft_schema", "evaluate", "read_table"]

_HOMES = {
    "SelPE": "selpe.api",
    "Schema": "selpe.schema",
    "draft_schema": "selpe.intake.draft",
    "evaluate": "selpe.report.evaluate",
    "read_table": "selpe.intake",
}


def __getattr__(name: str) -> Any:
    """Our public names, imported when they are first used: `import selpe` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'selpe' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
