"""What a whole run takes, from the command to the release: seconds, the first record, tokens, and what is thrown away.

    python benchmarks/whole_run.py [--runs demo triage] [--against ../parent] [--rounds 2]

'demo' is the whole job on the triage example with the demo's settings, which every checkout has; 'plain' is the same
without measured tables, so that noise does not decide how much is written; 'triage' and 'triage-plain' write 200
records from real triage data (--data). With --against, another checkout (a git worktree of the parent commit, say)
takes turns with this one, in processes of its own, and ratios are shown: this one over the other. Both are watched from
outside, by counting what the model is asked and what it answers, so that the other checkout needs no profile. Seconds
are those of the best round, tokens those of the last: noise is drawn anew in every run, so they differ a little. On
a busy machine, `taskset -c 0` before it makes seconds of all cores comparable: threads that wait for each other are
counted as busy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
DATA = HERE / ".." / "shared" / "data"
Figures = dict[str, float]
TEN_SECONDS = 10.0
AS_DEMO = {"records": 64, "epsilon": 2.0, "guide_sample": 3, "multiplicity": 2}
ROWS = (
    ("seconds", "seconds, all in all"), ("opening", "… until the model is open"),
    ("first_record", "… from there to the first record"), ("choosing", "… in which no model is asked"),
    ("foretold", "… foretold after ten seconds of work"), ("took", "… as it came, to be held against it"),
    ("processor", "seconds of all cores"), ("first_processor", "… from an open model to the first record"),
    ("answers", "answers"), ("cold", "tokens read, computed"), ("shared", "tokens read, shared"),
    ("written", "tokens written"), ("forced", "… forced by a grammar"), ("thrown", "… thrown away"),
    ("candidates", "candidates"), ("retries", "retries"), ("by_rule", "… because of a rule"),
    ("records", "records"),
)  # fmt: skip


# -- inside the process that is measured ------------------------------------------------------------------------------


@dataclass
class Onlooker:
    """Counts what a model is asked and answers, whichever version of SelPE asks it."""

    began: float = field(default_factory=time.perf_counter)
    opening: float = 0.0
    first_record: float | None = None
    first_processor: float | None = None
    foretold: float = 0.0
    took: float = 0.0
    asking: float = 0.0
    answers: int = 0
    cold: int = 0
    shared: int = 0
    written: int = 0
    forced: int = 0
    thrown: int = 0
    _kept: dict[tuple[str, int], int] = field(default_factory=dict)
    _opened: float = 0.0

    def watch(self, model: Any) -> Any:
        """The model, whose answers are counted from now on."""
        self.opening, self._opened = time.perf_counter() - self.began, time.process_time()
        kind = type(model)
        kind.generate = self._counted(kind.generate)
        return model

    def _counted(self, generate: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        @wraps(generate)
        def counted(*given: Any, **named: Any) -> Iterator[Any]:
            since = time.perf_counter()
            try:
                for answer in generate(*given, **named):
                    self._count(answer)
                    yield answer
            finally:  # a run that has what it needs closes the stream
                self.asking += time.perf_counter() - since

        return counted

    def _count(self, answer: Any) -> None:
        place, tokens = answer.request.place, answer.completion_tokens
        if place is None:
            return  # of no run: how fast the model is was measured
        self.answers += 1
        self.cold += answer.prompt_tokens - answer.cached_tokens
        self.shared += answer.cached_tokens
        self.written += tokens
        self.forced += getattr(answer, "forced_tokens", 0)
        if answer.finish not in ("stop", "length"):
            self.thrown += tokens
        elif place.stage in ("I", "II"):
            self._replace((place.stage, place.number), tokens, again=place.attempt > 0)
        if self.first_record is None and place.stage == "II":
            self.first_record = time.perf_counter() - self.began - self.opening
            self.first_processor = time.process_time() - self._opened

    def ask(self, meter: Any) -> None:
        """Takes down what a run's meter foretells after ten seconds, and how long it then was."""
        reading = meter.read()
        self.took = reading.elapsed
        if not self.foretold and reading.elapsed >= TEN_SECONDS and reading.left is not None:
            self.foretold = reading.elapsed + reading.left

    def _replace(self, part: tuple[str, int], tokens: int, *, again: bool) -> None:
        """A further attempt at a proposal's context or record: what it had before was written in vain."""
        if again:
            self.thrown += self._kept.get(part, 0)
        self._kept[part] = tokens


def inside(target: Path, arguments: list[str]) -> None:
    """Does one command with the SelPE on the path, and writes what was counted."""
    onlooker = Onlooker()
    from selpe.cli import main
    from selpe.run import session
    from selpe.run.progress import Meter

    listen = Meter.listen

    def listened(meter: Any, *given: Any, **named: Any) -> None:
        listen(meter, *given, **named)
        onlooker.ask(meter)

    Meter.listen = listened  # type: ignore[method-assign, assignment]
    opening = session.open_model
    session.open_model = lambda *given, **named: onlooker.watch(opening(*given, **named))
    sys.argv = ["selpe", *arguments]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        found = {name: value for name, value in asdict(onlooker).items() if not name.startswith("_")}
        target.write_text(json.dumps(found))


# -- outside ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A command that makes one run below a fresh folder, and where that run then is."""

    name: str
    arguments: Callable[[Path], list[str]]
    runs: str


