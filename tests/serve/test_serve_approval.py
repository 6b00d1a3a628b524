"""A run that needs a second person waits, spends nothing, and is approved by anybody but the one who submitted it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selpe.privacy.ledger import Charge, Ledger
from selpe.serve.limits import Limits
from selpe.serve.store import write_json
from serve_world import CSV
from team_world import Team

Build = Callable[..., Team]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Makes servers of one team, all in one folder, and ends them."""
    made: list[Team] = []

    def build(limits: Limits | None = None, **more: Any) -> Team:
        tokens = made[0].tokens if made else None
        made.append(Team(tmp_path / "root", limits, tokens=tokens, **{"second_person": True, **more}))
        return made[-1]

    yield build
    for team in made:
        if not team.loop.is_closed():
            team.close()


@pytest.fixture
def team(build: Build) -> Team:
    """A server where a second person is wanted, with a table; its runs stay in the queue."""
    made = build()
    made.take_in()
    return made


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["kind"]


def waiting(team: Team, by: str = "ann", **settings: Any) -> str:
    """A run that waits."""
    done = team.submit_by(by, **{"epsilon": 1.0, **settings})
    assert (done.status_code, done.json()["state"]) == (202, "waiting"), done.text
    return str(done.json()["run"])


def test_a_run_waits_and_neither_spends_nor_reserves_nor_sets_a_budget(team: Team) -> None:
    run = waiting(team, budget=5.0)
    assert not Ledger.open("desk").exists
    assert team.supervisor.activity(run) is None
    told = team.by("bob", "GET", f"/v1/runs/{run}").json()
    assert (told["submitted_by"], told["epsilon"], told["budget"]) == ("ann", 1.0, 5.0)
    assert told["approval"] == {"state": "waiting", "by": None, "at": None}


@pytest.mark.parametrize("who", ["ann", "ann-2"])
def test_whoever_submitted_a_run_cannot_approve_it_with_any_token(team: Team, who: str) -> None:
    run = waiting(team)
    refused = team.by(who, "POST", f"/v1/runs/{run}/approve")
    assert code_of(refused) == ((403, "role") if who == "ann" else (403, "approval"))
    assert (team.state_of(run), Ledger.open("desk").exists) == ("waiting", False)


def test_one_who_may_do_everything_cannot_approve_what_they_submitted(team: Team) -> None:
    run = waiting(team, "dan")
    assert code_of(team.by("dan", "POST", f"/v1/runs/{run}/approve")) == (403, "approval")
    assert team.by("ann-2", "POST", f"/v1/runs/{run}/approve").json()["state"] == "queued"


def test_who_may_not_approve_is_refused(team: Team) -> None:
    run = waiting(team)
    for who in ("ann", "eve"):
        for act in ("approve", "reject"):
            assert code_of(team.by(who, "POST", f"/v1/runs/{run}/{act}")) == (403, "role")
    assert team.state_of(run) == "waiting"


def test_a_second_persons_word_reserves_what_the_run_will_spend_and_starts_it(team: Team) -> None:
    run = waiting(team, budget=5.0)
    done = team.by("bob", "POST", f"/v1/runs/{run}/approve")
    assert (done.status_code, done.json()["state"]) == (202, "queued")
    assert (done.json()["approval"]["state"], done.json()["approval"]["by"]) == ("given", "bob")
    ledger = Ledger.open("desk")
    assert set(ledger.reservations()) == {run}
    assert ledger.budget is not None
    assert ledger.budget.epsilon == 5.0
    assert code_of(team.by("bob", "POST", f"/v1/runs/{run}/approve")) == (409, "approval")
    assert code_of(team.by("bob", "POST", f"/v1/runs/{run}/reject")) == (409, "approval")


def test_a_rejected_run_is_over(team: Team) -> None:
    run = waiting(team)
    assert team.by("bob", "POST", f"/v1/runs/{run}/reject").json()["state"] == "rejected"
    for act, who in (("approve", "bob"), ("reject", "bob"), ("resume", "ann"), ("cancel", "ann")):
        assert team.by(who, "POST", f"/v1/runs/{run}/{act}").status_code == 409
    assert team.state_of(run) == "rejected"
    assert not Ledger.open("desk").exists
    assert team.by("ann", "DELETE", "/v1/tables/desk").status_code == 204


