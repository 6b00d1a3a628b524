"""A project whose nights are bad: lives in children of this process, recorded or disturbed, and what must stand after.

The run has a seeded selection, so that a release has the same bytes however often it was interrupted; its budget is
wide, so that draws which were lost with their process can be paid for again.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typer.main import get_command

import selpe.cli
import selpe.run.lifecycle
from faults_world import CONFIG, make_project, places, require_tidy
from in_process import selpe as command
from power_cut import Recorder, Recording
from selpe.intake import write_table
from selpe.models.store.registry import REGISTRY, HubSource, ModelEntry, ModelFile
from selpe.models.store.store import ModelStore
from selpe.privacy.ledger import Charge, Ledger
from selpe.privacy.ledger.charges import Receipt
from selpe.privacy.ledger.disk import Disk as LedgerDisk
from selpe.privacy.sealing import require_whole
from selpe.run.manifest import read_manifest
from selpe.run.workspace import Workspace
from selpe.serve.worker import work
from serve_world import CSV, YAML, House
from small_world import SCHEMA, drawn

SMALL = {"measure": "off", "records": 4, "batches": 1, "bundles": 2}
MEMORY = Path("/dev/shm")
SEED = 11
WIDE = ("budget", "set", "desk", "--epsilon", 1000)
BEGIN = ("run", "--name", "mine", "--yes")
PACK = ("release", "mine", "--to", "mine.zip", "--not-private-control", "--yes")
SAME = ("synthetic.csv", "synthetic.jsonl", "schema.json")
Say = Callable[[Any], None]


@contextmanager
def place() -> Iterator[Path]:
    """A folder for one world, on a disk that does not wait where there is one."""
    with TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder).resolve()


@contextmanager
def project(root: Path, **settings: Any) -> Iterator[Path]:
    """A folder with settings, schema and table, its ledgers, key and cache below `house`, and the process in it."""
    root = root.resolve()
    kept, before = Path.cwd(), dict(os.environ)
    os.environ |= {**places(root / "house"), "SELPE_ALLOW_FAKE": "1", "SELPE_LOCAL_SERVERS": "off"}
    defaults: dict[str, Any] = selpe.run.lifecycle.Run.execute.__kwdefaults__  # type: ignore[assignment]
    seeded, build = dict(defaults), selpe.cli.build
    commands = get_command(build())  # made once: it takes as long as a small run
    try:
        make_project(root)
        lines = {**dict(line.split(": ", 1) for line in CONFIG.split("\n") if line), **settings}
        text = "".join(f"{name}: {value}\n" for name, value in lines.items())
        (root / "selpe.yaml").write_text(text, encoding="utf-8")
        defaults["test_seed"] = SEED
        selpe.cli.build = lambda: commands  # type: ignore[assignment,return-value]
        os.chdir(root)
        yield root
    finally:
        defaults.update(seeded)
        selpe.cli.build = build
        os.chdir(kept)
        os.environ.clear()
        os.environ.update(before)


def in_child(work: Callable[[], Any]) -> Any:
    """What comes of some work in a child of this process; an error of it is raised here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            said: tuple[bool, Any] = (True, work())
        except AssertionError as problem:
            said = (False, f"{problem}")
        except BaseException:
            said = (False, traceback.format_exc())
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(said, pipe)
        finally:  # whatever happens, a child never goes on with its parent's work
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(child, 0)
    assert raw, f"a child ended with status {status}"
    fine, found = pickle.loads(raw)
    assert fine, found
    return found


@contextmanager
def telling(say: Say) -> Iterator[None]:
    """Says each charge that a run may act on, and each result that it may use, the moment that it may."""
    charge, store = Ledger.charge, Ledger.store

    def charged(self: Ledger, asked: Charge) -> Receipt:
        receipt = charge(self, asked)
        say(("charged", asked.selection))
        return receipt

    def stored(self: Ledger, receipt: Receipt, result: Mapping[str, Any]) -> None:
        store(self, receipt, result)
        say(("stored", receipt.charge.selection))

    Ledger.charge, Ledger.store = charged, stored  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Ledger.charge, Ledger.store = charge, store  # type: ignore[method-assign]


def recorded(root: Path, life: Callable[[Say], None]) -> Recording:
    """What a life below a folder did to the disk, and what was known outside meanwhile."""

    def work() -> Recording:
        recorder = Recorder(root)
        with recorder.watched.watching(), telling(recorder.mark):
            life(recorder.mark)
        return Recording(recorder.before, tuple(recorder.effects))

    found: Recording = in_child(work)
    return found


