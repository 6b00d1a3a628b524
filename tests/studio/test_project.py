"""A project's files: changed one thing at a time, at once or not at all, and never over somebody else's change."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from selpe.config import load_config
from selpe.errors import ConfigError, SchemaError, SelPEError
from selpe.schema import Schema
from selpe.studio import edits
from selpe.studio.edits import Condition
from selpe.studio.forms import FieldForm
from selpe.studio.project import Change, Project, StaleError
from studio_world import EXAMPLE, FORMS, drafted


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(drafted(tmp_path))


def schema_text(project: Project) -> str:
    return (project.folder / "schema.yaml").read_text(encoding="utf-8")


def settings_text(project: Project) -> str:
    return project.config.read_text(encoding="utf-8")


def change(project: Project, made: Change) -> Schema:
    return project.change("schema", made, revision=project.revision()).schema


def form(name: str, **more: Any) -> FieldForm:
    return FieldForm.model_validate({**FORMS[name], "confirmed": True, **more})


def confirm_all(project: Project) -> Schema:
    for name in FORMS:
        change(project, edits.field_change(name, form(name)))
    return project.read().schema


def test_confirming_answers_the_question_and_leaves_every_other_line_alone(project: Project) -> None:
    before = schema_text(project).splitlines()
    schema = change(project, edits.field_change("hurt", form("hurt")))
    assert "hurt" not in schema.unconfirmed
    differing = [(old, new) for old, new in zip(before, schema_text(project).splitlines(), strict=True) if old != new]
    (line,) = differing
    assert line[0].replace("false ", "true  ") == line[1]


def test_a_whole_draft_can_be_confirmed(project: Project) -> None:
    schema = confirm_all(project)
    assert schema.unconfirmed == ()
    schema.require_confirmed()
    assert schema.field("note").description == "What was said"
    assert "# Rules between fields that every record obeys" in schema_text(project)


def test_a_kind_can_be_changed(project: Project) -> None:
    wanted = FieldForm.model_validate({"kind": "integer", "min": "1", "max": "3", "confirmed": True})
    schema = change(project, edits.field_change("level", wanted))
    assert schema.field("level").expected == "an integer from 1 to 3"
    assert "values" not in schema_text(project).split("  level:")[1]


def test_a_change_that_makes_no_schema_is_not_written(project: Project) -> None:
    before = schema_text(project)
    with pytest.raises(SchemaError):
        change(project, edits.about_change("", "note"))  # a text is no class
    assert schema_text(project) == before


def test_a_change_from_an_older_version_is_refused_and_nothing_is_lost(project: Project) -> None:
    old = project.revision()
    path = project.folder / "schema.yaml"
    path.write_text(schema_text(project) + "# a note by hand\n", encoding="utf-8")
    with pytest.raises(StaleError):
        project.change("schema", edits.field_change("hurt", form("hurt")), revision=old)
    assert schema_text(project).endswith("# a note by hand\n")
    with pytest.raises(StaleError):  # the settings were made for the other schema too
        project.change("settings", edits.settings_change({"records": "7"}), revision=old)
    assert change(project, edits.field_change("hurt", form("hurt"))).field("hurt").confirmed


def test_a_file_is_the_owners_alone_and_no_half_of_it_is_left(project: Project) -> None:
    change(project, edits.field_change("hurt", form("hurt")))
    assert stat.S_IMODE((project.folder / "schema.yaml").stat().st_mode) == 0o600
    assert not list(project.folder.glob(".*part"))


def test_a_link_stays_a_link(project: Project, tmp_path: Path) -> None:
    path, real = project.folder / "schema.yaml", tmp_path / "elsewhere.yaml"
    path.rename(real)
    path.symlink_to(real)
    change(project, edits.field_change("hurt", form("hurt")))
    assert path.is_symlink()
    assert "hurt" not in Schema.load(real).unconfirmed


def test_a_json_schema_is_refused_in_words(project: Project) -> None:
    text = settings_text(project).replace("schema: schema.yaml", "schema: schema.json")
    project.config.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match="cannot be edited here"):
        project.change("schema", edits.field_change("hurt", form("hurt")), revision="x")


def test_a_missing_schema_is_said_with_its_place(project: Project) -> None:
    (project.folder / "schema.yaml").unlink()
    with pytest.raises(SelPEError, match=r"schema\.yaml"):
        project.read()


# -- fields, examples, rules -----------------------------------------------------------------------------------------


def test_a_field_can_be_left_out_and_added_again(project: Project) -> None:
    schema = change(project, edits.without_field("level", project.read().schema))
    assert "level" not in schema.names
    assert "# Rules between fields" in schema_text(project)
    assert change(project, edits.field_change("level", form("level"))).names[-1] == "level"


def test_a_field_that_a_rule_needs_stays(project: Project) -> None:
    schema = change(project, edits.with_rule("low < high", confirm_all(project)))
    with pytest.raises(SchemaError, match="needs this field"):
        edits.without_field("low", schema)
    assert "low" not in change(
        project, edits.without_field("low", change(project, edits.without_item("rules", 0, schema)))
    )._by_name  # fmt: skip


def test_the_class_and_the_examples_go_with_their_field(project: Project) -> None:
    confirm_all(project)
    change(project, edits.about_change("Visits", "level"))
    record, problems = edits.read_example(project.read().schema, EXAMPLE, set(EXAMPLE))
    assert problems == {}
    schema = change(project, edits.with_example(record))
    assert (schema.label, schema.examples[0]["level"]) == ("level", "3")
    schema = change(project, edits.without_field("level", schema))
    assert (schema.label, "level" in schema.examples[0]) == (None, False)
    assert change(project, edits.without_item("examples", 0, schema)).examples == ()


def test_an_example_is_looked_at_field_by_field_then_by_rules(project: Project) -> None:
    schema = change(project, edits.with_rule("low < high", confirm_all(project)))
    _, problems = edits.read_example(schema, {**EXAMPLE, "age": "-1", "hurt": ""}, set(EXAMPLE))
    assert set(problems) == {"age", "hurt"}
    _, problems = edits.read_example(schema, {**EXAMPLE, "low": "130"}, set(EXAMPLE))
    assert problems == {"": "breaks the rule low < high"}
    with pytest.raises(SchemaError, match="no field 'other'"):
        edits.read_example(schema, {"other": "x"}, set())


def test_an_example_of_a_draft_does_not_tell_what_the_draft_holds(project: Project) -> None:
    _, problems = edits.read_example(project.read().schema, {"way": "flown"}, set())
    assert "quarantined" not in str(problems)
    assert "2031" not in str(problems)


CONDITIONS: list[tuple[Condition, Condition | None, str]] = [
    (Condition(field="low", comparison="<", other="high"), None, "low < high"),
    (Condition(field="age", comparison=">=", value=" 18 "), None, "age >= 18"),
    (
        Condition(field="level", comparison="!=", value="3"),
        Condition(field="hurt", comparison="==", value="yes"),
        'if hurt == true then level != "3"',
    ),
    (Condition(field="arrived", comparison="<", value="2031-01-01"), None, 'arrived < d"2031-01-01"'),
    (Condition(field="note", comparison="!=", value='a "b"'), None, 'note != "a \\"b\\""'),
]


@pytest.mark.parametrize(("then", "given", "text"), CONDITIONS, ids=[case[2] for case in CONDITIONS])
def test_chosen_fields_become_a_rule(project: Project, then: Condition, given: Condition | None, text: str) -> None:
    schema = project.read().schema
    assert edits.rule_text(schema, then, given) == text
    assert change(project, edits.with_rule(text, schema)).rules[-1].text == text


def test_names_with_spaces_stand_in_back_quotes() -> None:
    content = {"name": "t", "fields": {"a b": {"kind": "boolean"}, "if": {"kind": "boolean"}}}
    schema = Schema.from_dict(content)
    text = edits.rule_text(schema, Condition(field="a b", comparison="==", other="if"))
    assert text == "`a b` == `if`"
    edits.with_rule(text, schema)


BAD_RULES: list[tuple[Condition, str]] = [
    (Condition(field="age", comparison="<", value="old"), "must be a number"),
    (Condition(field="hurt", comparison="==", value="maybe"), "must be yes or no"),
    (Condition(field="arrived", comparison="<", value="soon"), "YYYY-MM-DD"),
    (Condition(field="gone", comparison="<", value="1"), "no field 'gone'"),
    (Condition(field="age", comparison="<", other="gone"), "no field 'gone'"),
]


@pytest.mark.parametrize(("then", "said"), BAD_RULES, ids=[case[1] for case in BAD_RULES])
def test_what_cannot_be_compared_is_refused(project: Project, then: Condition, said: str) -> None:
    with pytest.raises(SchemaError) as refused:
        edits.rule_text(project.read().schema, then)
    assert said in str(refused.value)


def test_a_rule_that_is_there_or_that_an_example_breaks_is_refused(project: Project) -> None:
    schema = confirm_all(project)
    record, _ = edits.read_example(schema, EXAMPLE, set(EXAMPLE))
    schema = change(project, edits.with_example(record))
    with pytest.raises(SchemaError, match="example 1 breaks this rule"):
        edits.with_rule("low > high", schema)
    schema = change(project, edits.with_rule("low < high", schema))
    with pytest.raises(SchemaError, match="there already"):
        edits.with_rule("low < high", schema)
    with pytest.raises(SchemaError, match="no such entry"):
        edits.without_item("rules", 1, schema)


# -- settings --------------------------------------------------------------------------------------------------------


def test_what_is_to_be_confirmed_is_known_until_it_is(project: Project) -> None:
    now = project.read()
    assert set(now.asked) == {"encoding", "delimiter", "rows"}
    now = project.change(
        "settings", edits.settings_change({"rows": "50"}), revision=now.revision, confirmed=("rows", "encoding")
    )  # fmt: skip
    assert (now.asked, now.settings.rows) == (("delimiter",), 50)
    assert "how its text is written: confirmed" in settings_text(project)


def test_what_the_table_does_not_tell_is_asked_and_can_be_said(project: Project) -> None:
    line = "# day_first: true    # the table does not tell whether day or month comes first: please say\n"
    project.config.write_text(settings_text(project).replace("schema: ", line + "schema: "), encoding="utf-8")
    assert "day_first" in project.read().asked
    made = edits.settings_change({"day_first": "no"})
    now = project.change("settings", made, revision=project.revision(), confirmed=("day_first",))
    assert now.settings.day_first is False
    assert "day_first" not in now.asked
    assert "please say" not in settings_text(project)


def test_settings_are_read_as_typed_and_taken_away_when_empty(project: Project) -> None:
    typed = {"epsilon": "1.5", "records": "40", "budget": "3", "test": "held.csv", "unit": "case_id"}
    now = project.change("settings", edits.settings_change(typed), revision=project.revision())
    assert (now.settings.epsilon, now.settings.records, now.settings.budget) == (1.5, 40, 3)
    now = project.change("settings", edits.settings_change({"budget": "", "unit": ""}), revision=now.revision)
    assert (now.settings.budget, now.settings.unit) == (None, None)
    assert "smaller is more private" in settings_text(project)
    assert load_config(project.config, environment={}).epsilon == 1.5


BAD_SETTINGS = [
    ({"epsilon": "much"}, "epsilon: must be a number"),
    ({"epsilon": "inf"}, "epsilon: must be a number"),
    ({"epsilon": "-1"}, "epsilon must be 0 or above"),
    ({"records": "1.5"}, "records: must be a whole number"),
    ({"records": "0"}, "must be greater than or equal to 1"),
    ({"rows": "0"}, "must be greater than or equal to 1"),
    ({"day_first": "true"}, "day_first: must be yes or no"),
    ({"delimiter": ";;"}, "at most 1 character"),
    ({"decimal": "'"}, "decimal"),
    ({"dataset": "other"}, "'dataset' cannot be set here"),
    ({"out": "/"}, "'out' cannot be set here"),
]


@pytest.mark.parametrize(("typed", "said"), BAD_SETTINGS, ids=[case[1] for case in BAD_SETTINGS])
def test_settings_that_cannot_be_are_refused_and_nothing_is_written(
    project: Project, typed: dict[str, str], said: str
) -> None:
    before = settings_text(project)
    with pytest.raises((ConfigError, SelPEError)) as refused:
        project.change("settings", edits.settings_change(typed), revision=project.revision())
    assert said in str(refused.value)
    assert settings_text(project) == before
