"""Vectors of synthetic texts are kept and not computed again; private text does not get near the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from selpe.config import RunConfig, check_config
from selpe.errors import ModelError, RunError
from selpe.intake import write_table
from selpe.method.codebooks import Phrase
from selpe.method.facts import MeasuredTables
from selpe.method.generation import Generation, Generator
from selpe.method.kernel import MultiChannelKernel
from selpe.method.phrases import PhraseWriter
from selpe.method.set_scores import SetJudge
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.encoders.vectors import RememberingEncoder, VectorStore
from selpe.models.fake import FakeModel
from selpe.run.lifecycle import Run
from selpe.schema import Record, Schema, TextField
from small_world import SCHEMA, UNLABELLED, drawn

MARK = "QX7zebra4711"


class Noting(HashingEncoder):
    """An encoder that notes every text it was given."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return super().encode(texts)


@pytest.fixture
def store(tmp_path: Path) -> VectorStore:
    return VectorStore(tmp_path / "vectors.sqlite")


def test_known_texts_are_not_encoded_again_and_have_the_same_vectors(store: VectorStore, tmp_path: Path) -> None:
    bare, texts = Noting(), [f"text {i}" for i in range(1200)]
    encoder = RememberingEncoder(bare, store)
    first = encoder.encode_public(texts)
    assert np.array_equal(first, HashingEncoder(64).encode(texts))
    mixed = encoder.encode_public(["new", *texts[::-1], "new"])
    assert np.array_equal(mixed[1:-1], first[::-1])
    assert bare.texts == [*texts, "new"]
    store.close()
    again = Noting()
    reopened = VectorStore(tmp_path / "vectors.sqlite")
    assert np.array_equal(RememberingEncoder(again, reopened).encode_public(texts), first)
    assert again.texts == []
    assert len(reopened) == 1201


def test_no_text_and_odd_texts(store: VectorStore) -> None:
    encoder = RememberingEncoder(HashingEncoder(64), store)
    assert encoder.encode_public([]).shape == (0, 64)
    odd = ["", " ", "half a pair \ud800", "zero\0inside"]
    assert np.array_equal(encoder.encode_public(odd), HashingEncoder(64).encode(odd))


def test_another_encoder_has_other_vectors(store: VectorStore) -> None:
    RememberingEncoder(HashingEncoder(64), store).encode_public(["a"])
    assert RememberingEncoder(HashingEncoder(32), store).encode_public(["a"]).shape == (1, 32)
    assert len(store) == 2


def test_a_server_that_changed_its_model_is_noticed(store: VectorStore) -> None:
    class Renamed(HashingEncoder):
        name = "the same name"

    RememberingEncoder(Renamed(64), store).encode_public(["a"])
    with pytest.raises(ModelError, match="another length"):
        RememberingEncoder(Renamed(32), store).encode_public(["a", "b"])


def test_a_store_that_is_no_store_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    path.write_bytes(b"not a database, but long enough to look at" * 99)
    assert len(VectorStore(path)) == 0


def test_a_batch_is_kept_as_a_whole_or_not_at_all(store: VectorStore) -> None:
    rows: dict[Any, NDArray[np.float32]] = {bytes([i]): np.ones(8, np.float32) for i in range(20)}
    with pytest.raises(RunError, match="cannot be kept"):
        store.put(rows | {object(): np.ones(8, np.float32)})
    assert len(store) == 0
    store.put(rows)
    assert len(store) == 20


# -- the seam --------------------------------------------------------------------------------------------------------


def test_a_remembering_encoder_cannot_stand_in_for_an_encoder(store: VectorStore) -> None:
    encoder: object = RememberingEncoder(HashingEncoder(), store)
    assert isinstance(encoder, PublicEncoder)
    assert not isinstance(encoder, Encoder)
    assert not hasattr(encoder, "encode")


