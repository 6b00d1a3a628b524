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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from selpe.errors import ModelError
from selpe.method.attempts import Attempts, Candidate, Turn
from selpe.method.echoes import EchoCheck
from selpe.method.effort import Effort
from selpe.method.guides import Form
from selpe.method.phrases import PhraseWriter, repetitive
from selpe.method.prompting import PromptWriter, Proposal
from selpe.method.record_forms import NO_NOTES, Fact, Notes, agrees, parse, stated
from selpe.method.record_steps import consistent, kept, limits
from selpe.models.base import Answer, ChatModel, Place, Request
from selpe.schema import BooleanField, CategoryField, Record, Schema, Span, TextField
from selpe.schema.narrowing import Narrowing

AHEAD = 2  # proposals that begin before all others
ASKINGS = 3  # of one request whose answer never came
CONTEXT_TOKENS = 120  # at least; a context that is cut short still steers stage II, but its last sentence is copied
_MOST_KEPT = 4096  # constraints
NEAR_TRIES = 2  # attempts in which a near copy of an example is not taken; later ones count, and the report tells
FEW_REPEATED = 0.2  # of the candidates: so many may have a long text of an earlier one; anew costs a pool with an end
SPARING = 3  # one in so many proposals may write a short text of an example
NO_REPEAT = 6  # tokens in a row that a local model does not write twice in one answer


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
        self._narrowing = Narrowing(schema)
        self._constraints: dict[tuple[Form, tuple[tuple[str, Fact], ...]], dict[str, Any]] = {}
        self._prompts = PromptWriter(schema, staged=stages == 2)
        self._echoes = EchoCheck(schema)
        self._begun = False

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

        A proposal that fails is tried again at once, so that the model always has many to work on. Which attempts
        count depends on the answers and on the order of the proposals, and not on the order in which answers arrive:
        the pool is the same whatever the model's timing.
        """
        seen = {self._schema.dumps(record) for record in taken}

        def refused(text: str) -> bool:
            return text in seen or (known is not None and bool(known.among([text])))

        writing = _Writing(proposals, Attempts(len(proposals), self._attempts, self._schema.dumps, refused))
        numbers = self._prompts.in_order(proposals)
        # The first few go ahead: they are records soon, and who comes after them finds what all begin with computed.
        ahead = 0 if self._begun else AHEAD
        self._begun = True
        for part in (numbers[:ahead], numbers[ahead:]):
            if part and not self.stopped:
                writing.begun += part
                self._write(writing, [(number, 0) for number in part], watch)
        for _ in range(NEAR_TRIES):
            self._write_repeated(writing, watch)
        return writing.generation()

    def _write_repeated(self, writing: _Writing, watch: Watcher | None) -> None:
        """Has proposals whose record says word for word what an earlier one's says tried again, if they are not few.

        That is told when all are there: which of two came first must not depend on the order of answers.
        """
        attempts = writing.attempts
        found = attempts.repeated(self._texts)
        if self.stopped or len(found) <= FEW_REPEATED * len(writing.proposals):
            return
        self._write(writing, [turn for number in found for turn in attempts.take_back(number, "repeated")], watch)
        for number, candidate in found.items():
            attempts.give_back(number, candidate)

    def _write(self, writing: _Writing, turns: Sequence[Turn], watch: Watcher | None) -> None:
        """Asks the model, these attempts first, until all proposals that were begun are settled.

        Stage II of one overlaps with stage I of another, and with further attempts of a third. An answer that never
        came is asked for again as it was: a pool must not depend on what went wrong on the way, or a resumed run would
        have other candidates than those that were voted on.
        """
        attempts, effort, lost = writing.attempts, writing.effort, writing.lost
        writing.under_way = 0
        few = self._model.capabilities().parallel // 2
        waiting = len(turns)

        def openings() -> Iterator[Request]:
            nonlocal waiting
            for turn in turns:
                waiting -= 1
                writing.under_way += 1
                yield self._attempt(writing, turn)

        def follow(answer: Answer) -> Iterable[Request]:
            writing.under_way -= 1
            turns = self._after(writing, answer)
            if isinstance(turns, Request):
                requests = [turns]
            else:
                if not waiting and writing.under_way < few:
                    # The batch runs dry: who has failed tries a few times at once, or it would run alone in the end.
                    turns += [spare for turn in turns for spare in attempts.spares(turn)]
                requests = [self._attempt(writing, turn) for turn in turns]
            writing.under_way += len(requests)
            return requests

        for answer in self._model.generate(openings(), follow=follow, cancel=self._cancel):
            effort.note(answer)
            if answer.error is not None and not answer.error.retryable:
                raise answer.error
            if lost.hopeless is not None:
                break
            if watch is not None:
                watch(answer)
                writing.show(watch)
            if writing.under_way and not waiting and not answer.replayed and attempts.settled(writing.begun):
                break  # what is still being written are spares that nobody needs
        if lost.hopeless is not None:
            raise lost.hopeless
        if watch is not None:
            writing.show(watch)
        attempts.abandon(writing.begun)

    def _after(self, writing: _Writing, answer: Answer) -> Request | list[Turn]:
        """What an answer leads to: one certain request, or attempts that are to be made now."""
        stage, number, attempt = _handle(answer)
        turn, proposal = (number, attempt), writing.proposals[number]
        outcome: Candidate | str
        if stage == "I" and answer.finish in ("stop", "length"):
            context = " ".join(answer.text.split())
            if not writing.attempts.wanted(turn):
                writing.attempts.drop(turn)
                return []
            near = attempt < NEAR_TRIES and self._echoes.has_near(context)
            if not near and not self._echoes.repeats(context, self._unlike(proposal)):
                notes = writing.notes[turn] = self._notes(proposal, context, attempt, whole=answer.finish == "stop")
                request = self._stage_two(proposal, notes, number, attempt)
                if not notes.all_said:
                    return request
                # The notes say all that is to be written.
                answer = Answer(request, "", "stop", replayed=answer.replayed)
                writing.unwritten.append(answer)
                outcome = self._candidate(proposal, notes, answer, attempt)
            else:
                outcome = "echo"
        else:
            outcome = self._candidate(proposal, writing.notes.get(turn, NO_NOTES), answer, attempt)
            if outcome == "rule":
                writing.beginnings[turn] = kept(answer)
        if outcome == "unanswered":
            return []
        if answer.error is not None and writing.lost.ask_again(answer, answer.error):
            writing.effort.retries["model error"] += 1
            return answer.request
        return writing.attempts.note(turn, outcome)

    def _attempt(self, writing: _Writing, turn: Turn) -> Request:
        """What an attempt begins with, after others or ahead of its turn."""
        (number, attempt), before = turn, writing.notes.get((turn[0], turn[1] - 1))
        proposal = writing.proposals[number]
        if before is None or before.all_said or self._stages == 1 or writing.attempts.anew(turn):
            return self._opening_request(proposal, number, attempt)
        # First another record of the same context: most failures are a slip of stage II, and this is cheaper.
        # What breaks a rule keeps its beginning as far as it can still be valid.
        writing.notes[turn] = before
        return self._stage_two(proposal, before, number, attempt, writing.beginnings.get((number, attempt - 1), ""))

    def _notes(self, proposal: Proposal, text: str, attempt: int, *, whole: bool) -> Notes:
        """What stage I wrote, and what of the record it settles: valid values that contradict nothing and copy nothing.

        Stage II would write them once more. Only lines can leave fields out; a JSON object is written whole.
        """
        if proposal.guide.form != "lines" or not self._constrained:
            return Notes(text, {})
        fixed, unlike = self._fixed(proposal, attempt), self._unlike(proposal)
        said = stated(self._schema, text, whole=whole)
        values = {name: value for name, value in said.items() if name not in fixed}
        for name in self._texts:
            value = values.get(name)
            if isinstance(value, str) and (repetitive(value) or self._echoes.copies(value, unlike)):
                del values[name]
        settled = consistent(self._narrowing, fixed, values)
        given = {name for name, fact in fixed.items() if not isinstance(fact, Span)}
        return Notes(text, settled, all_said=settled.keys() | given >= set(self._schema.names))

    def _candidate(self, proposal: Proposal, notes: Notes, answer: Answer, attempt: int) -> Candidate | str:
        """The candidate that an answer holds, or the reason why it holds none."""
        if answer.finish == "cancelled":
            return "unanswered"
        if answer.finish == "error":
            return "model error"
        text = answer.request.begun + answer.text
        record = self._record(proposal, notes, text, attempt)
        if record is None:
            if answer.finish == "length":
                return "truncated"
            return "not a record" if answer.request.steps is None else "rule"  # steps end where a rule is broken
        if violations := self._schema.check(record):
            return "rule" if all(violation.level == "rule" for violation in violations) else "invalid"
        if proposal.label is not None and self._schema.label_of(record) != proposal.label:
            return "wrong class"
        if any(not agrees(self._schema.field(name), record[name], fact) for name, fact in proposal.facts):
            return "wrong fact"  # of a server that ignores the schema it was given
        if any(repetitive(str(record[name])) for name in self._texts if record[name] is not None):
            return "repetitive"
        given = dict(proposal.facts)
        if self._echoes.is_echo(record, self._unlike(proposal), given):
            return "echo"
        if attempt < NEAR_TRIES and self._echoes.is_near(record, given):
            return "echo"
        raw = text if proposal.guide.form == "json" else self._schema.dumps(record)
        return Candidate(record, raw, proposal, notes.text, attempt + 1)

    def _record(self, proposal: Proposal, notes: Notes, text: str, attempt: int) -> Record | None:
        """The record that notes and text hold together."""
        if notes.all_said:
            fixed = self._fixed(proposal, attempt)
            record: Record | None = {name: fact for name, fact in fixed.items() if not isinstance(fact, Span)}
        else:
            record = parse(self._schema, text, proposal.guide.form, notes.settled)
        if record is None or set(record) - set(self._schema.names):
            return record
        return {name: notes.settled.get(name, record.get(name)) for name in self._schema.names}

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
            proposal, self._prompts.opening(proposal, fixed), seed,
            max_tokens=self._context_tokens, temperature=self._temperature * proposal.guide.heat, stop=stop,
            place=Place("I", number, attempt),
        )  # fmt: skip

    def _stage_two(self, proposal: Proposal, notes: Notes, number: int, attempt: int, begun: str = "") -> Request:
        """Stage II: what t leaves open of the record under the schema, or the rest of one that has `begun`."""
        return self._record_request(proposal, notes, number, attempt, self._record_temperature, begun=begun)

    def _record_at_once(self, proposal: Proposal, number: int, attempt: int) -> Request:
        """The record at once, without a context."""
        return self._record_request(proposal, NO_NOTES, number, attempt, self._temperature)

    def _record_request(
        self, proposal: Proposal, notes: Notes, number: int, attempt: int, temperature: float, *, begun: str = ""
    ) -> Request:
        fixed = self._fixed(proposal, attempt)
        bounds = self._limits(fixed, proposal.guide.form, notes) if self._constrained and not notes.all_said else {}
        staged = self._stages == 2
        said = self._prompts.record(proposal, fixed, notes.text) if staged else self._prompts.opening(proposal, fixed)
        return self._request(
            proposal, said, _seed(proposal.seed, attempt, 2),
            max_tokens=self._record_tokens, temperature=temperature * proposal.guide.heat,
            place=Place("II", number, attempt), begun=begun, own=notes.text, **bounds,
        )  # fmt: skip

    def _limits(self, fixed: dict[str, Fact], form: Form, notes: Notes) -> Mapping[str, Any]:
        """The constraint of a record request, made once for the same fixed values."""
        if notes.settled:
            return limits(self._narrowing, fixed, form, self._model.capabilities(), notes.settled)
        asked = (form, tuple(fixed.items()))
        if asked not in self._constraints:
            if len(self._constraints) >= _MOST_KEPT:
                self._constraints.clear()
            self._constraints[asked] = limits(self._narrowing, fixed, form, self._model.capabilities())
        return self._constraints[asked]

    def _request(self, proposal: Proposal, said: Mapping[str, Any], seed: int, **settings: Any) -> Request:
        """A request that says this, with what all requests have in common."""
        return Request(
            **said, seed=seed, min_p=self._min_p, no_repeat=NO_REPEAT, unlike=self._unlike(proposal),
            key=str(settings["place"]), **settings,
        )  # fmt: skip

    def _unlike(self, proposal: Proposal) -> tuple[str, ...]:
        """The texts that an answer must not copy: of the schema's examples, and of the exemplars shown.

        An example's text of two or three words may come again, but not as often as a small model would write it.
        """
        texts = self._echoes.texts((*proposal.positives, *proposal.negatives))
        return texts if proposal.seed % SPARING == 0 else texts + self._echoes.values()

    # -- what a record is to have --------------------------------------------------------------------------------

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
            # Of what the rules leave beside the class and the values seeded before: nothing can be written otherwise.
            left = self._narrowing.domains(fixed)[one.name].values
            if left:
                fixed[one.name] = chance.choice(left)
        return {name: fixed[name] for name in self._schema.names if name in fixed}

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
class _Writing:
    """What is known of a generation while it is under way."""

    proposals: Sequence[Proposal]
    attempts: Attempts
    effort: Effort = field(default_factory=Effort)
    notes: dict[Turn, Notes] = field(default_factory=dict)
    unwritten: list[Answer] = field(default_factory=list)  # of stage II, where the notes said all
    beginnings: dict[Turn, str] = field(default_factory=dict)  # of records that broke a rule later on
    begun: list[int] = field(default_factory=list)
    under_way: int = 0  # requests without an answer
    lost: _LostAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.lost = _LostAnswers(dict.fromkeys(range(len(self.proposals)), self.attempts.most))

    def show(self, watch: Watcher) -> None:
        """Shows whoever counts records those that nobody had to write."""
        while self.unwritten:
            watch(self.unwritten.pop(0))

    def generation(self) -> Generation:
        """What came of it."""
        retries, given_up = self.attempts.failures()
        self.effort.retries.update(retries)
        self.effort.given_up.update(given_up)
        self.effort.settle(self.attempts.candidates(), self.attempts.reasons())
        return Generation(self.attempts.candidates(), self.effort)


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


def _seed(seed: int, attempt: int, stage: int) -> int:
    """A seed of its own for every attempt and stage, the same in every process."""
    digest = hashlib.sha256(f"{seed}:{attempt}:{stage}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def without_exemplars(proposal: Proposal) -> Proposal:
    """The same proposal from the prior alone: what `explore` asks for."""
    return replace(proposal, positives=(), negatives=())


__all__ = ["Candidate", "Effort", "Generation", "Generator", "Known", "ModelError", "Proposal", "without_exemplars"]