def test_cancelling_and_resuming_is_no_way_around_it(team: Team) -> None:
    run = waiting(team)
    assert code_of(team.by("ann", "POST", f"/v1/runs/{run}/resume")) == (409, "run")
    assert team.by("ann", "POST", f"/v1/runs/{run}/cancel").json()["state"] == "cancelled"
    assert code_of(team.by("bob", "POST", f"/v1/runs/{run}/approve")) == (409, "approval")
    assert team.by("ann", "POST", f"/v1/runs/{run}/resume").json()["state"] == "waiting"
    assert (team.supervisor.activity(run), Ledger.open("desk").exists) == (None, False)
    team.by("bob", "POST", f"/v1/runs/{run}/approve")
    assert team.by("bob", "POST", f"/v1/runs/{run}/cancel").json()["state"] == "cancelled"
    assert team.by("ann", "POST", f"/v1/runs/{run}/resume").json()["state"] == "queued"


def test_a_run_that_spends_nothing_needs_nobody(team: Team) -> None:
    done = team.submit_by("ann", epsilon=0.0)
    assert (done.json()["state"], done.json()["approval"]) == ("queued", None)


def test_where_no_second_person_is_wanted_runs_start_at_once(build: Build) -> None:
    team = build(second_person=False)
    team.take_in()
    run = team.submit_by("ann", epsilon=1.0).json()
    assert (run["state"], run["approval"], run["submitted_by"]) == ("queued", None, "ann")
    assert code_of(team.by("bob", "POST", f"/v1/runs/{run['run']}/approve")) == (409, "approval")


def test_what_cannot_fit_is_refused_at_once_and_what_does_not_fit_any_more_when_it_is_approved(team: Team) -> None:
    Ledger.open("desk").set_budget(2.0)
    assert code_of(team.submit_by("ann", epsilon=3.0)) == (409, "budget")
    run, other = waiting(team, epsilon=1.5), waiting(team, epsilon=1.5)
    assert team.by("bob", "POST", f"/v1/runs/{run}/approve").status_code == 202
    assert code_of(team.by("bob", "POST", f"/v1/runs/{other}/approve")) == (409, "budget")
    assert team.state_of(other) == "waiting"
    assert set(Ledger.open("desk").reservations()) == {run}


def test_a_table_stays_as_it_was_while_a_run_on_it_waits(team: Team) -> None:
    run = waiting(team)
    assert code_of(team.by("ann", "PUT", "/v1/tables/desk", content=b"a\n1\n", headers=CSV)) == (409, "run")
    table = team.desk.store.table("desk")
    team.desk.store.place_table("desk", table.data.rename(team.root / "other"), "csv")
    assert code_of(team.by("bob", "POST", f"/v1/runs/{run}/approve")) == (409, "run")
    assert (team.state_of(run), Ledger.open("desk").exists) == ("waiting", False)


def test_only_so_many_wait(build: Build) -> None:
    team = build(Limits(workers=0, queue=2))
    team.take_in()
    runs = [waiting(team, epsilon=0.1) for _ in range(2)]
    assert team.submit_by("ann", epsilon=0.1).status_code == 429
    team.by("ann", "POST", f"/v1/runs/{runs[0]}/cancel")
    waiting(team, epsilon=0.1)
    assert team.by("ann", "POST", f"/v1/runs/{runs[0]}/resume").status_code == 429


def test_a_submission_sent_again_is_the_same_waiting_run_for_its_client_and_another_for_others(team: Team) -> None:
    run = waiting(team, key="the-same-key")
    again = team.submit_by("ann", epsilon=1.0, key="the-same-key")
    assert (again.status_code, again.json()["run"]) == (200, run)
    other = team.submit_by("dan", epsilon=1.0, key="the-same-key")
    assert (other.status_code, other.json()["submitted_by"]) == (202, "dan")
    assert other.json()["run"] != run


