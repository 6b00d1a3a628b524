"""What a server tells its log: every change, answer and refusal, no value and no secret; and how it is verified."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from selpe.errors import AuditError, ConfigError
from selpe.privacy.ledger import Charge, Ledger
from selpe.privacy.ledger.anchor import anchors_folder
from selpe.privacy.ledger.disk import Disk
from selpe.privacy.ledger.key import make_key
from selpe.run.verify import Check
from selpe.serve.audit_check import AuditVerdict, verify_log
from selpe.serve.audit_log import FOLDER, AuditLog
from selpe.serve.store import write_json
from selpe.serve.trail import PERIOD
from serve_world import CSV, MARKER, ONE_STEP, SECRET, YAML, House, rows
from team_world import Team


class Full(Disk):
    """A disk that has no room once it is told so; with `only`, for lines that hold these bytes alone."""

    def __init__(self) -> None:
        self.full, self.only = False, b""

    def append(self, path: Path, data: bytes) -> None:
        if self.full and self.only in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(path, data)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def disk() -> Full:
    return Full()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def team(tmp_path: Path, disk: Full, clock: Clock) -> Iterator[Team]:
    made = Team(tmp_path / "root", second_person=True, disk=disk, clock=clock)
    yield made
    disk.full = False
    if not made.loop.is_closed():
        made.close()


def told(team: Team, *kinds: str) -> list[tuple[Any, ...]]:
    """Kind, client, what and status of the lines."""
    return [(x.kind, x.data.get("client"), x.data.get("what"), x.data.get("status")) for x in team.lines(*kinds)]


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_change_is_told_before_it_is_done_and_again_with_its_answer(team: Team) -> None:
    team.take_in()
    run = team.submit_by("ann", epsilon=1.0, budget=3.0).json()["run"]
    team.by("bob", "POST", f"/v1/runs/{run}/approve")
    assert told(team)[2:] == [
        ("asked", "ann", "upload_table", None),
        ("answered", "ann", "upload_table", 201),
        ("asked", "ann", "upload_schema", None),
        ("answered", "ann", "upload_schema", 200),
        ("asked", "ann", "submit", None),
        ("submitted", "ann", None, None),
        ("answered", "ann", "submit", 202),
        ("asked", "bob", "approve", None),
        ("approved", "bob", None, None),
        ("answered", "bob", "approve", 202),
    ]
    assert all(line.data["table"] == "desk" for line in team.lines()[2:])
    [submitted] = team.lines("submitted")
    assert submitted.data == {
        "client": "ann", "person": "ann", "run": run, "table": "desk", "epsilon": 1.0, "delta": 0.0, "records": 12,
        "adjacency": "replace-one", "budget": 3.0, "waits": True,
    }  # fmt: skip
    asked = {line.seq for line in team.lines("asked")}
    assert {line.data["asked"] for line in team.lines("answered")} == asked


def test_what_reads_a_table_is_told_and_what_looks_at_the_state_of_things_is_not(team: Team) -> None:
    team.take_in()
    before = len(team.lines())
    for path in ("/v1/tables", "/v1/tables/desk", "/v1/tables/desk/schema", "/v1/tables/desk/budget", "/v1/runs"):
        assert team.by("eve", "GET", path).status_code == 200
    assert len(team.lines()) == before
    for what in ("check", "plan"):
        assert team.by("ann", "POST", f"/v1/tables/desk/{what}", json={}).status_code == 200
    assert told(team)[before:] == [("answered", "ann", "check", 200), ("answered", "ann", "plan", 200)]


def test_refusals_are_told_with_who_what_and_why(team: Team) -> None:
    team.take_in()
    Ledger.open("desk").set_budget(1.0)
    team.submit_by("ann", epsilon=2.0)
    team.submit_by("ann", nonsense=1)
    team.by("eve", "POST", "/v1/tables/desk/plan", json={})
    team.ask("GET", "/v1/tables", headers={"Authorization": "Bearer wrong"})
    team.by("ann", "GET", "/v1/tables", headers={"Origin": "https://evil.example"})
    team.by("ann", "POST", "/v1/tables/desk/plan", content=b"x" * 300_000)
    found = [(*line[1:], x.data["why"]) for line, x in zip(told(team, "refused"), team.lines("refused"), strict=True)]
    assert found == [
        ("ann", "submit", 409, "budget"),
        ("ann", "submit", 422, "request"),
        ("eve", "plan", 403, "role"),
        (None, None, 401, "token"),
        (None, None, 403, "origin"),
        ("ann", None, 413, "too-large"),
    ]
    assert Ledger.open("desk").reservations() == {}


def test_a_refusal_that_repeats_is_written_once_a_minute_with_its_number(team: Team, clock: Clock) -> None:
    def ask_wrongly(times: int) -> None:
        for _ in range(times):
            assert team.ask("GET", "/v1/tables", headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert team.by("eve", "POST", "/v1/tables/none/plan", json={}).status_code == 403

    ask_wrongly(20)
    assert len(team.lines("refused")) == 2
    clock.now += PERIOD
    ask_wrongly(1)
    assert [line.data.get("again") for line in team.lines("refused")] == [None, None, 19, 19, None, None]
    ask_wrongly(3)
    team.close()
    assert sum(line.data.get("again", 1) for line in team.lines("refused")) == 2 * 24


def test_no_value_no_token_no_key_and_no_word_of_a_client_reaches_the_log(team: Team) -> None:
    team.take_in(records=rows(marked=True))
    key = {"Idempotency-Key": f"{MARKER}-key"}
    run = team.by(
        "ann", "POST", "/v1/tables/desk/runs", headers=key, json={**ONE_STEP, "epsilon": 1.0, "guides": [MARKER]}
    ).json()["run"]
    page = team.by("ann", "GET", f"/v1/runs/{run}/page").json()["path"]
    name = MARKER.lower()
    asked = [f"POST /v1/tables/{name}/check", f"GET /v1/runs/{name}", f"GET /v1/{MARKER}", f"DELETE /v1/tables/{name}",
             f"POST /v1/runs/{name}/approve", f"POST /v1/tables/desk/{MARKER}"]  # fmt: skip
    for who in ("ann", "bob", "eve", "dan"):
        for one in (*asked, f"GET /v1/tables/{team.tokens[who]}"):
            team.by(who, *one.split(), headers={"User-Agent": MARKER, "X-Other": MARKER})
    team.by("ann", "PUT", f"/v1/tables/{MARKER}", content=f"{MARKER}\n".encode(), headers=CSV)
    team.by("ann", "POST", "/v1/tables/desk/plan", json={MARKER: MARKER})
    team.by("ann", "POST", "/v1/tables/desk/check", json={"unit": MARKER})
    team.by("ann", "PUT", "/v1/tables/desk/schema", content=f"{MARKER}: [", headers=YAML)
    team.ask("GET", "/v1/tables", headers={"Authorization": f"Bearer {MARKER}"})
    team.close()
    raw = b"".join(path.read_bytes() for path in (team.root / FOLDER).rglob("*") if path.is_file())
    assert raw.count(b"\n") > 20
    for secret in (MARKER, name, page.split("/")[3], SECRET, str(team.root), *team.tokens.values()):
        assert secret.encode() not in raw
    for record in team.clients.records():
        assert record.hash.encode() not in raw


def test_a_server_of_one_token_keeps_no_log_and_writes_what_it_always_has(tmp_path: Path) -> None:
    house = House(tmp_path / "root")
    house.take_in()
    run = house.submit(epsilon=1.0).json()
    accepted = json.loads((house.root / "runs" / run["run"] / "work" / "accepted.json").read_text())
    house.close()
    assert {path.name for path in house.root.iterdir()} == {"incoming", "lock", "runs", "tables"}
    assert not {"client", "person", "approval"} & set(accepted)
    assert (run["submitted_by"], run["approval"]) == (None, None)


# -- a log that cannot be written --------------------------------------------------------------------------------------


def test_where_the_log_cannot_be_written_nothing_is_done_and_refusals_stay_refusals(team: Team, disk: Full) -> None:
    team.take_in()
    run = team.submit_by("ann", epsilon=1.0).json()["run"]
    disk.full = True
    asked: list[tuple[str, str, str, dict[str, Any]]]
    asked = [("ann", "POST", "/v1/tables/desk/runs", {"json": ONE_STEP}), ("ann", "DELETE", "/v1/tables/desk", {}),
             ("ann", "POST", "/v1/tables/desk/check", {"json": {}}), ("bob", "POST", f"/v1/runs/{run}/approve", {}),
             ("bob", "POST", f"/v1/runs/{run}/reject", {}), ("ann", "POST", f"/v1/runs/{run}/cancel", {}),
             ("ann", "PUT", "/v1/tables/new", {"content": b"a\n1\n", "headers": CSV})]  # fmt: skip
    for who, method, path, more in asked:
        answer = team.by(who, method, path, **more)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "audit"), path
        assert str(team.root) not in answer.text
    assert team.by("ann", "GET", "/v1/tables").status_code == 200
    assert team.by("eve", "DELETE", "/v1/tables/desk").status_code == 403
    assert team.ask("GET", "/v1/tables", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert [one["run"] for one in team.by("ann", "GET", "/v1/runs").json()["runs"]] == [run]
    assert (team.state_of(run), Ledger.open("desk").exists) == ("waiting", False)
    assert team.by("ann", "GET", "/v1/tables/new").status_code == 404
    disk.full = False
    assert team.by("bob", "POST", f"/v1/runs/{run}/approve").status_code == 202


@pytest.mark.parametrize(("kind", "spends"), [(b'"submitted"', False), (b'"answered"', True)])
def test_a_run_of_which_the_log_was_not_told_does_not_begin(
    tmp_path: Path, disk: Full, kind: bytes, spends: bool
) -> None:
    team = Team(tmp_path / "root", disk=disk)
    team.take_in()
    disk.full, disk.only = True, kind
    assert team.submit_by("ann", epsilon=1.0).status_code == 503
    disk.full = False
    # An answer that could not be told was not given either; the run itself was told, and is there to be found.
    assert (team.by("ann", "GET", "/v1/runs").json()["total"] == 1) is spends
    assert Ledger.open("desk").exists is spends
    team.close()


def test_an_answer_waits_until_the_log_has_it(team: Team, disk: Full) -> None:
    team.take_in()
    disk.full, disk.only = True, b'"answered"'
    for what in ("check", "plan"):
        answer = team.by("ann", "POST", f"/v1/tables/desk/{what}", json={})
        assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "audit")


def test_a_server_does_not_start_on_a_log_that_is_not_whole(team: Team) -> None:
    team.take_in()
    team.close()
    raw = team.log.path.read_bytes()
    team.log.path.write_bytes(raw.replace(b"upload_table", b"upload_tables", 1))
    with pytest.raises(AuditError, match="line 3"):
        Team(team.root, tokens=team.tokens)


def test_lines_that_come_at_once_are_written_together_and_all_of_them_are_there(team: Team, disk: Full) -> None:
    team.take_in()
    before, writes = len(team.lines()), 0
    append = disk.append

    def counted(path: Path, data: bytes) -> None:
        nonlocal writes
        writes += 1
        append(path, data)

    disk.append = counted  # type: ignore[method-assign]

    async def all_at_once() -> list[httpx.Response]:
        client, headers = team.client(), {"Authorization": f"Bearer {team.tokens['ann']}"}
        asked = [client.post("/v1/tables/desk/check", json={}, headers=headers) for _ in range(40)]
        return list(await asyncio.gather(*asked))

    assert {answer.status_code for answer in team.do(all_at_once())} == {200}
    assert len(team.lines()) == before + 40
    assert writes < 40


# -- verifying ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def worked(team: Team) -> Team:
    """A team's server that is over, with a run that was approved and has spent."""
    team.take_in()
    run = team.submit_by("ann", epsilon=1.0, budget=5.0).json()["run"]
    team.by("bob", "POST", f"/v1/runs/{run}/approve")
    Ledger.open("desk").charge(Charge(run, "round-1", "permute-and-flip", 0.25, 0.5))
    team.desk._ended(run)
    team.close()
    return team


