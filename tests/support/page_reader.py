"""A page as a test reads it: tags, attributes and words, and whether it is well-formed."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = "<script>window.hurt = 1</script><img src=x onerror=alert(1)> {{ 7 * 7 }} {% raw %} \"'` --> ]]>"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; raises where tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""  # what a reader sees
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words += data


def inert_piece(html: str) -> Page:
    """A piece of HTML for a notebook as read; fails where it has a tag or an attribute that could do anything."""
    page = Page(html)
    assert set(page.tags) <= {"div", "style", "h4", "p", "table", "thead", "tbody", "tr", "th", "td", "progress"}
    assert {name for name, _ in page.attributes} <= {"class", "aria-label", "scope", "value", "max"}
    assert page.tags.count("style") == 1
    return page
