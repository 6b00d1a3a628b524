"""Damaged files of our own: settings, schemas, manifests, logs, stores, cards. They are read, or refused as such."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults_world import choices, damaged, fuzz, make_project, ours_or_fine, places, require_tidy, spent, twisted
from in_process import selpe
from selpe.config import load_config
from selpe.errors import ModelError
from selpe.models.answers import AnswerStore
from selpe.models.base import Answer, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.encoders.vectors import RememberingEncoder, VectorStore
from selpe.models.engine.prepare import prepare
from selpe.models.open import open_model
from selpe.models.store.store import ModelStore
from selpe.report.gather import gather
from selpe.run.event_log import EventReader
from selpe.run.lifecycle import Run, list_runs
from selpe.run.progress import Meter
from selpe.run.release import RELEASED
from selpe.schema import Schema
from selpe.watch import folder_view
from small_world import SCHEMA
from tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a finished run, made once. A test that damages a file puts it back."""
    folder = make_project(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places(folder).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        done = selpe("run", "--name", "mine", "--yes")
        assert done.code == 0, done.err
        yield folder


def with_damage(path: Path, raw: bytes, act: Callable[[], None]) -> None:
    before = path.read_bytes()
    try:
        path.write_bytes(raw)
        act()
    finally:
        path.write_bytes(before)


# -- settings and schemas ---------------------------------------------

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)
HOSTILE_YAML = {
    "laughs": LAUGHS,
    "laughs as settings": LAUGHS + "dataset: desk\ndata: x\nguides: *j\nquotas: *j\n",
    "itself": "dataset: &a [*a]\ndata: &b {b: *b}\nguides: *a\nquotas: *b\nfields: *b\n",
    "deep list": "a: " + "[" * 100_000,
    "deep blocks": "".join(f"{' ' * n}a:\n" for n in range(600)),
    "a tag": "a: !!python/object/apply:os.system ['true']",
    "two documents": "a: 1\n---\nb: 2",
    "long number": f"dataset: desk\nrecords: {'9' * 6000}",
    "laughs as an example": LAUGHS + "fields: {x: {kind: text}}\nexamples: [{x: *j}]\ndataset: *j\n",
    "merge keys": "<<: &a {<<: *a}\n",
    "odd keys": "? [a, b]\n: 1\n? {c: d}\n: 2\n1: 3\ntrue: 4\nnull: 5\n",
    "nul": "dataset: a\0b",
    "surrogate": 'dataset: "\\ud800"\nfields: {"\\ud800": {kind: text}}',
    "escape": 'dataset: "\\e[31mred"\n"\\e[31m": 1\nfields: {"\\e[31m": {kind: text}}',
}


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_hostile_yaml_is_refused_as_settings_and_as_schema(project: Path, name: str) -> None:
    for place, command in (("selpe.yaml", ("run", "--yes")), ("schema.yaml", ("schema", "show", "schema.yaml"))):
        with_damage(project / place, HOSTILE_YAML[name].encode(), lambda c=command: require_tidy(selpe(*c), 2))  # type: ignore[misc]
    assert not (project / "runs").exists()
    assert not (project / "ledger").exists()


@fuzz
@given(data=st.data())
def test_damaged_settings_are_read_or_refused(whole: Path, data: st.DataObject) -> None:
    path = whole / "selpe.yaml"
    raw = data.draw(damaged(path.read_bytes()))
    with_damage(path, raw, lambda: void(ours_or_fine(lambda: load_config(path, environment={}))))


@fuzz
@given(data=st.data())
def test_damaged_schemas_are_read_or_refused(whole: Path, data: st.DataObject) -> None:
    path = whole / "schema.yaml"
    raw = data.draw(damaged(path.read_bytes()))
    with_damage(path, raw, lambda: void(ours_or_fine(lambda: Schema.load(path))))


@fuzz
@given(data=st.data())
def test_a_json_schema_with_something_else_in_it_is_read_or_refused(data: st.DataObject) -> None:
    content = data.draw(twisted(SCHEMA.to_json_schema()))
    if isinstance(content, dict):
        ours_or_fine(lambda: Schema.from_json_schema(content))


