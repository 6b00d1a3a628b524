"""`llm: auto`: the model that writes, chosen once for a run from what this machine has and can do in time.

What is on this machine already competes: weights in the store, and models of servers that run here. Nothing is fetched
by it, apart from the embedded default: larger models are named with what they would cost and bring, and the owner
decides. The choice is written into the settings of the run, so that a resumed run has the same model.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from selpe.config import RunConfig
from selpe.events import Event, Graded
from selpe.models.machine import ENGINES, Machine, this_machine
from selpe.models.nearby import NearbyModel, nearby_models
from selpe.models.store.curated import AUTO, CURATED, CuratedModel
from selpe.models.store.registry import DEFAULT_MODEL
from selpe.models.store.store import ModelStore, offline
from selpe.run.estimate import LLAMACPP_SPEED, SERVER_SPEED, Estimate, estimate, processor_speed, seconds_with
from selpe.run.progress import duration
from selpe.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = Literal["store", "server", "hub"]
KEYS = ("SELPE_API_KEY", "SELPE_API_KEY_FILE")
_SPARE = 0.8  # of the free memory
_UNTOLD = 1.0  # billions of parameters, where a server does not tell: somebody started it for a purpose
_USUAL_TOKENS = 160  # written per candidate, where there is no schema to tell
_BETTER = 3.0  # times the parameters, from which on a larger model is worth a word


@dataclass(frozen=True, slots=True)
class Option:
    """A model that could write. `obstacle` says why it cannot; empty where it can."""

    llm: str
    title: str
    billions: float
    place: Place
    seconds: float
    download: int = 0
    licence: str = ""
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class WriterChoice:
    """The model that was taken, why, and a larger one with what it would cost; None where there is none to name."""

    llm: str
    title: str
    place: Place
    seconds: float
    why: str
    larger: Option | None = None

    def as_dict(self) -> dict[str, Any]:
        """The choice as plain data, for a manifest."""
        return {"asked": AUTO, **asdict(self)}

    @property
    def advice(self) -> str:
        """What a larger model would cost and bring; empty where there is nothing to say."""
        if self.larger is None:
            return ""
        more, took = self.larger, duration(self.larger.seconds)
        licence = "" if more.licence in ("Apache-2.0", "") else f"; its licence: {more.licence}"
        said = (
            f"A larger model, {more.title}, usually writes texts that fit their class better. It would cost a download "
            f"of {bytes_words(more.download)} and about {took} for this run (now: {duration(self.seconds)})"
            f"{licence}. `selpe models pull {pull_name(more)}` fetches it."
        )
        return said if not more.obstacle else f"{said} But: {more.obstacle}."


def settle_writer(
    config: RunConfig, schema: Schema | None = None, *, store: ModelStore | None = None
) -> tuple[RunConfig, WriterChoice | None]:
    """The settings with a model's name in place of 'auto', and how it was chosen; as they are where one is named."""
    if config.llm != AUTO:
        return config, None
    choice = choose_writer(config, schema, store=store)
    return config.model_copy(update={"llm": choice.llm}), choice


def choose_writer(config: RunConfig, schema: Schema | None = None, *, store: ModelStore | None = None) -> WriterChoice:
    """The choice for a run of these settings on this machine. Reads no private row and asks no host but this one."""
    if config.execute == "ray":
        return _on_a_cluster(config)
    store, machine = store or ModelStore(), this_machine()
    seconds = _timer(config, schema, machine)
    keyed = any(os.environ.get(name) for name in KEYS)
    options = [
        *(_local(model, store, machine, seconds) for model in CURATED),
        *(_served(model, seconds, keyed=keyed) for model in nearby_models()),
    ]
    return choose(options, machine, minutes=config.llm_minutes, is_offline=offline())


def choose(options: Iterable[Option], machine: Machine, *, minutes: float, is_offline: bool = False) -> WriterChoice:
    """The largest model that is here, fits and is fast enough; the embedded default where none is."""
    ranked = sorted(options, key=lambda option: option.billions)
    default = next(option for option in ranked if option.llm == DEFAULT_MODEL)
    able = [one for one in ranked if not one.obstacle and one.place != "hub" and one.seconds <= 60 * minutes]
    taken = able[-1] if able and able[-1].billions > default.billions else default
    larger = None if is_offline else _larger(ranked, taken, 60 * minutes)
    why = _why(taken, ranked, machine, minutes, is_offline)
    return WriterChoice(taken.llm, taken.title, taken.place, taken.seconds, why, larger)


def _larger(ranked: Sequence[Option], taken: Option, limit: float) -> Option | None:
    """The model to name as the next step: the largest one to fetch that is fast enough, else the nearest one."""
    worth = [
        one
        for one in ranked
        if one.place == "hub" and not one.obstacle and one.billions >= _BETTER * taken.billions
    ]  # fmt: skip
    in_time = [one for one in worth if one.seconds <= limit]
    if in_time:
        return in_time[-1]
    if not worth:
        return None
    late = f"that is more than the {duration(limit)} of `llm_minutes`"
    return Option(**{**asdict(worth[0]), "obstacle": late})


