from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evolving_world import ENCODER, World, texts
from selpe.errors import PrivacyError
from selpe.method.algorithm import DRAFTED, Evolution, Evolved, Method
from selpe.method.codebooks import Codebook, TextCodes
from selpe.method.facts import MeasuredTables
from selpe.method.posterior import Matrix
from selpe.models import Answer, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.counts import Counts
from selpe.privacy.measure_plan import Measurable
from selpe.privacy.mechanisms import Guarantee
from selpe.privacy.table import Selection
from selpe.schema import Record, Schema
from small_world import SCHEMA, UNLABELLED, drawn

EVERY = tuple(name for name in SCHEMA.names if name != "urgency")
PLAIN = Method(bundles=0)


def named(*fields: str, pairs: tuple[tuple[str, str], ...] = (), delta: float = 0.0) -> Measurable:
    return Measurable(fields, named=True, pairs=pairs, delta=delta)


@cache
def told(count: int, *, shuffled: bool = False, seed: int = 1, schema: Schema = SCHEMA) -> list[Record]:
    """Rows unlike those of the fake model: low urgency by telephone and quick, high urgency in person and long."""
    chance, found = random.Random(seed), []
    for number, record in enumerate(drawn(count, offset=7000, schema=schema)):
        label = SCHEMA.labels[number % 2]
        low = (chance.random() < 0.5) if shuffled else label == "low"
        found.append(
            record | {
                "urgency": label, "channel": "phone" if low else "visit", "solved": True,
                "minutes": chance.randint(2, 30) if low else chance.randint(60, 90),
                "topic": f"{'lost' if low else 'dead'} {chance.choice(['password', 'line', 'key'])}",
            }
        )  # fmt: skip
    return found


def planned(world: World, **changes: Any) -> World:
    """The same world with another measurement, whatever the planner would have taken; few phrases save time."""
    assert world.plan.measure is not None
    measure = replace(world.plan.measure, **{"phrases": 150, **changes}).fitted(world.plan.adjacency)
    world.plan = replace(world.plan, measure=measure)
    return world


def two_looks(world: World, *prices: float) -> World:
    return planned(world, looks=prices, clusters=12, fine_clusters=60)


def measured(world: World, **more: Any) -> MeasuredTables:
    tables = world.evolve(PLAIN, **more).tables
    assert tables is not None
    return tables


def apart(one: Matrix, other: Matrix) -> float:
    return float(np.abs(one - other).sum(axis=-1).mean() / 2)


def exact(book: Codebook, rows: Sequence[Record], schema: Schema = SCHEMA) -> NDArray[np.int64]:
    """The table of rows, counted by hand."""
    labels = schema.labels or ("",)
    table = np.zeros((len(labels), book.size), dtype=np.int64)
    for row in rows:
        table[labels.index(schema.label_of(row) or ""), book.code(row)] += 1
    return table


# -- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_without_noise_every_kind_of_field_is_counted_as_by_hand(tmp_path: Path, name: str) -> None:
    world = planned(
        World(tmp_path, rows=told(60), records=8, rounds=1, epsilon=math.inf, measure=named(name)), looks=(math.inf,)
    )
    field = measured(world).fields[name]
    assert (field.counts == exact(field.codebook, world.rows)).all()
    assert field.counts.sum() == 60
    assert field.shares.shape == field.prior.shape == field.counts.shape
    assert np.allclose(field.shares.sum(axis=1), 1.0)
    assert np.allclose(field.prior.sum(axis=1), 1.0)


def test_many_rows_and_much_epsilon_bring_the_rows_shares_into_the_records(tmp_path: Path) -> None:
    rows = told(150)
    world = World(tmp_path, rows=rows, rounds=1, epsilon=30.0, records=60, measure=named("channel", "minutes"))
    evolved = world.evolve(PLAIN)
    assert evolved.tables is not None
    low, high = evolved.tables.fields["channel"].shares
    assert low[0] > 0.9 < high[2]
    assert apart(evolved.tables.fields["channel"].prior, evolved.tables.fields["channel"].shares) > 0.4
    made = Counter((c.record["urgency"], c.record["channel"]) for c in evolved.candidates)
    assert made["low", "phone"] > 24
    assert made["high", "visit"] > 24
    quick = [int(c.record["minutes"]) for c in evolved.candidates if c.record["urgency"] == "low"]  # type: ignore[arg-type]
    slow = [int(c.record["minutes"]) for c in evolved.candidates if c.record["urgency"] == "high"]  # type: ignore[arg-type]
    assert np.median(quick) < 40 < np.median(slow)
    assert all(SCHEMA.check(c.record) == [] for c in evolved.candidates)
    assert (evolved.release, evolved.measured) == ("measured", 1.0)


