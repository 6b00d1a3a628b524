from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from selpe.method.codebooks import BinnedCodes, Codebook, ListedCodes, Phrase, TextCodes
from selpe.method.facts import DrawnFacts, MeasuredField, MeasuredPair, MeasuredTables
from selpe.method.posterior import Matrix, NoiseLaw
from selpe.method.record_forms import Fact, agrees
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record, Schema, Span

ENCODER = HashingEncoder(64)
WARD = Schema.from_yaml(
    """
name: ward
label: urgency
fields:
  complaint: {kind: text, max_length: 60}
  story: {kind: text, max_length: 400}
  arm: {kind: category, values: [left, right, both]}
  pain: {kind: integer, min: 0, max: 10, optional: true}
  sbp: {kind: integer, min: 60, max: 259}
  dbp: {kind: integer, min: 30, max: 149}
  seen: {kind: date, min: 2024-01-01, max: 2024-12-31}
  left_on: {kind: date, min: 2024-01-01, max: 2024-12-31}
  urgency: {kind: category, values: [low, high]}
rules:
  - dbp < sbp
  - seen <= left_on
  - if urgency == "low" then pain < 9
"""
)
CHEST, ANKLE = ("chest pain", "pain in the chest"), ("twisted ankle", "ankle is swollen")
STORIES = ("fell on the stairs at home " * 4, "short of breath since the night " * 4)
PLAIN = Schema("plain", tuple(WARD.fields[:4]))


def text_book(name: str, texts: Sequence[Sequence[str]]) -> TextCodes:
    phrases = [Phrase(text) for group in texts for text in group]
    vectors = ENCODER.encode([phrase.text for phrase in phrases]).astype(np.float64)
    centres = np.array([ENCODER.encode(list(group)).mean(axis=0) for group in texts], dtype=np.float64)
    field = WARD.field(name)
    return TextCodes(field, phrases, vectors, encoder=ENCODER, clusters=2, seed=1, centres=centres)  # type: ignore[arg-type]


BOOKS: dict[str, Codebook] = {
    "complaint": text_book("complaint", [CHEST, ANKLE]),
    "story": text_book("story", [STORIES[:1], STORIES[1:]]),
    "arm": ListedCodes(WARD.field("arm")),  # type: ignore[arg-type]
    "pain": BinnedCodes(WARD.field("pain"), [], 2),  # type: ignore[arg-type]
    "sbp": BinnedCodes(WARD.field("sbp"), [], 4),  # type: ignore[arg-type]
    "dbp": BinnedCodes(WARD.field("dbp"), [], 4),  # type: ignore[arg-type]
    "seen": BinnedCodes(WARD.field("seen"), [], 4),  # type: ignore[arg-type]
    "left_on": BinnedCodes(WARD.field("left_on"), [], 4),  # type: ignore[arg-type]
}
OWN: Record = {
    "complaint": CHEST[0], "story": STORIES[0], "arm": "left", "pain": 2, "sbp": 130, "dbp": 80, "seen": "2024-02-01",
    "left_on": "2024-11-01", "urgency": "low",
}  # fmt: skip


def tables(
    shares: Mapping[str, tuple[Any, Any]], *pairs: MeasuredPair, schema: Schema = WARD, pool: Sequence[Record] = (OWN,)
) -> MeasuredTables:
    """Measured tables of some fields: the model's shares and the measured ones, for both classes or one row for all."""
    classes = len(schema.labels) or 1
    fields = {
        name: MeasuredField(BOOKS[name], rows(prior, classes), rows(found, classes), np.zeros((1, 1), np.int64), 0.0)
        for name, (prior, found) in shares.items()
    }
    records = {label: tuple(pool) for label in schema.labels or ("",)}
    return MeasuredTables(schema, fields, pairs, NoiseLaw("laplace", 1.0), (), records)


def rows(shares: Any, classes: int) -> Matrix:
    found = np.atleast_2d(np.asarray(shares, dtype=np.float64))
    return found if len(found) == classes else np.tile(found, (classes, 1))


def value_of(book: Codebook, code: int, chance: random.Random) -> Any:
    """A record's own value of a code, as a model would write it."""
    fact = book.fact(code, None, chance)
    return fact.low if isinstance(fact, Span) else fact


def code_of(book: Codebook, fact: Any) -> int:
    value: Any = fact.low if isinstance(fact, Span) else fact
    return book.code({book.name: value})


