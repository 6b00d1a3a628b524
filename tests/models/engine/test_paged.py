from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from selpe.models.engine.paged import Piece, parts_of


@given(st.lists(st.integers(1, 150), min_size=1, max_size=12), st.sampled_from([None, 4, 5, 8, 64]))
def test_a_turn_is_computed_in_parts_that_leave_no_row_of_a_prompt_alone(lengths: list[int], most: int | None) -> None:
    pieces = [Piece(list(range(length)), 10 * i, [i], sampled=i % 2 == 0) for i, length in enumerate(lengths)]
    parts = list(parts_of(pieces, most))
    assert all(parts)
    assert most is None or all(sum(len(piece.tokens) for piece in part) <= most for part in parts)
    for i, whole in enumerate(pieces):
        own = [piece for part in parts for piece in part if piece.table == [i]]
        assert [token for piece in own for token in piece.tokens] == whole.tokens
        assert [piece.past - whole.past for piece in own] == [piece.tokens[0] for piece in own]
        assert [piece.sampled for piece in own] == [False] * (len(own) - 1) + [whole.sampled]
        assert len(whole.tokens) == 1 or all(len(piece.tokens) > 1 for piece in own)
    assert [piece.table[0] for part in parts for piece in part] == sorted(
        piece.table[0] for part in parts for piece in part
    )


def test_without_a_limit_a_turn_is_one_part() -> None:
    pieces = [Piece([1] * 500, 0, [0], sampled=True), Piece([2], 3, [1], sampled=True)]
    assert list(parts_of(pieces, None)) == [pieces]
