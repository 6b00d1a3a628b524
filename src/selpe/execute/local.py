"""Everything in this process, or over HTTP from it: the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.models.base import ChatModel
    from selpe.models.encoders.base import Encoder, PublicEncoder
    from selpe.models.store.download import Progress


class LocalExecutor:
    """Opens models and encoders here."""

    def __init__(self, config: RunConfig, progress: Progress | None = None) -> None:
        self._config = config
        self._progress = progress
        self._opened: list[ChatModel] = []

    def model(self, llm: str) -> ChatModel:
        """The model that a specification names."""
        from selpe.models.open import open_model

        model = open_model(llm, progress=self._progress)
        self._opened.append(model)
        return model

    def encoder(self) -> Encoder:
        """The encoder of the settings."""
        from selpe.models.open import open_encoder

        return open_encoder(self._config.encoder, progress=self._progress)

    def public_encoder(self, encoder: Encoder) -> PublicEncoder | None:
        """None: public texts are encoded like private ones."""
        return None

    def close(self) -> None:
        """Closes all models."""
        while self._opened:
            self._opened.pop().close()
