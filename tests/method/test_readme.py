"""method/README.md: every place that it names is there, once, and no equation or line of the paper is left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import selpe.method

README = Path(selpe.method.__file__).with_name("README.md")
LINES = 18  # of Algorithm 1, with 'end for'
# The labelled equations of the paper.
EQUATIONS = {
    "gaussian_sigma", "exp_mech_top1", "schema", "constrained_decoding", "hybrid_repr", "text_embed", "distance_kernel",
    "quota", "candidate_pool", "batch_center", "batch_utility", "exp_mech_batch", "contrastive", "noise_norm",
    "snr_proxy", "gumbel_topk", "roc_auc",
}  # fmt: skip
WITHOUT_CODE = {"noise_norm", "snr_proxy", "gumbel_topk"}


def rows() -> Iterator[dict[str, str]]:
    """The rows of all tables, by the heads of their columns."""
    head: list[str] = []
    for line in README.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif not line.startswith("|---"):
            yield dict(zip(head, cells, strict=True))


def places() -> list[str]:
    return [name for row in rows() for name in re.findall(r"`([\w.]+)`", row["place"])]


def found(place: str) -> Any:
    """What is at a place; ImportError or AttributeError where nothing is."""
    *parts, last = ["selpe", *place.split(".")]
    for split in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in [*parts[split:], last]:
            thing = getattr(thing, name)
        return thing
    raise ImportError(place)


@pytest.mark.parametrize("place", places())
def test_every_place_is_there_and_is_defined_where_the_readme_says(place: str) -> None:
    thing = found(place)
    module = getattr(thing, "__module__", None)
    assert module is None or f"selpe.{place}".startswith(f"{module}.")


def test_a_place_that_does_not_exist_would_be_noticed() -> None:
    for wrong in ("method.algorithm.Evolution.walk", "method.alchemy.run", "method.quotas.Shape.round"):
        with pytest.raises((ImportError, AttributeError)):
            found(wrong)


def test_every_place_stands_in_one_row_only() -> None:
    assert [name for name, times in Counter(places()).items() if times > 1] == []
    assert len({id(found(place)) for place in places()}) == len(places())


def test_every_equation_of_the_paper_has_a_place_or_is_said_to_have_none() -> None:
    named = [(row["equation"].strip("`"), row["place"]) for row in rows() if row.get("equation")]
    assert {equation for equation, _ in named} == EQUATIONS
    assert {equation for equation, place in named if place.startswith("no code")} == WITHOUT_CODE


def test_every_line_of_algorithm_1_has_a_place() -> None:
    lines = {int(number) for row in rows() if "line" in row for number in row["line"].split(",")}
    assert lines == set(range(1, LINES + 1))
    assert all("`" in row["place"] for row in rows() if "line" in row)
