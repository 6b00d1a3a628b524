"""`llm: auto` at a terminal: what is said, and the question that comes before anything large is fetched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_process import selpe
from selpe.cli import writer
from selpe.intake import write_table
from selpe.models.fake import FakeModel
from selpe.models.store.curated import BY_NAME
from selpe.models.store.store import ModelStore
from small_world import SCHEMA, drawn
from web_site import Site, site

CONFIG = """
dataset: desk
data: desk.csv
schema: schema.yaml
records: 12
llm_minutes: 100000
encoder: hash
guides: off
bundles: 0
"""
NEXT = "qwen2.5-7b"  # the largest of the list that every machine here has the memory for


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose settings name no model, on a machine with an empty store and much memory."""
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40), SCHEMA, tmp_path / "desk.csv")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("SELPE_OFFLINE", "HF_HUB_OFFLINE", "SELPE_MODELS", "HF_TOKEN", "SELPE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub-cache"))
    monkeypatch.setattr("selpe.models.machine._memory", lambda: (64 * 10**9, 64 * 10**9))
    monkeypatch.setattr("selpe.run.session.open_model", lambda llm, **_: FakeModel())
    return tmp_path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        repo, _, file = BY_NAME[NEXT].hub.removeprefix("hf:").partition(":")
        held = {"rfilename": file, "size": 7, "lfs": {"sha256": hashlib.sha256(b"weights").hexdigest()}}
        served.pages[f"/api/models/{repo}/revision/main"] = json.dumps({"sha": "c0", "siblings": [held]}).encode()
        served.pages[f"/{repo}/resolve/c0/{file}"] = b"weights"
        yield served


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A person at a terminal who gives these answers; questions come with 'no' as the default."""
    given: list[bool] = []

    def confirm(question: str, *, default: bool, **_: object) -> bool:
        assert "Fetch Qwen2.5-7B-Instruct (4.7 GB) now?" in question
        assert default is False
        return given.pop(0)

    monkeypatch.setattr(writer, "_at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    monkeypatch.setattr("selpe.models.store.hub.is_reachable", lambda: True)
    return given


def test_every_command_says_what_auto_takes_and_none_asks_without_a_terminal(hub: Site) -> None:
    for command in (("plan",), ("preview", "-n", "1", "--no-grade"), ("run", "--dry-run")):
        said = selpe(*command)
        assert said.code == 0, said.err
        assert "model smollm2, by `llm: auto`" in said.out.replace("\n", " ")
        assert f"selpe models pull {NEXT}" in said.out.replace("\n", " ")
    assert "auto takes smollm2" in selpe("check").out.replace("\n", " ")
    assert not hub.seen
    assert json.loads(selpe("plan", "--json").out)["model"]["llm"] == "smollm2"
    assert selpe("run", "--dry-run", "--json").lines[0]["model"]["asked"] == "auto"


def test_yes_fetches_the_model_and_takes_it(hub: Site, answers: list[bool]) -> None:
    answers[:] = [True]
    said = selpe("preview", "-n", "1", "--no-grade")
    assert said.code == 0, said.err
    assert f"model {NEXT}, by `llm: auto`" in said.out.replace("\n", " ")
    assert ModelStore().stored(NEXT) is not None


def test_no_is_not_asked_again(hub: Site, answers: list[bool]) -> None:
    answers[:] = [False]
    for _ in range(2):
        assert "model smollm2" in selpe("preview", "-n", "1", "--no-grade").out
    assert answers == []
    assert not hub.seen


def test_with_yes_to_everything_nothing_is_fetched_either(hub: Site, answers: list[bool]) -> None:
    assert selpe("run", "--yes", "--epsilon", "0").code == 0
    assert not hub.seen


def test_a_hub_that_cannot_be_reached_is_said_and_the_embedded_model_is_taken(
    answers: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selpe.models.store.hub.is_reachable", lambda: False)
    said = selpe("preview", "-n", "1", "--no-grade")
    assert said.code == 0
    assert "cannot be reached" in said.err
    assert "model smollm2" in said.out


def test_a_fetch_that_fails_is_said_and_the_embedded_model_is_taken(hub: Site, answers: list[bool]) -> None:
    hub.pages.clear()
    answers[:] = [True]
    said = selpe("preview", "-n", "1", "--no-grade")
    assert said.code == 0
    assert "SmolLM2-135M-Instruct is taken" in said.err.replace("\n", " ")


def test_offline_says_so_and_offers_nothing(hub: Site, answers: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELPE_OFFLINE", "1")
    said = selpe("preview", "-n", "1", "--no-grade")
    assert said.code == 0
    assert "Network use is off" in said.out.replace("\n", " ")
    assert "models pull" not in said.out
    assert not hub.seen
