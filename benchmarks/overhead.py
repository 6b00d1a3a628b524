"""How much of a run's time is spent outside the model, and where.

A whole run on the triage example, by Run.execute. Time is split without overlap: while something is at work inside
something else, only the inner one is counted. 'model' is the model alone: what we do while it waits for us (prompts to
write, answers to read) is 'requests'. The embedded engine works in the caller's thread, so that this is exact for it;
a server works on in the meantime, and for it 'requests' is an upper bound.

    python benchmarks/overhead.py [--records 200] [--llm smollm2] [--encoder minilm] [--cpu]
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.config import load_config
from selpe.method import algorithm, releases, selection, set_scores
from selpe.method.kernel import MultiChannelKernel, PoolDistances
from selpe.models.answers import AnswerStore
from selpe.models.base import Answer, Capabilities, ChatModel, Follow, Request
from selpe.models.encoders.base import Encoder
from selpe.models.encoders.vectors import VectorStore
from selpe.models.open import open_encoder, open_model
from selpe.privacy.table import PrivateTable
from selpe.run.event_log import EventLog
from selpe.run.lifecycle import Run
from selpe.run.outcome import Outcome

TRIAGE = Path(__file__).resolve().parents[1] / "examples" / "triage" / "selpe.yaml"
LIMIT = 0.10
OTHER = "other"


@dataclass
class Stopwatch:
    """Seconds by section. Entering a section stops the clock of the one around it."""

    now: Callable[[], float] = time.perf_counter
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _open: list[str] = field(default_factory=lambda: [OTHER])
    _since: float = 0.0

    def start(self) -> None:
        self._since = self.now()

    def _turn(self) -> None:
        moment = self.now()
        self.seconds[self._open[-1]] += moment - self._since
        self._since = moment

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def stop(self) -> float:
        self._turn()
        return sum(self.seconds.values())

    def wrap(self, owner: Any, *names: str, section: str) -> None:
        """Has calls of these functions counted under a section."""
        for name in names:
            inner = getattr(owner, name)

            @functools.wraps(inner)
            def timed(*given: Any, _inner: Callable[..., Any] = inner, **more: Any) -> Any:
                with self.section(section):
                    return _inner(*given, **more)

            setattr(owner, name, timed)


@dataclass
class TimedModel:
    """A ChatModel whose own time is 'model'; what it calls back for is 'requests'."""

    model: ChatModel
    watch: Stopwatch
    answers: int = 0
    tokens: int = 0

    @property
    def name(self) -> str:
        return self.model.name

    def capabilities(self) -> Capabilities:
        return self.model.capabilities()

    def count_tokens(self, text: str) -> int:
        return self.model.count_tokens(text)

    def close(self) -> None:
        self.model.close()

    def generate(
        self, requests: Iterable[Request], *, follow: Follow | None = None, cancel: threading.Event | None = None
    ) -> Iterator[Answer]:
        source, sentinel = iter(requests), object()

        def pulled() -> Iterator[Request]:
            while True:
                with self.watch.section("requests"):
                    request = next(source, None)
                if request is None:
                    return
                yield request

        def followed(answer: Answer) -> Iterable[Request]:
            with self.watch.section("requests"):
                return list(follow(answer)) if follow is not None else ()

        stream = iter(self.model.generate(pulled(), follow=followed, cancel=cancel))
        while True:
            with self.watch.section("model"):
                answer = next(stream, sentinel)
            if not isinstance(answer, Answer):
                return
            self.answers += 1
            self.tokens += answer.completion_tokens
            yield answer


@dataclass
class TimedEncoder:
    """An Encoder whose time is 'encoder'."""

    encoder: Encoder
    watch: Stopwatch
    texts: int = 0

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    @property
    def remote(self) -> str | None:
        return self.encoder.remote

    @property
    def rowwise(self) -> bool:
        return self.encoder.rowwise

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += len(texts)
        with self.watch.section("encoder"):
            return self.encoder.encode(texts)


def instrument(watch: Stopwatch) -> None:
    """Has the parts of a run counted under their names."""
    watch.wrap(PoolDistances, "__init__", "distances", "prototype", "among", section="kernel")
    watch.wrap(MultiChannelKernel, "represent", "represent_pool", section="kernel")
    watch.wrap(PrivateTable, "select", "choose", section="votes")
    watch.wrap(set_scores.SetJudge, "__init__", section="judges")
    watch.wrap(releases, "agreement", section="judges")
    watch.wrap(algorithm, "make_releases", section="bundles")
    watch.wrap(selection, "spread", section="inclusion")
    watch.wrap(AnswerStore, "get", "put", section="disk")
    watch.wrap(VectorStore, "get", "put", section="disk")
    watch.wrap(EventLog, "listen", section="disk")
    watch.wrap(Run, "_write_raw", "_write_release", "_save", section="release")


def execute(options: argparse.Namespace, folder: Path, watch: Stopwatch) -> tuple[Outcome, TimedModel, TimedEncoder]:
    os.environ["SELPE_LEDGER"], os.environ["SELPE_KEY"] = str(folder / "ledgers"), str(folder / "key")
    flags = {"records": options.records, "llm": options.llm, "encoder": options.encoder, "out": str(folder / "runs")}
    config = load_config(TRIAGE, flags=flags)
    model = TimedModel(open_model(options.llm), watch)
    encoder = TimedEncoder(open_encoder(options.encoder), watch)
    run = Run.create(config)
    instrument(watch)
    watch.start()
    try:
        return run.execute(model=model, encoder=encoder), model, encoder
    finally:
        model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--cpu", action="store_true", help="this thread's processor time, for a busy machine")
    options = parser.parse_args()
    watch = Stopwatch(time.thread_time if options.cpu else time.perf_counter)
    with tempfile.TemporaryDirectory() as folder:
        outcome, model, encoder = execute(options, Path(folder), watch)
        total = watch.stop()
    outside = 1 - watch.seconds["model"] / total
    parts = sorted(((share / total, name) for name, share in watch.seconds.items() if name != "model"), reverse=True)
    told = ", ".join(f"{name} {share:.1%}" for share, name in parts)
    print(
        f"outside the model: {outside:.1%} ({told}) of {total:.0f} s "
        f"for {len(outcome.records)} records, {model.answers} answers, {model.tokens} tokens, {encoder.texts} texts"
    )
    if options.llm != "fake":
        print(f"below {LIMIT:.0%}: {'yes' if outside < LIMIT else 'NO'}")
        raise SystemExit(outside >= LIMIT)


if __name__ == "__main__":
    main()
