"""Fidelity: does the synthetic table look like real records, field by field, pair by pair, and as a whole?

`fidelity` compares with real rows and adds no noise. What it returns is for the data's owner: it belongs to a run's
`internal/` folder and must not be released. `synthetic_only` sees no real row, and may be published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.echoes import echoes
from selpe.evaluation.embedding import embed, require_local
from selpe.evaluation.fidelity.associations import Associations, compare_pairs
from selpe.evaluation.fidelity.diversity import Diversity, alarms, measure_diversity
from selpe.evaluation.fidelity.marginals import Marginal, compare_fields, mean
from selpe.evaluation.fidelity.neighbourhoods import SEED, Map, Neighbourhoods, draw_map, drawn, precision_and_recall
from selpe.evaluation.fidelity.structure import Nodes, Structure, attributes, dependency, pairs, summed
from selpe.evaluation.fidelity.text import FieldTexts, compare_texts
from selpe.evaluation.plain import plain
from selpe.evaluation.validity import score
from selpe.evaluation.words import unlabelled
from selpe.models.encoders.base import Encoder
from selpe.schema import Record, Schema

__all__ = ["Fidelity", "fidelity", "synthetic_only"]

Progress: TypeAlias = Callable[[str, float], None]  # what is under way, and the share of the whole that is done

MOST = 5_000  # records of a table that are embedded; a larger table is represented by a fixed draw
FEW = 50  # real rows below which figures are rough
OTHER_CLASSES = 0.1  # the total variation between class shares from which on it is said


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
      square matrices in the order of `fields`; kinds: 'number' | 'choice'; `difference` is one mean over all pairs
    - `structure`: {key_node_dependency, attribute_match, pairs: [{fields, value, real, synthetic}],
      attributes: [{name, measure, value, normalised}]}; smaller is better
    - `text`: field → {words: {real, synthetic: {mean, median, low, high}, wasserstein, edges, real_shares,
      synthetic_shares}, vocabulary: {real, synthetic, shared, jaccard, coverage, novelty}}
    - `neighbourhoods`: {precision, recall, k}
    - `map`: {real: [[x, y] …], synthetic, real_labels, synthetic_labels, explained: [x, y]}
    - `diversity`: {synthetic: {records, distinct_records, exact_duplicates, repeated_texts, near_duplicates,
      distinct_1, distinct_2, distinct_3, self_similarity, nearest_similarity, effective_records}, real: the same}, over
      equally many records; duplicates are shares, and `repeated_texts` counts records that share a long text alone
    - `echoes`: {synthetic: {records, echoed, share, fields: field → records, near, near_share}, real: the same}:
      records that copy an example of the schema, or nearly
    - `reference`: {marginals, associations, key_node_dependency, attribute_match, precision, recall}: the same
      headline figures between two halves of the real rows; `summary` has them for the synthetic table
    - `alarms`: sentences, empty where nothing is wrong; `notes`: what a reader must know
    """

    counts: Mapping[str, int]
    validity: Mapping[str, Any]
    marginals: Mapping[str, Marginal]
    associations: Associations
    structure: Structure
    text: Mapping[str, FieldTexts]
    neighbourhoods: Neighbourhoods
    map: Map
    diversity: Mapping[str, Diversity]
    echoes: Mapping[str, Mapping[str, Any]]
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
    allow_private_text_to: str | Collection[str] = (),
    progress: Progress | None = None,
) -> Fidelity:
    """The synthetic table beside real rows that were not used to make it. For `internal/` only.

    Raises PrivacyError where the encoder would send the real rows to a host that is not allowed.
    """
    require_local(encoder, allow_private_text_to)
    tell = progress or (lambda what, share: None)
    tell("validity", 0.0)
    valid = _validity(schema, synthetic, raw_outputs)
    tell("fields and pairs of fields", 0.1)
    by_field, by_pair = compare_fields(schema, synthetic, real), compare_pairs(schema, synthetic, real)
    by_text = compare_texts(schema, synthetic, real)
    there = _Side(schema, synthetic, encoder, lambda share: tell("embedding the synthetic table", 0.2 + 0.4 * share))
    here = _Side(schema, real, encoder, lambda share: tell("embedding the real rows", 0.6 + 0.25 * share))
    tell("structure, neighbourhoods and diversity", 0.85)
    built = summed(pairs(there.nodes, here.nodes), attributes(schema, synthetic, real, by_field))
    near = precision_and_recall(there.vectors, here.vectors)
    variety = _diversity(schema, there, here)
    copied = {"synthetic": _echoes(schema, synthetic), "real": _echoes(schema, real)}
    found = Fidelity(
        {"synthetic": len(synthetic), "real": len(real)},
        valid,
        by_field,
        by_pair,
        built,
        by_text,
        near,
        draw_map(there.vectors, here.vectors, there.labels, here.labels),
        variety,
        copied,
        _headlines(by_field, by_pair, built.key_node_dependency, built.attribute_match, near),
        _reference(schema, here),
        alarms(variety["synthetic"], variety["real"]) if "real" in variety else alarms(variety["synthetic"]),
        _notes(schema, synthetic, real, by_field, copied["real"]["echoed"]),
    )
    tell("done", 1.0)
    return found


