"""Presets: settings that go together under one name. This is the one place where the paper's configuration stands.

`preset: paper` in a file, `selpe run --preset paper`, the experiments' method `selpe-paper` and `Method.paper()` all
take it from here. A preset is replaced by its settings when it is read: a run's manifest holds these, not the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

PresetName = Literal["paper"]

# The paper's rule, T, K and τ, without our guides, measured tables, candidate releases and exploration.
PAPER: Mapping[str, Any] = {
    "guides": "off", "measure": "off", "bundles": 0, "votes": "prototype", "mechanism": "exponential",
    "inclusion": "centre", "explore": 0.0, "temperature": 1.2, "rounds": 5, "multiplicity": 3,
}  # fmt: skip
PRESETS: Mapping[str, Mapping[str, Any]] = {"paper": PAPER}


def without_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with a known preset replaced by what it stands for; settings given beside it win."""
    name = settings.get("preset")
    if not isinstance(name, str) or name not in PRESETS:
        return dict(settings)
    return {**PRESETS[name], **{key: value for key, value in settings.items() if key != "preset"}}
