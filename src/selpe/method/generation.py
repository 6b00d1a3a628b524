"""Two-stage generation (Sec. 4.1): a free-form context first, then a record that realises it under the grammar.

Proposals come in, candidates come out, in the order of the proposals whatever order the model finishes in. What is
invalid, cut short, against a rule or a duplicate is tried again with a fresh seed, within a counted budget; what is
given up is counted by reason. Only public things enter a prompt: schema, guide, and synthetic exemplars.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from selpe.errors import ModelError
from selpe.method.guides import Form, Guide
from selpe.method.phrases import PhraseWriter, prompt_templates, repetitive
from selpe.method.record_forms import Fact, agrees, constraint, parse, written
from selpe.models.base import Answer, ChatModel, Message, Place, Request
from selpe.schema import BooleanField, CategoryField, Record, Schema, Span, TextField, Value

ASKINGS = 3  # of one request whose answer never came
CONTEXT_TOKENS = 120  # at least; a context that is cut short still steers stage II, but its last sentence is copied
ORDERS = 3
_HERE = "\0context\0"  # where the context stands in a rendered prompt; no text contains it
_MOST_KEPT = 4096  # rendered prompts
NO_REPEAT = 6  # tokens in a row that a local model does not write twice in one answer


@dataclass(frozen=True, slots=True)
class Proposal:
    """One candidate to generate: its class, the guide, the exemplars of the round before, and facts that it must have.

    Facts were drawn from measured tables, or are given by whoever asks for the record. They bind while decoding.
    """

    guide: Guide
    seed: int
    label: str | None = None
    positives: tuple[Record, ...] = ()
    negatives: tuple[Record, ...] = ()
    facts: tuple[tuple[str, Fact], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A valid record, with the raw text it came from and how it came about."""

    record: Record
    raw: str
    proposal: Proposal
    context: str = ""
    attempts: int = 1


@dataclass(slots=True)
class Effort:
    """What a generation took: answers, retries and what was given up, by reason."""

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Generation:
    """The outcome: a candidate per proposal, or None where all attempts failed, and the effort."""

    candidates: tuple[Candidate | None, ...]
    effort: Effort


Watcher = Callable[[Answer], None]


class Known(Protocol):
    """Records that there are already, wherever they are kept."""

    def among(self, texts: Sequence[str]) -> set[str]:
        """Those of these texts (`Schema.dumps`) that are known."""


