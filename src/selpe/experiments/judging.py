"""What a cell is measured by: utility in every view, validity of raw outputs, closeness to real rows, attacks.

Everything here looks at real rows without noise. It is for experiments on public data and for a data owner's eyes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.evaluation.attack import attack
from selpe.evaluation.embedding import Remembering, require_local
from selpe.evaluation.fidelity import fidelity
from selpe.evaluation.fidelity.nearest import mean_distance
from selpe.evaluation.roc import areas, interval, resampled
from selpe.evaluation.trial import Trial
from selpe.evaluation.utility import SYNTHETIC, utility
from selpe.evaluation.validity import score
from selpe.experiments.sources import Split
from selpe.models.encoders.base import Encoder
from selpe.run.workspace import Workspace
from selpe.schema import Record, Schema

BOOTSTRAP = 300
MOST_OUTPUTS = 5_000
_CLOSENESS = ("marginals", "associations", "precision", "recall")


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure. `view` and `kind` say which model was trained, if any; `low` and `high` are a 95 % interval."""

    measure: str
    value: float
    view: str = ""
    kind: str = ""
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The figure as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CellJudge:
    """The yardstick of an experiment: the same for all its cells.

    `on` is the side that figures are measured on, `most` a cap on its rows a class. The encoder remembers texts: test
    rows are encoded once. `allowed` is the one host that rows may be sent to, where the encoder is a server.
    """

    encoder: Encoder
    views: tuple[str, ...]
    on: str = "test"
    most: int | None = None
    allowed: str = ""

    @classmethod
    def of(
        cls, encoder: Encoder, views: Sequence[str], *, on: str = "test", most: int | None = None, allowed: str = ""
    ) -> CellJudge:
        """A judge whose encoder remembers. Raises PrivacyError where it would send rows to a host not allowed."""
        require_local(encoder, allowed or ())
        return cls(Remembering(encoder), tuple(views), on, most, allowed)

    def as_dict(self) -> dict[str, Any]:
        """What a cell's result depends on."""
        return {"encoder": self.encoder.name, "views": list(self.views), "on": self.on, "most": self.most}

    def rows(self, split: Split) -> list[Record]:
        """The rows that figures are measured on."""
        return split.judged_on(self.on, self.most)

    def trained_on(self, split: Split, records: Sequence[Record]) -> list[Measure]:
        """Utility of a training set."""
        found = utility(
            split.schema,
            records,
            self.rows(split),
            encoder=self.encoder,
            views=self.views,
            bootstrap=BOOTSTRAP,
            allow_remote=True,  # the host has been checked
        )
        return [
            measure
            for score_ in found.scores
            if score_.trained_on == SYNTHETIC
            for measure in (
                Measure("auc", score_.auc, score_.view, score_.kind, score_.low, score_.high),
                Measure("accuracy", score_.accuracy, score_.view, score_.kind),
                Measure("macro_f1", score_.macro_f1, score_.view, score_.kind),
            )
        ]

    def release(self, split: Split, run: Path, private: Sequence[Record]) -> list[Measure]:
        """Every measure of what a run released."""
        schema, records = split.schema, released(run)
        found = [*self.trained_on(split, records), *validity(schema, raw_outputs(run))]
        found.append(Measure("records", float(len(records))))
        if records:
            found += self._closeness(split, records) + self._attacks(split, records, private)
        return found

    def classifier(self, split: Split, scores: NDArray[np.float64], view: str) -> list[Measure]:
        """Utility of a classifier that gave every class of the schema a score for every row."""
        trial = Trial.of(split.schema, self.rows(split))
        columns = [split.schema.labels.index(label) for label in trial.classes]
        chances = scores[:, columns]
        samples = resampled(trial.truth, [chances], times=BOOTSTRAP)
        low, high = interval(samples)
        auc = float(areas(trial.truth, chances).mean())
        return [Measure("auc", 100 * auc, view, "text", 100 * low, 100 * high)]

    def _closeness(self, split: Split, records: Sequence[Record]) -> list[Measure]:
        summary = fidelity(
            split.schema, records, self.rows(split), encoder=self.encoder, allow_private_text_to=self.allowed or ()
        ).summary
        distance = mean_distance(
            split.schema, records, self.rows(split), encoder=self.encoder, allow_private_text_to=self.allowed or ()
        )
        found = [Measure(name, float(summary[name])) for name in _CLOSENESS if name in summary]
        return [*found, Measure("distance", distance)]

    def _attacks(self, split: Split, records: Sequence[Record], private: Sequence[Record]) -> list[Measure]:
        found = attack(
            split.schema,
            records,
            private,
            split.strangers(),
            encoder=self.encoder,
            allow_private_text_to=self.allowed or (),
        )
        measures = [
            Measure("nrs", float(found.nrs.value)),
            Measure("dcr", float(found.dcr.value)),
            Measure("alarms", float(len(found.alarms))),
        ]
        for name, member in found.membership.items():
            if member is not None:
                measures.append(Measure("tpr", 100 * member.tpr, name, "", 100 * member.low, 100 * member.high))
                measures.append(Measure("mia_auc", 100 * member.auc, name))
        return measures


def validity(schema: Schema, outputs: Sequence[str]) -> list[Measure]:
    """R-CFG and S-CFG of raw outputs, in percent."""
    if not outputs:
        return []
    step = max(1, len(outputs) // MOST_OUTPUTS)
    report = score(outputs[::step][:MOST_OUTPUTS], schema)
    return [Measure("r_cfg", 100 * report.r_cfg), Measure("s_cfg", 100 * report.s_cfg)]


def released(run: Path) -> list[Record]:
    """The records that a run released."""
    return _lines(Workspace(run).release.jsonl)


def raw_outputs(run: Path) -> list[str]:
    """The outputs behind them, as the model wrote them."""
    return [str(text) for text in _lines(Workspace(run).work.raw)]


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line] if path.is_file() else []