def shares_of(codes: Counter[Any], size: int) -> Matrix:
    return np.array([codes[code] for code in range(size)]) / codes.total()


# -- the coupling ------------------------------------------------------------------------------------------------------


def coupled(measured: MeasuredTables, names: Sequence[str], label: str = "low", *, times: int = 6000) -> Counter[Any]:
    """The codes that records end up with, where their own follow the model's shares one by one."""
    chance, found = random.Random(5), Counter[Any]()
    for _ in range(times):
        own = dict(OWN) | {"urgency": label}
        for name in names:
            field = measured.fields[name]
            weights = field.prior[measured.schema.labels.index(label) if label else 0]
            code = chance.choices(range(len(weights)), weights.tolist())[0]
            own[name] = value_of(field.codebook, code, chance)
        drawn = measured.draw(label, own, chance)
        ends: Mapping[str, Any] = own if drawn is None else {**own, **dict(drawn.facts)}
        codes = tuple(code_of(measured.fields[name].codebook, ends[name]) for name in names)
        found[codes if len(codes) > 1 else codes[0]] += 1
    return found


@pytest.mark.parametrize(("name", "label"), [("arm", "low"), ("arm", "high"), ("pain", "high"), ("complaint", "low")])
def test_drawn_records_follow_the_measured_shares_where_the_models_own_follow_its_prior(name: str, label: str) -> None:
    size = BOOKS[name].size
    prior = np.random.default_rng(1).dirichlet(np.ones(size), 2)
    found = np.random.default_rng(2).dirichlet(np.ones(size), 2)
    measured = tables({name: (prior, found)})
    ended = shares_of(coupled(measured, [name], label), size)
    assert np.abs(ended - found[WARD.labels.index(label)]).max() < 0.03
    assert np.abs(prior - found).max() > 0.1  # else it would say nothing


def test_only_as_many_records_change_as_must() -> None:
    prior, found, chance = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.3, 0.4]), random.Random(1)
    measured = tables({"arm": (prior, found)})
    changed = 0
    for _ in range(4000):
        own = OWN | {"arm": chance.choices(["left", "right", "both"], prior.tolist())[0]}
        changed += measured.draw("low", own, chance) is not None
    assert changed / 4000 == pytest.approx(np.abs(prior - found).sum() / 2, abs=0.03)


def test_where_the_measured_shares_are_the_models_every_record_is_kept() -> None:
    chance = random.Random(1)
    measured = tables(
        {name: (shares, shares) for name, shares in (("arm", [0.5, 0.3, 0.2]), ("pain", [0.2, 0.5, 0.3]))}
    )
    for arm in ("left", "right", "both"):
        for pain in (None, 0, 10):
            for _ in range(50):
                assert measured.draw("high", OWN | {"arm": arm, "pain": pain}, chance) is None


def test_a_record_that_changes_in_one_field_keeps_its_own_values_in_the_others_as_facts() -> None:
    measured = tables({"arm": ([1, 0, 0], [0, 0, 1]), "pain": ([0.4, 0.3, 0.3], [0.4, 0.3, 0.3])})
    assert measured.draw("low", OWN, random.Random(1)) == DrawnFacts((("arm", "both"), ("pain", 2)))
    assert measured.draw("low", OWN | {"pain": None}, random.Random(1)) == DrawnFacts((("arm", "both"), ("pain", None)))
    absent = {name: value for name, value in OWN.items() if name != "pain"}
    assert measured.draw("low", absent, random.Random(1)) == DrawnFacts((("arm", "both"), ("pain", None)))


def test_each_class_draws_from_its_own_row() -> None:
    measured = tables({"arm": ([1 / 3] * 3, [[1, 0, 0], [0, 0, 1]])})
    for label, arm in (("low", "left"), ("high", "both")):
        drawn = measured.draw(label, None, random.Random(1))
        assert drawn == DrawnFacts((("arm", arm),))


def test_without_a_record_of_its_own_facts_are_drawn_from_the_shares() -> None:
    chance, shares = random.Random(3), np.array([0.2, 0.3, 0.5])
    measured = tables({"arm": ([1, 0, 0], shares)})
    found = Counter(dict(measured.draw("low", None, chance).facts)["arm"] for _ in range(4000))  # type: ignore[union-attr]
    assert [found[arm] / 4000 for arm in ("left", "right", "both")] == pytest.approx(shares.tolist(), abs=0.03)


