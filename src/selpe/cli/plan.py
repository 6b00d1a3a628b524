"""`selpe plan`: what ε will buy on this table, before anything is spent. Reads only the number of rows, no value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, json_mode, out, waiting
from selpe.errors import BudgetError, ConfigError

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.evaluation.sample_grade import SampleGrade
    from selpe.privacy.ledger.charges import Budget, Charge
    from selpe.privacy.plan import Plan
    from selpe.run.estimate import Estimate
    from selpe.run.methods import SpendingPlan
    from selpe.schema import Schema

_BAR = 20


def register(app: typer.Typer) -> None:
    """Adds `selpe plan`."""
    app.command("plan")(plan)


def plan(
    config: Annotated[Path, typer.Argument(help="The settings.")] = Path("selpe.yaml"),
    *,
    rows: Annotated[
        int | None, typer.Option(help="The number of records (or people), instead of the settings' or a count.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε of the run, instead of the settings'.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T, by hand.")] = None,
    batches: Annotated[int | None, typer.Option(help="b, winners per class and round, by hand.")] = None,
    alpha: Annotated[float | None, typer.Option(help="The share of a pool that a row approves, by hand.")] = None,
    records: Annotated[int | None, typer.Option(help="How many synthetic records to write.")] = None,
    method: Annotated[str | None, typer.Option(help="Our method, or a baseline, instead of the settings'.")] = None,
    grade: Annotated[
        bool, typer.Option("--grade", help="Write a sample now and say whether the model will do (see preview).")
    ] = False,
) -> None:
    """Show what ε will buy, before anything is spent: what is measured how noisily, and how good a winner to expect."""
    from selpe.cli.grades import graded_sample
    from selpe.cli.run import draft_warning
    from selpe.cli.writer import settled
    from selpe.config import load_config
    from selpe.run.grades import SAMPLE, kept_grade
    from selpe.schema import Schema

    flags = {"epsilon": epsilon, "rounds": rounds, "batches": batches, "alpha": alpha, "records": records}
    settings = load_config(config, flags={**flags, "method": method})
    schema = Schema.load(settings.data_schema)
    draft_warning(schema)
    settings, writer = settled(settings, schema, tell=not json_mode())
    with waiting("planning"):
        made, notes = _plan(settings, schema, rows)
    said = {"dataset": settings.dataset, "unit": settings.unit or "record", **made.to_dict()}
    said |= {"budget": _budget(settings, made), "warnings": [*notes, *made.warnings]}
    with waiting("estimating what it takes"):
        expected = _estimate(settings, schema, made)
    judged = graded_sample(settings, schema, SAMPLE)[1] if grade else kept_grade(settings, schema)
    said |= {"model": writer and writer.as_dict(), "grade": judged and judged.as_dict()}
    emit(said | {"estimate": expected.as_dict()})
    if not json_mode():
        _render(settings, made, said, expected)
        _render_grade(settings, judged)


def _estimate(settings: RunConfig, schema: Schema, made: SpendingPlan) -> Estimate:
    """What the run will read and write, and what that costs; cached tokens at their own price."""
    from selpe.run.lifecycle import list_runs
    from selpe.run.methods import recipe_of

    return recipe_of(settings.method).estimate(settings, schema, made, list_runs(Path(settings.out)))


def _plan(settings: RunConfig, schema: Schema, rows: int | None) -> tuple[SpendingPlan, tuple[str, ...]]:
    """The plan, and what is to be said of the number it is made from; with `rows` the table is not opened."""
    from selpe.run.methods import recipe_of
    from selpe.run.preflight import setting_notes

    notes: tuple[str, ...] = ()
    if rows is None:
        from selpe.privacy.load import count_units
        from selpe.run.preflight import size_notes

        counted = count_units(settings)
        rows, notes = settings.rows or counted, size_notes(settings, counted)
    elif rows < 1:
        raise ConfigError("must be 1 or more", where="--rows")
    return recipe_of(settings.method).plan(settings, schema, rows), (*setting_notes(settings, schema), *notes)


def _budget(settings: RunConfig, made: SpendingPlan) -> dict[str, Any]:
    """The cap of this data set, what is left of it, and whether the plan fits; `cap` is None while there is none."""
    from selpe.privacy.ledger import Ledger

    ledger = Ledger.open(settings.dataset)
    cap, charges = ledger.budget, [*ledger.charges(), *ledger.reserved()] if ledger.exists else []
    if cap is None:
        return {"cap": None, "left": None, "adjacency": None, "enough": None}
    return {
        "cap": cap.epsilon,
        "left": max(0.0, cap.epsilon - cap.used(charges)[0]),
        "adjacency": cap.adjacency,
        "enough": _fits(cap, charges, made.charges("plan")),
    }


def _fits(cap: Budget, charges: list[Charge], more: list[Charge]) -> bool:
    try:
        cap.require_room(charges, more, dataset="")
    except BudgetError:
        return False
    return True


# -- rendering --------------------------------------------------------------------------------------------------------


def _few(made: SpendingPlan) -> str:
    """What to say of a table in which what was measured would hardly show."""
    from selpe.config import RECORDS_A_CLASS
    from selpe.privacy.plan import Plan

    if not isinstance(made, Plan) or made.measure is None or made.records >= RECORDS_A_CLASS * len(made.rows):
        return ""
    return f" ({RECORDS_A_CLASS} a class, {RECORDS_A_CLASS * len(made.rows):,}, would teach a model more, at no ε)"


def _render(settings: RunConfig, made: SpendingPlan, said: dict[str, Any], expected: Estimate) -> None:
    from rich.markup import escape

    from selpe.cli.outcome import tokens_line
    from selpe.privacy.plan import Plan
    from selpe.run.progress import duration

    console = out()
    unit = "records" if settings.unit is None else f"different values of '{settings.unit}'"
    classes = f"{_classes(made)}, " if isinstance(made, Plan) else ""
    console.print(f"[bold]{escape(settings.dataset)}[/]: {made.units:,} {escape(unit)}, ", end="")
    console.print(f"{classes}{made.records:,} synthetic records{_few(made)}")
    console.print(_cost(settings, made))
    console.print(_left(said["budget"]))
    console.print(f"time: about {duration(expected.seconds)} ({expected.basis})")
    console.print(f"tokens: {tokens_line(expected)}")
    console.print()
    if isinstance(made, Plan):
        if made.measure is not None:
            console.print(_measured(made))
            console.print()
        if _chooses(made):
            console.print(_table(made))
            console.print()
        if _paid(made):
            console.print(_paper(made))
    else:
        console.print(f"{settings.method}: {', '.join(made.steps())}")
    if made.verdict:
        console.print(f"[bold]{escape(made.verdict)}[/]")
    for warning in said["warnings"]:
        console.print(f"[yellow]•[/] {escape(warning)}")


def _render_grade(settings: RunConfig, judged: SampleGrade | None) -> None:
    from selpe.cli.grades import render_grade

    if judged is not None:
        render_grade(settings, judged)
    elif settings.method == "selpe" and settings.llm != "fake":
        out().print("[dim]Will the model do? Not graded for this schema yet: `selpe preview` says, for free.[/]")


def _classes(made: Plan) -> str:
    if len(made.rows) == 1:
        return "no classes"
    low, high = min(made.rows.values()), max(made.rows.values())
    each = f"{low:.0f} each if they are equal" if low == high else f"{low:.0f} to {high:.0f} rows"
    return f"{len(made.rows)} classes ({each})"


def _cost(settings: RunConfig, made: SpendingPlan) -> str:
    from selpe.privacy.plan import Plan

    both, delta = made.guarantee, f", δ {settings.delta:g}" if settings.delta else ""
    how = "Gaussian noise"
    if isinstance(made, Plan):
        votes, counts = f", {made.vote} votes" if _paid(made) else "", ", noisy counts" if made.measure else ""
        how = f"{made.mechanism}{votes}{counts}"
    apart = "" if settings.rows is not None else " (apart from their number)"
    return (
        f"ε {_number(made.epsilon)}{delta} ({made.adjacency}): {_number(both.replace_one)} if one unit is replaced, "
        f"{_number(both.add_remove)} if one is added or removed{apart}; {how}"
    )


def _left(budget: dict[str, Any]) -> str:
    if budget["cap"] is None:
        return "budget: none yet; the first run sets it, to its own ε unless the settings have a `budget`"
    left = f"budget: ε {budget['left']:.4g} of {budget['cap']:g} is left ({budget['adjacency']})"
    return left if budget["enough"] else f"[red]{left}: not enough for this plan[/]"


def _paid(made: Plan) -> bool:
    """Whether rows choose winners. Where tables are measured, rounds that cost nothing only write."""
    return made.measure is None or made.record_epsilon > 0


def _chooses(made: Plan) -> bool:
    return _paid(made) or made.guide is not None or made.bundle is not None


def _measured(made: Plan) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from selpe.privacy.measure_words import measuring_steps

    table = Table(box=None, padding=(0, 2))
    table.add_column("measured", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("ε", justify="right")
    table.add_column("noise of a cell", justify="right")
    table.add_column("rows to expect in it", overflow="fold")
    for one in measuring_steps(made):
        table.add_row(one.step, escape(one.what), _number(one.epsilon), one.noise, one.expected)
    table.caption = "± holds 95 % of the noise. The counts become a part of the release, and records follow them."
    table.caption_justify = "left"
    return table


def _table(made: Plan) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    table.add_column("step")
    for name in ("choose among", "ε", "percentile", "paper's rule"):
        table.add_column(name, justify="right")
    table.add_column("chance … best", no_wrap=True)
    if made.guide is not None:
        table.add_row("guide", str(made.guide.options), _number(made.guide.epsilon), *_expected(made.guide.percentile))
    for number, part in enumerate(made.rounds if _paid(made) else (), 1):
        sizes = [size for size in part.pool.values() if size] or [0]
        pool = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,}–{max(sizes):,}"
        cells = _expected(part.percentile, part.paper_percentile)
        table.add_row(f"round {number}", pool, _number(part.epsilon), *cells)
    if made.bundle is not None:
        row = (str(made.bundle.options), _number(made.bundle.epsilon), *_expected(made.bundle.percentile))
        table.add_row("release", *row)
    if not _paid(made):
        return table
    winners = f"b = {made.batches} winner{'s' if made.batches > 1 else ''} a class and round"
    table.caption = f"T = {len(made.rounds)}, {winners}" + (f", α = {made.alpha:g}" if made.vote == "approval" else "")
    table.caption_justify = "left"
    return table


def _expected(percentile: float, paper: float | None = None) -> tuple[str, str, str]:
    return f"{percentile:.2f}", "" if paper is None else f"{paper:.2f}", _bar(percentile)


def _bar(percentile: float) -> str:
    """From chance (0.5, empty) to the best (1, full)."""
    from selpe.privacy.plan_words import AIM, NOTHING

    full = round(_BAR * min(1.0, max(0.0, 2 * percentile - 1)))
    colour = "green" if percentile >= AIM else "yellow" if percentile >= NOTHING else "red"
    return f"[{colour}]{'█' * full}[/][dim]{'░' * (_BAR - full)}[/]"


def _paper(made: Plan) -> str:
    odds = max(part.paper_odds for part in made.rounds)
    if not 0 < made.epsilon < math.inf:
        return "[dim]A control: there is nothing to compare.[/]"
    return (
        f"[dim]By the paper's rule the best candidate would be at most {odds:.2f} times as likely to win as the worst "
        f"(percentile {made.rounds[0].paper_percentile:.2f}).[/]"
    )


def _number(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"
