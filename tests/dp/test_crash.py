"""A process may die at any byte: the ledger never understates, and nothing stored is drawn again."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from counting_world import Cut, by_class, by_third, class_and_third
from private_world import line_schema
from selpe.errors import BudgetError
from selpe.privacy.counts import CountTable
from selpe.privacy.ledger import Charge, Ledger
from selpe.privacy.ledger.charges import Receipt
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.noise import CountingNoise
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to die a thousand deaths quickly")

DIED = 77
EPSILON = 0.25  # a power of two: sums are exact


class QuickDisk(Disk):
    """A disk that does not wait: bytes written by a process outlive it, synced or not, as long as the machine runs."""

    def sync(self, handle: int) -> None:
        return None


class DyingDisk(QuickDisk):
    """A disk under a process that dies after `fuse` steps; a step is one byte, or one side of a system call."""

    def __init__(self, fuse: int) -> None:
        self.fuse = fuse

    def step(self) -> None:
        if self.fuse == 0:
            os._exit(DIED)
        self.fuse -= 1

    def around(self, action: Callable[[], None]) -> None:
        self.step()
        action()
        self.step()

    def write(self, handle: int, data: bytes) -> None:
        if self.fuse < len(data):
            os.write(handle, data[: self.fuse])
            os._exit(DIED)
        self.fuse -= len(data)
        super().write(handle, data)

    def sync(self, handle: int) -> None:
        self.around(lambda: super(DyingDisk, self).sync(handle))

    def replace(self, source: Path, target: Path) -> None:
        self.around(lambda: super(DyingDisk, self).replace(source, target))

    def truncate(self, path: Path, size: int) -> None:
        self.around(lambda: super(DyingDisk, self).truncate(path, size))


class PowerCutDisk(DyingDisk):
    """A disk that keeps nothing it was not asked to sync: bytes and names since the last sync die with the power."""

    def __init__(self, fuse: int) -> None:
        super().__init__(fuse)
        self.bytes: dict[int, bytes] = {}
        self.names: list[tuple[Path, Path]] = []

    def write(self, handle: int, data: bytes) -> None:
        self.bytes[handle] = self.bytes.get(handle, b"") + data

    def sync(self, handle: int) -> None:
        super().write(handle, self.bytes.pop(handle, b""))
        super().sync(handle)

    def replace(self, source: Path, target: Path) -> None:
        self.step()
        self.names.append((source, target))

    def sync_folder(self, folder: Path) -> None:
        self.step()
        while self.names:
            Disk.replace(self, *self.names.pop(0))
            self.step()


@dataclass
class Witness:
    """What the outside world saw of a run, over all its lives."""

    charged: int = 0
    deaths: int = 0
    drawn: dict[str, list[Any]] = field(default_factory=dict)
    used: dict[str, Any] = field(default_factory=dict)

    def hear(self, event: list[Any]) -> None:
        what, selection, value = event
        if what == "charged":
            self.charged += 1
        elif what == "drawn":
            assert selection not in self.used, "a stored selection was drawn again"
            self.drawn.setdefault(selection, []).append(value)
        else:
            assert self.used.setdefault(selection, value) == value, "a stored result changed"

    def told(self, stored: dict[str, Any] | None) -> Any:
        """What a stored result says."""
        return None if stored is None else stored["winner"]

    def check(self, root: Path) -> None:
        ledger = Ledger("t", root)
        total = ledger.spent()
        assert total.epsilon_replace_one >= self.charged * EPSILON, "the ledger understates what was spent"
        assert total.charges <= self.charged + self.deaths
        for selection, value in self.used.items():
            assert self.told(ledger.stored("run", selection)) == value


def live(root: Path, selections: int, say: Callable[[list[Any]], None], disk: Disk | None = None) -> None:
    """One life of a run: what is stored is used, the rest is charged, drawn, stored, and then used."""
    ledger = Ledger("t", root, disk=disk)
    ledger.set_budget(1000.0)
    account = ledger.account("run")
    for number in range(selections):
        selection = f"s{number}"
        result = account.stored(selection)
        if result is None:
            receipt = account.charge(Charge("run", selection, "test", EPSILON / 2, EPSILON))
            say(["charged", selection, 0])
            result = {"winner": int.from_bytes(os.urandom(6), "big")}
            say(["drawn", selection, result["winner"]])
            account.store(receipt, result)
        say(["used", selection, result["winner"]])


def spawn(body: Callable[[Callable[[list[Any]], None]], None]) -> tuple[int, int]:
    """Runs the body in a child process; returns its id and the pipe on which it says what it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        body(lambda event: void(os.write(writing, json.dumps(event).encode() + b"\n")))
        code = 0
    finally:
        os._exit(code)


