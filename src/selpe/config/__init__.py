"""The settings of a run: YAML file < environment (SELPE_…) < flags, checked once, with errors that name the place."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from selpe.config.execution import Execution, RaySettings
from selpe.config.methods import (
    DEFAULT_DELTA,
    METHODS,
    AimSettings,
    AugPESettings,
    CtclSettings,
    DpDsSettings,
    DpGenSettings,
    MethodName,
    MstSettings,
    WaspSettings,
    is_gaussian,
)
from selpe.config.presets import PAPER, PresetName, without_preset
from selpe.errors import ConfigError, did_you_mean
from selpe.yaml import parse_yaml, place

Adjacency = Literal["replace-one", "add-remove"]
PREFIX = "SELPE_"
RECORDS_A_CLASS = 60  # of a released table: from about so many on, a model learns what was measured
IN_MEMORY = "frame"  # as `data`: a table that has no file
# Environment variables of the same prefix that are not settings of a run.
_OTHER_VARIABLES = frozenset(
    {"ALLOW_FAKE", "API_KEY", "API_KEY_FILE", "CACHE", "KEY", "LEDGER", "LOCAL_SERVERS", "MODELS", "OFFLINE"}
)


class RunConfig(BaseModel):
    """What a run needs to know. Every default is the safe or the measured choice."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True, validate_default=True)

    dataset: str = Field(
        min_length=1,
        max_length=80,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="The owner's name for the private table; its budget is kept under this name.",
    )
    data: str = Field(min_length=1, description="The private table: a file, or an SQLAlchemy URL with `query`.")
    query: str | None = Field(None, description="The SQL query, when `data` is a database URL.")
    sheet: str | None = Field(None, description="The sheet, when `data` is a workbook with several.")
    encoding: str | None = Field(None, description="The file's text encoding; `selpe init` looks once and writes it.")
    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="What separates the cells of a text file; else the header tells."
    )
    day_first: bool | None = Field(None, description="Whether 03/04/2024 is the third of April.")
    decimal: Literal[".", ","] | None = Field(None, description="The decimal mark, where numbers are ambiguous.")
    skip_bad_rows: bool = Field(False, description="Let rows that do not fit abstain, instead of stopping.")
    blank_bad_cells: bool = Field(False, description="Read cells that do not fit as missing, in optional fields.")
    test: str | None = Field(None, description="A public or held-out table to evaluate on, never used to synthesise.")
    data_schema: str = Field("schema.yaml", alias="schema", description="The schema file.")
    unit: str | None = Field(None, description="The column that says whose record it is: the guarantee is per person.")
    rows: int | None = Field(
        None,
        ge=1,
        description="The number of records (or people, with `unit`) as public knowledge; the plan is made from it.",
    )

    method: MethodName = Field("selpe", description="Ours, or a baseline to compare with (docs/baselines.md).")
    preset: PresetName | None = Field(
        None,
        exclude=True,  # what is stored of a run is what a preset stands for
        description="Settings under one name, over which settings given beside it win. 'paper' is our method as in the "
        "paper: " + ", ".join(f"`{name}: {value}`" for name, value in PAPER.items()) + ".",
    )
    epsilon: float = Field(2.0, description="The privacy budget ε of this run; 0 and .inf are controls.")
    delta: float = Field(
        0.0, ge=0.0, lt=0.5, description="δ; 0 means pure differential privacy. Baselines with a δ: 1e-5 if not given."
    )
    adjacency: Adjacency = Field("replace-one", description="The neighbour relation that ε is meant under.")
    budget: float | None = Field(
        None, description="The cap on all spending on this data set; default: ε of the first run."
    )

    same_data_new_ledger: bool = Field(
        False, description="The owner's word that rows known under another name may be spent on again; recorded."
    )

    records: int = Field(
        300, ge=1, le=10_000_000, description="How many synthetic records to write (N); more cost no ε."
    )
    core: int = Field(
        3000,
        ge=1,
        description="The most records that private choices are made on; further ones follow them (scale.md).",
    )
    quotas: dict[str, float] | None = Field(None, description="Public share of each class; default: equal shares.")
    class_sizes: dict[str, int] | None = Field(
        None,
        description="Private rows per class, only if they are public knowledge; helps the planner.",
    )

    rounds: int | None = Field(None, ge=1, le=50, description="T; default: the planner's choice.")
    batches: int | None = Field(None, ge=1, le=1000, description="b, winners per class and round; default: the plan's.")
    alpha: float | None = Field(None, gt=0.0, lt=1.0, description="Approval share α; default: the plan's.")
    multiplicity: int = Field(3, ge=1, le=50, description="K: candidates per record kept.")
    mechanism: Literal["permute-and-flip", "exponential"] = Field("permute-and-flip", description="How to select.")
    votes: Literal["approval", "closeness", "prototype"] = Field("approval", description="How a row votes on records.")
    epsilon_schedule: Literal["uniform", "increasing"] = Field("uniform", description="How ε is split over rounds.")

    guides: Literal["auto", "mixed", "off"] | list[str] = Field(
        "auto",
        description="Prompt variants to vote on before round 1: ours, or ours and your own texts. 'mixed' takes ours "
        "in turn without that vote, 'off' takes one.",
    )
    guide_sample: int = Field(10, ge=1, le=100, description="Records per class by which a guide is judged.")
    bundles: int = Field(128, ge=0, le=512, description="Candidate release sets to vote on at the end; 0: off.")
    measure: Literal["auto", "off"] | list[str | list[str]] = Field(
        "auto",
        description="Tables of noisy counts to write into records: 'auto' lets private rows vote for fields, or takes "
        "all where rows and ε allow; a list names fields, and pairs of them as [one, other] (measuring.md).",
    )
    contrast: bool = Field(True, description="Show contrasts of winners as negative exemplars.")
    quota: Literal["progressive", "uniform"] = Field("progressive", description="How records spread over rounds.")
    stages: Literal[1, 2] = Field(2, description="2: context, then record; 1: the record at once (ablation).")
    kernel: Literal["fields", "global"] = Field("fields", description="'global' drops the field channels (ablation).")
    inclusion: Literal["centre", "diverse"] = Field("diverse", description="Which candidates enter the table.")
    explore: float = Field(1 / 3, ge=0.0, le=1.0, description="Share of each pool proposed without exemplars.")
    exemplars: int = Field(2, ge=0, le=8, description="Winners and contrasts shown to the model, of each.")
    temperature: float = Field(1.0, ge=0.0, le=3.0, description="τ of stage I (the paper: 1.2).")
    record_temperature: float = Field(0.7, ge=0.0, le=3.0, description="τ of stage II.")
    attempts: int = Field(6, ge=1, le=50, description="Tries per candidate before it is given up.")

    llm: str = Field(
        "auto",
        description="A model name, a GGUF path, hf:org/name, or a server's URL. 'auto' takes the largest model that is "
        "here and that this machine runs in time (models.md).",
    )
    llm_minutes: float = Field(
        30.0, gt=0.0, description="How long a run may take with a model that `llm: auto` chooses, in minutes."
    )
    encoder: str = Field("minilm", description="minilm, hash, st:name, or an embeddings URL.")
    allow_private_text_to: str | None = Field(None, description="The one host that private text may be sent to.")
    price_in: float | None = Field(None, ge=0.0, description="A server's price per million prompt tokens.")
    price_cached: float | None = Field(
        None, ge=0.0, description="A server's price per million prompt tokens that it has cached; default: `price_in`."
    )
    price_out: float | None = Field(None, ge=0.0, description="A server's price per million written tokens.")
    execute: Execution = Field(
        "local", description="Where records are written: here, or on a Ray cluster (cluster.md)."
    )
    ray: RaySettings = Field(RaySettings(), description="Workers of `execute: ray`.")
    seed: int = Field(0, ge=0, description="Makes everything but the private noise repeatable.")
    out: str = Field("runs", description="The folder that run folders are written to.")

    augpe: AugPESettings = Field(AugPESettings(), description="Settings of the baseline `augpe`.")
    wasp: WaspSettings = Field(WaspSettings(), description="Settings of the baseline `wasp`.")
    ctcl: CtclSettings = Field(CtclSettings(), description="Settings of the baseline `ctcl`.")
    dpgen: DpGenSettings = Field(DpGenSettings(), description="Settings of the baseline `dpgen`.")
    dpds: DpDsSettings = Field(DpDsSettings(), description="Settings of the baseline `dpds`.")
    aim: AimSettings = Field(AimSettings(), description="Settings of the baseline `aim`.")
    mst: MstSettings = Field(MstSettings(), description="Settings of the baseline `mst`.")

    @field_validator("llm", "encoder")
    @classmethod
    def _no_secret(cls, value: str) -> str:
        if any(tells_a_secret(address) for address in value.split(",")):
            raise ValueError("an address must not contain a user name, password or key: put it into SELPE_API_KEY")
        return value

    @field_validator("epsilon")
    @classmethod
    def _epsilon(cls, value: float) -> float:
        if math.isnan(value) or value < 0:
            raise ValueError("epsilon must be 0 or above")
        return value

    @property
    def llms(self) -> tuple[str, ...]:
        """The models that a run of these settings uses, its own first."""
        return (self.llm, *self.wasp.models) if METHODS[self.method].several_models else (self.llm,)

    @model_validator(mode="before")
    @classmethod
    def _as_preset(cls, content: Any) -> Any:
        return without_preset(content) if isinstance(content, Mapping) else content

    @model_validator(mode="before")
    @classmethod
    def _default_delta(cls, content: Any) -> Any:
        method = METHODS.get(str(content.get("method"))) if isinstance(content, Mapping) else None
        if method is None:
            return content
        if method.free:  # whatever is said elsewhere for methods that spend
            return {**content, "epsilon": 0.0, "delta": 0.0}
        return {"delta": DEFAULT_DELTA, **content} if method.takes_delta else content

    @model_validator(mode="after")
    def _needs_delta(self) -> RunConfig:
        if is_gaussian(self.method) and self.delta == 0:
            raise ValueError(f"{self.method} adds Gaussian noise, which needs a delta above 0")
        return self


