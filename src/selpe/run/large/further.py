"""Records beyond the core, chunk by chunk: written, checked, kept as a part, forgotten. Reads no private row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from selpe.errors import StoppedError
from selpe.events import Answered, Emit, Included, PoolReady, StageStarted, silence
from selpe.method.effort import Effort
from selpe.method.generation import Candidate, Generator
from selpe.models.base import Answer
from selpe.run.large.answers import ChunkAnswers
from selpe.run.large.composition import Composition
from selpe.run.large.known import KnownTexts, hashes_of
from selpe.run.large.parts import Part, PartFolder
from selpe.run.large.whole import WholeTable
from selpe.schema import Record, Schema

CHUNK = 10_000  # records: some 30 MB while they are written
STAGE = "further"
_MOST_WAVES = 20
_POOR = 3  # waves in a row that bring next to nothing: then a class has no more to give
_PERIOD = 0.2  # seconds between events


@dataclass(slots=True)
class Further:
    """Writes what is missing after the core, with its composition. `generator` must ask through `answers`."""

    schema: Schema
    generator: Generator
    answers: ChunkAnswers
    composition: Composition
    folder: Path
    seed: int | str = 0
    chunk: int = CHUNK
    emit: Emit = silence
    _took: dict[str, list[int]] = field(default_factory=dict)  # answers, prompt tokens, written tokens by stage
    _untold: dict[tuple[str, bool], Answered] = field(default_factory=dict)
    _told: float = 0.0

    def write(
        self, core: Sequence[Record], missing: Mapping[str, int], *, known: KnownTexts | None = None
    ) -> WholeTable:
        """The whole table: the core, and `missing` records of each class, all different and none of them `known`."""
        parts, known = PartFolder(self.folder), KnownTexts() if known is None else known
        texts = tuple(self.schema.dumps(record) for record in core)
        known.add(hashes_of(texts))
        done, total = parts.finished(), len(texts)
        for part in done:
            parts.answers(part.number).unlink(missing_ok=True)  # left by a kill between part and answers
            known.add(parts.hashes(part.number))
            total += part.records
            self._replay(part, total)
        given_out = {label for part in done for label in part.short}
        for number, (before, asked) in enumerate(self.chunks(missing)):
            if number < len(done):
                continue
            wanted = {label: count for label, count in asked.items() if label not in given_out}
            done.append(self._write(Part(number, wanted, {}), before, known, parts))
            given_out |= done[-1].short
            total += done[-1].records
            self.emit(Included(number + 1, total))
        lacking = Counter(dict(missing))
        for part in done:
            lacking.subtract(part.found)
        return WholeTable(parts, tuple(done), texts, self.seed, {label: n for label, n in lacking.items() if n > 0})

    def chunks(self, missing: Mapping[str, int]) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        """What there is before each chunk and what it is to hold, by class: all together exactly what is missing."""
        count = -(-sum(missing.values()) // self.chunk)
        for i in range(count):
            before = {label: n * i // count for label, n in missing.items()}
            yield before, {label: n * (i + 1) // count - before[label] for label, n in missing.items()}

    def _write(self, part: Part, before: Mapping[str, int], known: KnownTexts, parts: PartFolder) -> Part:
        """One chunk, from its first proposal to its part on disk."""
        self.emit(StageStarted(STAGE, part.number + 1, sum(part.asked.values())))
        self.answers.begin(parts.answers(part.number))
        try:
            found, effort = self._found(part, before, known)
        except BaseException:
            self.answers.close()
            raise
        texts = [self.schema.dumps(candidate.record) for candidate in found]
        hashes = hashes_of(texts)
        counts = Counter(candidate.proposal.label or "" for candidate in found)
        took = {stage: (n, prompt, written) for stage, (n, prompt, written) in self._took.items()}
        done = Part(part.number, part.asked, dict(counts), took, dict(effort.retries), dict(effort.given_up))
        parts.keep(done, texts, hashes)
        known.add(hashes)
        self.answers.end()
        samples = tuple(candidate.record for candidate in found[:: max(1, len(found) // 4)][:4])
        thrown = dict(effort.thrown)
        self.emit(PoolReady(STAGE, part.number + 1, len(found), done.retries, done.given_up, samples, thrown))
        return done

    def _found(self, part: Part, before: Mapping[str, int], known: KnownTexts) -> tuple[list[Candidate], Effort]:
        """The records of a chunk. What is given up is proposed anew, until a class has no more to give."""
        missing, found, effort, poor = dict(part.asked), list[Candidate](), Effort(), 0
        self._took.clear()
        for wave in range(_MOST_WAVES):
            wanted = sum(missing.values())
            if not wanted or poor == _POOR:
                break
            name = f"{STAGE}-{part.number}-{wave}"
            proposals = self.composition.proposals(missing, seed=self.seed, name=name, before=before)
            taken = (candidate.record for candidate in found)
            made = self.generator.generate(proposals, taken=taken, known=known, watch=self._watch)
            self._tell()
            if self.generator.stopped:
                raise StoppedError("stopped as asked; every finished answer is kept")
            effort.retries.update(made.effort.retries)
            effort.given_up.update(made.effort.given_up)
            effort.thrown.update(made.effort.thrown)
            for candidate in made.candidates:
                if candidate is not None:
                    found.append(candidate)
                    missing[candidate.proposal.label or ""] -= 1
            poor = poor + 1 if wanted - sum(missing.values()) <= wanted // 50 else 0
        return found, effort

    # -- what others hear of it ----------------------------------------------------------------------------------

    def _watch(self, answer: Answer) -> None:
        if answer.finish == "cancelled":
            return
        told = Answered.of(answer)
        took = self._took.setdefault(told.stage, [0, 0, 0])
        for place, more in enumerate((1, told.prompt_tokens, told.completion_tokens)):
            took[place] += more
        alike = (told.stage, told.replayed)
        self._untold[alike] = told.plus(self._untold.get(alike))
        if time.monotonic() - self._told > _PERIOD:
            self._tell()

    def _tell(self) -> None:
        """Answers in sums: a million events would take longer than what they tell of."""
        for told in self._untold.values():
            self.emit(told)
        self._untold.clear()
        self._told = time.monotonic()

    def _replay(self, part: Part, total: int) -> None:
        """Tells of a part that was done before, as if it were done now."""
        self.emit(StageStarted(STAGE, part.number + 1, sum(part.asked.values())))
        for stage, (count, prompt, written) in part.effort.items():
            self.emit(Answered(stage, prompt, written, True, count))
        self.emit(PoolReady(STAGE, part.number + 1, part.records, part.retries, part.given_up))
        self.emit(Included(part.number + 1, total))
