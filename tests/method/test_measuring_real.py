"""What a plan says about measured tables, held against real tables, where they are beside this checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from selpe.experiments.loaders import recognise
from selpe.experiments.loaders.load import load
from selpe.method.codebooks import BinnedCodes, Codebook, ListedCodes
from selpe.method.measuring import ClassCodes
from selpe.method.posterior import NoiseLaw, class_sizes, posterior
from selpe.privacy.counts import CountTable, tally
from selpe.privacy.ledger import Ledger
from selpe.privacy.measure_plan import Measurable, plan_measurement
from selpe.privacy.noise import CountingNoise
from selpe.privacy.table import PrivateTable
from selpe.schema import BooleanField, CategoryField, Field, TextField

DRAWS = 40


def codebook(field: Field) -> Codebook:
    """A codebook that needs no model: listed values, or even bins."""
    if isinstance(field, CategoryField | BooleanField):
        return ListedCodes(field)
    return BinnedCodes(field, [], 6)  # type: ignore[arg-type]


@pytest.mark.parametrize(("file", "name"), [("loan.csv", "term_months"), ("ktas_triage.csv", "age")])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_cell_of_a_real_table_is_off_by_as_much_as_the_plan_says(
    shared_data: Callable[[str], Path], tmp_path: Path, file: str, name: str, epsilon: float
) -> None:
    loader = recognise(shared_data(file))
    assert loader is not None
    found = load(loader, shared_data(file), private=100)
    schema, rows = found.schema, found.sides["private"]
    plan = plan_measurement(
        Measurable((name,), named=True), units=len(rows), classes=len(schema.labels), epsilon=epsilon,
        adjacency="replace-one",
    )  # fmt: skip
    assert plan is not None
    table = CountTable((ClassCodes(schema), codebook(schema.field(name))))
    truth = tally([table], rows).reshape(table.shape)
    ledger = Ledger.open("real", root=tmp_path)
    ledger.set_budget(1e6)
    private = PrivateTable(rows, schema, account=ledger.account("run"))
    noise = CountingNoise(epsilon)
    seen = [private.count([table], noise=noise, selection=f"look-{i}").tables[table.name] for i in range(DRAWS)]
    width = plan.half_width
    inside = np.mean([np.abs(one - truth) <= width for one in seen])
    assert 0.92 <= inside <= 0.985  # 95 % is stated; noise is on whole numbers, so that an interval holds a little more
    assert np.abs(np.mean(seen, axis=0) - truth).mean() < 2 * plan.scale / np.sqrt(DRAWS)  # unbiased


def test_a_table_of_real_rows_is_told_from_noise_and_a_shuffled_one_is_not(shared_data: Callable[[str], Path]) -> None:
    loader = recognise(shared_data("loan.csv"))
    assert loader is not None
    found = load(loader, shared_data("loan.csv"), private=60)
    schema, chance = found.schema, np.random.default_rng(0)
    assert not isinstance(schema.field("term_months"), TextField)
    table = CountTable((ClassCodes(schema), codebook(schema.field("term_months"))))
    true = tally([table], found.sides["private"]).reshape(table.shape).astype(np.float64)
    flat = np.full(table.shape, 0.5)
    shuffled = np.outer(true.sum(axis=1), true.sum(axis=0)) / true.sum()
    law = NoiseLaw("laplace", 1.0)

    def spread(counts: np.ndarray) -> float:
        """How far the classes are apart, mean over draws."""
        drawn = []
        for _ in range(DRAWS):
            noisy = counts + np.rint(chance.laplace(0.0, law.scale, counts.shape))
            shares = posterior(noisy, flat, class_sizes([noisy], law, int(true.sum())), law).shares
            drawn.append(np.ptp(shares[:, 0]))
        return float(np.mean(drawn))

    assert spread(true) > 0.4
    assert spread(shuffled) < 0.5 * spread(true)
