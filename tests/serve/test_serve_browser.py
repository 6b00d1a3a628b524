"""The page of a run in a real browser, served beside the API: it shows the run and asks nobody else."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headless_browser import CHROMIUM, Browser
from selpe.events import Finished, PoolReady, StageStarted, Started
from selpe.run.event_log import EventLog
from selpe.serve.limits import Limits, Operator
from selpe.serve.server import ListenAddress, build_server, url_of
from selpe.serve.store import write_json
from selpe.serve.token import Token
from serve_world import SECRET
from small_world import SCHEMA

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(180),
]
HOSTILE = "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"


def test_a_browser_shows_a_run_by_its_page(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "runs" / "desk-1"
    (folder / "work").mkdir(parents=True)
    SCHEMA.save(tmp_path / "schema.yaml")
    settings = {"schema": str(tmp_path / "schema.yaml"), "epsilon": "2.0", "adjacency": "replace-one", "records": 4,
                "method": "selpe", "delta": 0.0, "seed": 0}  # fmt: skip
    write_json(folder / "manifest.json", {"name": "desk-1", "state": "done", "settings": settings})
    write_json(folder / "work" / "accepted.json", {"table": "desk", "submitted": "2026", "charges": [],
                                                       "llm": "fake", "encoder": "hash"})  # fmt: skip
    with EventLog(folder / "work" / "events.jsonl") as log:
        for event in (Started(1, 4, 8), StageStarted("round", 1, 8)):
            log.listen(event)
        log.listen(PoolReady("round", 1, 8, {}, {}, ({"topic": HOSTILE, "urgency": "low"},)))
        log.listen(Finished(4))

    address, operator = ListenAddress(), Operator({"fake": "fake"}, {"hash": "hash"}, Limits(workers=0))
    server, listener = build_server(tmp_path / "root", operator, Token(SECRET), address)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        url = url_of(address, listener)
        with Browser(tmp_path / "profile") as browser:
            browser.visit(f"{url}/watch/desk-1/{Token(SECRET).key_of('desk-1')}/")
            browser.wait_for("document.getElementById('state').textContent === 'done'")
            shown = browser.ask("document.getElementById('samples').innerText")
            assert HOSTILE in str(shown)
            assert browser.ask("window.hurt") is None
            assert browser.complaints == []
            asked = {urlsplit(one).netloc for one in browser.requests if not one.startswith("data:")}
        assert asked == {urlsplit(url).netloc}
        assert str(tmp_path) not in json.dumps(str(shown))
    finally:
        server.handle_exit(2, None)
        thread.join(timeout=300)
        listener.close()
