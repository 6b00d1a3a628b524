"""The paper's configuration: a settings file, the command line, the experiments and the method itself agree on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from in_process import selpe
from selpe.cli import run as run_command
from selpe.config import RunConfig, check_config, load_config
from selpe.config.presets import PAPER
from selpe.errors import ConfigError
from selpe.experiments.arms import ARMS
from selpe.method.algorithm import Method
from selpe.method.from_settings import method_of

BARE = {"dataset": "desk", "data": "desk.csv"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "selpe.yaml"
    path.write_text("dataset: desk\ndata: desk.csv\n", encoding="utf-8")
    return path


def from_file(path: Path, more: str = "preset: paper\n", **flags: Any) -> RunConfig:
    path.write_text(f"dataset: desk\ndata: desk.csv\n{more}", encoding="utf-8")
    return load_config(path, environment={}, flags=flags)


def from_command(monkeypatch: pytest.MonkeyPatch, *words: str) -> RunConfig:
    """The settings that `selpe run` would begin with."""
    begun: list[RunConfig] = []
    with monkeypatch.context() as patch:
        patch.setattr(run_command, "begin", lambda settings, **_: begun.append(settings))
        result = selpe("run", "--yes", *words)
    assert result.code == 0, result.err
    return begun[0]


def test_file_command_experiments_and_method_agree_on_the_papers_configuration(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flagged = from_command(monkeypatch, "--preset", "paper")
    assert flagged == from_command(monkeypatch, "--method", "paper")
    assert flagged == from_file(file)
    places = {"data": flagged.data, "schema": flagged.data_schema, "out": flagged.out}
    assert flagged == check_config({**BARE, **ARMS["selpe-paper"].settings, **places}, where="arm")
    assert method_of(flagged) == Method.paper()


def test_the_papers_configuration_is_what_the_paper_says() -> None:
    config = check_config({**BARE, "preset": "paper"}, where="test")
    assert (config.rounds, config.multiplicity, config.temperature) == (5, 3, 1.2)
    assert (config.votes, config.mechanism, config.inclusion) == ("prototype", "exponential", "centre")
    assert (config.guides, config.bundles, config.explore) == ("off", 0, 0.0)


def test_settings_beside_a_preset_win_and_a_preset_of_the_flags_wins_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "rounds: 2\nexplore: 0.5\n"
    beside = from_file(file, f"preset: paper\n{own}")
    assert (beside.rounds, beside.explore, beside.votes) == (2, 0.5, "prototype")
    over = from_file(file, own, preset="paper")
    assert (over.rounds, over.explore, over.votes) == (5, 0.0, "prototype")
    both = from_command(monkeypatch, "--preset", "paper", "--set", "rounds=3")
    assert (both.rounds, both.explore, both.votes) == (3, 0.0, "prototype")


def test_what_is_stored_of_a_run_has_a_presets_settings_and_not_its_name() -> None:
    stored = check_config({**BARE, "preset": "paper"}, where="test").model_dump(mode="json", by_alias=True)
    assert "preset" not in stored
    assert stored == check_config({**BARE, **PAPER}, where="test").model_dump(mode="json", by_alias=True)
    assert "preset" not in json.dumps(check_config(BARE, where="test").model_dump(mode="json"))


def test_an_unknown_preset_and_a_baseline_with_a_preset_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="must be 'paper'"):
        from_file(file, "preset: papper\n")
    from_file(file)
    result = selpe("run", "--preset", "paper", "--method", "augpe", "--dry-run")
    assert result.code == 2
    assert "not for a baseline" in result.err