def test_without_a_label_there_is_one_row_for_all() -> None:
    measured = tables({"arm": ([0.6, 0.3, 0.1], [0.1, 0.3, 0.6])}, schema=PLAIN)
    ended = shares_of(coupled(measured, ["arm"], "", times=4000), 3)
    assert np.abs(ended - [0.1, 0.3, 0.6]).max() < 0.03


def test_a_missing_value_is_drawn_as_none_and_a_present_one_as_its_span() -> None:
    measured = tables({"pain": ([0.5, 0.5, 0.0], [0.0, 0.5, 0.5])})
    found = Counter(measured.draw("high", None, random.Random(i)).facts[0][1] for i in range(400))  # type: ignore[union-attr]
    assert set(found) == {None, Span(5, 10)}
    assert min(found.values()) > 140


def test_the_same_chance_draws_the_same_facts() -> None:
    measured = tables({"arm": ([0.6, 0.3, 0.1], [0.1, 0.3, 0.6]), "complaint": ([0.9, 0.1], [0.2, 0.8])})
    one, two = ([measured.draw("low", OWN, random.Random(i)) for i in range(50)] for _ in range(2))
    assert one == two
    assert len({repr(drawn) for drawn in one}) > 3


# -- rules -------------------------------------------------------------------------------------------------------------


def holds(facts: Mapping[str, Any], names: tuple[str, str], *, strict: bool) -> bool:
    """Whether some values of two facts are in order."""
    low, high = (facts[name] for name in names)
    least: Any = low.low if isinstance(low, Span) else low
    most: Any = high.high if isinstance(high, Span) else high
    return str(least) <= str(most) if isinstance(least, str) or not strict else least < most


def test_facts_do_not_contradict_the_rules_where_values_that_agree_exist() -> None:
    even = [0.25] * 4
    measured = tables(dict.fromkeys(("sbp", "dbp", "seen", "left_on"), (even, even)))
    low_sbp = {"sbp": 75}
    for number in range(300):
        drawn = measured.draw("low", None, random.Random(number), given=low_sbp)
        assert drawn is not None
        facts = dict(drawn.facts)
        assert facts["sbp"] == 75
        if "dbp" in facts:
            assert holds(facts, ("dbp", "sbp"), strict=True)
        if "seen" in facts:
            assert holds(facts, ("seen", "left_on"), strict=False)
    some = [dict(measured.draw("low", None, random.Random(i), given=low_sbp).facts) for i in range(50)]  # type: ignore[union-attr]
    assert sum("dbp" in facts for facts in some) > 45


def test_facts_do_not_contradict_what_the_rules_say_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOOKS, "pain", BinnedCodes(WARD.field("pain"), [], 11))  # type: ignore[arg-type]
    shares = np.append(np.zeros(9), [0.45, 0.45, 0.1])
    measured = tables({"pain": (shares, shares)})
    high, low = (
        {dict(measured.draw(label, None, random.Random(i)).facts).get("pain", "free") for i in range(60)}  # type: ignore[union-attr]
        for label in ("high", "low")
    )
    assert high == {Span(9, 9), Span(10, 10), None}
    assert None in low  # the rule says nothing of a missing value
    assert not low & {Span(9, 9), Span(10, 10)}


def test_where_no_values_agree_the_fields_of_the_rule_are_left_to_the_model_and_the_rest_is_bound() -> None:
    measured = tables({"arm": ([1, 0, 0], [0, 1, 0]), "sbp": ([1, 0, 0, 0],) * 2, "dbp": ([0, 0, 0, 1],) * 2})
    drawn = measured.draw("low", None, random.Random(1))
    assert drawn == DrawnFacts((("arm", "right"),))


def test_a_changed_field_does_not_contradict_a_kept_one() -> None:
    measured = tables({"sbp": ([1 / 4] * 4,) * 2, "dbp": ([0, 0, 0, 1], [0.5, 0.5, 0, 0])})
    for number in range(100):
        drawn = measured.draw("low", OWN | {"sbp": 70, "dbp": 65}, random.Random(number))
        facts = dict(drawn.facts) if drawn else {}
        if "dbp" in facts:
            assert holds(facts, ("dbp", "sbp"), strict=True)


# -- what is given -----------------------------------------------------------------------------------------------------