def test_a_refusal_for_a_missing_role_is_not_remembered_with_the_key(team: Team) -> None:
    assert team.submit_by("eve", epsilon=1.0, key="asked-too-early").status_code == 403
    with team.clients.changing() as changed:
        changed.revoke("eve")
        team.tokens["eve"] = changed.make("eve-2", "eve", ["submit", "read"])[1]
    assert team.submit_by("eve", epsilon=1.0, key="asked-too-early").status_code == 202


def test_a_server_that_is_started_again_without_the_option_still_asks_for_those_that_wait(build: Build) -> None:
    team = build()
    team.take_in()
    run = waiting(team)
    team.close()
    again = build(second_person=False)
    assert again.state_of(run) == "waiting"
    assert code_of(again.by("ann", "POST", f"/v1/runs/{run}/resume")) == (409, "run")
    assert again.by("bob", "POST", f"/v1/runs/{run}/approve").json()["state"] == "queued"


def test_a_server_that_died_while_it_approved_holds_nothing_for_a_run_that_waits(build: Build) -> None:
    team = build()
    team.take_in()
    run = waiting(team)
    charges = team.desk.shelf.find(run).charges
    Ledger.open("desk").set_budget(2.0)
    Ledger.open("desk").reserve(run, charges)  # and then the lights went out
    team.close()
    again = build()
    assert again.state_of(run) == "waiting"
    assert Ledger.open("desk").reservations() == {}
    assert again.by("bob", "POST", f"/v1/runs/{run}/approve").json()["state"] == "queued"


@pytest.mark.parametrize("approval", ["given", {"state": "yes"}, {}, [], True, {"state": ["given"]}])
def test_damage_to_what_was_agreed_gives_nothing_away(team: Team, approval: Any) -> None:
    run = waiting(team)
    path = team.root / "runs" / run / "work" / "accepted.json"
    write_json(path, {**json.loads(path.read_text()), "approval": approval})
    assert team.by("ann", "POST", f"/v1/runs/{run}/resume").status_code in (404, 409)
    assert (team.supervisor.activity(run), Ledger.open("desk").exists) == (None, False)


def test_nobody_approves_a_run_of_which_it_is_not_known_who_submitted_it(team: Team) -> None:
    run = waiting(team)
    path = team.root / "runs" / run / "work" / "accepted.json"
    write_json(path, {name: value for name, value in json.loads(path.read_text()).items() if name != "person"})
    assert code_of(team.by("bob", "POST", f"/v1/runs/{run}/approve")) == (403, "approval")


def test_an_approved_run_is_done_and_the_log_tells_what_it_spent_and_who_fetched_it(build: Build) -> None:
    team = build(Limits(workers=1))
    team.take_in()
    run = waiting(team)
    team.by("bob", "POST", f"/v1/runs/{run}/approve")
    assert team.until(run, "done", "failed", "interrupted") == "done"
    assert code_of(team.by("ann", "GET", f"/v1/runs/{run}/release")) == (403, "role")
    fetched = team.by("eve", "GET", f"/v1/runs/{run}/release")
    assert fetched.status_code == 200
    [given] = [line for line in team.lines("answered") if line.data["what"] == "release"]
    assert (given.data["client"], given.data["sha256"]) == ("eve", fetched.headers["x-sha256"])
    team.close()
    [spent] = team.lines("spent")
    charged = [charge for charge in Ledger.open("desk").charges() if charge.run == run]
    assert spent.data["charges"] == len(charged)
    assert spent.data["epsilon_replace_one"] == pytest.approx(1.0)
    assert (spent.data["run"], spent.data["table"], spent.data["state"]) == (run, "desk", "done")


def test_what_a_run_spent_before_its_server_died_is_told_at_the_next_start_and_once(build: Build) -> None:
    team = build(second_person=False)
    team.take_in()
    run = team.submit_by("ann", epsilon=2.0).json()["run"]
    team.close()
    Ledger.open("desk").charge(Charge(run, "round-1", "permute-and-flip", 0.25, 0.5))
    for _ in range(2):
        build(second_person=False).close()
    [spent] = build(second_person=False).lines("spent")
    assert (spent.data["run"], spent.data["epsilon_replace_one"], spent.data["charges"]) == (run, 0.5, 1)
