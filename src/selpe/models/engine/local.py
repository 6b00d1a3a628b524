"""The embedded engine: a GGUF model on this machine's processor, many requests at a time.

    model = LocalModel(gguf, prepared_folder)
    for answer in model.generate(requests): …

The answer to a request depends on the request alone: not on its neighbours, on what was asked before, or on how
many requests run at a time. (Measured with the AVX-512 and AVX2 kernels of the pinned OpenVINO; others may round a
single token differently. The same batch on the same machine always gives the same bytes.)
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from selpe.errors import ModelError
from selpe.models.base import Answer, Capabilities, Computed, Follow, Request
from selpe.models.engine.paged import PagedBackend
from selpe.models.engine.prepare import Progress, prepare
from selpe.models.engine.runtime import Precision, openvino_genai
from selpe.models.engine.schedule import Scheduler
from selpe.models.engine.vocabulary import GenAIVocabulary
from selpe.models.machine import this_machine

MEBIBYTE = 2**20

# Requests in a batch. Wider ones gain a few percent with AVX-512; without it, turns of more than 80 rows are divided.
WIDE, NARROW = 96, 64


class LocalModel:
    """A ChatModel in this process. Its memory is bounded by `memory` bytes of KV blocks beside the weights."""

    def __init__(
        self,
        gguf: Path,
        folder: Path,
        *,
        parallel: int | None = None,
        threads: int | None = None,
        memory: int = 1024 * MEBIBYTE,
        precision: Precision = "fast",
        progress: Progress | None = None,
    ) -> None:
        if parallel is None:
            parallel = WIDE if "avx512f" in this_machine().instruction_sets else NARROW
        if parallel < 1:
            raise ValueError(f"parallel must be at least 1. Got {parallel}")
        openvino_genai()  # a machine without it hears of it now, and not after minutes of preparing
        self._prepared = prepare(gguf, folder, progress)
        self._backend = PagedBackend(self._prepared.graph, memory=memory, threads=threads, precision=precision)
        self._vocabulary = GenAIVocabulary(
            self._prepared.folder,
            size=self._prepared.vocabulary_size,
            special=self._prepared.special,
            ends=self._prepared.ends,
        )
        self._scheduler: Scheduler | None = Scheduler(
            self._backend,
            self._vocabulary,
            parallel=parallel,
            context_length=self._prepared.context_length,
        )
        self._name = f"local:{gguf.stem}"
        self._busy = threading.Lock()
        self._busy_thread: int | None = None

    @property
    def name(self) -> str:
        """The engine and the file's name."""
        return self._name

    @property
    def blocks_held(self) -> int:
        """KV blocks that running requests hold now."""
        return self._open().pool.held

    @property
    def computed(self) -> Computed:
        """Tokens of prompts and of answers that were computed so far."""
        scheduler = self._open()
        return Computed(scheduler.read, scheduler.written)

    def capabilities(self) -> Capabilities:
        """What this model can do."""
        scheduler = self._open()
        return Capabilities(
            grammar=True,
            steps=True,
            json_schema=True,
            seed=True,
            prefix_cache=True,
            chat_template=self._vocabulary.has_chat_template,
            completion=True,
            context_length=scheduler.context_length,
            parallel=scheduler.parallel,
        )

    def generate(
        self,
        requests: Iterable[Request],
        *,
        follow: Follow | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[Answer]:
        """Answers as they finish. Closing the iterator stops the work and frees its blocks.

        One stream runs at a time: a second thread waits for its turn; a second stream in the same thread would
        wait for itself and is refused.
        """
        scheduler = self._open()
        if self._busy_thread == threading.get_ident():
            raise ModelError(
                "the model is already generating in this thread",
                hint="Finish or close the first stream, or return further requests from `follow`.",
            )
        with self._busy:
            self._busy_thread = threading.get_ident()
            try:
                yield from scheduler.serve(requests, follow, cancel)
            finally:
                self._busy_thread = None

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text."""
        return len(self._vocabulary.encode(text))

    def close(self) -> None:
        """Frees the weights and the blocks."""
        self._scheduler = None
        self._backend.close()

    def __enter__(self) -> LocalModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Scheduler:
        if self._scheduler is None:
            raise ModelError("the model has been closed")
        return self._scheduler
