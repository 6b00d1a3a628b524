"""Drawing: panels of lines with intervals, and pictures with their own styles, as SVG files that stand alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from markupsafe import Markup

from selpe.experiments.results import Mean
from selpe.report.charts import Scale
from selpe.report.svg import tag, text
from selpe.report.words import figure

_WIDE, _TALL = 350, 236  # of a panel
_LEFT, _TOP, _RIGHT, _BOTTOM = 40, 30, 12, 30  # its rims
_KEY = 20  # pixels of a line of the key
_LETTER = 7.5  # pixels of a letter of a title, on average

_STYLE = """
svg { background: #fff; font-family: system-ui, sans-serif; color: #1b1f24 }
text { fill: #1b1f24; font-size: 12px } .title { font-size: 13px; font-weight: 600 }
.tick, .note { fill: #5b636d; font-size: 11px }
.grid { stroke: #e4e7eb } .base { stroke: #b9c0c8 } .name { font-size: 12px }
.range { stroke-width: 3; stroke-linecap: round } .range.text { stroke: #0072b2; stroke-opacity: .45 }
.range.structured { stroke: #d55e00; stroke-opacity: .45 } .mark { stroke: #fff; stroke-width: 1.5 }
.mark.text { fill: #0072b2 } .mark.structured { fill: #d55e00 }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; color: #e6e9ed } text { fill: #e6e9ed } .tick, .note { fill: #a2abb6 }
  .grid { stroke: #2a3038 } .base { stroke: #505a66 } .mark { stroke: #14181d }
}
"""


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name, its colour, and a mean for each tick, None where there is none."""

    name: str
    means: tuple[Mean | None, ...]
    colour: str
    dash: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A small chart: ticks along the bottom, lines above them."""

    title: str
    ticks: tuple[str, ...]
    series: tuple[Series, ...]


def line_chart(panels: Sequence[Panel], title: str) -> str:
    """Panels two by two, and one key for all of them."""
    names = {series.name: series for panel in panels for series in panel.series if any(series.means)}
    tall = ceil(len(panels) / 2) * _TALL
    drawn = [_panel(panel, _WIDE * (place % 2), _TALL * (place // 2)) for place, panel in enumerate(panels)]
    for place, series in enumerate(names.values()):
        x, y = 16 + 228 * (place % 3), tall + 14 + _KEY * (place // 3)
        drawn.append(tag("line", x1=x, x2=x + 24, y1=y - 4, y2=y - 4, **_stroke(series)))
        drawn.append(text(series.name, x + 32, y))
    return alone(title, _told(panels), drawn, 2 * _WIDE, tall + 16 + _KEY * ceil(len(names) / 3))


def _fitted(title: str) -> str:
    """A title as far as it has room; the names of data sets, with which titles begin, can be long."""
    most = int((_WIDE - _LEFT) / _LETTER)
    return title if len(title) <= most else f"…{title[1 - most :]}"


def _panel(panel: Panel, x: float, y: float) -> Markup:
    ends = [
        bound
        for series in panel.series
        for mean in series.means
        if mean is not None
        for bound in (mean.value - mean.error, mean.value + mean.error)
    ]
    low, high = (5 * floor(min(ends, default=45) / 5), 5 * ceil(max(ends, default=55) / 5))
    scale = Scale(low, max(high, low + 5))
    inner = [text(_fitted(panel.title), _LEFT, 18, "title"), *_axes(panel, scale)]
    for number, series in enumerate(panel.series):
        inner += _line(series, panel, scale, aside=3.0 * (number - (len(panel.series) - 1) / 2))
    return tag("g", *inner, transform=f"translate({x:g} {y:g})")


def _axes(panel: Panel, scale: Scale) -> list[Markup]:
    step = 5 if scale.high - scale.low <= 30 else 10
    drawn = []
    for tick in range(int(scale.low), int(scale.high) + 1, step):
        y = _height(scale, tick)
        drawn.append(tag("line", x1=_LEFT, x2=_WIDE - _RIGHT, y1=y, y2=y, class_="base" if tick == 50 else "grid"))
        drawn.append(text(tick, _LEFT - 6, y + 4, "tick", "end"))
    for place, name in enumerate(panel.ticks):
        drawn.append(text(name, _along(place, len(panel.ticks)), _TALL - 12, "tick", "middle"))
    return drawn


def _line(series: Series, panel: Panel, scale: Scale, *, aside: float) -> list[Markup]:
    """A line with a standard error at each tick; lines stand a little apart, so that none hides another."""
    points = [
        (_along(place, len(panel.ticks)) + (0 if series.dash else aside), mean)
        for place, mean in enumerate(series.means)
        if mean is not None
    ]
    drawn = []
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{_height(scale, mean.value):.1f}" for x, mean in points)
        drawn.append(tag("polyline", points=path, fill="none", **_stroke(series)))
    for x, mean in points:
        said = f"{series.name}: {figure(mean.value, 1)} ± {figure(mean.error, 1)}"
        if mean.error and not series.dash:
            ends = {"y1": _height(scale, mean.value - mean.error), "y2": _height(scale, mean.value + mean.error)}
            drawn.append(tag("line", x1=x, x2=x, **ends, stroke=series.colour, stroke_opacity=0.55))
        if not series.dash:
            y = _height(scale, mean.value)
            drawn.append(tag("circle", tag("title", said), cx=x, cy=y, r=3.2, fill=series.colour))
    return drawn


def _stroke(series: Series) -> dict[str, object]:
    return {
        "stroke": series.colour,
        "stroke_width": 2.6 if series.strong else 1.6,
        "stroke_dasharray": series.dash or None,
    }


def _along(place: int, count: int) -> float:
    room = _WIDE - _LEFT - _RIGHT
    return _LEFT + room * (place + 0.5) / max(1, count)


def _height(scale: Scale, value: float) -> float:
    return round(_TALL - _BOTTOM - (_TALL - _TOP - _BOTTOM) * scale.at(value), 2)


def _told(panels: Sequence[Panel]) -> str:
    """The figures in words, for those who do not see the picture."""
    said = []
    for panel in panels:
        for series in panel.series:
            known = [
                f"{tick}: {mean.value:.1f}"
                for tick, mean in zip(panel.ticks, series.means, strict=True)
                if mean is not None
            ]
            if known:
                said.append(f"{panel.title}, {series.name}: {', '.join(known)}")
    return "; ".join(said)


def alone(title: str, said: str, drawn: Sequence[object], width: float, height: float) -> str:
    """A picture with its own styles, for a file."""
    size: Mapping[str, object] = {"width": width, "height": height, "viewBox": f"0 0 {width:g} {height:g}"}
    content = tag(
        "svg", tag("title", title), tag("desc", said), tag("style", Markup(_STYLE)), *drawn,
        xmlns="http://www.w3.org/2000/svg", role="img", **size,
    )  # fmt: skip
    return str(content) + "\n"