def test_a_record_written_by_the_tables_has_the_facts_that_were_drawn_for_it(tmp_path: Path) -> None:
    world = World(tmp_path, rows=told(100), rounds=1, epsilon=30.0, measure=named("topic", "channel", "minutes"))
    planned(world)
    evolved = world.evolve(PLAIN)
    changed = [candidate for candidate in evolved.candidates if candidate.proposal.facts]
    assert len(changed) > 12
    for candidate in changed:
        for name, fact in candidate.proposal.facts:
            value = candidate.record[name]
            if name == "minutes" and not isinstance(fact, int):
                assert fact.low <= value <= fact.high  # type: ignore[union-attr,operator]
            else:
                assert value == fact


def test_a_named_field_needs_no_vote_and_fields_of_the_owners_choice_are_all_measured(tmp_path: Path) -> None:
    world = World(tmp_path, rounds=1, measure=named("channel", "day"))
    assert list(measured(world).fields) == ["channel", "day"]
    assert list(world.charged) == ["measure-1"]


def test_rows_vote_for_what_to_measure_and_the_winner_is_measured(tmp_path: Path) -> None:
    world = World(tmp_path, rows=told(100), rounds=1, epsilon=3.0, measure=Measurable(("waited", "minutes", "day")))
    planned(world, fields=(), tables=2, choices=(1.0, 0.5), looks=(1.0,))
    fields = measured(world).fields
    assert len(fields) == 2
    assert "minutes" in fields
    assert world.charged == pytest.approx({"field-1": 1.0, "field-2": 0.5, "measure-1": 1.0})
    alone = planned(
        World(tmp_path / "alone", rows=told(100), rounds=1, measure=Measurable(("waited", "minutes", "day"))),
        fields=(),
        tables=1,
        choices=(8.0,),
        looks=(1.0,),
    )
    assert list(measured(alone).fields) == ["minutes"]


def test_where_everything_is_measured_no_vote_is_paid_for(tmp_path: Path) -> None:
    world = World(tmp_path, rows=told(60), rounds=1, epsilon=30.0, measure=Measurable(EVERY))
    planned(world, fields=EVERY, tables=len(EVERY), choices=())
    assert set(measured(world).fields) == set(EVERY)
    assert not [name for name in world.charged if name.startswith("field-")]


def test_without_a_label_fields_are_counted_alone(tmp_path: Path) -> None:
    for name, fields in (("named", named("channel", "score")), ("voted", Measurable(("channel", "score", "day")))):
        world = World(
            tmp_path / name, schema=UNLABELLED, rows=drawn(60, schema=UNLABELLED), rounds=1, epsilon=2.0, measure=fields
        )
        tables = measured(world)
        assert all(field.counts.shape == (1, field.codebook.size) for field in tables.fields.values())
        assert len(tables.fields) == (2 if name == "named" else 1)
    world = World(tmp_path / "exact", schema=UNLABELLED, rounds=1, epsilon=math.inf, measure=named("score"))
    field = measured(world).fields["score"]
    assert (field.counts == exact(field.codebook, world.rows, UNLABELLED)).all()


def test_a_text_that_the_model_always_leaves_out_is_counted_as_there_or_missing(tmp_path: Path) -> None:
    schema = Schema.from_yaml(
        SCHEMA.to_yaml().replace(
            "  minutes:", "  story:\n    kind: text\n    max_length: 300\n    optional: true\n  minutes:", 1
        )
    )

    class Silent(FakeModel):
        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            if request.json_schema is None or "story" not in request.json_schema["properties"]:
                return answer
            return replace(answer, text=json.dumps(json.loads(answer.text) | {"story": None}))

    rows = [row | {"story": "it rained all day long" if i % 4 else None} for i, row in enumerate(told(40))]
    world = World(
        tmp_path, schema=schema, model=Silent(), rows=rows, rounds=1, epsilon=math.inf, measure=named("story")
    )
    field = measured(planned(world, looks=(math.inf,))).fields["story"]
    assert field.counts.sum(axis=0).tolist() == [30, 10]


