"""KV blocks: who holds which, which prompt prefixes they already contain, and who may start.

Memory is a fixed number of blocks of `block_size` tokens. A request leases blocks for its whole life before it
starts, so that whatever has started can finish. Blocks that hold part of some prompt stay findable after their
request has gone, until the memory is wanted: the next request with the same beginning takes them as they are
and computes only the rest. Where prompts part in the middle of a block, the block is copied up to that point.
Blocks that hold what a model wrote are of use to the one request that goes on from it, and soon: few are kept.

A prefix is identified by the exact tokens it holds and by the identity of the block before it, never by a hash
alone: two different prefixes cannot be taken for each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

# A block can lend its beginning to a prompt that parts from it; beginnings are indexed at multiples of this.
GRAIN = 4

# Blocks with written tokens (numbers below zero) that are kept while nobody holds them.
MOST_WRITTEN = 128

_ROOT = 0
_Key = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What a block holds: `tokens`, in the place that follows the prefix `parent`; together they are `prefix`."""

    parent: int
    tokens: tuple[int, ...]
    prefix: int

    def beginnings(self) -> list[_Key]:
        ends = range(GRAIN, len(self.tokens) + 1, GRAIN)
        return [(self.parent, self.tokens[:end]) for end in ends]


@dataclass(slots=True)
class Lease:
    """The blocks of one running request. `table[i]` holds its tokens i·block_size … (i+1)·block_size − 1."""

    table: list[int]
    cached: int
    copy: tuple[int, int] | None
    promised: int
    prefix: int
    known: int
    closed: bool = field(default=False)