def test_given_facts_are_kept_measured_or_not_and_stand_in_the_order_of_the_schema() -> None:
    measured = tables({"arm": ([1, 0, 0], [0, 0, 1]), "pain": ([0.5, 0.5, 0], [0.5, 0.5, 0])})
    given: dict[str, Fact] = {"sbp": 111, "arm": "right"}
    for own in (None, OWN):
        drawn = measured.draw("high", own, random.Random(1), given=given)
        assert drawn is not None
        assert [name for name, _ in drawn.facts] == ["arm", "pain", "sbp"]
        facts = dict(drawn.facts)
        assert (facts["arm"], facts["sbp"]) == ("right", 111)


# -- texts -------------------------------------------------------------------------------------------------------------


def test_a_short_text_is_bound_to_a_phrase_of_the_drawn_code() -> None:
    measured = tables({"complaint": ([1, 0], [0, 1])})
    found = {measured.draw("low", OWN, random.Random(i)) for i in range(20)}
    assert found == {DrawnFacts((("complaint", text),)) for text in ANKLE}


def test_a_long_text_is_not_bound_but_has_exemplars_of_the_drawn_cluster() -> None:
    alike = [OWN | {"story": STORIES[1], "sbp": number} for number in range(100, 105)]
    measured = tables({"story": ([1, 0], [0, 1])}, pool=[OWN, *alike])
    drawn = measured.draw("low", OWN, random.Random(1))
    assert drawn is not None
    assert drawn.facts == ()
    assert len(drawn.exemplars) == 2
    assert all(record in alike for record in drawn.exemplars)


def test_exemplars_are_of_the_own_class_and_of_any_where_it_has_none() -> None:
    low, high = OWN | {"story": STORIES[1]}, OWN | {"story": STORIES[1], "urgency": "high"}
    measured = tables({"story": ([1, 0], [0, 1])})
    for pool, wanted in (({"low": (low,), "high": (high,)}, low), ({"low": (OWN,), "high": (high,)}, high)):
        of_pool = MeasuredTables(WARD, measured.fields, (), measured.noise, (), pool)
        drawn = of_pool.draw("low", OWN, random.Random(1))
        assert drawn == DrawnFacts((), (wanted,))


def test_without_any_record_of_the_cluster_there_is_no_exemplar() -> None:
    measured = MeasuredTables(
        WARD, tables({"story": ([1, 0], [0, 1])}).fields, (), NoiseLaw("laplace", 1.0), (), {"low": (), "high": ()}
    )
    assert measured.draw("low", OWN, random.Random(1)) == DrawnFacts(())


def test_a_long_text_that_was_kept_is_written_anew_beside_what_has_changed() -> None:
    measured = tables({"story": ([1, 0], [1, 0]), "arm": ([1, 0, 0], [0, 1, 0])})
    assert measured.draw("low", OWN, random.Random(1)) == DrawnFacts((("arm", "right"),))


# -- pairs -------------------------------------------------------------------------------------------------------------

EVEN = [1 / 3] * 3
TOGETHER = np.array([[2.4, 0.3, 0.3], [0.3, 2.4, 0.3]])  # the first two arms go with little and much pain


def pair(tilt: Matrix, model: Matrix) -> MeasuredPair:
    return MeasuredPair(("arm", "pain"), tilt, np.zeros((3, 3), np.int64), model)


def joint(counted: Counter[Any]) -> Matrix:
    return np.array([[counted[one, other] for other in range(3)] for one in range(3)]) / counted.total()


def test_pairs_that_were_counted_together_are_drawn_together() -> None:
    tilt = np.vstack([TOGETHER, [0.3, 0.3, 2.4]])
    measured = tables({"arm": (EVEN, EVEN), "pain": (EVEN, EVEN)}, pair(tilt, np.ones((3, 3))))
    ended = joint(coupled(measured, ["arm", "pain"], "high"))
    assert np.abs(ended - tilt / 9).max() < 0.03


def test_what_the_model_puts_together_and_rows_do_not_comes_apart() -> None:
    model = np.array([[3, 0, 0], [0, 3, 0], [0, 0, 3.0]])
    measured = tables({"arm": (EVEN, EVEN), "pain": (EVEN, EVEN)}, pair(np.ones((3, 3)), model))
    chance, found = random.Random(1), Counter[Any]()
    for _ in range(6000):
        code = chance.randrange(3)
        own = OWN | {name: value_of(BOOKS[name], code, chance) for name in ("arm", "pain")}
        drawn = measured.draw("high", own, chance)
        ends: Mapping[str, Any] = own if drawn is None else {**own, **dict(drawn.facts)}
        found[tuple(code_of(BOOKS[name], ends[name]) for name in ("arm", "pain"))] += 1
    assert np.abs(joint(found) - 1 / 9).max() < 0.03