def void(_: object) -> None:
    return None


def reap(child: int, pipe: int, witness: Witness) -> int:
    """Listens to a child until its end; returns its exit code, or minus the signal that ended it."""
    with os.fdopen(pipe, "rb") as stream:
        lines = stream.read().splitlines()
    for line in lines:
        witness.hear(json.loads(line))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    witness.deaths += code != 0
    return code


def life(root: Path, selections: int, witness: Witness, disk: Disk) -> int:
    child, pipe = spawn(lambda say: live(root, selections, say, disk))
    return reap(child, pipe, witness)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "crashing"  # not the folder of lasting ledgers: what is removed there is missed


def steps_of_one_life(root: Path, selections: int) -> int:
    class Counting(DyingDisk):
        def __init__(self) -> None:
            super().__init__(10**9)

    disk = Counting()
    live(root, selections, void, disk)
    shutil.rmtree(root)
    return 10**9 - disk.fuse


def test_death_at_every_step_of_a_charge_and_a_result(root: Path) -> None:
    steps = steps_of_one_life(root, 1)
    assert steps > 1500  # opening, cap, charge and result: four lines and four heads, byte by byte
    torn = 0
    for fuse in range(0, steps, 7):
        shutil.rmtree(root, ignore_errors=True)
        witness = Witness()
        assert life(root, 1, witness, DyingDisk(fuse)) == DIED
        witness.check(root)
        torn += bool(Ledger("t", root).read().torn)
        live(root, 1, witness.hear, QuickDisk())  # raises if a crash looks like tampering
        witness.check(root)
        assert set(witness.used) == {"s0"}
    assert torn > 80


class CountWitness(Witness):
    """What the outside world saw of measurements."""

    def told(self, stored: dict[str, Any] | None) -> Any:
        return None if stored is None else stored["counts"]


@dataclass
class Telling:
    """An account that says what it was asked for, when it is done: a charge after it, a draw before it is stored."""

    inner: Any
    say: Callable[[list[Any]], None]
    run: str = "run"

    def charge(self, charge: Charge) -> Receipt:
        receipt: Receipt = self.inner.charge(charge)
        self.say(["charged", charge.selection, 0])
        return receipt

    def stored(self, selection: str) -> Any:
        return self.inner.stored(selection)

    def store(self, receipt: Receipt, result: dict[str, Any]) -> None:
        self.say(["drawn", receipt.charge.selection, result["counts"]])
        self.inner.store(receipt, result)


def measure(root: Path, say: Callable[[list[Any]], None], disk: Disk | None = None) -> None:
    """One life of a run that counts twice: the private table itself pays, looks, draws and stores."""
    ledger = Ledger("t", root, disk=disk)
    ledger.set_budget(1000.0)
    rows: list[Record] = [{"x": x, "label": "A"} for x in (1, 50, 99)]
    table = PrivateTable(rows, line_schema("A", "B"), account=Telling(ledger.account("run"), say))
    for selection in ("c0", "c1"):
        # Twelve counts with noise of deviation 22: two draws are not equal by chance.
        tables = [class_and_third(), CountTable((by_class(), by_third(), Cut("one", 1, lambda _: 0)))]
        found = table.count(tables, noise=CountingNoise(EPSILON), selection=selection)
        say(["used", selection, [int(n) for part in found.tables.values() for n in part.ravel()]])


def test_death_at_every_step_of_a_measurement_neither_hides_a_charge_nor_draws_twice(root: Path) -> None:
    disk = DyingDisk(10**9)
    measure(root, void, disk)
    shutil.rmtree(root)
    steps = 10**9 - disk.fuse
    assert steps > 2500
    lost = 0
    for fuse in range(0, steps, 19):
        shutil.rmtree(root, ignore_errors=True)
        witness = CountWitness()
        child, pipe = spawn(lambda say, fuse=fuse: measure(root, say, DyingDisk(fuse)))  # type: ignore[misc]
        # Noisy counts are written with more digits or fewer: the last steps of one life may not be there in another.
        assert reap(child, pipe, witness) == DIED or fuse > steps - 100
        witness.check(root)
        lost += len(witness.drawn) > len(witness.used)
        measure(root, witness.hear, QuickDisk())  # raises if a crash looks like tampering
        witness.check(root)
        assert set(witness.used) == {"c0", "c1"}
        # A draw without a charge of its own would be free.
        assert sum(map(len, witness.drawn.values())) <= witness.charged
    assert lost > 10, "some lives must end between a draw and its storing, or nothing was tried"


