"""Small charts side by side: the distribution of the values of one field, synthetic and real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from selpe.report.svg import along, bar, picture, share, tag, text
from selpe.report.words import percent, short

_LINE = 34  # pixels of one value with its bars
_TALL = 96  # pixels of a histogram


@dataclass(frozen=True, slots=True)
class Spread:
    """The shares of a field's values: in the synthetic table, and in the real one where there is one to compare with.

    `names` are the values themselves, or, of a histogram, the labels at its left end, middle and right end.
    """

    title: str
    names: tuple[str, ...]
    synthetic: tuple[float, ...]
    real: tuple[float, ...] | None = None
    histogram: bool = False
    unit: str = ""


def spread(field: Spread) -> Markup:
    """The spread of one field: synthetic in colour, real beside or behind it."""
    return _bins(field) if field.histogram else _values(field)


def _values(field: Spread) -> Markup:
    """Two thin bars a value, on one scale; the name above them, the shares at the right."""
    real = field.real or (None,) * len(field.names)
    most = max([*field.synthetic, *(one for one in real if one is not None), 0.01])
    drawn: list[object] = []
    said = []
    for place, (value, ours, theirs) in enumerate(zip(field.names, field.synthetic, real, strict=True)):
        drawn += _value(value, ours, theirs, most=most, top=_LINE * place)
        said.append(f"{short(value, 40)}: {percent(ours, 0)}")
        said[-1] += "" if theirs is None else f" against {percent(theirs, 0)}"
    return picture(
        _title(field), "; ".join(said) or "no value", drawn, height=_LINE * len(field.names) + 2, kind="spread"
    )


def _value(value: str, ours: float, theirs: float | None, *, most: float, top: float) -> list[Markup]:
    shares = [tag("tspan", percent(ours, 0), class_="ours")]
    if theirs is not None:
        shares.append(tag("tspan", percent(theirs, 0), dx=7))
    drawn = [
        tag("text", tag("title", value), short(value, 26), x=0, y=top + 12, class_="name small"),
        tag("text", *shares, x="100%", y=top + 12, class_="tick", text_anchor="end"),
        bar(0, top + 17, max(0.003, ours / most), 6 if theirs is not None else 8, "fill synthetic", radius=1),
    ]
    if theirs is not None:
        drawn.append(bar(0, top + 24, max(0.003, theirs / most), 4, "fill real", radius=1))
    return drawn


def _bins(field: Spread) -> Markup:
    """A histogram: synthetic as filled columns, real as an outline on top."""
    ours, theirs = field.synthetic, field.real
    most = max([*ours, *(theirs or ()), 0.01])
    wide, tall = 1 / max(1, len(ours)), _TALL - 4
    drawn: list[object] = [
        bar(
            (place + 0.06) * wide,
            4 + tall * (1 - one / most),
            0.88 * wide,
            tall * one / most,
            "fill synthetic",
            radius=0,
        )
        for place, one in enumerate(ours)
        if one
    ]
    if theirs:
        drawn.append(_outline(theirs, most))
    drawn.append(along(0, 1, _TALL, "base"))
    for label, place, anchor in zip(field.names, (0.0, 0.5, 1.0), ("start", "middle", "end"), strict=True):
        drawn.append(text(label, share(place), _TALL + 16, "tick", anchor))
    said = f"from {field.names[0]} to {field.names[-1]} {field.unit}".strip() + f"; synthetic peak {_peak(ours)}"
    said += f"; real peak {_peak(theirs)}" if theirs else ""
    return picture(_title(field), said, drawn, height=_TALL + 22, kind="spread")


def _outline(shares: Sequence[float], most: float) -> Markup:
    """Steps over the bins. The inner picture is stretched to the width; its line keeps its thickness."""
    points = ["0,100"]
    for place, one in enumerate(shares):
        level = f"{100 * (1 - one / most):.2f}"
        points += [f"{100 * place / len(shares):.2f},{level}", f"{100 * (place + 1) / len(shares):.2f},{level}"]
    line = tag("polyline", points=" ".join([*points, "100,100"]), class_="outline real")
    return tag("svg", line, x=0, y=4, width="100%", height=_TALL - 4, viewBox="0 0 100 100", preserveAspectRatio="none")


def _title(field: Spread) -> str:
    return f"{field.title}: {'synthetic and real' if field.real else 'synthetic'} records"


def _peak(shares: Sequence[float]) -> str:
    if not shares:
        return "nowhere"
    peak = max(range(len(shares)), key=shares.__getitem__)
    return f"{percent((peak + 0.5) / len(shares), 0)} of the way"
