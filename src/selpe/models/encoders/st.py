"""Any sentence-transformers model as an encoder, for machines that have that package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.encoders.base import EncoderBase


class SentenceTransformersEncoder(EncoderBase):
    """Unit vectors by a model that sentence-transformers loads: a name on the hub, or a folder."""

    def __init__(self, model: str, *, device: str | None = None, batch: int = 64) -> None:
        try:
            library = import_module("sentence_transformers")
        except ImportError as problem:
            raise ModelError(
                "the package sentence-transformers is not installed",
                hint="Install it: pip install sentence-transformers, or use the encoder minilm.",
            ) from problem
        from selpe.models.store.store import ModelStore

        place = ModelStore().snapshot(model, owner="sentence-transformers")
        try:
            self._model: Any = library.SentenceTransformer(place, device=device, local_files_only=True)
        except (OSError, ValueError) as problem:
            raise ModelError(f"sentence-transformers cannot load '{model}'", hint="Check the name.") from problem
        self._batch = batch
        dimension = int(self._model.get_sentence_embedding_dimension())
        # Not row by row: padding follows the longest text of a batch.
        super().__init__(f"st:{model}", dimension, remote=None, rowwise=False)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text, in order."""
        if not texts:
            return np.zeros((0, self._dimension), np.float32)
        rows = self._model.encode(
            list(texts), batch_size=self._batch, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(rows, np.float32)
