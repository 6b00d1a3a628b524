"""Plans, submissions, budgets, cancelling and resuming, with runs that stay in the queue; and what a client may set."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from selpe.config import RunConfig
from selpe.errors import BudgetError, ConfigError
from selpe.privacy.ledger import Charge, Ledger
from selpe.serve.admission import TableBudget, account_of
from selpe.serve.limits import Limits, Operator, known_models
from selpe.serve.settings import OPEN, RunSettings
from selpe.serve.store import StoredTable, write_json
from serve_world import CSV, MARKER, ONE_STEP, House, rows
from small_world import SCHEMA


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["kind"]


def budget_of(house: House, name: str = "desk") -> Any:
    return house.ask("GET", f"/v1/tables/{name}/budget").json()


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["data", "schema", "out", "test", "query", "sheet", "dataset", "allow_private_text_to", "same_data_new_ledger",
     "wasp", "ctcl", "dpgen", "dpds", "nonsense"],
)  # fmt: skip
def test_what_is_not_a_clients_to_choose_is_refused(shared: House, name: str) -> None:
    for action in ("plan", "runs"):
        answer = shared.ask("POST", f"/v1/tables/desk/{action}", json={name: MARKER})
        assert code_of(answer) == (422, "request")
        assert MARKER not in answer.text


def test_everything_that_is_open_is_a_setting_of_a_run_and_none_of_it_is_a_place() -> None:
    assert set(OPEN) <= set(RunConfig.model_fields)
    assert not {"data", "data_schema", "out", "test", "dataset"} & set(RunSettings.model_fields)


@pytest.mark.parametrize(
    "llm", ["other", "http://evil.example/v1", "/etc/passwd", "hf:org/name", "../x", "model.gguf", ""]
)
def test_a_model_is_one_of_the_operators(house: House, llm: str) -> None:
    house.take_in()
    assert house.submit(llm=llm).status_code == 422
    assert house.submit(encoder=llm).status_code == 422
    assert house.ask("GET", "/v1/models").json() == {"models": ["fake"], "encoders": ["hash"]}


def test_an_encoder_behind_an_address_is_refused_to_the_operator_too() -> None:
    with pytest.raises(ConfigError, match="private text"):
        Operator(encoders={"far": "http://host/v1"})
    assert "smollm2" in known_models()
    assert "minilm" not in known_models()


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": -1}, {"epsilon": 101}, {"epsilon": "inf"}, {"epsilon": "nan"}, {"budget": 0}, {"budget": 1e9},
        {"records": 0}, {"records": 100_001}, {"explore": 2}, {"quotas": {"low": "x"}}, {"seed": -1}, {"unit": 3},
        {"guides": [f"{MARKER} \ud800"]}, {"quotas": {"\ud800": 1.0}}, {"method": MARKER}, {"seed": 2**54},
        {"method": "augpe", "delta": 0}, {"class_sizes": {"low": 10**300}}, {"class_sizes": {"low": -1, "high": 4}},
        {"augpe": {"rounds": 0}}, {"augpe": {"rounds": "2"}}, {"augpe": {"nonsense": 1}}, {"quotas": {MARKER: 1.0}},
        {"unit": "nowhere"},
    ],
)  # fmt: skip
def test_settings_out_of_bounds_are_refused(house: House, settings: dict[str, Any]) -> None:
    house.take_in()
    for action in ("plan", "runs"):
        content = json.dumps({**ONE_STEP, **settings})
        answer = house.ask(
            "POST", f"/v1/tables/desk/{action}", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
    assert budget_of(house)["budget"] is None


@pytest.mark.parametrize("word", ["Infinity", "-Infinity", "NaN"])
@pytest.mark.parametrize("name", ["epsilon", "budget", "temperature", "delta"])
def test_numbers_that_are_none_are_refused(house: House, name: str, word: str) -> None:
    house.take_in()
    body, kind = f'{{"{name}": {word}}}', {"Content-Type": "application/json"}
    assert house.ask("POST", "/v1/tables/desk/runs", content=body, headers=kind).status_code == 422


def test_a_baseline_runs_with_its_own_settings_and_the_budget_counts_as_it_does(house: House) -> None:
    house.take_in()
    done = house.submit(method="augpe", augpe={"rounds": 2}, epsilon=1.0)
    assert done.status_code == 202, done.text
    assert (done.json()["method"], done.json()["delta"]) == ("augpe", 1e-5)
    assert budget_of(house)["budget"]["composition"] == "gaussian"


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_a_plan_spends_nothing_and_says_what_a_run_would(house: House) -> None:
    house.take_in()
    plan = house.ask("POST", "/v1/tables/desk/plan", json={**ONE_STEP, "epsilon": 1.5}).json()
    assert (plan["allowed"], plan["refusal"], plan["plan"]["epsilon"]) == (True, None, 1.5)
    assert plan["estimate"]["candidates"] == 24  # each record once, and once more around measured facts
    assert budget_of(house)["budget"] is None
    assert not Ledger.open("desk").exists


def test_the_first_run_sets_the_cap_and_what_was_accepted_is_set_aside(house: House) -> None:
    house.take_in()
    first = house.submit(epsilon=2.0, budget=3.0).json()["run"]
    found = budget_of(house)
    assert (found["budget"]["epsilon"], found["used"], found["left"], found["free"]) == (3.0, 0.0, 3.0, 1.0)
    assert found["set_aside"] == [first]
    refused = house.submit(epsilon=2.0)
    assert code_of(refused) == (409, "budget")
    plan = house.ask("POST", "/v1/tables/desk/plan", json={**ONE_STEP, "epsilon": 2.0}).json()
    assert (plan["allowed"], plan["budget_free"]) == (False, 1.0)
    assert "reserved" in plan["refusal"]
    assert house.submit(epsilon=1.0).status_code == 202
    assert house.submit(epsilon=0.001).status_code == 409
    assert house.submit(epsilon=0.0).status_code == 202  # does not look at the table


def test_submissions_at_once_cannot_take_the_same_epsilon(build: Callable[..., House]) -> None:
    house = build(Limits(workers=0, queue=100))
    house.take_in()
    house.take_in("other")

    async def all_at_once() -> list[httpx.Response]:
        client = house.client()
        asked = [
            client.post(f"/v1/tables/{name}/runs", json={**ONE_STEP, "epsilon": 0.5, "budget": 2.0, "seed": i})
            for i in range(12)
            for name in ("desk", "other")
        ]
        return list(await asyncio.gather(*asked))

    answers = house.do(all_at_once())
    assert sorted(answer.status_code for answer in answers) == [202] * 8 + [409] * 16
    for name in ("desk", "other"):
        found = budget_of(house, name)
        assert (len(found["set_aside"]), found["free"]) == (4, 0.0)


def test_a_cancelled_run_gives_its_share_back_and_has_to_ask_for_it_again(house: House) -> None:
    house.take_in()
    first = house.submit(epsilon=2.0).json()["run"]
    assert house.submit(epsilon=1.0).status_code == 409
    assert house.ask("POST", f"/v1/runs/{first}/cancel").json()["state"] == "cancelled"
    assert house.ask("POST", f"/v1/runs/{first}/cancel").json()["state"] == "cancelled"
    assert budget_of(house)["free"] == 2.0
    second = house.submit(epsilon=1.0).json()["run"]
    assert code_of(house.ask("POST", f"/v1/runs/{first}/resume")) == (409, "budget")
    house.ask("POST", f"/v1/runs/{second}/cancel")
    assert house.ask("POST", f"/v1/runs/{first}/resume").json()["state"] == "queued"
    assert code_of(house.ask("POST", f"/v1/runs/{first}/resume")) == (409, "run")


def test_what_others_spent_on_the_table_counts(house: House) -> None:
    house.take_in()
    ledger = Ledger.open("desk")
    ledger.set_budget(2.0)
    ledger.charge(Charge("by-hand", "round-1", "permute-and-flip", 0.5, 1.0))
    assert house.submit(epsilon=1.5, budget=9.0).status_code == 409
    assert house.submit(epsilon=1.0, budget=9.0).status_code == 202
    found = budget_of(house)
    assert (found["budget"]["epsilon"], found["left"], found["free"]) == (2.0, 1.0, 0.0)
    assert found["by_run"]["by-hand"]["epsilon_replace_one"] == 1.0


def test_the_budget_outlives_the_table(house: House) -> None:
    house.take_in()
    run = house.submit(epsilon=1.0).json()["run"]
    assert code_of(house.ask("DELETE", "/v1/tables/desk")) == (409, "run")
    house.ask("POST", f"/v1/runs/{run}/cancel")
    assert house.ask("DELETE", "/v1/tables/desk").status_code == 204
    assert budget_of(house)["budget"]["epsilon"] == 1.0
    assert code_of(house.ask("GET", "/v1/tables/never/budget")) == (404, "missing")
    assert code_of(house.ask("POST", f"/v1/runs/{run}/resume")) == (404, "missing")
    house.take_in()
    assert house.submit(epsilon=2.0).status_code == 409


def test_a_ledger_that_was_edited_stops_spending(house: House) -> None:
    house.take_in()
    house.submit(epsilon=1.0, budget=3.0)
    path = Ledger.open("desk").path
    path.write_bytes(path.read_bytes().replace(b'"epsilon":3.0', b'"epsilon":9.0'))
    assert code_of(house.submit(epsilon=1.0)) == (409, "ledger")
    assert code_of(house.ask("GET", "/v1/tables/desk/budget")) == (409, "ledger")


def pure(run: str, selection: str, epsilon: float) -> Charge:
    return Charge(run, selection, "permute-and-flip", epsilon / 2, epsilon)


def test_an_account_counts_what_was_spent_and_what_is_reserved() -> None:
    ledger = Ledger.open("desk")
    cap = ledger.set_budget(4.0)
    ledger.charge(pure("b", "round-1", 1.0))
    ledger.reserve("a", [pure("a", "round-1", 0.5), pure("a", "bundle", 1.5)])
    ledger.charge(pure("a", "round-1", 0.5))
    account = account_of(ledger)
    assert (account.used, account.left, account.free) == (1.5, 2.5, 1.0)
    account.require_room(cap, [pure("c", "round-1", 1.0)])
    with pytest.raises(BudgetError, match=r"1 other run\(s\) have ε 1\.5 reserved"):
        account.require_room(cap, [pure("c", "round-1", 1.1)])
    assert replace(account, held=()).free == 2.5
    assert TableBudget("desk", None, (), ()).free is None


def test_a_run_at_the_command_line_and_one_of_the_server_cannot_take_the_same_epsilon(house: House) -> None:
    house.take_in()
    Ledger.open("desk").set_budget(2.0)
    Ledger.open("desk").reserve("by-hand", [pure("by-hand", "round-1", 1.5)])
    refused = house.submit(epsilon=1.0)
    assert code_of(refused) == (409, "budget")
    assert "reserved" in refused.text
    assert house.ask("GET", "/v1/runs").json()["runs"] == []
    run = house.submit(epsilon=0.5).json()["run"]
    assert set(Ledger.open("desk").reservations()) == {"by-hand", run}
    with pytest.raises(BudgetError):
        Ledger.open("desk").reserve("another", [pure("another", "round-1", 0.1)])


def test_a_server_that_died_while_a_run_was_cancelled_frees_it_at_the_next_start(build: Callable[..., House]) -> None:
    house = build()
    house.take_in()
    run = house.submit(epsilon=1.0).json()["run"]
    house.close()
    accepted = house.root / "runs" / run / "work" / "accepted.json"
    write_json(accepted, {**json.loads(accepted.read_text()), "cancelled": True})
    assert set(Ledger.open("desk").reservations()) == {run}
    again = build()
    assert again.ask("GET", f"/v1/runs/{run}").json()["state"] == "cancelled"
    assert Ledger.open("desk").reservations() == {}


def test_a_run_that_lost_draws_goes_on_unless_others_count_on_the_rest(build: Callable[..., House]) -> None:
    house = build()
    house.take_in()
    run = house.submit(epsilon=2.0).json()["run"]
    ledger = Ledger.open("desk")
    for _ in range(3):
        ledger.charge(pure(run, "round-1", 0.6))
    house.close()
    again = build()
    assert again.ask("GET", f"/v1/runs/{run}").json()["state"] == "interrupted"
    ledger.set_budget(3.0, widen=True, reason="test")
    other = again.submit(epsilon=0.0).json()["run"]
    assert again.ask("POST", f"/v1/runs/{other}/cancel").status_code == 200
    ledger.set_budget(2.0)
    assert again.ask("POST", f"/v1/runs/{run}/resume").json()["state"] == "queued"


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_submission_sent_again_with_its_key_is_the_same_run(house: House) -> None:
    house.take_in()
    key = {"Idempotency-Key": "again-and-again"}
    body = {**ONE_STEP, "epsilon": 1.0, "budget": 5.0}
    answers = [house.ask("POST", "/v1/tables/desk/runs", json=body, headers=key) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 200, 200]
    assert len({answer.json()["run"] for answer in answers}) == 1
    other = house.ask("POST", "/v1/tables/desk/runs", json={**body, "seed": 3}, headers=key)
    assert code_of(other) == (409, "run")
    assert len(budget_of(house)["set_aside"]) == 1

    async def all_at_once() -> list[httpx.Response]:
        client, fresh = house.client(), {"Idempotency-Key": "another-key"}
        return list(
            await asyncio.gather(*(client.post("/v1/tables/desk/runs", json=body, headers=fresh) for _ in range(5)))
        )

    assert len({answer.json()["run"] for answer in house.do(all_at_once())}) == 1


def test_the_queue_has_an_end(build: Callable[..., House]) -> None:
    house = build(Limits(workers=0, queue=2))
    house.take_in()
    answers = [house.submit(epsilon=0.1, budget=5.0) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[2].headers["retry-after"] == "5"
    assert len(list((house.root / "runs").iterdir())) == 2
    house.ask("POST", f"/v1/runs/{answers[0].json()['run']}/cancel")
    assert house.submit(epsilon=0.1).status_code == 202


def test_runs_are_listed_latest_first_by_table_and_state(house: House) -> None:
    house.take_in()
    house.take_in("other")
    names = [house.submit(name, epsilon=0.1, budget=5.0).json()["run"] for name in ("desk", "other", "desk")]
    house.ask("POST", f"/v1/runs/{names[0]}/cancel")

    def listed(**query: Any) -> list[str]:
        return [run["run"] for run in house.ask("GET", "/v1/runs", params=query).json()["runs"]]

    assert listed() == names[::-1]
    assert listed(table="desk") == [names[2], names[0]]
    assert listed(table="desk", state="queued") == [names[2]]
    assert listed(limit=1, offset=1) == [names[1]]
    assert house.ask("GET", "/v1/runs", params={"limit": 1}).json()["total"] == 3
    assert house.ask("GET", "/v1/runs", params={"limit": 0}).status_code == 422


def test_what_is_told_of_a_run_holds_no_place_on_the_server(house: House) -> None:
    house.take_in()
    run = house.submit(epsilon=1.0).json()["run"]
    said = house.ask("GET", f"/v1/runs/{run}")
    assert (said.json()["state"], said.json()["llm"], said.json()["table"]) == ("queued", "fake", "desk")
    assert str(house.root) not in said.text
    assert house.ask("GET", f"/v1/runs/{run}/events").text == ""
    assert code_of(house.ask("GET", f"/v1/runs/{run}/release")) == (409, "run")


def test_a_table_cannot_be_replaced_under_a_run(house: House) -> None:
    house.take_in()
    run = house.submit(epsilon=1.0).json()["run"]
    assert code_of(house.ask("PUT", "/v1/tables/desk", content=b"a\n1\n", headers=CSV)) == (409, "run")
    house.ask("POST", f"/v1/runs/{run}/cancel")
    house.take_in()
    assert code_of(house.ask("POST", f"/v1/runs/{run}/resume")) == (409, "run")


def test_a_table_replaced_while_a_run_was_planned_is_noticed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.take_in()
    plan, store = house.desk.outlook, house.desk.store

    async def meanwhile(table: StoredTable, settings: RunSettings) -> Any:
        found = await plan(table, settings)
        store.place_table(table.name, table.data.rename(house.root / "x"), "csv")
        return found

    monkeypatch.setattr(house.desk, "outlook", meanwhile)
    assert code_of(house.submit(epsilon=1.0)) == (409, "run")
    assert budget_of(house)["budget"] is None


def test_runs_of_a_server_that_died_are_interrupted_and_hold_their_share(build: Callable[..., House]) -> None:
    house = build()
    house.take_in()
    run = house.submit(epsilon=1.0).json()["run"]
    house.close()
    half = house.root / "runs" / "desk-half"  # a crash came before it was accepted
    (half / "work").mkdir(parents=True)
    settings = json.loads((house.root / "runs" / run / "manifest.json").read_text())["settings"]
    write_json(half / "manifest.json", {"name": "desk-half", "state": "created", "settings": settings})
    again = build()
    assert [(one["run"], one["state"]) for one in again.ask("GET", "/v1/runs").json()["runs"]] == [(run, "interrupted")]
    assert not half.exists()
    assert budget_of(again)["set_aside"] == [run]
    assert again.submit(epsilon=0.5).status_code == 409
    assert again.ask("POST", f"/v1/runs/{run}/resume").json()["state"] == "queued"


def test_a_schema_with_other_fields_than_the_table_is_refused_before_anything_is_set_aside(house: House) -> None:
    house.take_in(records=rows())
    other = SCHEMA.to_yaml().replace("minutes", "hours")
    house.ask("PUT", "/v1/tables/desk/schema", content=other, headers={"Content-Type": "application/yaml"})
    assert house.ask("POST", "/v1/tables/desk/check", json={}).status_code == 422
