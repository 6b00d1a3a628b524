"""A key or a password is in no file of a run, no message and no log, whatever a server or a user does with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fake_model_server import Clock, written
from faults_world import require_tidy, state
from faulty_server import MODELS, FaultyServer, mixture, status
from in_process import selpe
from selpe.config import check_config
from selpe.errors import ConfigError
from selpe.intake.addresses import with_password, without_password
from selpe.models.http.transport import Timeouts
from selpe.run.lifecycle import Run
from small_world import SCHEMA

KEY = "sk-Sentinel-4711-abcdefghijklmnop"
PASSWORD = "Pw-Sentinel-4711"


def everywhere(folder: Path) -> bytes:
    """All bytes of all files under a folder, names included."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return b"".join(str(path).encode() + path.read_bytes() for path in paths)


@pytest.mark.parametrize("answer", ["works", "refuses and repeats the key"])
def test_an_api_key_is_nowhere_but_in_the_request(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    monkeypatch.setenv("SELPE_API_KEY", KEY)
    monkeypatch.setattr("selpe.models.http.model.WallClock", Clock)
    monkeypatch.setattr(
        "selpe.models.http.transport.Timeouts", lambda: Timeouts(connect=2.0, first_byte=2.0, total=5.0)
    )
    caplog.set_level("DEBUG")
    told = {"error": {"message": f"the key {KEY} is wrong, Bearer {KEY}"}}
    good = mixture(written, [status(500, told)], share=0.1)
    rest = good if answer == "works" else status(401, told)
    with FaultyServer(rest=rest, models=status(200, MODELS)) as server:
        done = selpe("-v", "-v", "--debug", "run", "--llm", f"{server.url}#toy", "--name", "mine", "--yes")
        assert any(KEY in call.headers.get("authorization", "") for call in server.calls)
        require = (0,) if answer == "works" else (1, 2)
        assert done.code in require, done.err
        if answer == "works":
            assert state(project) == "done"
            require_tidy(selpe("release", "-y", "mine", "--to", "x.zip"), 0)
    assert KEY not in done.said
    assert KEY not in caplog.text
    assert KEY.encode() not in everywhere(project)


@pytest.mark.parametrize(
    "address",
    [
        f"http://user:{PASSWORD}@127.0.0.1:9/v1",
        f"http://127.0.0.1:9/v1?api_key={PASSWORD}",
        f"http://127.0.0.1:9/v1,https://u:{PASSWORD}@h/v1#m",
    ],
)
@pytest.mark.parametrize("setting", ["llm", "encoder"])
def test_an_address_with_a_secret_in_it_is_refused_before_anything_is_written(
    project: Path, setting: str, address: str
) -> None:
    refused = selpe("run", "--yes", f"--{setting}", address)
    require_tidy(refused, 2)
    assert PASSWORD not in refused.said
    assert "SELPE_API_KEY" in refused.err
    assert PASSWORD.encode() not in everywhere(project)


URLS = {
    f"postgresql://ann:{PASSWORD}@db.example:5432/clinic": "postgresql://ann:***@db.example:5432/clinic",
    f"postgresql://db/clinic?user=ann&password={PASSWORD}": "postgresql://db/clinic?user=ann&password=***",
    f"mssql+pyodbc://?odbc_connect=DRIVER%3DX%3BPWD%3D{PASSWORD}": "mssql+pyodbc://?odbc_connect=***",
    "postgresql://ann@db/clinic": "postgresql://ann@db/clinic",
    "sqlite:///file.db": "sqlite:///file.db",
    "rows.csv": "rows.csv",
}


@pytest.mark.parametrize(("url", "kept"), URLS.items())
def test_the_password_of_a_database_is_not_kept_and_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, kept: str
) -> None:
    monkeypatch.delenv("SELPE_DATA", raising=False)
    SCHEMA.save(tmp_path / "schema.yaml")
    settings = {"dataset": "desk", "data": url, "query": "SELECT 1", "schema": str(tmp_path / "schema.yaml")}
    config = check_config({**settings, "out": str(tmp_path / "runs")}, where="test")
    run = Run.create(config, name="mine", ledger=tmp_path / "ledger")
    assert run.config.data == url  # this process knows it
    assert PASSWORD.encode() not in everywhere(tmp_path)
    found = Run.open(run.folder).config.data
    assert found == kept == without_password(url)
    if kept == url:
        assert with_password(found) == url
        return
    with pytest.raises(ConfigError) as refused:
        with_password(found)
    assert "SELPE_DATA" in refused.value.hint
    assert PASSWORD not in str(refused.value)
    monkeypatch.setenv("SELPE_DATA", url.replace("clinic", "other").replace("DRIVER", "OTHER"))
    if "clinic" in url:
        with pytest.raises(ConfigError):
            with_password(found)  # of another database
    monkeypatch.setenv("SELPE_DATA", url)
    assert with_password(found) == url


def test_environment_variables_are_in_no_file_of_a_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", KEY)
    monkeypatch.setenv("SELPE_API_KEY", KEY)
    require_tidy(selpe("run", "--name", "mine", "--yes"), 0)
    assert KEY.encode() not in everywhere(project)
    secret = (project / "key").read_bytes()  # the owner's key, which seals the ledger
    assert secret not in everywhere(project / "runs") + everywhere(project / "ledger")
    assert json.loads((project / "runs" / "mine" / "manifest.json").read_text())["settings"]["data"].endswith(
        "desk.csv"
    )
    assert os.environ["HF_TOKEN"] == KEY
