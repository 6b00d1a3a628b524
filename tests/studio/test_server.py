"""The studio's server: who may ask, what may be changed and by whom, and what is never told."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from selpe.privacy.ledger import Ledger
from selpe.studio.project import Project
from selpe.studio.requests import GETS, POSTS
from selpe.studio.server import MOST_BYTES, StudioServer
from selpe.studio.studio import Studio
from studio_world import EXAMPLE, FORMS, SECRET_VALUE, SECRET_YEAR, drafted


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    made = Studio(Project(drafted(tmp_path)))
    yield made
    made.desk.close()


@pytest.fixture
def server(studio: Studio) -> Iterator[StudioServer]:
    with StudioServer(studio, period=0.05) as server:
        yield server


Answer = tuple[int, dict[str, str], bytes]


def ask(server: StudioServer, method: str, path: str, *, body: bytes | None = None, **headers: str) -> Answer:
    """One request below the token; headers with '' are left out."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    own = {"Origin": f"http://127.0.0.1:{server.port}", "Content-Type": "application/json"} if body is not None else {}
    sent = {name.replace("_", "-"): value for name, value in {**own, **headers}.items()}
    address = path if path.startswith("/") else "/" + server.url.split("/", 3)[3] + path
    connection.request(method, address, body=body, headers={key: value for key, value in sent.items() if value})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, content


def get(server: StudioServer, path: str) -> dict[str, Any]:
    status, _, body = ask(server, "GET", path)
    assert status == 200, body
    content: dict[str, Any] = json.loads(body)
    return content


def post(server: StudioServer, path: str, **content: Any) -> tuple[int, dict[str, Any]]:
    status, _, body = ask(server, "POST", path, body=json.dumps(content).encode())
    return status, json.loads(body) if body else {}


def revision(server: StudioServer) -> str:
    return str(get(server, "state")["revision"])


def confirm_all(server: StudioServer) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, form in FORMS.items():
        asked = {"name": name, "form": {**form, "confirmed": True}}
        status, state = post(server, "field", **asked, revision=revision(server))
        assert status == 200, state
    return state


NEVER = ("http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import")

# -- who may ask -----------------------------------------------------------------------------------------------------


def test_the_page_loads_its_own_files_and_nothing_else(server: StudioServer) -> None:
    status, headers, body = ask(server, "GET", "")
    assert status == 200
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")
    assert b'src="studio.js"' in body
    for file in files("selpe.studio").joinpath("static").iterdir():
        assert ask(server, "GET", file.name)[0] == 200
        text = file.read_text(encoding="utf-8")
        for way in (
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "@import",
        ):
            assert way not in text, (file.name, way)


@pytest.mark.parametrize("rest", ["", "state", "studio.js", "field", "runs/x/"])
def test_without_the_token_there_is_nothing(server: StudioServer, rest: str) -> None:
    token = server.url.split("/")[3]
    for wrong in ("", "x", token[:-1], token + "x"):
        assert ask(server, "GET", f"/{wrong}/{rest}")[0] == 404
        assert ask(server, "POST", f"/{wrong}/{rest}", body=b"{}")[0] == 404


@pytest.mark.parametrize(
    "rest", ["../studio.py", "..%2fstudio.py", "static/page.html", "page.htm", "__init__.py", "schema.yaml", "runs/../",
             "runs/x", "runs/x/report", "runs/..%2f/report", "runs/x/y/z", "studio.js?x=1"],
)  # fmt: skip
def test_no_other_file_is_served(server: StudioServer, rest: str) -> None:
    assert ask(server, "GET", rest)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1"])
def test_a_foreign_name_for_this_machine_is_refused(server: StudioServer, host: str) -> None:
    assert ask(server, "GET", "state", Host=host)[0] == 421
    assert ask(server, "POST", "field", body=b"{}", Host=host)[0] == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", ""])
