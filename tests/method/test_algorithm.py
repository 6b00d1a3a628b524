from __future__ import annotations

import math
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evolving_world import ENCODER, World, texts
from selpe.errors import StoppedError
from selpe.events import Included, PoolReady, Selected, Started
from selpe.method.algorithm import Evolution, Evolved, Method
from selpe.method.generation import Generator
from selpe.method.guides import builtin_guides
from selpe.method.kernel import MultiChannelKernel
from selpe.method.selection import contrasts, select_top, spread
from selpe.models.fake import FakeModel, Faults
from selpe.privacy.measure_plan import Measurable
from selpe.privacy.table import PrivateTable
from small_world import SCHEMA, UNLABELLED, drawn


def test_the_synthetic_table_has_exactly_the_asked_classes_and_all_records_are_valid_and_distinct(
    tmp_path: Path,
) -> None:
    evolved = World(tmp_path, records=25, quotas={"low": 3, "high": 2}).evolve()
    assert Counter(SCHEMA.label_of(c.record) for c in evolved.candidates) == {"low": 15, "high": 10}
    assert all(SCHEMA.check(candidate.record) == [] for candidate in evolved.candidates)
    assert len(set(texts(evolved))) == 25


def test_class_sizes_are_exact_even_when_many_candidates_are_given_up(tmp_path: Path) -> None:
    model = FakeModel(faults=Faults(invalid_json=0.5, truncated=0.2))
    evolved = World(tmp_path, model=model).evolve()
    assert Counter(SCHEMA.label_of(c.record) for c in evolved.candidates) == {"low": 12, "high": 12}