class BlockPool:
    """A fixed set of blocks, handed out by lease and remembered by content."""

    def __init__(self, blocks: int, block_size: int, *, most_written: int = MOST_WRITTEN) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self._free = list(range(blocks - 1, -1, -1))
        self._holders = [0] * blocks
        self._idle: OrderedDict[int, None] = OrderedDict()  # findable, held by nobody; the oldest goes first
        self._idle_written: OrderedDict[int, None] = OrderedDict()  # those of them that hold written tokens
        self._most_written = most_written
        self._stretches: dict[int, _Stretch] = {}
        self._full: dict[_Key, int] = {}
        self._beginnings: dict[_Key, int] = {}
        self._promised = 0
        self._last_prefix = _ROOT

    @property
    def held(self) -> int:
        """Blocks that running requests hold."""
        return self.blocks - len(self._free) - len(self._idle)

    @property
    def kept(self) -> int:
        """Blocks that nobody holds and that are kept for what they contain."""
        return len(self._idle)

    @property
    def available(self) -> int:
        """Blocks that a new request could still be promised."""
        return len(self._free) + len(self._idle) - self._promised

    def known(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens lie in blocks computed before, counted in whole blocks."""
        return len(self._match(tokens)[0]) * self.block_size

    def open(self, tokens: Sequence[int], *, total: int, reuse: int, never: int = -1) -> Lease | None:
        """A lease for a request that will hold up to `total` tokens, or None while there is no room for it.

        At most the first `reuse` tokens are taken from blocks computed before, and `never` so many. The caller must
        carry out `lease.copy` (source, target) before the next step.
        """
        shared, prefix = self._match(tokens[:reuse])
        if shared and len(shared) * self.block_size == never:
            shared, prefix = self._match(tokens[: never - 1])
        wanted = -(-total // self.block_size) - len(shared)
        woken = sum(1 for block in shared if not self._holders[block])
        if wanted > self.available - woken:
            return None
        for block in shared:
            self._hold(block)
        lease = Lease(list(shared), len(shared) * self.block_size, None, wanted, prefix, len(shared))
        self._promised += wanted
        self._borrow_beginning(lease, tokens[lease.cached : reuse], never)
        return lease

    def grow(self, lease: Lease, length: int) -> None:
        """Makes room for `length` tokens in all, out of what was promised."""
        while len(lease.table) * self.block_size < length:
            lease.table.append(self._take(lease))

    def remember(self, lease: Lease, tokens: Sequence[int], length: int) -> None:
        """Makes the first `length` tokens of the request findable. They must have been computed."""
        size = self.block_size
        while (lease.known + 1) * size <= length:
            start = lease.known * size
            lease.prefix = self._index(lease.table[lease.known], lease.prefix, tuple(tokens[start : start + size]))
            lease.known += 1
        rest = tuple(tokens[lease.known * size : length])
        if len(rest) >= GRAIN:
            self._lend(lease.table[lease.known], _Stretch(lease.prefix, rest, _ROOT))

    def close(self, lease: Lease) -> None:
        """Gives back every block of a request, in whatever state it is."""
        if lease.closed:
            return
        lease.closed = True
        self._promised -= lease.promised
        # The end of a prefix is of less use than its beginning, so it becomes idle first and is evicted first.
        for block in reversed(lease.table):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if self._findable(block):
                self._idle[block] = None
                if self._stretches[block].tokens[-1] < 0:
                    self._idle_written[block] = None
            else:
                self._release(block)
        lease.table = []
        while len(self._idle_written) > self._most_written:
            self._release(next(iter(self._idle_written)))

    def clear(self) -> None:
        """Forgets every prefix that no running request holds."""
        while self._idle:
            self._free.append(self._evict())

    def _match(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        shared: list[int] = []
        prefix = _ROOT
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            block = self._full.get((prefix, tuple(tokens[start : start + self.block_size])))
            if block is None:
                break
            shared.append(block)
            prefix = self._stretches[block].prefix
        return shared, prefix

    def _borrow_beginning(self, lease: Lease, rest: Sequence[int], never: int) -> None:
        longest = min(len(rest), self.block_size - 1) // GRAIN * GRAIN
        for end in range(longest, 0, -GRAIN):
            source = self._beginnings.get((lease.prefix, tuple(rest[:end])))
            if source is not None and lease.cached + end != never:
                # Taking a block may evict the source. Its contents stay until the next step, after the copy.
                target = self._take(lease)
                lease.table.append(target)
                lease.copy = (source, target)
                lease.cached += end
                return

    def _index(self, block: int, parent: int, tokens: tuple[int, ...]) -> int:
        key = (parent, tokens)
        known = self._full.get(key)
        if known is not None:
            return self._stretches[known].prefix
        self._last_prefix += 1
        stretch = _Stretch(parent, tokens, self._last_prefix)
        self._lend(block, stretch)
        self._full[key] = block
        return stretch.prefix

    def _lend(self, block: int, stretch: _Stretch) -> None:
        self._forget(block)
        self._stretches[block] = stretch
        former = self._beginnings.get((stretch.parent, stretch.tokens[:GRAIN]))
        for key in stretch.beginnings():
            self._beginnings[key] = block
        if former is not None and former in self._idle and not self._findable(former):
            self._release(former)

    def _findable(self, block: int) -> bool:
        """True when it pays to keep this block: it is full, or it is the newest of those that begin as it does.

        One block for each way to go on is enough; keeping every prompt's last block would fill the memory.
        """
        stretch = self._stretches.get(block)
        return stretch is not None and (
            self._full.get((stretch.parent, stretch.tokens)) == block
            or self._beginnings.get((stretch.parent, stretch.tokens[:GRAIN])) == block
        )

    def _forget(self, block: int) -> None:
        stretch = self._stretches.pop(block, None)
        if stretch is None:
            return
        if self._full.get((stretch.parent, stretch.tokens)) == block:
            del self._full[(stretch.parent, stretch.tokens)]
        for key in stretch.beginnings():
            if self._beginnings.get(key) == block:
                del self._beginnings[key]

    def _release(self, block: int) -> None:
        """Gives a block that nobody holds back, with what it contains."""
        self._wake(block)
        self._forget(block)
        self._free.append(block)

    def _wake(self, block: int) -> None:
        self._idle.pop(block, None)
        self._idle_written.pop(block, None)

    def _hold(self, block: int) -> None:
        self._wake(block)
        self._holders[block] += 1

    def _take(self, lease: Lease) -> int:
        if not lease.promised:
            raise AssertionError("a request asked for more blocks than it was promised")
        lease.promised -= 1
        self._promised -= 1
        block = self._free.pop() if self._free else self._evict()
        self._holders[block] = 1
        return block

    def _evict(self) -> int:
        block = next(iter(self._idle))
        self._wake(block)
        self._forget(block)
        return block
