"""Methods that train a model: in this process where torch is here, else in another interpreter that has it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import selpe
from selpe.errors import ConfigError, RunError, StoppedError
from selpe.owner_only import open_bytes, write_text
from selpe.processes import OWN_GROUP, PLEASE_STOP
from selpe.run.workspace import Workspace
from selpe.schema import Record, Schema

NEEDED = ("torch", "transformers", "peft")
_SAID = 600  # letters of another interpreter's complaint that are worth showing
_LOOK_EVERY = 0.5  # seconds


def torch_is_here() -> bool:
    """Whether this process can train."""
    return all(find_spec(name) is not None for name in NEEDED)


@dataclass(frozen=True, slots=True)
class TrainPython:
    """An interpreter with torch. A run that was created here is finished there, as `selpe resume` would."""

    path: Path

    def require(self) -> None:
        """Raises ConfigError where the interpreter cannot do the work."""
        wanted = ", ".join((*NEEDED, "selpe"))
        try:
            done = subprocess.run(
                [str(self.path), "-c", f"import {wanted}"],
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise ConfigError(f"cannot be started ({error.strerror})", where=f"--train-python {self.path}") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            hint = "install selpe[train] there; `make test-train` makes such an environment in .venv-train"
            raise ConfigError(f"this interpreter cannot train: {last}", where=f"--train-python {self.path}", hint=hint)

    def finish(self, run: Path, cancel: threading.Event | None) -> None:
        """Does a run to its end."""
        self._do(["-m", "selpe", "--json", "resume", str(run)], run, cancel)

    def scores(
        self, run: Path, schema: Schema, records: list[Record], cancel: threading.Event | None
    ) -> NDArray[np.float64]:
        """What the classifier of a run of DP-DS says about records."""
        work = Workspace(run).work
        asked, answered = work.judged, work.scores
        write_text(asked, "".join(schema.dumps(record) + "\n" for record in records))
        self._do(["-m", "selpe.experiments.classify", str(run), str(asked), str(answered)], run, cancel)
        return np.array(json.loads(answered.read_text(encoding="utf-8")), dtype=np.float64)

    def _do(self, words: list[str], run: Path, cancel: threading.Event | None) -> None:
        """Runs a command there; its output goes into the run's folder. A stop that is asked for is handed on."""
        log = Workspace(run).work.train_log
        with open_bytes(log, "ab") as said:
            process = subprocess.Popen(
                [str(self.path), *words], env=_environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True, creationflags=OWN_GROUP,
            )  # fmt: skip
            try:
                while process.poll() is None:
                    if cancel is not None and cancel.is_set():
                        process.send_signal(PLEASE_STOP)
                        process.wait()
                        break
                    try:
                        process.wait(_LOOK_EVERY)
                    except subprocess.TimeoutExpired:
                        continue
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if cancel is not None and cancel.is_set():
            raise StoppedError("stopped", where=run.parent.name)
        if process.returncode:
            raise RunError("the training failed", where=str(run), hint=_complaint(log))


def _complaint(log: Path) -> str:
    """The last thing that the other interpreter said."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        try:
            error = json.loads(line).get("error")
        except (ValueError, AttributeError):
            continue
        if error:
            told = [str(error.get(part) or "") for part in ("where", "message", "hint")]
            return "; ".join(filter(None, told))[:_SAID]
    return (lines[-1] if lines else f"see {log}")[:_SAID]


def _environment() -> dict[str, str]:
    """Our own environment, with this very package in reach of the other interpreter."""
    home = str(Path(selpe.__file__).resolve().parents[1])
    before = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [home, before]))}
