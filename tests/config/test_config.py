from __future__ import annotations

from pathlib import Path

import pytest

from selpe.config import load_config
from selpe.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "selpe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "dataset: d\ndata: a.csv\nepsilon: 1\nrecords: 10\nseed: 3\n")
    config = load_config(
        path,
        environment={"SELPE_EPSILON": "2", "SELPE_RECORDS": "20", "OTHER": "x"},
        flags={"records": 30, "seed": None},
    )
    assert (config.epsilon, config.records, config.seed) == (2.0, 30, 3)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "dataset: d\ndata: a.csv\n"), environment={})
    assert Path(config.data) == tmp_path / "a.csv"
    assert Path(config.data_schema) == tmp_path / "schema.yaml"
    url = load_config(write(tmp_path, "dataset: d\ndata: sqlite:///x.db\nquery: select 1\n"), environment={})
    assert url.data == "sqlite:///x.db"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data: a.csv", "'dataset' must be given"),
        ("dataset: d\ndata: a\nepsilonn: 3", "no setting 'epsilonn'"),
        ("dataset: d\ndata: a\nepsilon: -1", "0 or above"),
        ("dataset: d\ndata: a\nepsilon: .nan", "0 or above"),
        ("dataset: d\ndata: a\nadjacency: both", "replace-one"),
        ("dataset: ../up\ndata: a", "pattern"),
        ("dataset: d\ndata: a\nrecords: 0", "greater than"),
        ("[", "not YAML"),
        ("- a", "mapping"),
    ],
)
def test_a_bad_setting_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(write(tmp_path, text), environment={})


def test_an_error_names_the_line_and_not_the_value(tmp_path: Path) -> None:
    path = write(tmp_path, "dataset: d\ndata: a\nepsilon: MARKER\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment={})
    assert "selpe.yaml:3 (epsilon)" in str(caught.value)
    assert "MARKER" not in str(caught.value)


def test_a_missing_file_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.yaml", environment={})


def test_infinite_epsilon_is_a_control_that_can_be_asked_for(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "dataset: d\ndata: a\nepsilon: .inf\n"), environment={}).epsilon == float("inf")