def scenarios(options: argparse.Namespace, place: Path) -> list[Scenario]:
    """What was asked for."""
    model = ["--llm", options.llm, "--encoder", "hash" if options.llm == "fake" else "minilm"]
    found = []
    example = HERE / "examples" / "triage" / "selpe.yaml"
    asked = AS_DEMO | ({"records": options.records} if options.records else {})
    settings = [part for name, value in asked.items() for part in ("--set", f"{name}={value}")]
    command = ["run", str(example), "--yes", *model, *settings]
    if "demo" in options.runs:
        found.append(Scenario("demo", lambda to: [*command, "--out", str(to / "runs")], "runs"))
    if "plain" in options.runs:
        found.append(
            Scenario("plain", lambda to: [*command, "--set", "measure=off", "--out", str(to / "runs")], "runs")
        )
    if {"triage", "triage-plain"} & set(options.runs):
        source = options.data / "ktas_triage.csv"
        if not source.exists():
            sys.exit(f"{source} is not there; --data names the folder of the real data, --runs demo does without")
        made = place / "ktas"
        prepare = ["data", "ktas", str(source), "--out", str(made), "--private", "40", "--enrich", "off"]
        subprocess.run([sys.executable, "-m", "selpe", *prepare], check=True, env=_environment(HERE, place),
                       stdout=subprocess.DEVNULL)  # fmt: skip
        common = ["run", str(made / "selpe.yaml"), "--yes", *model, "--records", str(options.records or 200)]
        if "triage" in options.runs:
            found.append(Scenario("triage", lambda to: [*common, "--out", str(to / "runs")], "runs"))
        if "triage-plain" in options.runs:
            found.append(
                Scenario(
                    "triage-plain", lambda to: [*common, "--set", "measure=off", "--out", str(to / "runs")], "runs"
                )
            )
    return found


def measured(scenario: Scenario, checkout: Path, place: Path) -> Figures:
    """One run of a checkout."""
    to = Path(tempfile.mkdtemp(dir=place))
    said = to / "counted.json"
    command = [sys.executable, __file__, "--inside", str(said), *scenario.arguments(to)]
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=False, env=_environment(checkout, to), cwd=to, capture_output=True, text=True)
    seconds, after = time.perf_counter() - since, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{checkout}: {scenario.name} failed\n{done.stderr[-3000:]}")
    figures: Figures = {"seconds": seconds}
    figures["processor"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures |= {name: value or 0.0 for name, value in json.loads(said.read_text()).items()}
    figures["choosing"] = seconds - figures["opening"] - figures.pop("asking")
    (manifest,) = (json.loads(path.read_text()) for path in (to / scenario.runs).glob("*/manifest.json"))
    retries = manifest["counts"]["retries"]
    figures |= {"candidates": manifest["counts"]["candidates"], "retries": sum(retries.values())}
    figures |= {"by_rule": retries.get("rule", 0), "records": manifest["records"]}
    for profile in (to / scenario.runs).glob("*/profile.json"):  # it knows reasons that cannot be seen from outside
        figures["thrown"] = sum(json.loads(profile.read_text())["thrown"].values())
    return figures


def _environment(checkout: Path, place: Path) -> dict[str, str]:
    """The other checkout's package comes first on the path; every run has a ledger of its own."""
    return {**os.environ, "PYTHONPATH": str(checkout / "src"), "SELPE_LEDGER": str(place / "ledger")}


def compare(scenario: Scenario, sides: list[Path], rounds: int, place: Path) -> list[Figures]:
    """The figures of each checkout, which take turns; who begins changes from round to round."""
    found: dict[Path, list[Figures]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            found[side].append(measured(scenario, side, place))
            print(f"  {scenario.name}, round {number + 1}, {side.name}: {found[side][-1]['seconds']:.1f} s", flush=True)
    best = _TIMES - {"foretold", "took"}
    return [
        {name: min(one[name] for one in each) if name in best else each[-1][name] for name in each[-1]}
        for each in found.values()
    ]


def show(name: str, figures: list[Figures]) -> None:
    """The table of one scenario."""
    print(f"\n{name:<36}{'this':>10}" + (f"{'other':>10}{'ratio':>8}" if len(figures) > 1 else ""))
    for key, title in ROWS:
        line = f"{title:<36}" + "".join(
            f"{one[key]:>10,.1f}" if key in _TIMES else f"{one[key]:>10,.0f}" for one in figures
        )
        if len(figures) > 1:
            line += f"{figures[0][key] / figures[1][key]:>8.2f}" if figures[1][key] else f"{'–':>8}"
        print(line)
    shares = [f"{one['thrown'] / max(1, one['written']):.1%}" for one in figures]
    rules = [f"{one['by_rule'] / max(1, one['candidates']):.1%}" for one in figures]
    print(f"{'thrown away, of tokens written':<36}" + "".join(f"{share:>10}" for share in shares))
    print(f"{'retries by rule, of candidates':<36}" + "".join(f"{share:>10}" for share in rules), flush=True)


_TIMES = {"seconds", "opening", "first_record", "choosing", "processor", "first_processor", "foretold", "took"}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs", nargs="+", choices=("demo", "plain", "triage", "triage-plain"), default=["demo", "triage"]
    )
    parser.add_argument("--against", type=Path, help="another checkout, to take turns with")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--records", type=int, help="of 'triage' (200), and of 'demo' and 'plain' (64)")
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the real data")
    parser.add_argument("--json", type=Path, help="where to write the figures besides")
    options = parser.parse_args()
    sides = [HERE, *([options.against.resolve()] if options.against else [])]
    written = {}
    with tempfile.TemporaryDirectory() as folder:
        for scenario in scenarios(options, Path(folder)):
            written[scenario.name] = compare(scenario, sides, options.rounds, Path(folder))
            show(scenario.name, written[scenario.name])
    if options.json:
        options.json.write_text(json.dumps(written, indent=2))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