# -- run folders ---------------------------------------------


def looked_at(folder: Path) -> None:
    """Everything that reads a run folder without working on it."""
    list_runs(folder.parent)
    json.dumps(folder_view(folder)(), allow_nan=False)
    if (error := ours_or_fine(lambda: Run.open(folder))) is None:
        ours_or_fine(lambda: Run.open(folder).schema)
    else:
        assert error.exit_code in (1, 2)


@fuzz
@given(data=st.data())
def test_a_damaged_manifest_is_read_or_refused(whole: Path, data: st.DataObject) -> None:
    path = whole / "runs" / "mine" / "manifest.json"
    with_damage(path, data.draw(damaged(path.read_bytes())), lambda: looked_at(path.parent))


@fuzz
@given(data=st.data())
def test_a_manifest_with_something_else_in_it_never_spends(whole: Path, data: st.DataObject) -> None:
    path = whole / "runs" / "mine" / "manifest.json"
    content = data.draw(twisted(json.loads(path.read_text(encoding="utf-8"))))
    before, kept = spent(whole), choices(whole)

    def use() -> None:
        looked_at(path.parent)
        require_tidy(selpe("runs"), 0)
        require_tidy(selpe("release", "-y", "runs/mine", "--to", whole / "packed.zip"), 0, 1, 2)

    with_damage(path, json.dumps(content).encode(), use)
    assert (spent(whole), choices(whole)) == (before, kept)


@fuzz
@given(data=st.data())
def test_a_damaged_log_of_events_still_gives_a_reading(whole: Path, data: st.DataObject) -> None:
    path = whole / "runs" / "mine" / "work" / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 1))
    content = data.draw(twisted(json.loads(lines[number])))
    raw = b"".join([*lines[:number], json.dumps(content).encode() + b"\n", *lines[number + 1 :]])
    raw = data.draw(st.just(raw) | damaged(raw))

    def read() -> None:
        meter = Meter(epsilon=4.0)
        for moment, event in EventReader(path).more():
            meter.listen(event, moment)
        reading = meter.read().as_dict()
        assert math.isfinite(reading["elapsed"])
        json.dumps(folder_view(whole / "runs" / "mine")(), allow_nan=False)

    with_damage(path, raw, read)


def answer(number: int) -> Answer:
    return Answer(Request(prompt=f"p{number}"), f"text {number} \u2028", "stop", prompt_tokens=1, completion_tokens=2)


