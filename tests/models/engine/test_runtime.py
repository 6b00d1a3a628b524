"""Machines that have no OpenVINO, or one that cannot be loaded: they are told what to use instead."""

from __future__ import annotations

import importlib
import platform
import sys
from pathlib import Path
from types import ModuleType

import pytest

from selpe.errors import ModelError
from selpe.models.engine import runtime
from selpe.models.engine.local import LocalModel
from selpe.models.machine import ENGINES


def failing_with(problem: ImportError, monkeypatch: pytest.MonkeyPatch) -> None:
    really = importlib.import_module

    def import_module(name: str, package: str | None = None) -> ModuleType:
        if name.startswith("openvino"):
            raise problem
        return really(name, package)

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_a_machine_without_openvino_is_told_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_with(ModuleNotFoundError("No module named 'openvino'"), monkeypatch)
    with pytest.raises(ModelError, match="not installed") as caught:
        runtime.openvino()
    assert "llamacpp:" in caught.value.hint
    assert "st:" in caught.value.hint
    assert runtime._TELEMETRY not in sys.modules or sys.modules[runtime._TELEMETRY] is not None


def test_a_library_that_cannot_be_loaded_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_with(ImportError("DLL load failed"), monkeypatch)
    with pytest.raises(ModelError, match="cannot be loaded"):
        runtime.openvino_genai()


def test_the_embedded_engine_says_so_before_it_reads_or_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_with(ModuleNotFoundError("No module named 'openvino'"), monkeypatch)
    with pytest.raises(ModelError, match="OpenVINO"):
        LocalModel(tmp_path / "absent.gguf", tmp_path / "prepared")
    assert not (tmp_path / "prepared").exists()


def test_a_mac_with_an_intel_processor_is_not_sent_to_a_package_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedded = next(engine for engine in ENGINES if engine.name == "embedded")
    assert "pip install" in embedded.remedy
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert "pip install" not in embedded.remedy
    assert "llama.cpp" in embedded.remedy
