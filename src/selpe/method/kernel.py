"""The multi-channel distance kernel g (Sec. 4.2): every field compared in its native space, then fused late.

Channels: one semantic channel for the whole record, one per field, and a scalar channel for every number and date.
Distances lie in [0, 1], weights sum to 1. A missing value is at distance 0 from a missing one; from a present one it is
as far as two present values of the channel usually are at most (the 95th percentile over the pool). A full 1 would
outweigh all present values: cosine distances of '98 %' and '99 %' are a few hundredths.

Votes of private rows must be functions of one row each, bit for bit (privacy/PROOF.md). A matrix product in floating
point is not: its rounding depends on the shape of the call. So vectors are rounded to whole numbers on a grid of
1/4000. By Cauchy–Schwarz every partial sum of a dot product then stays below 2²⁴, where single precision counts
exactly, and the order of summation cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError
from selpe.models.encoders.alone import encode_alone
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.schema import DateField, Field, IntegerField, NumberField, Record, Schema
from selpe.schema.fields import parse_date

GRID = 4000
GLOBAL = "(record)"
MISSING = -1
SAMPLE = 128  # candidates whose distances to all others say how far apart values of a channel usually are
Mode = Literal["fields", "global"]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Vectors:
    """One semantic channel z_α: distinct vectors on the grid, and which of them each row has."""

    table: NDArray[np.float32]
    index: NDArray[np.intp]

    def __getitem__(self, rows: NDArray[np.intp]) -> Vectors:
        return Vectors(self.table, self.index[rows])

    def compact(self) -> Vectors:
        """The same rows over only those vectors that they use."""
        used, index = np.unique(self.index, return_inverse=True)
        if len(used) and used[0] == MISSING:
            return Vectors(self.table[used[1:]], np.asarray(index - 1, dtype=np.intp))
        return Vectors(self.table[used], np.asarray(index, dtype=np.intp))


@dataclass(frozen=True, slots=True)
class HybridRepresentation:
    """Φ(s) of some records (Eq. hybrid_repr): semantic channels and raw scalars, independent of any pool."""

    semantic: Mapping[str, Vectors]
    scalar: Mapping[str, NDArray[np.float64]]
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rows: NDArray[np.intp]) -> HybridRepresentation:
        return HybridRepresentation(
            {name: vectors[rows] for name, vectors in self.semantic.items()},
            {name: values[rows] for name, values in self.scalar.items()},
            len(rows),
        )


class MultiChannelKernel:
    """Encodes records, and lays g over a pool. `mode='global'` keeps the global channel alone (the ablation).

    `public_encoder` may encode pools in the encoder's place; private rows go through the encoder itself.
    """

    def __init__(
        self,
        schema: Schema,
        encoder: Encoder,
        *,
        mode: Mode = "fields",
        weights: Mapping[str, float] | None = None,
        public_encoder: PublicEncoder | None = None,
    ) -> None:
        self._schema = schema
        self._encoder = encoder
        self._encode_public = encoder.encode if public_encoder is None else public_encoder.encode_public
        # Within one class the label is constant: its channels would only dilute the others.
        fields = () if mode == "global" else tuple(field for field in schema.fields if field.name != schema.label)
        self._fields = fields
        self._numeric = tuple(field for field in fields if isinstance(field, (IntegerField, NumberField, DateField)))
        self._weights = _normalised(self.channels, weights or {})

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to for encoding, or None."""
        return self._encoder.remote

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of all channels: the record, each field, and '#field' for scalars."""
        semantic = (GLOBAL, *(field.name for field in self._fields))
        return semantic + tuple(f"#{field.name}" for field in self._numeric)

    @property
    def weights(self) -> Mapping[str, float]:
        """The channel weights, which sum to 1."""
        return dict(self._weights)

    def represent(self, records: Sequence[Record], encode: Encode | None = None) -> HybridRepresentation:
        """Φ of the records, each a function of its own record bit for bit: what private rows need.

        An encoder that does not promise as much gets every distinct text in a call of its own (encoders/alone.py). A
        server is trusted to answer a text the same each time. `encode` is for who has asked it about some of them.
        """
        return self._represent(records, encode or partial(encode_alone, self._encoder))

    def represent_pool(self, records: Sequence[Record]) -> HybridRepresentation:
        """Φ of public records, encoded in batches: their last bits do not matter."""
        return self._represent(records, self._encode_public)

    def _represent(self, records: Sequence[Record], encode: Encode) -> HybridRepresentation:
        texts: dict[str, list[str | None]] = {
            GLOBAL: [self._schema.linearise(record, without=self._label) for record in records]
        }
        for field in self._fields:
            values = (record.get(field.name) for record in records)
            texts[field.name] = [None if value is None else field.lexicalise(value) for value in values]
        distinct = sorted({text for column in texts.values() for text in column if text is not None})
        table = on_grid(encode(distinct) if distinct else np.zeros((0, self._encoder.dimension), dtype=np.float32))
        place = {text: number for number, text in enumerate(distinct)}
        semantic = {
            name: Vectors(
                table, np.array([MISSING if t is None else place[t] for t in column], dtype=np.intp)
            ).compact()
            for name, column in texts.items()
        }
        scalar = {
            field.name: np.array([_scalar(field, record.get(field.name)) for record in records], dtype=np.float64)
            for field in self._numeric
        }
        return HybridRepresentation(semantic, scalar, len(records))

    def over(self, pool: HybridRepresentation) -> PoolDistances:
        """g with this round's normalisation, taken from the pool only."""
        spans = {field.name: _robust_span(pool.scalar[field.name], field) for field in self._numeric}
        return PoolDistances(pool, self._weights, spans)

    @property
    def _label(self) -> tuple[str, ...]:
        return () if self._schema.label is None else (self._schema.label,)


