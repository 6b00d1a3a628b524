"""Doing a cell: its run in a folder and with a ledger of its own, then its measures. What is finished is kept."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from selpe.baselines.marginals import require_marginals
from selpe.config import RunConfig, check_config
from selpe.config.methods import METHODS
from selpe.errors import ConfigError
from selpe.events import Emit, silence
from selpe.experiments.arms import TRAINED
from selpe.experiments.classify import classifier_scores
from selpe.experiments.code import code_fingerprint
from selpe.experiments.grid import Cell
from selpe.experiments.judging import CellJudge, Measure
from selpe.experiments.shared import SharedAnswers, TimedEncoder, slug
from selpe.experiments.sources import Sources, Split
from selpe.experiments.trained import TrainPython, torch_is_here
from selpe.models.base import ChatModel
from selpe.models.encoders.base import Encoder
from selpe.models.store.blobs import read_json, write_json
from selpe.owner_only import FILE_MODE, make_folder, write_text
from selpe.run.lifecycle import Run
from selpe.run.workspace import InternalFolder, Workspace

RUN, CELL, RESULT, LEDGER = "run", "cell.json", "result.json", "ledger"
NOTE = (
    "Runs of an experiment. Figures were computed against real rows without noise, and every cell spent its ε anew:\n"
    "together they keep no guarantee. Nothing here is for release.\n"
)


@dataclass(slots=True)
class Bench:
    """Where cells are done: a folder, data, a judge, and models that are opened when they are first needed."""

    root: Path
    sources: Sources
    judge: CellJudge
    encoder: Encoder
    encoder_name: str
    open_model: Callable[[str], ChatModel]
    pool: int = 20  # private rows a class that splits hold ready
    train: TrainPython | None = None
    cancel: threading.Event | None = None
    redo: bool = False  # cells that were done by another version of the code count as not done
    _models: dict[str, ChatModel] = field(default_factory=dict)
    _answers: dict[tuple[str, int, str], SharedAnswers] = field(default_factory=dict)
    _splits: dict[tuple[str, int], Split] = field(default_factory=dict)
    _rows: TimedEncoder = field(init=False)

    def __post_init__(self) -> None:
        self._rows = TimedEncoder(self.encoder)

    def __enter__(self) -> Bench:
        make_folder(self.root)
        write_text(InternalFolder(self.root).note, NOTE)
        return self

    def __exit__(self, *problem: object) -> None:
        for answers in self._answers.values():
            answers.close()
        for model in self._models.values():
            model.close()

    # -- what a cell is made of ----------------------------------------------------------------------------------

    def split(self, cell: Cell) -> Split:
        """The split that a cell works on."""
        place = (cell.data, cell.seed)
        if place not in self._splits:
            self._splits[place] = self.sources[cell.data].split(self.root / "data", cell.seed, self.pool)
        return self._splits[place]

    def key(self, cell: Cell) -> str:
        """The cell's key, by which its result is known."""
        judged = self.judge.as_dict() | ({"run_encoder": self.encoder_name} if cell.kind == "run" else {})
        return cell.key(split=self.split(cell).digest, judged=judged)

    def folder(self, cell: Cell) -> Path:
        """Where the cell lives."""
        return self.root / "cells" / self.key(cell)

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """What came of the cell, None where it is not done."""
        found = read_json(self.folder(cell) / RESULT)
        if not found or found.get("state") != "done":
            return None
        return None if self.redo and found.get("code") != code_fingerprint() else found

    def config(self, cell: Cell) -> RunConfig:
        """The settings of the cell's run."""
        split = self.split(cell)
        return check_config(
            {
                "epsilon": cell.epsilon, "method": cell.method, "seed": cell.seed, "llm": cell.llm,
                "encoder": self.encoder_name, "dataset": f"experiment-{cell.data}",
                "records": cell.per_class * max(1, len(split.schema.labels)),
                **cell.settings,
                "data": str(split.private_file(cell.private).resolve()),
                "schema": str((split.folder / "schema.yaml").resolve()),
                "out": str(self.folder(cell).resolve()),
            },
            where=cell.title,
        )  # fmt: skip

    def refusal(self, cell: Cell) -> str:
        """Why a cell cannot be done here; '' where it can."""
        if cell.kind == "run" and METHODS[cell.method].extra == "marginals":
            try:
                require_marginals(cell.method)
            except ConfigError as lacking:
                return f"{lacking.message}: {lacking.hint}"
        if cell.kind == "run" and cell.method in TRAINED and self.train is None and not torch_is_here():
            return f"{cell.method} trains a model and needs torch: install selpe[train], or give --train-python"
        return ""

    # -- the work ------------------------------------------------------------------------------------------------

    def do(self, cell: Cell, emit: Emit = silence) -> dict[str, Any]:
        """The cell's result, computed now; a run that an earlier process began is resumed."""
        folder, split = self.folder(cell), self.split(cell)
        make_folder(folder)
        if self.redo and (read_json(folder / CELL) or {}).get("code") != code_fingerprint():
            for old in (RUN, LEDGER):
                shutil.rmtree(folder / old, ignore_errors=True)
        write_json(folder / CELL, {**cell.as_dict(), "code": code_fingerprint()})
        began = time.monotonic()
        told: dict[str, Any] = {}
        if cell.kind == "run":
            told = self._run(cell, folder, emit)
            began = time.monotonic()
            measures = self._measured(cell, split, folder)
        else:
            records = split.private(cell.private)
            if cell.kind == "real rows":
                records = split.real(cell.per_class, cell.private, on=self.judge.on)
            measures = [*self.judge.trained_on(split, records), Measure("records", float(len(records)))]
        result = {
            "state": "done", "code": code_fingerprint(), "cell": cell.as_dict(),
            "measures": [measure.as_dict() for measure in measures],
            "judging_seconds": round(time.monotonic() - began, 2), "judged": self.judge.as_dict(), **told,
        }  # fmt: skip
        write_json(folder / RESULT, result)
        return result

    def _run(self, cell: Cell, folder: Path, emit: Emit) -> dict[str, Any]:
        """Does the run, or the rest of it; says what it took."""
        run = self._opened(cell, folder)
        resumed = run.manifest.get("state") != "created"
        if run.manifest.get("state") == "done":
            return _told(run.manifest, seconds=None, resumed=True)
        began = time.monotonic()
        if cell.method in TRAINED and not torch_is_here() and self.train is not None:
            self.train.finish(run.folder, self.cancel)
            return _told(Run.open(run.folder).manifest, seconds=time.monotonic() - began, resumed=resumed)
        answers = self._shared(cell, cell.llm)
        before = (answers.timed.tokens, answers.timed.seconds)
        encoders = (self._rows, answers.vectors.timed)
        known = [encoder.known for encoder in encoders]
        try:
            run.execute(
                model=answers.model,
                encoder=self._rows,
                public_encoder=answers.vectors,
                emit=emit,
                cancel=self.cancel,
                models=[self._shared(cell, llm).model for llm in run.config.llms[1:]],
            )
        finally:
            answers.save()
        overhead = time.monotonic() - began - (answers.timed.seconds - before[1])
        overhead += sum((each.known - count) * each.pace for each, count in zip(encoders, known, strict=True))
        fresh = answers.timed.tokens - before[0]
        return _told(run.manifest, seconds=_alone(run.manifest, overhead, answers), resumed=resumed, fresh=fresh)

    def _opened(self, cell: Cell, folder: Path) -> Run:
        """The cell's run: the one that was begun, or a new one."""
        place = folder / RUN
        if Workspace(place).is_run:
            return Run.open(place)
        # A process that died before the manifest was written spent nothing.
        for rest in (place, folder / LEDGER):
            shutil.rmtree(rest, ignore_errors=True)
        return Run.create(self.config(cell), name=RUN, ledger=folder / LEDGER)

    def _shared(self, cell: Cell, llm: str) -> SharedAnswers:
        # By the seed of the run, which is the split's unless it is set: then all splits share their answers.
        seed = int(cell.settings.get("seed", cell.seed))
        place = (cell.data, seed, llm)
        if place not in self._answers:
            if llm not in self._models:
                self._models[llm] = self.open_model(llm)
            # By the schema, not the rows: what models are asked before a choice does not depend on these.
            name = f"{cell.data}-{self.split(cell).schema.fingerprint()[:8]}-{seed}-{slug(llm)}"
            self._answers[place] = SharedAnswers(self.root / "answers", name, self._models[llm], self.encoder)
        return self._answers[place]

    def _measured(self, cell: Cell, split: Split, folder: Path) -> list[Measure]:
        run = folder / RUN
        if cell.method != "dpds":
            return self.judge.release(split, run, split.private(cell.private))
        rows = self.judge.rows(split)
        if torch_is_here():
            scores = np.array(classifier_scores(run, rows), dtype=np.float64)
        elif self.train is not None:
            scores = self.train.scores(run, split.schema, rows, self.cancel)
        else:
            raise ConfigError(self.refusal(cell))
        return self.judge.classifier(split, scores, "dp-ds")


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Whether this process has the cell now; False while another one works on it."""
    from filelock import FileLock, Timeout

    make_folder(folder)
    lock = FileLock(folder / "lock", mode=FILE_MODE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _told(
    manifest: Mapping[str, Any], *, seconds: float | None, resumed: bool, fresh: int | None = None
) -> dict[str, Any]:
    """What a finished run says about itself. `seconds` is what it would take alone."""
    counts = manifest.get("counts", {})
    return {
        "run": {
            "records": manifest.get("records"), "spent": manifest.get("spent"), "private": manifest.get("private"),
            "prompt_tokens": counts.get("prompt_tokens"), "completion_tokens": counts.get("completion_tokens"),
            "fresh_tokens": fresh, "seconds": None if seconds is None else round(seconds, 1), "resumed": resumed,
            "guide": manifest.get("guide"), "bundle": manifest.get("bundle"), "versions": manifest.get("versions"),
            "chosen": manifest.get("chosen"),
        }
    }  # fmt: skip


def _alone(manifest: Mapping[str, Any], overhead: float, answers: SharedAnswers) -> float | None:
    """The time without anybody else's answers: all of the run's tokens at the speed at which new ones came."""
    tokens = manifest.get("counts", {}).get("completion_tokens", 0)
    if not tokens:
        return overhead
    speed = answers.tokens_per_second
    return None if speed is None else overhead + tokens / speed
