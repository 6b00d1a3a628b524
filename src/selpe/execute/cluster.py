"""Models and public encoding on a cluster, everything private here."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from selpe.execute.ray import connected, crew_of, order_of
from selpe.execute.spread import SpreadEncoder, SpreadModel
from selpe.models.open import is_url, open_encoder

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.execute.workers import Crew
    from selpe.models.base import ChatModel
    from selpe.models.encoders.base import Encoder, PublicEncoder
    from selpe.models.store.download import Progress


class RayExecutor:
    """Opens models on workers of a Ray cluster, and encoders here: this is where private text is encoded."""

    def __init__(self, config: RunConfig, progress: Progress | None = None) -> None:
        self._config = config
        self._progress = progress
        self._stack = ExitStack()
        self._crews: list[Crew] = []
        self._ray: Any = self._stack.enter_context(connected(config.ray, crews=len(config.llms)))

    def model(self, llm: str) -> ChatModel:
        """The model that a specification names, held by as many workers as the settings ask for."""
        crew = crew_of(self._ray, order_of(llm, self._config.encoder, self._config.ray), self._config.ray)
        self._stack.callback(crew.close)
        model = SpreadModel(crew)
        self._crews.append(crew)
        return model

    def encoder(self) -> Encoder:
        """The encoder of the settings, in this process."""
        return open_encoder(self._config.encoder, progress=self._progress)

    def public_encoder(self, encoder: Encoder) -> PublicEncoder | None:
        """The workers as an encoder of public text; None where it is encoded here, or by a server anyway."""
        if not self._config.ray.encode or not self._crews or is_url(self._config.encoder):
            return None
        return SpreadEncoder(self._crews[0], name=encoder.name, dimension=encoder.dimension)

    def close(self) -> None:
        """Stops all workers and disconnects from the cluster."""
        self._stack.close()
