"""The page in a real browser: it shows what happens, runs no hostile text, and asks nobody but its own server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headless_browser import CHROMIUM, Browser
from selpe.events import Answered, Finished, Included, PoolReady, Selected, StageStarted, Started
from selpe.run.progress import Meter
from selpe.watch import WatchServer, live_view
from small_world import SCHEMA

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(180),
]
HOSTILE = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'> ${window.hurt = 3} \"'`"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def meter() -> Meter:
    return Meter(epsilon=2.0)


@pytest.fixture
def page(tmp_path: Path, meter: Meter, browser: Browser) -> Iterator[Browser]:
    """The browser on the page of a run that has just begun."""
    SCHEMA.save(tmp_path / "schema.yaml")
    manifest = {"name": "desk-1", "state": "running", "settings": {"schema": str(tmp_path / "schema.yaml")}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    browser.requests.clear()
    browser.complaints.clear()
    browser.look(width=1000, height=900)
    meter.listen(Started(2, 8, 30))
    with WatchServer(live_view(tmp_path, meter), period=0.1) as server:
        browser.visit(server.url)
        browser.wait_for("document.getElementById('run').textContent === 'desk-1'")
        yield browser
        asked = {urlsplit(address).netloc for address in browser.requests if not address.startswith("data:")}
        assert asked == {f"127.0.0.1:{server.port}"}
    assert browser.complaints == []


def text(browser: Browser, name: str) -> str:
    return str(browser.ask(f"document.getElementById('{name}').innerText"))


def half_way(meter: Meter, topic: str = "line is dead") -> None:
    meter.listen(StageStarted("round", 1, 10))
    for _ in range(10):
        meter.listen(Answered("II", 50, 20))
    record = {"topic": topic, "urgency": "low", "minutes": 5, "solved": True, "waited": None}
    meter.listen(PoolReady("round", 1, 10, {"rule": 3, "duplicate": 1}, {"rule": 1}, (record,)))
    meter.listen(Selected("round-1", "permute-and-flip", 0.25, 0.5, True, False, {}))
    meter.listen(Included(1, 3))


def test_progress_budget_retries_and_samples_appear_as_they_happen(page: Browser, meter: Meter) -> None:
    assert "No private choice has been made yet" in text(page, "choices")
    half_way(meter)
    page.wait_for("document.querySelectorAll('.sample').length === 1")
    assert text(page, "title") == "Round 1 of 2"
    assert text(page, "percent") == "33%"
    assert text(page, "count") == "10 of 30 candidates"
    assert text(page, "spent") == "ε 0.5 of 2 spent, replace-one"
    assert "round 1" in text(page, "choices")
    assert text(page, "reasons").split("\n")[:4] == ["rule", "3", "duplicate", "1"]
    assert "Given up after all tries: 1." in text(page, "reasons")
    sample = text(page, "samples")
    assert "urgency low" in sample
    assert "solved yes" in sample
    assert "waited" not in sample


def test_the_end_of_the_run_is_shown_and_the_stream_is_left(page: Browser, meter: Meter) -> None:
    half_way(meter)
    meter.listen(Finished(8))
    page.wait_for("document.getElementById('state').textContent === 'done'")
    assert text(page, "percent") == "100%"
    page.wait_for("source.readyState === EventSource.CLOSED")


def test_hostile_text_is_shown_as_text(page: Browser, meter: Meter) -> None:
    half_way(meter, HOSTILE)
    page.wait_for("document.querySelectorAll('.sample').length === 1")
    assert page.ask("document.querySelector('.sample p').textContent") == HOSTILE
    assert page.ask("document.querySelectorAll('.sample script, .sample img').length") == 0
    assert page.ask("window.hurt") is None


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_overflows_at_any_width_in_either_theme(page: Browser, meter: Meter, width: int, dark: bool) -> None:
    page.look(width=width, height=800, dark=dark)
    half_way(meter, "x" * 60)
    page.wait_for("document.querySelectorAll('.sample').length === 1")
    assert page.ask("document.documentElement.scrollWidth") <= width
    ground = page.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark
