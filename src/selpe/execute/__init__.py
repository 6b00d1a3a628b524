"""Where the work is done: in this process, or on many machines.

An executor opens what a run needs. Whatever it is, private rows and the encoding of private text stay in this process:
`encoder` is always local to it, and only `public_encoder` may send texts elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.models.base import ChatModel
    from selpe.models.encoders.base import Encoder, PublicEncoder
    from selpe.models.store.download import Progress


class Executor(Protocol):
    """What opens models and encoders, and closes them all."""

    def model(self, llm: str) -> ChatModel:
        """The model that a specification names."""

    def encoder(self) -> Encoder:
        """The encoder of the settings, in this process."""

    def public_encoder(self, encoder: Encoder) -> PublicEncoder | None:
        """What encodes public texts in the encoder's place, if anything does."""

    def close(self) -> None:
        """Closes what was opened."""


@contextmanager
def executing(config: RunConfig, progress: Progress | None = None) -> Iterator[Executor]:
    """The executor that the settings ask for, closed at the end."""
    executor: Executor
    if config.execute == "ray":
        from selpe.execute.cluster import RayExecutor

        executor = RayExecutor(config, progress)
    else:
        from selpe.execute.local import LocalExecutor

        executor = LocalExecutor(config, progress)
    try:
        yield executor
    finally:
        executor.close()


__all__ = ["Executor", "executing"]
