"""Attacks on a synthetic table: does it say more about the private rows than about real rows it never saw?

Everything here looks at private rows without noise. Results are for the data's owner: they belong to a run's
`internal/` folder and must not be released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import vstack

from selpe.evaluation.attack.alarms import THRESHOLDS, alarms, notes, tests
from selpe.evaluation.attack.copies import Copies, find_copies
from selpe.evaluation.attack.lineup import SEED, Lineup, LineupResult, summed
from selpe.evaluation.attack.membership import Membership, area, kernel_distances, summarised, true_positives
from selpe.evaluation.attack.records import (
    DCR,
    NRS,
    closest,
    copies_of,
    distance_to_closest_record,
    nearest_record_similarity,
    scan,
    vectorised,
)
from selpe.evaluation.embedding import require_local
from selpe.evaluation.plain import plain
from selpe.models.encoders.base import Encoder
from selpe.schema import Record, Schema

__all__ = ["Attack", "attack"]

Progress: TypeAlias = Callable[[str, float], None]  # what is under way, and the share of the whole that is done

MOST = 20_000  # synthetic records whose distances are taken; a larger table is represented by a fixed draw


@dataclass(frozen=True, slots=True)
class Attack:
    """What attacks found. Not for release: the figures are exact functions of private rows.

    As plain data (`as_dict`), shares and rates lie in [0, 1], and None stands where there is nothing to compare with:

    - `counts`: {synthetic, private, holdout, compared}: held-out rows given, and drawn to match the private ones
    - `nrs`: {value, duplicates, holdout_records, to_holdout, p_value}: the paper's NRS; the same figure for held-out
      records in the synthetic table's place; and for the synthetic table against held-out records
    - `dcr`: {value, median, low, holdout_records, to_holdout, private_records: {value, median, low},
      closer_than_private, closer_to_private, expected, p_value, edges, synthetic, holdout}; `value` is the mean as in
      the paper, `low` the 5th percentile; the last three are histograms of distances to the closest private record
    - `membership`: {text, kernel}, each None or {tpr, low, high, fpr, chance, p_value, auc, auc_p_value, members,
      non_members, false_positives, note}: true positive rate at a false positive rate of at most 1 %, its 95 %
      Clopper–Pearson interval, and what guessing reaches
    - `copies`: {words, private_rows, private_touched, holdout_rows, holdout_touched, synthetic_touched, longest,
      long_words, long_private, long_holdout, p_value, found: [{synthetic, private, words}]}: row positions, no text
    - `tests`: {count, smallest, by_chance}: tests against held-out rows, their smallest p, and in which share of
      evaluations at most a clean table has one as small; without held-out rows {count: 0}
    - `alarms`: sentences, empty where nothing is wrong; `notes`: what a reader must know; `thresholds`: name → number
    """

    counts: Mapping[str, int]
    nrs: NRS
    dcr: DCR
    membership: Mapping[str, Membership | None]
    copies: Copies
    thresholds: Mapping[str, float]
    tests: Mapping[str, float]
    alarms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The findings as plain data."""
        content: dict[str, Any] = plain(self)
        return content


def attack(
    schema: Schema,
    synthetic: Sequence[Record],
    private: Sequence[Record],
    holdout: Sequence[Record] | None,
    *,
    encoder: Encoder,
    allow_private_text_to: str | Collection[str] = (),
    progress: Progress | None = None,
) -> Attack:
    """What attacks on the synthetic table find out about the private rows. For `internal/` only.

    `holdout` are real rows of the same kind that were not used: without them there is nothing to compare with. Raises
    PrivacyError where the encoder would send rows to a host that is not allowed.
    """
    require_local(encoder, allow_private_text_to)
    tell = progress or (lambda what, share: None)
    lineup = Lineup.of(schema, private, holdout or ())
    tell("passages", 0.0)
    passages, touched = find_copies(schema, synthetic, lineup)
    searched = _drawn(synthetic)
    texts = vectorised(schema, searched, lineup.private, lineup.holdout)
    found = scan(
        texts[0], vstack(texts[1:]).tocsr(), len(private), lambda share: tell("distances of texts", 0.1 + 0.4 * share)
    )
    figures = {
        "nrs": summed(copies_of(schema, synthetic, lineup)),
        "dcr": summed(found.closest),
        "copies": summed(touched.astype(np.float64)),
    }
    if searched and lineup.holdout:
        distances = {"text": found.to_synthetic}
        distances["kernel"] = kernel_distances(
            schema, searched, lineup.rows, encoder, lambda share: tell("kernel distances", 0.5 + 0.4 * share)
        )
        for name, each in distances.items():
            figures[f"{name} tpr"] = true_positives(each, len(lineup.holdout))
            figures[f"{name} auc"] = area(each, len(private))
    tell("what chance would do", 0.9)
    verdicts = lineup.judge(figures) if searched else {}
    nrs = nearest_record_similarity(schema, synthetic, lineup, verdicts.get("nrs"))
    dcr = distance_to_closest_record(
        found, closest(texts[2], texts[1]), closest(texts[1], texts[1], same=True), verdicts.get("dcr")
    )
    if "copies" in verdicts:
        passages = replace(passages, p_value=verdicts["copies"].p_value)
    members = {name: _membership(name, lineup, verdicts) for name in ("text", "kernel")}
    tell("done", 1.0)
    return Attack(
        {
            "synthetic": len(synthetic),
            "private": len(private),
            "holdout": len(holdout or ()),
            "compared": len(lineup.holdout),
        },
        nrs,
        dcr,
        members,
        passages,
        THRESHOLDS,
        tests(nrs, dcr, members, passages),
        tuple(alarms(nrs, dcr, members, passages, lineup)),
        tuple(notes(lineup, passages, len(searched) if len(searched) < len(synthetic) else None)),
    )


def _membership(name: str, lineup: Lineup, verdicts: Mapping[str, LineupResult]) -> Membership | None:
    if f"{name} tpr" not in verdicts:
        return None
    return summarised(lineup, verdicts[f"{name} tpr"], verdicts[f"{name} auc"])


def _drawn(synthetic: Sequence[Record]) -> Sequence[Record]:
    if len(synthetic) <= MOST:
        return synthetic
    places = np.random.default_rng(SEED).choice(len(synthetic), MOST, replace=False)
    return [synthetic[place] for place in np.sort(places)]