# -- what is paid ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("fields", [Measurable(EVERY), named("topic", "channel", pairs=(("topic", "channel"),))])
def test_the_ledger_shows_the_prices_of_the_plan_and_no_more_than_epsilon(
    tmp_path: Path, adjacency: Any, fields: Measurable
) -> None:
    world = World(tmp_path, rows=told(100), rounds=1, bundles=4, epsilon=4.0, adjacency=adjacency, measure=fields)
    planned(world)
    world.evolve(Method(bundles=4), adjacency=adjacency)
    charges = [entry.data for entry in world.ledger.entries() if entry.kind == "charge"]
    key = f"epsilon_{adjacency.replace('-', '_')}"
    paid = {charge["selection"]: float(charge[key]) for charge in charges}
    prices = {name: price for name, price in world.plan.prices().items() if price}
    assert paid == pytest.approx(prices, rel=1e-9)
    assert all(paid[name] <= price * (1 + 1e-12) for name, price in prices.items())
    assert sum(paid.values()) == pytest.approx(4.0)
    assert [event.selection for event in world.selected] == list(paid)
    told_before = {charge.selection: charge for charge in world.plan.charges("r")}
    for charge in charges:
        assert charge["epsilon_replace_one"] == pytest.approx(told_before[charge["selection"]].epsilon_replace_one)


def test_gaussian_noise_is_taken_where_delta_is_given_and_it_is_tighter(tmp_path: Path) -> None:
    world = planned(World(tmp_path, rounds=1, epsilon=1.0, measure=named(*EVERY, delta=1e-3)))
    world.ledger.set_budget(1e6, delta=0.1, widen=True, reason="a test with Gaussian noise")
    tables = measured(world)
    assert tables.noise.law == "gaussian"
    charge = next(entry.data for entry in world.ledger.entries() if entry.kind == "charge")
    assert charge["delta"] == 1e-3
    assert charge["event_replace_one"]["kind"] == "gaussian"


@pytest.mark.parametrize(
    ("fields", "looks"),
    [
        (named("topic", "channel", "minutes"), 1),
        (named("topic"), 2),
        (named("channel", "minutes", pairs=(("channel", "minutes"),)), 1),
        (Measurable(EVERY), 1),
    ],
)
def test_at_epsilon_0_nothing_changes_and_nothing_is_spent(tmp_path: Path, fields: Measurable, looks: int) -> None:
    world = planned(World(tmp_path, rounds=1, epsilon=0.0, measure=fields), looks=(0.0,) * looks)
    evolved = world.evolve(PLAIN, test_seed=None)
    assert evolved.tables is not None
    for field in evolved.tables.fields.values():
        assert (field.counts == 0).all()
        assert np.allclose(field.shares, field.prior, rtol=0, atol=1e-5)
    assert all(not candidate.proposal.facts for candidate in evolved.candidates)
    assert set(world.charged.values()) <= {0.0}
    assert world.ledger.spent().epsilon_replace_one == 0.0


def test_at_epsilon_infinity_all_is_stamped_not_private(tmp_path: Path) -> None:
    world = World(tmp_path, rounds=1, bundles=4, epsilon=math.inf, measure=named("channel", "minutes"))
    evolved = world.evolve(Method(bundles=4), test_seed=None)
    counts = [made for made in evolved.drawn if isinstance(made, Counts)]
    assert counts
    assert not any(made.private for made in evolved.drawn)
    assert all("not private" in event.mechanism for event in world.selected)


def test_seeded_noise_is_stamped_not_private_and_real_noise_is_not(tmp_path: Path) -> None:
    for seed, private in ((3, False), (None, True)):
        world = World(tmp_path / str(seed), rounds=1, measure=named("channel"))
        evolved = world.evolve(PLAIN, test_seed=seed)
        assert [made.private for made in evolved.drawn] == [private]


