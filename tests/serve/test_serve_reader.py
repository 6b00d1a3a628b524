"""The child process that reads uploads: what is too large, too slow or deadly for it is an answer for the server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from selpe.serve.limits import MB, Limits
from selpe.serve.reader import answer
from selpe.serve.reading import ASKING, Reader
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


# -- hostile uploads beside others -------------------------------------------------------------------------------------


@asynccontextmanager
async def asking(reader: Reader, *jobs: dict[str, Any], client: str = "") -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Jobs of one client that are under way or wait, in the order in which they were asked for."""
    asked = ASKING.set(client)
    tasks = [asyncio.ensure_future(reader.ask("echo", keep=False, number=n, **job)) for n, job in enumerate(jobs)]
    ASKING.reset(asked)
    await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await reader.close()


def test_an_upload_that_is_read_without_end_holds_no_other_however_often_it_is_asked_for() -> None:
    async def work() -> tuple[str, list[bool]]:
        asked = reader(reading_seconds=600)
        async with asking(asked, *[{"upload": "hostile", "seconds": 600}] * 8) as hostile:
            found = await asked.ask("echo", upload="mine", text="answered")
            return found["text"], [task.done() for task in hostile]

    assert run(work()) == ("answered", [False] * 8)


def test_one_clients_hostile_uploads_leave_a_reader_to_another_client() -> None:
    async def work() -> list[str]:
        asked = reader(reading_seconds=600, quick_seconds=600)
        hostile: list[dict[str, Any]] = [{"upload": f"hostile-{n}", "seconds": 600} for n in range(8)]
        async with asking(asked, *hostile, client="10.0.0.66"):
            ASKING.set("10.0.0.1")
            return [(await asked.ask("echo", upload="mine", text=f"answer {n}"))["text"] for n in range(3)]

    assert run(work()) == ["answer 0", "answer 1", "answer 2"]


def test_what_is_slow_leaves_a_reader_to_what_is_quick_even_of_the_same_client() -> None:
    async def work() -> tuple[str, list[bool]]:
        asked = reader(reading_seconds=600, quick_seconds=0.3)
        hostile: list[dict[str, Any]] = [{"upload": f"hostile-{n}", "seconds": 600} for n in range(4)]
        async with asking(asked, *hostile) as tasks:
            found = await asked.ask("echo", upload="mine", text="answered")
            return found["text"], [task.done() for task in tasks]

    assert run(work()) == ("answered", [False] * 4)


def test_what_was_ended_because_it_is_slow_is_answered_in_the_end() -> None:
    async def work() -> list[int]:
        asked = reader(reading_seconds=600, quick_seconds=0.2)
        async with asking(asked, *[{"upload": f"large-{n}", "seconds": 1.5} for n in range(3)]) as tasks:
            return [found["number"] for found in await asyncio.gather(*tasks)]

    assert run(work()) == [0, 1, 2]


def test_one_clients_questions_do_not_fill_the_queue_of_another() -> None:
    async def work() -> tuple[int, str]:
        asked = reader(readings=2, reading_seconds=600)
        async with asking(asked, *[{"upload": "hostile", "seconds": 600}] * 2, client="10.0.0.66"):
            ASKING.set("10.0.0.66")
            with pytest.raises(RefusedError) as refused:
                await asked.ask("echo", upload="hostile")
            ASKING.set("10.0.0.1")
            return refused.value.status, (await asked.ask("echo", upload="mine", text="answered"))["text"]

    assert run(work()) == (429, "answered")


def test_a_reader_that_cannot_be_started_is_told_as_busy() -> None:
    async def work() -> int:
        with pytest.raises(RefusedError) as refused:
            await Reader(Limits(), root="/nowhere", command=("/nowhere/python",)).ask("schema")
        return refused.value.status

    assert run(work()) == 429


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


def test_a_foreign_error_is_told_by_its_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**job: Any) -> dict[str, Any]:
        raise ValueError(MARKER)

    monkeypatch.setattr("selpe.serve.reader.JOBS", {"check": broken})
    said = json.dumps(answer(b'{"do": "check"}'))
    assert "ValueError" in said
    assert MARKER not in said