def whole_life(say: Say) -> None:
    """A budget, a run and a packed release, by the command line."""
    for words in (WIDE, BEGIN, PACK):
        result = command(*words)
        assert result.code == 0, result
        say(("done", words[0]))


def take_up(root: Path) -> list[tuple[str, str]]:
    """Goes on after whatever has happened, as its owner would; gives the charges and results of this life."""
    told: list[tuple[str, str]] = []
    with telling(told.append):
        if (budget := Ledger.open("desk").budget) is None or budget.epsilon != WIDE[-1]:
            require_tidy(command(*WIDE), 0)
        begun = Workspace(root / "runs" / "mine").is_run
        require_tidy(command(*(("resume", "mine") if begun else BEGIN)), 0)
        require_tidy(command(*PACK), 0)
    return told


def released(root: Path) -> dict[str, bytes]:
    """The files of the release that are the same whatever was lost on the way."""
    return {name: (root / "runs" / "mine" / "release" / name).read_bytes() for name in SAME}


def paid(root: Path) -> Counter[str]:
    """How often each selection was charged."""
    return Counter(charge.selection for charge in Ledger.open("desk").charges())


def require_not_understated(root: Path, told: Sequence[Any]) -> None:
    """Whatever a run was allowed to draw is in the ledger."""
    drawn = Counter(mark[1] for mark in told if mark[0] == "charged")
    missing = drawn - paid(root)
    assert not missing, f"understated: {dict(missing)}"


def require_standing(root: Path, told: Sequence[Any]) -> None:
    """What its owner was told to be done is done, without anybody's help."""
    done = {mark[1] for mark in told if mark[0] == "done"}
    folder = root / "runs" / "mine"
    if "run" in done:
        manifest = read_manifest(folder)
        assert manifest is not None, "done, and the run is gone"
        assert manifest["state"] == "done", f"done, and now {manifest['state']}"
        require_whole(folder / "release", manifest)
    if "release" in done or (root / "mine.zip").exists():
        result = command("verify", "mine.zip")
        assert result.code == 0, f"the zip: {result.err}"


def require_right_end(root: Path, before: Sequence[Any], expected: Mapping[str, bytes]) -> None:
    """Going on ends with the same release; nothing stored is drawn again, and nothing is understated."""
    after = take_up(root)
    assert released(root) == expected, "another release"
    stood = {mark[1] for mark in before if mark[0] == "stored"}
    again = {name for what, name in after if what == "charged"} & stood
    assert not again, f"drawn again: {sorted(again)}"
    require_not_understated(root, [*before, *after])
    require_standing(root, [("done", "run"), ("done", "release")])
    assert not Ledger.open("desk").read().unchecked


# -- a run that was killed in the middle of a line of its ledger -----------------------------------------------------


