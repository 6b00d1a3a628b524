"""Models and encoders, opened in one place for the command line, Python, the server and experiments.

An executor opens what a run needs, in this process or on many machines. Whatever it is, private rows and the encoding
of private text stay in this process: `encoder` is always local to it, and only `public_encoder` may send texts
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from selpe.models.names import require_listening
from selpe.models.open import open_encoder, open_model

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.models.base import ChatModel
    from selpe.models.encoders.base import Encoder, PublicEncoder
    from selpe.models.store.download import Progress

__all__ = ["Executor", "LocalExecutor", "Session", "executing", "open_encoder", "open_model", "opened"]

_CLUSTER = "selpe.execute.cluster"  # loaded by its name: the inside imports nothing of the outside


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


class LocalExecutor:
    """Opens models and encoders in this process, or over HTTP from it: the default."""

    def __init__(self, config: RunConfig, progress: Progress | None = None) -> None:
        self._config = config
        self._progress = progress
        self._opened: list[ChatModel] = []

    def model(self, llm: str) -> ChatModel:
        """The model that a specification names."""
        require_listening(llm)
        model = open_model(llm, progress=self._progress)
        self._opened.append(model)
        return model

    def encoder(self) -> Encoder:
        """The encoder of the settings."""
        return open_encoder(self._config.encoder, progress=self._progress)

    def public_encoder(self, encoder: Encoder) -> PublicEncoder | None:
        """None: public texts are encoded like private ones."""
        return None

    def close(self) -> None:
        """Closes all models."""
        while self._opened:
            self._opened.pop().close()


@dataclass(frozen=True, slots=True)
class Session:
    """What a run works with: its model, further models of methods that use several, and its encoders."""

    model: ChatModel
    models: tuple[ChatModel, ...]
    encoder: Encoder
    public_encoder: PublicEncoder | None = None

    def parts(self) -> dict[str, Any]:
        """The parts by the names under which `Run.execute` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@contextmanager
def executing(config: RunConfig, progress: Progress | None = None) -> Iterator[Executor]:
    """The executor that the settings ask for, closed at the end."""
    executor: Executor
    if config.execute == "ray":
        executor = import_module(_CLUSTER).RayExecutor(config, progress)
    else:
        executor = LocalExecutor(config, progress)
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def opened(
    config: RunConfig,
    *,
    progress: Progress | None = None,
    model: ChatModel | None = None,
    encoder: Encoder | None = None,
) -> Iterator[Session]:
    """The session of these settings. A model or encoder that the caller gives stands in, and is not closed here."""
    given = config if model is None else config.model_copy(update={"execute": "local"})
    with executing(given, progress) as executor:
        own, *others = config.llms
        first = model or executor.model(own)
        further = tuple(executor.model(llm) for llm in others)
        public = None if encoder is not None else executor.public_encoder
        encoding = encoder or executor.encoder()
        yield Session(first, further, encoding, public(encoding) if public else None)