def test_only_our_own_page_may_do_something(server: StudioServer, origin: str) -> None:
    before = revision(server)
    for path in POSTS:
        assert ask(server, "POST", path, body=b"{}", Origin=origin)[0] in (403, 421), path
    assert revision(server) == before
    assert get(server, "activity")["tasks"] == {}


FORMS_OF_OTHERS = ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]


@pytest.mark.parametrize("kind", FORMS_OF_OTHERS)
def test_what_a_form_of_another_site_could_send_is_refused(server: StudioServer, kind: str) -> None:
    assert ask(server, "POST", "check", body=b"{}", Content_Type=kind)[0] == 415


def test_too_long_a_body_is_not_read(server: StudioServer) -> None:
    assert ask(server, "POST", "plan", body=b"{}", Content_Length=str(MOST_BYTES + 1))[0] == 413
    assert ask(server, "POST", "plan", body=b"{}", Content_Length="-1")[0] in (400, 411)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_there_are_no_other_methods(server: StudioServer, method: str) -> None:
    assert ask(server, method, "state")[0] == 501


def test_what_is_asked_by_get_cannot_be_posted_and_the_other_way_round(server: StudioServer) -> None:
    for path in GETS:
        assert ask(server, "POST", path, body=b"{}")[0] == 404
    for path in POSTS:
        assert ask(server, "GET", path)[0] == 404


BODIES = [b"", b"[]", b"{", b"null", b'{"more": 1}', b'{"revision": 1}', b"\xff", b'{"names": "x"}', b'{"a":' * 3000]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_bad_requests_are_answered_in_words_and_change_nothing(server: StudioServer, body: bytes) -> None:
    before = revision(server)
    for path in set(POSTS) - {"check"}:
        status, _, answer = ask(server, "POST", path, body=body)
        content = json.loads(answer)
        assert status in (200, 422), path
        assert (content.get("error") or content["refused"])["message"], path
    assert revision(server) == before


# -- what is told ----------------------------------------------------------------------------------------------------


def test_what_the_draft_read_off_the_table_is_told_only_to_who_asks(server: StudioServer) -> None:
    told = json.dumps(get(server, "state"))
    assert SECRET_VALUE not in told
    assert SECRET_YEAR not in told
    assert "walked" not in told
    fields = {field["name"]: field for field in get(server, "state")["schema"]["fields"]}
    assert set(fields) == set(FORMS)
    assert fields["age"]["form"]["max"] == "120"  # a range that anybody knows
    assert "values" not in fields["way"]["form"]
    status, state = post(server, "show", names=["way"])
    assert status == 200
    assert SECRET_VALUE in json.dumps(state)
    assert SECRET_YEAR not in json.dumps(state)


def test_no_answer_holds_a_cell(server: StudioServer) -> None:
    answers = [json.dumps(get(server, path)) for path in GETS]
    answers += [json.dumps(post(server, "plan", changes={})[1]), json.dumps(post(server, "try/example", values={})[1])]
    for answer in answers:
        assert "like no other" not in answer
        assert SECRET_YEAR not in answer
    assert get(server, "columns")["left_out"] == ["case_id"]


def test_of_an_unexpected_error_only_its_kind_is_told(server: StudioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Project) -> None:
        raise ValueError("a private cell")

    monkeypatch.setattr(Project, "read", fail)
    status, _, body = ask(server, "GET", "state")
    assert (status, json.loads(body)["error"]["message"]) == (500, "an unexpected ValueError")


def test_a_file_that_cannot_be_read_is_said_with_its_place(server: StudioServer, studio: Studio) -> None:
    (studio.project.folder / "schema.yaml").write_text("fields: [\n", encoding="utf-8")
    problem = get(server, "state")["problem"]
    assert problem["where"].startswith("schema.yaml:")
    assert "not YAML" in problem["message"]


# -- changes ---------------------------------------------------------------------------------------------------------


