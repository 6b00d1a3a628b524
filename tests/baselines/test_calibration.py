"""The noise of each baseline's plan against the figures of its specification."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selpe.baselines.wasp import published_sigma
from selpe.config import RunConfig
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.run.methods import recipe_of
from small_world import SCHEMA


def plan(config: RunConfig) -> GaussianPlan:
    made = recipe_of(config.method).plan(config, SCHEMA, 100)
    assert isinstance(made, GaussianPlan)
    return made


@pytest.mark.parametrize(
    ("rounds", "epsilon", "sigma"),
    [(5, 1, 8.342), (5, 2, 4.458), (5, 4, 2.418), (10, 1, 11.797), (10, 2, 6.305), (10, 4, 3.419)],
)
def test_augpe_adds_the_noise_of_its_figures(
    settings: Callable[..., RunConfig], rounds: int, epsilon: float, sigma: float
) -> None:
    made = plan(settings("augpe", epsilon=epsilon, adjacency="add-remove", augpe={"rounds": rounds}))
    assert [look.name for look in made.looks] == [f"round-{t}" for t in range(1, rounds + 1)]
    assert made.noise("round-1").sigma == pytest.approx(sigma, abs=6e-4)
    assert made.delta == 1e-5


@pytest.mark.parametrize(("epsilon", "sigma"), [(1, 12.18), (2, 6.51), (4, 3.53)])
def test_wasp_adds_the_tight_noise_of_its_figures(
    settings: Callable[..., RunConfig], epsilon: float, sigma: float
) -> None:
    made = plan(settings("wasp", epsilon=epsilon, adjacency="add-remove", wasp={"rounds": 4, "votes": 8}))
    assert made.noise("round-4").sigma == pytest.approx(sigma, abs=6e-3)


def test_the_published_noise_of_wasp_at_epsilon_one_is_really_epsilon_028(settings: Callable[..., RunConfig]) -> None:
    wasp = {"rounds": 4, "votes": 8, "calibration": "published"}
    made = plan(settings("wasp", epsilon=1.0, adjacency="add-remove", wasp=wasp))
    assert made.noise("round-1").sigma == pytest.approx(published_sigma(1.0, 1e-5, 4))
    assert made.noise("round-1").sigma == pytest.approx(38.76, abs=0.01)
    assert made.guarantee.add_remove == pytest.approx(0.28, abs=0.005)
    assert "0.28" in made.verdict


@pytest.mark.parametrize("method", ["augpe", "wasp"])
def test_replace_one_needs_the_square_root_of_two_more_noise(settings: Callable[..., RunConfig], method: str) -> None:
    removed = plan(settings(method, adjacency="add-remove")).noise("round-1").sigma
    replaced = plan(settings(method, adjacency="replace-one"))
    assert replaced.noise("round-1").sigma == pytest.approx(2**0.5 * removed)
    assert replaced.guarantee.replace_one == pytest.approx(2.0, rel=1e-5)
    assert replaced.guarantee.add_remove < 1.5


def test_delta_can_be_chosen_and_zero_is_refused(settings: Callable[..., RunConfig]) -> None:
    from selpe.errors import ConfigError

    small, large = (plan(settings("augpe", delta=delta)).noise("round-1").sigma for delta in (1e-6, 1e-3))
    assert small > large
    with pytest.raises(ConfigError, match="delta above 0"):
        settings("wasp", delta=0.0)
    assert settings("selpe").delta == 0.0