# -- the same again ----------------------------------------------------------------------------------------------------


def whole(evolved: Evolved) -> tuple[Any, ...]:
    assert evolved.tables is not None
    fields = evolved.tables.fields
    shares = {name: field.shares.tolist() for name, field in fields.items()}
    return texts(evolved), evolved.release, shares, {name: field.codebook.words for name, field in fields.items()}


def test_the_same_seeds_give_the_same_tables_and_records_and_other_noise_others(tmp_path: Path) -> None:
    one, two, other = (
        planned(World(tmp_path / str(i), rounds=1, bundles=4, measure=named("topic", "minutes"))).evolve(
            Method(bundles=4), test_seed=seed
        )
        for i, seed in enumerate((3, 3, 4))
    )
    assert whole(one) == whole(two)
    assert whole(one)[2] != whole(other)[2]


def test_a_second_run_of_the_same_name_replays_counts_and_votes_and_pays_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, rows=told(100), rounds=1, bundles=4, epsilon=3.0, measure=Measurable(EVERY))
    planned(world)
    first = world.evolve(Method(bundles=4), test_seed=None)
    entries = len(world.ledger.entries())
    again = world.evolve(Method(bundles=4), test_seed=None)
    assert whole(first) == whole(again)
    assert all(made.replayed for made in again.drawn)
    assert len(world.ledger.entries()) == entries


def test_counts_of_other_codes_are_never_taken_for_these(tmp_path: Path) -> None:
    world = planned(World(tmp_path, rounds=1, measure=named("topic")))
    world.evolve(PLAIN)
    with pytest.raises(PrivacyError, match="drawn earlier for other pools"):
        world.evolve(PLAIN, seed=2)  # another pool, other clusters


# -- a second look -----------------------------------------------------------------------------------------------------


def test_a_second_look_has_finer_codes_of_short_texts_and_its_shares_sum_to_one(tmp_path: Path) -> None:
    world = two_looks(World(tmp_path, rows=told(80), rounds=1, measure=named("topic", "channel")), 10.0, 20.0)
    tables = measured(world)
    first, second = (look.fields for look in tables.looks)
    assert [look.name for look in tables.looks] == ["measure-1", "measure-2"] == list(world.charged)
    assert second["topic"].codebook.size > 3 * first["topic"].codebook.size
    assert second["channel"].codebook.words == first["channel"].codebook.words
    assert tables.fields is second
    for field in (*first.values(), *second.values()):
        assert np.allclose(field.shares.sum(axis=1), 1.0)
        assert (field.shares > 0).all()
    book = tables.fields["topic"].codebook
    assert isinstance(book, TextCodes)
    assert all(book.members)  # every code can be written


def test_the_finer_codes_of_a_second_look_find_what_rows_say(tmp_path: Path) -> None:
    rows = [row | {"topic": "lost password" if row["urgency"] == "low" else "line is dead"} for row in told(80)]
    world = two_looks(World(tmp_path, rows=rows, rounds=1, measure=named("topic")), 10.0, 20.0)
    field = measured(world).fields["topic"]
    for row, text in enumerate(("lost password", "line is dead")):
        assert int(np.argmax(field.shares[row])) == field.codebook.code({"topic": text})
        assert field.shares[row].max() > 0.5
        assert field.prior[row].max() < 0.3


# -- pairs -------------------------------------------------------------------------------------------------------------


def test_a_pair_is_counted_as_one_table_and_costs_as_much_as_any(tmp_path: Path) -> None:
    pair = ("channel", "solved")
    world = World(tmp_path, rounds=1, epsilon=math.inf, measure=named(*pair, pairs=(pair,)))
    tables = measured(world)
    one, other = (tables.fields[name].codebook for name in pair)
    counted = np.zeros((one.size, other.size), dtype=np.int64)
    for row in world.rows:
        counted[one.code(row), other.code(row)] += 1
    (found,) = tables.pairs
    assert (found.counts == counted).all()
    private = World(tmp_path / "private", rounds=1, epsilon=3.0, measure=named(*pair, pairs=(pair,)))
    assert measured(private).noise.scale == pytest.approx(3 * 2 / 3.0)  # three tables


