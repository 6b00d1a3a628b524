"""Marginals and word counts of an evaluation as spreads that panels can draw, each with its distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from selpe.report.panels import Spread, spread
from selpe.report.words import compact, figure, known, percent

_MOST_VALUES = 7
_MEASURES = {"total variation": "TV", "wasserstein": "Wasserstein"}


@dataclass(frozen=True, slots=True)
class FieldPanel:
    """One field as the page shows it."""

    title: str
    kind: str
    chart: Markup
    distance: str  # how far synthetic is from real; empty without real rows
    apart: float  # the same on a scale from 0 to 1, to sort by
    note: str


def field_panels(found: Mapping[str, Any], titles: Mapping[str, str]) -> list[FieldPanel]:
    """A panel per field, in the order of the evaluation: marginals first, then texts by their words."""
    panels = [_marginal(titles.get(name, name), entry) for name, entry in (found.get("marginals") or {}).items()]
    return panels + [_words(titles.get(name, name), entry) for name, entry in (found.get("text") or {}).items()]


def _marginal(title: str, entry: Mapping[str, Any]) -> FieldPanel:
    apart = entry.get("normalised")
    distance = f"{_MEASURES[entry['measure']]} {figure(apart, 2)}" if known(apart) else ""
    chart = spread(_spread(title, entry))
    return FieldPanel(title, entry["kind"], chart, distance, float(apart or 0.0), _missing(entry))


def _missing(entry: Mapping[str, Any]) -> str:
    ours, theirs = entry.get("missing_synthetic"), entry.get("missing_real")
    if not ours and not theirs:
        return ""
    return f"missing {percent(ours, 0)}" + ("" if theirs is None else f", real {percent(theirs, 0)}")


def _spread(title: str, entry: Mapping[str, Any]) -> Spread:
    real = entry.get("real")
    ours, theirs = tuple(entry["synthetic"]), None if real is None else tuple(real)
    if entry.get("edges") is not None:
        return Spread(
            title,
            _ends(entry["edges"], whole=entry["kind"] == "integer"),
            ours,
            theirs,
            histogram=True,
            unit=str(entry.get("unit") or ""),
        )
    spoken = {"true": "yes", "false": "no"} if entry["kind"] == "boolean" else {}
    values = [spoken.get(str(value).lower(), str(value)) for value in entry["values"]]
    return Spread(title, *_commonest(values, ours, theirs))


def _ends(edges: Sequence[Any], *, whole: bool) -> tuple[str, ...]:
    """Labels for the left end, the middle and the right end of a histogram; of whole numbers, the last one in it."""
    if not edges:
        return ("", "", "")
    if isinstance(edges[0], str):
        return (edges[0], str(edges[len(edges) // 2]) if len(edges) > 4 else "", str(edges[-1]))
    first, last = edges[0], edges[-1] - (1 if whole else 0)
    middle = (first + last) / 2
    if whole:
        return (compact(first), compact(round(middle)) if last - first > 3 else "", compact(last))
    return tuple(compact(float(f"{value:.4g}")) for value in (first, middle, last))


def _commonest(
    values: Sequence[str], ours: tuple[float, ...], theirs: tuple[float, ...] | None
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...] | None]:
    """All values of a short list in its order; of a long one the commonest, and the rest summed up."""
    if len(values) <= _MOST_VALUES + 1:
        return tuple(values), ours, theirs
    both = [one + (0.0 if theirs is None else theirs[place]) for place, one in enumerate(ours)]
    order = sorted(range(len(values)), key=lambda place: -both[place])
    shown, rest = order[:_MOST_VALUES], order[_MOST_VALUES:]

    def summed(column: tuple[float, ...]) -> tuple[float, ...]:
        return (*(column[place] for place in shown), sum(column[place] for place in rest))

    names = (*(values[place] for place in shown), f"{len(rest)} more values")
    return names, summed(ours), None if theirs is None else summed(theirs)


def _words(title: str, entry: Mapping[str, Any]) -> FieldPanel:
    words = entry["words"]
    real = words.get("real_shares")
    beside = None if real is None else tuple(real)
    names = _ends(words["edges"], whole=True)
    shown = Spread(title, names, tuple(words["synthetic_shares"]), beside, histogram=True, unit="words")
    gap = words.get("wasserstein")
    mean = (words.get("real") or {}).get("mean")
    distance = f"{figure(gap, 1)} words apart" if known(gap) else ""
    apart = min(1.0, gap / mean) if known(gap) and known(mean) and mean else 0.0
    note = _vocabulary(entry.get("vocabulary") or {})
    return FieldPanel(title, "words", spread(shown), distance, apart, note)


def _vocabulary(found: Mapping[str, Any]) -> str:
    if not known(found.get("synthetic")):
        return ""
    told = f"{compact(found['synthetic'])} different words"
    return told + (f", {percent(found['coverage'], 0)} of the real ones" if known(found.get("coverage")) else "")