class PoolDistances:
    """g (Eq. distance_kernel) from any records to the candidates of one pool."""

    def __init__(
        self, pool: HybridRepresentation, weights: Mapping[str, float], spans: Mapping[str, tuple[float, float]]
    ) -> None:
        self._pool = pool
        self._weights = weights
        self._spans = spans
        self._compact = {name: vectors.compact() for name, vectors in pool.semantic.items()}
        self._scaled = {name: _scale(values, spans[name]) for name, values in pool.scalar.items()}
        sample = np.unique(np.linspace(0, max(0, len(pool) - 1), min(len(pool), SAMPLE)).astype(np.intp))
        self._far = {name: _usual_far_semantic(vectors, sample) for name, vectors in self._compact.items()}
        self._far_scalar = {name: _usual_far_scalar(values, sample) for name, values in self._scaled.items()}

    def __len__(self) -> int:
        return len(self._pool)

    def distances(self, rows: HybridRepresentation) -> NDArray[np.float32]:
        """Distances of shape (len(rows), M). Each row's are the same whatever other rows are in the call."""
        total = np.zeros((len(rows), len(self)), dtype=np.float32)
        for name, candidates in self._compact.items():
            total += np.float32(self._weights[name]) * _cosine(
                rows.semantic[name].compact(), candidates, self._far[name]
            )
        for name, candidates_x in self._scaled.items():
            scaled = _scale(rows.scalar[name], self._spans[name])
            total += np.float32(self._weights[f"#{name}"]) * _gap(scaled, candidates_x, self._far_scalar[name])
        return np.asarray(np.minimum(total, np.float32(1.0)))

    def prototype(self, rows: HybridRepresentation) -> NDArray[np.float32]:
        """g(μ(B), s): distances from the rows' centre (Eq. batch_center), one per candidate."""
        return np.asarray(self.distances(self._centre(rows))[0])

    def among(self, i: Sequence[int]) -> NDArray[np.float32]:
        """Distances from some candidates to all of them. Public."""
        return self.distances(self._pool[np.asarray(i, dtype=np.intp)])

    def _centre(self, rows: HybridRepresentation) -> HybridRepresentation:
        """The normalised mean direction of each semantic channel and the mean of each scalar, as one record."""
        semantic = {}
        for name, vectors in rows.semantic.items():
            present = vectors.index[vectors.index != MISSING]
            mean = vectors.table[present].astype(np.float64).sum(axis=0) if len(present) else None
            norm = 0.0 if mean is None else float(np.linalg.norm(mean))
            if mean is None or norm == 0.0:
                semantic[name] = Vectors(vectors.table[:0], np.array([MISSING], dtype=np.intp))
            else:
                unit = on_grid((mean / norm)[None, :].astype(np.float32))
                semantic[name] = Vectors(unit, np.zeros(1, dtype=np.intp))
        scalar = {}
        for name, values in rows.scalar.items():
            known = values[~np.isnan(values)]
            scalar[name] = np.array([known.mean() if len(known) else np.nan])
        return HybridRepresentation(semantic, scalar, 1)


