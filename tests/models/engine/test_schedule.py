"""The batching loop on a toy back end: every request gets the text it would get alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from selpe.errors import PromptTooLongError
from selpe.models.base import Answer, Request
from selpe.models.engine import schedule
from selpe.models.engine.blocks import MOST_WRITTEN, BlockPool
from selpe.models.engine.schedule import Scheduler, Work
from selpe.models.engine.sequence import Sequence as Writing
from toy_engine import ToyBackend, ToyVocabulary, expected_text


def scheduler(backend: ToyBackend, *, parallel: int = 8, context: int = 400, chunk: int = 32) -> Scheduler:
    return Scheduler(backend, ToyVocabulary(), parallel=parallel, context_length=context, chunk=chunk)


def ask(text: str, **changes: object) -> Request:
    return Request(**{"prompt": text, "max_tokens": 30, "temperature": 1.0, "seed": len(text), **changes})  # type: ignore[arg-type]


def test_answers_are_those_of_each_request_alone() -> None:
    shared = "a long beginning that all of the prompts have in common; "
    requests = [ask(f"{shared}{'x' * (i % 5)}{i}", seed=i, key=str(i)) for i in range(40)]
    loop = scheduler(ToyBackend())
    answers = list(loop.serve(requests, None, None))
    assert len(answers) == 40
    for answer in answers:
        assert answer.text == expected_text(answer.request)
        assert answer.finish in ("stop", "length")
    assert loop.pool.held == 0


class Stuck(ToyBackend):
    """A back end that wants to say 'abc' for ever."""

    def run(self, work: Sequence[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        rows = super().run(work, meanwhile)
        for row, item in zip(rows, [item for item in work if item.sampled], strict=True):
            row[:] = np.where(np.arange(len(row)) == 97 + (item.tokens[-1] - 96) % 3, 20.0, row)
        return rows


def test_an_answer_that_may_not_repeat_itself_gets_out_of_its_circle() -> None:
    stuck, free = (
        next(iter(scheduler(Stuck()).serve([ask("c", no_repeat=length, max_tokens=24)], None, None))).text
        for length in (0, 5)
    )
    assert stuck == "abc" * 8
    assert free.startswith("abcabca")
    runs = [free[i : i + 5] for i in range(len(free) - 4)]
    assert len(runs) == len(set(runs))


def test_guesses_that_come_true_save_turns_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask("abcabc", max_tokens=24)
    guessing, plain = Stuck(), Stuck()
    (answer,) = scheduler(guessing).serve([request], None, None)
    monkeypatch.setattr(schedule, "FREE_ROWS", 0)
    (expected,) = scheduler(plain).serve([request], None, None)
    assert (answer.text, answer.completion_tokens) == (expected.text, 24)
    assert len(guessing.turns) < 24 / 3
    assert len(plain.turns) == 24


def test_guesses_that_are_wrong_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writing, "guess", lambda self, most: [65] * min(most, self.reach - len(self.tokens) - 1))
    requests = [ask(f"prompt {i}", seed=i) for i in range(6)]
    backend = ToyBackend()
    loop = scheduler(backend, parallel=3)
    answers = list(loop.serve(requests, None, None))
    assert [answer.text for answer in answers] == [expected_text(answer.request) for answer in answers]
    assert (loop.pool.held, loop.pool.available) == (0, 64)
    assert backend.computed > sum(answer.prompt_tokens + answer.completion_tokens for answer in answers)


def test_records_are_the_same_with_and_without_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "array", "items": {"enum": ["alpha", "alpine", "beta"]}, "minItems": 4, "maxItems": 6}
    requests = [ask('["alpha", "beta", "alpine"]', seed=i, json_schema=schema, max_tokens=80) for i in range(5)]
    found, turns = [], []
    for rows in (0, 8):
        monkeypatch.setattr(schedule, "FREE_ROWS", rows)
        backend = ToyBackend()
        found.append([answer.text for answer in scheduler(backend, parallel=1).serve(requests, None, None)])
        turns.append(len(backend.turns))
    assert found[0] == found[1]
    assert turns[1] < turns[0]


def test_what_a_grammar_forces_is_computed_in_one_turn_and_row_by_row() -> None:
    backend = ToyBackend()
    grammar = 'start: ("yes" | "no") " and that is all there is; " ("really" | "perhaps")'
    (answer,) = scheduler(backend).serve([ask("well: ", grammar=grammar, max_tokens=80)], None, None)
    assert answer.finish == "stop"
    assert any(len(turn) > 20 for turn in backend.turns[1:])
    assert all(count == 1 for turn in backend.turns[1:] for count in turn)


def test_a_shared_prefix_is_computed_once() -> None:
    shared = "s" * 100
    backend = ToyBackend(blocks=200)
    answers = list(scheduler(backend).serve([ask(shared + str(i), seed=i) for i in range(16)], None, None))
    written = sum(answer.completion_tokens for answer in answers)
    assert backend.computed < 100 + 16 * 8 + written
    assert sum(answer.cached_tokens >= 96 for answer in answers) == 15


def test_what_was_computed_is_counted_as_it_goes_and_adds_up_to_the_answers() -> None:
    backend = ToyBackend(blocks=200)
    made = scheduler(backend)
    answers = list(made.serve([ask("s" * 40 + str(i), seed=i) for i in range(9)], None, None))
    assert made.read == sum(answer.prompt_tokens - answer.cached_tokens for answer in answers)
    assert made.read + made.written <= backend.computed  # a row alone is computed with a second one
    # the last token of an answer is never computed, nor is the one that ends it
    assert 0 <= sum(answer.completion_tokens for answer in answers) - made.written <= len(answers)


def test_the_ends_of_prompts_do_not_pile_up_in_memory() -> None:
    loop = scheduler(ToyBackend(blocks=400), parallel=4)
    stem = "the same beginning, number "
    list(loop.serve((ask(f"{stem}{i:03}", seed=i, max_tokens=9) for i in range(100)), None, None))
    assert loop.pool.kept <= len(stem) // 8 + 2 + MOST_WRITTEN


def test_what_was_written_is_kept_for_few_requests_only() -> None:
    pool = BlockPool(64, 8, most_written=3)
    for i in range(10):
        tokens = [1, 2, 3, 4, *(~(10 * i + place) for place in range(20))]
        lease = pool.open(tokens, total=len(tokens), reuse=0)
        assert lease is not None
        pool.grow(lease, len(tokens))
        pool.remember(lease, tokens, len(tokens))
        pool.close(lease)
    assert pool.kept == 3
    assert pool.available == 64


OPENINGS = [f"the same beginning for all, and {'x' * i}" for i in range(9)]


def stage_two(answer: Answer) -> list[Request]:
    """Goes on from what was written."""
    first = answer.request
    if first.own or not answer.text:
        return []
    return [ask(f"{first.prompt}{answer.text}; and then:", own=answer.text, seed=first.seed + 100)]


def test_a_request_goes_on_from_what_the_model_wrote_without_reading_it_again() -> None:
    backend = ToyBackend(blocks=400)
    openings = [ask(text, seed=i, key=str(i)) for i, text in enumerate(OPENINGS)]
    answers = list(scheduler(backend).serve(openings, stage_two, None))
    second = [answer for answer in answers if answer.request.own]
    assert len(second) >= 8
    for answer in second:
        assert answer.text == expected_text(answer.request)
        own = len(answer.request.own)
        before = len(answer.request.prompt) - len("; and then:") - own
        if own > 4:
            # All but the last few tokens: beginnings of blocks are shared by fours, and the last one was not computed.
            assert answer.cached_tokens >= before + own - 5


def test_answers_and_kernels_are_the_same_when_what_was_written_is_gone() -> None:
    """Own tokens are computed in rows of their own, and prompts in pieces of two or more, whatever is in memory."""
    openings = [ask(text, seed=i, key=str(i)) for i, text in enumerate(OPENINGS)]
    together = list(scheduler(ToyBackend(blocks=400)).serve(openings, stage_two, None))
    for answer in together:
        backend = Kernels(blocks=400)
        (alone,) = scheduler(backend, chunk=7).serve([answer.request], None, None)
        assert alone.text == answer.text
        own = len(answer.request.prompt) - len("; and then:") - len(answer.request.own)
        places = range(own, own + len(answer.request.own)) if answer.request.own else range(0)
        for place, single in backend.single.items():
            assert single == (place in places or place >= alone.prompt_tokens)


class Kernels(ToyBackend):
    """Remembers which places were computed in rows of a single token."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self.single: dict[int, bool] = {}

    def run(self, work: Sequence[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        for item in work:
            for place in range(item.past, item.past + len(item.tokens)):
                self.single.setdefault(place, len(item.tokens) == 1)
        return super().run(work, meanwhile)


def test_no_token_of_a_prompt_is_left_alone_before_what_the_model_wrote() -> None:
    stem = "b" * 16
    first = ask(stem + "end", seed=1)
    for tail in range(6):
        backend = Kernels(blocks=100)
        loop = scheduler(backend)
        list(loop.serve([first], None, None))
        backend.single.clear()
        prompt = stem + "c" * tail
        (answer,) = loop.serve([ask(f"{prompt}own text; and then", own="own text")], None, None)
        assert answer.text == expected_text(answer.request)
        assert not any(single for place, single in backend.single.items() if place < len(prompt))


def test_prompts_are_never_computed_one_token_at_a_time() -> None:
    backend = ToyBackend(blocks=200)
    loop = scheduler(backend, chunk=16, parallel=3)
    requests = [ask("p" * length, max_tokens=1, seed=length) for length in range(2, 60)]
    assert len(list(loop.serve(requests, None, None))) == 58
    assert all(count > 1 for turn in backend.turns for count in turn)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=20),
    st.integers(16, 60),
    st.integers(1, 6),
    st.sampled_from([3, 5, 16, 64]),
)
def test_any_batch_in_any_memory_is_answered_in_full(
    shapes: list[tuple[int, int, int]], blocks: int, parallel: int, chunk: int
) -> None:
    requests = [
        ask(f"{'abc'[stem]}" * length + f"{i}", seed=i, max_tokens=limit)
        for i, (stem, length, limit) in enumerate(shapes)
    ]
    backend = ToyBackend(blocks=blocks)
    loop = scheduler(backend, parallel=parallel, context=120, chunk=chunk)
    answers = list(loop.serve(requests, None, None))
    assert {answer.request.seed for answer in answers} == set(range(len(requests)))
    for answer in answers:
        assert answer.text == expected_text(answer.request)
    assert backend.widest <= parallel
    assert (loop.pool.held, loop.pool.available) == (0, blocks)


