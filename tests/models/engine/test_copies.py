"""An answer does not copy six words of a text that it must be unlike, and is otherwise as it would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from selpe.models.base import Request
from selpe.models.engine.copies import CopyGuards
from selpe.models.engine.schedule import Scheduler, Work
from toy_engine import ToyBackend, ToyVocabulary

TEXT = "tea hot whole day, strong body beautiful colour must buy"


class Parrot(ToyBackend):
    """Wants to go on with a text, as a small model with an example."""

    def run(self, work: Sequence[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        rows = super().run(work, meanwhile)
        for row, item in zip(rows, [item for item in work if item.sampled], strict=True):
            written = bytes(item.owner.tokens).rpartition(b":")[2].decode()
            wanted = TEXT[len(written) :][:1] if TEXT.startswith(written) else "x"
            row[:] = -5.0
            row[ord("y")] = 0.0
            row[ord(wanted or "x")] = 20.0
        return rows


def written(**more: object) -> str:
    request = Request(prompt="review:", max_tokens=40, temperature=0.0, **more)  # type: ignore[arg-type]
    loop = Scheduler(Parrot(), ToyVocabulary(), parallel=2, context_length=200)
    return next(iter(loop.serve([request], None, None))).text


def test_the_sixth_word_of_a_copy_is_held_back() -> None:
    assert written() == TEXT[:40]
    assert written(unlike=(TEXT,)).startswith("tea hot whole y")  # one run of three, and no second one
    assert written(unlike=("another text that has nothing to do with it",)) == TEXT[:40]


def test_the_last_word_of_a_text_of_four_or_five_is_held_back() -> None:
    assert written(unlike=("tea hot whole day",)).startswith("tea hot whole y")
    assert written(unlike=("tea hot whole day strong",)).startswith("tea hot whole y")  # most of a near copy
    assert written(unlike=("hot whole", "hot whole day")) == TEXT[:40]  # three words may coincide with a part


def test_what_several_texts_share_is_a_form_that_may_be_written() -> None:
    assert written(unlike=("tea hot whole day",) * 1 + ("tea hot whole day ",)) == TEXT[:40]


@pytest.mark.parametrize("text", ["", "word", "one 2 3 4 5 6 7"])
def test_single_words_and_numbers_are_not_held_back(text: str) -> None:
    guards = CopyGuards(ToyVocabulary())
    row = np.arange(256, dtype=np.float32)
    copies = guards.against((text,))
    assert copies is not None
    for end in range(1, len(text)):
        assert copies.held_back(row, text[:end].encode()) is row


def test_texts_are_told_with_and_without_a_blank_before_them_and_by_their_bytes() -> None:
    text = "größe 38 éclair ünd noch ein élan"  # the sixth word is 'ein'
    copies = CopyGuards(ToyVocabulary()).against((text,))
    assert copies is not None
    row = np.zeros(256, dtype=np.float32)
    for before in ('{"text": "seit heute dann wann ', "text: seit heute dann wann "):
        so_far = (before + "größe 38 éclair ünd noch ").encode()
        assert np.flatnonzero(copies.held_back(row, so_far) < 0).tolist() == [ord("E"), ord("e")]
        assert copies.held_back(row, so_far[:-6]) is row  # 'noch' is not there


class Words(ToyVocabulary):
    """Letters, and a few longer tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = [*self.pieces, b" restless", b"restless", b" rest", b", Restless", b" re", b"less", b" rests"]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("arm drifts, pad soaked; Grey and", {" restless", " rest", ", Restless"}),
        ("arm drifts, pad soaked. GREY, and ", {" restless", " rest", ", Restless", "restless", "r", "R"}),
        ("arm drifts, pad soaked. grey, andes ", set()),
        ("awake and talks, pad soaked, grey, and", set()),  # four words, and others before them
    ],
)
def test_copies_are_told_by_words_whatever_stands_between_them(text: str, held: set[str]) -> None:
    vocabulary = Words()
    copies = CopyGuards(vocabulary).against(("Left arm; drifts: pad soaked, grey and restless, two lines",))
    assert copies is not None
    row = np.zeros(len(vocabulary.pieces), dtype=np.float32)
    found = np.flatnonzero(copies.held_back(row, text.encode()) < 0)
    assert {vocabulary.pieces[int(token)].decode() for token in found} == held


def test_no_texts_need_no_guard() -> None:
    assert CopyGuards(ToyVocabulary()).against(()) is None


def guard(*texts: str) -> Callable[[str], bool]:
    """Whether a word of one letter is held back behind what has been written."""
    copies = CopyGuards(ToyVocabulary()).against(texts)
    assert copies is not None
    return lambda said: bool(np.any(copies.held_back(np.zeros(256, np.float32), said.encode()) < 0))


def test_a_value_does_not_become_a_near_copy() -> None:
    held = guard("a b c d e f g h i j")
    assert not held("x: a b ")  # the first run of three words
    assert held("x: a b c ")  # the second of two
    assert not held("x: k l m n a b c ")  # the second of six
    assert held("x: k a b c d ")  # three of four


def test_each_value_is_judged_by_itself() -> None:
    held = guard("a b c d e f g h i j")
    assert not held("notes: k l m n o p a b c ")
    for mark in ("; t: ", "\nt: ", '", "t": "'):
        assert held(f"notes: k l m n o p{mark}a b c ")


def test_five_words_of_a_copy_in_a_long_value_are_followed_by_another() -> None:
    before = "k l m n o p q r s t u v w x y z "
    held = guard("a b c d e f g h i j")
    assert not held(f"{before}a b c d ")
    assert held(f"{before}a b c d e ")


def test_a_form_may_be_written_whole() -> None:
    form = "a b c d e f g "
    held = guard(f"{form} k", f"{form} m")
    assert not any(held(f"x: {form[:end]}") for end in range(4, len(form), 2))


def test_a_text_of_two_or_three_words_is_no_whole_value() -> None:
    held = guard("a b", "c d e")
    assert held("t: a ")
    assert held('{"t": "c d ')
    assert held("notes: x y; t: c d ")
    assert not held("t: x a ")  # it may stand in another text
    assert not held("t: c ")
    assert not guard("a")("t: ")  # a word alone is nobody's
