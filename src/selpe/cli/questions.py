"""What a person is asked before ε is spent or a table leaves the house. No is the default, and silence is no."""

from __future__ import annotations

import sys

import typer

from selpe.errors import ConfigError, StoppedError


def can_ask() -> bool:
    """Whether somebody is at a terminal."""
    return sys.stdin.isatty()


def require_yes(question: str, *, yes: bool, unasked: str, refused: str) -> None:
    """Goes on after a yes, which is `-y` where nobody can be asked.

    `unasked` says what was held back for want of a terminal, `refused` what became of it after a no.
    """
    if yes:
        return
    if not can_ask():
        raise ConfigError(unasked, hint="add -y if that is what you want: there is no terminal here to ask at")
    try:
        agreed = typer.confirm(question, default=False, err=True)
    except typer.Abort:  # Ctrl-C, or the end of what is typed
        agreed = False
    if not agreed:
        raise StoppedError(refused)
