"""The boundary: who may import what, and that no private value gets out by any side door.

A marker stands in every private cell. It must not turn up in results, errors, tracebacks, logs, warnings, pickles,
representations or files, even when a kernel or a judge quotes it on purpose.
"""

from __future__ import annotations

import ast
import copy
import logging
import pickle
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import selpe
from counting_world import Cut
from private_world import MARKER, MemoryAccount
from selpe.errors import DataError, ModelError, PrivacyError
from selpe.method.kernel import MultiChannelKernel
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy.counts import CountTable
from selpe.privacy.ledger import Ledger
from selpe.privacy.mechanisms import NoisyMax
from selpe.privacy.noise import CountingNoise
from selpe.privacy.table import PrivateTable
from selpe.privacy.votes import Approval, Closeness, Coverage, FieldVote, Predictive, Prototype
from selpe.schema import Record, Schema

SOURCE = Path(selpe.__file__).parent
ROOM = SOURCE / "privacy"
PROOF = ROOM / "PROOF.md"
TESTS = Path(__file__).resolve().parents[1]
NUMBER = 471147

SCHEMA = Schema.from_dict(
    {
        "name": "boundary",
        "label": "kind",
        "fields": {
            "note": {"kind": "text", "max_length": 200},
            "level": {"kind": "integer", "min": 0, "max": 10**6},
            "kind": {"kind": "category", "values": ["a", "b"]},
        },
    }
)
ROWS: list[Record] = [
    {"note": f"{MARKER} {i}", "level": NUMBER + i, "kind": "ab"[i % 2], "who": f"{MARKER}-{i // 2}"} for i in range(8)
]
PUBLIC: list[Record] = [{"note": f"made up {i}", "level": i, "kind": "ab"[i % 2]} for i in range(6)]


# -- the source ------------------------------------------------------------------------------------------------------


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every module that is imported, with the name taken from it ('' for all of it), wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module"):
            yield ast.unparse(node.args[0]).strip("'\""), ""


def test_one_module_imports_opendp() -> None:
    found = {name for name, tree in modules() if any(m.split(".")[0] == "opendp" for m, _ in imports(tree))}
    assert found == {"privacy/mechanisms.py"}


def test_the_inner_rooms_are_imported_by_the_private_table_alone() -> None:
    inner = {"selpe.privacy.admission", "selpe.privacy.batches", "selpe.privacy.withholding"}
    for name, tree in modules():
        taken = {m for m, _ in imports(tree)} | {f"{m}.{n}" for m, n in imports(tree)}
        assert name.startswith("privacy/") or not taken & inner, name


def test_outside_the_room_votes_are_known_by_their_public_names_only() -> None:
    public = {"Approval", "Closeness", "Prototype", "Predictive", "Coverage", "FieldVote", "Kernel", "PoolKernel",
              "Judge", "FieldJudge", "Representation", "SetVote", "RecordVote"}  # fmt: skip
    for name, tree in modules():
        if not name.startswith("privacy/"):
            taken = {n for m, n in imports(tree) if m == "selpe.privacy.votes"}
            assert taken <= public, name
            assert ("selpe.privacy", "votes") not in set(imports(tree)), name


def test_no_module_reaches_into_the_private_table() -> None:
    slots = {name.removeprefix("_PrivateTable") for name in PrivateTable.__slots__}
    assert "__rows" in slots
    for name, tree in modules():
        for node in ast.walk(tree):
            reached = node.attr if isinstance(node, ast.Attribute) else ""
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            assert not reached.startswith("_PrivateTable"), name
            assert "_PrivateTable__" not in text, name
            assert name == "privacy/table.py" or reached not in slots, name


def test_only_the_private_table_keeps_rows() -> None:
    """No other object of the room has an attribute for rows: what passes through it is not kept."""
    for name, tree in modules():
        if not name.startswith("privacy/") or name == "privacy/table.py":
            continue
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                kept = target.attr if isinstance(target, ast.Attribute) else ""
                assert not re.search("row|record", kept), (name, kept)


def test_nothing_in_the_room_prints_or_logs() -> None:
    for name, tree in modules():
        if name.startswith("privacy/"):
            assert "logging" not in {m for m, _ in imports(tree)}, name
            calls = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
            assert not calls & {"print", "warnings.warn"}, name


def test_the_private_table_offers_these_things_and_no_more() -> None:
    assert {name for name in dir(PrivateTable) if not name.startswith("_")} == {
        "choose", "count", "fingerprint", "histogram", "learn", "marginals", "select", "unit",
    }  # fmt: skip
    for absent in ("__iter__", "__getitem__", "__contains__", "__array__", "__dict__"):
        assert not hasattr(private_table(), absent), absent


