"""A privacy card in Python: the same plain data, shown as a table in a notebook and as a line elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from selpe.markup import paragraph, table, view
from selpe.privacy.card_text import render_markdown


class PrivacyCard(dict[str, Any]):
    """The card of a release: a dict that shows itself. `to_markdown` gives it as the release has it for people."""

    def __repr__(self) -> str:
        return f"<PrivacyCard of {self.get('run')!r}: {_promise(self)}>"

    def to_markdown(self) -> str:
        """The whole card as text."""
        return render_markdown(self)

    def _repr_html_(self) -> str:
        return card_view(self)


def card_view(card: dict[str, Any]) -> str:
    """The card as a piece of HTML: the promise, what was spent, and what is not covered."""
    guarantee, total = card["guarantee"], card["cumulative"]
    spent = [("this release", guarantee), ("everything on this table", total)]
    rows = [(what, *_both(one["epsilon"]), f"{one['delta']:g}") for what, one in spent]
    return view(
        f"Privacy card of '{card['run']}'",
        *(paragraph(f"{card['stamp']}: {reason}.", warn=True) for reason in _stamps(card)),
        paragraph(guarantee["statement"]),
        paragraph(f"{card['unit']['statement']} {card['unit'].get('warning') or ''}"),
        table(("spent", "ε, one unit replaced", "ε, added or removed", "δ"), rows, caption="privacy loss"),
        table(("not covered by the guarantee",), [(one,) for one in card["not_covered"]], caption="not covered"),
        paragraph("The whole card: privacy-card.md in the release, or .to_markdown() here.", soft=True),
    )


def _stamps(card: dict[str, Any]) -> Iterable[str]:
    return card["stamp_reasons"] if card["stamp"] else ()


def _promise(card: dict[str, Any]) -> str:
    epsilon = card["guarantee"]["epsilon"]
    return str(card["stamp"]) if card["stamp"] else f"ε {_told(epsilon['replace_one'])} (one unit replaced)"


def _both(epsilon: dict[str, Any]) -> tuple[str, str]:
    return _told(epsilon["replace_one"]), _told(epsilon["add_remove"])


def _told(epsilon: float | str) -> str:
    return "∞" if epsilon == "inf" else f"{float(epsilon):.4g}"