def tells_a_secret(address: str) -> bool:
    """Whether an address carries what should be kept out of manifests, logs and messages."""
    if "://" not in address:
        return False
    try:
        parts = urlsplit(address.strip())
    except ValueError:
        return False
    asked = parse_qsl(parts.query, keep_blank_values=True)
    return "@" in parts.netloc or any(re.search(r"key|token|secret|passw|sig$", name.lower()) for name, _ in asked)


def load_config(
    path: Path, *, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> RunConfig:
    """The settings of a file, overridden by the environment, overridden by flags; relative paths made absolute.

    A preset overrides what its own place overrides: one of the flags wins over the file, but not over other flags.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("there is no such file", where=str(path), hint="`selpe init data.csv` writes one") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError("the file must be readable text in UTF-8", where=str(path)) from None
    content = parse_yaml(text, where=path.name, error=ConfigError)
    if not isinstance(content, Mapping):
        raise ConfigError("a configuration must be a mapping of settings", where=path.name)
    merged = dict(content)
    for more in (_from_environment(os.environ if environment is None else environment), flags or {}):
        given = without_preset({key: value for key, value in more.items() if value is not None})
        for key, value in given.items():
            # A group is completed, not replaced: `--set wasp.votes=4` leaves the file's other wasp settings alone.
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = {**merged[key], **value} if both else value
    return _resolved(check_config(merged, where=path.name, places=content), path.resolve().parent)


def check_config(content: Mapping[str, Any], *, where: str, places: Any = None) -> RunConfig:
    """Plain settings as a checked object."""
    try:
        return RunConfig.model_validate(dict(content))
    except ValidationError as invalid:
        first = invalid.errors(include_input=False, include_url=False)[0]
        at = place(content if places is None else places, [str(part) for part in first["loc"]], where)
        meant = did_you_mean(first["loc"][-1], _known(first["loc"])) if first["type"] == "extra_forbidden" else ""
        raise ConfigError(_said(first), where=at, hint=f"{meant}docs/configuration.md lists every setting") from None


def _known(place: Sequence[int | str]) -> list[str]:
    """The names of the settings beside the one at a place."""
    fields = RunConfig.model_fields
    for part in place[:-1]:
        group = fields[str(part)].annotation if str(part) in fields else None
        fields = getattr(group, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings given as SELPE_NAME=value; values are read as YAML scalars."""
    found: dict[str, Any] = {}
    for key, text in environment.items():
        name = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and name not in _OTHER_VARIABLES:
            found[name.lower()] = parse_yaml(text, where=key, error=ConfigError)
    return found


def _resolved(config: RunConfig, base: Path) -> RunConfig:
    """Paths are relative to the configuration file, wherever the command is run."""
    changes: dict[str, str] = {}
    for name in ("data", "test", "data_schema", "out"):
        value = getattr(config, name)
        if value is not None and "://" not in value:
            changes[name] = str(base / Path(value).expanduser())
    return config.model_copy(update=changes)


def _said(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"there is no setting '{error['loc'][-1]}'"
    if error["type"] == "missing":
        return f"'{error['loc'][-1]}' must be given"
    return str(error["msg"]).replace("Input should", "this must").replace("Value error, ", "")