def state_of(found: AuditVerdict, what: str) -> list[str]:
    return [check.state for check in found.checks if check.what == what]


def wrong(found: AuditVerdict) -> list[Check]:
    return [check for check in found.checks if check.state == "wrong"]


def test_a_whole_log_agrees_with_runs_and_ledgers_and_says_what_it_cannot_tell(worked: Team) -> None:
    found = verify_log(worked.root)
    assert found.ok
    assert {check.what: check.state for check in found.checks} == {
        "lines": "ok", "seals": "ok", "end": "ok", "submissions": "ok", "approvals": "ok", "charges": "ok",
    }  # fmt: skip
    assert found.lines == len(worked.lines())
    assert len(found.cannot) == 3
    assert "--noted" in found.cannot[0]


def test_a_changed_line_is_named(worked: Team) -> None:
    raw = worked.log.path.read_bytes()
    worked.log.path.write_bytes(raw.replace(b'"client":"bob"', b'"client":"eve"', 1))
    [check] = wrong(verify_log(worked.root))
    lines = [json.loads(text) for text in raw.splitlines()]
    number = next(line["seq"] for line in lines if line["data"].get("client") == "bob")
    assert f"line {number} " in check.said


def test_without_the_key_or_the_note_it_says_what_was_not_checked(
    worked: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in anchors_folder().iterdir():
        path.unlink()
    found = verify_log(worked.root)
    assert (found.ok, state_of(found, "end")) == (True, ["unchecked"])
    assert any("missing at its end" in line for line in found.cannot)
    monkeypatch.setenv("SELPE_KEY", str(tmp_path / "elsewhere" / "key"))
    found = verify_log(worked.root)
    assert state_of(found, "seals") == ["unchecked"]
    assert any("takes the key" in line for line in found.cannot)


def test_a_line_that_was_noted_elsewhere_shows_that_a_log_was_written_anew(worked: Team) -> None:
    before = verify_log(worked.root)
    assert verify_log(worked.root, noted=(before.lines, before.last)).ok
    assert verify_log(worked.root, noted=(before.lines, before.last[:16])).ok
    lines = [(line.kind, {**line.data, "another": 1}) for line in worked.lines()[1:]]
    worked.log.path.unlink()  # by somebody who has the key and writes a log that suits him
    for path in anchors_folder().iterdir():
        path.unlink()
    AuditLog(worked.root / FOLDER, make_key()).append(lines)
    assert state_of(verify_log(worked.root), "lines") == ["ok"]
    [check] = wrong(verify_log(worked.root, noted=(before.lines, before.last)))
    assert "written anew" in check.said
    [check] = wrong(verify_log(worked.root, noted=(before.lines + 1, before.last)))
    assert "no line" in check.said


def other(worked: Team, run: str, **accepted: Any) -> None:
    """Another run's folder in the server's, past the server."""
    folder = worked.root / "runs" / run
    (folder / "work").mkdir(parents=True)
    write_json(folder / "manifest.json", {"name": run})
    write_json(folder / "work" / "accepted.json", {"table": "desk", "submitted": "2999", **accepted})


def test_a_run_that_nobody_submitted_is_found(worked: Team) -> None:
    other(worked, "desk-2", client="ann", person="ann")
    other(worked, "desk-3")  # of the time before there were clients
    [check] = wrong(verify_log(worked.root))
    assert (check.what, "desk-2" in check.said) == ("submissions", True)


def test_a_run_that_says_it_was_submitted_by_another_is_found(worked: Team) -> None:
    [run] = [path.name for path in (worked.root / "runs").iterdir()]
    path = worked.root / "runs" / run / "work" / "accepted.json"
    write_json(path, {**json.loads(path.read_text()), "client": "bob"})
    assert [check.what for check in wrong(verify_log(worked.root))] == ["submissions"]


SUBMITTED = {"client": "ann", "person": "ann", "run": "desk-9", "table": "desk", "waits": True}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([("submitted", SUBMITTED)], "no line says who approved it"),
        ([("submitted", SUBMITTED), ("approved", {"person": "ann", "run": "desk-9"})], "by the same person"),
        ([("submitted", SUBMITTED), ("approved", {"person": "bob", "run": "desk-9"})], None),
        ([("submitted", {**SUBMITTED, "waits": False})], None),
    ],
)
def test_a_run_that_spent_without_a_second_persons_word_is_found(
    worked: Team, lines: list[tuple[str, dict[str, Any]]], found: str | None
) -> None:
    AuditLog(worked.root / FOLDER, make_key()).append(lines)
    Ledger.open("desk").charge(Charge("desk-9", "round-1", "permute-and-flip", 0.01, 0.02))
    checks = wrong(verify_log(worked.root))
    assert [(check.what, found in check.said) for check in checks if found] == ([("approvals", True)] if found else [])
    assert bool(checks) is bool(found)