def test_no_method_asks_the_private_table_for_its_length() -> None:
    """A method knows the number that its plan was made from, which may be a stated one (PROOF.md, step 25)."""
    asked = {f"len({name})" for name in ("table", "private", "self.private", "looks.table")}
    for name, tree in modules():
        if name.startswith("baselines/") or name.startswith("method/"):
            calls = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            assert not calls & asked, name


def test_every_test_that_the_proof_names_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PROOF.read_text(encoding="utf-8"))
    assert len(named) >= 12
    for file, test in named:
        path = TESTS / file
        assert path.exists(), file
        defined = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
        assert test in defined, f"{file}::{test}"


def test_every_numbered_step_of_the_proof_names_a_test() -> None:
    steps = re.split(r"^(?=\d+\. )", PROOF.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(steps) >= 10
    for step in steps:
        assert re.search(r"`[\w/]+\.py::\w+`", step), step[:80]


# -- the marker ------------------------------------------------------------------------------------------------------


def clean(text: str) -> bool:
    return MARKER not in text and str(NUMBER)[:5] not in text


def private_table(account: Any = None) -> PrivateTable:
    return PrivateTable(ROWS, SCHEMA, account=account or MemoryAccount(), unit="who")


class QuotingKernel(MultiChannelKernel):
    """A kernel that quotes what it sees at a chosen moment."""

    def __init__(self, quote: Callable[[str], None], when: str) -> None:
        super().__init__(SCHEMA, HashingEncoder())
        self.quote, self.when = quote, when

    def represent(self, records: Sequence[Record], encode: Any = None) -> Any:
        if self.when == "represent" and MARKER in str(records):
            self.quote(str(records))
        return super().represent(records, encode)

    def over(self, pool: Any) -> Any:
        inner, outer = super().over(pool), self

        class Pool(type(inner)):  # type: ignore[misc]
            def __init__(self) -> None:
                self.__dict__.update(inner.__dict__)

            def distances(self, rows: Any) -> Any:
                if outer.when == "distances":
                    outer.quote(f"{MARKER} {NUMBER}")
                return super().distances(rows)

        return Pool()


class QuotingJudge:
    """A judge that quotes what it sees."""

    views, options, remote = 2, 4, None

    def __init__(self, quote: Callable[[str], None]) -> None:
        self.quote = quote

    def read(self, rows: Sequence[Record]) -> Sequence[Record]:
        return rows

    def score(self, rows: Sequence[Record]) -> NDArray[np.float64]:
        self.quote(str(rows))
        return np.zeros((2, len(rows), 4))


class QuotingFieldJudge:
    """A judge of fields that quotes what it sees."""

    options, remote = 3, None

    def __init__(self, quote: Callable[[str], None]) -> None:
        self.quote = quote

    def votes(self, row: Record) -> NDArray[np.float64]:
        self.quote(str(row))
        return np.array([0.1, 0.5, 0.9])


def quoting_tables(quote: Callable[[str], None]) -> list[CountTable]:
    """A table of counts whose coder quotes what it sees."""

    def code(row: Record) -> int:
        quote(str(row))
        return int(row["level"]) % 3  # type: ignore[arg-type]

    return [CountTable((Cut("kind", 2, lambda row: "ab".index(str(row["kind"]))), Cut("level", 3, code)))]


def raise_with(kind: type[BaseException]) -> Callable[[str], None]:
    def quote(text: str) -> None:
        try:
            raise ValueError(text)  # an error with a cause, as real encoders have
        except ValueError as error:
            raise kind(text) from error

    return quote


def everything(error: BaseException) -> str:
    """All that a debugger, a crash reporter or a log could show of an error: chain, frames of ours, their locals."""
    parts: list[str] = []
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        current = queue.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        parts += [repr(current), str(current), repr(vars(current)), *traceback.format_exception(current)]
        parts += [repr(value) for frame in ours(current.__traceback__) for value in frame.items()]
        queue += [current.__cause__, current.__context__]
    return "\n".join(parts)


def ours(trace: TracebackType | None) -> Iterator[dict[str, Any]]:
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).is_relative_to(SOURCE):
            yield trace.tb_frame.f_locals
        trace = trace.tb_next


def ask(table: PrivateTable, kernel: Any, selection: str = "round", **settings: Any) -> Any:
    pool = kernel.over(kernel.represent(PUBLIC))
    settings = {"mechanism": NoisyMax(1.0), **settings}
    return table.select({"a": pool, "b": pool}, kernel=kernel, selection=selection, **settings)


