from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile_cells import HOSTILE_VALUES
from selpe.method.codebooks import MISSING, BinnedCodes, Codebook, ListedCodes, Phrase, TextCodes, is_brief, is_short
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    Record,
    Schema,
    Span,
    TextField,
    Value,
)
from small_world import SCHEMA
from strategies import fields, values

ENCODER = HashingEncoder(64)
CHANCE = random.Random(0)
WORDS = "lost password line dead printer jam refund slow login screen noise parcel late invoice door key".split()


def text_codes(
    phrases: Sequence[Phrase], *, clusters: int = 6, seed: int = 1, optional: bool = False, **more: Any
) -> TextCodes:
    vectors = ENCODER.encode([phrase.text for phrase in phrases]).astype(np.float64)
    field = TextField("topic", max_length=60, optional=optional)
    return TextCodes(field, phrases, vectors, encoder=ENCODER, clusters=clusters, seed=seed, **more)


def some_phrases(count: int = 60, labels: Sequence[str | None] = ("low", "high", None)) -> list[Phrase]:
    chance = random.Random(7)
    return [Phrase(" ".join(chance.sample(WORDS, 3)), labels[i % len(labels)]) for i in range(count)]


def fact(book: Codebook, code: int, label: str | None = None) -> Any:
    return book.fact(code, label, CHANCE)


# -- listed values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(
    ("field", "known"),
    [(CategoryField("f", values=("x", "y", "z")), ["x", "y", "z"]), (BooleanField("f"), [True, False])],
)
def test_a_category_and_a_boolean_have_a_code_for_each_value_and_missing_is_a_code(
    field: CategoryField | BooleanField, known: list[Value], optional: bool
) -> None:
    book = ListedCodes(type(field)(**{**vars(field), "optional": optional}))
    assert [book.code({"f": value}) for value in known] == list(range(len(known)))
    assert [fact(book, code) for code in range(len(known))] == known
    assert book.size == len(known) + optional
    assert book.code({}) == book.code({"f": None}) == (len(known) if optional else -1)
    if optional:
        assert book.words[-1] == MISSING
        assert book.is_missing(book.size - 1)
        assert fact(book, book.size - 1) is None
    assert not any(book.is_missing(code) for code in range(len(known)))


def test_a_category_outside_the_list_has_no_code() -> None:
    book = ListedCodes(CategoryField("f", values=("x", "y")))
    assert [book.code({"f": value}) for value in ("z", "", "X", 0, True)] == [-1] * 5


# -- bins --------------------------------------------------------------------------------------------------------------


@st.composite
def binned(draw: st.DrawFn) -> BinnedCodes:
    field = draw(fields("f").filter(lambda field: isinstance(field, IntegerField | NumberField | DateField)))
    known = draw(st.lists(values(field), max_size=30))
    return BinnedCodes(field, known, draw(st.integers(1, 10)))  # type: ignore[arg-type]


def inside(span: Span, value: Value) -> bool:
    if isinstance(span.low, date):
        return str(span.low) <= str(value) <= str(span.high)
    return Decimal(span.low) <= Decimal(str(value)) <= Decimal(span.high)  # type: ignore[arg-type]


@settings(max_examples=200)
@given(binned(), st.data())
def test_every_value_of_the_domain_is_in_one_bin_and_that_bin_is_its_code(
    book: BinnedCodes, data: st.DataObject
) -> None:
    value = data.draw(values(book.field))
    holding = [code for code, span in enumerate(book.spans) if inside(span, value)]
    assert holding == [book.code({"f": value})]


@settings(max_examples=200)
@given(binned(), st.data())
def test_every_value_of_a_codes_fact_is_in_the_domain_and_has_that_code_again(
    book: BinnedCodes, data: st.DataObject
) -> None:
    code = data.draw(st.integers(0, len(book.spans) - 1))
    span = fact(book, code)
    value = data.draw(values(book.field.within(span)))
    assert book.field.check(value) is None
    assert book.code({"f": value}) == code


@settings(max_examples=100)
@given(binned())
def test_the_ends_of_bins_belong_to_them_and_bins_follow_one_another(book: BinnedCodes) -> None:
    for code, span in enumerate(book.spans):
        for end in (span.low, span.high):
            value = end.isoformat() if isinstance(end, date) else float(end) if isinstance(end, Decimal) else end
            assert book.code({"f": value}) == code
    step: Any = timedelta(days=1) if isinstance(book.field, DateField) else book.field.step  # type: ignore[attr-defined]
    for before, after in zip(book.spans, book.spans[1:], strict=False):
        assert before.high + step == after.low


def test_few_values_have_a_code_each() -> None:
    rating = BinnedCodes(IntegerField("f", min=1, max=5), [5, 5, 5, 4], 6)
    assert rating.words == ("1", "2", "3", "4", "5")
    halves = BinnedCodes(NumberField("f", min=Decimal(0), max=Decimal(2), step=Decimal("0.5")), [], 6)
    assert halves.words == ("0", "0.5", "1", "1.5", "2")
    thousands = BinnedCodes(NumberField("f", min=Decimal(0), max=Decimal("3E3"), step=Decimal("1E3")), [], 6)
    assert thousands.words == ("0", "1000", "2000", "3000")
    days = BinnedCodes(DateField("f", min=date(2024, 2, 28), max=date(2024, 3, 1)), [], 4)
    assert days.words == ("2024-02-28", "2024-02-29", "2024-03-01")


