from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evolving_world import ENCODER
from selpe.method.codebooks import BinnedCodes, Codebook, ListedCodes, Phrase, TextCodes
from selpe.method.measuring import Association, ClassCodes, TextReader
from selpe.privacy.votes import FieldVote
from selpe.schema import Record, Schema
from small_world import SCHEMA, UNLABELLED, drawn

EVERY = tuple(name for name in SCHEMA.names if name != "urgency")


def exact(book: Codebook, rows: Sequence[Record]) -> NDArray[np.int64]:
    """The table of rows, counted by hand."""
    table = np.zeros((len(SCHEMA.labels), book.size), dtype=np.int64)
    for row in rows:
        table[SCHEMA.labels.index(str(row["urgency"])), book.code(row)] += 1
    return table


def books(rows: Sequence[Record]) -> list[Codebook]:
    """A codebook of every kind, as from a pool of these records."""
    topics = [Phrase(str(row["topic"])) for row in rows]
    vectors = ENCODER.encode([phrase.text for phrase in topics]).astype(np.float64)
    fields: dict[str, Any] = {name: SCHEMA.field(name) for name in EVERY}
    return [
        TextCodes(fields["topic"], topics, vectors, encoder=ENCODER, clusters=8, seed=1),
        *(ListedCodes(fields[name]) for name in ("channel", "solved")),
        *(
            BinnedCodes(fields[name], [row[name] for row in rows if row[name] is not None], 4)
            for name in ("minutes", "waited", "score", "day")
        ),
    ]


def judge_of(pool: Sequence[Record]) -> Association:
    found = books(pool)
    prior = {book.name: exact(book, pool) + 0.5 for book in found}
    return Association(SCHEMA, found, {name: table / table.sum(axis=1, keepdims=True) for name, table in prior.items()})


def tally(judge: Association, rows: Sequence[Record]) -> Counter[str]:
    """The most votes that each field has in any direction."""
    votes = FieldVote(judge).tally(list(rows))
    found = Counter[str]()
    for option, score in enumerate(votes):
        found[judge.field(option)] = max(found[judge.field(option)], int(score))
    return found


POOL = [record | {"urgency": SCHEMA.labels[i % 2]} for i, record in enumerate(drawn(300))]


@pytest.mark.parametrize("turned", [False, True])
def test_a_number_that_rises_or_falls_with_the_class_wins_and_unrelated_fields_do_not(turned: bool) -> None:
    rows = []
    for number, row in enumerate(drawn(300, offset=5000)):
        label = SCHEMA.labels[number % 2]
        rows.append(row | {"urgency": label, "minutes": 70 if (label == "high") != turned else 20})
    found = tally(judge_of(POOL), rows)
    assert found.most_common(1)[0][0] == "minutes"
    others = [score for name, score in found.items() if name != "minutes"]
    assert found["minutes"] > 1.2 * max(others)


def test_where_nothing_goes_with_the_class_no_field_stands_out() -> None:
    rows = [row | {"urgency": SCHEMA.labels[i % 2]} for i, row in enumerate(drawn(1000, offset=20_000))]
    found = tally(judge_of(POOL), rows)
    assert max(found.values()) < 1.15 * min(found.values())


def test_a_lopsided_field_does_not_seem_to_go_with_the_class_where_one_class_has_most_of_the_rows() -> None:
    chance = random.Random(1)
    judge = judge_of([row | {"solved": number % 10 != 0} for number, row in enumerate(POOL)])
    rows = []
    for row in drawn(500, offset=5000):
        label = "high" if chance.random() < 0.2 else "low"
        long = (label == "high") == (chance.random() < 0.75)
        minutes = chance.randint(50, 90) if long else chance.randint(2, 40)
        rows.append(row | {"urgency": label, "solved": chance.random() < 0.9, "minutes": minutes})
    found = tally(judge, rows)
    assert found["minutes"] > 1.1 * found["solved"]
    assert found["solved"] < 0.55 * 500 * 1000


def test_a_row_speaks_from_0_to_1_for_every_option_and_depends_on_itself_alone() -> None:
    judge, rows = judge_of(POOL), drawn(60, offset=300)
    said = np.array([judge.votes(row) for row in rows])
    assert said.shape == (60, judge.options)
    known = said[~np.isnan(said)]
    assert ((known >= 0) & (known <= 1)).all()
    again = np.array([judge.votes(row) for row in reversed(rows)])[::-1]
    assert np.array_equal(said, again, equal_nan=True)
    assert {judge.field(option) for option in range(judge.options)} == set(EVERY)
    assert judge.remote is None


