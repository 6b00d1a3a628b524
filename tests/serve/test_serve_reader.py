"""The child process that reads uploads: what is too large, too slow or deadly for it is an answer for the server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from selpe.serve.limits import MB, Limits
from selpe.serve.reader import answer
from selpe.serve.reading import Reader
from selpe.serve.refusals import RefusedError
from serve_world import MARKER, csv_of, rows
from small_world import SCHEMA

T = TypeVar("T")
# A reader that answers with what it was sent, sleeps or dies, as it is told.
ECHO = """
import json, os, sys, time
for line in sys.stdin:
    job = json.loads(line)
    if job["do"] == "die":
        os._exit(3)
    time.sleep(job.get("seconds", 0))
    print(json.dumps({"result": {**job, "pid": os.getpid()}}), flush=True)
"""


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def reader(**limits: Any) -> Reader:
    return Reader(Limits(**limits), root="/nowhere", command=(sys.executable, "-c", ECHO))


def test_answers_are_remembered_by_what_was_asked() -> None:
    async def work() -> list[int]:
        asked = reader()
        answers = [await asked.ask("echo", seconds=s, keep=keep) for s, keep in ((0, True), (0, True), (0.0, False))]
        await asked.close()
        again = await asked.ask("echo", keep=False)
        await asked.close()
        return [answer["pid"] for answer in [*answers, again]]

    first, second, third, fourth = run(work())
    assert first == second == third != fourth


def test_what_takes_too_long_is_ended_and_the_next_job_is_done_by_a_new_process() -> None:
    async def work() -> tuple[str, str]:
        asked = reader(reading_seconds=1.0)
        with pytest.raises(RefusedError) as refused:
            await asked.ask("echo", seconds=600)
        after = await asked.ask("echo", text="next")
        await asked.close()
        return refused.value.message, after["text"]

    said, after = run(work())
    assert "longer than the 1 s" in said
    assert after == "next"


def test_a_death_is_an_answer_and_not_remembered() -> None:
    async def work() -> None:
        asked = reader()
        for _ in range(2):
            with pytest.raises(RefusedError, match="died of this") as refused:
                await asked.ask("die")
            assert refused.value.status == 422
        assert (await asked.ask("echo", text="next"))["text"] == "next"
        await asked.close()

    run(work())


def test_those_who_wait_for_the_reader_are_so_many_at_most() -> None:
    async def work() -> list[Any]:
        asked = reader(readings=3)
        jobs = [asked.ask("echo", seconds=0.3, number=i) for i in range(5)]
        found = await asyncio.gather(*jobs, return_exceptions=True)
        await asked.close()
        return list(found)

    found = run(work())
    refused = [one for one in found if isinstance(one, RefusedError)]
    assert [one.status for one in refused] == [429, 429]
    assert sorted(one["number"] for one in found if isinstance(one, dict)) == [0, 1, 2]


def test_one_who_gives_up_in_the_middle_does_not_leave_an_answer_for_the_next() -> None:
    async def work() -> str:
        asked = reader()
        task = asyncio.ensure_future(asked.ask("echo", seconds=30, text="old"))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = (await asked.ask("echo", text="new"))["text"]
        await asked.close()
        return str(found)

    assert run(work()) == "new"


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits of Linux")
def test_a_table_that_unpacks_to_more_than_is_allowed_is_refused_and_the_reader_lives(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = pa.array(["x" * 1000]).take(pa.array([0] * 400_000, pa.int32()))
    pq.write_table(pa.table({"topic": cells}), tmp_path / "bomb.parquet", compression="zstd")
    assert (tmp_path / "bomb.parquet").stat().st_size < MB
    SCHEMA.save(tmp_path / "schema.yaml")
    (tmp_path / "good.csv").write_bytes(csv_of(rows(marked=True), tmp_path))

    async def work() -> tuple[RefusedError, dict[str, Any]]:
        asked = Reader(Limits(reading_bytes=350 * MB), root=str(tmp_path))
        places: dict[str, Any] = {"schema": str(tmp_path / "schema.yaml"), "options": {}}
        with pytest.raises(RefusedError) as refused:
            await asked.ask("check", data=str(tmp_path / "bomb.parquet"), **places)
        checked = await asked.ask("check", data=str(tmp_path / "good.csv"), **places)
        await asked.close()
        return refused.value, checked

    refused, checked = run(work())
    assert (refused.status, refused.kind) == (422, "data")
    assert checked["fit"] == 40


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"do": "nothing"}', b'{"do": "check"}', b"\xff"])
def test_a_job_that_is_none_is_told_by_its_kind_alone(line: bytes) -> None:
    said = answer(line)
    assert said["error"]["kind"] == "bug"
    assert said["passing"] is True


def test_a_foreign_error_is_told_by_its_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**job: Any) -> dict[str, Any]:
        raise ValueError(MARKER)

    monkeypatch.setattr("selpe.serve.reader.JOBS", {"check": broken})
    said = json.dumps(answer(b'{"do": "check"}'))
    assert "ValueError" in said
    assert MARKER not in said
