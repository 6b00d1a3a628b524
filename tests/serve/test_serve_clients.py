"""Tokens of a team's clients: made, rotated, revoked, stored as hashes; and what each role opens."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from fastapi import APIRouter

from selpe.errors import ConfigError
from selpe.serve.access import RULES, route_class
from selpe.serve.clients import ROLES, ChangedClients, Clients, Role
from selpe.serve.limits import Limits
from selpe.serve.trail import Trail
from serve_world import CSV, SECRET
from team_world import PEOPLE, Team

ADDRESSES = {
    "models": "GET /v1/models", "list_tables": "GET /v1/tables", "show_table": "GET /v1/tables/desk",
    "show_schema": "GET /v1/tables/desk/schema", "budget": "GET /v1/tables/desk/budget", "list_runs": "GET /v1/runs",
    "show_run": "GET /v1/runs/none", "upload_table": "PUT /v1/tables/desk",
    "upload_schema": "PUT /v1/tables/desk/schema", "delete_table": "DELETE /v1/tables/desk",
    "check": "POST /v1/tables/desk/check", "plan": "POST /v1/tables/desk/plan", "submit": "POST /v1/tables/desk/runs",
    "resume": "POST /v1/runs/none/resume", "cancel": "POST /v1/runs/none/cancel",
    "approve": "POST /v1/runs/none/approve", "reject": "POST /v1/runs/none/reject",
    "events": "GET /v1/runs/none/events", "page": "GET /v1/runs/none/page", "release": "GET /v1/runs/none/release",
}  # fmt: skip
WHO: dict[Role, str] = {"submit": "ann", "approve": "bob", "read": "eve"}
OPENED: dict[Role, set[str]] = {
    "submit": {"upload_table", "upload_schema", "delete_table", "check", "plan", "submit", "resume", "cancel", "events",
               "page"},
    "approve": {"approve", "reject", "cancel"},
    "read": {"events", "page", "release"},
}  # fmt: skip
EVERYBODYS = {"models", "list_tables", "show_table", "show_schema", "budget", "list_runs", "show_run"}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    made = Team(tmp_path / "root")
    yield made
    made.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """A team's server that no test changes."""
    made = Team(tmp_path_factory.mktemp("empty") / "root")
    yield made
    made.close()


# -- roles -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("what", ADDRESSES)
def test_a_role_opens_what_it_is_for_and_nothing_else(empty: Team, what: str, role: Role) -> None:
    method, path = ADDRESSES[what].split()
    answer = empty.by(WHO[role], method, path)
    refused = answer.status_code == 403 and answer.json()["error"]["kind"] == "role"
    assert refused is (what not in OPENED[role] | EVERYBODYS)


def test_every_address_has_a_rule_and_one_without_cannot_be_built(empty: Team) -> None:
    assert set(ADDRESSES) == set(RULES)
    document = empty.by("eve", "GET", "/openapi.json").json()
    described = {f"{method.upper()} {path}" for path, found in document["paths"].items() for method in found}
    asked = {one.replace("desk", "{table}").replace("none", "{run}") for one in ADDRESSES.values()}
    assert described == asked | {"GET /v1/health"}
    router = APIRouter(route_class=route_class(Trail(), lambda what, asked: {}))
    with pytest.raises(KeyError):

        @router.get("/new")
        async def something_new() -> None: ...


def test_a_role_is_looked_at_before_the_body_is_read(empty: Team) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"x"

    refused = empty.by("eve", "PUT", "/v1/tables/desk", content=body(), headers=CSV)
    assert (refused.status_code, read) == (403, 0)
    assert refused.json()["error"]["hint"] == "it takes a token with the role 'submit'"