def test_a_row_of_no_class_says_nothing_and_raises_nothing() -> None:
    judge = judge_of(POOL)
    rows: list[Record] = [{}, {"urgency": "none"}, {"urgency": 3}, POOL[0] | {"urgency": None}]
    for row in rows:
        votes = FieldVote(judge).tally([row])
        assert votes.shape == (judge.options,)
        assert ((votes >= 0) & (votes <= 1000)).all()


def test_without_a_label_a_row_speaks_for_the_field_whose_value_the_model_would_not_have_written() -> None:
    book = ListedCodes(UNLABELLED.field("channel"))  # type: ignore[arg-type]
    other = ListedCodes(UNLABELLED.field("solved"))  # type: ignore[arg-type]
    prior = {"channel": np.array([[0.7, 0.2, 0.1]]), "solved": np.array([[0.5, 0.5]])}
    judge = Association(UNLABELLED, [book, other], prior)
    assert judge.options == 2
    assert judge.votes({"channel": "phone", "solved": True}) == pytest.approx([0.35, 0.5])
    assert judge.votes({"channel": "visit", "solved": False}) == pytest.approx([0.95, 0.5])
    # Rows as the model writes them speak for one as much as for the other.
    mean = sum(share * judge.votes({"channel": value, "solved": True})[0]
               for share, value in zip(prior["channel"][0], ("phone", "mail", "visit"), strict=True))  # fmt: skip
    assert mean == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("label", "classes"),
    [("kind: category, values: [a, b]", ["a", "b"]), ("kind: boolean", [False, True]),
     ("kind: integer, min: 2, max: 6, step: 2", [2, 4, 6])],
)  # fmt: skip
def test_a_class_of_any_kind_has_its_place_in_the_schema_as_code(label: str, classes: list[Any]) -> None:
    coder = ClassCodes(Schema.from_yaml(f"name: one\nlabel: it\nfields:\n  it: {{{label}}}\n"))
    assert (coder.name, coder.size, coder.remote) == ("it", len(classes), None)
    assert [coder.code({"it": value}) for value in classes] == list(range(len(classes)))
    assert coder.code({}) == coder.code({"it": "other"}) == coder.code({"it": None}) == -1


# -- texts that are read -----------------------------------------------------------------------------------------------

KNOWN = [("dead line", 1), ("dead key", 1), ("dead switch", 1), ("lost line", 0), ("lost key", 0), ("lost badge", 0)]


def reader() -> TextReader:
    vectors = ENCODER.encode([text for text, _ in KNOWN]).astype(np.float64)
    return TextReader.trained("topic", ENCODER, vectors, np.array([place for _, place in KNOWN], dtype=np.float64))


def test_a_reader_tells_the_side_of_a_text_that_it_has_not_seen() -> None:
    assert reader().side({"topic": "dead password"}) == 1
    assert reader().side({"topic": "lost password"}) == -1


def test_a_missing_text_lies_on_no_side_and_says_nothing_of_the_field() -> None:
    assert reader().side({"topic": None}) == 0
    found = books(POOL)
    prior = {book.name: np.full((2, book.size), 1 / book.size) for book in found}
    judge = Association(SCHEMA, found, prior, {"topic": reader()})
    option = next(i for i in range(judge.options) if judge.field(i) == "topic")
    assert judge.votes(POOL[0] | {"topic": None})[option] == 0.5


@pytest.mark.parametrize(("topic", "label", "vote"), [
    ("dead password", "high", 1.0), ("dead password", "low", 0.0), ("lost password", "low", 1.0),
])  # fmt: skip
def test_a_row_speaks_for_a_text_where_its_reader_and_its_class_agree(topic: str, label: str, vote: float) -> None:
    found = books(POOL)
    prior = {book.name: np.full((2, book.size), 1 / book.size) for book in found}
    judge = Association(SCHEMA, found, prior, {"topic": reader()})
    option = next(i for i in range(judge.options) if judge.field(i) == "topic")
    assert judge.votes(POOL[0] | {"topic": topic, "urgency": label})[option] == vote


def test_what_a_reader_says_of_a_row_does_not_depend_on_other_rows() -> None:
    rows = [POOL[i] | {"topic": text} for i, (text, _) in enumerate(KNOWN)]
    alone = [reader().side(row) for row in rows]
    assert alone == [reader().side(row) for row in reversed(rows)][::-1]
