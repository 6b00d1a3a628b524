"""What a newcomer meets: the question before ε is spent, controls, mistakes told at once, and what is packed."""

from __future__ import annotations

import json
import socket
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from in_process import selpe
from selpe.cli.console import err
from selpe.cli.demo import EXAMPLES, example_folder
from selpe.cli.display import PlainLines, chosen
from selpe.cli.records_shown import telling
from selpe.errors import ConfigError, ModelError, ModelNotFoundError, StoppedError, did_you_mean
from selpe.intake import write_table
from selpe.intake.options import ReadingOptions
from selpe.models.names import require_listening, require_names
from selpe.models.speed import Pace
from selpe.privacy.ledger import Ledger
from selpe.report.gather import gather
from selpe.run.judgement import JUDGED, Judgement, judgement_of, told_to_receivers
from selpe.run.preflight import Preflight
from selpe.run.progress import ProgressReading
from selpe.run.verify import verify_release
from selpe.schema import Schema
from small_world import SCHEMA, drawn

CONFIG = """
dataset: desk
data: desk.csv
schema: schema.yaml
records: 12
llm: fake
encoder: hash
guides: off
bundles: 0
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, schema and table."""
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40), SCHEMA, tmp_path / "desk.csv")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[tuple[str, bool]]]:
    """Somebody at a terminal who gives one answer to everything; what was asked, and the default answer, is kept."""

    def answering(answer: bool) -> list[tuple[str, bool]]:
        questions: list[tuple[str, bool]] = []

        def confirm(text: str, *, default: bool = False, err: bool = False) -> bool:
            questions.append((text, default))
            return answer

        monkeypatch.setattr("selpe.cli.questions.can_ask", lambda: True)
        monkeypatch.setattr("typer.confirm", confirm)
        return questions

    return answering


def spent(project: Path) -> float:
    return Ledger.open("desk", root=project / "ledgers").spent().epsilon_replace_one


def runs(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "runs").glob("*"))


# -- before ε is spent -----------------------------------------------------------------------------------------------


def test_without_a_terminal_nothing_is_spent_until_the_owner_says_so(project: Path) -> None:
    refused = selpe("run", "--name", "mine")
    assert refused.code == 2
    assert "the only run that this table's budget allows" in refused.err
    assert "add -y" in refused.err
    assert (runs(project), (project / "ledgers").exists()) == ([], False)
    assert selpe("run", "--json", "--name", "mine").code == 2
    assert selpe("run", "--name", "mine", "-y").code == 0
    assert spent(project) == pytest.approx(2.0)


def test_a_control_that_spends_nothing_needs_no_word(project: Path) -> None:
    assert selpe("run", "--name", "free", "--epsilon", "0").code == 0
    refused = selpe("run", "--name", "open", "--epsilon", "inf")
    assert (refused.code, "without any privacy" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ((), "This is the only run that this table's budget allows: it spends all of ε = 2. Start?"),
        (("--set", "budget=3"), "This spends ε = 2, and leaves 1 for later runs. Start?"),
        (("--epsilon", "inf"), "What this control writes is NOT private. Start?"),
    ],
)
def test_the_question_says_what_the_run_costs_and_no_is_the_default(
    project: Path, asked: Callable[[bool], list[tuple[str, bool]]], words: tuple[str, ...], question: str
) -> None:
    questions = asked(False)
    result = selpe("run", "--name", "mine", *words)
    assert questions == [(question, False)]
    assert (result.code, "nothing was spent" in result.err) == (130, True)
    assert (runs(project), (project / "ledgers").exists()) == ([], False)


def test_the_run_that_takes_the_rest_of_a_budget_is_the_last_one(
    project: Path, asked: Callable[[bool], list[tuple[str, bool]]]
) -> None:
    assert selpe("run", "-y", "--set", "budget=3").code == 0
    questions = asked(True)
    result = selpe("run", "--epsilon", "1")
    assert result.code == 0, result.err
    assert questions[0][0].startswith("This is the last run")
    assert "of 1 left on this table: no further run will be possible" in result.out


