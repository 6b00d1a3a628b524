"""The paper's text view `roberta`: a Hugging Face sequence classifier, fine-tuned on records as plain text.

Extra `[hf]`. Any encoder with a classification head will do; the default is the paper's roberta-base.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from selpe.errors import ModelError
from selpe.evaluation.views.base import Chances, Records, Tick, View, within
from selpe.evaluation.words import unlabelled
from selpe.schema import Schema

DEFAULT = "roberta-base"
_OWNER = "FacebookAI"  # of RoBERTa on the hub
_INSTALL = 'Install them: pip install "selpe[hf]"'
_SPECIAL = 2  # positions that RoBERTa keeps for itself


@dataclass(frozen=True, slots=True)
class FineTuning:
    """How a classifier is trained. Small sets are repeated more often: the head starts from random weights."""

    epochs: int = 3
    least_steps: int = 400
    batch: int = 16
    rate: float = 2e-5
    warmup: float = 0.06
    decay: float = 0.01
    length: int = 256  # tokens of a record that are read
    device: str | None = None

    def steps(self, rows: int) -> int:
        """Updates for a training set of so many rows."""
        return max(self.least_steps, self.epochs * math.ceil(rows / self.batch))

    def pace(self, step: int, steps: int) -> float:
        """The share of the learning rate at a step: up in a straight line, then down to nothing."""
        rise = max(1, math.ceil(self.warmup * steps))
        return (step + 1) / rise if step < rise else (steps - step) / max(1, steps - rise)


class RobertaView(View):
    """A classifier from a name on the hub, a folder, or a configuration with its tokenizer (random weights)."""

    kind = "text"
    remote = None  # weights may come from a hub, but records stay here
    seeded = True  # the head's first weights, the order of records and dropout are drawn

    def __init__(
        self,
        schema: Schema,
        source: str | Path = DEFAULT,
        *,
        name: str = "roberta",
        tuning: FineTuning | None = None,
        config: Any = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(schema)
        self.name = name
        self._source = source
        self._tuning = tuning or FineTuning()
        self._config = config
        self._tokenizer = tokenizer
        model = f"{source}" if config is None else "a model with random weights"
        self.note = f"view '{name}' is {model}, fine-tuned"

    def require(self) -> None:
        """Raises ModelError where the libraries or the weights are not available."""
        _libraries()
        self._loaded(2)

    def chances(
        self, train: Records, labels: Sequence[str], test: Records, *, seeds: Sequence[int], tick: Tick
    ) -> Iterator[Chances]:
        """p̂ of every test record for each seed."""
        torch, _ = _libraries()
        classes = sorted(set(labels))
        place = {label: number for number, label in enumerate(classes)}
        targets = [place[label] for label in labels]
        known, asked = unlabelled(self._schema, train), unlabelled(self._schema, test)
        for number, seed in enumerate(seeds):
            with torch.random.fork_rng():  # dropout draws from the process's generator, which is not ours to move
                torch.manual_seed(seed)
                tokenizer, model = self._loaded(len(classes))
                self._fit(model, tokenizer, known, targets, partial(within, tick, number, len(seeds)))
                yield self._asked(model, tokenizer, asked)

    def _loaded(self, classes: int) -> tuple[Any, Any]:
        """The tokenizer, and a model with a fresh head."""
        torch, transformers = _libraries()
        with _quiet(transformers):
            tokenizer = self._tokenizer or self._pretrained(transformers.AutoTokenizer)
            if self._config is None:
                model = self._pretrained(transformers.AutoModelForSequenceClassification, num_labels=classes)
            else:
                self._config.num_labels = classes
                model = transformers.AutoModelForSequenceClassification.from_config(self._config)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
        return tokenizer, model.to(self._tuning.device or _best_device(torch))

    def _pretrained(self, kind: Any, **options: Any) -> Any:
        from selpe.models.store.store import ModelStore

        place = ModelStore().snapshot(str(self._source), owner=_OWNER)
        try:
            return kind.from_pretrained(place, local_files_only=True, **options)
        except (OSError, ValueError, ImportError, KeyError) as problem:
            raise ModelError(
                f"transformers cannot load this classifier ({type(problem).__name__})",
                where=str(self._source),
                hint="Its weights come from the Hugging Face hub at first use. Without a network, fetch the model's "
                "folder elsewhere and name it: roberta:<folder>; or use the view minilm.",
            ) from problem

    def _fit(self, model: Any, tokenizer: Any, texts: Sequence[str], targets: Sequence[int], tick: Tick) -> None:
        import torch

        tuning, steps = self._tuning, self._tuning.steps(len(texts))
        optimizer = torch.optim.AdamW(model.parameters(), lr=tuning.rate, weight_decay=tuning.decay)
        model.train()
        order: list[int] = []
        for step in range(steps):
            if not order:
                order = torch.randperm(len(texts)).tolist()
            batch, order = order[: tuning.batch], order[tuning.batch :]
            for group in optimizer.param_groups:
                group["lr"] = tuning.rate * tuning.pace(step, steps)
            wanted = torch.tensor([targets[i] for i in batch], device=model.device)
            loss = torch.nn.functional.cross_entropy(self._logits(model, tokenizer, [texts[i] for i in batch]), wanted)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            tick((step + 1) / steps)

    def _asked(self, model: Any, tokenizer: Any, texts: Sequence[str]) -> Chances:
        import torch

        model.eval()
        size = 4 * self._tuning.batch
        with torch.inference_mode():
            parts = [
                torch.softmax(self._logits(model, tokenizer, texts[start : start + size]).double(), dim=1).cpu().numpy()
                for start in range(0, len(texts), size)
            ]
        return np.concatenate(parts)

    def _logits(self, model: Any, tokenizer: Any, texts: Sequence[str]) -> Any:
        most = min(self._tuning.length, tokenizer.model_max_length, model.config.max_position_embeddings - _SPECIAL)
        tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=most, return_tensors="pt")
        return model(**tokens.to(model.device)).logits.float()


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without its warning that the head is new, which is the point, and without its bars."""
    level = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        if bars:
            transformers.logging.enable_progress_bar()


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as problem:
        raise ModelError("the packages torch and transformers are not installed", hint=_INSTALL) from problem
    return torch, transformers


def _best_device(torch: Any) -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