def test_requests_are_pulled_only_when_there_is_a_place() -> None:
    pulled: list[int] = []

    def source() -> Iterator[Request]:
        for i in range(50):
            pulled.append(i)
            yield ask(f"prompt {i}", seed=i, max_tokens=5)

    answered = 0
    for _ in scheduler(ToyBackend(), parallel=4).serve(source(), None, None):
        answered += 1
        assert len(pulled) <= answered + 8
    assert answered == 50


def test_followers_are_served_before_new_requests() -> None:
    order: list[str] = []

    def source() -> Iterator[Request]:
        for i in range(6):
            order.append(f"pull {i}")
            yield ask(f"first {i}", seed=i, key=f"first {i}", max_tokens=3)

    def follow(answer: Answer) -> list[Request]:
        if answer.request.key.startswith("first"):
            return [ask(f"second of {answer.request.key} {answer.text}", key="second", max_tokens=2)]
        order.append("second done")
        return []

    answers = list(scheduler(ToyBackend(), parallel=1).serve(source(), follow, None))
    assert [answer.request.key[:6] for answer in answers] == ["first ", "second"] * 6
    assert order == [step for i in range(6) for step in (f"pull {i}", "second done")]


def test_cancelling_ends_the_stream_and_frees_the_blocks() -> None:
    cancel = threading.Event()
    loop = scheduler(ToyBackend(), parallel=4)
    endless = (ask(f"prompt {i}", seed=i, max_tokens=25, key=str(i)) for i in range(10**9))
    finishes = []
    for answer in loop.serve(endless, None, cancel):
        finishes.append(answer.finish)
        if len(finishes) == 5:
            cancel.set()
    assert finishes.count("cancelled") in range(1, 9)
    assert finishes[-1] == "cancelled"
    assert (loop.pool.held, loop.pool.available) == (0, 64)


