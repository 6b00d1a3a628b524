"""The paper's structured view `tabstar`: the PyPI package of that name, in its own environment.

It wants an older transformers than we do, so it never shares our process: records go to `tabstar_worker.py`, run by
that environment's Python, through a pipe.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from selpe.errors import ModelError
from selpe.evaluation.views.base import Chances, Records, Tick, View
from selpe.evaluation.views.values import number_of
from selpe.schema import Field, Schema, Value

PACKAGE = "tabstar==1.2.2"
VARIABLE = "SELPE_TABSTAR_PYTHON"
_WORKER = Path(__file__).with_name("tabstar_worker.py")


def environment_folder() -> Path:
    """Where the environment lives unless the variable SELPE_TABSTAR_PYTHON names another Python."""
    from selpe.models.store.store import cache_folder

    return cache_folder() / "tabstar"


def environment_python(folder: Path | None = None) -> Path:
    """The Python of TabSTAR's environment, whether it exists or not."""
    if folder is None and (named := os.environ.get(VARIABLE, "")):
        return Path(named).expanduser()
    place = folder or environment_folder()
    return place / "Scripts" / "python.exe" if os.name == "nt" else place / "bin" / "python"


def create_environment(folder: Path | None = None, *, pip_options: Sequence[str] = ()) -> Path:
    """The Python of a new environment with TabSTAR in it (some gigabytes, with torch). Raises ModelError.

    `pip_options` go to pip, for a mirror or for torch without CUDA (`--extra-index-url`, `--find-links`, …).
    """
    place = folder or environment_folder()
    python = environment_python(place)
    steps = [[sys.executable, "-m", "venv", str(place)], [str(python), *_PIP, *pip_options, PACKAGE]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            raise ModelError(f"TabSTAR's environment cannot be made: {last}", where=str(place), hint=_by_hand(place))
    return python


_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--quiet")


def _by_hand(place: Path) -> str:
    python = environment_python(place)
    return f"Make it by hand: {sys.executable} -m venv {place} && {python} -m pip install '{PACKAGE}'"


class TabStarView(View):
    """TabSTAR, fine-tuned on fields. `options` go to its classifier (`max_epochs`, `time_limit`, …)."""

    name, kind = "tabstar", "structured"
    remote = None  # weights come from a hub, but records stay here
    seeded = True  # adapters, batches and the records that stop training are drawn

    def __init__(self, schema: Schema, *, python: Path | None = None, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(schema)
        self._python = python or environment_python()
        self._options = dict(options or {})

    def require(self) -> None:
        """Raises ModelError where the environment or the weights are not available."""
        if not self._python.exists():
            raise ModelError(
                "TabSTAR's environment does not exist",
                where=str(self._python),
                hint=f"{_by_hand(environment_folder())}; or set {VARIABLE} to a Python that has TabSTAR",
            )
        for _ in self._answers({}):
            pass

    def chances(
        self, train: Records, labels: Sequence[str], test: Records, *, seeds: Sequence[int], tick: Tick
    ) -> Iterator[Chances]:
        """p̂ of every test record for each seed, trained one after the other by one worker."""
        with tempfile.TemporaryDirectory(prefix="selpe-tabstar-") as folder:  # for its checkpoints
            job = {
                "label": self._schema.label,
                "kinds": {field.name: field.kind for field in self._fields},
                "train": self._columns(train),
                "labels": list(labels),
                "test": self._columns(test),
                "seeds": list(seeds),
                "options": self._options,
                "folder": folder,
            }
            columns = sorted(set(labels))
            found = 0
            for answer in self._answers(job):
                if "chances" in answer:
                    order = [answer["classes"].index(name) for name in columns]
                    yield np.array(answer["chances"], dtype=np.float64)[:, order]
                    found += 1
                    tick(found / len(seeds))

    def _columns(self, records: Records) -> dict[str, list[Value]]:
        """Values by field, as JSON can hold them."""
        return {field.name: [_sent(field, record.get(field.name)) for record in records] for field in self._fields}

    def _answers(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The worker's answers to a job as they come; a job without records only fetches the weights."""
        with subprocess.Popen(
            # Isolated: without our packages, and without this folder, whose 'tabstar' is not the package.
            [str(self._python), "-I", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what the package prints may quote cells
            env=_surroundings(training=bool(job)),
            text=True,
            encoding="utf-8",
        ) as worker:
            try:
                _send(job, worker.stdin)
                for line in worker.stdout or ():
                    yield _checked(json.loads(line))
            except BaseException:
                worker.kill()
                raise
        if worker.returncode:
            raise ModelError(
                f"TabSTAR's worker ended with status {worker.returncode}", where=str(self._python), hint=_REPAIR
            )


def _sent(field: Field, value: Value) -> Value:
    """A value for the worker: numbers as numbers, all else as text, and nothing for what is missing or unreadable."""
    if value is None:
        return None
    if field.kind in ("integer", "number"):
        number = number_of(value)
        return None if math.isnan(number) else number
    return field.text_of(value)  # yes and no as words: TabSTAR reads meaning into words


_REPAIR = "Check that this Python has TabSTAR (python -m pip show tabstar) and enough memory, or use the view boosted."


def _send(job: Mapping[str, Any], pipe: IO[str] | None) -> None:
    if pipe is None:
        return
    try:
        with pipe:
            json.dump(job, pipe, ensure_ascii=True, allow_nan=False)
    except BrokenPipeError:
        pass  # the worker died early; its status says more


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "weights" in answer:
        raise ModelError(
            f"TabSTAR's weights are not here and cannot be fetched ({answer['error']})",
            where=answer["weights"],
            hint="They come from the Hugging Face hub, which cannot be reached. Fetch them once on a machine with a "
            "network, and copy its Hugging Face cache (HF_HOME) here; or use the view boosted.",
        )
    if "error" in answer:
        raise ModelError(f"TabSTAR failed: {answer['error']} in {answer['place']}", hint=_REPAIR)
    return answer


def _surroundings(*, training: bool) -> dict[str, str]:
    """The worker's environment variables. Only the first job may use the network: a hub that is slow to refuse would
    be asked again at every training.
    """
    from selpe.models.store.store import offline

    return {**os.environ, "HF_HUB_OFFLINE": "1"} if training or offline() else dict(os.environ)
