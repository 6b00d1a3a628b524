"""A model and an encoder that are spread over workers; a run uses them like any others.

The model is a `ChatModel` like any other. The encoder is a `PublicEncoder` only: it has no `encode`, so nothing that
sees private rows can be given it, and private text is encoded where the rows are.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from selpe.errors import ConfigError, ModelError
from selpe.execute.dispatch import CANCELLED, Dispatch
from selpe.execute.worker import Encoded, Reply
from selpe.models.base import Answer, Capabilities, Follow, Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from selpe.execute.workers import Crew

CHUNK = 256  # texts that are encoded in one call; the same for every crew, so that vectors do not depend on it


class SpreadModel:
    """A ChatModel whose requests are answered by a crew of workers that hold the same model.

    Serves one stream at a time. The order of answers is the workers'; what is answered is the engine's.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._facts = crew.facts()
        self._given_up: dict[bytes, ModelError] = {}
        self._counted: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the model that the workers hold: the same as without them."""
        return self._facts.model

    def capabilities(self) -> Capabilities:
        """What the workers' engine can do; `parallel` is that of all of them together."""
        return replace(self._facts.capabilities, parallel=self._crew.parallel())

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        """Answers as they come, each request's exactly once, whichever workers are lost on the way.

        A request that ends its workers is given up with an error that may be tried again, and remembered:
        asked again as it is, it is answered by the same error, and no further worker is risked.
        """
        refused: deque[Answer] = deque()

        def wanted(more: Iterable[Request]) -> Iterator[Request]:
            for request in more:
                error = self._given_up.get(_key(request)) if self._given_up else None
                if error is None:
                    yield request
                else:
                    refused.append(Answer(request, "", "error", error=error))

        dispatch = Dispatch(self._crew, "answer", wanted(requests), payload=Request.anonymous, cancel=cancel)

        def handed_on(answer: Answer) -> Iterator[Answer]:
            if follow is not None:
                dispatch.add(list(wanted(follow(answer))))
            yield answer
            while refused:
                yield from handed_on(refused.popleft())

        try:
            while True:
                for request, outcome in dispatch.outcomes():
                    yield from handed_on(self._answer(request, outcome))
                if not refused:
                    return
                yield from handed_on(refused.popleft())
        finally:
            dispatch.abandon()

    def count_tokens(self, text: str) -> int:
        """As the workers' model counts."""
        if text not in self._counted:
            dispatch = Dispatch(self._crew, "count", [text], payload=str)
            ((_, counted),) = dispatch.outcomes()
            if isinstance(counted, ModelError):
                raise counted
            self._counted[text] = int(counted)
        return self._counted[text]

    def close(self) -> None:
        """Stops the workers."""
        self._crew.close()

    def _answer(self, request: Request, outcome: object) -> Answer:
        if isinstance(outcome, Reply):
            return outcome.to(request)
        if outcome is CANCELLED:
            return Answer(request, "", "cancelled")
        error = outcome if isinstance(outcome, ModelError) else ModelError("a worker gave no answer", retryable=True)
        self._given_up[_key(request)] = error
        return Answer(request, "", "error", error=error)


@dataclass(frozen=True, slots=True)
class _Chunk:
    start: int
    texts: tuple[str, ...]


class SpreadEncoder:
    """A PublicEncoder whose texts are encoded by a crew of workers. Private text must never get here."""

    def __init__(self, crew: Crew, *, name: str, dimension: int) -> None:
        self._crew = crew
        self._name = name
        self._dimension = dimension

    def encode_public(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per public text, in order."""
        import numpy as np

        chunks = [_Chunk(at, tuple(texts[at : at + CHUNK])) for at in range(0, len(texts), CHUNK)]
        rows = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for chunk, outcome in Dispatch(self._crew, "encode", chunks, payload=lambda one: one.texts).outcomes():
            if isinstance(outcome, ModelError):
                raise outcome
            self._check(outcome)
            rows[chunk.start : chunk.start + len(chunk.texts)] = outcome.vectors
        return rows

    def _check(self, outcome: Encoded) -> None:
        if outcome.encoder != self._name or outcome.vectors.shape[1] != self._dimension:
            raise ConfigError(
                f"a worker encodes with {outcome.encoder}, and this is {self._name}",
                hint="install the same on all nodes, or set ray.encode: false",
            )


def _key(request: Request) -> bytes:
    return hashlib.sha256(repr(request.anonymous()).encode("utf-8", "surrogatepass")).digest()