def test_bins_hold_about_equal_shares_of_what_is_known() -> None:
    chance = random.Random(3)
    known: list[Value] = [round(chance.gauss(120, 15)) for _ in range(400)]
    book = BinnedCodes(IntegerField("f", min=60, max=260), known, 4)
    shares = np.bincount(book.codes({"f": value} for value in known), minlength=book.size) / 400
    assert book.size == 4
    assert (abs(shares - 0.25) < 0.06).all()


@pytest.mark.parametrize("known", [[], [37], [37] * 50])
def test_where_too_little_is_known_bins_are_even(known: list[Value]) -> None:
    book = BinnedCodes(IntegerField("f", min=0, max=99), known, 4)
    assert [str(span) for span in book.spans] == ["0 to 24", "25 to 49", "50 to 74", "75 to 99"]


def test_where_nearly_all_have_the_least_value_it_is_a_bin_of_its_own() -> None:
    book = BinnedCodes(IntegerField("f", min=0, max=9000), [0] * 95 + [10, 200, 300, 4000, 5000], 4)
    assert [str(span) for span in book.spans] == ["0 to 0", "1 to 9000"]
    assert book.words == ("0", "1 to 9000")


def test_bins_of_very_fine_numbers_are_exact() -> None:
    start = 1_700_000_000_000_000_001  # nanoseconds: floats here are 256 apart
    book = BinnedCodes(IntegerField("f", min=start, max=start + 20), [start + i for i in range(20)], 4)
    assert book.spans[-1].high == start + 20
    assert [book.code({"f": start + i}) for i in (4, 5, 19, 20)] == [0, 1, 3, 3]
    assert all(book.code({"f": span.low}) == code for code, span in enumerate(book.spans))  # type: ignore[dict-item]


def test_an_optional_number_has_its_missing_code_last() -> None:
    book = BinnedCodes(IntegerField("f", min=0, max=99, optional=True), [], 4)
    assert (book.size, book.code({}), book.code({"f": 99})) == (5, 4, 3)
    assert fact(book, 4) is None


# -- texts -------------------------------------------------------------------------------------------------------------


def test_text_codes_are_the_same_for_the_same_seed_in_any_process_and_of_the_size_asked_for() -> None:
    one, two = text_codes(some_phrases()), text_codes(some_phrases())
    assert one.words == two.words
    assert (one.centres == two.centres).all()
    assert one.size == 6
    assert np.allclose(np.linalg.norm(one.centres, axis=1), 1.0)


def test_a_text_has_the_code_of_the_nearest_centre_alone_or_in_company() -> None:
    book = text_codes(some_phrases())
    texts = [phrase.text for phrase in some_phrases()] + ["a text that nobody wrote", "", "печать"]
    near = (ENCODER.encode(texts).astype(np.float64) @ book.centres.T).argmax(axis=1)
    assert [book.code({"topic": text}) for text in texts if text] == [
        code for code, text in zip(near, texts, strict=True) if text
    ]
    assert book.coded(ENCODER.encode(texts).astype(np.float64)).tolist() == near.tolist()


def test_a_rows_code_does_not_depend_on_the_rows_coded_before_it() -> None:
    book = text_codes(some_phrases())
    rows: list[Record] = [{"topic": phrase.text} for phrase in some_phrases()]
    alone = [text_codes(some_phrases()).code(row) for row in rows[:10]]
    assert book.codes(reversed(rows)).tolist()[::-1][:10] == alone
    assert book.codes(rows).tolist()[:10] == alone


def test_every_phrase_is_a_member_of_the_code_it_has_and_the_first_are_shown() -> None:
    phrases = some_phrases()
    book = text_codes(phrases)
    assert sorted(p.text for members in book.members for p in members) == sorted(p.text for p in phrases)
    for code, members in enumerate(book.members):
        assert {book.code({"topic": phrase.text}) for phrase in members} == {code}
        assert book.words[code] == " | ".join(list(dict.fromkeys(p.text for p in members))[:3])


def test_a_phrase_of_the_own_class_is_preferred_and_any_is_taken_where_there_is_none() -> None:
    phrases = [Phrase("lost password", "low"), Phrase("lost passwords", "high"), Phrase("lost a password")]
    book = text_codes(phrases, clusters=1)
    assert {fact(book, 0, "low") for _ in range(20)} == {"lost password"}
    assert {fact(book, 0, "high") for _ in range(20)} == {"lost passwords"}
    assert {fact(book, 0, None) for _ in range(20)} == {"lost a password"}
    assert {fact(book, 0, "middle") for _ in range(60)} == {phrase.text for phrase in phrases}


