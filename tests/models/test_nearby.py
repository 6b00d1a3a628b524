"""Model servers on this machine: who is asked, what is believed, and what is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from selpe.errors import ConfigError
from selpe.models import nearby
from selpe.models.nearby import NearbyModel, billions_in, nearby_models
from web_site import Site, site


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as served:
        monkeypatch.setenv(nearby.VARIABLE, served.url)
        monkeypatch.setattr(nearby, "PATIENCE", 5.0)  # a busy machine makes a living server slow
        yield served


def listed(*entries: object) -> bytes:
    return json.dumps({"object": "list", "data": list(entries)}).encode()


def test_ollama_tells_sizes_in_a_list_of_its_own(server: Site) -> None:
    server.pages["/v1/models"] = listed({"id": "mistral:latest"}, {"id": "nomic-embed-text"}, {"id": "llama3.2:3b"})
    tags = {"models": [{"name": "mistral:latest", "details": {"parameter_size": "7.2B"}}]}
    server.pages["/api/tags"] = json.dumps(tags).encode()
    assert nearby_models() == (
        NearbyModel(server.url, "mistral:latest", 7.2),
        NearbyModel(server.url, "llama3.2:3b", 3.0),
    )
    assert nearby_models()[0].llm == f"{server.url}/v1#mistral:latest"


def test_llamacpp_counts_parameters_and_vllm_names_them(server: Site) -> None:
    server.pages["/v1/models"] = listed({"id": "own.gguf", "meta": {"n_params": 1_543_000_000}})
    assert nearby_models() == (NearbyModel(server.url, "own.gguf", 1.543),)
    server.pages["/v1/models"] = listed({"id": "Qwen/Qwen2.5-7B-Instruct", "owned_by": "vllm"}, {"id": "tuned"})
    assert [model.billions for model in nearby_models()] == [7.0, None]


@pytest.mark.parametrize(
    "page", [b"<html>", b"[]", b"{}", b'{"data": {}}', b'{"data": ["a", {"name": "b"}, {"id": 3}]}', b"\xff"]
)
def test_what_does_not_answer_as_a_model_server_is_none(server: Site, page: bytes) -> None:
    server.pages["/v1/models"] = page
    assert nearby_models() == ()


def test_a_server_that_refuses_or_leads_elsewhere_is_none(server: Site) -> None:
    server.statuses = [401]
    assert nearby_models() == ()
    server.pages["/elsewhere"] = listed({"id": "other:7b"})
    server.redirects["/v1/models"] = f"{server.url}/elsewhere"
    assert nearby_models() == ()
    assert not server.asked("/elsewhere")


def test_no_key_is_sent_and_no_proxy_is_used(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELPE_API_KEY", "secret")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    server.pages["/v1/models"] = listed({"id": "m:3b"})
    assert len(nearby_models()) == 1
    assert not any("secret" in str(headers) for _, headers in server.seen)


def test_a_port_where_nobody_listens_or_nobody_answers_costs_little(
    server: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nearby_models(["http://127.0.0.1:9"]) == ()
    monkeypatch.setattr(nearby, "PATIENCE", 0.05)
    server.delay = 2.0
    assert nearby_models() == ()


def test_off_asks_nobody(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nearby.VARIABLE, "off")
    assert nearby_models() == ()
    assert not server.seen


@pytest.mark.parametrize(
    "address", ["http://192.168.1.5:8000", "https://api.example.com", "http://127.0.0.1.evil.org", "localhost:8000"]
)
def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(nearby.VARIABLE, address)
    with pytest.raises(ConfigError, match="on this machine"):
        nearby_models()


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen2.5:7b", 7.0),
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.5),
        ("gemma3:4b-it-q4_K_M", 4.0),
        ("smollm2:135m", 0.135),
        ("llama3.2", None),
        ("phi3.5-mini", None),
        ("model-v2.0-beta", None),
    ],
)
def test_sizes_are_read_from_names(name: str, billions: float | None) -> None:
    assert billions_in(name) == billions
