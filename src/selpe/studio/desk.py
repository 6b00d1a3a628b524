"""The commands that the page has started: a check, a sample, a run, its evaluation. One of each kind at a time."""

from __future__ import annotations

import secrets
import tempfile
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from selpe.errors import RunError
from selpe.run.lifecycle import list_runs
from selpe.run.manifest import is_worked_on
from selpe.run.workspace import Workspace
from selpe.studio.child import Child

Task = Literal["check", "preview", "run", "evaluate"]
_FREE: tuple[Task, ...] = ("check", "preview")  # of no use without the page

_SHOWN = 4  # records of a sample


class CommandDesk:
    """Starts commands on one settings file, and tells how they stand."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._children: dict[Task, Child] = {}
        self._about: dict[Task, str] = {}
        self._lock = threading.Lock()
        self._logs = tempfile.TemporaryDirectory(prefix="selpe-studio-", ignore_cleanup_errors=True)

    def check(self) -> None:
        """Starts `selpe check`."""
        self._start("check", ["check", str(self._config)], "")

    def preview(self) -> None:
        """Starts `selpe preview`: a sample, and whether the model will do."""
        self._start("preview", ["preview", str(self._config), "--count", str(_SHOWN)], "")

    def run(self, dataset: str) -> str:
        """Starts `selpe run`, and returns the name of the run."""
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        name = f"{dataset}-{stamp}-{secrets.token_hex(2)}"
        self._start("run", ["run", str(self._config), "--yes", "--name", name], name)
        return name

    def resume(self, folder: Path) -> None:
        """Starts `selpe resume`."""
        self._start("run", ["resume", str(folder)], folder.name)

    def evaluate(self, folder: Path, test: str) -> None:
        """Starts `selpe evaluate`."""
        more = ["--test", test] if test else []
        self._start("evaluate", ["evaluate", str(folder), *more], folder.name)

    def stop(self, task: Task) -> None:
        """Asks a command to stop, or to stop at once where it was asked before."""
        child = self._children.get(task)
        if child is None or not child.running:
            raise RunError("nothing is running that could be stopped")
        child.stop()

    def active_run(self) -> tuple[str, int] | None:
        """The run that is at work, and its process."""
        child = self._children.get("run")
        return (self._about["run"], child.pid) if child is not None and child.running else None

    def as_dict(self) -> dict[str, Any]:
        """How everything stands, as plain data."""
        found: dict[str, Any] = {}
        for task, child in list(self._children.items()):
            found[task] = {"about": self._about[task], **child.as_dict()}
        if "check" in found:
            found["check"]["findings"] = self._children["check"].last("findings") or []
        if "preview" in found:
            child = self._children["preview"]
            found["preview"]["grade"] = child.last("grade")
            found["preview"]["records"] = [line["record"] for line in child.said() if "record" in line]
        if "evaluate" in found:
            found["evaluate"]["progress"] = self._children["evaluate"].last("progress")
        return found

    def close(self) -> None:
        """Ends what is of no use without the page. A run goes on, and so does an evaluation."""
        for task in _FREE:
            if (child := self._children.get(task)) is not None and child.running:
                child.stop()
                child.wait(5.0)
        self._logs.cleanup()

    def _start(self, task: Task, words: list[str], about: str) -> None:
        with self._lock:
            child = self._children.get(task)
            if child is not None and child.running:
                raise RunError(f"'{task}' is running already", hint="wait for its end, or stop it")
            log = Path(self._logs.name) / f"{task}-{secrets.token_hex(4)}.jsonl"
            try:
                self._children[task] = Child(words, log)
            except OSError as error:
                raise RunError(f"the command cannot be started ({error.strerror})") from None
            self._about[task] = about


def runs_in(out: Path) -> list[dict[str, Any]]:
    """The runs of a folder for the page, the newest first."""
    found = []
    for manifest in list_runs(out):
        folder = Path(manifest["folder"])
        place, state = Workspace(folder), str(manifest.get("state", "?"))
        if state == "running" and not is_worked_on(folder):
            state = "interrupted"
        found.append(
            {
                "name": manifest["name"], "state": state, "records": manifest.get("records"),
                "epsilon": manifest["settings"].get("epsilon"), "created": manifest.get("created"),
                "seconds": manifest.get("seconds"), "private": manifest.get("private"),
                "model": manifest.get("model") or manifest["settings"].get("llm"),
                "judged": place.internal.report.is_file(), "folder": str(folder),
            }
        )  # fmt: skip
    return sorted(found, key=lambda run: str(run["created"]), reverse=True)
