"""How well does one private choice find a good candidate? Votes and the paper's rule on real records.

For each class, 20 records stand for the private rows and others that were held out for the pool. A candidate's true
closeness is its mean kernel distance to the class's private rows. The winner's expected percentile and its chance to be
among the closest tenth follow from the exact law of the mechanism over the real tallies: no draws, hence no luck.

    python benchmarks/signal.py                     # the table, the acceptance checks, the calibration
    python benchmarks/signal.py --encoder tfidf --seeds 3

The data are looked for in a folder `shared/data` beside the checkout, and are never copied.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.encode.base import Encoder
from selpe.encode.hashing import HashingEncoder
from selpe.kernel import MultiChannelKernel
from selpe.privacy.votes import Approval, Closeness, Prototype, RecordVote
from selpe.schema import Record, Schema

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
PRIVATE = 20  # private rows a class
EPSILONS = (0.2, 0.4, 0.8, 1.0, 2.0)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _whole(text: str) -> int | None:
    return int(float(text)) if text else None


@dataclass(frozen=True, slots=True)
class RealTable:
    """A real table: its schema, and how its columns are read."""

    name: str
    fields: Mapping[str, Mapping[str, Any]]
    label: str
    classes: tuple[str, ...]
    group: str = ""  # rows that share this text are kept on one side of the split

    @property
    def schema(self) -> Schema:
        label = {"kind": "category", "values": list(self.classes)}
        return Schema.from_dict(
            {"name": self.name, "label": self.label, "fields": {**self.fields, self.label: label}}
        )

    def records(self) -> list[Record]:
        """The records of the classes looked at, read under the schema; rows without a label are left out."""
        path = (DATA / f"{self.name}.csv").resolve()
        if not path.exists():
            raise SystemExit(f"{path.name} is not in a folder shared/data beside the checkout")
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        readers = {"number": _number, "integer": _whole}
        found = []
        for row in rows:
            if row[self.label] in self.classes:
                record: Record = {self.label: row[self.label]}
                for field, settings in self.fields.items():
                    text = row[field].strip()
                    record[field] = readers.get(str(settings["kind"]), lambda cell: cell or None)(text)
                found.append(record)
        return found


def _text(description: str, longest: int = 400) -> dict[str, Any]:
    return {"kind": "text", "max_length": longest, "optional": True, "description": description}


def _range(kind: str, low: float, high: float, step: float, description: str) -> dict[str, Any]:
    return {"kind": kind, "min": low, "max": high, "step": step, "optional": True, "description": description}


TABLES = (
    RealTable(
        "water",
        {
            "product_name": _text("the bottle that was bought"),
            "overall_rating": _range("number", 1, 5, 0.1, "mean rating of the product"),
            "title": _text("title of the review"),
            "cleaned_review": _text("the review"),
        },
        "rating",
        ("1", "2", "3", "4", "5"),
        group="cleaned_review",
    ),
    RealTable(
        "ktas_triage",
        {
            "chiefcomplaint": _text("what the patient says is wrong"),
            "sex": _text("sex"),
            "age": _range("integer", 0, 120, 1, "years"),
            "arrival_mode": _text("how the patient came"),
            "injury": _text("whether there is an injury"),
            "mental_state": _text("how awake the patient is"),
            "pain": _range("integer", 0, 10, 1, "pain, 0 to 10"),
            "sbp": _range("integer", 30, 300, 1, "systolic pressure"),
            "dbp": _range("integer", 20, 200, 1, "diastolic pressure"),
            "heartrate": _range("integer", 20, 250, 1, "heart rate"),
            "resprate": _range("integer", 4, 60, 1, "breaths a minute"),
            "temperature_c": _range("number", 30, 43, 0.1, "body temperature"),
            "o2sat": _range("integer", 20, 100, 1, "oxygen saturation"),
        },
        "acuity",
        ("2", "3", "4", "5"),  # class 1 has 26 rows: too few to hold a pool out
    ),
    RealTable(
        "loan_lendingclub_desc",
        {
            "loan_amnt": _range("number", 500, 40000, 25, "amount"),
            "term": _text("term"),
            "emp_title": _text("job"),
            "emp_length": _text("time in the job"),
            "home_ownership": _text("home"),
            "annual_inc": _range("number", 0, 1_000_000, 1, "yearly income"),
            "verification_status": _text("whether the income was verified"),
            "purpose": _text("what for"),
            "addr_state": _text("state"),
            "dti": _range("number", 0, 60, 0.01, "debt to income"),
            "desc": _text("the borrower's own words", 4000),
        },
        "grade",
        ("A", "B", "C", "D"),  # E to G have too few rows to hold a pool out
    ),
)
