"""Small pieces of HTML for notebooks: everything that comes in is escaped, and nothing is loaded from anywhere.

Colours are the page's own (`currentColor`), so that a piece reads well on a light and on a dark page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """\
.selpe-view{font-size:.9em;line-height:1.4;max-width:64em;overflow-x:auto}
.selpe-view h4{margin:.2em 0;font-size:1.05em}
.selpe-view p{margin:.3em 0}
.selpe-view table{border-collapse:collapse;margin:.4em 0;color:inherit;background:none}
.selpe-view th,.selpe-view td{text-align:left;vertical-align:top;padding:.2em .7em .2em 0;white-space:normal;
border:0;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent);background:none;color:inherit}
.selpe-view .selpe-soft{opacity:.7}
.selpe-view .selpe-warn{border-left:3px solid #b45309;padding-left:.6em}
.selpe-view progress{width:20em;max-width:60%;vertical-align:middle;accent-color:#0e7490}
@media (prefers-color-scheme:dark){.selpe-view .selpe-warn{border-color:#fbbf24}
.selpe-view progress{accent-color:#67e8f9}}"""
# What turns the direction of text around, or cannot be seen: it could make a name read as another.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def text(content: object) -> str:
    """Any text as HTML that shows it and does nothing else."""
    return escape(_HIDDEN.sub("\ufffd", str(content)))


def view(title: str, *parts: str) -> str:
    """A piece of a page: a heading and parts, which are HTML already."""
    body = "".join(parts)
    return f'<div class="selpe-view"><style>{_STYLE}</style><h4>{text(title)}</h4>{body}</div>'


def paragraph(content: object, *, soft: bool = False, warn: bool = False) -> str:
    """A paragraph of plain text."""
    kind = " ".join(name for name, on in (("selpe-soft", soft), ("selpe-warn", warn)) if on)
    return f'<p class="{kind}">{text(content)}</p>' if kind else f"<p>{text(content)}</p>"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str) -> str:
    """A table of plain texts; `caption` says what it is to those who cannot see it."""
    top = "".join(f'<th scope="col">{text(head)}</th>' for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table aria-label="{text(caption)}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def bar(share: float, *, label: str) -> str:
    """How much of something is done, from 0 to 1."""
    done = min(1.0, max(0.0, share))
    return f'<progress value="{done:.4f}" max="1" aria-label="{text(label)}">{done:.0%}</progress>'
