"""`selpe studio`: what it opens, what it refuses, and what becomes of a run when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from in_process import selpe
from selpe.schema import Schema
from studio_world import drafted, write_table

WRONG = [
    (["studio"], "there is no such file"),
    (["studio", "gone.yaml"], "there is no such file"),
    (["studio", "gone.csv"], "gone.csv"),
    (["studio", ".", "--label", "level"], "--out and --label are for a table"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_what_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = selpe(*words)
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.glob("*.yaml")) == []


def test_another_table_beside_settings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drafted(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    done = selpe("studio", "other.csv")
    assert (done.code, "for another table" in done.err) == (2, True)


def test_a_broken_file_is_said_before_there_is_a_page(tmp_path: Path) -> None:
    drafted(tmp_path)
    (tmp_path / "schema.yaml").write_text("fields: [", encoding="utf-8")
    done = selpe("studio", tmp_path)
    assert (done.code, "not YAML" in done.err) == (2, True)


@contextmanager
def opened(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, IO[str]]]:
    """A studio in a process of its own: the process, its address, and what it says."""
    command = [sys.executable, "-m", "selpe", "--json", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        url = ""
        while not url:
            line = process.stdout.readline()
            assert line, "the studio ended"
            url = json.loads(line).get("studio", "")
        yield process, url, process.stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def post(url: str, path: str, content: dict[str, Any]) -> dict[str, Any]:
    origin = url.rsplit("/", 2)[0]
    headers = {"Content-Type": "application/json", "Origin": origin}
    request = urllib.request.Request(url + path, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("words", [("studio", "visits.csv"), ("init", "visits.csv", "--web")], ids=["studio", "init"])
def test_a_table_is_drafted_and_opened_and_ctrl_c_ends_the_page(tmp_path: Path, words: tuple[str, ...]) -> None:
    write_table(tmp_path)
    with opened(tmp_path, *words) as (process, url, _):
        with urllib.request.urlopen(url + "state", timeout=300) as answer:
            assert json.load(answer)["settings"]["table"] == "visits.csv"
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
    assert Schema.load(tmp_path / "schema.yaml").unconfirmed


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.timeout(900)
def test_ctrl_c_says_that_a_run_goes_on_and_leaves_it_alone(tmp_path: Path) -> None:
    config = drafted(tmp_path)
    schema = tmp_path / "schema.yaml"
    schema.write_text(schema.read_text(encoding="utf-8").replace("confirmed: false", "confirmed: true"), "utf-8")
    with config.open("a", encoding="utf-8") as file:
        file.write("attempts: 7\n")
    with opened(tmp_path, "studio", ".") as (process, url, said):
        with urllib.request.urlopen(url + "state", timeout=300) as answer:
            revision = json.load(answer)["revision"]
        run = post(url, "run", {"epsilon": "2", "revision": revision})["run"]
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
        told = json.loads(said.readline())["goes_on"]
    assert told["run"] == run
    os.kill(told["process"], 0)  # it is there still
    os.kill(told["process"], signal.SIGINT)
