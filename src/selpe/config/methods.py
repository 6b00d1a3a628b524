"""The settings that only one method has: a small group for each baseline, under its name in the settings file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MethodName = Literal["selpe", "augpe", "wasp", "ctcl", "dpgen", "dpds", "aim", "mst", "prior"]
DEFAULT_DELTA = 1e-5  # of methods that use one, where none is given


@dataclass(frozen=True, slots=True)
class MethodRecord:
    """What is to be known of a method before it is loaded; `module` holds its `RECIPE`.

    `gaussian`: its privacy comes from Gaussian noise, so that it needs a δ above 0. `takes_delta`: it has a δ unless
    the settings say 0. `extra`: the extra that it needs. `free`: it reads no private row and spends nothing.
    `several_models`: it uses the models of its own settings beside `llm`.
    """

    name: MethodName
    module: str
    gaussian: bool = True
    takes_delta: bool = True
    extra: str = ""
    free: bool = False
    several_models: bool = False

    @property
    def trains(self) -> bool:
        """Whether it trains a model on the private rows."""
        return self.extra == "train"


METHODS: dict[str, MethodRecord] = {
    record.name: record
    for record in (
        MethodRecord("selpe", "selpe.run.own_method", gaussian=False, takes_delta=False),
        MethodRecord("augpe", "selpe.baselines.augpe"),
        MethodRecord("wasp", "selpe.baselines.wasp", several_models=True),
        MethodRecord("ctcl", "selpe.baselines.ctcl", extra="train"),
        MethodRecord("dpgen", "selpe.baselines.dpgen", extra="train"),
        MethodRecord("dpds", "selpe.baselines.dpds", extra="train"),
        MethodRecord("aim", "selpe.baselines.marginals", gaussian=False, extra="marginals"),
        MethodRecord("mst", "selpe.baselines.marginals", gaussian=False, extra="marginals"),
        MethodRecord("prior", "selpe.baselines.prior", gaussian=False, takes_delta=False, free=True),
    )
}


def is_gaussian(method: object) -> bool:
    """Whether a method of this name adds Gaussian noise."""
    return method in METHODS and METHODS[str(method)].gaussian


def is_baseline(method: object) -> bool:
    """Whether this is the name of a baseline, and of the group of its settings."""
    return method in METHODS and method != "selpe"


class Group(BaseModel):
    """Settings of one method."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True, validate_default=True)


class AugPESettings(Group):
    """Aug-PE: private evolution of texts."""

    rounds: int = Field(10, ge=1, le=100, description="T, the private looks at the table.")
    expansion: int = Field(7, ge=1, le=50, description="L: each text and L − 1 variations of it stand for election.")
    threshold: float = Field(0.0, ge=0.0, description="H, taken off every noisy count before it is cut at 0.")
    lookahead: int = Field(0, ge=0, le=20, description="Variations whose mean embedding stands for a text; 0: its own.")
    selection: Literal["rank", "prob"] = Field("rank", description="The highest counts, or drawn in proportion.")
    blank: float = Field(0.5, ge=0.0, le=1.0, description="Share of words blanked in a fill-in variation.")
    fill_in: float = Field(0.5, ge=0.0, le=1.0, description="Share of variations that fill in blanks; else rephrase.")
    temperature: float = Field(1.2, ge=0.0, le=3.0, description="Of all texts.")
    keywords: list[str] = Field(default=[], description="Public words to draw from; default: the schema's own.")


class WaspSettings(Group):
    """WASP: contrastive prompts from near and far votes, with several models."""

    rounds: int = Field(4, ge=1, le=100, description="T, the private looks at the table.")
    votes: int = Field(8, ge=1, le=32, description="Q: a row votes for its Q nearest and Q furthest samples.")
    shown: int = Field(8, ge=2, le=64, description="S: samples per class to draw a prompt's examples from.")
    calibration: Literal["tight", "published"] = Field("tight", description="How σ follows from ε; see baselines.md.")
    models: list[str] = Field(default=[], description="Further models beside `llm`, written in the same way.")
    softmax_temperature: float = Field(1.0, gt=0.0, description="Of the models' weights.")
    temperature: float = Field(1.0, ge=0.0, le=3.0, description="Of all texts.")