@fuzz
@given(data=st.data())
def test_a_damaged_store_of_answers_gives_right_answers_or_none(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "answers.jsonl"
    path.unlink(missing_ok=True)
    store = AnswerStore(path)
    for number in range(6):
        store.put("m", answer(number))
    store.close()
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    store = AnswerStore(path)
    for number in range(6):
        found = store.get("m", answer(number).request)
        assert found is None or found.finish in ("stop", "length")
        store.put("m", answer(number))
    store.close()
    again = AnswerStore(path)  # what was put after the damage is there, and whole
    assert all(again.get("m", answer(number).request) is not None for number in range(6))
    again.close()


def test_one_spoilt_line_costs_one_answer_and_not_those_behind_it(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "answers.jsonl")
    for number in range(6):
        store.put("m", answer(number))
    store.close()
    lines = (tmp_path / "answers.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = b"\0" * (len(lines[1]) - 1) + b"\n"
    (tmp_path / "answers.jsonl").write_bytes(b"".join(lines))
    store = AnswerStore(tmp_path / "answers.jsonl")
    assert [store.get("m", answer(number).request) is not None for number in range(6)] == [True, False] + [True] * 4
    store.close()


@fuzz
@given(data=st.data())
def test_a_damaged_store_of_vectors_gives_right_vectors(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "vectors.sqlite"
    path.unlink(missing_ok=True)
    texts = [f"text {number}" for number in range(40)]
    store = VectorStore(path)
    right = RememberingEncoder(HashingEncoder(16), store).encode_public(texts)
    store.close()
    path.write_bytes(data.draw(damaged(path.read_bytes())))

    def encode() -> None:
        store = VectorStore(path)
        try:
            found = RememberingEncoder(HashingEncoder(16), store).encode_public(texts)
            assert found.shape == right.shape
        finally:
            store.close()

    ours_or_fine(encode)


@fuzz
@given(data=st.data())
def test_no_damaged_release_is_packed(whole: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(RELEASED))
    path = whole / "runs" / "mine" / "release" / name
    before = path.read_bytes()
    raw = data.draw(damaged(before).filter(lambda raw: raw != before))
    target = whole / "packed.zip"
    target.unlink(missing_ok=True)
    with_damage(path, raw, lambda: require_tidy(selpe("release", "-y", "runs/mine", "--to", target), 1, 2))
    assert not target.exists()


@fuzz
@given(data=st.data())
def test_no_card_with_something_else_in_it_is_packed(whole: Path, data: st.DataObject) -> None:
    path = whole / "runs" / "mine" / "release" / "privacy-card.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    other = data.draw(twisted(content).filter(lambda other: other != content))
    raw = (json.dumps(other, ensure_ascii=True, indent=2) + "\n").encode()
    target = whole / "packed.zip"
    target.unlink(missing_ok=True)
    with_damage(path, raw, lambda: require_tidy(selpe("release", "-y", "runs/mine", "--to", target), 1, 2))
    assert not target.exists()


@fuzz
@given(data=st.data())
def test_a_run_with_damaged_work_files_is_judged_or_refused(whole: Path, data: st.DataObject) -> None:
    folder = whole / "runs" / "mine"
    place = data.draw(st.sampled_from(("work/raw.jsonl", "work/extracted.jsonl", "release/synthetic.jsonl")))
    lines = (folder / place).read_bytes().splitlines(keepends=True)
    content = data.draw(twisted(json.loads(lines[0])))
    raw = json.dumps(content).encode() + b"\n" + b"".join(lines[1:])
    with_damage(
        folder / place,
        data.draw(st.just(raw) | damaged(raw)),
        lambda: void(ours_or_fine(lambda: gather(folder, private=False))),
    )


# -- files of models ---------------------------------------------


def test_a_record_with_separators_of_lines_is_read_back_whole(whole: Path) -> None:
    """JSON leaves U+2028 and its kin as they are, and `splitlines` would cut there."""
    path = whole / "runs" / "mine" / "release" / "synthetic.jsonl"
    first = json.loads(path.read_text(encoding="utf-8").split("\n")[0])
    line = json.dumps(first | {"topic": "one\u2028two\u0085three"}, ensure_ascii=False)
    raw = path.read_bytes() + line.encode() + b"\n"
    with patch("selpe.privacy.sealing.require_whole"):  # as if the run had written it
        with_damage(path, raw, lambda: void(gather(path.parents[1], private=False)))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The head of a small model file: what describes it, without most of its numbers."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path.read_bytes()


@fuzz
@given(data=st.data())
def test_a_damaged_model_file_is_refused(tmp_path: Path, tiny: bytes, data: st.DataObject) -> None:
    """As far as the engine, which is not ours to break: it is put off here."""
    head = data.draw(damaged(tiny[:9000]))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(head + tiny[9000:])
    with patch("selpe.models.engine.prepare.openvino_genai", side_effect=RuntimeError("put off")):
        assert isinstance(ours_or_fine(lambda: prepare(path, tmp_path / "prepared")), ModelError)


@fuzz
@given(data=st.data())
def test_damaged_notes_of_the_model_store_are_made_anew_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    store = ModelStore(tmp_path / "models")
    brought = tmp_path / "own.gguf"
    brought.write_bytes(b"GGUF")
    store.ensure(str(brought))
    for note in list((tmp_path / "models").rglob("*.json")):
        note.write_bytes(data.draw(damaged(note.read_bytes())))
    ours_or_fine(lambda: store.ensure(str(brought)))
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps(data.draw(twisted({"http://h:1/v1": {"dialect": "openai", "seed": True}}))))
    with patch("selpe.models.open.cache_folder", return_value=tmp_path):
        ours_or_fine(lambda: open_model("http://127.0.0.1:9/v1#m").close())


def void(_: object) -> None:
    return None
