"""The child process that does one run. It lives as long as the server holds its standard input open.

A server that lets go, on purpose or by dying, ends the run cleanly: answers, charges and choices are on the disk before
they are used, so what is done is kept, and the run can be resumed. A run that cannot end by itself any more is killed.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.errors import ExitCode, SelPEError, StoppedError
from selpe.processes import end_with_parent, stop_when_let_go
from selpe.run.workspace import Workspace
from selpe.serve.store import write_json

if TYPE_CHECKING:
    from selpe.run.lifecycle import Run

KILLED_AFTER = 2.0  # seconds after its time to stop is over


def main() -> None:
    """Does the run of the folder named on the command line; leaves what stopped it beside it."""
    folder, patience = Path(sys.argv[1]), float(sys.argv[2])
    end_with_parent(patience + 2 * KILLED_AFTER)  # a server that lives comes first, and says so
    cancel = threading.Event()
    stop_when_let_go(cancel, patience)
    sys.exit(work(folder, cancel))


def work(folder: Path, cancel: threading.Event) -> int:
    """The exit code of a run that was done, or went on with."""
    from selpe.run.lifecycle import Run

    try:
        _execute(Run.open(folder), cancel)
    except StoppedError:
        return ExitCode.INTERRUPTED
    except SelPEError as error:
        write_json(Workspace(folder).work.ended, error.as_dict())
        return error.exit_code
    except Exception as error:  # of a foreign error its kind alone, for its message may quote a cell
        said = {"kind": "bug", "message": f"an unexpected {type(error).__name__}", "where": "", "hint": ""}
        write_json(Workspace(folder).work.ended, said)
        return ExitCode.FAILED
    return ExitCode.DONE


def _execute(run: Run, cancel: threading.Event) -> None:
    from selpe.run.session import opened

    run.begin()
    with opened(run.config) as session:
        run.execute(**session.parts(), cancel=cancel)


if __name__ == "__main__":
    main()