class TrainingSettings(Group):
    """What all methods that train a model have in common."""

    model: str = Field("smollm2", description="The model to train: its name in the store, hf:org/name, a folder, GGUF.")
    tuning: Literal["lora", "full"] = Field("lora", description="Train low-rank adapters, or all parameters.")
    rank: int = Field(4, ge=1, le=512, description="Of the adapters (LoRA's r).")
    alpha: int = Field(32, ge=1, description="LoRA's α: the adapters count α/r times.")
    layers: int | None = Field(None, ge=1, description="Adapt the last so many layers; default: all. Fewer is faster.")
    steps: int = Field(50, ge=1, le=100_000, description="T: steps over all records, each a look at the table.")
    stretches: int = Field(10, ge=1, le=1000, description="Parts that are charged and saved; a kill costs one at most.")
    clip: float = Field(1.0, gt=0.0, description="The norm that every record's gradient is clipped to.")
    rate: float | None = Field(None, gt=0.0, description="Adam's learning rate; default: by method and tuning.")
    tokens: int = Field(256, ge=8, le=8192, description="The most tokens of a record, read or written.")


class CtclSettings(TrainingSettings):
    """CTCL: topics first, then a small conditional generator."""

    topics: int = Field(10, ge=1, le=20, description="Topics found in records that the public model writes.")
    keywords: int = Field(6, ge=1, le=50, description="Words that stand for a topic in a condition.")
    public_records: int = Field(200, ge=1, le=100_000, description="Records by the public model, to find topics in.")
    public_steps: int = Field(40, ge=0, le=100_000, description="Steps on those records first; they cost no ε.")
    public_rate: float = Field(0.01, gt=0.0, description="Adam's learning rate of those steps.")
    histogram_share: float = Field(0.2, gt=0.0, lt=1.0, description="Of μ² for the topics; the rest is for training.")
    temperature: float = Field(1.0, ge=0.0, le=3.0, description="Of all texts.")
    top_k: int = Field(0, ge=0, description="Choose among the so many most probable tokens; 0: all.")
    top_p: float = Field(0.95, gt=0.0, le=1.0, description="Choose among tokens that have this share of the mass.")
    batch: int = Field(16, ge=1, le=4096, description="Texts that are written at once.")

    @property
    def learning_rate(self) -> float:
        """The rate asked for, or the method's own."""
        return self.rate or (4e-4 if self.tuning == "lora" else 1e-4)


class DpGenSettings(TrainingSettings):
    """DP-Gen: a language model trained with DP-SGD."""

    public_steps: int = Field(40, ge=0, le=100_000, description="Steps on the schema's examples first; they cost no ε.")
    public_rate: float = Field(0.01, gt=0.0, description="Adam's learning rate of those steps.")
    temperature: float = Field(1.0, ge=0.0, le=3.0, description="Of all texts.")
    top_k: int = Field(50, ge=0, description="Choose among the so many most probable tokens; 0: all.")
    top_p: float = Field(0.9, gt=0.0, le=1.0, description="Choose among tokens that have this share of the mass.")
    batch: int = Field(16, ge=1, le=4096, description="Texts that are written at once.")

    @property
    def learning_rate(self) -> float:
        """The rate asked for, or the method's own."""
        return self.rate or (3e-4 if self.tuning == "lora" else 1e-4)


class DpDsSettings(TrainingSettings):
    """DP-DS: a classifier trained with DP-SGD."""

    rank: int = Field(16, ge=1, le=512, description="Of the adapters (LoRA's r).")
    clip: float = Field(10.0, gt=0.0, description="The norm that every record's gradient is clipped to.")

    @property
    def learning_rate(self) -> float:
        """The rate asked for, or the method's own."""
        return self.rate or 1e-3


class MarginalSettings(Group):
    """What AIM and MST have in common."""

    bins: int = Field(5, ge=2, le=64, description="Codes of a number or a date, at quantiles of the schema's examples.")
    texts: Literal["empty", "written"] = Field(
        "empty", description="Text fields are empty, or written by the run's model around the other fields."
    )

    @property
    def degree(self) -> int:
        """How many columns a marginal has at most."""
        return 2

    @property
    def target(self) -> bool:
        """Whether marginals with the class are asked for, and no others."""
        return False


class AimSettings(MarginalSettings):
    """AIM: marginals chosen one by one, where the model so far is worst."""

    columns: int = Field(2, ge=1, le=4, description="The most columns of a marginal.")
    workload: Literal["class", "all"] = Field(
        "class", description="Marginals that are asked for: those with the class, where there is one, or all."
    )

    @property
    def degree(self) -> int:
        """How many columns a marginal has at most."""
        return self.columns

    @property
    def target(self) -> bool:
        """Whether marginals with the class are asked for, and no others."""
        return self.workload == "class"


class MstSettings(MarginalSettings):
    """MST: pairs of columns that make a spanning tree."""
