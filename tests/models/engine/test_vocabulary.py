from __future__ import annotations

import pytest

from selpe.models.engine.vocabulary import places_of

NAMES = [
    b"Notes",
    b":",
    b" a",
    b" fall",
    b"en",
    b" tree",
    b"\n",
    b"Record",
    b"<end>",
    "é".encode()[:1],
    "é".encode()[1:],
]
ALL = dict(zip(["notes", ":", "a", "fall", "en", "tree", "n", "record", "end", "é1", "é2"], range(11), strict=True))


@pytest.mark.parametrize(
    ("own", "tokens", "places"),
    [
        ("a fallen tree", "notes : a fall en tree n record : n", range(2, 6)),  # its blank belongs to it
        ("a tree", "notes : a tree n notes : a tree n record", range(7, 9)),  # where it stands last
        ("a fall", "notes : a fall en tree", range(2, 4)),
        ("a falle", "notes : a fall en tree", range(2, 4)),  # half a token is not its own
        ("tree", "end notes : a tree end", range(4, 5)),  # marks of a chat count as they are written
        ("é", "notes é1 é2 n", range(1, 3)),
        ("a house", "notes : a tree", range(0)),
        ("", "notes : a tree", range(0)),
    ],
)
def test_what_a_model_wrote_is_found_among_the_tokens(own: str, tokens: str, places: range) -> None:
    assert places_of(own, [ALL[name] for name in tokens.split()], NAMES) == places
