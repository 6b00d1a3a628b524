"""The section on what was measured: noisy shares of the private table with error bars, beside the model's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from selpe.report.svg import across, along, bar, dot, picture, tag
from selpe.report.words import compact, count, known, percent, plural, short
from selpe.schema import Schema

MOST = 12  # codes of a table that are shown
_LINE = 36  # pixels of one code
_LAPLACE_95 = math.log(20.0) / math.sqrt(2.0)  # standard deviations: no sum of such noise needs more


@dataclass(frozen=True, slots=True)
class Bar:
    """One code: its noisy share of all rows, how far that may be off, and the model's own share where it is known."""

    name: str
    share: float
    off: float
    model: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The interval that holds 95 % of the noise."""
        return self.share - self.off, self.share + self.off


def measured_section(measured: Mapping[str, Any] | None, schema: Schema) -> dict[str, Any] | None:
    """What the template shows of measurements.json; None where there is none. Of several looks, the last."""
    if measured is None:
        return None
    look = measured["looks"][-1]
    earlier, whole = len(measured["looks"]) - 1, _whole(look)
    return {
        "tables": [_panel(_Counted(table, look["noise"], whole), schema) for table in look["tables"]] if whole else [],
        "many": plural(len(look["tables"]), "table"),
        "counted": measured["counted"],
        "whole": count(whole),
        "noise": _noise(look["noise"]),
        "control": look["noise"]["law"] == "none",
        "earlier": plural(earlier, "earlier look") if earlier else "",
        "use": measured["how_to_use"],
        "taken": taken(measured),
    }


def taken(measured: Mapping[str, Any]) -> str:
    """Whether the released records follow the counts: the last private choice may prefer a release without them."""
    share = measured.get("written_by_the_counts")
    if not known(share):
        return ""
    if not share:
        return "The last private choice took a release that does not use these counts: its records do not follow them."
    said = f"{percent(share, 0)} of the released records were written to follow these counts"
    if measured.get("rest_of_any_class"):
        return f"{said}; what was not counted comes from records of any class."
    return f"{said}; what was not counted is as the model wrote it for the class."


def _whole(look: Mapping[str, Any]) -> int:
    """How many rows there are, by the table with the fewest cells, whose sum has the least noise; 0 if that hides it.

    All tables of a look count the same rows.
    """
    counts = min((np.asarray(table["counts"]) for table in look["tables"]), key=lambda cells: cells.size)
    total = int(counts.sum())
    return total if total > _off(look["noise"], counts.size) else 0


def _noise(noise: Mapping[str, Any]) -> str:
    if noise["law"] == "none":
        return "There is no noise on these counts: this is a control, and protects nobody."
    return (
        f"The noise on every count is {noise['law']} of scale {compact(noise['scale'])}: in 95 of 100 cases it is at "
        f"most ± {compact(noise['half_width_95'])}."
    )


def _panel(counted: _Counted, schema: Schema) -> dict[str, Any]:
    title = " and ".join(schema.field(axis["field"]).title for axis in counted.fields)
    shown = counted.shown()
    bars, rest = counted.bars(shown), len(counted.sums) - len(shown)
    return {
        "title": title,
        "kind": f"{len(counted.sums)} codes",
        "chart": chart(bars, title=f"{title}: share of each code in the private table, with noise"),
        "note": f"The {len(shown)} likeliest codes; {rest} more are in the file." if rest else "",
    }


class _Counted:
    """One table, summed up over the classes."""

    def __init__(self, table: Mapping[str, Any], noise: Mapping[str, Any], whole: int) -> None:
        self.fields = [axis for axis in table["axes"] if axis["kind"] != "class"]
        counts = np.asarray(table["counts"], dtype=np.float64)
        classed = len(table["axes"]) > len(self.fields)
        sizes = np.maximum(counts.sum(axis=1), 0.0) if classed else np.ones(1)
        # Shares are within a class: they are put together by how large the classes were counted to be.
        self._weights = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1 / len(sizes))
        self._table, self._whole = table, whole
        self.sums = counts.sum(axis=0) if classed else counts.ravel()
        self._off = _off(noise, len(counts) if classed else 1) / whole

    def shown(self) -> list[int]:
        """All codes in their order; of many the likeliest. The largest noisy counts would be those of lucky noise."""
        if len(self.sums) <= MOST + 1:
            return list(range(len(self.sums)))
        likely = self._shares("shares")
        return [int(place) for place in np.argsort(-(self.sums if likely is None else likely), kind="stable")[:MOST]]

    def bars(self, places: Sequence[int]) -> list[Bar]:
        """A bar for each of these codes."""
        names, model = _names(self.fields), self._shares("model_shares")
        return [
            Bar(
                names[place],
                float(self.sums[place]) / self._whole,
                self._off,
                None if model is None else float(model[place]),
            )
            for place in places
        ]

    def _shares(self, name: str) -> NDArray[np.float64] | None:
        if name not in self._table:
            return None
        return np.asarray(self._weights @ np.atleast_2d(np.asarray(self._table[name], dtype=np.float64)))


def _names(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [str(code) for code in fields[0]["codes"]]
    for axis in fields[1:]:
        names = [f"{name}, {code}" for name in names for code in axis["codes"]]
    return names


def _off(noise: Mapping[str, Any], cells: int) -> float:
    """How far a sum of so many counts may be off: 95 % of its noise, or a little more."""
    one = max(float(noise["half_width_95"]), _LAPLACE_95 * float(noise["standard_deviation"]))
    return math.sqrt(cells) * one


# -- the chart --------------------------------------------------------------------------------------------------------


def chart(bars: Sequence[Bar], *, title: str) -> Markup:
    """A bar with its interval for each code, one under the other, and a ring where the model's own share lies."""
    low = min(0.0, *(one.ends[0] for one in bars))
    high = max(0.01, *(max(one.ends[1], one.model or 0.0) for one in bars))

    def at(share: float) -> float:
        return (share - low) / (high - low)

    drawn: list[object] = []
    for place, one in enumerate(bars):
        drawn += _row(one, at, _LINE * place)
    said = "; ".join(f"{short(one.name, 40)}: {_said(one)}" for one in bars)
    return picture(title, said, drawn, height=_LINE * len(bars) + 2, kind="measured")


