"""Measured tables as plain data and back (ours), so that a finished run can be drawn from again at any later time.

What comes back draws the same facts for new records, to the last random number. It cannot code anybody's row: texts
are known by what the model wrote, and neither centres nor encoder are kept.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from selpe.method.codebooks import Codebook, TextCodes
from selpe.method.facts import MeasuredField, MeasuredPair, MeasuredTables
from selpe.method.posterior import NoiseLaw
from selpe.method.record_forms import Fact
from selpe.schema import DateField, Field, IntegerField, Schema, Span, TextField, Value


class StoredCodes(Codebook):
    """The way back from a code to a fact, as a run has kept it; `known` are the codes of texts that the model wrote."""

    def __init__(
        self, field: Field, words: Sequence[str], facts: Sequence[Sequence[tuple[Fact, str | None]]], known: Any
    ) -> None:
        super().__init__(field, words)
        self._facts, self._known = facts, dict(known)

    def _code(self, value: Value) -> int:
        return int(self._known.get(str(value), -1))

    def _fact(self, code: int, label: str | None, chance: random.Random) -> Fact:
        facts = self._facts[code]
        if not isinstance(self.field, TextField):
            return facts[0][0]
        own = [fact for fact, of in facts if of == label]
        return chance.choice(own or [fact for fact, _ in facts])


def tables_to_dict(tables: MeasuredTables) -> dict[str, Any]:
    """What new records are drawn from, as plain data. The looks are not in it: measurements.json has them."""
    return {
        "fields": {name: _field(measured, tables) for name, measured in tables.fields.items()},
        "pairs": [
            {
                "names": list(pair.names), "tilt": pair.tilt.tolist(), "counts": pair.counts.tolist(),
                "model_tilt": pair.model_tilt.tolist(),
            }
            for pair in tables.pairs
        ],
        "noise": {"law": tables.noise.law, "scale": str(tables.noise.scale)},
        "pool": {label: list(records) for label, records in tables.pool.items()},
        "apart": tables.apart,
    }  # fmt: skip


def tables_from_dict(content: Mapping[str, Any], schema: Schema) -> MeasuredTables:
    """The tables of a run that has kept them."""
    noise = content["noise"]
    return MeasuredTables(
        schema=schema,
        fields={name: _measured(part, schema.field(name)) for name, part in content["fields"].items()},
        pairs=tuple(
            MeasuredPair(
                (pair["names"][0], pair["names"][1]),
                np.asarray(pair["tilt"], dtype=np.float64),
                np.asarray(pair["counts"], dtype=np.int64),
                np.asarray(pair["model_tilt"], dtype=np.float64),
            )
            for pair in content["pairs"]
        ),
        noise=NoiseLaw(noise["law"], float(noise["scale"])),
        looks=(),
        pool={label: tuple(records) for label, records in content["pool"].items()},
        apart=content["apart"],
    )


def _field(measured: MeasuredField, tables: MeasuredTables) -> dict[str, Any]:
    return {
        "codes": _codes(measured.codebook, tables),
        "prior": measured.prior.tolist(),
        "shares": measured.shares.tolist(),
        "counts": measured.counts.tolist(),
        "prior_kept": measured.prior_kept,
    }


def _measured(part: Mapping[str, Any], field: Field) -> MeasuredField:
    codes = part["codes"]
    facts = [[(_fact_of(fact, field), label) for fact, label in group] for group in codes["facts"]]
    return MeasuredField(
        StoredCodes(field, codes["words"], facts, codes["known"]),
        np.asarray(part["prior"], dtype=np.float64),
        np.asarray(part["shares"], dtype=np.float64),
        np.asarray(part["counts"], dtype=np.int64),
        part["prior_kept"],
    )


def _codes(book: Codebook, tables: MeasuredTables) -> dict[str, Any]:
    present = [code for code in range(book.size) if not book.is_missing(code)]
    known: dict[str, int] = {}
    if isinstance(book, TextCodes):
        facts: list[list[Any]] = [[(phrase.text, phrase.label) for phrase in members] for members in book.members]
        # The pool's records are looked up by their texts, where a long one is shown in the place of a phrase.
        written = [record for records in tables.pool.values() for record in records if record.get(book.name)]
        known = {str(record[book.name]): book.code_of_public(record) for record in written}
    else:
        facts = [[(_plain(book.fact(code, None, random.Random(0))), None)] for code in present]
    return {"words": [book.words[code] for code in present], "facts": facts, "known": known}


def _plain(fact: Fact) -> Any:
    return {"low": str(fact.low), "high": str(fact.high)} if isinstance(fact, Span) else fact


def _fact_of(fact: Any, field: Field) -> Fact:
    if not isinstance(fact, Mapping):
        return fact  # type: ignore[no-any-return]
    ends: Any = date.fromisoformat if isinstance(field, DateField) else Decimal
    read = int if isinstance(field, IntegerField) else ends
    return Span(read(fact["low"]), read(fact["high"]))
