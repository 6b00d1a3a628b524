"""`llm: auto` for somebody at a terminal: what was taken, why, and the question whether to fetch a larger model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ModelError

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.run.writer import WriterChoice
    from selpe.schema import Schema

_DECLINED = "declined.json"


def settled(
    settings: RunConfig, schema: Schema | None = None, *, ask: bool = False, tell: bool = True
) -> tuple[RunConfig, WriterChoice | None]:  # fmt: skip
    """The settings with the model that 'auto' stands for, said to the user. With `ask`, a larger one may be fetched.

    A model is asked about once: who has said no is not asked again.
    """
    from selpe.run.writer import settle_writer

    found, choice = settle_writer(settings, schema)
    if choice is not None and ask and _fetched(choice):
        found, choice = settle_writer(settings, schema)
    if choice is not None and tell:
        _say(choice)
    return found, choice


def _say(choice: WriterChoice) -> None:
    emit({"model": choice.as_dict()})
    if json_mode():
        return
    from rich.markup import escape

    out().print(f"[bold]model[/] {escape(choice.llm)}, by `llm: auto`. {escape(choice.why)}")
    if choice.advice:
        out().print(f"[dim]{escape(choice.advice)}[/]")


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and err().is_terminal


def _fetched(choice: WriterChoice) -> bool:
    """Whether a larger model was fetched, because a person at this terminal wanted it."""
    from selpe.models.store.blobs import read_json, write_json
    from selpe.models.store.hub import is_reachable
    from selpe.models.store.store import ModelStore, cache_folder
    from selpe.run.writer import bytes_words, pull_name

    larger = choice.larger
    if larger is None or larger.obstacle or json_mode() or not _at_a_terminal():
        return False
    notes = cache_folder() / _DECLINED
    declined = (read_json(notes) or {}).get("models", [])
    name = pull_name(larger)
    if name in declined:
        return False
    if not is_reachable():
        err().print(f"[dim]The Hugging Face hub cannot be reached, so {choice.title} is taken.[/]")
        return False
    _say(choice)
    if not typer.confirm(f"Fetch {larger.title} ({bytes_words(larger.download)}) now?", default=False, err=True):
        write_json(notes, {"models": [*declined, name]})
        return False
    from selpe.cli.fetch_bar import fetch_bar

    try:
        with fetch_bar() as bar:
            ModelStore().ensure(name, bar)
    except ModelError as problem:
        err().print(f"[yellow]{problem.message}[/] {choice.title} is taken.")
        return False
    return True
