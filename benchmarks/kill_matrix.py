"""The kill matrix: a process is killed (SIGKILL) at a chosen moment of its work, and the work is taken up again.

    python benchmarks/kill_matrix.py [--only ledger] [--check docs/reliability.md]

For every moment a run with the fake model and a seeded selection is begun, killed there, resumed and finished. Then

- the ledger adds up to what was planned, and to the price of one more draw where a paid draw was lost with its process;
- every choice that was stored before the kill stands;
- the release is the same, to the byte, as that of a run that nobody killed;
- with a budget that holds the plan and nothing more, real noise and the same kill, the budget is kept.

It prints the table of docs/reliability.md; `--check` compares instead, and fails where they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import selpe.experiments.cells
import selpe.report.evaluate
import selpe.report.summary
import selpe.run.lifecycle
import selpe.run.release
from bench_world import ask, bench
from selpe.config import RunConfig, check_config
from selpe.events import Included
from selpe.experiments.cells import RESULT, RUN
from selpe.experiments.conduct import conduct
from selpe.experiments.designs import DESIGNS
from selpe.intake import write_table
from selpe.models.answers import AnswerStore
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.encoders.vectors import VectorStore
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger
from selpe.privacy.ledger.disk import Disk
from selpe.report.evaluate import evaluate
from selpe.run.event_log import EventLog
from selpe.run.lifecycle import Run
from selpe.run.packing import pack_release
from selpe.run.release import RELEASED
from selpe.serve.worker import work
from small_world import SCHEMA, drawn

EPSILON, WIDE, SEED = 4.0, 1000.0, 11
SAME = ("synthetic.csv", "synthetic.jsonl", "schema.json")
AFTERWARDS = ("pack", "evaluate")  # what is done to a finished run
Arm = Callable[[], None]


def die(*_: object) -> None:
    """The end, as the system makes it: nothing is flushed, closed or said."""
    os.kill(os.getpid(), signal.SIGKILL)


# -- fuses: each changes one function of this process, which is a child that will die of it -------------------------


def fuse(
    owner: Any, name: str, *, instead: Callable[..., object] = die, after: bool = False, nth: int = 1,
    when: Callable[..., bool] = lambda *_: True,
) -> Arm:  # fmt: skip
    """Dies before or after the nth call of a function for which `when` holds; `instead` may do half of it first."""

    def arm() -> None:
        whole, calls = getattr(owner, name), 0

        def watched(*arguments: Any, **settings: Any) -> Any:
            nonlocal calls
            calls += (met := when(*arguments))
            if met and calls == nth and not after:
                instead(*arguments)
                die()
            result = whole(*arguments, **settings)
            if met and calls == nth:
                die()
            return result

        setattr(owner, name, watched)

    return arm


def charge_of(name: str) -> Callable[..., bool]:
    return lambda _, charge: charge.selection == name


def result_of(name: str) -> Callable[..., bool]:
    return lambda _, receipt, result: receipt.charge.selection == name


def line_of(kind: str) -> Callable[..., bool]:
    return lambda _, handle, data: f'"kind":"{kind}"'.encode() in data


def half_of_a_ledger_line(_: Disk, handle: int, data: bytes) -> None:
    os.write(handle, data[: len(data) // 2])


def half_of_an_answer(store: Any, raw: bytes) -> None:
    os.write(store._file.fileno(), raw[: len(raw) // 2])


def half_of_a_manifest(folder: Path, content: Any) -> None:
    text = json.dumps(content, default=str)
    (folder / "manifest.part").write_text(text[: len(text) // 2], encoding="utf-8")


def at_result(path: Path, _: object) -> bool:
    return path.name == RESULT


def at_zip(_: Path, target: Path) -> bool:
    return Path(target).suffix == ".zip"


def at_evaluation(path: Path, *_: object) -> bool:
    return path.name == "evaluation.json"


def half_of_an_evaluation(path: Path, text: str) -> None:
    path.write_bytes(text.encode()[: len(text) // 2])


def at_state(name: str) -> Callable[..., bool]:
    return lambda folder, content: content["state"] == name


@dataclass(frozen=True)
class Moment:
    """When a life ends. `lost` says how many draws are paid for and not known afterwards."""

    component: str
    what: str
    arms: tuple[Arm, ...]
    lost: int = 0
    life: str = "run"


FIRST, LAST = "round-1", "bundle"
MOMENTS = (
    Moment("ledger", "before the charge of a choice", (fuse(Ledger, "charge", when=charge_of(FIRST)),)),
    Moment(
        "ledger", "half of the charge's line written",
        (fuse(Disk, "write", when=line_of("charge"), instead=half_of_a_ledger_line),),
    ),
    Moment(
        "ledger", "charge written, not yet acknowledged",
        (fuse(Disk, "write", after=True, when=line_of("charge")),), 1,
    ),
    Moment(
        "ledger", "charge acknowledged, nothing drawn",
        (fuse(Ledger, "charge", after=True, when=charge_of(FIRST)),), 1,
    ),
    Moment("choice", "drawn, not yet stored", (fuse(Ledger, "store", when=result_of(FIRST)),), 1),
    Moment(
        "choice", "half of the result's line written",
        (fuse(Disk, "write", when=line_of("result"), instead=half_of_a_ledger_line),), 1,
    ),
    Moment("choice", "stored, not yet used", (fuse(Ledger, "store", after=True, when=result_of(FIRST)),)),
    Moment("choice", "choice of the release set drawn, not stored", (fuse(Ledger, "store", when=result_of(LAST)),), 1),
    Moment("choice", "choice of the release set stored", (fuse(Ledger, "store", after=True, when=result_of(LAST)),)),
    Moment("answers", "before an answer is kept", (fuse(AnswerStore, "_append", nth=9),)),
    Moment("answers", "half of an answer written", (fuse(AnswerStore, "_append", nth=9, instead=half_of_an_answer),)),
    Moment("answers", "an answer kept", (fuse(AnswerStore, "_append", nth=9, after=True),)),
    Moment("vectors", "before vectors are kept", (fuse(VectorStore, "put"),)),
    Moment("vectors", "vectors kept", (fuse(VectorStore, "put", after=True),)),
    Moment(
        "round", "records of a round taken in",
        (fuse(EventLog, "listen", when=lambda _, event: isinstance(event, Included)),),
    ),
    Moment(
        "manifest", "half of 'running' written",
        (fuse(selpe.run.lifecycle, "write_manifest", when=at_state("running"), instead=half_of_a_manifest),),
    ),
    Moment("release", "table written, card not", (fuse(selpe.run.release, "build_card"),)),
    Moment("release", "all files written, the ledger does not know", (fuse(selpe.run.release, "seal_release"),)),
    Moment("release", "in the ledger, its seal not written", (fuse(selpe.run.release, "seal_release", after=True),)),
    Moment("release", "before it is put in its place", (fuse(Path, "rename"),)),
    Moment("release", "in its place, run not yet 'done'", (fuse(Path, "rename", after=True),)),
    Moment(
        "release", "half of 'done' written",
        (fuse(selpe.run.lifecycle, "write_manifest", when=at_state("done"), instead=half_of_a_manifest),),
    ),
    Moment(
        "resume", "killed again: choice stored, then an answer half written",
        (
            fuse(Ledger, "store", after=True, when=result_of(FIRST)),
            fuse(AnswerStore, "_append", nth=3, instead=half_of_an_answer),
        ),
    ),
    Moment(
        "resume", "killed again: draw lost, and lost again",
        (fuse(Ledger, "store", when=result_of(FIRST)), fuse(Ledger, "store", when=result_of(FIRST))), 2,
    ),
    Moment(
        "resume", "killed while a torn ledger line is mended",
        (
            fuse(Disk, "write", when=line_of("charge"), instead=half_of_a_ledger_line),
            fuse(Disk, "truncate"),
        ),
    ),
    Moment("server's run", "draw lost", (fuse(Ledger, "store", when=result_of(FIRST)),), 1, "server"),
    Moment("server's run", "release in its place, not yet 'done'", (fuse(Path, "rename", after=True),), life="server"),
    Moment(
        "evaluate", "half of the evaluation written",
        (fuse(selpe.report.evaluate, "write_text", when=at_evaluation, instead=half_of_an_evaluation),),
        life="evaluate",
    ),
    Moment(
        "experiment", "a cell's draw lost", (fuse(Ledger, "store", when=result_of(FIRST)),), 1, life="cell",
    ),
    Moment(
        "experiment", "a cell measured, its result not yet written",
        (fuse(selpe.experiments.cells, "write_json", when=at_result),), life="cell",
    ),
    Moment("pack", "zip written, not yet in its place", (fuse(Path, "replace", when=at_zip),), life="pack"),
    Moment("pack", "zip in its place", (fuse(Path, "replace", when=at_zip, after=True),), life="pack"),
)  # fmt: skip


# -- lives ---------------------------------------------


def settings(root: Path, out: Path) -> RunConfig:
    """A small run with two rounds and a choice of the release set."""
    return check_config(
        {
            "dataset": "desk", "data": str(root / "private.csv"), "schema": str(root / "schema.yaml"),
            "epsilon": EPSILON, "records": 12, "rounds": 2, "batches": 2, "alpha": 0.25, "guides": "off", "bundles": 4,
            "llm": "fake", "encoder": "hash", "out": str(out), "seed": 5,
        },
        where="kill matrix",
    )  # fmt: skip


def do(life: str, folder: Path, test_seed: int | None) -> None:
    """One life's work, to its end."""
    if life == "pack":
        run = Run.open(folder)
        pack_release(folder, {**run.manifest, "private": False}, run.schema, allowed=RELEASED,
                     to=folder.parent / "packed.zip", not_private_control=True)  # fmt: skip
    elif life == "evaluate":
        table = write_table(drawn(24, offset=5000), SCHEMA, folder.parent / "test.csv")
        found = evaluate(
            folder, test=table, private=False, encoder=HashingEncoder(64), views=("boosted",), bootstrap=20
        )
        found.write(folder / "internal")
    elif life == "cell":
        with bench(folder) as made:
            done = conduct([cell()], made)
            assert len(done.results) == 1
    elif life == "server" and test_seed is None:
        assert work(folder, threading.Event()) == 0
    else:
        Run.open(folder).execute(model=FakeModel(), encoder=HashingEncoder(64), test_seed=test_seed)


