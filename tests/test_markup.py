"""Pieces of HTML are inert: whatever comes in is shown as text, and nothing is loaded or run."""

from __future__ import annotations

import pytest

from page_reader import inert_piece
from selpe.markup import bar, paragraph, table, text, view

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "a\u202egnp.exe\u2066",
    "bell\x07 and \x1b[31m",
    "&lt;already&gt;",
]


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(content: str) -> None:
    html = view(
        content,
        paragraph(content),
        table([content], [[content]], caption=content),
        bar(0.5, label=content),
    )
    shown = "".join(char if char.isprintable() else "\ufffd" for char in content)
    assert inert_piece(html).words == shown * 4 + "50%"


def test_what_turns_text_around_or_cannot_be_seen_is_made_visible() -> None:
    assert text("a\u202eb\u200bc\x1bd") == "a\ufffdb\ufffdc\ufffdd"
    assert text("Zoë → 5 °C\n") == "Zoë → 5 °C\n"


def test_a_view_loads_nothing_and_suits_both_themes() -> None:
    html = view("title", paragraph("text", soft=True), paragraph("text", warn=True))
    assert not any(word in html for word in ("http", "url(", "src=", "@import", "<script", "<link"))
    assert "prefers-color-scheme:dark" in html
    assert "currentColor" in html
    assert "color:#000" not in html
    assert "background:#" not in html


@pytest.mark.parametrize(("share", "value"), [(-1.0, "0.0000"), (0.25, "0.2500"), (7.0, "1.0000")])
def test_a_bar_stays_within_its_ends(share: float, value: str) -> None:
    assert f'value="{value}"' in bar(share, label="done")
