"""What the operating system refuses, such as room on a disk, as an error that says what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selpe.errors import RunError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    getattr(errno, "EDQUOT", -1): "this user's share of the disk is full",
    errno.EFBIG: "a file would become larger than the system allows",
    errno.EROFS: "the disk can only be read",
    errno.EACCES: "this user may not read or write here",
    errno.EPERM: "this user may not read or write here",
    errno.EIO: "the disk reports an error",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOMEM: "there is not enough memory",
}


def refusal(error: OSError | MemoryError, *, where: str = "", hint: str = "") -> RunError:
    """Our error for the system's. Of a foreign message only what the system itself says is repeated."""
    if isinstance(error, MemoryError):
        said, path = _REASONS[errno.ENOMEM], ""
        hint = hint or "give the process more memory, or ask for less at once: fewer records, another model"
    else:
        told = f"the system reports: {error.strerror}" if error.errno and error.strerror else type(error).__name__
        said = _REASONS.get(error.errno or 0, told)
        path = error.filename if isinstance(error.filename, str) else ""
    return RunError(said, where=path or where, hint=hint)


@contextmanager
def plainly(folder: Path) -> Iterator[None]:
    """Says in our words what the system refused to work on a run. What was finished by then is kept."""
    try:
        yield
    except (OSError, MemoryError) as error:
        hint = f"see to it, and then go on: selpe resume {folder}"
        raise refusal(error, where=str(folder), hint=hint) from None
