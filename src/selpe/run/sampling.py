"""Fewer or more records than a run has released. Neither touches the private table, and neither costs ε."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from selpe.config import RunConfig
from selpe.errors import RunError
from selpe.events import Emit, silence
from selpe.method.from_settings import generator_of
from selpe.models.answers import RememberingModel
from selpe.models.base import ChatModel
from selpe.run.large.answers import ChunkAnswers
from selpe.run.large.composition import Composition
from selpe.run.large.further import Further
from selpe.run.large.known import KnownTexts, hashes_of
from selpe.run.outcome import Outcome
from selpe.schema import Record, Value


def fewer(outcome: Outcome, count: int, seed: int) -> list[Record]:
    """A seeded choice of the released records, with the classes in proportion."""
    places: dict[str, list[int]] = {}
    for place, record in enumerate(outcome.records):
        places.setdefault(outcome.schema.label_of(record) or "", []).append(place)
    chance, taken = random.Random(f"fewer:{seed}"), list[int]()
    for label, share in _shares(outcome, count).items():
        taken += chance.sample(places[label], share)
    chance.shuffle(taken)
    return [outcome.records[place] for place in taken]


def composition_of(outcome: Outcome) -> Composition:
    """What further records are written from; raises where there is nothing of the kind."""
    if outcome.composition is not None:
        return outcome.composition
    if outcome.manifest.get("method", "selpe") == "selpe":
        raise RunError(
            "this run has kept nothing to write further records from: an earlier version has made it",
            where=str(outcome.folder),
            hint="fit(table, name=…) with its settings goes over it once more, without spending, and keeps it",
        )
    raise RunError(
        "this method writes no more records than it was asked for",
        hint="ask for as many in `records`, or use method selpe",
    )


@contextmanager
def more(
    outcome: Outcome,
    config: RunConfig,
    model: ChatModel,
    count: int,
    *,
    seed: int,
    given: Mapping[str, Value] | None = None,
    emit: Emit = silence,
) -> Iterator[Sequence[Record]]:
    """Further records, written as those of the release were (docs/scale.md), with what is given in all of them.

    They lie in a file while the block runs: a million of them need not be in memory.
    """
    schema, answers, known = outcome.schema, ChunkAnswers(), KnownTexts()
    known.add(hashes_of(schema.dumps(record) for record in outcome.records))
    label = schema.label_of(given) if given else None
    facts = {name: value for name, value in (given or {}).items() if name != schema.label}
    composition = composition_of(outcome).having(facts)
    wanted = _shares(outcome, count) if label is None else {label: count}
    with TemporaryDirectory() as place:
        generator = generator_of(config, schema, RememberingModel(model, answers))
        writer = Further(schema, generator, answers, composition, Path(place), seed=f"more:{seed}", emit=emit)
        made = writer.write((), wanted, known=known)
        if len(made) == count:
            yield made.write(Path(place) / "more.jsonl")
            return
    raise RunError(
        f"only {len(made)} of {count} further records could be written that are new and valid",
        hint="ask for fewer, or use a larger model",
    )


def _shares(outcome: Outcome, count: int) -> dict[str, int]:
    """`count` records spread over the classes as the release spreads them, largest remainders first."""
    sizes = Counter(outcome.schema.label_of(record) or "" for record in outcome.records)
    exact = {label: count * size / sizes.total() for label, size in sorted(sizes.items())}
    shares = {label: int(part) for label, part in exact.items()}
    for label in sorted(exact, key=lambda one: shares[one] - exact[one])[: count - sum(shares.values())]:
        shares[label] += 1
    return shares