def test_closing_the_iterator_frees_the_blocks() -> None:
    loop = scheduler(ToyBackend(), parallel=4)
    stream = loop.serve((ask(f"prompt {i}", seed=i) for i in range(100)), None, None)
    next(stream)
    assert loop.pool.held > 0
    stream.close()  # type: ignore[attr-defined]
    assert (loop.pool.held, loop.pool.available) == (0, 64)


def test_an_error_in_the_consumers_own_code_frees_the_blocks() -> None:
    loop = scheduler(ToyBackend())

    def follow(_: Answer) -> list[Request]:
        raise KeyError("a fault of the caller")

    with pytest.raises(KeyError):
        list(loop.serve([ask(f"prompt {i}") for i in range(9)], follow, None))
    assert (loop.pool.held, loop.pool.available) == (0, 64)


def test_a_prompt_longer_than_the_context_is_an_error_of_that_request_alone() -> None:
    answers = list(scheduler(ToyBackend(), context=64).serve([ask("x" * 64), ask("fine")], None, None))
    assert isinstance(answers[0].error, PromptTooLongError)
    assert answers[0].finish == "error"
    assert "64 tokens" in answers[0].error.message
    assert answers[1].text == expected_text(answers[1].request)


def test_an_answer_ends_where_the_context_ends() -> None:
    (answer,) = scheduler(ToyBackend(), context=64).serve([ask("x" * 60, max_tokens=300, seed=4)], None, None)
    assert answer.text == expected_text(answer.request, room=4)
    assert answer.prompt_tokens + answer.completion_tokens <= 64


