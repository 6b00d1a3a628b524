"""Key-node dependency and attribute match, in the sense of Struct-Bench (Wang et al., 2025). Smaller is better.

*Key-node dependency*: parts of a record that belong together (a title and its review) are near or far in meaning, and
a faithful table has them as near as real records have. For a pair of nodes, take in every record the cosine between
the embeddings of the two contents; the dependency distance is the Wasserstein-2 distance between the distributions of
that cosine among real and among synthetic records. Struct-Bench lets the owner of a grammar name the pairs. Here the
nodes are the fields, and the pairs are all those of text and choice fields in which one is text (all pairs of choices
where there is no text); the figure is the mean over pairs. Contents are embedded bare, without the field's name. A
record that lacks one of the two has no part in the pair.

*Attribute match*: attributes of records are compared as distributions, numeric ones by Wasserstein-2, choices by total
variation. Here every field is an attribute by its value, and a text field by its number of words. Struct-Bench
averages numbers of all units as they are; that lets the attribute with the largest unit speak alone, so our mean is
over distances divided by the width of the domain (for words, by the largest number seen), with missing values as in
`with_missing`. The raw distances stand beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.embedding import embed
from selpe.evaluation.fidelity.columns import is_choice, known, mean_known, numbers, span
from selpe.evaluation.fidelity.distances import relative, wasserstein, with_missing
from selpe.evaluation.fidelity.marginals import Marginal
from selpe.evaluation.words import text_fields, words
from selpe.models.encoders.base import Encoder
from selpe.schema import Field, Record, Schema, TextField


@dataclass(frozen=True, slots=True)
class Pair:
    """Two key nodes: the distance between the distributions of their cosines, and the mean cosine on both sides."""

    fields: tuple[str, str]
    value: float
    real: float
    synthetic: float


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: the distance between its distributions, as it is and over the width of its domain."""

    name: str
    measure: str
    value: float
    normalised: float


@dataclass(frozen=True, slots=True)
class Structure:
    """Both figures with what they are made of."""

    key_node_dependency: float
    attribute_match: float
    pairs: tuple[Pair, ...]
    attributes: tuple[Attribute, ...]


class Nodes:
    """The contents of a table's key nodes as vectors."""

    def __init__(
        self,
        schema: Schema,
        records: Sequence[Record],
        encoder: Encoder,
        tick: Callable[[float], None] | None = None,
    ) -> None:
        self.pairs = _pairs(schema)
        self._place: dict[str, NDArray[np.intp]] = {}  # which vector each record has; -1 where there is no content
        self._vectors: dict[str, NDArray[np.float32]] = {}
        names = sorted({field.name for pair in self.pairs for field in pair})
        for number, name in enumerate(names, 1):
            self._embed(schema.field(name), records, encoder)
            if tick is not None:
                tick(number / len(names))

    def _embed(self, field: Field, records: Sequence[Record], encoder: Encoder) -> None:
        values = [record.get(field.name) for record in records]
        texts = ["" if value is None else field.text_of(value).strip() for value in values]
        distinct = sorted({text for text in texts if text})
        place = {text: number for number, text in enumerate(distinct)}
        self._place[field.name] = np.array([place.get(text, -1) for text in texts], dtype=np.intp)
        self._vectors[field.name] = embed(encoder, distinct)

    def cosines(self, left: str, right: str, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """The cosine between two nodes in every record (of these rows) that has both."""
        a, b = self._place[left], self._place[right]
        a, b = (a, b) if rows is None else (a[rows], b[rows])
        both = (a >= 0) & (b >= 0)
        dots = np.einsum("ij,ij->i", self._vectors[left][a[both]], self._vectors[right][b[both]])
        return np.asarray(dots, dtype=np.float64)


def _pairs(schema: Schema) -> tuple[tuple[Field, Field], ...]:
    nodes = [field for field in schema.fields if isinstance(field, TextField) or is_choice(schema, field)]
    pairs = tuple(combinations(nodes, 2))
    with_text = tuple(pair for pair in pairs if any(isinstance(field, TextField) for field in pair))
    return with_text or pairs


def dependency(synthetic: Sequence[NDArray[np.float64]], real: Sequence[NDArray[np.float64]]) -> float:
    """Key-node dependency: the mean over pairs of the Wasserstein-2 distance between cosines."""
    return mean_known([wasserstein(left, right, 2) for left, right in zip(real, synthetic, strict=True)])


def pairs(synthetic: Nodes, real: Nodes) -> tuple[Pair, ...]:
    """Every pair of key nodes, compared."""
    found = []
    for left, right in real.pairs:
        here, there = real.cosines(left.name, right.name), synthetic.cosines(left.name, right.name)
        found.append(Pair((left.name, right.name), wasserstein(here, there, 2), mean_known(here), mean_known(there)))
    return tuple(found)


def attributes(
    schema: Schema, synthetic: Sequence[Record], real: Sequence[Record], marginals: dict[str, Marginal]
) -> tuple[Attribute, ...]:
    """Every attribute, compared. Choices have their total variation from the marginals."""
    found = []
    for field in schema.fields:
        marginal = marginals.get(field.name)
        if marginal is not None and marginal.measure == "total variation":
            found.append(Attribute(field.name, "total variation", marginal.value, marginal.normalised))
        elif marginal is not None:
            found.append(_attribute(field.name, [numbers(field, rows) for rows in (real, synthetic)], span(field)))
    for field in text_fields(schema):
        lengths = [word_counts(field, rows) for rows in (real, synthetic)]
        most = float(np.nanmax(np.concatenate([*lengths, [0.0]])))
        found.append(_attribute(f"words of {field.name}", lengths, most))
    return tuple(found)


def _attribute(name: str, columns: Sequence[NDArray[np.float64]], width: float) -> Attribute:
    distance = wasserstein(known(columns[0]), known(columns[1]), 2)
    if not len(columns[0]) or not len(columns[1]):
        return Attribute(name, "wasserstein-2", math.nan, math.nan)
    missing = [float(np.isnan(column).mean()) for column in columns]
    return Attribute(name, "wasserstein-2", distance, with_missing(relative(distance, width), *missing))


def word_counts(field: TextField, records: Sequence[Record]) -> NDArray[np.float64]:
    """The number of words of every text, NaN where it is missing."""
    texts = (record.get(field.name) for record in records)
    return np.array([len(words(t)) if isinstance(t, str) else math.nan for t in texts], dtype=np.float64)


def summed(found: tuple[Pair, ...], matched: tuple[Attribute, ...]) -> Structure:
    """Both figures: means over pairs and over attributes, without those that could not be compared."""
    return Structure(
        mean_known([pair.value for pair in found]), mean_known([each.normalised for each in matched]), found, matched
    )
