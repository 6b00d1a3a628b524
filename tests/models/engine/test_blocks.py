"""The block pool neither leaks nor hands out a block twice, and what it calls cached is what was computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selpe.models.engine.blocks import BlockPool, Lease

SIZE = 8


class Memory(dict[int, list[int]]):
    """What lies in each block."""


def compute(pool: BlockPool, memory: Memory, lease: Lease, tokens: list[int]) -> None:
    """Stands in for the model: writes every token that is not cached into its block."""
    if lease.copy is not None:
        memory[lease.copy[1]] = list(memory[lease.copy[0]])
    pool.grow(lease, len(tokens))
    for place in range(lease.cached, len(tokens)):
        memory.setdefault(lease.table[place // SIZE], [-1] * SIZE)[place % SIZE] = tokens[place]


def contents(memory: Memory, lease: Lease, count: int) -> list[int]:
    return [memory[lease.table[place // SIZE]][place % SIZE] for place in range(count)]


def opened(pool: BlockPool, tokens: list[int], total: int | None = None) -> Lease:
    lease = pool.open(tokens, total=total or len(tokens), reuse=len(tokens) - 2)
    assert lease is not None
    return lease


def test_a_second_prompt_takes_whole_blocks_and_a_copied_beginning() -> None:
    pool, memory = BlockPool(16, SIZE), Memory()
    first = list(range(30))
    lease = opened(pool, first)
    assert lease.cached == 0
    compute(pool, memory, lease, first)
    pool.remember(lease, first, len(first))
    second = [*range(22), *range(100, 110)]
    other = opened(pool, second)
    assert other.table[:2] == lease.table[:2]
    assert other.cached == 20  # 16 in whole blocks, 4 of the 6 that follow (beginnings are indexed by fours)
    assert other.copy == (lease.table[2], other.table[2])
    compute(pool, memory, other, second)
    assert contents(memory, other, len(second)) == second
    assert contents(memory, lease, len(first)) == first


def test_prefixes_outlive_their_request_until_memory_is_wanted() -> None:
    pool, memory = BlockPool(6, SIZE), Memory()
    tokens = list(range(32))
    lease = opened(pool, tokens)
    compute(pool, memory, lease, tokens)
    pool.remember(lease, tokens, 32)
    pool.close(lease)
    assert pool.held == 0
    assert pool.known(tokens) == 32
    large = pool.open([7] * 40, total=40, reuse=38)
    assert large is not None
    pool.grow(large, 40)
    assert pool.known(tokens) == 8  # the end of the prefix went first, its beginning is still there
    pool.close(large)
    pool.clear()
    assert pool.known(tokens) == 0
    assert pool.available == 6


def test_a_request_is_refused_while_others_may_still_need_the_blocks() -> None:
    pool = BlockPool(10, SIZE)
    first = pool.open([1] * 8, total=48, reuse=0)
    assert first is not None
    pool.grow(first, 8)
    assert pool.available == 4
    assert pool.open([2] * 8, total=40, reuse=0) is None
    second = pool.open([2] * 8, total=32, reuse=0)
    assert second is not None
    pool.grow(first, 48)
    pool.grow(second, 32)
    assert pool.held == 10
    with pytest.raises(AssertionError, match="promised"):
        pool.grow(first, 49)


def test_closing_twice_frees_once() -> None:
    pool = BlockPool(4, SIZE)
    lease = pool.open([1] * 8, total=16, reuse=0)
    assert lease is not None
    pool.grow(lease, 16)
    pool.close(lease)
    pool.close(lease)
    assert (pool.held, pool.available) == (0, 4)


def test_equal_tokens_after_different_prefixes_are_not_confused() -> None:
    pool, memory = BlockPool(16, SIZE), Memory()
    same = [9] * 16
    for start in (1, 2):
        tokens = [start] * 8 + same
        lease = opened(pool, tokens)
        assert lease.cached == 0
        compute(pool, memory, lease, tokens)
        pool.remember(lease, tokens, len(tokens))
        pool.close(lease)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(4, 24),
    st.lists(
        st.tuples(
            st.integers(0, 3),  # which stem the prompt shares
            st.integers(0, 40),  # how much of it
            st.integers(2, 30),  # tokens of its own
            st.integers(0, 40),  # room for the answer
            st.booleans(),  # a lease is closed first
        ),
        max_size=25,
    ),
)
def test_no_leak_no_double_use_and_cached_means_computed(
    blocks: int, requests: list[tuple[int, int, int, int, bool]]
) -> None:
    pool, memory = BlockPool(blocks, SIZE), Memory()
    running: list[tuple[Lease, list[int]]] = []
    numbers = np.random.Generator(np.random.Philox(key=1))
    for stem, shared, own, room, close_first in requests:
        if close_first and running:
            pool.close(running.pop(0)[0])
        tokens = [stem] * shared + numbers.integers(10, 12, own).tolist()
        lease = pool.open(tokens, total=len(tokens) + room, reuse=len(tokens) - 2)
        if lease is None:
            assert running or -(-(len(tokens) + room) // SIZE) > blocks
            continue
        assert lease.cached <= len(tokens) - 2
        compute(pool, memory, lease, tokens)
        assert contents(memory, lease, len(tokens)) == tokens
        pool.remember(lease, tokens, len(tokens))
        running.append((lease, tokens))
        held = [block for other, _ in running for block in other.table]
        assert len(set(held)) == pool.held
        assert pool.available >= 0
        for other, others_tokens in running:
            assert contents(memory, other, len(others_tokens)) == others_tokens
    for lease, tokens in running:
        pool.grow(lease, len(tokens))
        pool.close(lease)
    assert (pool.held, pool.available) == (0, blocks)
    pool.clear()
    assert sorted(pool._free) == list(range(blocks))
