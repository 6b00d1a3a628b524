"""`selpe serve` as a command: where it listens, what it says, and what it refuses."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from in_process import selpe
from selpe.cli import serve as command
from selpe.errors import ConfigError, ExitCode
from selpe.serve.server import ListenAddress, is_loopback

Start = Callable[..., tuple[dict[str, Any], subprocess.Popen[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `selpe serve` and says what it said once it listened."""
    made: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> tuple[dict[str, Any], subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "selpe", "--json", "serve", "--root", str(tmp_path / "root"), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        made.append(process)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())["serve"], process

    yield begin
    for process in made:
        process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_it_listens_here_makes_a_token_and_ends_cleanly(tmp_path: Path, start: Start) -> None:
    said, process = start("--port", "0", "--model", "small=fake", "--encoder", "hash")
    assert said["url"].startswith("http://127.0.0.1:")
    token_file = Path(said["token_file"])
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    secret = token_file.read_text().strip()
    with httpx.Client(base_url=said["url"], headers={"Authorization": f"Bearer {secret}"}) as client:
        assert client.get("/v1/models").json() == {"models": ["small"], "encoders": ["hash"]}
        assert client.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    port = int(said["url"].rpartition(":")[2])
    with socket.socket() as probe:
        probe.settimeout(2)
        # Another loopback address reaches servers that listen on all interfaces, and not ours.
        assert probe.connect_ex(("127.0.0.2", port)) != 0
    code, busy = _second(tmp_path, port)
    assert (code, "cannot listen" in busy) == (2, True)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0
    assert secret not in out + errors
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o700


def _second(tmp_path: Path, port: int) -> tuple[int, str]:
    words = [sys.executable, "-m", "selpe", "serve", "--root", str(tmp_path / "other"), "--port", str(port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None or sys.platform == "win32", reason="needs openssl")
def test_by_tls_to_the_network_with_a_warning(tmp_path: Path, start: Start) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days",
         "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    said, process = start(
        "--port", "0", "--host", "0.0.0.0", "--open-to-network", "--tls-cert", "cert.pem", "--tls-key", "key.pem",
        "--allowed-host", "Tables.example",
    )  # fmt: skip
    assert said["url"].startswith("https://0.0.0.0:")
    port = said["url"].rpartition(":")[2]
    trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust) as client:
        assert client.get("/v1/health").status_code == 421  # not by a name that it was not given
        assert client.get("/v1/health", headers={"Host": "tables.example"}).status_code == 200
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Other machines can reach this server" in errors
    assert "Without TLS" not in errors


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_other_hosts_are_refused_loudly(host: str, tmp_path: Path) -> None:
    came = selpe("serve", "--root", str(tmp_path / "root"), "--host", host)
    assert came.code == ExitCode.BAD_INPUT
    assert "it is refused" in came.said
    assert "--open-to-network" in came.said
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("me", False)],
)  # fmt: skip
def test_which_hosts_are_this_machine(host: str, here: bool) -> None:
    assert is_loopback(host) is here
    if not here:
        with pytest.raises(ConfigError, match="refused"):
            ListenAddress(host)
        ListenAddress(host, open_to_network=True)


@pytest.mark.parametrize(
    "words",
    [
        ["--tls-cert", "x"],
        ["--tls-key", "x"],
        ["--model", "=x"],
        ["--model", "a="],
        ["--encoder", "far=http://host/v1"],
    ],
)
def test_settings_that_make_no_sense_are_refused(words: list[str], tmp_path: Path) -> None:
    assert selpe("serve", "--root", str(tmp_path), *words)[0] == ExitCode.BAD_INPUT


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    came = selpe("serve")
    assert (came.code, "selpe[server]" in came.said) == (ExitCode.BAD_INPUT, True)


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    token = tmp_path / "token"
    came = selpe("serve", "--root", str(tmp_path / "file" / "root"), "--token-file", str(token))
    assert (came.code, "cannot be made" in came.said) == (ExitCode.BAD_INPUT, True)