@contextmanager
def killed_project(root: Path) -> Iterator[Path]:
    """A project whose run has drawn twice and was killed while the second result was written."""
    with project(root, **SMALL):
        child = os.fork()
        if child == 0:
            write = LedgerDisk.write

            def dying(self: LedgerDisk, handle: int, data: bytes) -> None:
                if b'"selection":"round-2"' in data and b'"kind":"result"' in data:
                    write(self, handle, data[: len(data) // 2])
                    os._exit(0)
                write(self, handle, data)

            LedgerDisk.write = dying  # type: ignore[method-assign]
            for words in (WIDE, BEGIN):
                command(*words)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, "the moment never came"
        yield root


def resumed_life(say: Say) -> None:
    """A run taken up again, and its zip."""
    for words, done in ((("resume", "mine"), "run"), (PACK, "release")):
        result = command(*words)
        assert result.code == 0, result
        say(("done", done))


# -- a server ---------------------------------------------------------------------------------------------------------

ASKED = {
    "records": 12,
    "epsilon": 4.0,
    "rounds": 2,
    "batches": 1,
    "alpha": 0.25,
    "bundles": 4,
    "guides": "off",
    "seed": 5,
}


@cache
def uploads() -> tuple[bytes, bytes]:
    """Two versions of a table, as they are sent."""
    with TemporaryDirectory() as folder:
        both = (drawn(30), drawn(40))
        first, second = (write_table(rows, SCHEMA, Path(folder) / "t.csv").read_bytes() for rows in both)
        return first, second


def served_life(say: Say) -> None:
    """A server that is sent a table twice and a schema, and does a run, which is packed."""
    server = House(Path("server").resolve())
    for number, content in enumerate(uploads()):
        assert server.ask("PUT", "/v1/tables/desk", content=content, headers=CSV).status_code in (200, 201)
        say(("uploaded", number))
    assert server.ask("PUT", "/v1/tables/desk/schema", content=SCHEMA.to_yaml(), headers=YAML).status_code == 200
    say(("schema", ""))
    answer = server.ask("POST", "/v1/tables/desk/runs", json=ASKED)
    assert answer.status_code in (200, 201, 202), answer.text
    say(("submitted", answer.json()["run"]))
    folder = server.desk.store.run(answer.json()["run"])
    server.close()
    assert work(folder, threading.Event()) == 0
    say(("done", ""))


def served_release(root: Path) -> dict[str, bytes]:
    """What the one run of the server has released."""
    (release,) = (root / "server" / "runs").glob("[!.]*/release")
    return {name: (release / name).read_bytes() for name in SAME}


def require_served(root: Path, told: Sequence[Any], expected: Mapping[str, bytes]) -> None:
    """Uploads and runs that were accepted are there at the next start, and the run can be finished."""
    require_not_understated(root, told)
    known = dict(told)
    server = House(root / "server")
    if "uploaded" in known:
        table = server.desk.store.table("desk")
        assert table.data.read_bytes() in uploads()[known["uploaded"] :], "the upload is not what was sent"
    if "schema" in known:
        assert server.ask("GET", "/v1/tables/desk/schema").status_code == 200, "the schema is gone"
    runs = [run.name for run in server.desk.shelf.all()]
    if "submitted" in known:
        assert runs == [known["submitted"]], "a run that was accepted is gone"
        if "done" in known:
            assert server.ask("GET", f"/v1/runs/{runs[0]}").json()["state"] == "done"
    if not runs:
        for content, place, kind in ((uploads()[1], "", CSV), (SCHEMA.to_yaml(), "/schema", YAML)):
            answer = server.ask("PUT", f"/v1/tables/desk{place}", content=content, headers=kind)
            assert answer.status_code in (200, 201), answer.text
        runs = [server.ask("POST", "/v1/tables/desk/runs", json=ASKED).json()["run"]]
    folder = server.desk.store.run(runs[0])
    server.close()
    after: list[Any] = []
    with telling(after.append):
        code = work(folder, threading.Event())
    said = Workspace(folder).work.ended
    assert code == 0, said.read_text() if said.is_file() else code
    assert served_release(root) == expected, "another release"
    require_not_understated(root, [*told, *after])
    require_whole(folder / "release", read_manifest(folder) or {})


# -- the model store --------------------------------------------------------------------------------------------------

WEIGHTS = bytes(range(256)) * 64


@contextmanager
def shop(root: Path) -> Iterator[Path]:
    """A folder with a model file that the registry knows, to be taken into a store."""
    source = HubSource("org/toy", "toy.gguf")
    file = ModelFile("toy.gguf", hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS), (source,))
    REGISTRY["toy"] = ModelEntry("toy", "gguf", (file,), "Apache-2.0", "org")
    kept = Path.cwd()
    try:
        (root / "toy.gguf").write_bytes(WEIGHTS)
        os.chdir(root)
        yield root
    finally:
        os.chdir(kept)
        del REGISTRY["toy"]


def fetched_life(say: Say) -> None:
    """A model taken into the store, and a folder for what is prepared from it."""
    store = ModelStore(Path("store").resolve())
    store.adopt("toy", Path("toy.gguf").resolve())
    say(("fetched", ""))
    store.prepared_dir("toy")


def require_fetched(root: Path, told: Sequence[Any], expected: bytes) -> None:
    """What the store says is there is what was fetched, and what is not can be fetched again."""
    store = ModelStore(root / "store")
    if told:
        assert store.stored("toy") is not None, "the model that was fetched is gone"
    if store.stored("toy") is not None:
        assert store.path("toy").read_bytes() == expected, "the store vouches for a damaged model"
    assert store.adopt("toy", root / "toy.gguf").read_bytes() == expected
    store.prepared_dir("toy")
    store.verify("toy")