def cell() -> Any:
    """The cell of an experiment that does a run of ours."""
    return next(one for one in DESIGNS["compare"](ask()) if one.row == "selpe")


def lived(life: str, folder: Path, test_seed: int | None, arm: Arm | None) -> bool:
    """Does a life in a child of this process. True where it was killed; anything but that or success is an error."""
    child = os.fork()
    if child == 0:
        try:
            if arm is not None:
                arm()
            do(life, folder, test_seed)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise AssertionError(f"a life ended with status {status}")
    return False


def choices(ledger: Ledger) -> dict[str, Any]:
    return {e.data["selection"]: e.data["result"] for e in ledger.entries() if e.kind == "result"}


def released(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "release" / name).read_bytes() for name in SAME}


class House:
    """A table, and places to do runs on it, each with a ledger of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        os.environ["SELPE_KEY"] = str(root / "key")
        write_table(drawn(40, offset=9000), SCHEMA, root / "private.csv")
        SCHEMA.save(root / "schema.yaml")
        self._number = 0
        self.whole = self.begun(WIDE)
        assert not lived("run", self.whole.folder, SEED, None)
        self.expected = released(self.whole.folder)
        assert not lived("pack", self.whole.folder, SEED, None)
        self.zip = (self.whole.folder.parent / "packed.zip").read_bytes()
        charges = self.whole.ledger.charges()
        self.prices = {charge.selection: charge.epsilon_replace_one for charge in charges}

    def begun(self, budget: float) -> Run:
        """A new run in a place of its own."""
        self._number += 1
        place = self.root / f"place-{self._number}"
        run = Run.create(settings(self.root, place / "runs"), name="same", ledger=place / "ledgers")
        run.ledger.set_budget(budget)
        return run

    def survives(self, moment: Moment) -> str:
        """Tries a moment; returns the row of the table, or raises where anything was lost."""
        if moment.life == "cell":
            return self._cell_survives(moment)
        run = self.begun(WIDE)
        if moment.life in AFTERWARDS:
            assert not lived("run", run.folder, SEED, None)
        stood = self._killed(moment, run, SEED)
        assert not lived(moment.life, run.folder, SEED, None)
        after = choices(run.ledger)
        assert stood.items() <= after.items(), "a stored choice changed"
        assert released(run.folder) == self.expected, "the release differs"
        if moment.life == "pack":
            assert (run.folder.parent / "packed.zip").read_bytes() == self.zip, "the zip differs"
        if moment.life == "evaluate":
            told = json.loads((run.folder / "internal" / "evaluation.json").read_text(encoding="utf-8"))
            assert told["subject"], "nothing was judged"
        spent = run.ledger.spent()
        lost = LAST if "release set" in moment.what else FIRST
        planned = EPSILON + moment.lost * self.prices[lost]
        assert abs(spent.epsilon_replace_one - planned) < 1e-9, (spent, planned)
        assert spent.without_result == moment.lost
        assert list((run.folder / "work").glob("release.part")) == []
        kept = self._keeps_its_budget(moment) if moment.life not in AFTERWARDS else "–"
        shutil.rmtree(run.folder.parents[1])
        paid = f"{EPSILON:g}" + (f" + {moment.lost * self.prices[lost]:.3g}" if moment.lost else "")
        stands = f"{len(stood)} of {len(stood)}"
        return f"| {moment.component} | {moment.what} | {len(moment.arms)} | {paid} | {stands} | same bytes | {kept} |"

    def _cell_survives(self, moment: Moment) -> str:
        """The same for a cell of an experiment, whose budget is its ε: real noise, so that no release is compared."""
        self._number += 1
        root = self.root / f"place-{self._number}" / "grid"
        root.parent.mkdir()
        for arm in moment.arms:
            assert lived("cell", root, None, arm), "the moment never came"
        with bench(root) as made:
            run = Run.open(made.folder(cell()) / RUN)
        stood = choices(run.ledger)
        assert not lived("cell", root, None, None)
        assert stood.items() <= choices(run.ledger).items(), "a stored choice changed"
        result = json.loads((run.folder.parent / RESULT).read_text(encoding="utf-8"))
        assert result["state"] == "done"
        spent = run.ledger.spent()
        assert spent.epsilon_replace_one <= run.config.epsilon + 1e-9, spent
        assert spent.without_result == moment.lost
        shutil.rmtree(root.parent)
        paid = f"{spent.epsilon_replace_one:.4g}"
        stands = f"{len(stood)} of {len(stood)}"
        return (
            f"| {moment.component} | {moment.what} | {len(moment.arms)} | {paid} | {stands} | – "
            f"| {paid} of {run.config.epsilon:g} |"
        )

    def _killed(self, moment: Moment, run: Run, test_seed: int | None) -> dict[str, Any]:
        stood: dict[str, Any] = {}
        for arm in moment.arms:
            assert lived(moment.life, run.folder, test_seed, arm), "the moment never came"
            now = choices(run.ledger)  # raises where a kill looks like an edit
            assert stood.items() <= now.items(), "a stored choice changed"
            stood = now
        return stood

    def _keeps_its_budget(self, moment: Moment) -> str:
        """The same with noise from the system and a budget that holds the plan alone: ε spent in the end."""
        run = self.begun(EPSILON)
        stood = self._killed(moment, run, None)
        assert not lived(moment.life, run.folder, None, None)
        assert stood.items() <= choices(run.ledger).items(), "a stored choice changed"
        spent = run.ledger.spent().epsilon_replace_one
        assert spent <= EPSILON + 1e-9, spent
        assert json.loads((run.folder / "manifest.json").read_text())["private"] is True
        shutil.rmtree(run.folder.parents[1])
        return f"{spent:.4g} of {EPSILON:g}"


HEAD = """| component | killed when | kills | ε spent | stored choices that stand | release | with a tight budget |
|---|---|---|---|---|---|---|"""


def table(moments: Sequence[Moment], tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """The rows of the matrix; raises at the first moment that costs anything it should not."""
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder))
        rows = []
        for moment in moments:
            try:
                rows.append(house.survives(moment))
            except AssertionError as problem:
                raise AssertionError(f"{moment.component}, {moment.what}: {problem}") from problem
            tell(rows[-1])
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="moments of one component")
    parser.add_argument("--check", type=Path, help="a page that must hold the table")
    options = parser.parse_args()
    print(HEAD, flush=True)
    chosen = [moment for moment in MOMENTS if options.only in (None, moment.component)]
    rows = table(chosen, lambda row: print(row, flush=True))
    if options.check is not None:
        missing = [row for row in rows if row not in options.check.read_text(encoding="utf-8")]
        sys.exit(f"{len(missing)} rows are not in {options.check}" if missing else 0)


if __name__ == "__main__":
    main()