def _why(taken: Option, ranked: Sequence[Option], machine: Machine, minutes: float, is_offline: bool) -> str:
    """A sentence or two for the owner."""
    where = {"store": "on this machine already", "server": "offered by a server that runs on this machine"}
    cores = f"{machine.usable_cores:g} cores"
    if taken.place == "server":
        return (
            f"{taken.title} is the largest model that is {where['server']}. "
            "It gets prompts, which have nothing of private rows in them."
        )
    if taken.llm != DEFAULT_MODEL:
        return (
            f"{taken.title} is the largest model {where['store']} that {cores} and "
            f"{bytes_words(machine.free_memory)} of free memory run within {duration(60 * minutes)}."
        )
    refused = [one for one in ranked if one.place != "hub" and one.billions > taken.billions]
    if refused:
        last = refused[-1]
        slow = f"it would take about {duration(last.seconds)} here, more than `llm_minutes` allows"
        return f"{taken.title} is embedded and runs anywhere. {last.title} is here too, but {last.obstacle or slow}."
    if is_offline:
        return f"{taken.title} is embedded and runs anywhere. Network use is off, and no larger model is here."
    return f"{taken.title} is embedded and runs anywhere; no larger model is on this machine."


def _on_a_cluster(config: RunConfig) -> WriterChoice:
    why = "on a Ray cluster every node needs the model, and the embedded default runs on all of them."
    title = next(model.title for model in CURATED if model.name == DEFAULT_MODEL)
    return WriterChoice(DEFAULT_MODEL, title, "store", _seconds_of_default(config, None)[0], f"{title}: {why}")


# -- what there is ---------------------------------------------------------------------------------------------------

Timer = Callable[[str, float, str], float]  # of a model by its `llm`, billions of parameters, and place


def _local(model: CuratedModel, store: ModelStore, machine: Machine, seconds: Timer) -> Option:
    here = model.name == DEFAULT_MODEL or store.stored(model.name) is not None
    return Option(
        llm=model.llm,
        title=model.title,
        billions=model.billions,
        place="store" if here else "hub",
        seconds=seconds(model.llm, model.billions, "store"),
        download=0 if here else model.size,
        licence=model.licence,
        obstacle=_obstacle(model, machine),
    )


def _obstacle(model: CuratedModel, machine: Machine) -> str:
    if model.name == DEFAULT_MODEL:
        return ""
    engine = next(one for one in ENGINES if one.name == model.engine)
    if not engine.available:
        return f'it needs {engine.name}: pip install "{engine.install}"'
    free = _SPARE * (machine.free_memory or 0.5 * machine.memory)
    if free and model.memory > free:
        return f"it needs {bytes_words(model.memory)} of memory, and {bytes_words(int(free))} can be had"
    return ""


def _served(model: NearbyModel, seconds: Timer, *, keyed: bool) -> Option:
    billions = _UNTOLD if model.billions is None else model.billions
    why = f"{' or '.join(KEYS)} is set, and no key is sent to a server that you have not named" if keyed else ""
    title = f"{model.model} at {model.address.removeprefix('http://')}"
    return Option(model.llm, title, billions, "server", seconds(model.llm, billions, "server"), obstacle=why)


def _timer(config: RunConfig, schema: Schema | None, machine: Machine) -> Timer:
    """How long this run takes with a model: by earlier runs with it, else by its size and what runs it."""
    found, runs = _seconds_of_default(config, schema)[1:]

    def seconds(llm: str, billions: float, place: str) -> float:
        own = config.model_copy(update={"llm": llm})
        known = any(run["settings"].get("llm") == llm for run in runs)
        if place == "server" and not known:
            # Without a graphics processor it computes on the same cores as llama.cpp would.
            weight = round(CURATED[0].weight / CURATED[0].billions * billions)
            speed = SERVER_SPEED if machine.gpu else LLAMACPP_SPEED * processor_speed(machine, weight)
            return found.completion_tokens / speed
        return seconds_with(found, own, runs)

    return seconds


def _seconds_of_default(
    config: RunConfig, schema: Schema | None
) -> tuple[float, Estimate, Sequence[Mapping[str, Any]]]:  # fmt: skip
    from selpe.run.lifecycle import list_runs

    runs = list_runs(Path(config.out))
    own = config.model_copy(update={"llm": DEFAULT_MODEL})
    candidates = 2 * config.records
    if schema is not None:
        found = estimate(own, schema, candidates=candidates, runs=runs)
    else:
        found = Estimate(candidates, 0, candidates * _USUAL_TOKENS, 0.0, "")
    return seconds_with(found, own, runs), found, runs


# -- words -----------------------------------------------------------------------------------------------------------


def pull_name(option: Option) -> str:
    """The name under which `selpe models pull` knows a model."""
    return option.llm.removeprefix("llamacpp:")


def bytes_words(size: int) -> str:
    """A size as people write it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def warn_if_poor(event: Event) -> None:
    """Warns where the model's first candidates are poor, while no private row has been looked at yet."""
    if isinstance(event, Graded) and event.grade == "poor":
        weak = ", ".join(str(one["name"]) for one in event.measures if one["grade"] == "poor")
        warnings.warn(f"the model's first candidates are poor ({weak}). {' '.join(event.steps)}", stacklevel=2)
