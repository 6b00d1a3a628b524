from __future__ import annotations

import json
import re
import threading
from random import Random

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.errors import PromptTooLongError
from selpe.models import Answer, ChatModel, Message, Request
from selpe.models.fake import FakeModel, Faults
from selpe.models.sampled_text import sample_pattern
from selpe.schema import Schema

SCHEMA = Schema.from_yaml(
    """
label: level
fields:
  note: {kind: text, min_length: 5, max_length: 40}
  code: {kind: text, max_length: 12, pattern: "[A-Z]{2}-[0-9]{1,4}"}
  level: {kind: category, values: [a, b, c]}
  count: {kind: integer, min: 3, max: 90, step: 3}
  rate: {kind: number, min: 0.5, max: 9.5, step: 0.25, optional: true}
  ok: {kind: boolean}
  day: {kind: date, min: 2024-01-15, max: 2024-03-10}
"""
)


def ask(seed: int, **settings: object) -> Request:
    return Request(prompt="Write a record.", json_schema=SCHEMA.to_json_schema({"level": "b"}), seed=seed, **settings)  # type: ignore[arg-type]


def test_it_is_a_chat_model() -> None:
    assert isinstance(FakeModel(), ChatModel)


def test_constrained_answers_are_valid_and_keep_the_class() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA.to_json_schema())
    for answer in FakeModel().generate(ask(seed) for seed in range(200)):
        record = json.loads(answer.text)
        assert validator.is_valid(record)
        assert SCHEMA.check(record) == []
        assert record["level"] == "b"


def test_an_answer_depends_on_its_request_alone() -> None:
    together = {answer.request.seed: answer.text for answer in FakeModel().generate([ask(1), ask(2), ask(3)])}
    alone = next(iter(FakeModel().generate([ask(2)]))).text
    assert together[2] == alone
    assert len(set(together.values())) == 3


def test_followers_are_served_before_new_requests() -> None:
    def follow(answer: Answer) -> list[Request]:
        return [Request(messages=(Message("user", answer.text),), key="II")] if answer.request.key == "I" else []

    requests = [Request(prompt=f"context {number}", key="I") for number in range(3)]
    assert [answer.request.key for answer in FakeModel().generate(requests, follow=follow)] == ["I", "II"] * 3


def test_requests_are_pulled_lazily() -> None:
    pulled = []
    stream = FakeModel().generate(pulled.append(seed) or ask(seed) for seed in range(1000))  # type: ignore[func-returns-value]
    next(stream)
    assert len(pulled) == 1


def test_cancelling_ends_the_stream_with_cancelled_answers() -> None:
    cancel = threading.Event()
    finishes = []
    for answer in FakeModel().generate([ask(seed) for seed in range(4)], cancel=cancel):
        finishes.append(answer.finish)
        cancel.set()
    assert finishes == ["stop", "cancelled", "cancelled", "cancelled"]


def test_a_prompt_that_is_too_long_is_an_error_of_that_request_alone() -> None:
    model = FakeModel(context_length=300)
    long, short = model.generate([Request(prompt="word " * 400), Request(prompt="word", max_tokens=20)])
    assert isinstance(long.error, PromptTooLongError)
    assert short.finish == "stop"


def answer_with(faults: Faults) -> Answer:
    request = Request(prompt="Write.", json_schema=SCHEMA.to_json_schema(), seed=4)
    (answer,) = FakeModel(faults=faults).generate([request])
    return answer


@pytest.mark.parametrize("faults", [Faults(timeout=1.0), Faults(rate_limited=1.0)])
def test_a_server_that_is_busy_or_late_may_be_asked_again(faults: Faults) -> None:
    error = answer_with(faults).error
    assert error is not None
    assert error.retryable


@pytest.mark.parametrize("faults", [Faults(invalid_json=1.0), Faults(truncated=1.0)])
def test_broken_and_cut_answers_are_no_json(faults: Faults) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer_with(faults).text)


def test_a_wrong_category_is_outside_its_domain() -> None:
    record = json.loads(answer_with(Faults(wrong_enum=1.0)).text)
    assert [violation.level for violation in SCHEMA.check(record)] == ["domain"]


def test_faults_come_at_their_rate() -> None:
    model = FakeModel(faults=Faults(timeout=0.3))
    failed = sum(answer.finish == "error" for answer in model.generate(ask(seed) for seed in range(600)))
    assert 120 < failed < 240


@given(
    st.sampled_from([r"^(?:[A-Z]{2}\d+)$", r"a|bc*", r"[^0-9]{3,9}", r"(?:x[yz]){2,}\s?", r".+@\w+\.org", r"\D\S\W"]),
    st.integers(),
)
def test_sampled_text_matches_its_pattern(pattern: str, seed: int) -> None:
    assert re.fullmatch(pattern, sample_pattern(pattern, Random(seed)))