@pytest.mark.parametrize("kind", [RuntimeError, ModelError, DataError, KeyError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("when", ["represent", "distances", "prototype", "judge", "field judge", "code"])
def test_an_error_that_quotes_a_row_is_replaced_by_one_that_does_not(kind: type[BaseException], when: str) -> None:
    table = private_table()
    quote = raise_with(kind)

    def run() -> None:
        if when == "judge":
            table.choose(Predictive(QuotingJudge(quote)), mechanism=NoisyMax(1.0), selection="bundle")
        elif when == "field judge":
            table.choose(FieldVote(QuotingFieldJudge(quote)), mechanism=NoisyMax(1.0), selection="field")
        elif when == "code":
            table.count(quoting_tables(quote), noise=CountingNoise(1.0), selection="counts")
        else:
            vote = Prototype() if when == "prototype" else Approval()
            ask(table, QuotingKernel(quote, "distances" if when == "prototype" else when), vote=vote)

    with pytest.raises(KeyboardInterrupt if kind is KeyboardInterrupt else ModelError) as caught:
        run()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert clean(everything(caught.value))


def test_warnings_that_quote_a_row_are_swallowed() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(private_table(), QuotingKernel(lambda text: warnings.warn(text, stacklevel=1), "represent"))
        tables = quoting_tables(lambda text: warnings.warn(text, stacklevel=1))
        private_table().count(tables, noise=CountingNoise(1.0), selection="counts")
    assert all(clean(str(warning.message)) for warning in caught)


def test_a_row_that_does_not_fit_is_not_quoted() -> None:
    for bad in ({"note": MARKER * 30}, {"level": NUMBER * 1000}, {"kind": MARKER}, {MARKER: 1}, {"who": None}):
        with pytest.raises(DataError) as caught:
            PrivateTable([*ROWS, {**ROWS[0], **bad}], SCHEMA, account=MemoryAccount(), unit="who")
        if MARKER not in bad:  # the name of a column that should not be there is said; its cells are not
            assert clean(everything(caught.value))
        assert str(NUMBER) not in everything(caught.value)


def test_a_check_that_fails_on_a_row_does_not_quote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schema, "check", lambda _, record: raise_with(RuntimeError)(str(record)))
    with pytest.raises(ModelError) as caught:
        private_table()
    assert clean(everything(caught.value))


def test_the_table_shows_nothing_of_its_rows() -> None:
    table = private_table()
    ask(table, MultiChannelKernel(SCHEMA, HashingEncoder()))
    for shown in (repr(table), str(table), f"{table}", f"{table!r:>5}", str([table]), str(dir(table))):
        assert clean(shown)
    with pytest.raises(TypeError):
        vars(table)
    with pytest.raises(TypeError):
        iter(table)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        table[0]  # type: ignore[index]


@pytest.mark.parametrize(
    "copying",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda t, p=p: pickle.dumps(t, protocol=p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
    ],
)
def test_the_table_cannot_be_copied_or_pickled(copying: Callable[[PrivateTable], object]) -> None:
    with pytest.raises(PrivacyError) as caught:
        copying(private_table())
    assert clean(everything(caught.value))


def test_the_table_cannot_be_extended() -> None:
    with pytest.raises(PrivacyError):
        type("Open", (PrivateTable,), {})


def test_a_whole_session_leaves_no_private_value_in_files_logs_or_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("boundary", root=tmp_path / "ledgers")
    ledger.set_budget(100.0)
    table = private_table(ledger.account("run"))
    ledger.recognise(table.fingerprint())
    kernel = MultiChannelKernel(SCHEMA, HashingEncoder())
    shown: list[Any] = []
    for number, vote in enumerate((Approval(), Closeness(), Prototype())):
        shown.append(ask(table, kernel, f"round-{number}", vote=vote, batches=2))
    pool = kernel.over(kernel.represent(PUBLIC))
    shown.append(table.choose(Coverage(kernel, pool, ((0, 1), (2, 3))), mechanism=NoisyMax(1.0), selection="guide"))
    judge = QuotingJudge(lambda _: None)
    shown.append(table.choose(Predictive(judge), mechanism=NoisyMax(1.0), selection="bundle"))
    field = FieldVote(QuotingFieldJudge(lambda _: None))
    shown.append(table.choose(field, mechanism=NoisyMax(1.0), selection="field"))
    counted = table.count(quoting_tables(lambda _: None), noise=CountingNoise(1.0), selection="counts")
    shown += [counted, counted.tables["kind × level"].tolist()]
    with pytest.raises(ModelError):
        table.count(quoting_tables(raise_with(RuntimeError)), noise=CountingNoise(1.0), selection="broken counts")
    with pytest.raises(ModelError):
        ask(table, QuotingKernel(raise_with(RuntimeError), "represent"), "broken")
    assert clean(repr(shown))
    assert clean(caplog.text)
    assert clean("".join(capfd.readouterr()))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in files)
    for path in files:
        assert clean(path.read_bytes().decode("utf-8", "replace")), path.name
