"""A language model that is tuned on records and then writes: its training, and its texts.

Each text is a function of its seed, and is kept on disk as soon as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

from selpe.baselines.looking import Looks
from selpe.baselines.reading import Sample, some_readable
from selpe.baselines.train.causal import CausalTask
from selpe.baselines.train.course import Course
from selpe.baselines.train.learner import TorchLearner
from selpe.baselines.train.outlook import context_of
from selpe.baselines.train.practice import practise
from selpe.baselines.train.texts import Example
from selpe.baselines.train.weights import Load, Weights, adapted, merged
from selpe.config.methods import CtclSettings, DpGenSettings
from selpe.errors import StoppedError
from selpe.events import Answered, PoolReady, StageStarted
from selpe.models.answers import AnswerStore, RememberingModel
from selpe.models.base import Place, Request
from selpe.models.hf import HFModel
from selpe.run.methods import Parts
from selpe.schema import Record


@dataclass(frozen=True, slots=True)
class WantedText:
    """One text to write: for a class, from a condition."""

    label: str
    prefix: str
    seed: int


@dataclass(frozen=True)
class TunedModel:
    """The model that a run tunes with its own settings; `load` opens it when it is first needed."""

    parts: Parts
    own: CtclSettings | DpGenSettings
    load: Load

    @cached_property
    def weights(self) -> Weights:
        """The model, made ready for training."""
        own, seed = self.own, self.parts.config.seed
        return adapted(
            self.load(own.model), tuning=own.tuning, rank=own.rank, alpha=own.alpha, layers=own.layers, seed=seed
        )

    def course(
        self,
        looks: Looks,
        say: Callable[[Record], Example],
        public: Sequence[Record],
        *context: str,
        conditional: bool = False,
        remote: str | None = None,
    ) -> Course:
        """Its training on records as `say` puts them, after some practice on public ones."""
        parts, own = self.parts, self.own

        def begin() -> TorchLearner:
            task = CausalTask(self.weights, say, own.tokens, conditional)
            model, units, rate = self.weights.model, looks.plan.units, own.learning_rate
            return TorchLearner(model, task, units=units, rate=rate, folder=parts.work.training, remote=remote)

        def warm(learner: TorchLearner) -> None:
            seed, cancel = parts.config.seed, parts.cancel
            practise(learner, public, steps=own.public_steps, rate=own.public_rate, seed=seed, cancel=cancel)

        return Course(looks, begin, own.clip, context_of(parts, own, *context), parts.cancel, warm)

    def write(self, state: str, wanted: Sequence[WantedText]) -> list[Sample]:
        """A sample for each wish, in order, condition included. By `state`, a hash, answers are known again."""
        parts, taste, plain = self.parts, self.own, merged(self.weights)
        name = f"{plain.name}@{state[:16] or 'untrained'}:{taste.top_k}"
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
                parts.emit(Answered.of(answer, "II"))
        if parts.cancel is not None and parts.cancel.is_set():
            raise StoppedError("stopped as asked; every finished text is kept")
        samples = [Sample(one.label, one.prefix + text.strip()) for one, text in zip(wanted, texts, strict=True)]
        parts.emit(PoolReady("texts", 0, len(samples), {}, {}, some_readable(parts.schema, samples)))
        return samples