def test_the_outlook_tells_machines_what_a_run_leaves(project: Path) -> None:
    (whole,) = selpe("run", "--dry-run", "--json").lines
    (part,) = selpe("run", "--dry-run", "--json", "--set", "budget=5").lines
    (none,) = selpe("run", "--dry-run", "--json", "--epsilon", "0").lines
    left = [line["outlook"]["budget_left_after"] for line in (whole, part, none)]
    assert left == [0.0, pytest.approx(3.0), None]


def test_the_fake_model_does_not_spend_without_a_word_for_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SELPE_ALLOW_FAKE")
    refused = selpe("run", "-y")
    assert (refused.code, "--allow-fake" in refused.err) == (2, True)
    assert (runs(project), (project / "ledgers").exists()) == ([], False)
    assert selpe("run", "--epsilon", "0").code == 0
    assert selpe("run", "-y", "--allow-fake").code == 0


# -- controls --------------------------------------------------------------------------------------------------------


def manifest(project: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / "runs" / run / "manifest.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("words", [(), ("--set", "measure=off", "--set", "guides=auto", "--set", "bundles=4")])
def test_a_control_copies_the_plan_of_the_run_and_spends_nothing(project: Path, words: tuple[str, ...]) -> None:
    assert selpe("run", "-y", "--name", "mine", "--records", "40", "--seed", "3", *words).code == 0
    alone = selpe("run", "--dry-run", "--json", "--epsilon", "0", "--records", "40", *words).lines[0]["outlook"]["plan"]
    before = spent(project)
    result = selpe("run", "--control", "mine")
    assert result.code == 0, result.err
    assert "selpe evaluate runs/mine --control runs/mine-control" in result.out
    run, control = manifest(project, "mine"), manifest(project, "mine-control")
    assert float(control["settings"]["epsilon"]) == 0.0
    same = ("records", "seed", "llm", "encoder", "measure", "guides", "bundles", "adjacency", "dataset")
    assert {name: run["settings"][name] for name in same} == {name: control["settings"][name] for name in same}
    assert control["chosen"] == run["chosen"]
    assert [part["quota"] for part in control["plan"]["rounds"]] == [part["quota"] for part in run["plan"]["rounds"]]
    assert set(control["prices"]) == set(run["prices"])
    assert {float(price) for price in control["prices"].values()} == {0.0}
    for name in ("fields", "candidates", "tables", "clusters", "bins", "phrases"):
        assert (run["measurement"] or {}).get(name) == (control["measurement"] or {}).get(name)
    assert len(alone["rounds"]) >= len(control["plan"]["rounds"])
    assert spent(project) == pytest.approx(before)


def test_a_control_takes_no_settings_of_its_own_and_is_none_of_a_control(project: Path) -> None:
    assert selpe("run", "-y", "--name", "mine").code == 0
    refused = selpe("run", "--control", "mine", "--records", "5")
    assert (refused.code, "all settings from the run" in refused.err) == (2, True)
    assert selpe("run", "--control", "mine", "--name", "other", "--dry-run").code == 0
    assert selpe("run", "--control", "mine", "--name", "other").code == 0
    refused = selpe("run", "--control", "other")
    assert (refused.code, "is a control itself" in refused.err) == (2, True)
    assert "no such run" in selpe("run", "--control", "nobody").err


def test_a_control_keeps_the_schema_of_its_run(project: Path) -> None:
    assert selpe("run", "-y", "--name", "mine").code == 0
    text = (project / "schema.yaml").read_text(encoding="utf-8")
    (project / "schema.yaml").write_text(text.replace("max: 10", "max: 9"), encoding="utf-8")
    assert selpe("run", "--control", "mine").code == 0
    assert manifest(project, "mine-control")["schema"] == manifest(project, "mine")["schema"]


# -- mistakes are said at once ---------------------------------------------------------------------------------------


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that must not be read, since what is wrong can be told without it."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("the table was read first")

    monkeypatch.setattr("selpe.run.preflight.preflight", read)


@pytest.mark.usefixtures("unread")
def test_a_name_that_is_taken_is_told_before_anything_is_read(project: Path) -> None:
    (project / "runs" / "mine").mkdir(parents=True)
    result = selpe("run", "-y", "--name", "mine")
    assert (result.code, "there is a run 'mine' already" in result.err) == (2, True)
    assert "another name" in result.err


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("words", [("-y",), ("--dry-run",)])
def test_a_wrong_model_name_is_told_before_anything_is_read(words: tuple[str, ...]) -> None:
    result = selpe("run", *words, "--llm", "smolm2")
    assert result.code == 2
    assert "there is no model called 'smolm2'" in result.err
    assert "Did you mean 'smollm2'?" in result.err


@pytest.mark.parametrize(
    "name", ["smollm2", "qwen2.5-1.5b", "fake", "auto", "hf:org/name", "http://127.0.0.1:9/v1", "llamacpp:smollm2"]
)
def test_names_that_may_be_models_pass(name: str) -> None:
    require_names([name])


def test_a_file_that_is_not_there_is_no_model() -> None:
    with pytest.raises(ModelNotFoundError, match="no such model file"):
        require_names(["smollm2", "weights/none.gguf"])


@pytest.fixture
def closed_port() -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.usefixtures("unread")
def test_a_dead_server_is_told_at_once_and_nothing_is_reserved(project: Path, closed_port: int) -> None:
    result = selpe("run", "-y", "--llm", f"http://127.0.0.1:{closed_port}/v1#toy")
    assert result.code == 1
    assert f"nobody listens at 127.0.0.1:{closed_port}" in result.err
    assert (runs(project), (project / "ledgers").exists()) == ([], False)


def test_a_dead_server_is_told_by_a_preview_too(closed_port: int) -> None:
    result = selpe("preview", "--llm", f"http://127.0.0.1:{closed_port}/v1#toy")
    assert (result.code, f"nobody listens at 127.0.0.1:{closed_port}" in result.err) == (1, True)


def test_one_server_of_several_is_enough(closed_port: int) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        alive = listening.getsockname()[1]
        require_listening(f"http://127.0.0.1:{closed_port}/v1,http://127.0.0.1:{alive}/v1#toy")
    with pytest.raises(ModelError, match="nobody listens"):
        require_listening(f"http://127.0.0.1:{closed_port}/v1,http://127.0.0.1:{closed_port}/v1")


def test_a_large_epsilon_and_a_single_class_are_told_before_they_are_paid_for(project: Path) -> None:
    assert "protects very little" in selpe("run", "--dry-run", "--epsilon", "12").out
    assert "factor of 162,755" in selpe("plan", "--epsilon", "12").out
    assert "protects very little" not in selpe("plan", "--epsilon", "10").out
    content = Schema.load(project / "schema.yaml").to_dict()
    label = content["label"]
    content.pop("examples", None)
    values = content["fields"][label]["values"]
    content["fields"][label]["values"] = dict(list(values.items())[:1]) if isinstance(values, dict) else values[:1]
    (project / "schema.yaml").write_text(json.dumps(content), encoding="utf-8")
    assert "has one class only" in selpe("plan").out


def test_an_error_keeps_its_hint_where_only_its_text_is_shown() -> None:
    error = ConfigError("must be 1 or more", where="--rows", hint="leave it out")
    assert str(error) == "--rows: must be 1 or more\n  what to do: leave it out"
    assert (error.said, str(ConfigError("alone"))) == ("--rows: must be 1 or more", "alone")
    shown = selpe("run", "--set", "nonsense").err
    assert shown.count("what to do") <= 1


# -- packing ---------------------------------------------------------------------------------------------------------


def judge(project: Path, grade: str, headline: str) -> None:
    """An evaluation of the run as far as packing looks at it, with a figure that must stay."""
    path = project / "runs" / "mine" / "internal" / "evaluation.json"
    path.write_text(json.dumps({"verdict": {"grade": grade, "headline": headline}, "auc": 87.1234}), encoding="utf-8")


@pytest.fixture
def made(project: Path) -> Path:
    """A finished run that nobody has judged."""
    assert selpe("run", "-y", "--name", "mine").code == 0
    return project


def test_a_release_that_nobody_has_judged_is_packed_on_the_owners_word_alone(
    made: Path, asked: Callable[[bool], list[tuple[str, bool]]]
) -> None:
    refused = selpe("release", "mine", "--to", made / "x.zip")
    assert (refused.code, "never judged" in refused.err, (made / "x.zip").exists()) == (2, True, False)
    questions = asked(False)
    assert selpe("release", "mine", "--to", made / "x.zip").code == 130
    assert (len(questions), questions[0][1], (made / "x.zip").exists()) == (1, False, False)
    assert selpe("release", "mine", "--to", made / "x.zip", "-y").code == 0
    assert len(questions) == 1


@pytest.mark.parametrize(
    ("grade", "asks"), [("good", False), ("fair", False), ("poor", True), ("alarm", True), ("unknown", True)]
)
def test_a_release_that_was_found_wanting_is_asked_about(made: Path, grade: str, asks: bool) -> None:
    judge(made, grade, "Not ready for use" if asks else "Usable, with care")
    result = selpe("release", "mine", "--to", made / "x.zip")
    assert (result.code, "Not ready for use" in result.err) == ((2, True) if asks else (0, False))


def packed_note(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(JUDGED))
        return archive.read(name).decode()


def test_a_receiver_is_told_whether_it_was_judged_and_nothing_of_what_came_of_it(made: Path) -> None:
    assert selpe("release", "mine", "--to", made / "a.zip", "-y").code == 0
    assert "against real records: no." in packed_note(made / "a.zip")
    judge(made, "poor", "Not ready for use")
    assert selpe("release", "mine", "--to", made / "b.zip", "-y").code == 0
    judge(made, "good", "Fit for use")
    assert selpe("release", "mine", "--to", made / "c.zip").code == 0
    assert packed_note(made / "b.zip") == packed_note(made / "c.zip")  # the same whatever the judgement was
    assert "yes, on 20" in packed_note(made / "b.zip")
    assert all(verify_release(made / name).ok for name in ("a.zip", "b.zip", "c.zip"))


def test_the_owner_may_state_something_in_words(made: Path) -> None:
    assert selpe("release", "mine", "--to", made / "a.zip", "-y", "--statement", "for teaching\n only").code == 0
    assert "The owner states: for teaching only\n" in packed_note(made / "a.zip")
    assert selpe("release", "mine", "--to", made / "b.zip", "-y", "--statement", "x" * 1001).code == 2


def test_a_note_that_was_changed_or_lies_loose_is_noticed(made: Path) -> None:
    assert selpe("release", "mine", "--to", made / "a.zip", "-y").code == 0
    with zipfile.ZipFile(made / "a.zip") as archive:
        archive.extractall(made / "unpacked")
    (folder,) = (made / "unpacked").iterdir()
    assert verify_release(folder).ok
    (folder / JUDGED).write_text("Judged: splendid.\n", encoding="utf-8")
    assert not verify_release(folder).ok
    loose = made / "runs" / "mine" / "release" / JUDGED
    loose.write_text("x\n", encoding="utf-8")
    assert not verify_release(loose.parent).ok
    assert selpe("release", "mine", "--to", made / "b.zip", "-y").code == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"verdict": 1}', "[" * 100_000])
