"""Alarms: what the attacks found, in plain words, and from which point on it is said.

With held-out rows, a figure raises an alarm where it is worse for private rows than for held-out ones, and random
membership would make it so in fewer than one of a thousand cases (`SIGNIFICANCE`). There are seven such tests, so a
clean table raises a false alarm in fewer than one of a hundred evaluations. One passage of `LONG` words that a single
private row has, and no other real row, is an alarm by itself, unless the table has such passages of held-out rows too.

Without held-out rows there is nothing to compare with, and only what no common record explains is an alarm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from selpe.evaluation.attack.copies import LONG, WORDS, Copies
from selpe.evaluation.attack.lineup import Lineup
from selpe.evaluation.attack.membership import FPR, Membership
from selpe.evaluation.attack.records import DCR, NRS

SIGNIFICANCE = 0.001
COPIED_ALONE = 0.1  # the share of exact copies that is too many without a comparison
CLOSE_ALONE = 0.5  # the share of synthetic records closer to private ones than 95 % of those are to each other
PASSAGES_ALONE = 0.1  # the share of private rows with a passage in the table

THRESHOLDS = {
    "significance": SIGNIFICANCE,
    "false_positive_rate": FPR,
    "passage_words": WORDS,
    "long_passage_words": LONG,
    "copied_alone": COPIED_ALONE,
    "close_alone": CLOSE_ALONE,
    "passages_alone": PASSAGES_ALONE,
}


def alarms(nrs: NRS, dcr: DCR, members: Mapping[str, Membership | None], copies: Copies, lineup: Lineup) -> list[str]:
    """What is wrong, in plain words; empty where nothing is."""
    found = _beside(nrs, dcr, copies) if lineup.holdout else _alone(nrs, dcr, copies)
    ways = {"text": "by their words", "kernel": "by the kernel that selects"}
    for name, figures in members.items():
        if figures is not None and min(figures.p_value, figures.auc_p_value) < SIGNIFICANCE:
            found.append(
                f"Private records can be told from held-out ones by their distance to the table ({ways[name]}): "
                f"{_percent(figures.tpr)} are recognised at a false positive rate of 1 %, where guessing reaches "
                f"{_percent(figures.chance)}; area under the curve {figures.auc:.2f}."
            )
    if copies.long_private and not copies.long_holdout:
        found.append(
            f"Passages of {LONG} words or more that a single private record has stand word for word in the table. "
            f"Private records concerned: {copies.long_private}; words of the longest passage: {copies.longest}."
        )
    return found


def tests(nrs: NRS, dcr: DCR, members: Mapping[str, Membership | None], copies: Copies) -> dict[str, float]:
    """How many tests were made, their smallest p, and how often at most some test of a clean table has one as small.

    Of many tests one is small by chance: the last figure is the smallest p times the number of tests (Bonferroni).
    """
    pairs = [(one.p_value, one.auc_p_value) for one in members.values() if one is not None]
    known = [p for p in (nrs.p_value, dcr.p_value, copies.p_value, *chain(*pairs)) if not math.isnan(p)]
    if not known:
        return {"count": 0}
    return {"count": len(known), "smallest": min(known), "by_chance": min(1.0, len(known) * min(known))}


def _beside(nrs: NRS, dcr: DCR, copies: Copies) -> list[str]:
    found = []
    if nrs.p_value < SIGNIFICANCE:
        found.append(
            f"{_percent(1 - nrs.value)} of the synthetic records are exact copies of private records; "
            f"{_percent(1 - nrs.to_holdout)} are copies of held-out ones."
        )
    if dcr.p_value < SIGNIFICANCE:
        found.append(
            f"Synthetic records lie too close to private ones: for {_percent(dcr.closer_to_private)} of them the "
            f"closest real record is private, where {_percent(dcr.expected)} would be chance."
        )
    if copies.p_value < SIGNIFICANCE:
        found.append(
            f"Passages of {WORDS} words or more are copied: {copies.private_touched} of {copies.private_rows} private "
            f"records with so long a text have one in the table, and {copies.holdout_touched} of "
            f"{copies.holdout_rows} held-out ones."
        )
    return found


def _alone(nrs: NRS, dcr: DCR, copies: Copies) -> list[str]:
    found = []
    if 1 - nrs.value > COPIED_ALONE:
        found.append(f"{_percent(1 - nrs.value)} of the synthetic records are exact copies of private records.")
    if dcr.closer_than_private > CLOSE_ALONE:
        found.append(
            f"Synthetic records lie too close to private ones: {_percent(dcr.closer_than_private)} are closer to one "
            "than 95 % of private records are to each other."
        )
    if copies.private_touched > PASSAGES_ALONE * max(1, copies.private_rows):
        found.append(
            f"Passages of {WORDS} words or more of {copies.private_touched} private records stand in the table."
        )
    return found


def notes(lineup: Lineup, copies: Copies, sampled: int | None) -> list[str]:
    """What a reader of the figures must know."""
    found = ["These figures look at private rows without noise. They are for the data's owner, and not for release."]
    if not lineup.holdout:
        found.append(
            "No held-out rows of the private rows' classes were given: there is nothing to compare with, and no test "
            "of membership."
        )
    elif lineup.short:
        found.append(
            f"In {lineup.short} of the classes fewer rows are held out than private: comparisons rest on fewer rows."
        )
    if lineup.holdout:
        found.append(
            "Held-out rows must differ from private ones by chance alone. Rows of one person, or the same text, on "
            "both sides hide a leak; rows of another time or place look like one."
        )
    if copies.private_rows < len(lineup.private):
        found.append(
            f"{len(lineup.private) - copies.private_rows} of {len(lineup.private)} private rows have no text of "
            f"{WORDS} words: the search for passages says nothing about them."
        )
    if sampled is not None:
        found.append(f"Distances look at {sampled:,} synthetic records, drawn at random.")
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
