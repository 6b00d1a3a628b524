"""A short look with every fuzz target: its corpus, and mutations of it by a fixed seed, without atheris."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz_targets import SAME_CORPUS, TARGETS

CORPUS = Path(__file__).parent / "corpus"
MUTATIONS = 250
# Pieces that parsers trip over.
PIECES = [
    *(bytes([sign]) for sign in b"\0\"'\\\n,;{}[]()<>&*+-."), b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"9" * 30,
    b"1e999", b"null", b"NaN", b"\xed\xa0\x80", "İ".encode(), b"a" * 300,
]  # fmt: skip


def inputs(target: str) -> list[bytes]:
    """The corpus of a target, in a fixed order."""
    return [path.read_bytes() for path in sorted((CORPUS / SAME_CORPUS.get(target, target)).iterdir())]


def mutated(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """An input with a few bytes changed, moved, doubled, cut or taken from another."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        place, length = chance.randint(0, len(found)), chance.choice((1, 1, 2, 8, 40))
        how = chance.randrange(5)
        if how == 0:
            found[place:place] = chance.choice(PIECES)
        elif how == 1:
            del found[place : place + length]
        elif how == 2:
            found[place:place] = found[place : place + length] * chance.choice((1, 2, 30))
        elif how == 3 and place < len(found):
            found[place] = chance.randrange(256)
        else:
            start = chance.randint(0, len(other))
            found[place : place + length] = other[start : start + length]
    return bytes(found)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("target", TARGETS)
def test_whatever_comes_in_is_read_or_refused(target: str) -> None:
    corpus, chance = inputs(target), random.Random(20)
    for data in corpus:
        TARGETS[target](data)
    for _ in range(MUTATIONS):
        data = mutated(chance.choice(corpus), chance.choice(corpus), chance)
        try:
            TARGETS[target](data)
        except Exception as error:
            error.add_note(f"input: {data!r}") if hasattr(error, "add_note") else None
            raise


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == {SAME_CORPUS.get(target, target) for target in TARGETS}
    assert all(inputs(target) for target in TARGETS)


def test_a_foreign_error_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("foreign")

    monkeypatch.setattr("fuzz_targets.read_jsonl", broken)
    with pytest.raises(ValueError, match="foreign"):
        TARGETS["jsonl"](b"{}")
