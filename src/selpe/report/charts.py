"""Charts of figures: levels with intervals, ε per choice, winners over rounds, comparison of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from selpe.report.svg import across, along, bar, dot, picture, share, tag, text
from selpe.report.words import epsilon, figure, known, short

_ROW, _AXIS, _PLOT = 44, 26, 190  # pixels: a row with its label above the bar, the ticks below, a plot


@dataclass(frozen=True, slots=True)
class Level:
    """A bar with its interval. `kind` is its colour: synthetic, real or other."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    kind: str = "other"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of numbers over the width of a chart, with the ticks to show."""

    low: float
    high: float
    ticks: tuple[float, ...] = ()
    digits: int = 0

    def at(self, value: float) -> float:
        """The position of a value as a share of the width; values beyond the ends are put at the ends."""
        span = (self.high - self.low) or 1.0
        return min(1.0, max(0.0, (value - self.low) / span))

    def axis(self, bands: Sequence[tuple[float, float]]) -> list[Markup]:
        """Grid lines through the bands that bars lie in, numbers below them; the outer ones turn inwards."""
        drawn = []
        for tick in self.ticks:
            place = self.at(tick)
            anchor = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
            drawn += [across(place, *band, "grid") for band in bands]
            drawn.append(text(figure(tick, self.digits), share(place), bands[-1][1] + 16, "tick", anchor))
        return drawn


def level_bars(
    levels: Sequence[Level], scale: Scale, *, title: str, start: float, mark: float | None = None, digits: int = 1
) -> Markup:
    """Bars with intervals from `start` on, one under the other, each with its name above and its value at the right.

    A dashed line stands at `mark`, where there is one.
    """
    height = _ROW * len(levels)
    origin = scale.at(start)
    bands = [(_ROW * place + 21.0, _ROW * (place + 1.0)) for place in range(len(levels))]
    drawn: list[object] = [*scale.axis(bands), *(across(origin, *band, "base") for band in bands)]
    if mark is not None:
        drawn += [across(scale.at(mark), *band, "mark-line") for band in bands]
    for number, level in enumerate(levels):
        drawn += _level(level, scale, origin, _ROW * number, digits)
    said = "; ".join(f"{level.label} {figure(level.value, digits)}{_ends(level, digits)}" for level in levels)
    return picture(title, said, drawn, height=height + _AXIS, kind="levels")


def _level(level: Level, scale: Scale, origin: float, top: float, digits: int) -> list[Markup]:
    end = scale.at(level.value)
    hint = f"{level.label}: {figure(level.value, digits)}{_ends(level, digits)}"
    note = [tag("tspan", f"  {level.note}", class_="note")] if level.note else []
    drawn = [
        tag("text", short(level.label, 34), *note, x=0, y=top + 17, class_="name"),
        text(figure(level.value, digits), "100%", top + 17, f"value {level.kind}", "end"),
        bar(min(origin, end), top + 24, max(0.004, abs(end - origin)), 12, f"fill {level.kind}", hint=hint),
    ]
    if known(level.low) and known(level.high):
        ends = scale.at(level.low or 0.0), scale.at(level.high or 0.0)
        drawn.append(along(*ends, top + 30, "whisker"))
        drawn += [across(end, top + 26, top + 34, "whisker") for end in ends]
    return drawn


def _ends(level: Level, digits: int) -> str:
    if not known(level.low) or not known(level.high):
        return ""
    return f" (95 % interval {figure(level.low, digits)} to {figure(level.high, digits)})"


def spending(choices: Sequence[tuple[str, float]], *, title: str) -> Markup:
    """ε of each private choice as a column, in the order in which they were made."""
    most = max((price for _, price in choices), default=0.0) or 1.0
    wide, floor = 1 / max(1, len(choices)), _PLOT - 24
    half = min(0.3 * wide, 0.05)
    drawn: list[object] = [along(0.0, 1.0, floor, "base")]
    for number, (name, price) in enumerate(choices):
        tall, middle = max(1.0, (floor - 24) * price / most), wide * (number + 0.5)
        drawn.append(bar(middle - half, floor - tall, 2 * half, tall, "fill eps", hint=f"{name}: ε {epsilon(price)}"))
        if number % _every(choices) == 0:
            drawn.append(text(name, share(middle), _PLOT - 6, "tick", "middle"))
            drawn.append(text(epsilon(price), share(middle), floor - tall - 6, "value small", "middle"))
    said = "; ".join(f"{name} ε {epsilon(price)}" for name, price in choices)
    return picture(title, said, drawn, height=_PLOT, kind="spending")


