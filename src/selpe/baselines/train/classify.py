"""A classifier on records as text: a language model or encoder, the mean of its last layer, and a linear head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.baselines.train.alone import each_alone, workers_for
from selpe.baselines.train.weights import Tuning, Weights, adapted, libraries, seeded
from selpe.errors import ConfigError
from selpe.schema import Record, Schema


class RecordClassifier:
    """Scores every class of a schema for a record, from its other fields."""

    def __init__(
        self,
        weights: Weights,
        schema: Schema,
        *,
        tuning: Tuning = "lora",
        rank: int = 16,
        alpha: int = 32,
        layers: int | None = None,
        longest: int = 256,
        seed: int = 0,
    ) -> None:
        if schema.label is None:
            raise ConfigError("a classifier needs a schema with a label", where=schema.name)
        self._torch = torch = libraries()[0]
        self._schema, self._longest = schema, longest
        inner = weights.with_model(weights.model.base_model)  # without the layer that writes words
        self._weights = adapted(inner, tuning=tuning, rank=rank, alpha=alpha, layers=layers, seed=seed)
        width = int(inner.model.config.hidden_size)
        with seeded(torch, seed):
            head = torch.nn.Linear(width, len(schema.labels)).to(weights.device)
        self.module = torch.nn.ModuleDict({"body": self._weights.model, "head": head}).eval()

    def read(self, record: Record) -> tuple[list[int], int]:
        """A record's tokens without its class, and the place of its class among the schema's."""
        return self._tokens(record), self._schema.labels.index(self._schema.label_of(record) or "")

    def loss(self, seen: tuple[list[int], int]) -> Any:
        """The cross-entropy of the class."""
        tokens, place = seen
        answer = self._torch.tensor([place], device=self._weights.device)
        return self._torch.nn.functional.cross_entropy(self._logits(tokens)[None], answer)

    def scores(self, records: Sequence[Record]) -> NDArray[np.float64]:
        """The probability of each class of the schema for each record; shape (records, classes)."""
        tokens = [self._tokens(record) for record in records]
        rows = list(each_alone(self._torch, self._scored, tokens, workers_for(self.module)))
        return np.array(rows, dtype=np.float64).reshape(len(records), len(self._schema.labels))

    def predict(self, records: Sequence[Record]) -> list[str]:
        """The most probable class of each record."""
        return [self._schema.labels[int(place)] for place in self.scores(records).argmax(axis=1)]

    def _scored(self, tokens: list[int]) -> NDArray[np.float64]:
        with self._torch.inference_mode():
            chances: NDArray[np.float64] = self._torch.softmax(self._logits(tokens).double(), -1).cpu().numpy()
        return chances

    def _tokens(self, record: Record) -> list[int]:
        text = self._schema.linearise(record, without=[str(self._schema.label)])
        return list(self._weights.tokenizer(text)["input_ids"])[: self._longest] or [0]

    def _logits(self, tokens: list[int]) -> Any:
        torch = self._torch
        states = self.module["body"](input_ids=torch.tensor([tokens], device=self._weights.device)).last_hidden_state
        mean = states[0].float().mean(dim=0)
        # Layers of a language model differ in scale by orders of magnitude; the head and the clipping should not care.
        return self.module["head"](torch.nn.functional.layer_norm(mean, mean.shape))
