"""Pictures that keep their shape: matrices of associations between fields, and the map of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from selpe.report.svg import picture, tag, text
from selpe.report.words import figure, known, short

Matrix = Sequence[Sequence[float | None]]
_SIZE, _LEFT, _TOP = 300.0, 76.0, 68.0  # of a matrix: its width, and the room for names
_WIDE, _TALL, _RIM = 560.0, 360.0, 12.0  # of the map


def matrix(names: Sequence[str], values: Matrix, *, title: str, difference: bool = False) -> Markup:
    """Cells shaded by strength, 0 to 1; the names stand at the left, and turned above."""
    cell = (_SIZE - _LEFT) / max(1, len(names))
    letter = 9.0 if cell >= 9.5 else 7.0 if cell >= 7 else 5.0
    drawn: list[object] = []
    for place, name in enumerate(names):
        middle = (place + 0.5) * cell + letter / 3
        drawn.append(text(short(name, 15), _LEFT - 4, _TOP + middle, anchor="end"))
        turned = f"translate({_LEFT + middle:.2f} {_TOP - 4:.2f}) rotate(-90)"
        drawn.append(tag("text", short(name, 15), transform=turned))
    kind = "cell apart" if difference else "cell bond"
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            x, y = _LEFT + column * cell, _TOP + row * cell
            at = {"x": x + 0.5, "y": y + 0.5, "width": cell - 1, "height": cell - 1, "rx": 1.5}
            if row == column or not known(value):
                drawn.append(tag("rect", **at, class_="cell none"))
                continue
            hint = tag("title", f"{names[row]} and {names[column]}: {figure(value, 2)}")
            drawn.append(
                tag("rect", hint, **at, class_=kind, fill_opacity=round(min(1.0, abs(value)) * 0.94 + 0.06, 2))
            )
    strong = _strongest(names, values)
    said = f"{'largest differences' if difference else 'strongest pairs'}: {strong}" if strong else "no pair to show"
    size = {9.0: "", 7.0: " fine", 5.0: " finest"}[letter]
    return picture(title, said, drawn, height=0, box=(_SIZE, _TOP + cell * len(names) + 1), kind=f"matrix{size}")


def _strongest(names: Sequence[str], values: Matrix) -> str:
    pairs = [
        (abs(value), names[row], names[column])
        for row, line in enumerate(values)
        for column, value in enumerate(line)
        if column < row and known(value)
    ]
    best = sorted(pairs, key=lambda pair: -pair[0])[:5]
    return "; ".join(f"{one} and {other} {figure(strength, 2)}" for strength, one, other in best)


def record_map(points: Mapping[str, Sequence[Sequence[float]]], *, title: str, description: str) -> Markup:
    """Records as dots in a plane, placed from 0 to 1 both ways: real ones as rings, synthetic ones filled."""
    drawn: list[object] = [tag("rect", x=0.5, y=0.5, width=_WIDE - 1, height=_TALL - 1, rx=8, class_="ground")]
    for kind, radius in (("real", 3.2), ("synthetic", 2.8)):
        dots = [
            tag("circle", cx=_RIM + x * (_WIDE - 2 * _RIM), cy=_RIM + (1 - y) * (_TALL - 2 * _RIM), r=radius)
            for x, y in points.get(kind, ())
        ]
        drawn.append(tag("g", *dots, class_=f"dots {kind}"))
    return picture(title, description, drawn, height=0, box=(_WIDE, _TALL), kind="map")