def test_the_owners_one_token_opens_nothing_where_clients_have_their_own(empty: Team) -> None:
    assert empty.ask("GET", "/v1/tables", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 401


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_token_is_in_no_file_and_the_list_is_for_its_owner_alone(team: Team) -> None:
    team.take_in()
    files = [path for path in team.root.rglob("*") if path.is_file()]
    for token in team.tokens.values():
        assert token.startswith("selpe_")
        assert len(token) > 40
        assert not [path for path in files if token.encode() in path.read_bytes()]
        assert token not in repr(team.clients.records()) + repr([one.client for one in team.clients.records()])
    listed = json.loads(team.clients.path.read_text())["clients"]
    assert len({one["salt"] for one in listed}) == len({one["hash"] for one in listed}) == len(PEOPLE)
    if sys.platform != "win32":
        assert stat.S_IMODE(team.clients.path.stat().st_mode) == 0o600
    page_key = team.clients.key_for(team.clients.records()[0].client, "desk-1")
    assert listed[0]["hash"] not in page_key


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer x", "Basic {}", "{}", "Bearer {}x", "Bearer \xe9"])
def test_what_is_no_token_opens_nothing(empty: Team, header: str) -> None:
    status, body = empty.raw("GET", "/v1/tables", authorization=header.format(empty.tokens["ann"]))
    assert (status, json.loads(body)["error"]["kind"]) == (401, "token")
    assert empty.raw("GET", "/v1/tables", authorization=f"bearer {empty.tokens['ann']}")[0] == 200


def test_a_rotated_token_is_refused_from_the_next_request_on_and_the_new_one_is_the_same_client(team: Team) -> None:
    assert team.by("ann", "GET", "/v1/tables").status_code == 200
    with Clients(team.root).changing() as changed:  # as another process does it
        _, token = changed.rotate("ann")
    assert team.by("ann", "GET", "/v1/tables").status_code == 401
    team.tokens["ann"] = token
    assert team.by("ann", "GET", "/v1/tables").status_code == 200
    assert team.by("ann", "POST", "/v1/runs/none/approve").status_code == 403


def test_a_revoked_token_is_refused_and_its_name_is_not_given_again(team: Team) -> None:
    with Clients(team.root).changing() as changed:
        changed.revoke("ann")
    assert team.by("ann", "GET", "/v1/tables").status_code == 401
    assert team.by("bob", "GET", "/v1/tables").status_code == 200
    acts: list[Callable[[ChangedClients], object]] = [
        lambda one: one.make("ann", "ann", ["submit"]),
        lambda one: one.rotate("ann"),
        lambda one: one.revoke("ann"),
        lambda one: one.revoke("nobody"),
    ]
    for act in acts:
        with pytest.raises(ConfigError), team.clients.changing() as changed:
            act(changed)
    assert team.by("ann", "GET", "/v1/tables").status_code == 401


@pytest.mark.parametrize("how", ["rotate", "revoke"])
def test_the_page_of_a_run_closes_with_the_token_that_asked_for_it(team: Team, how: str) -> None:
    team.take_in()
    run = team.submit_by("ann", epsilon=1.0).json()["run"]
    pages = {name: team.by(name, "GET", f"/v1/runs/{run}/page").json()["path"] for name in ("ann", "eve")}
    assert pages["ann"] != pages["eve"]
    assert [team.ask("GET", path).status_code for path in pages.values()] == [200, 200]
    with Clients(team.root).changing() as changed:
        getattr(changed, how)("ann")
    assert team.ask("GET", pages["ann"]).status_code == 404
    assert team.ask("GET", pages["eve"]).status_code == 200
    other = pages["eve"].replace(run, f"{run}x")
    assert team.ask("GET", other).status_code == 404


def test_a_stream_that_is_open_ends_when_its_token_is_revoked(team: Team) -> None:
    team.take_in()
    run = team.submit_by("ann", epsilon=1.0).json()["run"]

    async def follow() -> bool:
        headers = {"Authorization": f"Bearer {team.tokens['eve']}"}
        asking = asyncio.ensure_future(team.client().get(f"/v1/runs/{run}/events?follow=true", headers=headers))
        await asyncio.sleep(0.6)
        waited = not asking.done()
        with Clients(team.root).changing() as changed:
            changed.revoke("eve")
        await asyncio.wait_for(asking, 60)
        return waited

    assert team.do(follow())


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.rename(path.with_name("moved")),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "a role that is none": lambda path: path.write_text(path.read_text().replace('"submit"', '"owner"')),
    "a hash that is none": lambda path: path.write_text(path.read_text().replace('"hash": "', '"hash": "x')),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_list_that_cannot_be_relied_on_lets_nobody_in(team: Team, name: str) -> None:
    whole = team.clients.path.read_bytes()
    DAMAGE[name](team.clients.path)
    answer = team.by("dan", "GET", "/v1/tables")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "tokens")
    assert str(team.root) not in answer.text
    team.clients.path.write_bytes(whole)
    team.clients.path.chmod(0o600)
    assert team.by("dan", "GET", "/v1/tables").status_code == 200


@pytest.mark.skipif(sys.platform == "win32", reason="file modes of POSIX")
def test_a_list_that_others_can_read_lets_nobody_in(team: Team) -> None:
    assert team.by("dan", "GET", "/v1/tables").status_code == 200
    team.clients.path.chmod(0o640)
    assert team.by("dan", "GET", "/v1/tables").status_code == 503
    with pytest.raises(ConfigError, match="other users"):
        Clients(team.root).records()


@pytest.mark.parametrize("name", ["", "Ann", "a b", "../x", "a" * 49, "ä", "-a", "a\n"])
def test_a_name_has_one_form(tmp_path: Path, name: str) -> None:
    clients = Clients(tmp_path)
    for given in ((name, "ann"), ("ann", name)):
        with pytest.raises(ConfigError), clients.changing() as changed:
            changed.make(*given, ["read"])
    assert not clients.exist


def test_clients_made_at_once_are_all_there(tmp_path: Path) -> None:
    def make(number: int) -> None:
        with Clients(tmp_path).changing() as changed:
            changed.make(f"client-{number}", "ann", ["read"])

    threads = [threading.Thread(target=make, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {record.name for record in Clients(tmp_path).records()} == {f"client-{number}" for number in range(12)}


# -- shares ------------------------------------------------------------------------------------------------------------


def test_a_client_has_one_share_of_the_requests_from_wherever_it_asks(tmp_path: Path) -> None:
    team = Team(tmp_path / "root", Limits(workers=0, requests=4))
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await gate.wait()
        yield b"a,b\n1,2\n"

    async def work() -> tuple[list[int], list[int]]:
        places = [team.client(f"10.0.0.{i}", Authorization=f"Bearer {team.tokens['ann']}") for i in range(6)]
        other = team.client("10.0.0.0", Authorization=f"Bearer {team.tokens['dan']}")
        puts = [
            asyncio.ensure_future(place.put(f"/v1/tables/t{i}", content=slow(), headers=CSV))
            for i, place in enumerate(places)
        ]
        while sum(put.done() for put in puts) < 4:  # refused at once, the others wait for their bodies
            await asyncio.sleep(0.01)
        meanwhile = [(await client.get("/v1/tables")).status_code for client in (places[0], other)]
        gate.set()
        return sorted(answer.status_code for answer in await asyncio.gather(*puts)), meanwhile

    found = team.do(work())
    team.close()
    assert found == ([201, 201, 429, 429, 429, 429], [429, 200])
