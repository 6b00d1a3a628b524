"""Progress of a fetch on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from selpe.cli.console import err

if TYPE_CHECKING:
    from rich.progress import TaskID

    from selpe.models.store.download import Progress, Step

_QUARTER = 4
_WIDTH = 20  # of a file's name, so that the bar fits on a line of 80 characters


@contextmanager
def fetch_bar() -> Iterator[Progress]:
    """A progress callback for `ModelStore.ensure`, shown while the block runs."""
    if not err().is_terminal:
        yield _lines()
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
    with Progress(*columns, console=err()) as bar:
        tasks: dict[str, TaskID] = {}

        def show(step: Step) -> None:
            if step.file not in tasks:
                tasks[step.file] = bar.add_task(step.file, total=step.total or None)
                err().print(f"[dim]{step.file}{f' from {step.source}' if step.source else ''}[/]")
            words = step.note or step.file[:_WIDTH]
            bar.update(tasks[step.file], completed=step.done, total=step.total or None, description=words)

        yield show


def _lines() -> Callable[[Step], None]:
    """A line when a file starts, and at each quarter of it: few enough for a log."""
    told: dict[tuple[str, str], int] = {}

    def show(step: Step) -> None:
        quarter = _QUARTER * step.done // step.total if step.total else 0
        key = (step.file, step.note or step.source)
        if told.get(key, -1) >= quarter:
            return
        told[key] = quarter
        if step.note:
            err().print(f"{step.file}: {step.note}", markup=False)
        else:
            size = f"{step.done / 1e6:,.1f} of {step.total / 1e6:,.1f} MB"
            err().print(f"{step.file}: {size} from {step.source}", markup=False)

    return show
