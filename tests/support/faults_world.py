"""What the tests of faults share: a small project, the command line in this process or in one of its own, and damage.

Everything private in the project's table carries MARK, so that a message that quotes a cell is found out.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from in_process import Result, selpe
from selpe.errors import SelPEError
from selpe.intake import write_table
from selpe.privacy.ledger import Ledger
from selpe.schema import Record
from small_world import SCHEMA, drawn

MARK = "Qzx7Marker"
CONFIG = """
dataset: desk
data: desk.csv
schema: schema.yaml
epsilon: 4.0
records: 12
rounds: 2
batches: 2
alpha: 0.25
guides: off
bundles: 4
llm: fake
encoder: hash
seed: 5
"""
# A longer search: FIRE_EXAMPLES=2000 pytest tests/faults
EXAMPLES = int(os.environ.get("FIRE_EXAMPLES", "10"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FIRE_EXAMPLES" not in os.environ,  # a longer search looks elsewhere every time
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def make_project(folder: Path) -> Path:
    """A folder with settings, schema and a private table whose texts all carry the mark."""
    SCHEMA.save(folder / "schema.yaml")
    write_table(_rows(), SCHEMA, folder / "desk.csv")
    (folder / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


@cache
def _rows() -> list[Record]:
    return [{**row, "topic": f"{MARK} {number}"} for number, row in enumerate(drawn(40))]


def places(folder: Path) -> dict[str, str]:
    """The environment that keeps ledgers, key and cache of a project in its own folder."""
    return {f"SELPE_{name}": str(folder / name.lower()) for name in ("LEDGER", "KEY", "CACHE")}


def ledger(folder: Path) -> Ledger:
    """The ledger of the project's table."""
    return Ledger.open("desk", root=folder / "ledger")


def spent(folder: Path) -> float:
    """ε that the ledger says was spent, under replace-one."""
    return ledger(folder).spent().epsilon_replace_one


def choices(folder: Path) -> dict[tuple[str, str], Any]:
    """The stored results of the project's ledger, by run and selection."""
    found = [entry.data for entry in ledger(folder).entries() if entry.kind == "result"]
    return {(data["run"], data["selection"]): data["result"] for data in found}


def state(folder: Path, run: str = "mine") -> str:
    """The state in which a run's manifest is."""
    return str(json.loads((folder / "runs" / run / "manifest.json").read_text(encoding="utf-8"))["state"])


def released(folder: Path, run: str = "mine") -> dict[str, bytes]:
    """The files of a release that are the same for the same choices."""
    names = ("synthetic.csv", "synthetic.jsonl", "schema.json")
    return {name: (folder / "runs" / run / "release" / name).read_bytes() for name in names}


def require_tidy(result: Result, *codes: int) -> None:
    """An expected exit code, no traceback, no bug, nothing private and nothing that moves a cursor in what was said."""
    assert result.code in codes, result
    assert "Traceback" not in result.said, result.err
    assert "unexpected" not in result.err, result.err
    assert MARK not in result.said
    assert "\x1b" not in result.said
    assert "\x9b" not in result.said


def ours_or_fine(act: Callable[[], object]) -> SelPEError | None:
    """Runs an action that may fail with an error of ours alone, which quotes nothing private; returns it."""
    try:
        act()
    except SelPEError as error:
        told = [str(error), error.hint, repr(error.as_dict())]
        chain: BaseException | None = error
        while chain is not None:
            told += [str(chain), *traceback.format_exception_only(type(chain), chain)]
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
        assert MARK not in "\n".join(told)
        return error
    return None


# -- damage ---------------------------------------------

NASTY_BYTES = (
    b"", b"\0", b"\0" * 4096, b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"[" * 20_000, b'{"a":' * 20_000,
    b"9" * 5000, b"1e999", b"NaN", b"-", b'"', b"\\ud800", b"\xed\xa0\x80", b"\x1b]0;x\x07", b"&a [*a]", b"!!python/x",
    "\u2028".encode(), b"A" * 100_000,
)  # fmt: skip
NASTY_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 10**30, 1.5, 1e308, "", "x", "inf", "nan", "\x1b[31mred", "\u202e\u2028", "a" * 5000,
    "../../etc", [], [[]], {}, {"a": {}}, [None] * 3, ["x", 1], {"": 0},
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Bytes cut short, with a part taken out, changed, doubled or put in."""
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, min(len(raw), start + draw(st.sampled_from((1, 20, 2000, 10**6))))))
    way = draw(st.sampled_from(("cut", "drop", "flip", "double", "insert", "replace", "only")))
    put = draw(st.sampled_from(NASTY_BYTES) | st.binary(max_size=40))
    if way == "cut":
        return raw[:start]
    if way == "only":
        return put
    if way == "flip":
        return (
            raw[:start] + bytes(byte ^ draw(st.integers(1, 255)) for byte in raw[start : start + 3]) + raw[start + 3 :]
        )
    middle = {"drop": b"", "double": raw[start:end] * 2, "insert": put + raw[start:end], "replace": put}[way]
    return raw[:start] + middle + raw[end:]


@st.composite
def twisted(draw: st.DrawFn, content: Any) -> Any:
    """JSON with one thing in it that is something else, missing, or new."""
    changed = copy.deepcopy(content)
    paths = list(_paths(changed))
    path = draw(st.sampled_from(paths))
    if not path:
        return draw(st.sampled_from(NASTY_VALUES))
    inside = changed
    for part in path[:-1]:
        inside = inside[part]
    way = draw(st.sampled_from(("change", "change", "remove", "add")))
    if way == "remove":
        del inside[path[-1]]
    elif way == "add" and isinstance(inside, dict):
        inside[draw(st.sampled_from(("", "x", "kind", "state", "__class__")))] = draw(st.sampled_from(NASTY_VALUES))
    else:
        inside[path[-1]] = draw(st.sampled_from(NASTY_VALUES))
    return changed


def _paths(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    inside = (
        content.items() if isinstance(content, Mapping) else enumerate(content) if isinstance(content, list) else ()
    )
    for part, value in inside:
        found += _paths(value, (*at, part))
    return found


# -- a child that something happens to ---------------------------------------------


def befallen(words: tuple[object, ...], befall: Callable[[], None], patience: float = 300.0) -> Result:
    """A command in a fork of this process, which is quick, with something done to it first.

    A child that dies of a signal has minus its number as exit code, as in `subprocess`; one that has not ended after
    `patience` seconds is killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            befall()
            result = selpe(*words)
            os.write(writing, json.dumps([result.code, result.out, result.err]).encode())
        except BaseException:
            os.write(writing, json.dumps([99, "", traceback.format_exc()]).encode())
        os._exit(0)
    os.close(writing)
    killer = threading.Timer(patience, os.kill, (child, signal.SIGKILL))
    killer.start()
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    killer.cancel()
    _, status = os.waitpid(child, 0)
    return Result(*json.loads(told)) if told else Result(os.waitstatus_to_exitcode(status), "", "")


def at(owner: Any, name: str, befall: Callable[[], None], *, nth: int = 1, after: bool = False) -> Callable[[], None]:
    """Arms this process: something happens at the nth call of a function, before or after it."""

    def arm() -> None:
        whole, calls = getattr(owner, name), 0

        def watched(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == nth and not after:
                befall()
            result = whole(*arguments, **more)
            if calls == nth and after:
                befall()
            return result

        setattr(owner, name, watched)

    return arm
