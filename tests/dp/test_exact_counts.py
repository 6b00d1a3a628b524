"""The exact output distribution of a whole measurement, on every pair of neighbours in a small universe.

The private table itself runs: it takes one row of every unit, asks the coders and adds up. Only the noise is replaced
by its exact law, at the scale that it was asked for (that OpenDP draws from that law is the matter of
privacy/test_counts.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from counting_world import Cut, class_and_third, discrete_laplace, thirds
from private_world import MemoryAccount, line_schema
from selpe.config import Adjacency
from selpe.privacy import noise as noise_module
from selpe.privacy.counts import CountTable
from selpe.privacy.mechanisms import ADJACENCIES
from selpe.privacy.noise import CountingNoise, counting_sensitivity
from selpe.privacy.table import PrivateTable
from selpe.schema import Record

ROUNDING = 1e-9
REACH = np.arange(-25, 30)  # outputs that are tried in each cell: beyond the counts the log-ratio does not change
SCHEMA = line_schema("A", "B", top=9)
ABSTAINS = "none"
ROWS = [*(f"{label}{x}" for label in "AB" for x in (0, 4, 8)), ABSTAINS]
Rows = tuple[str, ...]
TABLES = {1: [class_and_third(9)], 2: [class_and_third(9), thirds(9)]}


def record(row: str) -> Record | None:
    return None if row == ABSTAINS else {"x": int(row[1:]), "label": row[0]}


class Seen:
    """What the noise was asked for: exact counts, and its scale."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts, self.scale = np.zeros(0, dtype=np.int64), 0.0
        patch.setattr(noise_module, "laplace_integers", self.note)
        patch.setattr(noise_module, "gaussian", self.note)

    def note(self, counts: NDArray[Any], scale: float) -> NDArray[Any]:
        self.counts, self.scale = counts.copy(), scale
        return counts


def measured(seen: Seen, rows: Rows, tables: Sequence[CountTable], noise: CountingNoise) -> NDArray[np.int64]:
    private = PrivateTable([record(row) for row in rows], SCHEMA, account=MemoryAccount(remember=False))
    private.count(tables, noise=noise, selection="counts")
    return seen.counts


def all_tables(size: int) -> list[Rows]:
    return [rows for n in range(size + 1) for rows in itertools.combinations_with_replacement(ROWS, n)]


def neighbours(adjacency: Adjacency, size: int) -> set[tuple[Rows, Rows]]:
    """Every pair of tables of at most this size that differ in one row, whatever its class before and after."""
    pairs = set()
    for rows in all_tables(size):
        for i in range(len(rows)):
            rest = (*rows[:i], *rows[i + 1 :])
            others: Iterable[tuple[str, ...]] = [()] if adjacency == "add-remove" else [(row,) for row in ROWS]
            pairs |= {(rows, tuple(sorted((*rest, *other), key=ROWS.index))) for other in others}
    return pairs


@cache
def log_law(count: int, scale: float) -> NDArray[np.float64]:
    return np.log(discrete_laplace(REACH - count, scale))


def log_ratio(one: NDArray[np.int64], other: NDArray[np.int64], scale: float) -> float:
    """The largest over all outputs. Cells get their noise independently, so that it is a sum over cells."""
    return sum(
        float((log_law(a, scale) - log_law(b, scale)).max())
        for a, b in zip(one.tolist(), other.tolist(), strict=True)
        if a != b
    )


def worst(exact: Mapping[Rows, NDArray[np.int64]], pairs: Iterable[tuple[Rows, Rows]], scale: float) -> float:
    return max(max(log_ratio(exact[a], exact[b], scale), log_ratio(exact[b], exact[a], scale)) for a, b in pairs)


