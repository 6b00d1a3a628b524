"""`selpe doctor`: what this machine can run, and what to expect of it."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor() -> None:
    """Shows engines, processor, memory and cached models."""
