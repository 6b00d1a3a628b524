"""Texts that are known by their hashes alone."""

from __future__ import annotations

import random

from selpe.run.large.known import KnownTexts, hashes_of


def test_what_was_added_is_known_and_nothing_else() -> None:
    known = KnownTexts()
    chance, there = random.Random(0), set[str]()
    for _ in range(40):
        fresh = {f"text {chance.randrange(3000)}" for _ in range(chance.choice((1, 3, 50)))} - there
        asked = [f"text {number}" for number in range(0, 3000, 7)]
        assert known.among(asked) == there.intersection(asked)
        known.add(hashes_of(fresh))
        there |= fresh
    assert len(known) == len(there)


def test_few_arrays_are_searched_however_many_were_added() -> None:
    known = KnownTexts()
    for number in range(1000):
        known.add(hashes_of([f"text {number}"]))
    assert len(known._levels) <= 10
    assert known.among(["text 0", "text 999", "text 1000"]) == {"text 0", "text 999"}


def test_nothing_is_among_nothing() -> None:
    known = KnownTexts()
    known.add(hashes_of([]))
    assert known.among([]) == known.among(["a"]) == set()


def test_hashes_are_the_same_in_every_process() -> None:
    assert [int(one) for one in hashes_of(["a", "ä", "\ud800"])] == [
        int.from_bytes(bytes.fromhex(text), "little")
        for text in ("40f89e395b66422f", "f04dbbe25e2ba039", "4208783e927d0d68")
    ]