@pytest.mark.parametrize("number", TABLES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_pair_of_neighbours_exceeds_the_claim_and_some_meet_it(
    monkeypatch: pytest.MonkeyPatch, adjacency: Adjacency, number: int
) -> None:
    seen, pairs = Seen(monkeypatch), neighbours(adjacency, 3)
    assert any(ABSTAINS in a and ABSTAINS not in b for a, b in pairs)
    for epsilon in (0.5, 2.0):
        noise = CountingNoise(epsilon, adjacency)
        exact = {rows: measured(seen, rows, TABLES[number], noise) for rows in all_tables(3)}
        found = worst(exact, pairs, seen.scale)
        assert 0.99 * epsilon <= found <= epsilon + ROUNDING
        assert worst(exact, pairs, seen.scale / 2) > 1.9 * epsilon, "half the noise would be noticed"


def test_a_row_that_changes_its_class_and_one_that_abstains_cost_what_they_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, noise = Seen(monkeypatch), CountingNoise(1.0)
    before, class_changed, gone = (
        measured(seen, rows, TABLES[1], noise) for rows in (("A0", "A4"), ("A4", "B0"), ("A4", ABSTAINS))
    )
    assert log_ratio(before, class_changed, seen.scale) == pytest.approx(1.0)
    assert log_ratio(before, gone, seen.scale) == pytest.approx(0.5)
    unmoved = measured(seen, ("A0", "A4", ABSTAINS), TABLES[1], noise)
    assert unmoved.tolist() == before.tolist(), "who abstains adds nothing and moves nobody"


def test_the_same_test_notices_noise_for_one_table_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    measured(seen, ("A0",), TABLES[1], CountingNoise(1.0))
    scale = seen.scale
    exact = {rows: measured(seen, rows, TABLES[2], CountingNoise(1.0)) for rows in all_tables(2)}
    assert worst(exact, neighbours("replace-one", 2), scale) == pytest.approx(2.0)


def test_the_same_test_notices_a_coder_that_looks_at_another_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a code may depend on its own row alone: here the first row decides for the second."""
    seen = Seen(monkeypatch)
    first: list[int] = []

    def follow(row: Record) -> int:
        first.append(int(row["x"]))  # type: ignore[arg-type]
        return int(first[0] > 4)

    counts = []
    for rows in (("A0", "A4", "A4"), ("A8", "A4", "A4")):
        first.clear()
        counts.append(measured(seen, rows, [CountTable((Cut("c", 2, follow),))], CountingNoise(1.0)))
    assert log_ratio(counts[0], counts[1], seen.scale) == pytest.approx(3.0)


@pytest.mark.parametrize("number", TABLES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_neighbours_move_by_the_l2_bound_that_gaussian_noise_is_sized_by(
    monkeypatch: pytest.MonkeyPatch, adjacency: Adjacency, number: int
) -> None:
    seen, noise = Seen(monkeypatch), CountingNoise(1.0, adjacency)
    exact = {rows: measured(seen, rows, TABLES[number], noise) for rows in all_tables(3)}
    moved = max(float(np.linalg.norm(exact[a] - exact[b])) for a, b in neighbours(adjacency, 3))
    bound = counting_sensitivity(number).under(adjacency)
    assert (1 - 1e-12) * bound <= moved <= bound


def test_gaussian_noise_is_added_at_the_scale_that_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, noise = Seen(monkeypatch), CountingNoise(1.0, delta=0.1)
    measured(seen, ("A0", "B4"), TABLES[2], noise)
    assert (noise_module.count_noise_of(noise, 2).law, seen.scale) == (
        "gaussian",
        noise_module.count_noise_of(noise, 2).scale,
    )
    assert seen.counts.tolist() == [1, 0, 0, 0, 1, 0, 1, 1, 0]


# -- people ------------------------------------------------------------------------------------------------------------


def person_law(
    monkeypatch: pytest.MonkeyPatch, people: Sequence[Sequence[str]], *, unit: bool = True
) -> NDArray[np.float64]:
    """The joint law of two cells, averaged over which row of each person takes part."""
    halves = CountTable((Cut("half", 2, lambda row: int(int(row["x"]) > 4)),))  # type: ignore[arg-type]
    rows = [(row, str(who)) for who, mine in enumerate(people) for row in mine]
    private = PrivateTable(
        [record(row) for row, _ in rows],
        SCHEMA,
        account=MemoryAccount(remember=False),
        unit="who" if unit else None,
        whose=[who for _, who in rows] if unit else None,
    )
    takes = [range(len(mine)) if unit and len(mine) > 1 else range(1) for mine in people]
    laws = []
    for take in itertools.product(*takes):
        with monkeypatch.context() as patch:
            seen = Seen(patch)
            picks = iter([pick for pick, mine in zip(take, people, strict=True) if unit and len(mine) > 1])
            patch.setattr(CountingNoise, "below", lambda *_, picks=picks: next(picks))
            private.count([halves], noise=CountingNoise(1.0), selection="counts")
            one, two = (np.exp(log_law(int(count), seen.scale)) for count in seen.counts)
            laws.append(np.outer(one, two))
    return np.asarray(np.mean(laws, axis=0))


def test_one_person_with_several_rows_is_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a person are replaced together, some of which may abstain."""
    spots = ("A0", "B8", ABSTAINS)
    persons = [(spot,) for spot in spots] + list(itertools.product(spots, repeat=2))
    other = ("A0", "B8")
    laws = {person: np.log(person_law(monkeypatch, [person, other])) for person in persons}
    ratios = [float(np.abs(laws[a] - laws[b]).max()) for a, b in itertools.combinations(persons, 2)]
    assert 0.99 <= max(ratios) <= 1.0 + ROUNDING


def test_rows_taken_one_by_one_do_not_protect_a_person_with_two(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (
        np.log(person_law(monkeypatch, [(row, row), ("A0",)], unit=False)) for row in ("A0", "B8")
    )  # fmt: skip
    assert float(np.abs(ours - theirs).max()) > 1.9