def test_a_draft_is_confirmed_field_by_field(server: StudioServer) -> None:
    assert not get(server, "state")["ready"]
    state = confirm_all(server)
    assert state["ready"]
    assert get(server, "state") == state


def test_a_stale_change_is_refused_with_409_and_the_file_kept(server: StudioServer, studio: Studio) -> None:
    old = revision(server)
    path = studio.project.folder / "schema.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "# by hand\n", encoding="utf-8")
    for what, content in (
        ("field", {"name": "hurt", "form": {"kind": "boolean"}}),
        ("settings", {"changes": {"records": "5"}}),
        ("about", {"description": "x"}),
    ):
        status, answer = post(server, what, **content, revision=old)
        assert (status, answer["error"]["kind"]) == (409, "stale")
    assert path.read_text(encoding="utf-8").endswith("# by hand\n")


def test_what_is_typed_is_looked_at_without_being_written(server: StudioServer) -> None:
    before = revision(server)
    assert post(server, "try/field", name="age", form=FORMS["age"])[1] == {"expected": "an integer from 0 to 120"}
    status, answer = post(server, "try/field", name="age", form={"kind": "integer", "min": "a"})
    assert (status, answer["refused"]["where"]) == (200, "min")
    assert (
        post(server, "try/rule", then={"field": "low", "comparison": "<", "other": "high"})[1]["text"] == "low < high"
    )
    assert set(post(server, "try/example", values={"age": "1"})[1]["problems"]) == set(FORMS) - {"age"}
    assert revision(server) == before


def test_examples_and_rules_come_and_go(server: StudioServer) -> None:
    confirm_all(server)
    status, state = post(server, "example", values=EXAMPLE, revision=revision(server))
    assert (status, state["schema"]["examples"]) == (200, [EXAMPLE])
    status, answer = post(server, "example", values={**EXAMPLE, "age": "999"}, revision=revision(server))
    assert (status, answer["error"]["where"]) == (422, "field 'age'")
    status, state = post(server, "rule", text="low < high", revision=revision(server))
    assert state["schema"]["rules"] == ["low < high"]
    for which in ("examples", "rules"):
        status, state = post(server, "remove", which=which, place=0, revision=revision(server))
        assert (status, state["schema"][which]) == (200, [])


def test_the_plan_follows_what_is_chosen_and_spends_nothing(server: StudioServer, studio: Studio) -> None:
    before = revision(server)
    found = post(server, "plan", changes={"epsilon": "1", "records": "40", "rows": "60"})[1]
    assert (found["epsilon"], found["records"], found["units"]) == (1.0, 40, 60)
    assert found["verdict"]
    assert found["budget"] == {"cap": 1.0, "set": False, "left": 1.0, "after": 0.0, "refusal": ""}
    more = post(server, "plan", changes={"epsilon": "1", "budget": "3"})[1]
    assert more["budget"]["after"] == 2.0
    assert post(server, "plan", changes={"epsilon": "a lot"})[1]["refused"]["message"] == "must be a number"
    assert revision(server) == before
    assert not Ledger.open(studio.project.read().settings.dataset).exists


def test_a_plan_for_auto_names_the_model_that_is_taken_and_has_its_speed(
    server: StudioServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path / "no models"))  # whatever models this machine has
    chosen = post(server, "plan", changes={"llm": "auto"})[1]
    named = post(server, "plan", changes={"llm": "smollm2"})[1]
    assert chosen["writer"]["why"].startswith("SmolLM2-135M-Instruct")
    assert (chosen["model"], chosen["time"]) == ("smollm2", named["time"])
    assert named["writer"] is None


# -- runs ------------------------------------------------------------------------------------------------------------


