"""The settings that only one method has: a small group for each baseline, under its name in the settings file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MethodName = Literal["selpe", "augpe", "wasp", "ctcl", "dpgen", "dpds"]
# Methods whose privacy comes from Gaussian noise: they need a δ above 0, and take this one where none is given.
GAUSSIAN_METHODS: frozenset[str] = frozenset({"augpe", "wasp", "ctcl", "dpgen", "dpds"})
DEFAULT_DELTA = 1e-5


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


class CtclSettings(Group):
    """CTCL: topics first, then a small conditional generator."""


class DpGenSettings(Group):
    """DP-Gen: a language model trained with DP-SGD."""


class DpDsSettings(Group):
    """DP-DS: a classifier trained with DP-SGD."""
