"""What a run will take, before it starts: candidates, tokens, time and money. Nothing private, nothing spent.

Tokens come from earlier runs of the same schema and model, else from one dry pass of the fake model over the real
prompts. Speed comes from earlier runs with the same model; else the model itself is asked for a second or two
(`models/speed.py`), where it runs on this machine; else, as long as nobody has opened it, from a table.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from selpe.config import RunConfig
from selpe.models.base import Answer
from selpe.models.speed import Pace
from selpe.schema import Schema

if TYPE_CHECKING:
    from selpe.method.guides import Guide
    from selpe.models.fake import FakeModel
    from selpe.models.machine import Machine
    from selpe.privacy.measure_plan import MeasurePlan

# Tokens written per second and core by SmolLM2-135M in whole runs; speed falls as weights grow. Without AVX-512 the
# arithmetic is the limit, and reading prompts takes as long as writing. ARM was not measured and is taken for slow.
_WITH_AVX512, _WITHOUT_AVX512, _EMBEDDED_BYTES = 310.0, 95.0, 98_362_432
SERVER_SPEED = 400.0
_TYPICAL = {"server": SERVER_SPEED, "fake": 5_000.0}
LLAMACPP_SPEED = 0.28  # of the embedded engine's
_SLOWER = {"llamacpp": LLAMACPP_SPEED, "transformers": 0.1}
_TOKENS_PER_WORD = 1.35  # the fake model counts words and marks; tokenizers cut finer
_TRIES, _TRIES_BY_RULES = 1.05, 1.3  # answers per candidate where nothing is known; rules bind in our engine alone
_SAMPLE, _MOST_SAMPLED = 12, 64
_CONTEXT_FILLED = 0.7  # of the room that a context has, in whole runs; what the fake model writes is far shorter
_LIKE_EXAMPLES = 0.85  # tokens of notes that continue a document, as a share of those of the examples' notes
_LEFT_OPEN = 0.4  # of such a record, what its notes do not settle
_RECORD_TOKENS_PER_WORD = 1.15  # names and marks of records are whole tokens more often
_ANEW = 0.25  # of the records, for each field that is measured: those that must be written anew
# Towards its end a pool has few answers in work, and a turn takes the time of five more however few there are. With the
# longest answers and second tries, that is as if so many candidates more were written.
ENDING = 8
_REST = 0.1  # of the time of writing, for votes, counts and the release
_PHRASE_TOKENS, _PHRASES_SHARED = 8.0, 0.95  # of a phrase, and of its prompt, in whole runs
_MOST_REPLAYED = 0.05  # a run mostly replayed from disk tells nothing about speed


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will take; `basis` says where the speed is from, `cost` is None without prices.

    There are at most so many `candidates`; `likely` ones are what tokens and time are for. Of the prompts' tokens
    `cached_tokens` are computed once and shared. Candidates are written in `pools`, one after the other. `pace` is how
    fast the model reads and writes behind `context` tokens, if that was measured.
    """

    candidates: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    basis: str
    cost: float | None = None
    cached_tokens: int = 0
    likely: int = 0
    pools: int = 1
    pace: Pace | None = None
    context: int = 0

    @property
    def cold_tokens(self) -> int:
        """Prompt tokens that have to be computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def endings(self) -> float:
        """How many tokens could be written in the time that the ends of pools take longer."""
        return ENDING * self.pools * self.completion_tokens / max(1, self.likely)

    def at(self, pace: Pace) -> Estimate:
        """The estimate at a pace that was just measured."""
        seconds = pace.seconds(self.cold_tokens, self.completion_tokens + self.endings) * (1 + _REST)
        return replace(self, seconds=seconds, basis="measured on this machine just now", pace=pace)

    def as_dict(self) -> dict[str, Any]:
        """The estimate as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens read and written per candidate; `cached` are those read that were computed for another one."""

    prompt: float
    completion: float
    cached: float = 0.0

    @classmethod
    def counted(cls, prompt: int, completion: int, candidates: int, tries: float = 1.0) -> Tokens:
        """From what the fake model counted over some candidates, each of which takes so many tries."""
        scale = _TOKENS_PER_WORD * tries / candidates
        return cls(prompt * scale, completion * scale)


def estimate(
    config: RunConfig,
    schema: Schema,
    *,
    candidates: int,
    likely: int | None = None,
    runs: Iterable[Mapping[str, Any]] = (),
    dry: Callable[[], Tokens] | None = None,
    phrases: Mapping[str, int] | None = None,
    steered: bool = True,
    pools: int = 1,
) -> Estimate:
    """The estimate for a run that generates this many candidates at most; `runs` are manifests of earlier runs.

    `dry` says what a few candidates take on the fake model, for methods with prompts of their own. `phrases` says how
    many values of text fields are written alone; tokens of earlier runs have them in already. Where rounds are
    `steered`, prompts show winners.
    """
    expected = candidates if likely is None else likely
    earlier = [run for run in runs if _tells(run) and run["settings"].get("llm") == config.llm]
    same = [run for run in earlier if run["settings"].get("method", "selpe") == config.method]
    known = _measured_tokens(same, schema.fingerprint())
    per = known or (_dry_tokens(config, schema, expected, steered) if dry is None else dry())
    alone = [] if known else [(_phrase_tokens(schema, name), count) for name, count in (phrases or {}).items()]
    parts = [(per, expected), *alone]
    prompt, completion, cached = (
        round(sum(getattr(one, name) * count for one, count in parts)) for name in ("prompt", "completion", "cached")
    )
    speed, basis = _speed(config, earlier)
    read = [(per.prompt / config.stages, per.completion * expected)]
    read += [(one.prompt, one.completion * count) for one, count in alone]
    context = sum(before * written for before, written in read) / max(1.0, sum(written for _, written in read))
    return Estimate(
        candidates, prompt, completion, completion / speed, basis,
        cost=_cost(config, prompt, completion, cached), cached_tokens=cached, likely=expected, pools=pools,
        context=round(context),
    )  # fmt: skip


def _speed(config: RunConfig, earlier: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """Tokens written per second of a whole run, and the words for where that is from."""
    speeds = [run["counts"]["completion_tokens"] / run["seconds"] / _engines(run["settings"]) for run in earlier[-5:]]
    if not speeds:
        return _typical(config)
    engines = _engines({"llm": config.llm, "execute": config.execute, "ray": config.ray.model_dump()})
    return median(speeds) * engines, f"{len(speeds)} earlier run{'s' if len(speeds) > 1 else ''} with this model"


def _cost(config: RunConfig, prompt: int, completion: int, cached: int) -> float | None:
    """By the server's prices per million tokens; cached ones cost as much as others unless they have a price."""
    if config.price_in is None and config.price_cached is None and config.price_out is None:
        return None
    full = config.price_in or 0.0
    reduced = full if config.price_cached is None else config.price_cached
    return ((prompt - cached) * full + cached * reduced + completion * (config.price_out or 0.0)) / 1e6


