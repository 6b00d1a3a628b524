"""The loss of a language model on one record: the mean cross-entropy of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selpe.baselines.train.learner import Loss
from selpe.baselines.train.texts import Example, tokens_of
from selpe.baselines.train.weights import Weights, libraries
from selpe.schema import Record


def causal_loss(weights: Weights, say: Callable[[Record], Example], *, longest: int, conditional: bool) -> Loss:
    """A record's loss under the model. `conditional` leaves the condition itself out of it."""
    torch = libraries()[0]

    def loss(record: Record) -> Any:
        tokens, given = tokens_of(weights.tokenizer, say(record), longest)
        row = torch.tensor([tokens], device=weights.device)
        first = given if conditional else 1
        logits = weights.model(input_ids=row).logits[0, first - 1 : -1]
        return torch.nn.functional.cross_entropy(logits.float(), row[0, first:])

    return loss