def test_rounds_grow_and_every_round_is_one_charge(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.evolve()
    found = [event.found for event in world.events if isinstance(event, PoolReady)]
    assert found == [12, 24, 36]  # K = 3 times the quotas 4, 8 and 12 over both classes
    assert [event.total for event in world.events if isinstance(event, Included)] == [4, 12, 24]
    selected = [event for event in world.events if isinstance(event, Selected)]
    assert [event.selection for event in selected] == ["round-1", "round-2", "round-3"]
    assert math.isclose(sum(event.epsilon_replace_one for event in selected), 4.0)
    assert len([entry for entry in world.ledger.entries() if entry.kind == "charge"]) == 3
    started = next(event for event in world.events if isinstance(event, Started))
    assert (started.rounds, started.records, started.candidates) == (3, 24, 72)


def test_the_same_seed_gives_the_same_table_and_another_seed_another(tmp_path: Path) -> None:
    one, two, three = (World(tmp_path / str(i)).evolve(seed=seed) for i, seed in enumerate((1, 1, 2)))
    assert texts(one) == texts(two) != texts(three)


def test_a_second_run_of_the_same_name_replays_the_stored_choices_and_pays_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.evolve(test_seed=None)
    charged = len(world.ledger.entries())
    again = world.evolve(test_seed=None)
    assert texts(first) == texts(again)
    assert all(selection.replayed for selection in again.drawn)
    assert len(world.ledger.entries()) == charged


def test_winners_and_contrasts_of_a_round_are_the_exemplars_of_the_next(tmp_path: Path) -> None:
    evolved = World(tmp_path).evolve()
    late = [c.proposal for c in evolved.candidates if c.proposal.positives]
    assert late
    assert all(len(p.positives) <= 2 and len(p.negatives) <= 2 for p in late)
    assert all(p.positives != p.negatives for p in late)
    for proposal in late:
        assert all(SCHEMA.label_of(record) == proposal.label for record in proposal.positives + proposal.negatives)


def test_the_first_round_and_a_share_of_every_later_one_has_no_exemplars(tmp_path: Path) -> None:
    world = World(tmp_path)
    shown: list[bool] = []
    generate = Generator.generate

    def spy(self: Generator, proposals: Any, **more: Any) -> Any:
        shown.extend(bool(proposal.positives) for proposal in proposals)
        return generate(self, proposals, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generator, "generate", spy)
        world.evolve(Method(explore=0.5))
    assert shown[:12] == [False] * 12
    assert sum(shown[12:36]) == 12
    assert sum(shown[36:72]) == 18


def test_mixed_guides_take_turns_in_every_round_and_are_not_voted_on(tmp_path: Path) -> None:
    world = World(tmp_path, bundles=8)
    evolved = world.evolve(Method(bundles=8, mixed=True), guides=3)
    chosen = [event.selection for event in world.events if isinstance(event, Selected)]
    assert chosen == ["round-1", "round-2", "round-3", "bundle"]
    pools = [event.found for event in world.events if isinstance(event, PoolReady)]
    assert pools == [12, 24, 36]  # as many as with one guide: no samples to judge guides by
    turns = Counter(c.proposal.guide.name for c in evolved.candidates)
    assert len(turns) == 3


def test_guides_and_bundles_are_one_choice_each_and_can_be_switched_off(tmp_path: Path) -> None:
    world = World(tmp_path, guides=3, bundles=8)
    evolved = world.evolve(Method(bundles=8), guides=3)
    names = [event.selection for event in world.events if isinstance(event, Selected)]
    assert names == ["guide", "round-1", "round-2", "round-3", "bundle"]
    spent = sum(event.epsilon_replace_one for event in world.events if isinstance(event, Selected))
    assert math.isclose(spent, 4.0)
    assert len(evolved.candidates) == 24
    assert Counter(SCHEMA.label_of(c.record) for c in evolved.candidates) == {"low": 12, "high": 12}


def test_a_schema_without_label_evolves_and_votes_by_coverage(tmp_path: Path) -> None:
    world = World(tmp_path, schema=UNLABELLED, guides=2, bundles=4)
    evolved = world.evolve(Method(bundles=4), guides=2)
    assert len(evolved.candidates) == 24
    assert next(event.selection for event in world.events if isinstance(event, Selected)) == "guide"


@pytest.mark.parametrize("epsilon", [0.0, math.inf])
def test_the_controls_run_and_are_stamped(tmp_path: Path, epsilon: float) -> None:
    world = World(tmp_path, epsilon=epsilon, guides=2, bundles=4)
    evolved = world.evolve(Method(bundles=4), guides=2, test_seed=None)
    assert len(evolved.candidates) == 24
    assert all(selection.private == (epsilon == 0) for selection in evolved.drawn)


def test_every_ablation_switch_changes_something_and_only_its_own_part(tmp_path: Path) -> None:
    base = World(tmp_path / "base").evolve(Method(inclusion="centre"))

    def first_pool(evolved: Evolved) -> list[str]:
        return [SCHEMA.dumps(c.record) for c in evolved.candidates if not c.proposal.positives]

    plain = World(tmp_path / "contrast").evolve(Method(inclusion="centre", contrast=False))
    assert all(not c.proposal.negatives for c in plain.candidates)
    assert any(c.proposal.positives for c in plain.candidates)
    assert texts(plain) != texts(base)

    one = World(tmp_path / "stages").evolve(Method(inclusion="centre"), stages=1)
    assert all(not c.context for c in one.candidates)
    assert all(c.context for c in base.candidates)

    flat = World(tmp_path / "quota", shape="uniform")
    flat.evolve(Method(inclusion="centre"))
    assert [event.total for event in flat.events if isinstance(event, Included)] == [8, 16, 24]

    whole = World(tmp_path / "kernel").evolve(Method(inclusion="centre"), kernel="global")
    assert set(first_pool(whole)) != set(first_pool(base))  # the same pool, ranked by another kernel

    spread_out = World(tmp_path / "diverse").evolve(Method(inclusion="diverse"))
    assert texts(spread_out) != texts(base)


def test_inclusion_by_the_centre_takes_the_nearest(tmp_path: Path) -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    pool = kernel.over(kernel.represent(drawn(30)))
    order = np.argsort(pool.prototype(kernel.represent(drawn(2, offset=99))), kind="stable")
    assert select_top(pool, order, 5, "centre") == order[:5].tolist()
    taken = select_top(pool, order, 5, "diverse")
    assert len(set(taken)) == 5
    assert set(taken) <= set(order[:20].tolist())


def test_a_contrast_is_the_candidate_farthest_from_its_winner(tmp_path: Path) -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    pool = kernel.over(kernel.represent(drawn(30)))
    among = pool.among(range(30))
    three, seventeen = contrasts(pool, [3, 17])
    assert among[3, three] == among[3].max() > 0
    assert among[17, seventeen] == among[17].max() > 0


def test_farthest_first_spreads_wider_than_the_nearest(tmp_path: Path) -> None:
    kernel = MultiChannelKernel(SCHEMA, ENCODER)
    pool = kernel.over(kernel.represent(drawn(60)))
    near = np.argsort(pool.prototype(kernel.represent(drawn(1, offset=5))))
    among = pool.among(range(60))

    def closest_pair(chosen: list[int]) -> float:
        block = among[np.ix_(chosen, chosen)]
        return float(block[~np.eye(len(chosen), dtype=bool)].min())

    assert closest_pair(spread(pool, near, 8)) > closest_pair(near[:8].tolist())
    assert len(set(spread(pool, near, 60))) == 60


def test_events_carry_nothing_of_a_private_row(tmp_path: Path) -> None:
    world = World(tmp_path)
    private = PrivateTable(
        [record | {"topic": "MARKER IN EVERY ROW"} for record in drawn(40, offset=9000)],
        SCHEMA,
        account=world.ledger.account("marked"),
    )
    Evolution(
        private, SCHEMA, Generator(world.model, SCHEMA), MultiChannelKernel(SCHEMA, ENCODER), ENCODER, world.plan,
        builtin_guides(SCHEMA, "fake", world.model.capabilities())[:1], emit=world.events.append,
    ).run()  # fmt: skip
    assert "MARKER" not in repr(world.events)
    assert "MARKER" not in repr([event.as_dict() for event in world.events])
    assert all("MARKER" not in path.read_text() for path in tmp_path.rglob("*.jsonl"))


# -- measured tables: what they are is tested in test_measuring.py -----------------------------------------------------


@pytest.mark.usefixtures("few_rows_vote")
def test_measured_tables_come_after_the_last_round_and_before_the_last_vote(tmp_path: Path) -> None:
    world = World(tmp_path, rounds=2, bundles=2, measure=Measurable(("channel", "minutes"), named=True))
    evolved = world.evolve(Method(bundles=2), guides=3)
    assert [event.selection for event in world.selected] == ["round-1", "round-2", "measure-1", "bundle"]
    assert math.isclose(sum(event.epsilon_replace_one for event in world.selected), 4.0)
    assert Counter(SCHEMA.label_of(c.record) for c in evolved.candidates) == {"low": 12, "high": 12}
    assert len(set(texts(evolved))) == 24
    assert len({c.proposal.guide.name for c in evolved.candidates if not c.proposal.facts}) > 1  # guides take turns


def test_a_record_whose_facts_the_model_cannot_write_stays_as_it_was(tmp_path: Path) -> None:
    class Stubborn(FakeModel):
        """Writes nothing of use where more than the class is fixed."""

        def _text(self, request: Any, prompt: str, chance: Any, fault: str | None) -> Any:
            fixed = [one for one in (request.json_schema or {}).get("properties", {}).values() if "const" in one]
            return super()._text(request, prompt, chance, "invalid_json" if len(fixed) > 1 else fault)

    rows = [row | {"channel": "visit"} for row in drawn(60, offset=9000)]
    plans: dict[str, Any] = {"rounds": 1, "epsilon": 40.0, "measure": Measurable(("channel",), named=True)}
    stubborn, able = (
        World(tmp_path / str(i), model=model, rows=rows, **plans).evolve(Method(bundles=0))
        for i, model in enumerate((Stubborn(), FakeModel()))
    )
    without = World(tmp_path / "without", rows=rows, rounds=1, epsilon=0.0).evolve(Method(bundles=0))
    assert len(stubborn.candidates) == len(without.candidates) == 24
    assert not any(c.proposal.facts for c in stubborn.candidates)
    assert sum(c.record["channel"] == "visit" for c in able.candidates) > 20


def test_stopping_while_phrases_are_written_pays_for_nothing(tmp_path: Path) -> None:
    cancel = threading.Event()

    class Stopping(FakeModel):
        def _answer(self, request: Any) -> Any:
            if request.stage == "phrases":
                cancel.set()
            return super()._answer(request)

    world = World(tmp_path, model=Stopping(), rounds=1, measure=Measurable(("topic",), named=True))
    generator = Generator(world.model, SCHEMA, cancel=cancel)
    with pytest.raises(StoppedError):
        world.evolve(Method(bundles=0), generator=generator)
    assert world.charged == {}