def test_death_while_a_torn_line_is_mended(root: Path, tmp_path: Path) -> None:
    first = Witness()
    steps = steps_of_one_life(root, 1)
    fuse = steps - 300
    while True:  # dies inside the last line, the result
        shutil.rmtree(root, ignore_errors=True)
        first = Witness()
        life(root, 1, first, DyingDisk(fuse))
        if Ledger("t", root).read().torn and first.charged:
            break
        fuse -= 7
    kept = tmp_path / "kept"
    shutil.copytree(root, kept)
    for mending in range(0, 6000, 41):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        shutil.rmtree(tmp_path / "config" / "ledger.anchors")  # they would tell that an older copy was put back
        witness = Witness(first.charged, first.deaths, {k: list(v) for k, v in first.drawn.items()}, {})
        done = life(root, 1, witness, DyingDisk(mending)) == 0
        witness.check(root)
        live(root, 1, witness.hear, QuickDisk())
        witness.check(root)
        if done:
            kinds = [entry.kind for entry in Ledger("t", root).entries()]
            assert "repair" in kinds
            return
    pytest.fail("the run never got through its mending")


@pytest.mark.parametrize("kind", [DyingDisk, PowerCutDisk])
def test_a_run_that_dies_again_and_again_still_pays_for_every_draw(root: Path, kind: type[DyingDisk]) -> None:
    rng = random.Random(20)
    deaths = 0
    for _ in range(8):
        shutil.rmtree(root, ignore_errors=True)
        witness = Witness()
        while life(root, 6, witness, kind(rng.randrange(200, 2500))) != 0:
            witness.check(root)
            assert witness.deaths < 500
        witness.check(root)
        deaths += witness.deaths
        assert set(witness.used) == {f"s{n}" for n in range(6)}
        # A draw without a charge of its own would be free.
        assert sum(map(len, witness.drawn.values())) <= witness.charged
    assert deaths > 20


def test_two_processes_killed_from_outside_at_random_moments(root: Path) -> None:
    rng = random.Random(4)
    witness = Witness()
    ledger = Ledger("t", root)
    ledger.set_budget(1000.0)

    def hammer(name: str) -> Callable[[Callable[[list[Any]], None]], None]:
        def body(say: Callable[[list[Any]], None]) -> None:
            mine = Ledger("t", root)
            for number in range(10**6):
                receipt = mine.charge(Charge("run", f"{name}-{number}", "test", EPSILON / 2, EPSILON))
                say(["charged", f"{name}-{number}", 0])
                mine.store(receipt, {"winner": number})
                say(["used", f"{name}-{number}", number])

        return body

    for turn in range(25):
        children = [spawn(hammer(f"{turn}{side}")) for side in "ab"]
        select.select([pipe for _, pipe in children], [], [], 60)  # until one of them has begun
        time.sleep(rng.uniform(0, 0.02))
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        for child, pipe in children:
            assert reap(child, pipe, witness) == -signal.SIGKILL
        witness.check(root)
    assert witness.charged >= 25
    ledger.charge(Charge("after", "s", "test", EPSILON / 2, EPSILON))  # the lock died with its holders


def test_eight_processes_cannot_overspend_together(root: Path) -> None:
    Ledger("t", root).set_budget(5.0)

    def body(say: Callable[[list[Any]], None]) -> None:
        mine = Ledger("t", root)
        for number in range(1000):
            try:
                mine.charge(Charge(f"p{os.getpid()}", f"s{number}", "test", 0.05, 0.1))
            except BudgetError:
                return
            say(["charged", "", 0])

    witness = Witness()
    children = [spawn(body) for _ in range(8)]
    assert [reap(child, pipe, witness) for child, pipe in children] == [0] * 8
    total = Ledger("t", root).spent()
    assert witness.charged == total.charges == 50
    assert total.epsilon_replace_one == pytest.approx(5.0, rel=1e-12)
