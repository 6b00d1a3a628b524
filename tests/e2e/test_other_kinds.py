"""Tables that are not like the paper's: no label, long texts, a rare class, another language, days and several texts.

Each goes the whole way at the command line with the fake model: draft, check, plan, preview, run, evaluation, and
further records with something given.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from in_process import selpe
from published import b2w_file, cfpb_file, jobs_file
from selpe import SelPE
from selpe.schema import Schema, Value

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIGHT = ("--set", "guides=off", "--set", "bundles=4", "--set", "multiplicity=2")
FAKE = ("--llm", "fake", "--encoder", "hash", *LIGHT)


def example(name: str) -> Callable[[Path], None]:
    def copied(folder: Path) -> None:
        shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)

    return copied


def loader(name: str, file: Callable[[Path], Path]) -> Callable[[Path], None]:
    def written(folder: Path) -> None:
        path = file(folder / "raw")
        done = selpe("data", name, str(path), "--out", str(folder), "--private", "24" if name == "cfpb" else "10")
        assert done.code == 0, done.err

    return written


KINDS: dict[str, tuple[Callable[[Path], None], dict[str, Value]]] = {
    "no label, long texts": (example("maintenance"), {"asset": "pump"}),
    "German, days, two texts": (example("anliegen"), {"dringlichkeit": "niedrig", "stadtteil": "Hafen"}),
    "no label, two days": (loader("cfpb", cfpb_file), {"timely": True}),
    "a rare class": (loader("jobs", jobs_file), {"fraudulent": True}),
    "Portuguese": (loader("b2w", b2w_file), {"rating": "1"}),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_another_kind_goes_the_whole_way(folder: Path, kind: str) -> None:
    prepare, given = KINDS[kind]
    prepare(folder)
    schema = Schema.load(folder / "schema.yaml")
    assert selpe("check").code == 0
    planned = selpe("plan")
    assert ("no classes" in planned.out) == (schema.label is None), planned.said
    seen = selpe("preview", "--llm", "fake", "-n", "3", "--no-grade")
    assert seen.code == 0, seen.err
    done = selpe("run", *FAKE, "--name", "one", "--records", "12", "--allow-fake", "-y")
    assert done.code == 0, done.err
    lines = (folder / "runs" / "one" / "release" / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 12
    assert [violation for record in records for violation in schema.check(record)] == []
    judged = selpe("evaluate", "runs/one", "--test", "test.csv", "--encoder", "hash", "--views", "boosted")
    assert judged.code == 0, judged.err
    page = (folder / "runs" / "one" / "internal" / "report.html").read_text(encoding="utf-8")
    assert ("The schema names no label" in page or "the schema names no label" in page) == (schema.label is None)
    more = SelPE.open("runs/one").sample(3, given=given)
    assert len(more) == 3
    assert all(list(more[name].astype(str)) == [str(value)] * 3 for name, value in given.items())
