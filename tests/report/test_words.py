"""Figures as people read them."""

from __future__ import annotations

import math

import pytest

from selpe.report.words import compact, count, epsilon, figure, listing, percent, plural, short


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (1.0, 1, "100 %"), (0.9999, 1, "> 99.9 %"), (0.999, 0, "> 99 %"), (0.0001, 1, "< 0.1 %"), (0.001, 0, "< 1 %"),
        (0.0, 1, "0 %"), (0.125, 1, "12.5 %"), (0.5, 1, "50 %"), (0.126, 0, "13 %"), (None, 1, "–"), (math.nan, 1, "–"),
        (True, 1, "–"), ("0.5", 1, "–"),
    ],
)  # fmt: skip
def test_shares_never_round_to_all_or_nothing(share: object, digits: int, text: str) -> None:
    assert percent(share, digits) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.12345, 3, "0.123"), (-1.5, 1, "−1.5"), (-0.0001, 2, "0.00"), (1234.5, 1, "1,234.5"), (None, 2, "–"),
        (math.inf, 1, "–"),
    ],
)  # fmt: skip
def test_figures_have_fixed_digits_and_no_negative_zero(value: object, digits: int, text: str) -> None:
    assert figure(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"), (0.3512, "0.351"), (1250, "1,250"), (4980.25, "4,980"), (12_345, "12 k"), (3_400_000, "3.4 M"),
        (-12_345, "−12 k"), (999_900, "1.0 M"), (None, "–"),
    ],
)  # fmt: skip
def test_compact_numbers_tell_their_size(value: object, text: str) -> None:
    assert compact(value) == text


def test_counts_and_epsilons() -> None:
    assert count(12345.4) == "12,345"
    assert [epsilon(one) for one in (2, 0.18754, "inf", math.inf, None, math.nan)] == ["2", "0.188", "∞", "∞", "–", "–"]


def test_phrases() -> None:
    assert listing([]) == ""
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert (plural(1, "copy"), plural(2, "copy"), plural(1200, "record")) == ("1 copy", "2 copies", "1,200 records")


def test_long_texts_are_cut_to_one_line() -> None:
    assert short("a\n b", 10) == "a b"
    assert short("x" * 40, 10) == "x" * 9 + "…"
