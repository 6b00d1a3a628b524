"""Tables and schemas: taken in, shown, checked, deleted; under names that lead nowhere else; without a value told."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from selpe.errors import ConfigError
from selpe.intake import write_table
from selpe.serve.limits import Limits
from selpe.serve.refusals import RefusedError
from selpe.serve.store import Store
from selpe.serve.streams import Streams
from serve_world import CSV, MARKER, YAML, House, rows
from small_world import SCHEMA

KINDS = {"csv": "text/csv", "jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["kind"]


@pytest.mark.parametrize("form", KINDS)
def test_a_table_of_every_kind_is_taken_in_and_checked(house: House, tmp_path: Path, form: str) -> None:
    content = write_table(rows(), SCHEMA, tmp_path / f"t.{form}").read_bytes()
    made = house.ask("PUT", "/v1/tables/desk", content=content, headers={"Content-Type": KINDS[form]})
    assert (made.status_code, made.json()["format"], made.json()["bytes"]) == (201, form, len(content))
    assert house.ask("PUT", "/v1/tables/desk/schema", content=SCHEMA.to_yaml(), headers=YAML).status_code == 200
    checked = house.ask("POST", "/v1/tables/desk/check", json={}).json()
    assert (checked["ok"], checked["rows"], checked["fit"], checked["problems"]) == (True, 40, 40, [])


def test_uploading_again_replaces_the_table_and_keeps_its_schema(house: House) -> None:
    house.take_in()
    before = house.ask("GET", "/v1/tables/desk").json()
    again = house.ask("PUT", "/v1/tables/desk", content=b"a,b\n1,2\n", headers=CSV)
    assert (again.status_code, again.json()["bytes"], again.json()["has_schema"]) == (200, 8, True)
    assert before["bytes"] != 8
    assert len(list((house.root / "tables" / "desk").iterdir())) == 3  # nothing of the old table is left
    assert [table["table"] for table in house.ask("GET", "/v1/tables").json()["tables"]] == ["desk"]


def test_a_deleted_table_is_gone(house: House) -> None:
    house.take_in()
    assert house.ask("DELETE", "/v1/tables/desk").status_code == 204
    assert not (house.root / "tables" / "desk").exists()
    assert code_of(house.ask("GET", "/v1/tables/desk")) == (404, "missing")
    assert code_of(house.ask("DELETE", "/v1/tables/desk")) == (404, "missing")


@pytest.mark.parametrize(
    "kind", ["", "application/json", "text/html", "application/zip", "text/csvx", "multipart/form-data"]
)
def test_files_of_other_types_are_not_taken(house: House, kind: str) -> None:
    answer = house.ask("PUT", "/v1/tables/desk", content=b"x", headers={"Content-Type": kind})
    assert code_of(answer) == (415, "type")


def test_an_empty_upload_is_refused(house: House) -> None:
    assert code_of(house.ask("PUT", "/v1/tables/desk", content=b"", headers=CSV)) == (422, "data")
    assert house.ask("GET", "/v1/tables").json() == {"tables": []}


def test_there_is_an_end_to_the_number_of_tables(build: Callable[..., House]) -> None:
    house = build(Limits(workers=0, tables=2))
    codes = [house.ask("PUT", f"/v1/tables/t{i}", content=b"a\n1\n", headers=CSV).status_code for i in (1, 2, 3, 1)]
    assert codes == [201, 201, 409, 200]


def test_a_table_without_a_schema_cannot_be_checked_or_planned_for(house: House) -> None:
    house.ask("PUT", "/v1/tables/desk", content=b"a\n1\n", headers=CSV)
    for action in ("check", "plan", "runs"):
        assert code_of(house.ask("POST", f"/v1/tables/desk/{action}", json={})) == (409, "schema")
    assert code_of(house.ask("GET", "/v1/tables/desk/schema")) == (409, "schema")


def test_a_draft_schema_is_shown_as_such_and_not_run(house: House) -> None:
    house.take_in()
    draft = SCHEMA.to_yaml().replace("  solved:\n", "  solved:\n    confirmed: false\n")
    assert draft != SCHEMA.to_yaml()
    shown = house.ask("PUT", "/v1/tables/desk/schema", content=draft, headers=YAML)
    assert shown.json()["unconfirmed"] == ["solved"]
    assert house.ask("POST", "/v1/tables/desk/check", json={}).json()["ok"] is False
    assert code_of(house.submit()) == (409, "schema-unconfirmed")


def test_a_schema_is_taken_as_json_schema_too(house: House) -> None:
    house.ask("PUT", "/v1/tables/desk", content=b"a\n1\n", headers=CSV)
    answer = house.ask("PUT", "/v1/tables/desk/schema", json=SCHEMA.to_json_schema())
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["fields"]) == 8


# -- names and places --------------------------------------------------------------------------------------------------

WAYS_OUT = [
    "..", "../..", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%2e%2e%2f%2e%2e", "....//", "/etc/passwd",
    "a/../b", "a%00", "a%0a", "%00", ".", ".hidden", "~", "~root", "C:", "a:b", "a b", "A", "ä", "x" * 101, "..\\..",
    "%5c..", "-", "_", "desk%2f..%2f..%2ftoken", "desk/about.json", "desk/table.csv", "%ff%fe",
]  # fmt: skip


def test_no_name_leads_out_of_the_folder(house: House, tmp_path: Path) -> None:
    house.take_in()
    house.submit(epsilon=1.0)
    (tmp_path / "secret.txt").write_text(MARKER)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in WAYS_OUT:
        for method, path in [
            ("GET", f"/v1/tables/{name}"), ("PUT", f"/v1/tables/{name}"), ("DELETE", f"/v1/tables/{name}"),
            ("PUT", f"/v1/tables/{name}/schema"), ("GET", f"/v1/tables/{name}/budget"), ("GET", f"/v1/runs/{name}"),
            ("GET", f"/v1/runs/{name}/release"), ("GET", f"/v1/runs/{name}/events"),
            ("POST", f"/v1/runs/{name}/resume"), ("GET", f"/watch/{name}/{name}/"),
        ]:  # fmt: skip
            status, body = house.raw(method, path)
            assert status in (404, 405, 415, 422), (method, path, body)
            assert MARKER.encode() not in body
            assert json.loads(body)["error"]["kind"] in ("missing", "request", "type")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["..", "a/b", "", "a\n", "A", "a" * 101, "a.b"])
def test_the_store_itself_knows_no_other_names(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "root")
    about = {"format": "csv", "bytes": 1, "version": "1", "uploaded": "", "schema_file": ""}
    for folder, file in (("tables", "about.json"), ("runs", "manifest.json")):  # there is something to be found
        place = store.root / folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(json.dumps(about))
    for find in (store.table, store.run):
        with pytest.raises(RefusedError, match="no such"):
            find(name)
    store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_link_in_the_folder_is_not_followed(house: House, tmp_path: Path) -> None:
    house.take_in()
    (house.root / "tables" / "other").symlink_to(house.root / "tables" / "desk")
    (house.root / "runs" / "other").symlink_to(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    assert code_of(house.ask("GET", "/v1/tables/other")) == (404, "missing")
    assert code_of(house.ask("GET", "/v1/runs/other")) == (404, "missing")


@pytest.mark.skipif(sys.platform == "win32", reason="file modes of POSIX")
def test_only_the_owner_can_read_what_was_uploaded(house: House) -> None:
    house.take_in()
    for path in (house.root / "tables").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_two_servers_cannot_work_in_one_folder(house: House) -> None:
    with pytest.raises(ConfigError, match="another server"):
        Store(house.root)


def test_what_a_crash_left_half_done_is_cleared_away(build: Callable[..., House]) -> None:
    house = build()
    house.take_in()
    house.close()
    (house.root / "incoming" / "half").write_text(MARKER)
    (house.root / "tables" / "desk" / "table-0000.csv").write_text(MARKER)
    (house.root / "tables" / "never").mkdir()
    (house.root / "tables" / "never" / "table-1.csv").write_text(MARKER)
    again = build()
    assert not any(MARKER in path.read_text() for path in house.root.rglob("*") if path.is_file())
    assert again.ask("POST", "/v1/tables/desk/check", json={}).json()["ok"] is True


def test_a_full_disk_is_said_so_and_leaves_the_old_table(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.take_in()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("selpe.serve.store.os.fsync", full)
    assert code_of(house.ask("PUT", "/v1/tables/desk", content=b"a\n1\n", headers=CSV)) == (507, "disk")
    monkeypatch.undo()
    assert list((house.root / "incoming").iterdir()) == []
    assert house.ask("POST", "/v1/tables/desk/check", json={}).json()["ok"] is True


def test_an_upload_that_breaks_off_leaves_nothing(house: House, caplog: pytest.LogCaptureFixture) -> None:
    begun = {"type": "http.request", "body": b"a,b\n", "more_body": True}
    assert house.raw("PUT", "/v1/tables/desk", body=[begun, {"type": "http.disconnect"}])[0] == 400
    assert list((house.root / "incoming").iterdir()) == []
    assert house.ask("GET", "/v1/tables").json() == {"tables": []}
    assert caplog.text == ""


# -- no values -------------------------------------------------------------------------------------------------------


def _parquet(tmp_path: Path) -> bytes:
    return write_table(rows(marked=True), SCHEMA, tmp_path / "m.parquet").read_bytes()


def _headless(tmp_path: Path) -> bytes:
    lines = write_table(rows(marked=True), SCHEMA, tmp_path / "m.csv").read_bytes().split(b"\n")
    return b"\n".join(lines[1:])


BAD: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "other-columns": ("text/csv", lambda _: f"{MARKER},b\n{MARKER},2\n".encode()),
    "no-header": ("text/csv", _headless),
    "open-quote": ("text/csv", lambda _: f'topic,channel\n"{MARKER},x\n'.encode()),
    "binary": ("text/csv", lambda _: b"\x00\x01" + MARKER.encode()),
    "bad-utf8": ("text/csv", lambda _: f"é,b\n{MARKER},2\n".encode() + b"\xff"),
    "not-json": ("application/x-ndjson", lambda _: f'{{"topic": {MARKER}\n'.encode()),
    "json-values": (
        "application/x-ndjson",
        lambda _: (f'{{"topic": "{MARKER}", "minutes": "{MARKER}"}}\n' * 3).encode(),
    ),
    "not-parquet": ("application/vnd.apache.parquet", lambda _: b"PAR1" + MARKER.encode() * 9 + b"PAR1"),
    "cut-parquet": ("application/vnd.apache.parquet", lambda tmp: _parquet(tmp)[:-40]),
}


@pytest.mark.parametrize("name", BAD)
def test_no_refusal_quotes_a_cell_of_an_upload(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level("DEBUG")
    kind, make = BAD[name]
    house.take_in()
    said = [house.ask("PUT", "/v1/tables/desk", content=make(tmp_path), headers={"Content-Type": kind})]
    for action in ("check", "plan", "runs"):
        said.append(house.ask("POST", f"/v1/tables/desk/{action}", json={}))
        said.append(house.ask("POST", f"/v1/tables/desk/{action}", json={"unit": "topic", "blank_bad_cells": True}))
    checked = said[1]
    assert checked.status_code == 422 or checked.json()["ok"] is False, "this table is not broken"
    assert all(MARKER not in answer.text and str(house.root) not in answer.text for answer in said)
    assert MARKER not in caplog.text


@pytest.mark.parametrize("kind", ["application/yaml", "application/json"])
@pytest.mark.parametrize(
    "content",
    [
        f"topic,channel\n{MARKER},phone\n",
        f'{{"topic": "{MARKER}", "topic": "{MARKER}"}}',
        f'{{"fields": {{"a": {{"kind": "{MARKER}"}}}}}}',
        f'{{"name": "{MARKER}", "fields": {{"a": "{MARKER}"}}}}',
        f'{{"topic": "{MARKER}", "minutes": 3}}\n{{"topic": "{MARKER}", "minutes": 4}}\n',
        f"fields:\n  a: *{MARKER}\n",
        f"fields:\n  a: !{MARKER} x\n",
        f"- {MARKER}\n- \t{MARKER}: [",
        f"%{MARKER}\n---\n",
        f"fields: {{a: {{kind: integer, min: {MARKER}, max: 3}}}}",
        f"fields: {{a: {{kind: category, values: [{MARKER}, {MARKER}]}}}}",
    ],
)
def test_a_table_sent_in_place_of_a_schema_is_not_quoted(house: House, kind: str, content: str) -> None:
    house.take_in()
    answer = house.ask("PUT", "/v1/tables/desk/schema", content=content, headers={"Content-Type": kind})
    assert answer.status_code == 422
    assert MARKER not in answer.text


def test_rows_that_do_not_fit_are_named_by_row_and_field(house: House) -> None:
    records = [row | {"minutes": 4711} if i == 2 else row for i, row in enumerate(rows())]
    house.take_in(records=records)
    said = house.ask("POST", "/v1/tables/desk/check", json={}).json()
    assert (said["ok"], said["fit"], len(said["problems"])) == (False, 39, 1)
    assert "'minutes'" in said["problems"][0]
    assert "4711" not in str(said)
    assert house.ask("POST", "/v1/tables/desk/check", json={"skip_bad_rows": True}).json()["ok"] is True


def test_a_schema_can_be_sent_again_while_runs_wait(house: House) -> None:
    house.take_in()
    run = house.submit(epsilon=1.0).json()["run"]
    other = SCHEMA.to_yaml().replace("max: 90", "max: 80")
    assert house.ask("PUT", "/v1/tables/desk/schema", content=other, headers=YAML).status_code == 200
    assert (house.root / "runs" / run / "schema.yaml").read_text() == SCHEMA.to_yaml()


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"x"', b"1e999", b"[" * 10_000, b"\xff\xfe"])
def test_settings_that_are_no_object_are_refused(house: House, body: bytes) -> None:
    house.take_in()
    for action in ("check", "plan", "runs"):
        answer = house.ask(
            "POST", f"/v1/tables/desk/{action}", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (400, 422), answer.text


def test_an_unknown_name_is_repeated_only_where_it_has_the_form_of_one(house: House) -> None:
    assert house.ask("GET", "/v1/tables/other").json()["error"]["where"] == "other"
    assert quote(MARKER) not in house.ask("GET", f"/v1/runs/{quote(MARKER + ' x')}").text


def test_an_upload_that_the_disk_holds_up_keeps_nobody_from_other_tables(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, place = threading.Event(), house.desk.store.place_table

    def held_up(name: str, *more: Any) -> Any:
        if name == "slow":
            gate.wait(60)
        return place(name, *more)

    async def work() -> tuple[int, bool, int]:
        client = house.client()
        slow = asyncio.ensure_future(client.put("/v1/tables/slow", content=b"a,b\n1,2\n", headers=CSV))
        await asyncio.sleep(0.2)
        other = await client.put("/v1/tables/other", content=b"a,b\n1,2\n", headers=CSV)
        waits = not slow.done()
        gate.set()
        return other.status_code, waits, (await slow).status_code

    monkeypatch.setattr(house.desk.store, "place_table", held_up)
    assert house.do(work()) == (201, True, 201)


def test_the_servers_process_parses_no_schema_no_table_and_no_page(
    build: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads them is taken away from this process; the reader has its own."""
    house = build(apart=True)

    def parsed(*_: Any, **__: Any) -> None:
        raise AssertionError("the server's process parses what was uploaded")

    for name in ("selpe.schema.Schema.load", "selpe.intake.options.ReadingOptions.table",
                 "selpe.run.event_log.EventReader.more", "selpe.watch.view.folder_view"):  # fmt: skip
        monkeypatch.setattr(name, parsed)
    house.take_in()
    assert house.ask("GET", "/v1/tables/desk/schema").json()["label"] == SCHEMA.label
    assert house.ask("POST", "/v1/tables/desk/check", json={}).json()["ok"] is True
    run = house.submit(epsilon=1.0).json()["run"]
    page = house.ask("GET", f"/v1/runs/{run}/page").json()["path"]

    async def first() -> Any:
        async for part in Streams(house.desk).readings(run, allowed=lambda: True):
            return json.loads(part.removeprefix(b"data: "))

    assert house.ask("GET", page).status_code == 200
    shown = house.do(first())
    assert (shown["run"], shown["label"], shown["state"]) == (run, SCHEMA.label, "preparing")
