"""A model spread over workers answers everything once, as one alone would, whoever is lost on the way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from crew_world import GATE, HERE, ThreadHands, crew_of, prompts
from selpe.errors import ConfigError, ModelError
from selpe.execute.spread import CHUNK, SpreadEncoder, SpreadModel
from selpe.execute.worker import Order, Worker
from selpe.models.base import Answer, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel

Build = Callable[..., ThreadHands]


@pytest.fixture
def build() -> Iterator[Build]:
    made: list[ThreadHands] = []

    def hands(workers: int, engine: str = "quick", llm: str = "fake", **settings: object) -> ThreadHands:
        made.append(ThreadHands(Order(llm, "hash", maker=f"{HERE}:{engine}"), workers, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield hands
    for one in made:
        one.close()


def texts(answers: list[Answer]) -> dict[str, str]:
    return {answer.request.key: answer.text for answer in answers}


def alone(requests: list[Request]) -> dict[str, str]:
    return texts(list(FakeModel().generate(requests)))


def once(prompt: str, also: Callable[[], None] = lambda: None) -> Callable[[object], bool]:
    """Kills the worker that is sent this prompt, the first time."""
    left = [prompt]

    def fatal(given: object) -> bool:
        hit = isinstance(given, Request) and given.prompt in left
        if hit:
            left.clear()
            also()
        return hit

    return fatal


def test_every_request_is_answered_once_and_as_by_one_model_alone(build: Build) -> None:
    hands = build(3)
    model = SpreadModel(crew_of(hands, 3))
    answers = list(model.generate(prompts(200)))
    assert texts(answers) == alone(prompts(200))
    assert len(answers) == 200
    assert (model.name, model.capabilities().seed) == ("fake", True)
    assert {worker for worker, method, _ in hands.sent if method == "answer"} == {0, 1, 2}


def test_followers_are_served_and_the_source_is_pulled_no_further_than_there_are_places(build: Build) -> None:
    model = SpreadModel(crew_of(build(2), 2, in_flight=3))
    pulled: list[int] = []

    def source() -> Iterator[Request]:
        for i, request in enumerate(prompts(50)):
            pulled.append(i)
            yield request

    seen: list[str] = []

    def follow(answer: Answer) -> list[Request]:
        first = answer.request.prompt.startswith("p ")
        return [Request(prompt=answer.request.prompt.replace("p", "q"), key=answer.request.key)] if first else []

    for answer in model.generate(source(), follow=follow):
        seen.append(answer.request.prompt)
        assert len(pulled) <= len(seen) + 2 * 3 + 1
    assert Counter(one[0] for one in seen) == {"p": 50, "q": 50}


def test_a_fast_worker_does_more(build: Build) -> None:
    hands = build(2)
    hands._workers[1] = Worker(Order("fake", maker=f"{HERE}:gated"))
    GATE.clear()
    answers = 0
    for _ in SpreadModel(crew_of(hands, 2, in_flight=2)).generate(prompts(120)):
        answers += 1
        if answers == 100:
            GATE.set()  # the second worker has held two requests all the while, and nobody waited for it
    share = Counter(worker for worker, method, _ in hands.sent if method == "answer")
    assert answers == 120
    assert share[0] >= 100


def test_what_a_lost_worker_held_is_done_by_others_and_the_worker_comes_back(build: Build) -> None:
    hands = build(3, "slow", "0.002")
    hands.fatal = once("p 60")
    crew = crew_of(hands, 3)
    answers = list(SpreadModel(crew).generate(prompts(150)))
    assert texts(answers) == alone(prompts(150))
    assert len(answers) == 150
    assert crew.losses == 1
    assert hands.served()["p 60"] == hands.served().most_common(1)[0][1] == 2  # sent again at most once
    while len(crew.ready()) < 3:
        crew.news((), 1.0)


def test_a_worker_that_takes_its_time_to_come_back_is_waited_for(build: Build) -> None:
    hands = build(1)
    hands.fatal = once("p 25", lambda: setattr(hands, "away", 3))
    crew = crew_of(hands, 1, restarts=1)
    assert texts(list(SpreadModel(crew).generate(prompts(40)))) == alone(prompts(40))
    assert (crew.losses, hands.away) == (1, 0)


def test_a_request_that_kills_workers_is_given_up_and_all_its_neighbours_are_answered(build: Build) -> None:
    hands = build(2, fatal=lambda given: isinstance(given, Request) and "POISON" in given.prompt)
    crew = crew_of(hands, 2)
    model = SpreadModel(crew)
    requests = prompts(40)
    requests[7] = Request(prompt="POISON", key="bad")
    answers = list(model.generate(requests))
    (error,) = [answer for answer in answers if answer.finish == "error"]
    assert error.request.key == "bad"
    assert error.error is not None
    assert error.error.retryable
    assert {key: text for key, text in texts(answers).items() if key != "bad"} == alone(
        [request for request in requests if request.key != "bad"]
    )
    assert hands.served()["POISON"] == 3
    again = list(model.generate([Request(prompt="POISON", key="again")]))
    assert [answer.finish for answer in again] == ["error"]
    assert hands.served()["POISON"] == 3  # remembered: no further worker is risked


def test_the_only_worker_survives_several_such_requests(build: Build) -> None:
    hands = build(1, fatal=lambda given: isinstance(given, Request) and "POISON" in given.prompt)
    requests = prompts(10) + [Request(prompt=f"POISON {i}", key=f"bad {i}") for i in range(4)]
    answers = list(SpreadModel(crew_of(hands, 1, restarts=5)).generate(requests))
    assert Counter(answer.finish for answer in answers) == {"stop": 10, "error": 4}


def test_asking_again_is_answered_by_the_same_error_until_the_caller_has_had_enough(build: Build) -> None:
    hands = build(1, fatal=lambda given: isinstance(given, Request) and "POISON" in given.prompt)
    asked: list[str] = []

    def follow(answer: Answer) -> list[Request]:
        asked.append(answer.finish)
        return [answer.request] if answer.finish == "error" and len(asked) < 4 else []

    answers = list(SpreadModel(crew_of(hands, 1)).generate([Request(prompt="POISON", key="x")], follow=follow))
    assert [answer.finish for answer in answers] == ["error"] * 4
    assert hands.served()["POISON"] == 3


def test_engines_that_all_fail_as_a_whole_raise_what_one_alone_would(build: Build) -> None:
    model = SpreadModel(crew_of(build(2, "doomed"), 2))
    with pytest.raises(ModelError, match="no endpoint is working") as caught:
        list(model.generate(prompts(20)))
    assert caught.value.hint == "bring the server back"


def test_a_model_that_no_worker_can_open_is_told_at_once(build: Build) -> None:
    with pytest.raises(ModelError, match="there is no such model here"):
        SpreadModel(crew_of(build(3, "missing"), 3))


def test_a_worker_that_keeps_dying_before_it_does_anything_is_given_up(build: Build) -> None:
    hands = build(1, fatal=lambda given: isinstance(given, Request))
    with pytest.raises(ModelError, match="all workers were lost"):
        list(SpreadModel(crew_of(hands, 1, restarts=1)).generate(prompts(5)))
    assert hands.dismissed == [0]


def test_a_worker_that_hangs_is_ended_and_begun_again(build: Build) -> None:
    hands = build(1, "deaf")
    model = SpreadModel(crew_of(hands, 1, patience=0.2, restarts=0))
    with pytest.raises(ModelError, match="all workers were lost"):
        list(model.generate(prompts(3)))
    assert hands.restarted == [0]


def test_cancelling_ends_soon_and_everything_taken_up_comes_back(build: Build) -> None:
    cancel = threading.Event()
    answers: list[Answer] = []
    for answer in SpreadModel(crew_of(build(2, "slow", "0.01"), 2)).generate(prompts(500), cancel=cancel):
        answers.append(answer)
        if len(answers) == 5:
            cancel.set()
    finished = Counter(answer.finish for answer in answers)
    assert finished["stop"] < 40
    assert finished["cancelled"] > 0
    assert len({answer.request.key for answer in answers}) == len(answers)


def test_a_stream_that_is_left_early_does_not_disturb_the_next(build: Build) -> None:
    model = SpreadModel(crew_of(build(2), 2))
    next(iter(model.generate(prompts(100))))
    assert texts(list(model.generate(prompts(30, "other")))) == alone(prompts(30, "other"))


def test_vectors_are_those_of_one_encoder_in_order_and_private_text_has_no_way_in(build: Build) -> None:
    encoder = HashingEncoder()
    spread = SpreadEncoder(crew_of(build(2), 2), name=encoder.name, dimension=encoder.dimension)
    words = [f"text number {i}" for i in range(2 * CHUNK + 9)]
    assert np.array_equal(spread.encode_public(words), encoder.encode(words))
    assert spread.encode_public([]).shape == (0, encoder.dimension)
    assert not hasattr(spread, "encode")


def test_workers_with_another_encoder_are_refused(build: Build) -> None:
    spread = SpreadEncoder(crew_of(build(1), 1), name="minilm", dimension=384)
    with pytest.raises(ConfigError, match="hash-256"):
        spread.encode_public(["a"])


def test_tokens_are_counted_by_the_workers_model(build: Build) -> None:
    assert SpreadModel(crew_of(build(1), 1)).count_tokens("one two, three") == 4