class Spy:
    """A public encoder that notes what it is given."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def encode_public(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts |= set(texts)
        return HashingEncoder(64).encode(texts)


def marked(count: int, schema: Schema = SCHEMA) -> list[Record]:
    return [record | {"topic": f"{MARK} {i}"} for i, record in enumerate(drawn(count, offset=5000, schema=schema))]


def test_kernel_and_judge_give_public_records_to_the_one_and_private_rows_to_the_other() -> None:
    spy, bare = Spy(), Noting()
    kernel = MultiChannelKernel(SCHEMA, bare, public_encoder=spy)
    kernel.represent_pool(drawn(10))
    assert bare.texts == []
    kernel.represent(marked(5))
    judge = SetJudge(SCHEMA, bare, kernel, [drawn(12), drawn(12, offset=50)], drawn(24), public_encoder=spy)
    seen = len(bare.texts)
    judge.score(judge.read(marked(5)))
    assert len(bare.texts) > seen
    assert any(MARK in text for text in bare.texts)
    assert spy.texts
    assert not any(MARK in text for text in spy.texts)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RunConfig]:

    def build(schema: Schema = SCHEMA, **more: object) -> RunConfig:
        write_table(marked(40, schema), schema, tmp_path / "private.csv")
        schema.save(tmp_path / "schema.yaml")
        content: dict[str, object] = {
            "dataset": "desk", "data": str(tmp_path / "private.csv"), "schema": str(tmp_path / "schema.yaml"),
            "epsilon": 4.0, "records": 24, "rounds": 2, "bundles": 4, "llm": "fake", "encoder": "hash",
            "out": str(tmp_path / "runs"),
        }  # fmt: skip
        return check_config({**content, **more}, where="test")

    return build


def lexicalised(schema: Schema, record: Record) -> set[str]:
    """Every text that a candidate is compared by: itself, its fields, and for votes on sets its bare texts."""
    without = () if schema.label is None else (schema.label,)
    fields = [field for field in schema.fields if field.name not in without]
    said = {field.lexicalise(record[field.name]) for field in fields if record[field.name] is not None}
    texts = {str(record[field.name]) for field in fields if isinstance(field, TextField) and schema.label is not None}
    return {schema.linearise(record, without=without)} | said | texts


@pytest.mark.parametrize(
    ("schema", "guides", "measure"),
    [
        (SCHEMA, "off", "off"), (SCHEMA, "auto", "off"), (UNLABELLED, "auto", "off"),
        (SCHEMA, "auto", ["topic"]), (UNLABELLED, "auto", ["topic"]),
    ],
    ids=["plain", "guides", "unlabelled", "measured", "measured, unlabelled"],
)  # fmt: skip
def test_a_run_keeps_the_texts_of_its_candidates_and_no_other_and_no_private_one_even_as_a_hash(
    settings: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch, schema: Schema, guides: str, measure: Any
) -> None:
    candidates: list[Record] = []
    phrases: set[str] = set()
    generate, write, draft = Generator.generate, PhraseWriter.write, MeasuredTables.draft

    def noted(self: Generator, *given: Any, **more: Any) -> Generation:
        made = generate(self, *given, **more)
        candidates.extend(candidate.record for candidate in made.candidates if candidate is not None)
        return made

    def written(self: PhraseWriter, *given: Any) -> list[Phrase]:
        found = write(self, *given)
        phrases.update(phrase.text for phrase in found)
        return found

    def drafted(self: MeasuredTables, *given: Any) -> Record:
        candidates.append(draft(self, *given))  # what rows vote on before it is written
        return candidates[-1]

    monkeypatch.setattr(Generator, "generate", noted)
    monkeypatch.setattr(PhraseWriter, "write", written)
    monkeypatch.setattr(MeasuredTables, "draft", drafted)
    encoder = Noting()
    run = Run.create(settings(schema, guides=guides, measure=measure))
    run.execute(model=FakeModel(), encoder=encoder)
    assert any(MARK in text for text in encoder.texts)  # private rows were looked at
    work = [path for path in (run.folder / "work").rglob("*") if path.is_file()]
    assert all(MARK.encode() not in path.read_bytes() for path in work)
    store = VectorStore(run.folder / "work" / "vectors.sqlite")
    public = set().union(*(lexicalised(schema, record) for record in candidates))
    key = RememberingEncoder(encoder, store).key
    alone = phrases | {str(record["topic"]) for record in candidates}  # what a codebook of texts is made from
    assert store.keys() <= {key(text) for text in public | (alone if measure != "off" else set())}
    assert bool(phrases) == (measure != "off")
    if measure == "off" and (
        schema is UNLABELLED or guides == "off"
    ):  # else guides' samples are compared as wholes only
        assert len(store) == len(public)
    private = {text for text in encoder.texts if MARK in text}
    assert not store.keys() & {key(text) for text in private}


def test_a_run_that_is_done_again_encodes_no_synthetic_text_twice(settings: Callable[..., RunConfig]) -> None:
    run, first = Run.create(settings()), Noting()
    released = run.execute(model=FakeModel(), encoder=first).records
    again = Noting()
    assert Run.open(run.folder).execute(model=FakeModel(), encoder=again).records == released
    assert again.texts == []  # selections are stored, so private rows are not looked at either
    private = set().union(*(lexicalised(SCHEMA, record) for record in marked(40)))
    times = Counter(text for text in first.texts if text not in private)
    assert set(times.values()) == {1}


@pytest.mark.parametrize("method", ["augpe", "wasp"])
def test_baselines_keep_the_texts_of_their_samples_and_no_private_one(
    settings: Callable[..., RunConfig], method: str
) -> None:
    encoder = Noting()
    run = Run.create(settings(method=method, delta=1e-5))
    run.execute(model=FakeModel(), encoder=encoder, models=[FakeModel()])
    store = VectorStore(run.folder / "work" / "vectors.sqlite")
    private = {text for text in encoder.texts if MARK in text}
    assert private
    assert len(store) > 0
    key = RememberingEncoder(encoder, store).key
    assert store.keys() == {key(text) for text in encoder.texts if MARK not in text}
