"""The task of a language model: the mean cross-entropy of a record's tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from selpe.baselines.train.texts import Example, tokens_of
from selpe.baselines.train.weights import Weights, libraries
from selpe.schema import Record


@dataclass(frozen=True, slots=True)
class CausalTask:
    """Learning to write texts; `say` makes one of a record. `conditional` leaves the condition out of the loss."""

    weights: Weights
    say: Callable[[Record], Example]
    longest: int
    conditional: bool = False

    def read(self, record: Record) -> tuple[list[int], int]:
        """A record's tokens, and the first of them that counts."""
        tokens, given = tokens_of(self.weights.tokenizer, self.say(record), self.longest)
        return tokens, given if self.conditional else 1

    def loss(self, seen: tuple[list[int], int]) -> Any:
        """The mean cross-entropy of the tokens that count."""
        torch = libraries()[0]
        tokens, first = seen
        row = torch.tensor([tokens], device=self.weights.device)
        logits = self.weights.model(input_ids=row).logits[0, first - 1 : -1]
        return torch.nn.functional.cross_entropy(logits.float(), row[0, first:])
