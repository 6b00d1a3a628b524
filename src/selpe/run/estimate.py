"""What a run will take, before it starts: candidates, tokens, time and money. Nothing private, nothing spent.

Tokens come from earlier runs of the same schema and model, else from one dry pass of the fake model over the real
prompts. Speed comes from earlier runs with the same model, else from a table of typical speeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from selpe.config import RunConfig
from selpe.schema import Schema

if TYPE_CHECKING:
    from selpe.method.guides import Guide
    from selpe.privacy.measure_plan import MeasurePlan

# Tokens written per second and core by SmolLM2-135M in whole runs; speed falls as weights grow. Without AVX-512 the
# arithmetic is the limit, and reading prompts takes as long as writing. ARM was not measured and is taken for slow.
_WITH_AVX512, _WITHOUT_AVX512, _EMBEDDED_BYTES = 310.0, 95.0, 98_362_432
_TYPICAL = {"server": 400.0, "fake": 5_000.0}
_SLOWER = {"llamacpp": 0.28, "transformers": 0.1}
_TOKENS_PER_WORD = 1.35  # the fake model counts words and marks; tokenizers cut finer
_TRIES, _TRIES_BY_RULES = 1.05, 1.3  # answers per candidate where nothing is known: a rule can only be tried
_SAMPLE = 12
_PHRASE_TOKENS = 8.0
_MOST_REPLAYED = 0.05  # a run mostly replayed from disk tells nothing about speed


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will take; `basis` says where the speed is from, `cost` is None without prices."""

    candidates: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    basis: str
    cost: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The estimate as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens read and written per candidate."""

    prompt: float
    completion: float

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
    runs: Iterable[Mapping[str, Any]] = (),
    dry: Callable[[], Tokens] | None = None,
    phrases: Mapping[str, int] | None = None,
) -> Estimate:
    """The estimate for a run that generates this many candidates; `runs` are manifests of earlier runs.

    `dry` says what a few candidates take on the fake model, for methods with prompts of their own. `phrases` says how
    many values of text fields are written alone; tokens of earlier runs have them in already.
    """
    earlier = [run for run in runs if _tells(run) and run["settings"].get("llm") == config.llm]
    same = [run for run in earlier if run["settings"].get("method", "selpe") == config.method]
    known = _measured_tokens(same, schema.fingerprint())
    per = known or (_dry_tokens(config, schema) if dry is None else dry())
    alone = [] if known else [(_phrase_tokens(schema, name), count) for name, count in (phrases or {}).items()]
    prompt = round(per.prompt * candidates + sum(one.prompt * count for one, count in alone))
    completion = round(per.completion * candidates + sum(one.completion * count for one, count in alone))
    speeds = [run["counts"]["completion_tokens"] / run["seconds"] / _engines(run["settings"]) for run in earlier[-5:]]
    if speeds:
        speed = median(speeds) * _engines(
            {"llm": config.llm, "execute": config.execute, "ray": config.ray.model_dump()}
        )
        basis = f"{len(speeds)} earlier run{'s' if len(speeds) > 1 else ''} with this model"
    else:
        speed, basis = _typical(config)
    cost = None
    if config.price_in is not None or config.price_out is not None:
        cost = (prompt * (config.price_in or 0.0) + completion * (config.price_out or 0.0)) / 1e6
    return Estimate(candidates, prompt, completion, completion / speed, basis, cost)


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
    return Tokens(
        sum(counts["prompt_tokens"] for counts in same) / made,
        sum(counts["completion_tokens"] for counts in same) / made,
    )


def _dry_tokens(config: RunConfig, schema: Schema) -> Tokens:
    """Tokens per candidate by letting the fake model answer the real prompts of a few proposals."""
    from selpe.method.generation import Generator, Proposal
    from selpe.models.fake import FakeModel

    model, labels = FakeModel(context_length=10**6), schema.labels or ("",)
    guides = stand_in_guides(config, schema)
    exemplars = tuple(schema.examples[: config.exemplars])
    proposals = [
        Proposal(guides[i % len(guides)], i, label=labels[i % len(labels)] or None, positives=exemplars)
        for i in range(_SAMPLE)
    ]
    effort = Generator(model, schema, stages=config.stages, attempts=1).generate(proposals).effort
    tries = _TRIES_BY_RULES if schema.rules else _TRIES
    return Tokens.counted(effort.prompt_tokens, effort.completion_tokens, _SAMPLE, tries)


def _phrase_tokens(schema: Schema, name: str) -> Tokens:
    """Tokens per value of a text field written alone: of the real prompts, and the few that it has itself."""
    from selpe.method.phrases import PhraseWriter
    from selpe.models.fake import FakeModel
    from selpe.schema import TextField

    read: list[int] = []
    field = schema.field(name)
    if isinstance(field, TextField):
        writer = PhraseWriter(
            FakeModel(context_length=10**6), schema, watch=lambda answer: read.append(answer.prompt_tokens)
        )
        writer.write(field, _SAMPLE)
    return Tokens(_TOKENS_PER_WORD * sum(read) / _SAMPLE, _PHRASE_TOKENS)


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
    per_core = _WITH_AVX512 if wide else _WITHOUT_AVX512
    speed = per_core * cores * _EMBEDDED_BYTES / max(_EMBEDDED_BYTES // 4, weight_of(rest or llm)) * slower
    engine = "the embedded engine" if slower == 1.0 else kind
    return speed, f"typical speed of {engine} on {cores:g} cores{'' if wide else ' without AVX-512'}"


def weight_of(llm: str) -> int:
    """Bytes of a model's weights, or of an ordinary small model where nobody knows yet."""
    from selpe.models.store.registry import REGISTRY

    if llm in REGISTRY:
        return REGISTRY[llm].size
    path = Path(llm)
    if path.is_dir():
        return sum(file.stat().st_size for file in path.glob("*.safetensors")) or 10**9
    return path.stat().st_size if path.is_file() else 10**9