def synthetic_only(
    schema: Schema, synthetic: Sequence[Record], *, encoder: Encoder, raw_outputs: Sequence[str] | None = None
) -> dict[str, Any]:
    """What may be published: counts, validity, marginals, text, diversity and alarms of the synthetic table alone.

    The shapes are those of `Fidelity.as_dict`, without every part that needs real rows.
    """
    side = _Side(schema, synthetic, encoder, nodes=False)
    variety = measure_diversity(schema, side.records, side.vectors)
    fields = {}
    for name, marginal in plain(compare_fields(schema, synthetic, ())).items():
        kept = ("kind", "unit", "values", "edges", "synthetic", "missing_synthetic")
        fields[name] = {key: marginal[key] for key in kept}
    texts = {}
    for name, each in plain(compare_texts(schema, synthetic, ())).items():
        lengths = each["words"]
        texts[name] = {
            "words": {key: lengths[key] for key in ("synthetic", "edges", "synthetic_shares")},
            "vocabulary": {"synthetic": each["vocabulary"]["synthetic"]},
        }
    return {
        "counts": {"synthetic": len(synthetic)},
        "validity": plain(_validity(schema, synthetic, raw_outputs)),
        "marginals": fields,
        "text": texts,
        "diversity": {"synthetic": plain(variety)},
        "echoes": {"synthetic": _echoes(schema, synthetic)},
        "alarms": list(alarms(variety)),
    }


class _Side:
    """One table with its embeddings, or a fixed draw of it where it is large."""

    def __init__(
        self,
        schema: Schema,
        records: Sequence[Record],
        encoder: Encoder,
        tick: Callable[[float], None] = lambda share: None,
        *,
        nodes: bool = True,
    ) -> None:
        self.records = [records[row] for row in drawn(len(records), MOST)]
        # The label is left out, as in the kernel: the same texts, and no class is near itself by its name alone.
        lines = unlabelled(schema, self.records)
        self.vectors: NDArray[np.float64] = embed(encoder, lines, lambda share: tick(share / 2)).astype(np.float64)
        self.labels = [schema.label_of(record) for record in self.records]
        self.nodes = Nodes(schema, self.records if nodes else (), encoder, lambda share: tick((1 + share) / 2))


def _validity(schema: Schema, synthetic: Sequence[Record], raw_outputs: Sequence[str] | None) -> dict[str, Any]:
    """R-CFG and S-CFG in percent, of raw outputs where they are kept, else of the records' canonical JSON."""
    raws = [schema.dumps(record) for record in synthetic] if raw_outputs is None else list(raw_outputs)
    report = score(raws, schema)
    rates = {level: 100 * report.rate(level) for level in report.counts}
    return {
        "source": "records" if raw_outputs is None else "raw outputs",
        "total": report.total,
        "r_cfg": 100 * report.r_cfg,
        "s_cfg": 100 * report.s_cfg,
        **rates,
        "violations": {level: dict(counts) for level, counts in report.violations.items() if counts},
    }


def _echoes(schema: Schema, records: Sequence[Record]) -> dict[str, Any]:
    counted = echoes(schema, records)
    return {**plain(counted), "share": counted.share, "near_share": counted.near_share}


def _diversity(schema: Schema, there: _Side, here: _Side) -> dict[str, Diversity]:
    """Diversity of both tables over equally many records; of the synthetic one alone where no real row is given."""
    size = min(len(there.records), len(here.records)) or len(there.records)
    found = {}
    for name, side in (("synthetic", there), ("real", here)):
        rows = drawn(len(side.records), size)
        if len(rows):
            found[name] = measure_diversity(schema, [side.records[row] for row in rows], side.vectors[rows])
    return found or {"synthetic": measure_diversity(schema, [], there.vectors)}


def _headlines(
    by_field: Mapping[str, Marginal],
    by_pair: Associations,
    dependency: float,
    attribute_match: float,
    near: Neighbourhoods,
) -> dict[str, float]:
    return {
        "marginals": mean(by_field),
        "associations": by_pair.difference,
        "key_node_dependency": dependency,
        "attribute_match": attribute_match,
        "precision": near.precision,
        "recall": near.recall,
    }


def _reference(schema: Schema, side: _Side) -> dict[str, float]:
    """The headline figures between two random halves of the real rows: what a perfect table could be expected to reach.

    Halves are smaller than the whole, so these are a little worse than between two tables of full size.
    """
    order = np.random.default_rng(SEED).permutation(len(side.records))
    rows = np.sort(order[::2]), np.sort(order[1::2])
    left, right = ([side.records[row] for row in half] for half in rows)
    by_field, by_pair = compare_fields(schema, left, right), compare_pairs(schema, left, right)
    names = [(first.name, second.name) for first, second in side.nodes.pairs]
    cosines = [[side.nodes.cosines(first, second, half) for first, second in names] for half in rows]
    matched = summed((), attributes(schema, left, right, by_field)).attribute_match
    near = precision_and_recall(side.vectors[rows[0]], side.vectors[rows[1]])
    return _headlines(by_field, by_pair, dependency(cosines[0], cosines[1]), matched, near)


def _notes(
    schema: Schema, synthetic: Sequence[Record], real: Sequence[Record], by_field: Mapping[str, Marginal], copied: int
) -> tuple[str, ...]:
    notes = []
    if copied:
        notes.append(
            f"{copied:,} of the {len(real):,} real records have words of the schema's examples too. Examples must be "
            "made up: they are public, and the guarantee does not cover them."
        )
    if schema.label is not None and by_field[schema.label].value > OTHER_CLASSES:
        notes.append(
            "Classes have other shares than among the real rows: fields that go with the class differ with them."
        )
    if len(real) < FEW:
        notes.append(f"Real rows to compare with: {len(real)}. Below {FEW} every figure is rough.")
    if max(len(synthetic), len(real)) > MOST:
        notes.append(f"Embeddings and diversity look at {MOST:,} records of a larger table, drawn at random.")
    if not synthetic:
        notes.append("The synthetic table is empty.")
    return tuple(notes)