def test_a_fact_of_a_text_code_is_a_phrase_of_that_code() -> None:
    book = text_codes(some_phrases())
    for code in range(book.size):
        for label in ("low", "high", None):
            assert book.code({"topic": fact(book, code, label)}) == code


def test_equal_texts_make_one_code_and_there_are_never_more_codes_than_texts() -> None:
    assert text_codes([Phrase("line is dead", "low")] * 9).size == 1
    assert text_codes(some_phrases(4), clusters=32).size == 4


def test_a_centre_that_no_phrase_is_nearest_to_is_left_out() -> None:
    phrases = [Phrase("lost password"), Phrase("line is dead")]
    near = ENCODER.encode([phrase.text for phrase in phrases]).astype(np.float64)
    far = ENCODER.encode(["zzz qqq xxx"]).astype(np.float64)
    book = text_codes(phrases, centres=np.vstack([near[:1], far, near[1:]]))
    assert book.words == ("lost password", "line is dead")
    assert [fact(book, code) for code in range(book.size)] == ["lost password", "line is dead"]
    assert book.code({"topic": "zzz qqq xxx"}) in (0, 1)


def test_a_missing_text_is_a_code_and_its_fact_is_none() -> None:
    book = text_codes(some_phrases(), optional=True)
    assert book.size == 7
    assert book.code({"topic": None}) == book.code({}) == 6
    assert fact(book, 6, "low") is None


def test_a_text_is_brief_where_examples_have_a_few_words_and_nothing_else_is() -> None:
    assert is_brief(SCHEMA.field("topic"), SCHEMA)
    assert not is_brief(SCHEMA.field("channel"), SCHEMA)
    wordy = tuple({**one, "topic": "one two three four five"} for one in SCHEMA.examples)
    for examples in (wordy, ()):  # where no example says so, nobody knows
        other = replace(SCHEMA, examples=examples)
        assert not is_brief(other.field("topic"), other)


def test_whether_a_text_is_short_is_told_by_the_examples_or_else_by_its_limit() -> None:
    topic = SCHEMA.field("topic")
    assert isinstance(topic, TextField)
    assert is_short(topic, SCHEMA)
    note = TextField("note", max_length=400)
    long: Record = {"note": "word " * 12}
    assert not is_short(note, Schema("notes", (note,)))
    assert is_short(TextField("note", max_length=80), Schema("notes", (note,)))
    assert not is_short(note, Schema("notes", (note,), examples=(long,)))
    assert is_short(note, Schema("notes", (note,), examples=({"note": "good"}, {"note": "fine"}, long)))


# -- whatever a row says -----------------------------------------------------------------------------------------------

BOOKS: tuple[Codebook, ...] = (
    ListedCodes(CategoryField("f", values=("x", "y"), optional=True)),
    ListedCodes(BooleanField("f")),
    BinnedCodes(IntegerField("f", min=0, max=99), [3, 40, 41], 4),
    BinnedCodes(NumberField("f", min=Decimal(0), max=Decimal(10), step=Decimal("0.5"), optional=True), [1.5, 7], 4),
    BinnedCodes(DateField("f"), ["2001-02-03", "2024-02-29"], 4),
    TextCodes(
        TextField("f", max_length=60), [Phrase("a b"), Phrase("c d")],
        ENCODER.encode(["a b", "c d"]).astype(np.float64), encoder=ENCODER, clusters=2, seed=1,
    ),
)  # fmt: skip


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.field.kind)
def test_no_value_raises_and_what_is_not_of_the_domain_has_no_code(book: Codebook) -> None:
    for value in HOSTILE_VALUES:
        code = book.code({"f": value})  # type: ignore[dict-item]
        assert isinstance(code, int)
        if value is None:
            assert code == (book.size - 1 if book.field.optional else -1)
        elif not valid(book.field, value):
            assert code == -1
        else:
            assert 0 <= code < book.size


def valid(field: Field, value: object) -> bool:
    try:
        return field.check(value) is None
    except ValueError:
        return False


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.field.kind)
def test_a_codebook_as_plain_data_says_field_kind_and_codes(book: Codebook) -> None:
    assert book.to_dict() == {"field": "f", "kind": book.field.kind, "codes": list(book.words)}
    assert len(book.words) == book.size
    assert book.remote is None


def test_a_text_of_the_model_has_the_same_code_however_it_is_asked_for() -> None:
    """What is remembered of public texts must be what would be worked out."""
    field = TextField("topic", max_length=40)
    phrases = [
        Phrase(f"{one} {other}") for one in ("lost", "dead", "new") for other in ("key", "line", "badge", "card")
    ]
    encoder = HashingEncoder(64)
    vectors = encoder.encode([phrase.text for phrase in phrases]).astype(np.float64)
    book = TextCodes(field, phrases, vectors, encoder=encoder, clusters=5, seed=3)
    for text in [*(phrase.text for phrase in phrases), "an unseen text"]:
        assert book.code_of_public({"topic": text}) == book.code({"topic": text})
    assert book.code_of_public({"topic": None}) == book.code({"topic": None}) == -1
