"""`selpe server`: tokens of clients made, listed, rotated and revoked, and the log shown, verified and begun anew."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from in_process import Result, selpe
from selpe.errors import ExitCode
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.key import make_key
from selpe.serve.audit_log import FOLDER, AuditLog
from selpe.serve.clients import Clients

pytest.importorskip("fastapi")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def server(root: Path, *words: object) -> Result:
    return selpe("server", *words, "--root", root)


def told(came: Result) -> Any:
    assert came.code == 0, came.said
    [line] = came.lines
    return line


def made(root: Path, name: str, *words: object) -> str:
    return str(told(server(root, "make-token", name, "--json", *words))["token"])


def test_a_token_is_shown_once_alone_on_standard_output(root: Path) -> None:
    came = server(root, "make-token", "ann", "--role", "read", "--role", "submit")
    assert came.code == 0
    token = came.out.strip()
    assert came.out == f"{token}\n"
    client = Clients(root).client_of(f"Bearer {token}".encode())
    assert client is not None
    assert (client.name, client.person, set(client.roles)) == ("ann", "ann", {"submit", "read"})
    assert token not in came.err
    listed = server(root, "tokens")
    assert "ann" in listed.out
    assert "submit, read" in listed.out
    for again in (listed, server(root, "log"), server(root, "verify-log"), server(root, "tokens", "--json")):
        assert token not in again.said


def test_a_token_can_go_into_a_file_of_its_owner(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "ann.token"
    said = told(server(root, "make-token", "ann", "--role", "read", "--to", path, "--json"))
    token = path.read_text().strip()
    assert (said["token_file"], "token" in said) == (str(path), False)
    assert Clients(root).client_of(f"Bearer {token}".encode()) is not None
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    taken = server(root, "make-token", "bob", "--role", "read", "--to", path)
    assert (taken.code, "cannot be written" in taken.err) == (ExitCode.BAD_INPUT, True)
    assert path.read_text().strip() == token
    assert [record.name for record in Clients(root).records()] == ["ann"]


def test_rotating_and_revoking(root: Path) -> None:
    first = made(root, "ann", "--role", "read", "--person", "ann-smith")
    second = str(told(server(root, "rotate-token", "ann", "--json"))["token"])
    clients = Clients(root)
    assert (clients.client_of(f"Bearer {first}".encode()), first == second) == (None, False)
    known = clients.client_of(f"Bearer {second}".encode())
    assert known is not None
    assert known.person == "ann-smith"
    said = told(server(root, "revoke-token", "ann", "--json"))["client"]
    assert said["revoked"] is not None
    assert not {"salt", "hash"} & set(said)
    assert clients.client_of(f"Bearer {second}".encode()) is None
    shown = told(server(root, "log", "--json"))["lines"]
    assert [(line["kind"], line.get("what")) for line in shown] == [
        ("open", None), ("token", "made"), ("token", "rotated"), ("token", "revoked"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["make-token", "ann", "--role", "owner"], "no such role"),
        (["make-token", "Ann Smith", "--role", "read"], "small letters"),
        (["make-token", "eve", "--role", "read", "--person", "E"], "small letters"),
        (["make-token", "ann", "--role", "read"], "there was one"),
        (["make-token", "eve"], "--role"),
        (["rotate-token", "nobody"], "no such client"),
        (["revoke-token", "nobody"], "no such client"),
        (["rotate-token", "old"], "revoked"),
        (["revoke-token", "old"], "revoked"),
        (["verify-log", "--noted", "12"], "sum"),
        (["verify-log", "--noted", "x:0123456789abcdef"], "sum"),
        (["renew-log", "--reason", " "], "reason"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(root: Path, words: list[str], said: str) -> None:
    made(root, "ann", "--role", "read")
    made(root, "old", "--role", "read")
    server(root, "revoke-token", "old")
    before = Clients(root).path.read_bytes()
    came = server(root, *words)
    assert came.code == ExitCode.BAD_INPUT
    assert said in came.said
    assert Clients(root).path.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [["rotate-token", "ann"], ["revoke-token", "ann"], ["log"], ["verify-log"], ["renew-log", "--reason", "lost"]],
)
def test_where_there_are_no_clients_it_says_so_and_makes_nothing(root: Path, words: list[str]) -> None:
    came = server(root, *words)
    assert came.code == ExitCode.BAD_INPUT
    assert not root.exists()
    assert server(root, "tokens").out.startswith("There are no clients")


def test_no_token_is_made_where_the_log_cannot_be_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(root, "ann", "--role", "read")

    def full(self: Disk, path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Disk, "append", full)
    before = Clients(root).path.read_bytes()
    for words in (["make-token", "bob", "--role", "read"], ["rotate-token", "ann"], ["revoke-token", "ann"]):
        came = server(root, *words)
        assert (came.code, "audit log cannot be written" in came.err) == (ExitCode.BAD_INPUT, True)
    assert Clients(root).path.read_bytes() == before


def test_the_log_is_shown_by_table_and_client_and_no_more_than_asked_for(root: Path) -> None:
    made(root, "ann", "--role", "read")
    log = AuditLog(root / FOLDER, make_key())
    log.append([("asked", {"client": who, "table": table}) for who in ("ann", "bob") for table in ("desk", "till")])

    def shown(*words: object) -> list[tuple[Any, Any]]:
        lines = told(server(root, "log", "--json", *words))["lines"]
        return [(line.get("client"), line.get("table")) for line in lines]

    assert shown("--table", "desk") == [("ann", "desk"), ("bob", "desk")]
    assert shown("--client", "bob", "--last", "1") == [("bob", "till")]
    assert "till" in server(root, "log").out


def test_verifying_says_ok_what_it_cannot_tell_and_what_to_note(root: Path) -> None:
    made(root, "ann", "--role", "read")
    came = server(root, "verify-log")
    assert came.code == 0
    assert "What this cannot show" in came.out
    said = told(server(root, "verify-log", "--json"))
    assert said["note"] in came.out
    assert (said["ok"], said["lines"]) == (True, 2)
    made(root, "bob", "--role", "read")
    assert server(root, "verify-log", "--noted", said["note"]).code == 0
    other = server(root, "verify-log", "--noted", "2:" + "0" * 64)
    assert (other.code, "written anew" in other.out) == (ExitCode.BAD_INPUT, True)


def test_a_log_that_was_edited_is_shown_to_nobody_and_named_by_its_line(root: Path) -> None:
    made(root, "ann", "--role", "read")
    made(root, "bob", "--role", "read")
    path = AuditLog(root / FOLDER, None).path
    path.write_bytes(path.read_bytes().replace(b'"client":"ann"', b'"client":"eve"'))
    came = server(root, "verify-log")
    assert (came.code, "line 2" in came.out) == (ExitCode.BAD_INPUT, True)
    said = server(root, "verify-log", "--json")
    assert (said.code, said.lines[0]["ok"]) == (ExitCode.BAD_INPUT, False)
    for words in (["log"], ["make-token", "dan", "--role", "read"], ["revoke-token", "bob"]):
        assert server(root, *words).code == ExitCode.BAD_INPUT
    renewed = server(root, "renew-log", "--reason", "somebody edited it")
    assert (renewed.code, "log-until-" in renewed.out) == (0, True)
    assert server(root, "revoke-token", "bob").code == 0
    assert server(root, "verify-log").code == 0


def test_the_log_is_not_begun_anew_under_a_server(root: Path) -> None:
    from filelock import FileLock

    made(root, "ann", "--role", "read")
    with FileLock(root / "lock"):
        came = server(root, "renew-log", "--reason", "why")
    assert (came.code, "stop it first" in came.err) == (ExitCode.BAD_INPUT, True)


# -- what `selpe serve` makes of it ------------------------------------------------------------------------------------


def test_a_server_with_clients_takes_no_single_token(root: Path, tmp_path: Path) -> None:
    made(root, "ann", "--role", "submit")
    came = selpe("serve", "--root", root, "--token-file", tmp_path / "token")
    assert (came.code, "tokens of their own" in came.err) == (ExitCode.BAD_INPUT, True)
    assert not (tmp_path / "token").exists()


def test_a_list_of_clients_that_is_gone_does_not_open_the_door_for_the_single_token(root: Path) -> None:
    made(root, "ann", "--role", "submit")
    (root / "clients.json").unlink()
    came = selpe("serve", "--root", root)
    assert (came.code, "the list of clients is gone" in came.err) == (ExitCode.BAD_INPUT, True)


def test_a_second_person_takes_two_persons(root: Path) -> None:
    assert "nobody can be told apart" in selpe("serve", "--root", root, "--second-person").err
    made(root, "ann", "--role", "submit", "--role", "approve")
    made(root, "ann-2", "--role", "approve", "--person", "ann")
    assert "nobody could approve" in selpe("serve", "--root", root, "--second-person").err
    made(root, "bob", "--role", "approve")
    server(root, "revoke-token", "bob")
    assert "nobody could approve" in selpe("serve", "--root", root, "--second-person").err