def test_no_run_starts_without_the_amount_the_version_and_a_confirmed_schema(
    server: StudioServer, studio: Studio
) -> None:
    status, answer = post(server, "run", epsilon="2", revision=revision(server))
    assert (status, answer["error"]["kind"]) == (422, "schema-unconfirmed")
    confirm_all(server)
    for typed in ("", "1", "two", "2.1", "nan"):
        status, answer = post(server, "run", epsilon=typed, revision=revision(server))
        assert (status, answer["error"]["where"]) == (422, "ε")
    status, answer = post(server, "run", epsilon="2", revision="older")
    assert (status, answer["error"]["message"]) == (422, "the files were changed meanwhile, so nothing was started")
    assert get(server, "activity") == {"tasks": {}, "runs": []}
    assert not Ledger.open(studio.project.read().settings.dataset).exists


def waited(server: StudioServer, task: str) -> dict[str, Any]:
    until = time.monotonic() + 900
    while time.monotonic() < until:
        found: dict[str, Any] = get(server, "activity")["tasks"][task]
        if found["state"] not in ("running", "stopping"):
            return found
        time.sleep(0.3)
    raise TimeoutError(task)


@pytest.mark.timeout(1800)
def test_the_model_is_tried_and_graded_before_anything_is_spent(server: StudioServer, studio: Studio) -> None:
    assert post(server, "preview")[1]["error"]["kind"] == "schema-unconfirmed"
    confirm_all(server)
    assert post(server, "preview")[0] == 200
    tried = waited(server, "preview")
    assert (tried["state"], tried["error"]) == ("done", None)
    assert tried["grade"]["grade"] in ("good", "fair", "poor")
    assert [list(record) for record in tried["records"]] == [list(studio.project.read().schema.names)] * 4
    assert not Ledger.open(studio.project.read().settings.dataset).exists


@pytest.mark.timeout(1800)
def test_a_run_is_checked_done_watched_and_judged(server: StudioServer, studio: Studio) -> None:
    confirm_all(server)
    changes = {"records": "8", "epsilon": "1"}
    assert post(server, "settings", changes=changes, revision=revision(server))[0] == 200
    post(server, "check")
    findings = waited(server, "check")["findings"]
    assert [one for one in findings if one["state"] == "wrong"] == []
    status, answer = post(server, "run", epsilon="1.0", revision=revision(server))
    assert status == 200, answer
    assert post(server, "run", epsilon="1", revision=revision(server))[1]["error"]["message"].endswith("already")
    ended = waited(server, "run")
    assert (ended["state"], ended["error"]) == ("done", None)
    (run,) = get(server, "activity")["runs"]
    assert (run["name"], run["state"], run["records"]) == (answer["run"], "done", 8)
    assert ask(server, "GET", f"runs/{run['name']}/")[0] == 200
    status, headers, _ = ask(server, "GET", f"runs/{run['name']}/summary")
    assert (status, headers["x-frame-options"]) == (200, "SAMEORIGIN")
    assert ask(server, "GET", f"runs/{run['name']}/report")[0] == 404
    assert post(server, "evaluate", run=run["name"], test="gone.csv")[1]["error"]["message"] == "there is no such file"
    assert post(server, "evaluate", run="other")[1]["error"]["message"] == "there is no such run"
    assert post(server, "evaluate", run=run["name"], test="visits.csv")[0] == 200
    ended = waited(server, "evaluate")
    assert (ended["state"], ended["error"]) == ("done", None)
    assert b"INTERNAL, NOT FOR RELEASE" in ask(server, "GET", f"runs/{run['name']}/report")[2]


def test_a_command_that_fails_is_said_in_its_own_words(server: StudioServer, studio: Studio) -> None:
    confirm_all(server)
    (studio.project.folder / "visits.csv").rename(studio.project.folder / "gone.csv")
    assert post(server, "run", epsilon="2", revision=revision(server))[0] == 200
    ended = waited(server, "run")
    assert ended["state"] == "failed"
    assert "visits.csv" in ended["error"]["where"] + ended["error"]["message"]
    assert post(server, "stop", task="run")[1]["error"]["message"] == "nothing is running that could be stopped"
