"""An event loop in a thread of its own, so that asynchronous clients can be used from ordinary code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from selpe.errors import ModelError

T = TypeVar("T")


class BackgroundLoop:
    """A loop that starts with the first task and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def spawn(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """The task's future; cancelling it cancels the task."""
        with self._lock:
            if self._closed:
                task.close()
                raise ModelError("the model has been closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(task, self._loop)

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """The task's result. An interrupt of the caller cancels the task."""
        future = self.spawn(task)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancels what still runs, runs `last`, and ends the thread. A second call does nothing."""
        with self._lock:
            loop, thread = self._loop, self._thread
            closed, self._closed = self._closed, True
        if closed or loop is None or thread is None:
            last.close()
            return
        asyncio.run_coroutine_threadsafe(_wind_up(last), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _wind_up(last: Coroutine[Any, Any, None]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last