class Generator:
    """Writes records of a schema with a language model.

    `stages=1` leaves the context out (the ablation 'without schema-aware generation'): the record is asked for at
    once. `temperature` is that of stage I, `record_temperature` that of stage II; the guide's `heat` multiplies both.
    """

    def __init__(
        self,
        model: ChatModel,
        schema: Schema,
        *,
        stages: int = 2,
        temperature: float = 1.2,
        record_temperature: float = 0.7,
        min_p: float = 0.05,
        attempts: int = 6,
        constrained: bool = True,
        cancel: threading.Event | None = None,
    ) -> None:
        self._model = model
        self._schema = schema
        self._stages = stages
        self._temperature = temperature
        self._record_temperature = record_temperature
        self._min_p = min_p
        self._attempts = attempts
        self._constrained = constrained
        self._cancel = cancel
        self._constraints: dict[tuple[Form, tuple[tuple[str, Fact], ...]], dict[str, Any]] = {}
        self._rendered_prompts: dict[tuple[Any, ...], str] = {}
        self._prompts = prompt_templates()

    @property
    def stopped(self) -> bool:
        """True once the owner has asked to stop: what is generated then is cut short."""
        return self._cancel is not None and self._cancel.is_set()

    def phrases(self, seed: int, watch: Watcher) -> PhraseWriter:
        """What writes values of one text field with the same model."""
        return PhraseWriter(self._model, self._schema, seed, self._cancel, watch)

    def generate(
        self,
        proposals: Sequence[Proposal],
        *,
        taken: Iterable[Record] = (),
        known: Known | None = None,
        watch: Watcher | None = None,
    ) -> Generation:
        """A candidate for each proposal, all distinct and unlike the records in `taken` and `known`.

        A proposal that fails is tried again at once, so that the model always has many to work on; which attempts it
        needs depends on its own answers alone. Duplicates are told in the order of the proposals, and not as answers
        arrive: the pool is the same whatever the model's timing.
        """
        effort = Effort()
        seen = {self._schema.dumps(record) for record in taken}
        found: list[Candidate | None] = [None] * len(proposals)
        waiting = dict.fromkeys(range(len(proposals)), 0)  # which attempt comes next
        while waiting and not self.stopped:
            tried = self._tried(proposals, waiting, effort, watch)
            waiting = {}
            texts = {n: self._schema.dumps(made.record) for n, made in tried.items() if not isinstance(made, str)}
            if known is not None:
                seen |= known.among(list(texts.values()))
            for number, outcome in sorted(tried.items()):
                if isinstance(outcome, str):
                    effort.given_up[outcome] += 1
                elif texts[number] not in seen:
                    seen.add(texts[number])
                    found[number] = outcome
                elif outcome.attempts < self._attempts:
                    effort.retries["duplicate"] += 1
                    waiting[number] = outcome.attempts
                else:
                    effort.given_up["duplicate"] += 1
        return Generation(tuple(found), effort)

    def _tried(
        self, proposals: Sequence[Proposal], waiting: Mapping[int, int], effort: Effort, watch: Watcher | None
    ) -> dict[int, Candidate | str]:
        """Valid candidates for some proposals, or the reason of their last failure.

        Stage II of one overlaps with stage I of another, and with further attempts of a third. An answer that never
        came is asked for again as it was: a pool must not depend on what went wrong on the way, or a resumed run would
        have other candidates than those that were voted on.
        """
        contexts: dict[int, str] = {}
        outcomes: dict[int, Candidate | str] = dict.fromkeys(waiting, "unanswered")
        lost = _LostAnswers({number: self._attempts - attempt for number, attempt in waiting.items()})

        def follow(answer: Answer) -> Iterable[Request]:
            stage, number, attempt = _handle(answer)
            proposal = proposals[number]
            if stage == "I" and answer.finish in ("stop", "length"):
                contexts[number] = " ".join(answer.text.split())
                return (self._stage_two(proposal, contexts[number], number, attempt),)
            outcomes[number] = outcome = self._candidate(proposal, contexts.get(number, ""), answer, attempt)
            if not isinstance(outcome, str) or outcome == "unanswered":
                return ()
            again = answer.error is not None and lost.ask_again(answer, answer.error)
            if not again and attempt + 1 == self._attempts:
                return ()
            effort.retries[outcome] += 1
            if again:
                return (answer.request,)
            if stage == "II" and self._stages == 2 and attempt % 2 == 0:
                # First another record of the same context: most failures are a slip of stage II, and this is cheaper.
                return (self._stage_two(proposal, contexts[number], number, attempt + 1),)
            return (self._opening_request(proposal, number, attempt + 1),)

        requests = (self._opening_request(proposals[number], number, attempt) for number, attempt in waiting.items())
        for answer in self._model.generate(requests, follow=follow, cancel=self._cancel):
            effort.answers += 1
            effort.prompt_tokens += answer.prompt_tokens
            effort.completion_tokens += answer.completion_tokens
            if answer.error is not None and not answer.error.retryable:
                raise answer.error
            if lost.hopeless is not None:
                break
            if watch is not None:
                watch(answer)
        if lost.hopeless is not None:
            raise lost.hopeless
        return outcomes

    def _candidate(self, proposal: Proposal, context: str, answer: Answer, attempt: int) -> Candidate | str:
        """The candidate that an answer holds, or the reason why it holds none."""
        if answer.finish == "cancelled":
            return "unanswered"
        if answer.finish == "error":
            return "model error"
        record = parse(self._schema, answer.text, proposal.guide.form)
        if record is None:
            return "truncated" if answer.finish == "length" else "not a record"
        record = (
            {name: record.get(name) for name in self._schema.names}
            if not set(record) - set(self._schema.names)
            else record
        )
        if violations := self._schema.check(record):
            return "rule" if all(violation.level == "rule" for violation in violations) else "invalid"
        if proposal.label is not None and self._schema.label_of(record) != proposal.label:
            return "wrong class"
        if any(not agrees(self._schema.field(name), record[name], fact) for name, fact in proposal.facts):
            return "wrong fact"  # of a server that ignores the schema it was given
        if any(repetitive(str(record[name])) for name in self._texts if record[name] is not None):
            return "repetitive"
        raw = answer.text if proposal.guide.form == "json" else self._schema.dumps(record)
        return Candidate(record, raw, proposal, context, attempt + 1)

    # -- requests ------------------------------------------------------------------------------------------------

    def _opening_request(self, proposal: Proposal, number: int, attempt: int) -> Request:
        """What an attempt begins with."""
        return (self._stage_one if self._stages == 2 else self._record_at_once)(proposal, number, attempt)

    def _stage_one(self, proposal: Proposal, number: int, attempt: int) -> Request:
        """Stage I: the latent context t."""
        seed = _seed(proposal.seed, attempt, 1)
        fixed = self._fixed(proposal, attempt)
        stop = ("\n\n", "\n") if proposal.guide.family == "document" else ()
        return self._request(
            "context", proposal, fixed, "", seed,
            max_tokens=self._context_tokens, temperature=self._temperature * proposal.guide.heat, stop=stop,
            place=Place("I", number, attempt),
        )  # fmt: skip

    def _stage_two(self, proposal: Proposal, context: str, number: int, attempt: int) -> Request:
        """Stage II: the record that realises t under the schema."""
        return self._record_request(proposal, context, number, attempt, self._record_temperature)

    def _record_at_once(self, proposal: Proposal, number: int, attempt: int) -> Request:
        """The record at once, without a context."""
        return self._record_request(proposal, "", number, attempt, self._temperature)

    def _record_request(
        self, proposal: Proposal, context: str, number: int, attempt: int, temperature: float
    ) -> Request:
        fixed = self._fixed(proposal, attempt)
        limits = self._limits(fixed, proposal.guide.form) if self._constrained else {}
        return self._request(
            "record", proposal, fixed, context, _seed(proposal.seed, attempt, 2),
            max_tokens=self._record_tokens, temperature=temperature * proposal.guide.heat,
            place=Place("II", number, attempt), **limits,
        )  # fmt: skip

    def _limits(self, fixed: dict[str, Fact], form: Form) -> Mapping[str, Any]:
        """The constraint of a record request, made once for the same fixed values."""
        asked = (form, tuple(fixed.items()))
        if asked not in self._constraints:
            if len(self._constraints) >= _MOST_KEPT:
                self._constraints.clear()
            self._constraints[asked] = constraint(self._schema, fixed, form)
        return self._constraints[asked]

    def _request(
        self, part: str, proposal: Proposal, fixed: dict[str, Fact], context: str, seed: int, **settings: Any
    ) -> Request:
        text = self._prompt(part, proposal, fixed).replace(_HERE, context).strip()
        common: dict[str, Any] = {"seed": seed, "min_p": self._min_p, "no_repeat": NO_REPEAT, **settings}
        common["key"] = str(settings["place"])
        if proposal.guide.family == "chat":
            return Request(messages=(Message("user", text),), **common)
        return Request(prompt=text + "\n", **common)

    def _prompt(self, part: str, proposal: Proposal, fixed: dict[str, Fact]) -> str:
        """A prompt with a place for the context. There are few of them, each for many requests."""
        about = (part, proposal.guide, proposal.label, _order_of(proposal), tuple(fixed.items()))
        key = (*about, repr(proposal.positives), repr(proposal.negatives))
        if key not in self._rendered_prompts:
            if len(self._rendered_prompts) >= _MOST_KEPT:
                self._rendered_prompts.clear()
            self._rendered_prompts[key] = self._rendered(part, proposal, fixed)
        return self._rendered_prompts[key]

    def _rendered(self, part: str, proposal: Proposal, fixed: dict[str, Fact]) -> str:
        guide = proposal.guide
        return self._prompts.get_template(f"{guide.family}_{part}.j2").render(
            description=self._schema.description or self._schema.name,
            fields=self._schema.fields,
            rules=[rule.text for rule in self._schema.rules],
            guide=guide.text,
            shown=self._shown(proposal, part),
            negatives=proposal.negatives,
            context=_HERE,
            staged=self._stages == 2,
            opening=self._opening(fixed),
            ask=self._ask(fixed),
            form="one JSON object" if guide.form == "json" else "'field: value' lines",
            heading=lambda record: self._opening(self._heading(record, proposal)),
            notes=lambda record: self._schema.linearise(record, without=tuple(self._class_of(record))),
            sentence=self._schema.linearise,
            realised=lambda record: written(self._schema, record, guide.form),
        )

    # -- what a prompt shows -------------------------------------------------------------------------------------

    def _shown(self, proposal: Proposal, part: str) -> list[Record]:
        """The schema's own examples as far as the guide wants them, then positive exemplars.

        There are only a few orders per class, so that many requests share a prefix and the engine reads it once; and
        one alone in stage II, which only needs to see the form: what is new there comes from the context.
        """
        form_only = part == "record" and self._stages == 2
        chance = random.Random(f"{proposal.label}:{0 if form_only else _order_of(proposal)}")
        own = [record for record in self._schema.examples if self._schema.label_of(record) == proposal.label]
        other = [record for record in self._schema.examples if self._schema.label_of(record) != proposal.label]
        chance.shuffle(own)
        chance.shuffle(other)
        pool = own + other if proposal.guide.contrast_classes or not own else own
        room = max(0, proposal.guide.shots - len(proposal.positives))
        examples = pool[:room]
        chance.shuffle(examples)
        # What stands last steers a small model most: exemplars that won a private vote stand there.
        shown = [*examples, *proposal.positives]
        return shown[-2:] if form_only else shown

    def _heading(self, record: Record, proposal: Proposal) -> dict[str, Value]:
        """What stands above an example: its class and its values in the fields of the facts, as above the record asked
        for, so that the model sees how a record follows from its heading."""
        return self._class_of(record) | {name: record.get(name) for name, _ in proposal.facts}

    def _class_of(self, record: Record) -> dict[str, Value]:
        return {} if self._schema.label is None else {self._schema.label: record.get(self._schema.label)}

    def _fixed(self, proposal: Proposal, attempt: int) -> dict[str, Fact]:
        """The class, the facts, and where there are none as many seeded values as the guide asks for.

        Seeded values are public randomness over the schema's domain.
        """
        fixed: dict[str, Fact] = dict(proposal.facts)
        if proposal.label is not None and self._schema.label is not None:
            # The class stands first: it is what all prompts of a class have in common.
            fixed = {self._schema.label: self._schema.label_value(proposal.label), **fixed}
        if proposal.facts or not proposal.guide.hints:
            return fixed
        chance = random.Random(_seed(proposal.seed, attempt // 2, 3))  # attempts that may share a context agree
        seedable = self._seedable
        for one in chance.sample(seedable, min(proposal.guide.hints, len(seedable))):
            fixed[one.name] = chance.choice(one.values) if isinstance(one, CategoryField) else chance.random() < 0.5
        return {name: fixed[name] for name in self._schema.names if name in fixed}

    def _opening(self, values: Mapping[str, Fact]) -> str:
        parts = [self._named(name, value) for name, value in values.items()]
        return (", ".join(parts) + ":") if parts else "Entry:"

    def _ask(self, fixed: Mapping[str, Fact]) -> str:
        if not fixed:
            return ""
        return "It must have " + " and ".join(self._named(name, value) for name, value in fixed.items()) + "."

    def _named(self, name: str, value: Fact) -> str:
        one = self._schema.field(name)
        if isinstance(value, Span):
            return f"{one.title} {value}"
        said = one.descriptions.get(str(value), "") if isinstance(one, CategoryField) else ""
        return f"{one.title} {one.text_of(value)}" + (f" ({said})" if said and said != value else "")

    # -- sizes ---------------------------------------------------------------------------------------------------

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._schema.fields if isinstance(one, TextField))

    @cached_property
    def _seedable(self) -> list[CategoryField | BooleanField]:
        return [
            one for one in self._schema.fields
            if one.name != self._schema.label and isinstance(one, (CategoryField, BooleanField))
        ]  # fmt: skip

    @cached_property
    def _context_tokens(self) -> int:
        return context_tokens(self._schema)

    @cached_property
    def _record_tokens(self) -> int:
        return record_tokens(self._schema)


@dataclass(slots=True)
class _LostAnswers:
    """Keeps count of answers that never came. `left` says how many attempts each proposal has.

    `hopeless` is set once all of a proposal's attempts were lost this way: then it is not the requests, and the run
    stops instead of giving candidates up that a model in order would write.
    """

    left: dict[int, int]
    hopeless: ModelError | None = None
    _lost: Counter[str] = field(default_factory=Counter)

    def ask_again(self, answer: Answer, error: ModelError) -> bool:
        """Whether the same request is worth another try."""
        self._lost[answer.request.key] += 1
        if self._lost[answer.request.key] < ASKINGS:
            return True
        number = _handle(answer)[1]
        self.left[number] -= 1
        if not self.left[number]:
            self.hopeless = error
        return False


def record_tokens(schema: Schema) -> int:
    """Room for the longest record that the schema allows, within reason."""
    return min(1200, 40 + _most_letters(schema) // 2)


def context_tokens(schema: Schema) -> int:
    """Room for a context that says all of an ordinary record: as long as the longest example, where there is one."""
    ordinary = max((len(schema.dumps(one)) for one in schema.examples), default=_most_letters(schema) * 3 // 5)
    return max(CONTEXT_TOKENS, min(record_tokens(schema), ordinary * 2 // 5))


def _most_letters(schema: Schema) -> int:
    return sum(len(one.name) + 8 + getattr(one, "max_length", 24) for one in schema.fields)


def _handle(answer: Answer) -> tuple[str, int, int]:
    """Stage, proposal and attempt that an answer belongs to."""
    return answer.place.stage, answer.place.number, answer.place.attempt


def _order_of(proposal: Proposal) -> int:
    """Which order of examples a prompt has. Facts make records differ enough: one order is read once for all."""
    return 0 if proposal.facts else proposal.seed % ORDERS


def _seed(seed: int, attempt: int, stage: int) -> int:
    """A seed of its own for every attempt and stage, the same in every process."""
    digest = hashlib.sha256(f"{seed}:{attempt}:{stage}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def without_exemplars(proposal: Proposal) -> Proposal:
    """The same proposal from the prior alone: what `explore` asks for."""
    return replace(proposal, positives=(), negatives=())


__all__ = ["Candidate", "Effort", "Generation", "Generator", "Known", "ModelError", "Proposal", "without_exemplars"]