def on_grid(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unit vectors as whole numbers of 1/4000."""
    return np.asarray(np.rint(vectors * np.float32(GRID)), dtype=np.float32)


def _cosine(rows: Vectors, candidates: Vectors, far: float) -> NDArray[np.float32]:
    """1 − ⟨a, b⟩ clipped to [0, 1], over distinct vectors first, then spread out; `far` where one is missing."""
    distinct = np.full((len(rows.table) + 1, len(candidates.table) + 1), far, dtype=np.float32)
    if len(rows.table) and len(candidates.table):
        # Exact in single precision: see the head of this file.
        dots = rows.table @ candidates.table.T
        np.clip(np.float32(1.0) - dots / np.float32(GRID * GRID), 0.0, 1.0, out=distinct[:-1, :-1])
    distinct[-1, -1] = 0.0  # missing against missing; index −1 picks the last row and column
    if len(rows.index) >= len(rows.table):
        return distinct[:, candidates.index][rows.index]
    return np.asarray(distinct[np.ix_(rows.index, candidates.index)])


def _gap(rows: NDArray[np.float32], candidates: NDArray[np.float32], far: float) -> NDArray[np.float32]:
    """|x − x'| in [0, 1], where NaN marks a missing value; `far` where one of the two is missing."""
    gap = np.abs(rows[:, None] - candidates[None, :])
    lost, gone = np.isnan(rows), np.isnan(candidates)
    if lost.any() or gone.any():
        gap = np.where(lost[:, None] | gone[None, :], np.float32(far), gap)
        gap[np.ix_(lost, gone)] = 0.0
    return np.asarray(np.minimum(gap, np.float32(1.0)))


def _usual_far_semantic(pool: Vectors, sample: NDArray[np.intp]) -> float:
    """How far apart two present values of a semantic channel usually are at most."""
    distances = _cosine(pool[sample].compact(), pool, 1.0)
    return _usual_far(distances[pool.index[sample] != MISSING][:, pool.index != MISSING])


def _usual_far_scalar(pool: NDArray[np.float32], sample: NDArray[np.intp]) -> float:
    """How far apart two present values of a scalar channel usually are at most."""
    return _usual_far(_gap(pool[sample], pool, 1.0)[~np.isnan(pool[sample])][:, ~np.isnan(pool)])


def _usual_far(known: NDArray[np.float32]) -> float:
    return float(np.quantile(known, 0.95)) if known.size else 1.0


def _scalar(field: Field, value: object) -> float:
    """A number or a day on the real line; NaN when missing."""
    if value is None:
        return np.nan
    if isinstance(field, DateField):
        day = parse_date(str(value))
        return np.nan if day is None else float(day.toordinal())
    return float(value)  # type: ignore[arg-type]


def _robust_span(values: NDArray[np.float64], field: Field) -> tuple[float, float]:
    """The 5th and 95th percentile over the pool; the schema's bounds where the pool says nothing."""
    known = values[~np.isnan(values)]
    if len(known):
        low, high = (float(q) for q in np.quantile(known, (0.05, 0.95)))
        if high > low:
            return low, high
    low, high = _bounds(field)
    return (low, high) if high > low else (low, low + 1.0)


def _bounds(field: Field) -> tuple[float, float]:
    if isinstance(field, (IntegerField, NumberField)):
        return float(field.min), float(field.max)
    if isinstance(field, DateField):
        return float(field.min.toordinal()), float(field.max.toordinal())
    return float(date.min.toordinal()), float(date.max.toordinal())


def _scale(values: NDArray[np.float64], span: tuple[float, float]) -> NDArray[np.float32]:
    low, high = span
    return np.clip((values - low) / (high - low), 0.0, 1.0).astype(np.float32)


def _normalised(channels: Sequence[str], given: Mapping[str, float]) -> dict[str, float]:
    """Weights that sum to 1; channels that are not named weigh 1 before that."""
    if unknown := [name for name in given if name not in channels]:
        raise ConfigError(f"there is no kernel channel '{unknown[0]}'", hint=f"the channels are {', '.join(channels)}")
    raw = {name: float(given.get(name, 1.0)) for name in channels}
    total = sum(raw.values())
    if min(raw.values()) < 0 or not 0 < total < float("inf"):
        raise ConfigError("kernel weights must be 0 or above, and not all 0")
    return {name: weight / total for name, weight in raw.items()}