def test_a_ledger_that_lost_charges_which_the_log_knows_is_found(worked: Team) -> None:
    [run] = [path.name for path in (worked.root / "runs").iterdir()]
    told_twice = ("spent", {"run": run, "table": "desk", "charges": 2, "epsilon_replace_one": 1.0})
    AuditLog(worked.root / FOLDER, make_key()).append([told_twice])
    [check] = wrong(verify_log(worked.root))
    assert check.what == "charges"


def test_a_ledger_that_cannot_be_read_is_said(worked: Team) -> None:
    path = Ledger.open("desk").path
    path.write_bytes(path.read_bytes().replace(b'"charge"', b'"change"', 1))
    found = verify_log(worked.root)
    assert state_of(found, "ledgers") == ["unchecked"]


def test_a_change_without_an_answer_a_torn_end_and_a_mended_one_are_remarked_on(worked: Team) -> None:
    log = AuditLog(worked.root / FOLDER, make_key())
    log.append([("asked", {"what": "submit"})])
    with log.path.open("ab") as file:
        file.write(b'{"data"')
    found = verify_log(worked.root)
    assert (found.ok, state_of(found, "end"), state_of(found, "answers")) == (True, ["ok", "unchecked"], ["unchecked"])
    AuditLog(log.folder, log.key).append([("started", {})])
    found = verify_log(worked.root)
    assert (state_of(found, "torn ends"), state_of(found, "answers")) == (["unchecked"], ["unchecked"])
    assert found.ok


def test_a_log_begun_anew_says_so_and_does_not_blame_the_runs_of_before(worked: Team) -> None:
    AuditLog(worked.root / FOLDER, make_key()).renew("the disk was lost")
    found = verify_log(worked.root)
    assert (found.ok, state_of(found, "beginning")) == (True, ["unchecked"])


def test_a_clock_that_was_set_back_is_remarked_on(worked: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime, timezone

    class Early(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Early:
            return cls(2001, 1, 1, tzinfo=timezone.utc)

    monkeypatch.setattr("selpe.serve.audit_log.datetime", Early)
    AuditLog(worked.root / FOLDER, make_key()).append([("started", {})])
    assert state_of(verify_log(worked.root), "times") == ["unchecked"]


def test_there_is_nothing_to_verify_where_there_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no audit log"):
        verify_log(tmp_path)


LOST: dict[str, Callable[[Path], object]] = {
    "file": lambda path: path.unlink(),
    "all": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("what", LOST)
def test_a_log_that_is_gone_is_wrong_and_not_missing(worked: Team, what: str) -> None:
    LOST[what](worked.log.path)
    [check] = wrong(verify_log(worked.root))
    assert "the last that is left is line 0" in check.said