def is_measurable(config: RunConfig, found: Estimate) -> bool:
    """Whether the model should be asked how fast it is: it runs in this process, and no earlier run has told."""
    elsewhere = config.llm.startswith(("http://", "https://")) or config.execute == "ray"
    return not elsewhere and config.llm != "fake" and "earlier run" not in found.basis


def candidates_of(
    config: RunConfig, schema: Schema, *, guides: int, voted: bool, measured: bool = False, steered: bool = True
) -> int:
    """How many candidates a run generates at most: K per record of the core, one for each record beyond it, and a small
    sample per guide where guides are voted on.

    Where tables are measured, every record of the core may be written anew; and where rounds are not `steered` by
    private rows besides, K is 1.
    """
    sample = guides * max(1, len(schema.labels)) * config.guide_sample if voted and guides > 1 else 0
    core = min(config.records, config.core)
    each = (config.multiplicity if steered or not measured else 1) + measured
    return each * core + config.records - core + sample


def likely_of(config: RunConfig, candidates: int, measure: MeasurePlan | None) -> int:
    """How many candidates to expect: of the records that may be written anew, only some have to be."""
    if measure is None:
        return candidates
    fields = measure.votes or len(measure.fields)
    core = min(config.records, config.core)
    return candidates - round(core * (1 - _ANEW) ** fields)


def phrases_of(schema: Schema, measure: MeasurePlan) -> dict[str, int]:
    """How many values of each short text field are written alone to be measured with: at most, where rows vote."""
    from selpe.method.codebooks import is_short
    from selpe.method.measuring import ALIKE
    from selpe.schema import TextField

    names = measure.fields or measure.candidates
    texts = [name for name in names if isinstance(one := schema.field(name), TextField) and is_short(one, schema)]
    texts = texts[: measure.votes] if measure.votes else texts
    more = ALIKE * (len(measure.looks) - 1)
    return dict.fromkeys(texts, measure.phrases + more)


def _tells(run: Mapping[str, Any]) -> bool:
    """Whether a manifest is of a finished run that says something about speed."""
    counts = run.get("counts")
    if run.get("state") != "done" or not isinstance(counts, Mapping) or not run.get("seconds"):
        return False
    fresh = counts.get("replayed", 0) <= _MOST_REPLAYED * max(1, counts.get("answers", 0))
    return bool(fresh and counts.get("completion_tokens") and counts.get("candidates"))