def test_what_goes_together_only_through_the_class_is_not_tilted_twice(tmp_path: Path) -> None:
    """Channel and minutes both follow the urgency: within a class they have nothing to do with each other."""
    chance, rows = random.Random(3), []
    for row in told(600):
        by_phone, long = (chance.random() < (0.85 if row["urgency"] == label else 0.15) for label in ("low", "high"))
        minutes = chance.randint(70, 90) if long else chance.randint(2, 20)
        rows.append(row | {"channel": "phone" if by_phone else "visit", "minutes": minutes})
    fields = ("channel", "minutes")
    world = World(tmp_path, rows=rows, rounds=1, epsilon=200.0, measure=named(*fields, pairs=(fields,)))
    tables = measured(world)
    (pair,) = tables.pairs
    shares = tables.fields["minutes"].shares
    assert apart(shares[:1], shares[1:]) > 0.5
    for of_class in shares:
        for code in (0, 2):  # by telephone, in person
            tilted = of_class * pair.tilt[code]
            assert apart(tilted / tilted.sum(), of_class) < 0.12


def test_what_goes_together_within_a_class_is_drawn_together(tmp_path: Path) -> None:
    chance = random.Random(2)
    rows = []
    for row in told(400):
        quick = chance.random() < 0.5
        rows.append(
            row
            | {"channel": "phone" if quick else "visit", "minutes": chance.randint(*((2, 20) if quick else (70, 90)))}
        )
    fields = ("channel", "minutes")
    for pairs, together in (((fields,), 0.85), ((), 0.0)):
        world = World(
            tmp_path / str(len(pairs)), rows=rows, rounds=1, epsilon=200.0, measure=named(*fields, pairs=pairs)
        )
        tables = measured(world)
        spans = {}
        for i in range(400):
            facts = dict(tables.draw("low", None, random.Random(i)).facts)  # type: ignore[union-attr]
            spans[i] = (facts["channel"] == "phone") == (facts["minutes"].low < 45)
        agree = sum(spans.values()) / 400
        assert agree > together if together else abs(agree - 0.5) < 0.15


# -- the last vote -----------------------------------------------------------------------------------------------------


def test_without_epsilon_nobody_votes_and_every_record_stays_as_the_model_wrote_it(tmp_path: Path) -> None:
    world = World(tmp_path, records=8, rounds=1, bundles=8, epsilon=0.0, measure=named("channel"))
    evolved = world.evolve(Method(bundles=8), test_seed=0)
    assert evolved.release == "measured"
    assert not any(candidate.proposal.facts for candidate in evolved.candidates)


def test_the_share_that_was_measured_goes_with_the_release(tmp_path: Path) -> None:
    for seed in range(3):
        world = World(tmp_path / str(seed), records=12, rows=told(60), rounds=1, bundles=8, measure=named("channel"))
        evolved = world.evolve(Method(bundles=8), test_seed=seed)
        wrote = sum(bool(candidate.proposal.facts) for candidate in evolved.candidates)
        assert (evolved.measured > 0) == ("measured" in evolved.release)
        assert wrote == 0 or evolved.measured > 0


def settled(monkeypatch: pytest.MonkeyPatch, winner: int) -> list[tuple[list[list[Record]], tuple[int, ...]]]:
    """Has the last vote end with this winner, and returns what it was asked about."""
    asked: list[tuple[list[list[Record]], tuple[int, ...]]] = []

    def choose(
        _: Evolution, name: str, epsilon: float, sets: Sequence[Sequence[Record]], ahead: Sequence[int]
    ) -> Selection:
        asked.append(([list(one) for one in sets], tuple(ahead)))
        return Selection({"": (winner,)}, Guarantee(0.0, 0.0), "settled", private=False)

    monkeypatch.setattr(Evolution, "_choose", choose)
    return asked


