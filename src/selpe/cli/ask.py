"""`selpe init --ask`: the questions of the studio, one by one, for people without a browser. Answers can be piped in.

Every answer is written at once. Whoever stops in the middle goes on there with the same command.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from selpe.cli.console import emit, err
from selpe.errors import SelPEError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selpe.schema import Field, Schema
    from selpe.studio.forms import FieldForm
    from selpe.studio.project import Change, Project, Which

_MEANS = " = "  # between a value and what it means


def go_through(config: Path) -> None:
    """Asks everything that is open, and writes the answers into the two files."""
    from selpe.studio.project import Project

    project = Project(config)
    waiting = project.read().schema.unconfirmed
    for number, name in enumerate(waiting, 1):
        _ask_field(project, name, f"{number} of {len(waiting)}")
    _ask_about(project)
    _ask_table(project)
    _ask_examples(project)
    _ask_rules(project)
    _ask_amounts(project)
    _conclude(project, config)


# -- fields ----------------------------------------------------------------------------------------------------------


def _ask_field(project: Project, name: str, count: str) -> None:
    from selpe.studio import words
    from selpe.studio.edits import field_change, without_field
    from selpe.studio.forms import is_from_table

    field = project.read().schema.field(name)
    _say("")
    _say(f"{name} ({count}): {words.KINDS[field.kind]}", style="bold")
    if not _yes("Keep this field?", default=True):
        _write(project, "schema", without_field(name, project.read().schema))
        return
    shown = True
    if is_from_table(field):
        _say(words.PROPOSAL)
        shown = _yes("Show what the draft proposes?", default=False)
    while True:
        form = _ask_form(field, shown)
        try:
            change = field_change(name, form)
            _say(words.WHY[form.kind])
            form.confirmed = _yes(f"{words.PUBLIC[form.kind]} Is that so?", default=False)
            change = field_change(name, form)
            _write(project, "schema", change)
        except SelPEError as error:
            _refused(error)
            continue
        if form.confirmed or not _yes("Change it now? Else it stays open.", default=True):
            return
        field, shown = project.read().schema.field(name), True


def _ask_form(field: Field, shown: bool) -> FieldForm:
    """What a person says of a field; what was drafted is offered where it may be shown."""
    from selpe.studio import words
    from selpe.studio.forms import FieldForm, form_of

    drafted = form_of(field)
    kind = _one_of("Kind", list(words.KINDS), field.kind)
    known: dict[str, Any] = drafted if shown and kind == field.kind else {}
    form: dict[str, Any] = {"kind": kind}
    form["description"] = _text(f"{words.DESCRIPTION}\nDescription", drafted["description"])
    if kind == "category":
        old = {one["value"]: one["description"] for one in known.get("values", [])}
        drafted_values = "; ".join(f"{value}{_MEANS}{told}" if told else value for value, told in old.items())
        typed = _needed(words.VALUES, drafted_values).split(";")
        form["values"] = [_value_and_meaning(text.strip(), old) for text in typed]
    elif kind == "text":
        form["min_length"] = _needed("At least so many characters", known.get("min_length", "1"))
        form["max_length"] = _needed("At most so many characters", known.get("max_length", ""))
        form["pattern"] = known.get("pattern", "")
    elif kind in ("integer", "number", "date"):
        form["min"] = _needed("Lowest value", known.get("min", ""))
        form["max"] = _needed("Highest value", known.get("max", ""))
        if kind == "number":
            form["step"] = _needed("Step", known.get("step", "0.01"))
        if kind != "date":
            form["unit"] = _text("Unit", known.get("unit", ""))
            form["step"] = form.get("step", known.get("step", "1"))
    form["optional"] = _yes("May it be missing in a record?", default=field.optional)
    return FieldForm.model_validate(form)


def _value_and_meaning(text: str, old: Mapping[str, str]) -> dict[str, str]:
    """A value of a list, and what it means where that was typed behind it."""
    value, _, told = (text, "", "") if text in old else text.partition(_MEANS)
    return {"value": value.strip(), "description": told.strip() or old.get(value.strip(), "")}


# -- the rest --------------------------------------------------------------------------------------------------------


def _ask_about(project: Project) -> None:
    from selpe.intake.draft.names import likely_labels
    from selpe.studio import words
    from selpe.studio.edits import about_change

    schema = project.read().schema
    possible = [one.name for one in schema.fields if one.kind in ("category", "boolean") and not one.optional]
    _say("")
    _say("The table as a whole", style="bold")
    description = _text("In one sentence: what is one record, and where does it arise?", schema.description)
    likely = schema.label or next(iter(likely_labels(possible)), "")
    _say(words.LABEL)
    label = _one_of("The class ('none' for no classes)", ["none", *possible], likely or "none") if possible else "none"
    _write(project, "schema", about_change(description, None if label == "none" else label))


def _ask_table(project: Project) -> None:
    """How the table is read: what `selpe init` has found, to be confirmed."""
    from selpe.privacy.load import read_raw
    from selpe.studio import words
    from selpe.studio.edits import settings_change

    now = project.read()
    _say("")
    _say("How the table is read", style="bold")
    for name in [name for name in now.asked if name != "rows"]:
        known = getattr(now.settings, name)
        shown = {True: "yes", False: "no", None: ""}.get(known, known) if name == "day_first" else known or ""
        _settled(project, f"{words.SETTINGS[name]} ({name})", str(shown), name)
    columns = read_raw(now.settings).columns
    _say(words.UNIT)
    unit = _one_of("Whose record is it? ('none' if each has its own)", ["none", *columns], now.settings.unit or "none")
    _write(project, "settings", settings_change({"unit": "" if unit == "none" else unit}))
    _say(words.ROWS)
    _settled(project, "How many are there?", str(now.settings.rows or ""), "rows")


def _ask_examples(project: Project) -> None:
    from selpe.studio import words
    from selpe.studio.edits import read_example, with_example

    _say("")
    _say("Made-up examples", style="bold")
    _say(words.EXAMPLES)
    while _yes("Add an example?", default=False):
        schema = project.read().schema
        texts = {field.name: _ask_value(field) for field in schema.fields}
        record, problems = read_example(schema, texts, set(schema.names))
        if problems:
            _say(f"the example {problems.get('', 'does not fit')}; it was not added", style="red")
        else:
            _write(project, "schema", with_example(record))


def _ask_value(field: Field) -> str:
    from selpe.studio.forms import value_of

    while True:
        text = _text(f"{field.title} ({field.expected}{', or nothing' if field.optional else ''})", "")
        problem = value_of(field, text, shown=True)[1]
        if not problem:
            return text
        _say(problem, style="red")


def _ask_rules(project: Project) -> None:
    from selpe.studio import words
    from selpe.studio.edits import with_rule

    _say("")
    _say("Rules", style="bold")
    _say(words.RULES)
    while text := _text("A rule, such as dbp < sbp, or: if injury == true then pain >= 1 (nothing: no more)", ""):
        try:
            _write(project, "schema", with_rule(text, project.read().schema))
        except SelPEError as error:
            _refused(error)


def _ask_amounts(project: Project) -> None:
    from selpe.studio import words

    settings = project.read().settings
    _say("")
    _say("The run", style="bold")
    _say(words.EPSILON)
    _settled(project, "ε", f"{settings.epsilon:g}", "epsilon", confirm=False)
    _say(words.RECORDS)
    _settled(project, "Records", str(settings.records), "records", confirm=False)


def _conclude(project: Project, config: Path) -> None:
    schema: Schema = project.read().schema
    emit({"asked": {"config": str(config), "unconfirmed": list(schema.unconfirmed)}})
    _say("")
    if schema.unconfirmed:
        _say(f"still open: {', '.join(schema.unconfirmed)}; the same command asks again", style="yellow")
    else:
        _say("Nothing is open. Look it over with: selpe check; see what ε buys with: selpe plan", style="green")


# -- asking ----------------------------------------------------------------------------------------------------------


def _settled(project: Project, question: str, known: str, name: str, *, confirm: bool = True) -> None:
    """Asks for a setting until it can be read, and writes it."""
    from selpe.studio.edits import settings_change

    while True:
        try:
            change = settings_change({name: _needed(question, known)})
            _write(project, "settings", change, (name,) if confirm else ())
            return
        except SelPEError as error:
            _refused(error)


def _write(project: Project, which: Which, change: Change, confirmed: tuple[str, ...] = ()) -> None:
    project.change(which, change, revision=project.revision(), confirmed=confirmed)


def _say(text: str, style: str = "") -> None:
    err().print(text, markup=False, style=style or None, soft_wrap=True)


def _refused(error: SelPEError) -> None:
    _say(str(error) + (f" ({error.hint})" if error.hint else ""), style="red")


def _yes(question: str, *, default: bool) -> bool:
    return typer.confirm(question, default=default, err=True)


def _text(question: str, known: str) -> str:
    answer: str = typer.prompt(question, default=known, show_default=bool(known), err=True)
    return answer.strip()


def _needed(question: str, known: str) -> str:
    """A text that must not be empty; what is known is offered."""
    answer: str = typer.prompt(question, default=known or None, err=True)
    return answer if answer.strip() == "" and answer else answer.strip()


def _one_of(question: str, names: list[str], known: str) -> str:
    while True:
        answer = _text(f"{question}: {', '.join(names)}", known)
        if answer in names:
            return answer
        _say(f"must be one of {', '.join(names)}", style="red")
