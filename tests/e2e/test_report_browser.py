"""The pages in a real browser: opened from disk, quiet, alone, deaf to hostile records, readable at any width."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headless_browser import CHROMIUM, Browser
from in_process import selpe
from selpe.config import check_config
from selpe.models.encoders.hashing import HashingEncoder
from selpe.privacy.card import build_card
from selpe.privacy.ledger import Ledger
from selpe.report.compare import compare_page, compared
from selpe.report.evaluate import evaluate
from selpe.report.summary import summary_page
from selpe.schema import Record, Schema
from small_world import SCHEMA, drawn

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(240),
]
# What people type into free text, and what nobody should.
TEXTS = (
    "<script>window.hurt = 1</script><img src='http://leak.example/x' onerror='window.hurt = 2'>",
    "{{ 7 * 7 }} {% include 'x' %} ${window.hurt = 3} javascript:window.hurt=4",
    "</style><style>body { display: none }</style><!-- ",
    "</title></svg><svg onload='window.hurt = 5'><foreignObject>",
    "W" * 300,
    "مريض يشكو من ألم في الصدر \u202e detrevni \u2066 unclosed",
    "👩‍👩‍👧‍👦 🚑 naïve café 漢字 ｆｕｌｌ ",
    "\"'`&amp;&lt;\u2028 line \u00a0 gaps",
)
CATEGORY = "<b onmouseover='window.hurt = 6'>by phone</b> " + "V" * 80


@dataclass(frozen=True)
class Pages:
    """The three pages of one evaluation, and the texts that stand in their records."""

    report: Path
    summary: Path
    compare: Path


def hostile_schema() -> Schema:
    content = SCHEMA.to_dict()
    content["fields"]["topic"] |= {"max_length": 400, "min_length": 1}
    content["fields"]["channel"] = {"kind": "category", "values": [CATEGORY, "mail"]}
    content["examples"] = []
    return Schema.from_dict(content)


def hostile_records(schema: Schema, count: int, offset: int) -> list[Record]:
    found = []
    for number, record in enumerate(drawn(count, offset=offset)):
        changed = record | {"topic": f"{TEXTS[number % len(TEXTS)]}", "channel": (CATEGORY, "mail")[number % 2]}
        assert not schema.check(changed)
        found.append(changed)
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("pages")
    schema = hostile_schema()
    made = hostile_records(schema, 32, 0)
    found = evaluate(
        made, schema=schema, test=hostile_records(schema, 32, 500), private=hostile_records(schema, 40, 900),
        encoder=HashingEncoder(64), views=("minilm",), bootstrap=20, show_real=True,
    )  # fmt: skip
    found.write(folder)
    config = check_config({"dataset": "desk", "data": "x.csv", "epsilon": 2.0}, where="test")
    card = build_card(schema=schema, config=config, run="desk-1", ledger=Ledger.open("desk", root=folder / "ledger"))
    (folder / "summary.html").write_text(summary_page(schema, made, json.loads(json.dumps(card))), encoding="utf-8")
    rows = compared([found.content, found.content])
    rows[0]["name"] = TEXTS[0]
    (folder / "compare.html").write_text(compare_page(rows), encoding="utf-8")
    return Pages(folder / "report.html", folder / "summary.html", folder / "compare.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def opened(browser: Browser, page: Path, *, width: int = 1120, dark: bool = False) -> None:
    browser.requests.clear()
    browser.complaints.clear()
    browser.look(width=width, height=900, dark=dark)
    browser.visit(page.as_uri())
    browser.wait_for(f"document.readyState === 'complete' && location.href === {json.dumps(page.as_uri())}")


def quiet(browser: Browser, page: Path) -> None:
    """Nothing on the console, nothing asked of anybody, nothing of a record run."""
    assert browser.complaints == []
    assert {address for address in browser.requests if not address.startswith("data:")} == {page.as_uri()}
    assert browser.ask("window.hurt") is None
    assert browser.ask("document.querySelectorAll('script, img, iframe, foreignObject').length") == 0


@pytest.mark.parametrize("name", ["report", "summary", "compare"])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_pages_are_quiet_and_fit_at_any_width_in_either_theme(
    pages: Pages, browser: Browser, name: str, width: int, dark: bool
) -> None:
    page = getattr(pages, name)
    opened(browser, page, width=width, dark=dark)
    quiet(browser, page)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark


def test_the_pages_of_the_demo_are_quiet_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.chdir(tmp_path)
    assert selpe("demo", "--llm", "fake", "--records", "32", "--out", "demo").code == 0
    (run,) = (tmp_path / "demo" / "runs").iterdir()
    judged = selpe("evaluate", run, "--views", "minilm")
    assert judged.code == 0, judged.err
    for page in (run / "internal" / "report.html", run / "release" / "summary.html"):
        opened(browser, page)
        quiet(browser, page)
    opened(browser, run / "internal" / "report.html")
    titles = browser.ask("[...document.querySelectorAll('h2, h3')].map((one) => one.firstChild.textContent)")
    for title in ("Utility", "Fidelity", "Field by field", "Which fields go together", "Map of the records", "Privacy",
                  "ε of each private choice", "Samples"):  # fmt: skip
        assert title in titles


def test_records_are_shown_letter_by_letter(pages: Pages, browser: Browser) -> None:
    opened(browser, pages.report)
    shown = browser.ask("[...document.querySelectorAll('.sample p')].map((one) => one.textContent)")
    assert set(shown) == {
        text.strip() for text in TEXTS if len(text.strip()) > 24
    }  # shorter ones stand among the facts
    directions = browser.ask(
        "[...document.querySelectorAll('.sample p')].map((one) => getComputedStyle(one).unicodeBidi)"
    )
    assert set(directions) == {"isolate"}  # an override that a record opens ends with it


def test_every_chart_is_an_image_with_words(pages: Pages, browser: Browser) -> None:
    opened(browser, pages.report)
    charts = browser.ask(
        "[...document.querySelectorAll('svg.chart')].map((one) => [one.getAttribute('role'), "
        "one.querySelector(':scope > title').textContent, one.querySelector(':scope > desc').textContent])"
    )
    assert len(charts) > 12
    assert all(role == "img" and title and description for role, title, description in charts)


def test_the_notice_is_seen_first_and_the_verdict_second(pages: Pages, browser: Browser) -> None:
    opened(browser, pages.report)
    assert "INTERNAL, NOT FOR RELEASE" in browser.ask("document.body.firstElementChild.innerText")
    assert browser.ask("document.querySelector('h1').getBoundingClientRect().bottom") < 300
    opened(browser, pages.summary)
    assert "NOT FOR RELEASE" not in browser.ask("document.body.innerText")


def test_sections_can_be_reached_from_the_top(pages: Pages, browser: Browser) -> None:
    opened(browser, pages.report)
    missing = (
        "[...document.querySelectorAll('nav a')].filter((one) => !document.querySelector(one.getAttribute('href')))"
    )
    assert browser.ask(f"{missing}.length") == 0


def test_folded_parts_are_open_on_paper(pages: Pages, browser: Browser) -> None:
    opened(browser, pages.report, width=760)
    tall = "document.querySelector('details').getBoundingClientRect().height"
    folded = browser.ask(tall)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.ask(tall) > folded + 40
        printed: dict[str, Any] = browser.call("Page.printToPDF", preferCSSPageSize=True)
        assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
