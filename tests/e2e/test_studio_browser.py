"""The studio in a real browser: a stranger's hour from a draft to a report, and nobody else is asked anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headless_browser import CHROMIUM, Browser
from selpe.schema import Schema
from selpe.studio.project import Project
from selpe.studio.server import StudioServer
from selpe.studio.studio import Studio
from studio_page import StudioPage
from studio_world import EXAMPLE, SECRET_VALUE, SECRET_YEAR, drafted

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(1800),
]
STEPS = ("fields", "table", "examples", "rules", "plan", "run")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    made = Studio(Project(drafted(tmp_path)))
    yield made
    made.desk.close()


@pytest.fixture
def page(studio: Studio, browser: Browser) -> Iterator[StudioPage]:
    """The browser on a fresh draft; at the end it has asked nobody else, and has not complained."""
    browser.requests.clear()
    browser.complaints.clear()
    browser.look(width=1080, height=900)
    with StudioServer(studio, period=0.1) as server:
        page = StudioPage(browser)
        browser.visit(server.url)
        page.wait("document.querySelectorAll('.head').length === 8")
        yield page
        asked = {urlsplit(address).netloc for address in browser.requests if not address.startswith("data:")}
        assert asked == {f"127.0.0.1:{server.port}"}
        browser.visit("about:blank")
    assert browser.complaints == []


def test_a_strangers_hour_from_a_draft_to_a_report(page: StudioPage, studio: Studio) -> None:
    # the draft: nothing of the table is shown until it is asked for
    assert SECRET_YEAR not in page.text("main")
    page.press("Show all 6 proposals of the draft")
    page.wait(f"document.querySelector('main').innerText.includes('{SECRET_VALUE}')")
    for name in Schema.load(studio.project.folder / "schema.yaml").names:
        page.wait(f"document.querySelector('.head[aria-expanded=true]')?.dataset.field === '{name}'")
        page.fill("Description", f"What stands under {name}")
        page.press("It is public: confirm")
    page.wait("document.querySelector('main').innerText.includes('Every field is confirmed')")
    # the table
    page.go("table")
    page.fill("In one sentence: what is one record, and where does it arise?", "A visit to a desk")
    page.fill("The class", "level")
    page.press("These are right: save")
    page.wait("location.hash === '#examples'")
    # an example, looked at while it is typed
    for name, value in (EXAMPLE | {"arrived": f"{SECRET_YEAR}-05-06", "age": "999"}).items():
        page.fill(name, value)
    page.wait("document.querySelector('[aria-invalid=true]') !== null")
    page.fill("age", EXAMPLE["age"])
    page.wait("document.querySelector('main').innerText.includes('This is a valid record')")
    page.press("Add this example")
    page.wait("document.querySelectorAll('.sample').length === 1")
    # a rule, by choosing
    page.go("rules")
    page.fill("Field", "low")
    page.fill("With", "field")
    page.fill("Which field", "high")
    page.wait("document.querySelector('form code')?.textContent === 'low < high'")
    page.press("Add this rule")
    page.wait("document.querySelector('.rules code')?.textContent === 'low < high'")
    # the plan follows the slider
    page.go("plan")
    page.wait("document.querySelector('.verdict') !== null")
    page.fill("ε of the run, slider", "5")
    page.wait("document.querySelector('.numbers')?.innerText.includes('ε, replace-one\\n1')")
    page.fill("Records to write", "8")
    page.wait("document.querySelector('.numbers')?.innerText.includes('synthetic records\\n8')")
    page.press("Keep these settings, go on to the run")
    page.wait("location.hash === '#run' && document.querySelector('.start form') !== null")
    saved = studio.project.read()
    assert (saved.schema.unconfirmed, saved.schema.label, saved.settings.epsilon, saved.settings.records) == (
        (), "level", 1.0, 8,
    )  # fmt: skip
    # a sample of the model, graded for free
    page.press("Try the model")
    page.wait("document.querySelectorAll('.sample').length === 4", seconds=900)
    assert "valid:" in page.text("main")
    assert studio.desk.as_dict()["preview"]["grade"]["records"] > 4
    # the run: the amount is typed, not clicked
    page.press("Spend ε 1 and start")
    page.wait("document.querySelector('.start [aria-invalid=true]') !== null")
    assert set(studio.desk.as_dict()) == {"preview"}
    page.fill("Type 1 to start", "1")
    page.press("Spend ε 1 and start")
    page.wait("document.querySelector('.start').innerText.includes('is done')", seconds=900)
    page.wait("document.querySelector('iframe')?.contentDocument?.getElementById('state')?.textContent === 'done'")
    # the report, in the same page
    page.fill("A table of real records to test on (may be empty)", "visits.csv")
    page.press("Judge it")
    page.wait("document.querySelector('.runs').innerText.includes('Report (internal)')", seconds=900)
    page.press("Report (internal)")
    page.wait("document.querySelector('iframe').contentDocument?.querySelector('.notice') !== null")
    page.wait("document.querySelector('iframe').offsetHeight > 1500")


def test_a_change_made_elsewhere_is_said_and_shown(page: StudioPage, studio: Studio) -> None:
    path = studio.project.folder / "schema.yaml"
    text = path.read_text(encoding="utf-8")
    page.press("Show all 6 proposals of the draft")
    page.wait("document.querySelector('main').innerText.includes('walked')")
    path.write_text(text.replace("kind: boolean", "kind: boolean\n    optional: true"), encoding="utf-8")
    page.press("It is public: confirm")
    page.wait("document.getElementById('alarm').innerText.includes('changed meanwhile')")
    assert "optional: true" in path.read_text(encoding="utf-8")
    page.browser.complaints.clear()  # the browser notes the refusal
    page.press("It is public: confirm")
    page.wait("document.getElementById('steps').innerText.includes('1 of 8 confirmed')")


def test_hostile_texts_are_shown_as_texts(page: StudioPage, studio: Studio) -> None:
    hostile = "<img src=x onerror='window.hurt = 1'><script>window.hurt = 2</script>"
    revision = studio.project.revision()
    studio.set_about(hostile, None, revision)
    studio.add_rule(f"note != {json.dumps(hostile)}", studio.project.revision())
    page.browser.ask("location.reload()")
    page.wait("document.querySelectorAll('.head').length === 8")
    page.go("rules")
    page.wait("document.querySelectorAll('.rules li').length === 1")
    assert page.browser.ask("document.querySelector('.rules code').textContent") == f"note != {json.dumps(hostile)}"
    page.go("table")
    assert page.browser.ask("window.hurt") is None
    assert page.browser.ask("document.querySelectorAll('main img, main script').length") == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_step_fits_and_every_control_has_a_name(page: StudioPage, width: int, dark: bool) -> None:
    page.browser.look(width=width, height=800, dark=dark)
    page.press("Show all 6 proposals of the draft")
    for step in STEPS:
        page.go(step)
        if step == "plan":
            page.wait("document.querySelector('.verdict') !== null")
        assert page.browser.ask("document.documentElement.scrollWidth") <= width, step
        assert page.nameless() == [], step
        assert page.browser.ask("document.querySelectorAll('h1').length") == 1
    ground = page.browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark


def test_the_page_is_walked_by_keyboard(page: StudioPage) -> None:
    """Tab goes through everything in the order of the page, what has the focus can be seen, and Enter presses it."""
    seen = []
    for _ in range(12):
        page.key("Tab", 9)
        seen.append(page.browser.ask("document.activeElement.innerText || document.activeElement.tagName"))
    assert seen[0] == "Skip to the step"
    assert [text.split("\n")[0] for text in seen[1:7]] == [
        "1 Fields", "2 Table", "3 Examples", "4 Rules", "5 Plan", "6 Run",
    ]  # fmt: skip
    assert page.browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.browser.ask("[...document.querySelectorAll('nav a')].find((one) => one.hash === '#plan').focus()")
    page.key("Enter", 13)
    page.wait("document.activeElement.tagName === 'H1' && document.activeElement.innerText.includes('ε')")