def test_an_evaluation_that_cannot_be_read_is_none(made: Path, content: str) -> None:
    (made / "runs" / "mine" / "internal" / "evaluation.json").write_text(content, encoding="utf-8")
    assert judgement_of(made / "runs" / "mine") is None


def test_no_grade_is_in_the_text_for_receivers() -> None:
    told = told_to_receivers(Judgement("poor", "Not ready for use", "2026-01-02"))
    assert "2026-01-02" in told
    assert "poor" not in told
    assert "ready" not in told


def test_nothing_waits_for_long(closed_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(ModelError):
        require_listening(f"http://127.0.0.1:{closed_port}/v1")
    assert time.monotonic() - began < 30  # it used to be a minute and a half of silence


# -- nearest names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--dry-run", "--set", "recrods=5"), "Did you mean 'records'?"),
        (("run", "--dry-run", "--set", "wasp.vots=5"), "Did you mean 'votes'?"),
        (("run", "--dry-run", "--set", "measure=[chanel]"), "Did you mean 'channel'?"),
        (("run", "--dry-run", "--encoder", "minilm2", "--epsilon", "0"), None),
        (("schema", "json", "schema.yaml", "--fixed", "chanel=web"), "Did you mean 'channel'?"),
        (("init", "desk.csv", "--label", "Chanel", "--out", "new"), "Did you mean 'channel'?"),
        (("paln",), "Did you mean"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(words: tuple[str, ...], said: str | None) -> None:
    result = selpe(*words)
    if said is not None:
        assert result.code == 2, result.said
        assert said in result.err


def test_a_run_and_a_rule_are_nearly_named(project: Path) -> None:
    (project / "runs" / "monday").mkdir(parents=True)
    (project / "runs" / "monday" / "manifest.json").write_text("{}", encoding="utf-8")
    assert "Did you mean 'monday'?" in selpe("resume", "munday").err
    content = Schema.load(project / "schema.yaml").to_dict() | {"rules": ["chanel == 'web'"]}
    (project / "schema.yaml").write_text(json.dumps(content), encoding="utf-8")
    assert "Did you mean 'channel'?" in selpe("schema", "show").err


def test_names_that_are_far_from_all_get_no_guess() -> None:
    assert did_you_mean("zebra", ["records", "rounds"]) == ""
    assert did_you_mean("Recrods", ["records", "rounds"]) == "Did you mean 'records'? "


# -- drafts ----------------------------------------------------------------------------------------------------------


def as_draft(project: Path) -> None:
    text = (project / "schema.yaml").read_text(encoding="utf-8")
    draft = text.replace("    kind: text\n", "    kind: text\n    confirmed: false\n", 1)
    (project / "schema.yaml").write_text(draft, encoding="utf-8")


@pytest.mark.parametrize("command", ["plan", "preview"])
def test_what_costs_nothing_works_on_a_draft_and_says_that_a_run_will_not(project: Path, command: str) -> None:
    assert "is a draft" not in selpe(command).said
    as_draft(project)
    result = selpe(command)
    assert result.code == 0, result.err
    assert "This schema is a draft" in result.err
    assert "topic" in result.err


def test_a_draft_which_knows_private_values_is_not_sent_to_a_server(project: Path, closed_port: int) -> None:
    as_draft(project)
    result = selpe("preview", "--llm", f"http://127.0.0.1:{closed_port}/v1#toy")
    assert (result.code, "not confirmed as public yet" in result.err) == (2, True)


# -- whole records ---------------------------------------------------------------------------------------------------


def test_a_preview_shows_every_field_of_a_record_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {**drawn(1)[0], "topic": "a long story " * 40 + "with an end"}
    made = SimpleNamespace(
        record=record, attempts=1, proposal=SimpleNamespace(guide=SimpleNamespace(name="plain"))
    )  # fmt: skip
    monkeypatch.setattr("selpe.method.from_settings.preview", lambda *_: [made, made])
    shown = " ".join(selpe("preview", "-n", "2", "--no-grade").out.split())
    assert shown.count("with an end") == 2
    assert " ".join(("a long story " * 40).split()) in shown
    for field in SCHEMA.fields:
        assert shown.count(field.title) >= 2


# -- checking --------------------------------------------------------------------------------------------------------


def test_a_check_knows_a_wrong_model_from_one_that_is_not_here_yet(project: Path) -> None:
    (project / "selpe.yaml").write_text(CONFIG.replace("llm: fake", "llm: smolm2"), encoding="utf-8")
    result = selpe("check")
    assert (result.code, "Did you mean 'smollm2'?" in result.out) == (2, True)


DATES = """
dataset: days
data: days.csv
schema: days.yaml
llm: fake
encoder: hash
"""
DAYS = """
name: days
fields:
  day: {kind: date, description: The day., min: 2024-01-01, max: 2024-12-31}
  price: {kind: number, description: The price., min: 0, max: 100, step: 0.1}
  stars: {kind: integer, description: Stars., min: 1, max: 5, optional: true}
"""


@pytest.fixture
def days(project: Path) -> Path:
    """A table of European days and decimals, with one cell of an optional field and one row that do not fit."""
    (project / "days.yaml").write_text(DAYS, encoding="utf-8")
    rows = [f"{day:02d}/04/2024;{day},5;{1 + day % 5}" for day in range(1, 26)]
    (project / "days.csv").write_text("day;price;stars\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return project


@pytest.mark.parametrize(
    ("settings", "row", "code"),
    [
        ("day_first: true\ndecimal: ','\n", "", 0),
        ("day_first: false\ndecimal: ','\n", "", 2),
        ("day_first: true\ndecimal: '.'\n", "", 2),
        ("day_first: true\ndecimal: ','\n", "01/05/2024;1,5;9\n", 2),
        ("day_first: true\ndecimal: ','\nblank_bad_cells: true\n", "01/05/2024;1,5;9\n", 0),
        ("day_first: true\ndecimal: ','\nblank_bad_cells: true\n", "01/05/2024;no;1\n", 2),
        ("day_first: true\ndecimal: ','\nskip_bad_rows: true\n", "01/05/2024;no;1\n", 0),
    ],
)
def test_a_check_reads_the_table_as_a_run_would(days: Path, settings: str, row: str, code: int) -> None:
    (days / "selpe.yaml").write_text(DATES + settings, encoding="utf-8")
    with (days / "days.csv").open("a", encoding="utf-8") as file:
        file.write(row)
    result = selpe("check")
    assert result.code == code, result.out
    assert "no;1" not in result.said


def test_tables_without_a_run_are_read_as_asked_and_what_is_left_out_is_told_by_field(days: Path) -> None:
    schema = Schema.load(days / "days.yaml")
    how = ReadingOptions(day_first=True, decimal=",")
    whole = gather(days / "days.csv", schema=schema, private=False, test=days / "days.csv", reading=how)
    assert (len(whole.synthetic), len(whole.test or ()), whole.notes) == (25, 25, ())
    (days / "other.csv").write_text("day;price;stars\n2024-04-01;1,5;3\n2024-04-02;Qzx;3\n", encoding="utf-8")
    part = gather(days / "days.csv", schema=schema, private=False, test=days / "other.csv", reading=how)
    (note,) = part.notes
    assert note.startswith("1 row of the test table do")
    assert "1 in price" in note
    assert "Qzx" not in note
    words = ("evaluate", "days.csv", "--schema", "days.yaml", "--no-private", "--encoder", "hash", "--decimal", ",")
    result = selpe(*words, "--day-first", "--to", "judged", "--json")
    assert result.code == 0, result.err
    assert result.lines[-1]["evaluation"]["tables"] == {"synthetic": 25}
    wrong = selpe(*words, "--month-first", "--to", "judged")
    assert "in day" in wrong.said


# -- what is looked at first, and how long it takes ------------------------------------------------------------------


def test_records_of_all_classes_are_shown_first_and_copies_of_examples_last() -> None:
    fresh = drawn(40)
    label = str(SCHEMA.label)
    circles = {**fresh[0], "topic": "again and again and again and again and again and again"}
    copies = [dict(example) for example in SCHEMA.examples]
    shown = telling(SCHEMA, [*copies, circles, *fresh], 4)
    assert len({record[label] for record in shown}) == len({record[label] for record in fresh})
    assert not [record for record in shown if record in copies or record == circles]
    assert len(telling(SCHEMA, [*copies, circles], 9)) == len(copies) + 1


@pytest.mark.parametrize(
    "worse",
    [
        "The children played in the park every day and made friends.",  # an example, but for a word
        "We had a walk along the beach, and then a",  # not brought to an end
        "The bed, the bed, the bed, the bed and the bed.",
        "2024-05-17.",
    ],
)
def test_of_two_records_of_a_class_the_one_that_reads_well_is_shown_first(worse: str) -> None:
    schema = Schema.load(example_folder(EXAMPLES[0]) / "schema.yaml")
    (record, *_) = schema.examples
    fine, bad = ({**record, "comment": text} for text in ("A calm house with a kind cook.", worse))
    assert telling(schema, [bad, fine], 1) == [fine]
    assert telling(schema, [bad, fine], 2) == [fine, bad]


@pytest.mark.parametrize(("speed", "records"), [(1e9, 60), (50.0, None), (0.5, 12)])
def test_a_demo_writes_as_many_records_as_its_time_allows_here(
    project: Path, monkeypatch: pytest.MonkeyPatch, speed: float, records: int | None
) -> None:
    monkeypatch.setattr("selpe.run.estimate.is_measurable", lambda *_: True)
    monkeypatch.setattr("selpe.models.speed.measure_pace", lambda _, **__: Pace(1e9, speed))
    seen: list[Preflight] = []
    monkeypatch.setattr("selpe.cli.outcome.show_outlook", seen.append)

    def stop(*_: object, **__: object) -> None:
        raise StoppedError("seen enough")

    monkeypatch.setattr("selpe.run.lifecycle.Run.create", stop)
    assert selpe("demo", "--llm", "fake", "--out", "here").code == 130
    (found,) = seen
    if records is None:
        assert 12 < found.config.records < 60
        assert 85 < found.estimate.seconds <= 170
        assert selpe("demo", "--llm", "fake", "--out", "there", "--records", "60").code == 130
        assert seen[-1].config.records == 60
    else:
        assert found.config.records == records
    assert found.plan.records == found.config.records


# -- words of the progress -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ("guide", "private vote for the guide that the model writes by"),
        ("round-2", "private vote for the winners of round 2"),
        ("field-1", "private vote 1 for a field to measure"),
        ("measure-2", "private rows counted, look 2"),
        ("bundle", "private vote for the table to release"),
        ("look-3", "private choice 'look-3'"),
    ],
)
def test_private_steps_are_told_in_words(selection: str, said: str) -> None:
    assert chosen(selection) == said


def test_a_log_says_what_is_prepared_while_there_is_nothing_to_count(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 11.0, 11.0])
    err.cache_clear()
    PlainLines(clock=lambda: next(moments)).tick(ProgressReading(elapsed=11.0))
    err.cache_clear()
    assert capsys.readouterr().err == "[0:11] Preparing: loading the model\n"


def test_a_table_of_five_rows_is_told_to_be_small_from_the_first_command_on(project: Path) -> None:
    write_table(drawn(5), SCHEMA, project / "five.csv")
    assert "fewer than 20 rows" in selpe("init", "five.csv", "--out", "new").out
    assert "fewer than 20 rows" not in selpe("init", "desk.csv", "--out", "other").out
    (project / "selpe.yaml").write_text(CONFIG.replace("desk.csv", "five.csv"), encoding="utf-8")
    assert "fewer than 20 rows" in selpe("check").out
    assert "counts would be all noise" in selpe("plan").out
