"""`selpe experiment`: the paper's tables and figures, each one command; and all methods side by side on one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from selpe.experiments.designs import Ask
    from selpe.experiments.sizes import Size
    from selpe.experiments.sources import Source

ABOUT = {
    "main": "Methods × ε on three data sets: the paper's main table.",
    "backbone": "SelPE with several models: the paper's table on transfer. Give --llm more than once.",
    "scale": "Methods by the number of private rows: the paper's figure on stability.",
    "hyper": "SelPE by rounds, candidates, batches and temperature: the paper's figure on hyper-parameters.",
    "ablation": "SelPE without each of its parts: the paper's table on ablation.",
    "privacy": "Attacks on what each method releases: the paper's table on privacy.",
    "compare": "Every method on one data set, by every measure. Also on a table of your own.",
}
# The paper does its smaller experiments on MIMIC; the open triage data stands in for it.
_THREE, _ONE = ("water", "ktas", "loan"), ("ktas",)

Data = Annotated[
    list[str] | None,
    typer.Option(help="A loader's name, name=path, a file, or a folder of `selpe data`; can be repeated."),
]
DataFolder = Annotated[Path, typer.Option(help="Where the files of loaders lie that are given by name.")]
SizeName = Annotated[
    Literal["tiny", "small", "medium", "paper"],
    typer.Option(help="Minutes, some hours, a night a split, or the paper's own (a GPU server)."),
]
Llm = Annotated[list[str] | None, typer.Option(help="The model: a name, a GGUF file, or a URL.")]
EncoderName = Annotated[str, typer.Option(help="The encoder: minilm, hash, st:name, or a URL.")]
Views = Annotated[str | None, typer.Option(help="Models that are trained: minilm, boosted, roberta, tabstar.")]
Seeds = Annotated[str | None, typer.Option(help="How many seeds, or which: 3, or 0,1,2.")]
Epsilon = Annotated[list[str] | None, typer.Option(help="ε; can be repeated, 'inf' is one too.")]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Of selpe, selpe-paper, augpe, wasp, ctcl, dpgen, dpds, aim, mst, aim-text, mst-text, prior; default: all."
    ),
]
Records = Annotated[int | None, typer.Option(min=1, help="Synthetic records a class.")]
Private = Annotated[int | None, typer.Option(min=1, help="Private rows a class.")]
Draws = Annotated[int | None, typer.Option(min=1, help="How often SelPE's private choices are drawn on every split.")]
On = Annotated[Literal["test", "validation"], typer.Option(help="The rows that figures are measured on.")]
Base = Annotated[Literal["selpe", "selpe-paper"], typer.Option(help="What backbone, hyper and ablation vary.")]
Vary = Annotated[str | None, typer.Option(help="Parameters of hyper, or parts that ablation takes away; default: all.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any setting of the runs, as name=value.")]
Leaks = Annotated[
    bool | None, typer.Option("--with-leaks/--without-leaks", help="Keep or drop fields that tell the class.")
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="The schema of a table of your own.")]
Test = Annotated[Path | None, typer.Option(help="Test rows for a table of your own; default: some are held back.")]
TrainPython = Annotated[Path | None, typer.Option(help="An interpreter with torch, for the methods that train.")]
Out = Annotated[Path, typer.Option("--out", help="The folder of all experiments; cells in it are done once.")]
Jobs = Annotated[
    int, typer.Option(min=1, help="Processes that work at once, each on cores of its own; for servers, or many cores.")
]
Job = Annotated[int, typer.Option(hidden=True)]  # which of them this is; the others are started by the first
Redo = Annotated[bool, typer.Option("--redo", help="Do cells again that another version of the code has done.")]
Show = Annotated[bool, typer.Option("--show", help="Show the tables of what is done so far, then stop.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the estimate, then stop.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(no_args_is_help=True, help="The paper's tables and figures, each one command; resumable.")
    for name, about in ABOUT.items():
        group.command(name, help=about)(_command(name))
    app.add_typer(group, name="experiment")


def _command(name: str) -> Callable[..., None]:
    """The command of an experiment; all of them take the same options."""

    def command(
        *,
        data: Data = None,
        data_folder: DataFolder = Path("data"),
        size: SizeName = "small",
        llm: Llm = None,
        encoder: EncoderName = "minilm",
        views: Views = None,
        seeds: Seeds = None,
        epsilon: Epsilon = None,
        methods: Methods = None,
        records: Records = None,
        private: Private = None,
        draws: Draws = None,
        on: On = "test",
        base: Base = "selpe",
        vary: Vary = None,
        setting: Set = None,
        leaks: Leaks = None,
        schema: SchemaFile = None,
        test: Test = None,
        train_python: TrainPython = None,
        out_folder: Out = Path("experiments"),
        jobs: Jobs = 1,
        job: Job = 0,
        redo: Redo = False,
        show: Show = False,
        dry_run: DryRun = False,
    ) -> None:
        from dataclasses import replace

        from selpe.cli.grid import do_grid
        from selpe.cli.jobs import kept_to_cores
        from selpe.cli.run import assigned
        from selpe.experiments.grid import ALL_ROWS
        from selpe.experiments.sizes import size_of

        sources = _sources(_words(data) or _defaults(name), data_folder, leaks, schema, test)
        whole = any(source.whole for source in sources.values())
        amounts = size_of(size)
        amounts = replace(
            amounts,
            per_class=records or amounts.per_class,
            least=0 if records else amounts.least,
            private=private or (ALL_ROWS if whole else amounts.private),
            views=tuple(_split(views)) or amounts.views,
            draws=draws or amounts.draws,
        )
        ask = _ask(
            name, amounts, list(sources), seeds=seeds, epsilons=_words(epsilon), methods=_split(methods), base=base,
            llms=_words(llm), settings=assigned(setting or []), vary=_split(vary),
        )  # fmt: skip
        ask = replace(ask, classes={data: source.classes for data, source in sources.items()})
        if name == "scale":
            place, most = out_folder / "data", max(amounts.rows)
            there = {data: source.most_private(place, ask.seeds[0], most) for data, source in sources.items()}
            ask = replace(ask, most_private=there)
        with kept_to_cores(job, jobs):
            do_grid(
                name,
                ask,
                sources,
                encoder=encoder,
                on=on,
                train_python=train_python,
                redo=redo,
                show=show,
                out_folder=out_folder,
                dry_run=dry_run,
                job=job,
                jobs=jobs,
            )

    return command


def _defaults(name: str) -> list[str]:
    return list(_THREE if name in ("main", "privacy") else _ONE)


def _words(given: list[str] | None) -> list[str]:
    """Options that can be repeated and may hold several words each."""
    return [word for text in given or [] for word in _split(text)]


def _split(text: str | None) -> list[str]:
    # A URL may have a comma between servers: such a word stays whole.
    if text is not None and "://" in text:
        return [text]
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _sources(
    words: list[str], folder: Path, leaks: bool | None, schema: Path | None, test: Path | None
) -> dict[str, Source]:
    from selpe.errors import ConfigError
    from selpe.experiments.sources import open_source

    found: dict[str, Source] = {}
    for word in words:
        source = open_source(word, folder=folder, leaks=leaks, schema=schema, test=test)
        if source.name in found:
            raise ConfigError("two data sets have the same name", where=f"--data {word}", hint="give each once")
        found[source.name] = source
    return found


def _ask(
    name: str, size: Size, data: list[str], *, seeds: str | None, epsilons: list[str], methods: list[str], base: str,
    llms: list[str], settings: dict[str, Any], vary: list[str],
) -> Ask:  # fmt: skip
    from selpe.errors import ConfigError
    from selpe.experiments.arms import ARMS, arm_of
    from selpe.experiments.designs import ONE_EPSILON, VARYING, Ask

    if vary and name not in VARYING:
        raise ConfigError("this experiment varies nothing by name", where="--vary", hint=f"for {' and '.join(VARYING)}")
    usual = (2.0,) if name in ONE_EPSILON else size.epsilons
    return Ask(
        size=size,
        data=data,
        # A comparison should be ready soon; the experiments need standard errors.
        seeds=_seeds(seeds, 1 if name == "compare" and size.name in ("small", "medium") else size.seeds),
        epsilons=tuple(_number(word) for word in epsilons) or usual,
        methods=tuple(arm_of(word).name for word in methods) or tuple(ARMS),
        llms=tuple(llms) or ("smollm2",),
        base=base,
        vary=tuple(vary),
        settings=settings,
    )


def _seeds(given: str | None, usual: int) -> tuple[int, ...]:
    from selpe.errors import ConfigError

    try:
        numbers = [int(word) for word in _split(given)]
    except ValueError:
        numbers = [-1]
    if any(number < 0 for number in numbers) or numbers == [0]:
        raise ConfigError("must be a number of seeds, or seeds with commas", where="--seeds", hint="3, or 0,1,2")
    if not numbers:
        return tuple(range(usual))
    return tuple(range(numbers[0])) if len(numbers) == 1 else tuple(dict.fromkeys(numbers))


def _number(word: str) -> float:
    from selpe.errors import ConfigError

    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ConfigError("must be a number from 0 on, or inf", where=f"--epsilon {word}")
    return value