def test_where_rows_go_together_as_in_the_models_own_records_all_of_them_are_kept() -> None:
    tilt = np.vstack([TOGETHER, [0.3, 0.3, 2.4]])
    measured = tables({"arm": (EVEN, EVEN), "pain": (EVEN, EVEN)}, pair(tilt, tilt))
    for number in range(200):
        chance = random.Random(number)
        own = OWN | {name: value_of(BOOKS[name], chance.randrange(3), chance) for name in ("arm", "pain")}
        assert measured.draw("high", own, chance) is None


def test_a_pair_tilts_whichever_of_its_fields_comes_second() -> None:
    after = np.array([[0.1, 2.8, 0.1], [2.8, 0.1, 0.1], [0.1, 0.1, 2.8]])
    tilt = after * [[1.0], [1.0], [0.5]]  # not symmetric: pain by arm
    turned = MeasuredPair(("pain", "arm"), tilt, np.zeros((3, 3), np.int64), np.ones((3, 3)))
    measured = tables({"arm": (EVEN, EVEN), "pain": (EVEN, EVEN)}, turned)
    ended = joint(coupled(measured, ["arm", "pain"], "high"))
    assert np.abs(ended - (tilt / tilt.sum(axis=0)).T / 3).max() < 0.03


# -- apart from the class ----------------------------------------------------------------------------------------------

OTHER: Record = {**OWN, "complaint": CHEST[1], "arm": "right", "pain": 5, "sbp": 150, "dbp": 95, "urgency": "high"}


def test_apart_from_the_class_what_was_not_measured_comes_from_one_record_of_any_class() -> None:
    measured = tables({"arm": ([0.5, 0.5], [1.0, 0.0])}, pool=(OWN, OTHER)).kept_apart()
    drawn = [measured.draw("low", OWN, random.Random(seed)) for seed in range(40)]
    assert all(one is not None and one.beside in (OWN, OTHER) for one in drawn)
    for one in drawn:
        assert one is not None
        assert one.beside is not None
        facts = dict(one.facts)
        assert "urgency" not in facts, "the class is no fact"
        assert "story" not in facts, "a long text is written anew"
        assert all(facts[name] == one.beside[name] for name in ("complaint", "pain", "sbp", "dbp", "seen", "left_on"))
    assert {one.beside["pain"] for one in drawn if one is not None and one.beside is not None} == {2, 5}


def test_apart_from_the_class_measured_fields_still_follow_the_shares_of_the_class() -> None:
    measured = tables({"arm": ([[0.5, 0.5]] * 2, [[0.9, 0.1], [0.2, 0.8]])}, pool=(OWN, OTHER)).kept_apart()
    for label, share in (("low", 0.9), ("high", 0.2)):
        drawn = [measured.draw(label, OWN, random.Random(seed)) for seed in range(2000)]
        first = [BOOKS["arm"].code(dict(one.facts)) == 0 for one in drawn if one is not None]  # type: ignore[arg-type]
        assert abs(np.mean(first) - share) < 0.03


@pytest.mark.parametrize("apart", [False, True])
def test_a_draft_is_a_valid_record_of_its_class_with_the_facts_that_will_be_written(apart: bool) -> None:
    even = np.full(BOOKS["pain"].size, 1 / BOOKS["pain"].size)
    shares: dict[str, tuple[Any, Any]] = {
        "arm": ([0.4, 0.4, 0.2], [0.2, 0.7, 0.1]), "pain": (even, even), "story": ([0.9, 0.1], [0.1, 0.9]),
    }  # fmt: skip
    measured = tables(shares, pool=(OWN, OTHER))
    measured = measured.kept_apart() if apart else measured
    for seed in range(50):
        drawn = measured.draw("low", OWN, random.Random(seed))
        draft = measured.draft("low", OWN, random.Random(seed))
        assert draft["urgency"] == "low"
        assert not [one for one in WARD.check(draft) if one.level != "rule"]
        assert draft == OWN if drawn is None else all(agrees(WARD.field(n), draft[n], f) for n, f in drawn.facts)


def test_releases_are_named_by_the_way_they_were_drawn() -> None:
    measured = tables({"arm": ([0.5, 0.5], [0.2, 0.8])})
    assert (measured.name, measured.kept_apart().name) == ("measured", "measured, the rest of any class")
