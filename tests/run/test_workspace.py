"""One module owns the paths of a run folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import selpe
from selpe.errors import ConfigError
from selpe.run.workspace import InternalFolder, ReleaseFolder, WorkFolder, Workspace, require_run_name, workspaces
from selpe.serve.store import RUN_NAME

SRC = Path(selpe.__file__).parent
OWNER = SRC / "run" / "workspace.py"
# Names that other folders use too: a table's own schema, the locks of ledgers, cells and servers.
COMMON = {"schema.yaml", "lock"}
PATH_CALLS = {"joinpath", "glob", "rglob", "with_name"}


def spelled(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that a module joins to a path, literally or by a constant of its own, with its line."""
    constants = {
        target.id: value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for targets, values in [(node.targets[0], node.value)]
        for target, value in (
            zip(targets.elts, values.elts, strict=True)
            if isinstance(targets, ast.Tuple) and isinstance(values, ast.Tuple)
            else [(targets, values)]
        )
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            joined = [node.right]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATH_CALLS:
            joined = node.args
        else:
            continue
        for part in joined:
            value = part.value if isinstance(part, ast.Constant) else constants.get(getattr(part, "id", ""))
            if isinstance(value, str):
                yield from ((node.lineno, name) for name in value.split("/"))


def owned() -> set[str]:
    """Every name of a file or folder that the owner spells."""
    calls = [node for node in ast.walk(ast.parse(OWNER.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "_Named"]
    names = {name.value for name in named if isinstance(name, ast.Constant) and isinstance(name.value, str)}
    return (names | {"release", "internal", "work", "released", "release.part"}) - COMMON


OWNED = owned()


def test_no_other_module_spells_a_path_of_a_run_folder() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SRC.rglob("*.py") if path != OWNER}
    found = [
        f"{path.relative_to(SRC)}, line {line}: {name}"
        for path, tree in trees.items()
        for line, name in spelled(tree)
        if name in OWNED
    ]
    assert len(trees) > 100
    assert not found, "take it from selpe.run.workspace"


@pytest.mark.parametrize(
    "planted",
    ['p = run / "work" / "later.txt"', 'FILE = "manifest.json"\np = run / FILE', 'A, B = "x", "raw.jsonl"\np = run / B',
     'found = out.glob("*/manifest.json")', 'p = run.joinpath("release")'],
)  # fmt: skip
def test_a_planted_path_is_found(planted: str) -> None:
    assert OWNED & {name for _, name in spelled(ast.parse(planted))}


def test_the_layout_of_a_run_folder_is_what_it_always_was() -> None:
    run = Workspace(Path("runs/a"))
    places = {
        run.manifest: "manifest.json",
        run.own_schema(): "schema.yaml",
        run.release.jsonl: "release/synthetic.jsonl",
        run.release.csv: "release/synthetic.csv",
        run.release.card: "release/privacy-card.json",
        run.release.card_text: "release/privacy-card.md",
        run.internal.note: "internal/NOT-FOR-RELEASE",
        run.internal.evaluation: "internal/evaluation.json",
        run.work.lock: "work/lock",
        run.work.answers: "work/answers.jsonl",
        run.work.vectors: "work/vectors.sqlite",
        run.work.events: "work/events.jsonl",
        run.work.released.card: "work/released/privacy-card.json",
        run.work.accepted: "work/accepted.json",
        run.work.topics("0123456789abcdef-and-more"): "work/topics-0123456789abcdef.json",
    }
    assert {path.relative_to("runs/a").as_posix() for path in places} == set(places.values())
    assert all(path.relative_to("runs/a").as_posix() == name for path, name in places.items())


def test_folders_are_values_of_their_own_kind() -> None:
    assert Workspace(Path("a")) == Workspace(Path("a")) != Workspace(Path("b"))
    assert len({ReleaseFolder(Path("a")), InternalFolder(Path("a")), WorkFolder(Path("a"))}) == 3


def test_only_folders_with_a_manifest_are_runs(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
    for name in ("b", "a"):
        Workspace(tmp_path / name).manifest.write_text("{}")
    assert [place.folder.name for place in workspaces(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "...", "../aside", "..\\aside", "a/b", "/tmp/a", "C:a", "a:stream", "a*", "what?", 'a"b',
     "a|b", "<a>", "a.", "a ", " a", "a\n", "a\x00b", "a\x1b[2J", "a\u202egnp", "a\udcff", "CON", "con", "nul.txt",
     "Aux .log", "COM1", "lpt9.old.zip", "COM\u00b9", "CONIN$", "a" * 201, "\u00fc" * 101],
)  # fmt: skip
def test_a_name_that_is_no_folder_in_out_on_some_system_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a run's name") as caught:
        require_run_name(name)
    assert str(caught.value).isprintable() or "\n  what to do" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["a", "desk-1", "desk_1.2", ".hidden", "-x", "Pr\u00fcfung 3", "console", "com10", "a" * 200]
)
def test_a_plain_name_is_taken_as_it_is(name: str) -> None:
    assert require_run_name(name) == name


def test_names_that_a_server_gives_are_names_of_runs() -> None:
    longest = f"{'t' * 48}-20260101-000000-0123456789ab"  # of a table with the longest name
    assert re.fullmatch(RUN_NAME, longest)
    assert require_run_name(longest) == longest
    assert require_run_name("con-20260101-000000-0123456789ab")
