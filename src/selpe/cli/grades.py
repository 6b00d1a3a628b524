"""'Will this model do?' on a terminal: the grade of a sample, what is behind it, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selpe.cli.console import emit, err, json_mode, out

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.evaluation.sample_grade import SampleGrade
    from selpe.method.attempts import Candidate
    from selpe.schema import Schema

COLOURS = {"good": "green", "fair": "yellow", "poor": "red"}
_MEANING = {
    "good": "this model will do for this schema",
    "fair": "usable, but look at what is not good before you spend ε",
    "poor": "this model will hardly do for this schema; more ε would not mend it",
}


def graded_sample(settings: RunConfig, schema: Schema, count: int) -> tuple[list[Candidate], SampleGrade | None]:
    """A sample of so many candidates and its grade, which is kept; None where no candidate came."""
    from selpe.cli.conduct import opened
    from selpe.method.from_settings import preview_pool
    from selpe.models.base import Answer
    from selpe.run.grades import graded, sample_of

    with opened(settings) as session, err().status(f"writing {count} candidates") as status:
        written = 0

        def watch(answer: Answer) -> None:
            nonlocal written
            written += answer.request.stage != "I"
            status.update(f"writing {count} candidates, {min(written, count)} answered")

        made = preview_pool(settings, schema, session.model, count, watch)
        found, sample = sample_of(made, settings.attempts, count)
        if not found:
            return [], None
        status.update("grading them")
        return found, graded(settings, schema, sample, session.encoder)


def show_grade(settings: RunConfig, grade: SampleGrade) -> None:
    """The grade with its measures, and the steps to take."""
    emit({"grade": {"model": settings.llm, **grade.as_dict()}})
    if not json_mode():
        render_grade(settings, grade)


def render_grade(settings: RunConfig, grade: SampleGrade) -> None:
    """The same for people alone."""
    from rich.markup import escape
    from rich.table import Table

    console, table = out(), Table(box=None, pad_edge=False, show_header=False)
    colour = COLOURS[grade.grade]
    console.print(f"Will {escape(settings.llm)} do? [bold {colour}]{grade.grade}[/]: {_MEANING[grade.grade]}.")
    for measure in grade.measures:
        told = f"[{COLOURS[measure.grade]}]{measure.grade}[/]" if measure.grade else "[dim]–[/]"
        table.add_row(f"  {measure.name}", told, f"[dim]{escape(measure.said)}[/]")
    console.print(table)
    for step in grade.steps:
        console.print(f"  → {escape(step)}")


def warn_if_poor(settings: RunConfig, schema: Schema) -> None:
    """A warning before ε is spent, if a sample was found poor. Without a sample, a run grades its first candidates."""
    from rich.markup import escape

    from selpe.run.grades import kept_grade

    if settings.llm == "fake" or settings.method != "selpe":
        return
    grade = kept_grade(settings, schema)
    if grade is not None and grade.grade == "poor":
        emit({"grade": {"model": settings.llm, **grade.as_dict()}})
        if not json_mode():
            err().print(f"[bold red]![/] {_line(settings, grade)}")
            for step in grade.steps:
                err().print(f"  → {escape(step)}")
    elif grade is None and not json_mode():
        err().print("[dim]The first candidates will be graded before any private row is looked at.[/]")


def _line(settings: RunConfig, grade: SampleGrade) -> str:
    from rich.markup import escape

    colour = COLOURS[grade.grade]
    why = "; ".join(f"{measure.name}: {measure.grade}" for measure in grade.weak)
    found = f"on a sample of {grade.records} candidates {escape(settings.llm)} was [bold {colour}]{grade.grade}[/]"
    return f"model: {found}{f' ({why})' if why else ''}"
