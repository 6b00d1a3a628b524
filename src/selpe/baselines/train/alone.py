"""One record on each core: computed alone, by one thread, with no more than a few results waiting.

What a batch would gain on a processor this gains, too, cores need not wait for each other, and no digit of a record's
result depends on the records beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from selpe.models.machine import this_machine

Seen = TypeVar("Seen")
Found = TypeVar("Found")


def workers_for(model: Any) -> int:
    """How many records a model can do at once: one a core, or one where the model is not on the processor."""
    on_processor = all(parameter.device.type == "cpu" for parameter in model.parameters())
    return max(1, round(this_machine().usable_cores)) if on_processor else 1


def each_alone(torch: Any, work: Callable[[Seen], Found], seen: Iterable[Seen], workers: int) -> Iterator[Found]:
    """The results of `work`, in order. `seen` is read by the caller's thread, one at a time."""
    if workers == 1:
        yield from (work(one) for one in seen)
        return
    before = torch.get_num_threads()
    waiting: deque[Future[Found]] = deque()
    try:
        with ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1)) as pool:
            for one in seen:
                waiting.append(pool.submit(work, one))
                if len(waiting) > workers:  # no more than this in memory: they can be large
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(before)
