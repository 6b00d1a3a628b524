"""Choosing a token: a table of cases, and agreement with the distribution that was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from selpe.models.engine.sampling import Echoes, Taste, choose, generator

ROW = np.log(np.array([0.4, 0.3, 0.2, 0.08, 0.02], np.float32))


def bits(allowed: list[int], size: int = 5) -> NDArray[np.uint8]:
    flags = np.zeros(-(-size // 32) * 32, np.uint8)
    flags[allowed] = 1
    return np.packbits(flags, bitorder="little")


@pytest.mark.parametrize(
    ("taste", "draw", "allowed", "token"),
    [
        (Taste(0.0), 0.99, None, 0),
        (Taste(0.0), 0.99, [2, 3], 2),
        (Taste(1.0), 0.0, None, 0),
        (Taste(1.0), 0.39, None, 0),
        (Taste(1.0), 0.41, None, 1),
        (Taste(1.0), 0.69, None, 1),
        (Taste(1.0), 0.71, None, 2),
        (Taste(1.0), 0.999, None, 4),
        (Taste(1.0, min_p=0.45), 0.999, None, 2),  # 0.4, 0.3, 0.2 stay
        (Taste(1.0, min_p=1.0), 0.999, None, 0),
        (Taste(1.0, min_p=0.5), 0.0, [1, 4], 1),  # relative to the best token that is allowed
        (Taste(1.0, min_p=0.5), 0.999, [0, 4], 0),
        (Taste(1.0), 0.999, [0, 4], 4),
        (Taste(1.0, top_p=0.65), 0.999, None, 1),
        (Taste(1.0, top_p=0.75), 0.999, None, 2),
        (Taste(1.0, top_p=0.1), 0.999, None, 0),
        (Taste(1.0), 0.5, [3], 3),
        (Taste(1.0, top_k=2), 0.999, None, 1),
        (Taste(1.0, top_k=2), 0.5, None, 0),  # 0.4 of 0.7
        (Taste(1.0, top_k=2), 0.6, None, 1),
        (Taste(1.0, top_k=2), 0.999, [1, 3, 4], 3),  # of what is allowed
        (Taste(1.0, top_k=9), 0.999, None, 4),
        (Taste(1.0, top_k=3, top_p=0.7), 0.999, None, 1),  # 0.7 of the mass of three
        (Taste(0.0, top_k=3), 0.999, None, 0),
    ],
)
def test_choice(taste: Taste, draw: float, allowed: list[int] | None, token: int) -> None:
    assert choose(ROW, taste, draw, None if allowed is None else bits(allowed)) == token


LETTERS = [b"a", b" bad", b" not", b"1", b"-"]


def said(length: int, *tokens: int) -> Echoes:
    echoes = Echoes(length)
    for token in tokens:
        echoes.note(token)
    return echoes


def test_a_word_that_would_end_a_run_a_second_time_comes_last() -> None:
    row = said(3, 2, 1, 0, 2, 1).held_back(ROW, LETTERS.__getitem__)  # ' not bada not bad', and now 'a' again?
    assert row.argmin() == 0
    assert np.array_equal(row[1:], ROW[1:])
    assert ROW.argmin() != 0  # the model's own row is left alone
    assert choose(row, Taste(1.0), 0.999, bits([0])) == 0  # but a grammar that wants it gets it


@pytest.mark.parametrize("tokens", [(), (2,), (2, 1, 0), (2, 1, 0, 2), (0, 2, 1, 0), (2, 3, 4, 2, 3), (1, 4, 3, 1, 4)])
def test_what_is_new_or_no_word_is_not_held_back(tokens: tuple[int, ...]) -> None:
    assert said(3, *tokens).held_back(ROW, LETTERS.__getitem__) is ROW


def test_ties_go_to_the_lowest_token() -> None:
    assert choose(np.zeros(9, np.float32), Taste(0.0), 0.5) == 0
    assert choose(np.zeros(9, np.float32), Taste(0.0), 0.5, bits([3, 7], 9)) == 3


def test_equal_tokens_are_cut_from_the_end() -> None:
    chosen = {choose(np.zeros(9, np.float32), Taste(1.0, top_k=3), draw) for draw in (0.0, 0.4, 0.999)}
    assert chosen == {0, 1, 2}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_frequencies_follow_the_tempered_distribution(temperature: float) -> None:
    weights = np.exp(ROW / temperature)
    draws = (np.arange(20_000) + 0.5) / 20_000
    counts = np.bincount([choose(ROW, Taste(temperature), draw) for draw in draws], minlength=5)
    assert np.abs(counts / 20_000 - weights / weights.sum()).max() < 1e-3


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.0, 3.0),
    st.sampled_from([(0.0, 1.0), (0.01, 0.9), (0.05, 1.0), (0.5, 1.0), (1.0, 0.1), (0.0, 0.6)]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 300),
)
def test_a_mask_is_always_kept_and_changes_nothing_when_it_forbids_nothing(
    seed: int, temperature: float, limits: tuple[float, float], draw: float, allowed_count: int
) -> None:
    numbers = np.random.Generator(np.random.Philox(key=seed))
    row = (numbers.normal(size=300) * 4).astype(np.float32)
    taste = Taste(temperature, *limits)
    allowed = numbers.choice(300, allowed_count, replace=False).tolist()
    assert choose(row, taste, draw, bits(allowed, 300)) in allowed
    assert choose(row, taste, draw, bits(list(range(300)), 300)) == choose(row, taste, draw)


@given(st.integers(0, 10**6), st.floats(0.01, 0.999), st.integers(0, 4), st.booleans())
def test_top_p_keeps_the_fewest_tokens_that_have_the_mass(seed: int, top_p: float, spread: int, ties: bool) -> None:
    numbers = np.random.Generator(np.random.Philox(key=seed))
    row = (numbers.normal(size=400) * spread).astype(np.float32)
    row = np.round(row) if ties else row
    kept = {choose(row, Taste(1.0, top_p=top_p), draw) for draw in np.linspace(0, 1, 2000, endpoint=False)}
    weights = np.exp(row.astype(np.float64))
    order = np.argsort(-weights, kind="stable")
    needed = int(np.searchsorted(np.cumsum(weights[order]), top_p * weights.sum())) + 1
    assert kept <= {*order[:needed].tolist()}
    likely = weights[order[:needed]] > weights.sum() / 1000  # each of these is met by one of the draws
    assert {*order[:needed][likely].tolist()} <= kept


def test_streams_of_numbers_depend_on_the_seed_alone() -> None:
    assert generator(7).random() == generator(7).random()
    assert len({generator(seed).random() for seed in (0, 1, -1, 2**70, 2**100)}) == 5


@pytest.mark.parametrize(
    "bad", [{"temperature": -0.1}, {"temperature": float("nan")}, {"min_p": 1.5}, {"top_p": 0.0}, {"top_k": -1}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Taste(**bad)