def _every(many: Sequence[object]) -> int:
    """Every how many columns a name fits below: those of many rounds would run into each other."""
    return max(1, -(-len(many) // 8))


@dataclass(frozen=True, slots=True)
class Round:
    """Where the winners of one round stand among the candidates of their class: 0 farthest, 100 nearest."""

    name: str
    expected: float | None
    winners: tuple[tuple[str, float], ...] = ()

    @property
    def mean(self) -> float | None:
        """The mean percentile of the winners."""
        return fmean(percentile for _, percentile in self.winners) if self.winners else None


def winners(rounds: Sequence[Round], *, title: str) -> Markup:
    """Winners over rounds: a dot a winner, a bar for their mean, a dashed line where the plan expected it."""
    left = 0.07
    wide = (1 - left) / max(1, len(rounds))
    drawn: list[object] = []
    for tick in (0, 25, 50, 75, 100):
        drawn.append(along(left, 1.0, _height(tick), "base" if tick == 50 else "grid"))
        drawn.append(text(tick, 0, _height(tick) + 4, "tick"))
    for number, one in enumerate(rounds):
        middle = left + wide * (number + 0.5)
        drawn += _round(one, middle, min(0.32 * wide, 0.12))
        if number % _every(rounds) == 0:
            drawn.append(text(one.name, share(middle), _PLOT - 6, "tick", "middle"))
    said = "; ".join(f"{one.name}: mean {figure(one.mean, 0)}" for one in rounds if one.winners)
    return picture(title, f"{said}. 50 is chance.", drawn, height=_PLOT, kind="winners")


def _height(percentile: float) -> float:
    return 10 + (_PLOT - 34) * (1 - min(100.0, max(0.0, percentile)) / 100)


def _round(one: Round, middle: float, half: float) -> list[Markup]:
    drawn = []
    if known(one.expected):
        drawn.append(along(middle - half, middle + half, _height(one.expected), "expected"))
    for place, (label, percentile) in enumerate(one.winners):
        aside = 1.4 * half * ((place + 0.5) / len(one.winners) - 0.5)
        hint = f"{label}: {figure(percentile, 0)}"
        drawn.append(dot(middle + aside, _height(percentile), 3.5, "mark other", hint=hint))
    if one.mean is not None:
        hint = f"mean {figure(one.mean, 0)}"
        drawn.append(bar(middle - half, _height(one.mean) - 1.5, 2 * half, 3, "fill synthetic", hint=hint))
    return drawn


@dataclass(frozen=True, slots=True)
class Line:
    """One run in a comparison: a mark with its interval for each view."""

    name: str
    levels: tuple[Level, ...]


def lines(runs: Sequence[Line], scale: Scale, *, title: str) -> Markup:
    """Runs under each other, each with a marked interval a view, on one scale."""
    heights = [28.0 + 20 * max(1, len(run.levels)) for run in runs]
    tops = [sum(heights[:place]) for place in range(len(runs))]
    bands = [(top + 22, top + tall) for top, tall in zip(tops, heights, strict=True)]
    drawn: list[object] = [*scale.axis(bands), *(across(scale.at(50.0), *band, "base") for band in bands)]
    for run, top in zip(runs, tops, strict=True):
        drawn.append(tag("text", tag("title", run.name), short(run.name, 48), x=0, y=top + 17, class_="name"))
        for place, level in enumerate(run.levels):
            y = top + 34 + 20 * place
            if level.low is not None and level.high is not None:
                drawn.append(along(scale.at(level.low), scale.at(level.high), y, f"range {level.kind}"))
            hint = f"{level.label}: {figure(level.value, 1)}{_ends(level, 1)}"
            drawn.append(dot(scale.at(level.value), y, 5, f"mark {level.kind}", hint=hint))
    said = "; ".join(
        f"{run.name}: " + ", ".join(f"{level.label} {figure(level.value, 1)}" for level in run.levels) for run in runs
    )
    return picture(title, said, drawn, height=sum(heights) + _AXIS, kind="runs")
