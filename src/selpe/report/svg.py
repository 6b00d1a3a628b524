"""Inline SVG from small functions. Everything is escaped, nothing is a script, and every picture says what it shows.

Most pictures have no view box: widths are percentages, heights and letters are pixels, so that a chart that is made
narrow on a telephone keeps letters of a readable size. Colours are classes; the page's style sheet has them for both
themes and for paper.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element. Attribute names are written with underscores; those that are None are left out."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{name}{written}>{inside}</{name}>").format(name=name, written=written, inside=inside)


def picture(
    title: str,
    description: str,
    children: Iterable[object],
    *,
    height: float,
    box: tuple[float, float] | None = None,
    kind: str = "",
) -> Markup:
    """An image with its title and description for those who do not see it.

    With a `box`, the drawing keeps its shape and is scaled as a whole; without, it is as wide as there is room.
    """
    size = {"viewBox": f"0 0 {_short(box[0])} {_short(box[1])}"} if box else {"width": "100%", "height": height}
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description),
        *children,
        role="img",
        aria_label=f"{title}. {description}",
        class_=f"chart {kind}".strip(),
        **size,
    )


def share(value: float) -> str:
    """A position from 0 to 1 as a percentage of the picture's width."""
    return f"{_short(round(100 * value, 3))}%"


def text(content: object, x: object, y: object, kind: str = "", anchor: str | None = None, **more: object) -> Markup:
    """A line of text."""
    return tag("text", content, x=x, y=y, class_=kind or None, text_anchor=anchor, **more)


def bar(x: float, y: float, width: float, height: float, kind: str, *, hint: str = "", radius: float = 2) -> Markup:
    """A bar whose place and width are shares of the picture's width; the hint shows when it is pointed at."""
    told = [tag("title", hint)] if hint else []
    place = {"x": share(x), "y": y, "width": share(max(0.0, width)), "height": height, "rx": radius}
    return tag("rect", *told, **place, class_=kind)


def across(x: float, top: float, bottom: float, kind: str) -> Markup:
    """A vertical line at a share of the picture's width."""
    return tag("line", x1=share(x), x2=share(x), y1=top, y2=bottom, class_=kind)


def along(left: float, right: float, y: float, kind: str) -> Markup:
    """A horizontal line between two shares of the picture's width."""
    return tag("line", x1=share(left), x2=share(right), y1=y, y2=y, class_=kind)


def dot(x: float, y: float, radius: float, kind: str, *, hint: str = "") -> Markup:
    """A dot at a share of the picture's width."""
    told = [tag("title", hint)] if hint else []
    return tag("circle", *told, cx=share(x), cy=y, r=radius, class_=kind)


def _short(value: object) -> str:
    """A number without needless digits; anything else as text."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)
