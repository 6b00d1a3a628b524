"""`selpe models` and `selpe doctor`: what people see and what machines read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from selpe.cli import console, doctor, models
from selpe.errors import ModelError, ModelNotFoundError
from selpe.models.store.registry import REGISTRY, HubSource, ModelEntry, ModelFile

BODY = b"weights" * 1000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SELPE_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub-cache"))
    monkeypatch.delenv("SELPE_MODELS", raising=False)
    monkeypatch.setattr(console, "MANNERS", console.Manners())
    for name in ("out", "err"):  # the consoles remember the stream they were made for
        getattr(console, name).cache_clear()
    file = ModelFile("toy.gguf", hashlib.sha256(BODY).hexdigest(), len(BODY), (HubSource("org/toy", "toy.gguf"),))
    monkeypatch.setitem(REGISTRY, "toy", ModelEntry("toy", "gguf", (file,), "MIT", "someone", "a toy"))
    yield tmp_path
    for name in ("out", "err"):
        getattr(console, name).cache_clear()


@pytest.fixture
def brought(cache: Path) -> Path:
    path = cache / "brought.gguf"
    path.write_bytes(BODY)
    return path


def invoke(*words: str) -> Result:
    app = typer.Typer()
    for topic in (models, doctor):
        topic.register(app)
    for name in ("out", "err"):
        getattr(console, name).cache_clear()
    return CliRunner().invoke(app, list(words))


def as_json(*words: str) -> dict[str, Any]:
    console.MANNERS.json = True
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    answer: dict[str, Any] = json.loads(line)
    return answer


def test_list_shows_known_models_with_licence_before_any_is_here() -> None:
    shown = invoke("models", "list").stdout
    for word in ("smollm2", "minilm", "qwen2.5-coder-1.5b", "toy", "Apache-2.0", "no"):
        assert word in shown
    rows = {row["name"]: row for row in as_json("models", "list")["models"]}
    assert rows["toy"]["here"] is False
    assert rows["smollm2"]["files"][0]["sha256"] == REGISTRY["smollm2"].files[0].sha256


def test_pull_path_verify_and_rm_follow_a_model_through_its_life(brought: Path) -> None:
    pulled = invoke("models", "pull", "toy", "--from", str(brought))
    assert pulled.exit_code == 0, pulled.output
    assert "ready" in pulled.output
    path = Path(invoke("models", "path", "toy").stdout.strip())
    assert path.read_bytes() == BODY
    assert "whole toy" in invoke("models", "verify").stdout
    removed = as_json("models", "rm", "toy")
    assert (removed["removed"], removed["freed_bytes"] >= len(BODY)) == ("toy", True)
    assert not path.exists()


def test_machines_get_one_line_per_model(brought: Path) -> None:
    pulled = as_json("models", "pull", "toy", "--from", str(brought))
    assert Path(pulled["path"]).name == "toy.gguf"
    assert as_json("models", "path", "toy") == {"name": "toy", "path": pulled["path"]}
    assert as_json("models", "verify")["files"] == {"toy.gguf": hashlib.sha256(BODY).hexdigest()}


def test_verify_fails_on_a_damaged_file(brought: Path) -> None:
    path = Path(as_json("models", "pull", "toy", "--from", str(brought))["path"])
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    result = invoke("models", "verify", "toy")
    assert isinstance(result.exception, ModelError)
    assert "toy.gguf is damaged" in str(result.exception)


@pytest.mark.parametrize("command", ["path", "verify", "rm", "pull"])
def test_a_model_that_is_not_here_is_an_error_with_a_hint(command: str) -> None:
    result = invoke("models", command, "toy")
    assert isinstance(result.exception, ModelNotFoundError)
    assert "selpe models pull toy" in result.exception.hint


def test_progress_goes_to_standard_error(brought: Path) -> None:
    result = invoke("models", "pull", "toy", "--from", str(brought))
    assert "from local file" in result.stderr
    assert "from local file" not in result.stdout


def test_doctor_shows_the_machine_the_engines_and_what_is_missing() -> None:
    shown = invoke("doctor", "--quick").stdout
    for word in ("cores", "instructions", "memory", "embedded", "llama.cpp", "transformers", "none yet"):
        assert word in shown
    found = as_json("doctor", "--quick")
    assert found["machine"]["cores"] == os.cpu_count()
    engines = {engine["name"]: engine for engine in found["engines"]}
    assert engines["embedded"]["available"] is True
    assert engines["embedded"]["versions"]["openvino"]
    assert found["store"] == {"path": os.environ["SELPE_CACHE"] + "/models", "models": {}, "offline": True}


def test_doctor_does_not_fetch_a_model_just_to_measure_it() -> None:
    found = as_json("doctor")
    assert "selpe models pull smollm2" in found["speed"]["note"]
    assert "tokens_per_second" not in found["speed"]


def test_doctor_measures_and_says_what_to_expect() -> None:
    speed = as_json("doctor", "--llm", "fake")["speed"]
    assert speed["tokens_per_second"] > 0
    assert speed["candidates_per_second"] > 0
    assert set(speed["expected_seconds"]) == {"200", "2000"}
    console.MANNERS.json = False
    shown = invoke("doctor", "--llm", "fake").stdout
    assert "2,000 records" in shown
    assert "candidates/s" in shown


def test_neither_command_imports_anything_heavy() -> None:
    program = "import sys, selpe.cli.models, selpe.cli.doctor; print('numpy' in sys.modules, 'httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
