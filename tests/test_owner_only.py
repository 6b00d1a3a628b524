"""What a run keeps beside its release is its owner's alone, whatever the umask: by command, from Python, by the server.

Modes are compared exactly: a umask of 0377 would take rights from the owner, too.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench_world import table
from in_process import selpe
from published import water_file
from selpe import SelPE, owner_only
from selpe.config import check_config
from selpe.events import Event, Selected
from selpe.intake import write_table
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.encoders.vectors import VectorStore
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.serve.limits import Limits
from serve_world import House
from small_world import SCHEMA, drawn

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems know no such rights")

UMASKS = (0o000, 0o022, 0o377)
QUICK: dict[str, Any] = {"records": 16, "llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off"}
SETTINGS = "dataset: desk\ndata: desk.csv\nschema: schema.yaml\nllm: fake\nencoder: hash\nrecords: 16\nguides: off\n"
SETTINGS += "bundles: 0\nbudget: 20\n"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that everybody can read, to work in; table, schema and settings lie in it."""
    folder = tmp_path / "house"
    table(folder)
    write_table(drawn(40, offset=7000), SCHEMA, folder / "test.csv")
    (folder / "selpe.yaml").write_text(SETTINGS, encoding="utf-8")
    water_file(tmp_path / "raw", per_class=60)
    folder.chmod(0o755)
    monkeypatch.setenv("SELPE_LEDGER", str(folder / "house" / "ledgers"))
    monkeypatch.setenv("SELPE_KEY", str(folder / "house" / "config" / "key"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request: pytest.FixtureRequest, house: Path) -> Iterator[int]:
    """A umask, in force after the folder was made."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """The rights of all that lies in a folder."""
    return {str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in folder.rglob("*")}


def not_the_owners_alone(folder: Path, *given: str) -> dict[str, str]:
    """What others can read, or the owner cannot. Releases are left out, and what was given."""
    found = {}
    for name, mode in modes(folder).items():
        inside_release = "release" in Path(name).parts
        if name not in given and not inside_release and mode != ("0o700" if (folder / name).is_dir() else "0o600"):
            found[name] = mode
    return found


def stop_at_first_choice(event: Event) -> None:
    if isinstance(event, Selected):
        raise KeyboardInterrupt


def opened_to_all(folder: Path) -> None:
    """Gives everybody every right, as an earlier version did under a umask of 0."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)


def test_every_file_of_every_command_is_the_owners(house: Path, umask: int) -> None:
    given = set(modes(house))
    said = [
        selpe("init", "desk.csv", "--out", "draft", "--label", "urgency"),
        selpe("run", "--yes", "--name", "one"),
        selpe("run", "--yes", "--name", "two"),
        selpe("evaluate", "runs/one", "--test", "test.csv", "--views", "minilm"),
        selpe("evaluate", "runs/two", "--test", "test.csv", "--views", "minilm", "--to", "elsewhere/two"),
        selpe("compare", "runs/one", "elsewhere/two", "--to", "comparison.html"),
        selpe("report", "runs/one"),
        selpe("data", "water", house.parent / "raw" / "water.csv", "--out", "water"),
        selpe("demo", "--llm", "fake", "--records", "32", "--out", "demo"),
    ]
    assert [done.code for done in said] == [0] * len(said), [done.err for done in said]
    assert not_the_owners_alone(house, *given) == {}
    assert {"comparison.html", "draft/schema.yaml", "demo/private.csv", "runs/one/work/lock"} < set(modes(house))


def test_a_release_can_be_read_by_those_it_is_given_to(house: Path, umask: int) -> None:
    assert selpe("run", "--yes", "--name", "one").code == 0
    release = house / "runs" / "one" / "release"
    assert set(modes(release).values()) == {"0o644"}
    assert stat.S_IMODE(release.stat().st_mode) == 0o755
    assert stat.S_IMODE(release.parent.stat().st_mode) == 0o700


def test_every_file_of_an_experiment_is_the_owners(house: Path, umask: int) -> None:
    given = set(modes(house))
    done = selpe(
        "experiment", "compare", "--data", "desk.csv", "--schema", "schema.yaml", "--llm", "fake", "--encoder", "hash",
        "--views", "minilm", "--size", "tiny", "--records", "2", "--epsilon", "2", "--methods", "selpe,ctcl",
        "--set", "guides=off", "--set", "bundles=0", "--set", "rounds=1", "--jobs", "2",
    )  # fmt: skip
    assert done.code == 0, done.said
    assert not_the_owners_alone(house, *given) == {}
    names = {Path(name).name for name in modes(house)}
    assert names > {"results.csv", "results.parquet", "table.md", "cell.json", "result.json", "vectors.sqlite"}


def test_every_file_that_python_writes_is_the_owners(house: Path, umask: int) -> None:
    given = set(modes(house))
    frame = pd.DataFrame(drawn(40))
    fitted = SelPE(SCHEMA, dataset="api", core=8, out=house / "api", **QUICK)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(frame, name="first", emit=stop_at_first_choice)
    assert not_the_owners_alone(house, *given) == {}
    fitted.fit(frame, name="first")
    fitted.report(house / "page.html", test=pd.DataFrame(drawn(30, offset=50)), private=frame, views=("minilm",))
    assert not_the_owners_alone(house, *given) == {}
    assert {"page.html", "api/first/internal/evaluation.json", "api/first/schema.yaml"} < set(modes(house))
    assert any(name.endswith(".parquet") for name in modes(house))


def test_the_folder_of_an_earlier_version_is_tightened_when_it_is_resumed(house: Path) -> None:
    settings = {**QUICK, "dataset": "old", "data": str(house / "desk.csv"), "schema": str(house / "schema.yaml")}
    run = Run.create(check_config({**settings, "out": str(house / "runs")}, where="test"), name="old")
    with pytest.raises(KeyboardInterrupt):
        run.execute(model=FakeModel(), encoder=HashingEncoder(), emit=stop_at_first_choice)
    opened_to_all(house / "runs" / "old")
    assert selpe("resume", "runs/old").code == 0
    assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
    assert not_the_owners_alone(run.folder) == {}


def test_the_folder_of_an_earlier_version_is_tightened_when_it_is_evaluated(house: Path) -> None:
    assert selpe("run", "--yes", "--name", "old").code == 0
    opened_to_all(house / "runs" / "old")
    assert selpe("evaluate", "runs/old", "--test", "test.csv", "--views", "minilm").code == 0
    assert stat.S_IMODE((house / "runs" / "old").stat().st_mode) == 0o700
    assert not_the_owners_alone(house / "runs" / "old") == {}


def test_every_file_of_a_server_and_its_worker_is_the_owners(house: Path, umask: int) -> None:
    given = set(modes(house))
    server = House(house / "root", Limits(workers=1), worker=[sys.executable, "-m", "selpe.serve.worker"])
    try:
        server.take_in()
        run = server.submit().json()["run"]
        assert server.until(run, "done", "failed") == "done"
        assert not_the_owners_alone(house, *given) == {}
    finally:
        server.close()


# -- the parts of it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda path: owner_only.write_text(path, "x"),
        lambda path: owner_only.write_bytes(path, b"x"),
        lambda path: owner_only.open_text(path, "a").close(),
        owner_only.claim,
        lambda path: owner_only.copy(Path(__file__), path),
    ],
    ids=["text", "bytes", "append", "claim", "copy"],
)
def test_a_file_that_was_there_loses_the_rights_of_others(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "there"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o666)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_was_there_keeps_its_rights_and_missing_ones_are_the_owners(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    owner_only.make_folder(tmp_path / "a" / "b")
    owner_only.make_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert modes(tmp_path / "a") == {"b": "0o700"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_folder_that_must_be_new_is_refused_where_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        owner_only.make_folder(tmp_path, new=True)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        owner_only.make_folder(tmp_path / "file")


def test_a_pipe_keeps_its_rights(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o622)
    os.close(owner_only.open_owned(tmp_path / "pipe", os.O_RDWR))
    assert modes(tmp_path) == {"pipe": "0o622"}


def test_what_its_owner_has_made_read_only_stays_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    (tmp_path / "run" / "file").chmod(0o444)
    owner_only.tighten(tmp_path / "run")
    assert modes(tmp_path / "run") == {"file": "0o400"}


def test_what_a_link_leads_to_is_not_tightened(tmp_path: Path) -> None:
    (tmp_path / "outside").touch(0o644)
    (tmp_path / "outside").chmod(0o644)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "outside")
    owner_only.tighten(tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o644


def test_what_sqlite_puts_beside_vectors_is_the_owners(tmp_path: Path, umask: int) -> None:
    store = VectorStore(tmp_path / "work" / "vectors.sqlite")
    store._base.execute("INSERT INTO vectors VALUES (?, ?)", (b"key", b"\0" * 400_000))
    assert modes(tmp_path / "work") == {"vectors.sqlite": "0o600", "vectors.sqlite-journal": "0o600"}
    store.close()
