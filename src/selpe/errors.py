"""Every error a user can meet: what is wrong, where it is, and what to do about it.

No error carries a private value. Messages name a file, a row and a field, and say what was expected there;
they never quote what was found.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """'Did you mean …? ' with the nearest of the names that are known, for the start of a hint; '' where none is near.

    For names that are public: of settings, fields, models, runs.
    """
    from difflib import get_close_matches

    by_folded = {one.casefold(): one for one in known}
    near = get_close_matches(str(name).casefold(), by_folded, n=1)
    return f"Did you mean '{by_folded[near[0]]}'? " if near else ""


class ExitCode(IntEnum):
    """What the command line returns to the shell."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    BUDGET_REFUSED = 3
    INTERRUPTED = 130


class SelPEError(Exception):
    """The root of our errors: a message for people, a hint on what to do, and an exit code for machines."""

    exit_code: ExitCode = ExitCode.FAILED
    kind: str = "error"

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    @property
    def said(self) -> str:
        """What is wrong and where, for who shows the hint in another place."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def __str__(self) -> str:
        return f"{self.said}\n  what to do: {self.hint}" if self.hint else self.said

    def as_dict(self) -> dict[str, str]:
        """The error as plain data, for `--json`."""
        return {"kind": self.kind, "message": self.message, "where": self.where, "hint": self.hint}


class SchemaError(SelPEError):
    """A schema that cannot be read, or that contradicts itself."""

    exit_code = ExitCode.BAD_INPUT
    kind = "schema"


class UnconfirmedSchemaError(SchemaError):
    """A schema drafted from private data that no person has confirmed as public yet."""

    kind = "schema-unconfirmed"


class DataError(SelPEError):
    """A table that cannot be read, or whose cells do not fit the schema (row and field, never the value)."""

    exit_code = ExitCode.BAD_INPUT
    kind = "data"


class InferredTypesWarning(UserWarning):
    """A frame whose columns were typed by looking at all rows: one row may have changed how others were read."""


class ConfigError(SelPEError):
    """A setting that is missing, misspelt or out of range."""

    exit_code = ExitCode.BAD_INPUT
    kind = "config"


class ModelError(SelPEError):
    """A language model or encoder that did not do its work; `retryable` says whether trying again can help."""

    kind = "model"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        where: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint, where=where)
        self.retryable = retryable
        self.retry_after = retry_after


class ModelNotFoundError(ModelError):
    """Weights that are neither in the store nor available from any source."""

    exit_code = ExitCode.BAD_INPUT
    kind = "model-not-found"


class PromptTooLongError(ModelError):
    """A prompt that does not fit the model's context window."""

    exit_code = ExitCode.BAD_INPUT
    kind = "prompt-too-long"


class BudgetError(SelPEError):
    """A request that would spend more privacy budget than is left, or on rows known elsewhere. It is not charged."""

    exit_code = ExitCode.BUDGET_REFUSED
    kind = "budget"


class LedgerError(SelPEError):
    """A ledger that is torn, edited or locked: spending stops until a person has looked at it."""

    exit_code = ExitCode.BUDGET_REFUSED
    kind = "ledger"


class AuditError(SelPEError):
    """An audit log that is damaged, cut off or cannot be written: what it would tell of is not done."""

    exit_code = ExitCode.BAD_INPUT
    kind = "audit"


class PrivacyError(SelPEError):
    """A request that would break the privacy boundary."""

    exit_code = ExitCode.BAD_INPUT
    kind = "privacy"


class RunError(SelPEError):
    """A run folder that cannot be used, or a run that cannot go on."""

    kind = "run"


class NotFittedError(RunError, ValueError, AttributeError):
    """Something was asked of a SelPE that only a fitted one has. ValueError and AttributeError as in scikit-learn."""

    kind = "not-fitted"


class StoppedError(RunError):
    """A run that its owner asked to stop. What was finished is kept, and it can be resumed."""

    exit_code = ExitCode.INTERRUPTED
    kind = "stopped"