@pytest.mark.parametrize("length", [1, 2, 3])
def test_stop_strings_cut_the_text_before_them(length: int) -> None:
    request = ask("a prompt", seed=11, max_tokens=60)
    whole = expected_text(request)
    assert len(whole) > 6
    stop = whole[4 : 4 + length]
    (answer,) = scheduler(ToyBackend()).serve([ask("a prompt", seed=11, max_tokens=60, stop=(stop,))], None, None)
    assert answer.text == whole[: whole.index(stop)]
    assert answer.finish == "stop"


def test_a_setting_out_of_range_is_an_error_of_that_request_alone() -> None:
    answers = list(scheduler(ToyBackend()).serve([ask("one", min_p=2.0), ask("two")], None, None))
    assert answers[0].error is not None
    assert "min_p" in answers[0].error.message
    assert answers[1].finish != "error"


def test_a_json_schema_is_kept_and_forced_parts_cost_no_choice() -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "count": {"type": "integer", "minimum": 3, "maximum": 7}},
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    texts = {
        answer.text
        for answer in scheduler(ToyBackend()).serve(
            [ask("a thing: ", seed=i, json_schema=schema, max_tokens=60) for i in range(30)], None, None
        )
    }
    possible = {f'{{"colour": "{c}", "count": {n}}}' for c in ("red", "blue") for n in range(3, 8)}
    assert texts <= possible
    assert len(texts) > 3


def test_a_grammar_in_lark_is_kept() -> None:
    answers = list(
        scheduler(ToyBackend()).serve(
            [ask("x", seed=i, grammar='start: "level " ("one" | "two")') for i in range(8)], None, None
        )
    )
    assert {answer.text for answer in answers} <= {"level one", "level two"}
    assert {answer.finish for answer in answers} == {"stop"}


def test_a_faulty_grammar_is_an_error_of_that_request_alone() -> None:
    answers = list(scheduler(ToyBackend()).serve([ask("x", grammar="start: ((("), ask("fine")], None, None))
    assert {answer.finish for answer in answers if answer.request.grammar} == {"error"}
    assert answers[-1].text == expected_text(answers[-1].request)
