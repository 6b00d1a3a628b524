"""No answer tells where things lie on the server's machine, and no refusal outlives its reason."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from selpe.errors import SelPEError
from selpe.privacy.ledger import Ledger
from selpe.serve.limits import Limits
from selpe.serve.reading import Reader
from selpe.serve.refusals import without_places
from selpe.serve.store import write_json
from serve_world import CSV, ONE_STEP, House, csv_of, rows


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/var/lib/ledgers/desk/ledger.jsonl", "…/ledger.jsonl"),
        ("see '/a/b c' and (/x/y)", "see '…/b c' and (…/y)"),
        ("run: chmod 600 /etc/selpe/ledger.key", "run: chmod 600 …/ledger.key"),
        ("C:\\Users\\ann\\ledger.key: gone", "…/ledger.key: gone"),
        ("\\\\files\\share\\desk.csv", "…/desk.csv"),
        ("the root / itself", "the root … itself"),
        ("add/remove, 3/4, and/or", "add/remove, 3/4, and/or"),
        ("see /openapi.json or PUT one to …/schema", "see /openapi.json or PUT one to …/schema"),
        ("/v1/tables/desk", "/v1/tables/desk"),
        ("http://gpu1:8000/v1#m", "http://gpu1:8000/v1#m"),
    ],
)
def test_paths_lose_their_folders_and_words_stay(said: str, told: str) -> None:
    assert without_places(said) == told


def test_a_known_folder_with_blanks_is_left_out_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "Ann of the desk"
    monkeypatch.setenv("SELPE_LEDGER", str(home / "ledgers"))
    monkeypatch.setenv("SELPE_KEY", str(home / "key files" / "key"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/nowhere/else")
    for place in (home / "ledgers" / "x.jsonl", home / "key files" / "key"):
        assert "desk" not in without_places(f"chmod 600 {place}")
    assert "desk" not in without_places(f"{home}/root/runs/a", f"{home}/root")


def test_no_refusal_of_a_server_names_a_folder_of_its_machine(house: House, tmp_path: Path) -> None:
    house.take_in()
    run = house.submit(epsilon=1.0, budget=3.0).json()["run"]
    ledger, key = Ledger.open("desk").path, Path(os.environ["SELPE_KEY"])
    said: list[str] = []

    def ask_everything() -> None:
        said.extend(house.ask("POST", f"/v1/tables/desk/{what}", json=ONE_STEP).text for what in ("plan", "runs"))
        said.extend(house.ask("POST", f"/v1/runs/{run}/{what}").text for what in ("cancel", "resume"))
        said.extend(house.ask("GET", f"/v1/{what}").text for what in ("tables/desk/budget", f"runs/{run}", "runs"))

    whole = ledger.read_bytes()
    ledger.write_bytes(whole.replace(b'"epsilon":3.0', b'"epsilon":9.0'))
    ask_everything()
    ledger.write_bytes(whole)
    if sys.platform != "win32":
        key.chmod(0o644)
        ask_everything()
        key.chmod(0o600)
    ended = {
        "kind": "data",
        "message": f"cannot read {tmp_path}/x",
        "where": str(tmp_path / "root" / "runs"),
        "hint": "",
    }
    write_json(
        house.root / "runs" / run / "work" / "ended.json", {**ended, "hint": f"selpe resume {house.root}/runs/a"}
    )
    ask_everything()
    assert any("ledger.jsonl" in one for one in said), "no refusal that could have held a path was tried"
    assert any("cannot read" in one for one in said)
    assert not [one for one in said if str(tmp_path) in one or str(tmp_path.resolve()) in one]


REFUSES_ONCE = """
import sys, json
asked = 0
for line in sys.stdin.buffer:
    asked += 1
    said = {"error": {"kind": "ledger", "message": "edited"}} if asked == 1 else {"result": {"asked": asked}}
    sys.stdout.write(json.dumps(said) + chr(10)); sys.stdout.flush()
"""


def test_the_reader_asks_anew_about_what_was_refused_and_remembers_what_was_answered() -> None:
    async def thrice() -> list[int]:
        reader = Reader(Limits(), root="", command=(sys.executable, "-c", REFUSES_ONCE))
        try:
            with pytest.raises(SelPEError, match="edited"):
                await reader.ask("plan", settings={})
            return [(await reader.ask("plan", settings={}))["asked"] for _ in range(2)]
        finally:
            await reader.close()

    assert asyncio.run(thrice()) == [2, 2]


def test_a_submission_that_was_refused_is_judged_anew_with_the_same_key(house: House) -> None:
    house.take_in()
    Ledger.open("desk").set_budget(1.0)
    key, body = {"Idempotency-Key": "one-and-the-same"}, {**ONE_STEP, "epsilon": 2.0}
    assert house.ask("POST", "/v1/tables/desk/runs", json=body, headers=key).status_code == 409
    assert house.ask("GET", "/v1/runs").json()["total"] == 0
    Ledger.open("desk").set_budget(2.0, widen=True, reason="test")
    assert house.ask("POST", "/v1/tables/desk/runs", json=body, headers=key).status_code == 202


def test_a_table_that_did_not_fit_is_checked_anew_once_it_is_replaced(house: House, tmp_path: Path) -> None:
    house.take_in(records=[row | {"minutes": 4711} for row in rows()])
    assert house.ask("POST", "/v1/tables/desk/check", json={}).json()["ok"] is False
    content = csv_of(rows(), tmp_path)
    assert house.ask("PUT", "/v1/tables/desk", content=content, headers=CSV).status_code == 200
    assert house.ask("POST", "/v1/tables/desk/check", json={}).json()["ok"] is True


def test_answers_are_kept_by_no_browser_and_no_proxy(build: Callable[..., House]) -> None:
    house = build()
    for path in ("/v1/tables", "/v1/runs/none", "/v1/nowhere", "/watch/a/b/"):
        answer = house.ask("GET", path)
        assert answer.headers["cache-control"] == "no-store", json.dumps(answer.json())