def _row(one: Bar, at: Callable[[float], float], top: float) -> list[Markup]:
    zero, end, (least, most) = at(0.0), at(one.share), (at(share) for share in one.ends)
    off = tag("tspan", f" ± {_points(one.off)}") if one.off else ""
    drawn = [
        tag("text", tag("title", one.name), short(one.name, 34), x=0, y=top + 12, class_="name small"),
        tag(
            "text", tag("tspan", _signed(one.share), class_="counted"), off,
            x="100%", y=top + 12, class_="tick", text_anchor="end",
        ),
        bar(min(zero, end), top + 18, max(0.003, abs(end - zero)), 10, "fill private", hint=_said(one), radius=1),
        across(zero, top + 16, top + 30, "base"),
    ]  # fmt: skip
    if one.off:
        drawn.append(along(least, most, top + 23, "whisker"))
        drawn += [across(each, top + 19, top + 27, "whisker") for each in (least, most)]
    if one.model is not None:
        drawn.append(dot(at(one.model), top + 23, 4, "mark model", hint=f"the model's own: {percent(one.model, 0)}"))
    return drawn


def _said(one: Bar) -> str:
    said = _signed(one.share) + (f" plus or minus {_points(one.off)}" if one.off else "")
    return said if one.model is None else f"{said}, the model's own {percent(one.model, 0)}"


def _signed(share: float) -> str:
    return percent(share, 0) if share >= 0 else f"−{percent(-share, 0)}"


def _points(off: float) -> str:
    return f"{100 * off:.0f}" if off >= 0.095 else f"{100 * off:.1f}"