def _measured_tokens(runs: Sequence[Mapping[str, Any]], schema: str) -> Tokens | None:
    same = [run["counts"] for run in runs if run.get("schema") == schema]
    if not same:
        return None
    made = sum(counts["candidates"] for counts in same)
    read, written, cached = (
        sum(counts.get(name, 0) for counts in same) / made
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    )
    return Tokens(read, written, cached)


def _dry_tokens(config: RunConfig, schema: Schema, candidates: int, steered: bool) -> Tokens:
    """Tokens per candidate by letting the fake model answer the real prompts of some proposals.

    What it writes itself says little: contexts are as long as they may be, and records as long as the examples are.
    """
    from selpe.method.generation import Generator, Proposal, context_tokens
    from selpe.models.fake import FakeModel

    model, labels = FakeModel(context_length=10**6), schema.labels or ("",)
    guides = stand_in_guides(config, schema)
    exemplars = tuple(schema.examples[: config.exemplars]) if steered else ()
    count = max(_SAMPLE, min(candidates, _MOST_SAMPLED))
    proposals = [
        Proposal(guides[turn % len(guides)], i, label=labels[i % len(labels)] or None, positives=exemplars)
        for i, turn in ((i, i // len(labels)) for i in range(count))
    ]
    answers: list[Answer] = []
    effort = Generator(model, schema, stages=config.stages, attempts=1).generate(proposals, watch=answers.append).effort
    tries = _TRIES_BY_RULES if schema.rules and not _rules_bind(config.llm) else _TRIES
    made = Tokens.counted(effort.prompt_tokens, effort.completion_tokens, count, tries)
    if schema.examples:
        record = _mean_tokens(model, map(schema.dumps, schema.examples))
        context = _CONTEXT_FILLED * context_tokens(schema)
        if guides[0].family == "document":
            record *= _LEFT_OPEN
            context = _LIKE_EXAMPLES * _mean_tokens(model, map(schema.linearise, schema.examples))
        made = replace(made, completion=tries * (record + context if config.stages == 2 else record))
    texts_read, texts_kept = zip(*map(_text_of, answers), strict=True)
    shared = shared_share(texts_read, round(candidates / count * len(answers)), texts_kept)
    return replace(made, cached=shared * made.prompt)


def _mean_tokens(model: FakeModel, texts: Iterable[str]) -> float:
    counts = [model.count_tokens(text) for text in texts]
    return _RECORD_TOKENS_PER_WORD * sum(counts) / len(counts)


def shared_share(prompts: Sequence[str], count: int, kept: Sequence[str] = ()) -> float:
    """The share of the prompts' letters that stood at the beginning of an earlier one, if there were `count` prompts.

    Those beyond the given ones are taken to share as much as the second half of these. `kept` are the prompts with the
    answers to them, where a model remembers both.
    """
    seen: list[str] = []
    cold: list[int] = []
    for prompt, whole in zip(prompts, kept or prompts, strict=True):
        place = bisect(seen, prompt)  # in order, the longest common beginning is with a neighbour
        common = max((_common(prompt, one) for one in seen[max(0, place - 1) : place + 1]), default=0)
        cold.append(len(prompt) - common)
        insort(seen, whole)
    if not prompts:
        return 0.0
    later = cold[len(cold) // 2 :]
    read = sum(map(len, prompts)) * max(1.0, count / len(prompts))
    return 1.0 - (sum(cold) + max(0, count - len(prompts)) * sum(later) / len(later)) / read


def _common(one: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _text_of(answer: Answer) -> tuple[str, str]:
    """What a model has read, and the same with its answer behind it, as the next stage shows both."""
    request = answer.request
    read = request.prompt or "\n".join(message.content for message in request.messages)
    return read, f"{read}{' ' if request.prompt else chr(10)}{' '.join(answer.text.split())}"


def _phrase_tokens(schema: Schema, name: str) -> Tokens:
    """Tokens per value of a text field written alone: of the real prompts, and the few that it has itself."""
    from selpe.method.phrases import PhraseWriter
    from selpe.models.fake import FakeModel
    from selpe.schema import TextField

    answers: list[Answer] = []
    field = schema.field(name)
    if isinstance(field, TextField):
        PhraseWriter(FakeModel(context_length=10**6), schema, watch=answers.append).write(field, _SAMPLE)
    read = _TOKENS_PER_WORD * sum(answer.prompt_tokens for answer in answers) / _SAMPLE
    return Tokens(read, _PHRASE_TOKENS, read * _PHRASES_SHARED)


def likely_phrases(schema: Schema, measure: MeasurePlan) -> dict[str, int]:
    """How many of them to expect: where rows vote, they may vote for a field that is no text."""
    from selpe.method.codebooks import is_short
    from selpe.schema import TextField

    names = measure.fields or measure.candidates
    texts = sum(isinstance(one := schema.field(name), TextField) and is_short(one, schema) for name in names)
    chance = texts / len(names) if measure.votes else 1.0
    return {name: round(chance * count) for name, count in phrases_of(schema, measure).items()}


def stand_in_guides(config: RunConfig, schema: Schema) -> tuple[Guide, ...]:
    """The guides of a run as far as they can be told without opening its model: their number is right."""
    from selpe.method.guides import WRITTEN, builtin_guides, default_guide, user_guides
    from selpe.models.base import Capabilities

    able = Capabilities(chat_template=True, json_schema=True)
    if config.guides == "off":
        return (default_guide(config.llm, able),)
    own = user_guides(config.guides, config.llm, able) if isinstance(config.guides, list) else ()
    builtin = builtin_guides(schema, config.llm, able)
    # What the model will write is not known yet; that it is about as long as this is.
    advice = " ".join(["advice"] * 80)
    written = [replace(builtin[0], name=f"written {i + 1}", text=advice) for i in range(WRITTEN)]
    return (*builtin, *(written if builtin[0].family == "chat" else ()), *own)


def _rules_bind(llm: str) -> bool:
    """Whether rules between fields bind while this model writes, so that none is broken and tried again."""
    elsewhere = llm.startswith(("http://", "https://")) or llm.partition(":")[0] in _SLOWER
    return not elsewhere and llm != "fake"


def _engines(settings: Mapping[str, Any]) -> int:
    """How many engines write at once in a run of these settings. Servers are as fast as they are, whoever asks."""
    if settings.get("execute") != "ray" or str(settings.get("llm", "")).startswith(("http://", "https://")):
        return 1
    ray = settings.get("ray")
    workers = ray.get("workers") if isinstance(ray, Mapping) else None
    return workers if isinstance(workers, int) and workers > 0 else 1


def _typical(config: RunConfig) -> tuple[float, str]:
    """Tokens per second that a model of this kind usually writes, and the words for where that is from."""
    from selpe.models.machine import this_machine

    llm, ray = config.llm, config.ray
    if llm == "fake":
        return _TYPICAL["fake"], "the fake model"
    if llm.startswith(("http://", "https://")):
        return _TYPICAL["server"], "a guess for servers; the next run will know"
    kind, _, rest = llm.partition(":")
    slower = _SLOWER.get(kind, 1.0)
    machine = this_machine()
    cores = max(1.0, ray.workers * ray.cpus if config.execute == "ray" else machine.usable_cores)
    wide = "avx512f" in machine.instruction_sets
    speed = processor_speed(machine, weight_of(rest or llm), cores=cores) * slower
    engine = "the embedded engine" if slower == 1.0 else kind
    return speed, f"typical speed of {engine} on {cores:g} cores{'' if wide else ' without AVX-512'}"


def processor_speed(machine: Machine, weight: int, *, cores: float | None = None) -> float:
    """Tokens per second that the embedded engine usually writes with weights of so many bytes."""
    per_core = _WITH_AVX512 if "avx512f" in machine.instruction_sets else _WITHOUT_AVX512
    return per_core * (cores or machine.usable_cores) * _EMBEDDED_BYTES / max(_EMBEDDED_BYTES // 4, weight)


def seconds_with(found: Estimate, config: RunConfig, runs: Iterable[Mapping[str, Any]] = ()) -> float:
    """How long the same run would take with the model of other settings, by earlier runs or typical figures."""
    earlier = [run for run in runs if _tells(run) and run["settings"].get("llm") == config.llm]
    return found.completion_tokens / _speed(config, earlier)[0]


def weight_of(llm: str) -> int:
    """Bytes of a model's weights, or of an ordinary small model where nobody knows yet."""
    from selpe.models.store.curated import BY_NAME
    from selpe.models.store.registry import REGISTRY

    if llm in REGISTRY:
        return REGISTRY[llm].size
    if llm in BY_NAME:
        return BY_NAME[llm].weight
    path = Path(llm)
    if path.is_dir():
        return sum(file.stat().st_size for file in path.glob("*.safetensors")) or 10**9
    return path.stat().st_size if path.is_file() else 10**9
