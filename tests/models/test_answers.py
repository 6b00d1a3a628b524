from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from selpe.method.generation import Generator, Proposal
from selpe.method.guides import Guide
from selpe.models import Answer, Request
from selpe.models.answers import AnswerStore, RememberingModel
from selpe.models.base import Place
from selpe.models.fake import FakeModel, Faults
from small_world import SCHEMA


def test_a_known_request_is_not_asked_again(tmp_path: Path) -> None:
    requests = [Request(prompt=f"p{i}", seed=i) for i in range(20)]
    first, second = FakeModel(), FakeModel()
    one = RememberingModel(first, AnswerStore(tmp_path / "a.jsonl"))
    texts = {a.request.seed: a.text for a in one.generate(requests)}
    two = RememberingModel(second, AnswerStore(tmp_path / "a.jsonl"))
    again = {a.request.seed: a.text for a in two.generate(requests)}
    assert again == texts
    assert (first.requests_served, second.requests_served) == (20, 0)
    assert two.replayed == 20


def test_an_answer_says_itself_whether_it_was_kept_however_long_it_took(tmp_path: Path) -> None:
    class Instant(FakeModel):
        def generate(self, requests: Iterable[Request], **how: Any) -> Iterator[Answer]:
            return (replace(answer, seconds=0.0) for answer in super().generate(requests, **how))

    model = RememberingModel(Instant(), AnswerStore(tmp_path / "a.jsonl"))
    request = Request(prompt="p", place=Place("II", 3, 1))
    (asked,), (kept,) = model.generate([request]), model.generate([request])
    assert (asked.replayed, kept.replayed) == (False, True)
    assert kept.place == Place("II", 3, 1)


def test_followers_of_stored_answers_are_followed(tmp_path: Path) -> None:
    def follow(answer: Answer) -> list[Request]:
        return [Request(prompt=answer.text, key="II", seed=answer.request.seed)] if answer.request.key == "I" else []

    requests = [Request(prompt=f"p{i}", key="I", seed=i) for i in range(6)]
    store = AnswerStore(tmp_path / "a.jsonl")
    list(FakeModel().generate(requests))
    for answer in FakeModel().generate(requests[:3]):
        store.put("fake", answer)  # stage I of three is known, stage II of none
    model = FakeModel()
    keys = sorted(a.request.key for a in RememberingModel(model, store).generate(requests, follow=follow))
    assert keys == ["I"] * 6 + ["II"] * 6
    assert model.requests_served == 9


def test_errors_are_not_remembered(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "a.jsonl")
    list(RememberingModel(FakeModel(faults=Faults(timeout=1.0)), store).generate([Request(prompt="x")]))
    assert len(store) == 0


def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    store = AnswerStore(path)
    for answer in FakeModel().generate(Request(prompt=f"p{i}") for i in range(5)):
        store.put("fake", answer)
    store.close()
    raw = path.read_bytes()
    for cut in range(len(raw) - 40, len(raw)):
        path.write_bytes(raw[:cut])
        again = AnswerStore(path)
        assert len(again) == 4
        assert path.stat().st_size < cut or raw[:cut].endswith(b"\n")
        again.close()


def test_the_handle_of_a_request_does_not_matter_but_seed_and_schema_do(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "a.jsonl")
    store.put("fake", Answer(Request(prompt="p", key="one", json_schema={"b": 1, "a": 2}), "text", "stop"))
    assert (
        store.get("fake", Request(prompt="p", key="two", place=Place("II", 9), json_schema={"a": 2, "b": 1}))
        is not None
    )
    assert store.get("fake", Request(prompt="p", json_schema={"a": 2, "b": 1}, seed=1)) is None
    assert store.get("other", Request(prompt="p", json_schema={"a": 2, "b": 1})) is None


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from small_world import SCHEMA
from selpe.method.generation import Generator, Proposal
from selpe.method.guides import Guide
from selpe.models.fake import FakeModel
from selpe.models.answers import AnswerStore, RememberingModel
model = RememberingModel(FakeModel(seconds_per_answer=0.002), AnswerStore(Path(sys.argv[1])))
print("ready", flush=True)
Generator(model, SCHEMA).generate([Proposal(Guide("doc"), seed, label="low") for seed in range(200)])
"""


def test_after_kill_9_the_finished_answers_are_there_and_the_result_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(Path(__file__).parents[1] / "support")], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    while not path.exists() or path.stat().st_size < 4000:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    proposals = [Proposal(Guide("doc"), seed, label="low") for seed in range(200)]
    store = AnswerStore(path)
    known, fresh = len(store), FakeModel()
    resumed = Generator(RememberingModel(fresh, store), SCHEMA).generate(proposals)
    whole = Generator(FakeModel(), SCHEMA).generate(proposals)
    store.close()
    assert known > 0
    assert fresh.requests_served == whole.effort.answers - known
    assert resumed.candidates == whole.candidates
