"""The settings that a client may choose: a part of a run's own, by a list of what is open, so that new ones are closed.

No path, no address, no other data set: what is read and where it goes is the server's affair. Models and encoders are
chosen by the names that the operator gave them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from selpe.config import RunConfig, check_config
from selpe.config.methods import AugPESettings
from selpe.errors import ConfigError
from selpe.serve.limits import Operator
from selpe.serve.store import StoredTable

READING = ("unit", "encoding", "delimiter", "day_first", "decimal", "skip_bad_rows", "blank_bad_cells")
OPEN = (
    *READING,
    "method", "delta", "adjacency", "records", "rows", "quotas", "class_sizes",
    "rounds", "batches", "alpha", "multiplicity", "mechanism", "votes", "epsilon_schedule",
    "guides", "guide_sample", "bundles", "contrast", "quota", "stages", "kernel", "inclusion", "explore", "exemplars",
    "temperature", "record_temperature", "attempts", "seed",
)  # fmt: skip
_STRICT = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, frozen=True, allow_inf_nan=False)
_LARGEST = 2**53
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _plain(content: Any) -> Any:
    """The content, where every text can be written down and every number is one that all machines agree on."""
    match content:
        case str():
            if any("\ud800" <= character <= "\udfff" for character in content):
                raise ValueError("text must be Unicode")
        case int() | float():
            if not abs(content) <= _LARGEST:  # also refuses nan
                raise ValueError("a number must be within ±2⁵³")
        case Mapping():
            for name, value in content.items():
                _plain(name), _plain(value)
        case list():
            for value in content:
                _plain(value)
    return content


def _taken(*names: str) -> dict[str, Any]:
    """The fields of a run's settings, as they are."""
    return {name: (RunConfig.model_fields[name].annotation, copy(RunConfig.model_fields[name])) for name in names}


class StrictAugPE(AugPESettings):
    """Aug-PE: private evolution of texts."""

    model_config = ConfigDict(strict=True)


if TYPE_CHECKING:

    class ReadingSettings(BaseModel):
        """How to read a table."""

    class RunSettings(BaseModel):
        """What to do with a table."""

        llm: str | None
        encoder: str | None
        epsilon: float
        budget: float | None
        records: int
else:
    _CHECKS = {"plain": model_validator(mode="before")(_plain)}
    ReadingSettings = create_model("ReadingSettings", __config__=_STRICT, __validators__=_CHECKS, **_taken(*READING))
    RunSettings = create_model(
        "RunSettings",
        __config__=_STRICT,
        __validators__=_CHECKS,
        **_taken(*OPEN),
        # ε = ∞ is a control without a guarantee; a server has none to offer.
        epsilon=(float, Field(2.0, ge=0.0, description=RunConfig.model_fields["epsilon"].description)),
        budget=(float | None, Field(None, gt=0.0, description=RunConfig.model_fields["budget"].description)),
        augpe=(StrictAugPE, Field(StrictAugPE(), description=RunConfig.model_fields["augpe"].description)),
        llm=(str | None, Field(None, pattern=_NAME, description="One of the server's models; default: its first.")),
        encoder=(str | None, Field(None, pattern=_NAME, description="One of its encoders; default: its first.")),
    )


def run_config(settings: RunSettings, table: StoredTable, operator: Operator, out: str) -> RunConfig:
    """A run's whole settings: the client's part, and the server's."""
    asked = settings.model_dump(exclude_unset=True)
    asked |= {
        "llm": _named(settings.llm, operator.models, "model"),
        "encoder": _named(settings.encoder, operator.encoders, "encoder"),
    }
    _within(settings, operator)
    places = {"dataset": table.name, "data": str(table.data), "schema": str(table.schema), "out": out}
    return check_config({**asked, **places}, where="settings")


def aliases(settings: RunSettings, operator: Operator) -> dict[str, str]:
    """The names by which the client knows the model and the encoder of a run."""
    llm, encoder = settings.llm or next(iter(operator.models)), settings.encoder or next(iter(operator.encoders))
    return {"llm": llm, "encoder": encoder}


def _named(name: str | None, known: Any, what: str) -> str:
    if name is None:
        name = next(iter(known))
    if name not in known:
        raise ConfigError(f"this server has no {what} of that name", where=what, hint=f"it has {', '.join(known)}")
    return str(known[name])


def _within(settings: RunSettings, operator: Operator) -> None:
    limits = operator.limits
    if settings.records > limits.records:
        raise ConfigError(f"a run on this server may write at most {limits.records:,} records", where="records")
    for name in ("epsilon", "budget"):
        if (getattr(settings, name) or 0.0) > limits.epsilon:
            raise ConfigError(f"must be at most {limits.epsilon:g} on this server", where=name)
