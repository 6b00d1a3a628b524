"""Texts from a tuned model: each is a function of its seed, and is kept on disk as soon as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from selpe.baselines.reading import Sample, read
from selpe.baselines.train.weights import Weights, merged
from selpe.errors import StoppedError
from selpe.events import Answered, PoolReady, StageStarted
from selpe.models.answers import AnswerStore, RememberingModel
from selpe.models.base import Place, Request
from selpe.models.hf import HFModel
from selpe.run.methods import Parts
from selpe.schema import Record


@dataclass(frozen=True, slots=True)
class TextTaste:
    """How texts are drawn: temperature, cuts, and the most tokens of one."""

    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.9
    tokens: int = 256
    batch: int = 16


@dataclass(frozen=True, slots=True)
class WantedText:
    """One text to write: for a class, from a condition."""

    label: str
    prefix: str
    seed: int


def write(parts: Parts, weights: Weights, state: str, wanted: Sequence[WantedText], taste: TextTaste) -> list[Sample]:
    """A sample for each wish, in order, condition included. By `state`, the model's hash, answers are known again."""
    plain = merged(weights)
    name = f"{weights.name}@{state[:16] or 'untrained'}:{taste.top_k}"
    model = HFModel.around(
        plain.model, plain.tokenizer, name=name, batch=taste.batch, device=plain.device, top_k=taste.top_k
    )
    parts.emit(StageStarted("texts", 0, len(wanted)))
    requests = (
        Request(prompt=one.prefix, temperature=taste.temperature, top_p=taste.top_p, max_tokens=taste.tokens,
                seed=one.seed, place=Place("II", place))
        for place, one in enumerate(wanted)
    )  # fmt: skip
    texts = [""] * len(wanted)
    with closing(AnswerStore(parts.work.tuned)) as store:
        for answer in RememberingModel(model, store).generate(requests, cancel=parts.cancel):
            if answer.error is not None:
                raise answer.error
            if answer.finish == "cancelled":
                continue
            texts[answer.place.number] = answer.text
            parts.emit(Answered("II", answer.prompt_tokens, answer.completion_tokens, answer.replayed))
    if parts.cancel is not None and parts.cancel.is_set():
        raise StoppedError("stopped as asked; every finished text is kept")
    samples = [Sample(one.label, one.prefix + text.strip()) for one, text in zip(wanted, texts, strict=True)]
    parts.emit(PoolReady("texts", 0, len(samples), {}, {}, _readable(parts, samples)))
    return samples


def _readable(parts: Parts, samples: Sequence[Sample]) -> tuple[Record, ...]:
    """A few of the samples as records, for those who look on."""
    few = (read(parts.schema, sample) for sample in samples[:: max(1, len(samples) // 4)][:4])
    return tuple(output.record for output in few if output.released and output.record is not None)
