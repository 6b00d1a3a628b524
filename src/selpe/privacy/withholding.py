"""A seal around code that sees private rows: its result comes out, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from selpe.errors import ModelError

T = TypeVar("T")


def sealed(work: Callable[[], T], who: str) -> T:
    """What `work` returns. Should it fail, an error that says so and carries nothing of what `work` saw."""
    name, interrupted = "", False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning can quote a value just as an exception can
        try:
            return work()
        except KeyboardInterrupt:
            interrupted = True
        except BaseException as error:
            name = f" ({type(error).__name__})" if type(error).__module__ == "builtins" else ""
    # Raised here and not above: `from None` would still leave the first error, its message and its frames attached.
    if interrupted:
        raise KeyboardInterrupt
    raise ModelError(
        f"{who} failed on private rows{name}; what it said is withheld, because it may quote them",
        hint="run the same step on made-up records to see its message",
    )