@pytest.mark.parametrize(("winner", "name"), [(0, "evolved"), (1, "measured"), (2, "measured, the rest of any class")])
def test_rows_vote_on_drafts_and_only_what_wins_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, winner: int, name: str
) -> None:
    asked = settled(monkeypatch, winner)
    world = World(
        tmp_path, records=12, rows=told(120), rounds=1, bundles=8, epsilon=20.0, measure=named("channel"),
    )  # fmt: skip
    evolved = world.evolve(Method(bundles=8))
    ((sets, ahead),) = asked
    assert len(sets) == 3
    assert ahead[1] > ahead[0] > ahead[2] == 0, "the measured release first, and the classes are believed in doubt"
    assert [[record["urgency"] for record in one[:12]] for one in sets[1:]] == [[r["urgency"] for r in sets[0]]] * 2
    assert evolved.release == name
    facts = [dict(candidate.proposal.facts) for candidate in evolved.candidates]
    wrote = [one for one in facts if one]
    assert bool(wrote) == bool(winner)
    many = math.ceil(DRAFTED / 12) * 12
    assert [len(one) for one in sets] == [12, many, many], "facts of a dozen records would be judged by their luck"
    assert sets[1][:12] != sets[1][12:24], "facts are drawn anew"
    for made, draft in zip(evolved.candidates, sets[winner], strict=False):  # first what would be written first
        assert all(made.record[field] == draft[field] for field in ("channel", "urgency"))
        assert made.proposal.class_told == (winner < 2)
    if winner == 2:
        assert all({"channel", "minutes", "solved"} <= one.keys() for one in facts)
    assert evolved.tables is not None
    assert evolved.tables.apart == (winner == 2), "further records are drawn in the same way"


def test_where_noise_would_decide_nobody_votes_and_the_measured_records_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = settled(monkeypatch, 0)
    world = World(tmp_path, records=8, rows=told(60), rounds=1, bundles=8, epsilon=2.0, measure=named("channel"))
    evolved = world.evolve(Method(bundles=8))
    assert not asked
    assert evolved.release == "measured"


# -- controls ----------------------------------------------------------------------------------------------------------


def test_with_shuffled_labels_the_classes_have_the_same_tables_and_with_true_ones_they_do_not(tmp_path: Path) -> None:
    between = {}
    for shuffled in (False, True):
        world = World(
            tmp_path / str(shuffled), rows=told(300, shuffled=shuffled), rounds=1, epsilon=60.0,
            measure=named("channel", "minutes"),
        )  # fmt: skip
        tables = measured(world)
        between[shuffled] = [apart(field.shares[:1], field.shares[1:]) for field in tables.fields.values()]
    assert max(between[True]) < 0.15
    assert min(between[False]) > 0.6


def test_rows_of_another_world_raise_nothing(tmp_path: Path) -> None:
    foreign = [
        row
        | {"topic": "聖誕快樂 " * 3, "minutes": 1, "waited": None, "score": 10, "solved": False, "day": "2024-02-29"}
        for row in told(50)
    ]
    for number, epsilon in enumerate((3.0, math.inf)):
        world = World(tmp_path / str(number), rows=foreign, rounds=1, bundles=4, epsilon=epsilon, measure=named(*EVERY))
        planned(world)
        evolved = world.evolve(Method(bundles=4))
        assert len(evolved.candidates) == 24
        assert all(SCHEMA.check(candidate.record) == [] for candidate in evolved.candidates)


# -- what leaves the table ---------------------------------------------------------------------------------------------


class Spy:
    """A public encoder that keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode_public(self, given: Sequence[str]) -> NDArray[np.float32]:
        self.seen += given
        return ENCODER.encode(given)


def test_a_public_encoder_never_sees_a_private_text(tmp_path: Path) -> None:
    marked = [row | {"topic": f"ZQX{i} secret"} for i, row in enumerate(told(150))]
    spy = Spy()
    world = planned(World(tmp_path, rows=marked, rounds=1, epsilon=30.0, bundles=4, measure=Measurable(EVERY)))
    world.evolve(Method(bundles=4), public_encoder=spy)
    assert len(spy.seen) > 100
    assert not any("ZQX" in text for text in spy.seen)


def test_private_texts_go_to_a_server_only_where_the_owner_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HashingEncoder, "remote", "https://vectors.example")
    world = planned(World(tmp_path, rounds=1, measure=named("topic")))
    with pytest.raises(PrivacyError, match="would send private text"):
        world.evolve(PLAIN, kernel="global")
    assert "measure-1" not in world.charged
