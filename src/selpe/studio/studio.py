"""What the page shows and does, without HTTP: the state of a project as plain data, and one method for each action."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from selpe.config import RunConfig
from selpe.errors import ConfigError, RunError, SelPEError
from selpe.intake.draft.names import likely_labels
from selpe.run.workspace import Workspace
from selpe.schema import Field, Schema
from selpe.studio import edits, words
from selpe.studio.desk import CommandDesk, Task, runs_in
from selpe.studio.edits import Condition
from selpe.studio.forms import FieldForm, built, form_of, is_from_table, text_of, words_of
from selpe.studio.project import Change, Project, Snapshot, Which

_LABELS = ("category", "boolean", "integer")


class Studio:
    """One project, the commands that were started on it, and which proposals its owner has asked to see."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.desk = CommandDesk(project.config)
        self._asked: set[str] = set()
        self._planning = threading.Lock()

    # -- what is there -------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that the page shows of the files; where one cannot be read, what is wrong with it."""
        try:
            now = self.project.read()
        except SelPEError as error:
            return {"folder": str(self.project.folder), "problem": error.as_dict()}
        return {
            "folder": str(self.project.folder),
            "problem": None,
            "revision": now.revision,
            "schema": self._schema(now.schema),
            "settings": _settings(now),
            "ready": not now.schema.unconfirmed,
        }

    def activity(self) -> dict[str, Any]:
        """The commands that were started here, and the runs of the project."""
        return {"tasks": self.desk.as_dict(), "runs": runs_in(Path(self.project.read().settings.out))}

    def words(self) -> dict[str, Any]:
        """What the page asks, and why."""
        return words.described()

    def columns(self) -> dict[str, Any]:
        """The names of the table's columns, and which of them are no field."""
        from selpe.privacy.load import read_raw

        now = self.project.read()
        names = list(read_raw(now.settings).columns)
        return {"columns": names, "left_out": [name for name in names if name not in now.schema.names]}

    def _schema(self, schema: Schema) -> dict[str, Any]:
        possible = [field.name for field in schema.fields if field.kind in _LABELS and not field.optional]
        return {
            "name": schema.name,
            "description": schema.description,
            "label": schema.label,
            "labels": possible,
            "likely_label": next(iter(likely_labels(possible)), None),
            "fields": [self._field(field) for field in schema.fields],
            "rules": [rule.text for rule in schema.rules],
            "examples": [
                {field.name: text_of(field, record.get(field.name)) for field in schema.fields}
                for record in schema.examples
            ],
        }

    def _field(self, field: Field) -> dict[str, Any]:
        shown, form = self._may_show(field), form_of(field)
        if not shown:
            kept = ("kind", "description", "optional", "confirmed")
            form = {name: form[name] for name in kept}
        return {"name": field.name, "shown": shown, "form": form, "expected": words_of(field, shown=shown)}

    def _may_show(self, field: Field) -> bool:
        return not is_from_table(field) or field.name in self._asked

    def _shown(self, schema: Schema) -> set[str]:
        return {field.name for field in schema.fields if self._may_show(field)}

    # -- looking without changing --------------------------------------------------------------------------------

    def show(self, names: list[str]) -> dict[str, Any]:
        """Shows what the draft proposes for some fields, because their owner has asked for it."""
        schema = self.project.read().schema
        self._asked |= {schema.field(name).name for name in names}
        return self.state()

    def try_field(self, name: str, form: FieldForm) -> dict[str, Any]:
        """What a field would be in words; raises where it would be none."""
        return {"expected": built(name, form).expected}

    def try_example(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """What is wrong with a record, by field."""
        schema = self.project.read().schema
        return {"problems": edits.read_example(schema, texts, self._shown(schema))[1]}

    def try_rule(self, then: Condition, given: Condition | None) -> dict[str, Any]:
        """A rule as text; raises where it would be none."""
        schema = self.project.read().schema
        text = edits.rule_text(schema, then, given)
        edits.with_rule(text, schema)
        return {"text": text}

    def plan(self, changes: Mapping[str, str]) -> dict[str, Any]:
        """What a run would do with some settings changed; nothing is written."""
        from selpe.studio.planning import planned

        now = self.project.read()
        with self._planning:
            return planned(_with(now.settings, changes), now.schema)

    # -- changes of the files ------------------------------------------------------------------------------------

    def set_field(self, name: str, form: FieldForm, revision: str) -> dict[str, Any]:
        """Writes what a person says of a field."""
        return self._changed("schema", edits.field_change(name, form), revision)

    def remove_field(self, name: str, revision: str) -> dict[str, Any]:
        """Leaves a field out."""
        return self._changed("schema", edits.without_field(name, self.project.read().schema), revision)

    def set_about(self, description: str, label: str | None, revision: str) -> dict[str, Any]:
        """Writes what a record is, and which field is its class."""
        return self._changed("schema", edits.about_change(description, label), revision)

    def add_example(self, texts: Mapping[str, str], revision: str) -> dict[str, Any]:
        """Adds a made-up record."""
        schema = self.project.read().schema
        record, problems = edits.read_example(schema, texts, self._shown(schema))
        if problems:
            name, problem = next(iter(problems.items()))
            raise ConfigError(problem, where=f"field '{name}'" if name else "the example")
        return self._changed("schema", edits.with_example(record), revision)

    def add_rule(self, text: str, revision: str) -> dict[str, Any]:
        """Adds a rule."""
        return self._changed("schema", edits.with_rule(text.strip(), self.project.read().schema), revision)

    def remove_item(self, name: Literal["examples", "rules"], place: int, revision: str) -> dict[str, Any]:
        """Takes an example or a rule away."""
        return self._changed("schema", edits.without_item(name, place, self.project.read().schema), revision)

    def set_settings(self, changes: Mapping[str, str], confirmed: list[str], revision: str) -> dict[str, Any]:
        """Writes some settings, and which of them a person has confirmed."""
        self.project.change(
            "settings", edits.settings_change(changes), revision=revision, confirmed=tuple(confirmed)
        )  # fmt: skip
        return self.state()

    def _changed(self, which: Which, change: Change, revision: str) -> dict[str, Any]:
        self.project.change(which, change, revision=revision)
        return self.state()

    # -- commands ------------------------------------------------------------------------------------------------

    def start_run(self, epsilon: str, revision: str) -> dict[str, Any]:
        """Starts a run of what the files say. Its owner repeats the ε that it will spend."""
        now = self.project.read()
        if now.revision != revision:
            raise RunError("the files were changed meanwhile, so nothing was started", hint="look at the plan again")
        now.schema.require_confirmed()
        if not math.isfinite(now.settings.epsilon):
            raise RunError(
                "a control that is not private is not started from this page", hint="selpe run --epsilon inf"
            )
        if _number(epsilon) != now.settings.epsilon:
            raise RunError(
                f"this run will spend ε = {now.settings.epsilon:g}, and another figure was typed",
                where="ε",
                hint=f"type {now.settings.epsilon:g} to start it; nothing was spent",
            )
        return {"run": self.desk.run(now.settings.dataset)}

    def stop(self, task: Task) -> dict[str, Any]:
        """Asks a command to stop."""
        self.desk.stop(task)
        return self.activity()

    def resume(self, name: str) -> dict[str, Any]:
        """Goes on with a run. Its ε is reserved already."""
        self.desk.resume(self.run_folder(name))
        return {"run": name}

    def check(self) -> dict[str, Any]:
        """Starts `selpe check`."""
        self.desk.check()
        return self.activity()

    def preview(self) -> dict[str, Any]:
        """Starts `selpe preview`, which reads no private row and spends nothing."""
        self.project.read().schema.require_confirmed()
        self.desk.preview()
        return self.activity()

    def evaluate(self, name: str, test: str) -> dict[str, Any]:
        """Starts the evaluation of a run; `test` is a table that lies beside the settings, or anywhere."""
        place = str(self.project.folder / Path(test).expanduser()) if test.strip() else ""
        if place and not Path(place).is_file():
            raise ConfigError("there is no such file", where=test, hint="its path starts at the folder of selpe.yaml")
        self.desk.evaluate(self.run_folder(name), place)
        return self.activity()

    def run_folder(self, name: str) -> Path:
        """The folder of a run of this project, by its name and by nothing else."""
        out = Path(self.project.read().settings.out)
        known = [run["folder"] for run in runs_in(out) if Path(run["folder"]).name == name]
        if not known or not Workspace(Path(known[0])).is_run:
            raise RunError("there is no such run", where=name)
        return Path(known[0])


def _settings(now: Snapshot) -> dict[str, Any]:
    told = now.settings.model_dump(include={*edits.EDITABLE, "dataset", "adjacency", "method"})
    told["epsilon"] = told["epsilon"] if math.isfinite(told["epsilon"]) else None
    return told | {"table": Path(now.settings.data).name, "asked": list(now.asked)}


def _with(settings: RunConfig, changes: Mapping[str, str]) -> RunConfig:
    """The settings with some of them changed, as typed."""
    from selpe.config import check_config

    content = settings.model_dump(by_alias=True)
    for name, text in changes.items():
        content[name] = edits.read_setting(name, text)
    return check_config(content, where="the plan")


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None
