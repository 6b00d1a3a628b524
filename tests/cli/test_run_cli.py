"""`selpe run` and its companions: outlook, work, result, stopping and going on, packing, and the demo."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from in_process import selpe
from selpe.evaluation.sample_grade import RULE
from selpe.events import Finished, Started
from selpe.intake import read, write_table
from selpe.method import from_settings
from selpe.models.fake import FakeModel
from selpe.privacy.ledger import Ledger
from selpe.run.judgement import JUDGED
from selpe.run.release import RELEASED
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
SLOW = """
import sys, selpe.models.fake as fake
fake.FakeModel.__init__.__kwdefaults__["seconds_per_answer"] = 0.04
from selpe.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, schema and table; ledgers and key of this test alone."""
    SCHEMA.save(tmp_path / "schema.yaml")
    write_table(drawn(40), SCHEMA, tmp_path / "desk.csv")
    (tmp_path / "selpe.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only_run(project: Path) -> Path:
    (folder,) = (project / "runs").iterdir()
    return folder


def spent(project: Path) -> float:
    return Ledger.open("desk", root=project / "ledgers").spent().epsilon_replace_one


# -- run -------------------------------------------------------------------------------------------------------------


def test_a_run_under_add_remove_says_what_its_epsilon_leaves_out_unless_a_number_is_stated() -> None:
    said = selpe("run", "--yes", "--set", "adjacency=add-remove").out
    assert said.count("(add-remove, the number of records apart)") == 2  # before and after
    assert "'rows: 40'" in said
    stated = selpe("run", "--dry-run", "--set", "adjacency=add-remove", "--set", "rows=60").out
    assert "(add-remove)," in stated
    assert "60 records, each one protected (as stated)" in stated
    assert "apart" not in stated


@pytest.mark.parametrize("name", ["../aside", "nul", "a:b", "a.", ""])
def test_a_name_that_is_no_folder_is_refused_before_anything_is_read(
    project: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selpe.cli.beginning._outlook", lambda *_: pytest.fail("the table was read"))
    refused = selpe("run", "--yes", "--name", name)
    assert refused.code == 2
    assert "cannot be a run's name" in refused.err
    assert not (project / "aside").exists()


def test_a_run_says_what_it_will_do_does_it_and_says_where_it_is(project: Path) -> None:
    result = selpe("run", "--yes")
    assert result.code == 0, result.err
    assert "40 records, each one protected" in result.out
    assert "ε = 2 (replace-one), the whole budget of this table: no further run will be possible" in result.out
    assert "12 records" in result.out
    folder = only_run(project)
    assert f"runs/{folder.name}/release/synthetic.csv" in result.out
    assert f"selpe release runs/{folder.name}" in result.out
    assert {path.name for path in (folder / "release").iterdir()} == set(RELEASED)
    assert "writing" in result.err
    assert len(result.err.splitlines()) < 40
    assert spent(project) == pytest.approx(2.0)


def test_machines_get_outlook_events_and_result(project: Path) -> None:
    result = selpe("run", "--yes", "--json", "--name", "mine")
    assert result.code == 0, result.err
    first, *middle, last = result.lines
    assert first["outlook"]["estimate"]["candidates"] == 24  # each record once, and once more around measured facts
    events = [line["event"] for line in middle if "event" in line]
    assert (events[0], events[-1]) == (Started.__name__, Finished.__name__)
    assert (last["done"]["run"], last["done"]["records"], last["done"]["private"]) == ("mine", 12, True)
    assert last["done"]["epsilon"] == pytest.approx(2.0)
    assert result.err == ""


def test_settings_given_by_name_hold_where_their_own_flags_are_not_given() -> None:
    result = selpe("--json", "run", "--dry-run", "--set", "records=7", "--set", "epsilon=0.5")
    assert result.code == 0
    plan = json.loads(result.out)["outlook"]["plan"]
    assert (plan["records"], plan["epsilon"]) == (7, 0.5)


def test_flags_outdo_the_file(project: Path) -> None:
    words = ("--epsilon", "0.5", "--records", "6", "--seed", "7", "--out", "elsewhere", "--set", "multiplicity=2")
    result = selpe("run", "--yes", "--json", *words)
    assert result.code == 0, result.err
    (manifest,) = (json.loads(path.read_text()) for path in (project / "elsewhere").glob("*/manifest.json"))
    found = manifest["settings"]
    assert (found["epsilon"], found["records"], found["seed"], found["multiplicity"]) == ("0.5", 6, 7, 2)


def test_a_profile_is_kept_beside_the_manifest_and_shown_when_asked_for(project: Path) -> None:
    result = selpe("run", "--yes", "--name", "mine", "--profile")
    assert result.code == 0, result.err
    for part in ("read cold", "cores idle", "round 1", "writing the release", "thrown away", "first record after"):
        assert part in result.out
    said = json.loads((project / "runs" / "mine" / "profile.json").read_text())
    counts = json.loads((project / "runs" / "mine" / "manifest.json").read_text())["counts"]
    assert (said["total"]["read"], said["total"]["written"]) == (counts["prompt_tokens"], counts["completion_tokens"])
    assert sum(said["thrown"].values()) == counts["thrown_tokens"]
    assert not (project / "runs" / "mine" / "release" / "profile.json").exists()


def test_a_model_on_this_machine_is_tried_before_the_outlook_and_then_used(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Noting(FakeModel):
        def __init__(self, **settings: Any) -> None:
            opened.append("fake")
            super().__init__(**settings)

    monkeypatch.setattr("selpe.run.estimate.is_measurable", lambda config, found: True)
    monkeypatch.setattr("selpe.models.fake.FakeModel", Noting)
    dry = selpe("--json", "run", "--dry-run")
    assert "measured" not in json.loads(dry.out)["outlook"]["estimate"]["basis"]  # its weights are not here
    opened.clear()
    result = selpe("--json", "run", "--yes", "--name", "mine")
    assert result.code == 0, result.err
    outlook = json.loads(result.out.splitlines()[0])["outlook"]
    assert outlook["estimate"]["basis"] == "measured on this machine just now"
    assert outlook["estimate"]["pace"]["writing"] > 0
    assert opened.count("fake") <= 3  # one for the run; the others count words for the estimate
    assert (project / "runs" / "mine" / "release" / "synthetic.csv").exists()


def test_a_dry_run_leaves_no_trace(project: Path) -> None:
    result = selpe("run", "--dry-run", "--llm", "http://127.0.0.1:9/v1", "--set", "price_in=1", "--set", "price_out=2")
    assert result.code == 0, result.err
    assert "nothing was spent" in result.out
    assert "by your prices" in result.out
    assert sorted(path.name for path in project.iterdir()) == ["desk.csv", "schema.yaml", "selpe.yaml"]


def test_a_run_that_does_not_fit_the_budget_is_refused_before_it_begins(project: Path) -> None:
    assert selpe("run", "--yes").code == 0
    before = spent(project)
    result = selpe("run", "--yes", "--epsilon", "0.5")
    assert result.code == 3
    assert "this run would cost ε 0.5, but only ε 0 of 2 is left" in result.err
    assert (spent(project), len(list((project / "runs").iterdir()))) == (before, 1)
    dry = selpe("run", "--dry-run", "--json")
    assert (dry.code, dry.lines[0]["outlook"]["allowed"]) == (0, False)


def test_half_a_budget_is_enough_for_half_a_run(project: Path) -> None:
    assert selpe("run", "--yes", "--set", "budget=3").code == 0
    assert selpe("run", "--yes").code == 3
    assert selpe("run", "--yes", "--epsilon", "1").code == 0
    assert spent(project) == pytest.approx(3.0)


def test_a_known_table_under_a_new_name_needs_the_owners_word(project: Path) -> None:
    assert selpe("run", "--yes", "--epsilon", "1").code == 0
    refused = selpe("run", "--yes", "--set", "dataset=other")
    assert refused.code == 3
    assert "--same-data-new-ledger" in refused.err
    assert len(list((project / "runs").iterdir())) == 1
    assert selpe("run", "--yes", "--set", "dataset=other", "--same-data-new-ledger").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "nonsense"), "must be name=value"),
        (("--set", "nonsense=1"), "no setting 'nonsense'"),
        (("--epsilon", "-1"), "epsilon must be 0 or above"),
        (("nowhere.yaml",), "no such file"),
        (("--llm", "no-such-model"), "no-such-model"),
        (("--encoder", "no-such-encoder"), "no-such-encoder"),
        (("--method", "magic"), "magic"),
    ],
)
def test_mistakes_are_bad_input_and_leave_nothing_behind(project: Path, words: tuple[str, ...], said: str) -> None:
    result = selpe("run", "--yes", *words)
    assert result.code == 2, result.err
    assert said in result.err
    assert "Traceback" not in result.err
    assert not (project / "runs").exists() or not list((project / "runs").iterdir())
    assert not (project / "ledgers").exists() or spent(project) == 0


def test_an_unconfirmed_schema_stops_before_the_table_is_counted(project: Path) -> None:
    text = (project / "schema.yaml").read_text(encoding="utf-8")
    (project / "schema.yaml").write_text(text.replace("    kind: text\n", "    kind: text\n    confirmed: false\n", 1))
    (project / "desk.csv").unlink()
    result = selpe("run", "--dry-run")
    assert result.code == 2
    assert "topic" in result.err


def test_the_papers_configuration_switches_ours_off(project: Path) -> None:
    (project / "selpe.yaml").write_text(CONFIG.replace("guides: off\nbundles: 0\n", ""), encoding="utf-8")
    result = selpe("run", "--method", "paper", "--json", "--dry-run")
    plan = result.lines[0]["outlook"]["plan"]
    assert (plan["guide_epsilon"], plan["bundle_epsilon"], plan["vote"]) == (None, None, "prototype")
    assert plan["measure"] is None
    plan = selpe("run", "--json", "--dry-run", "--set", "measure=off").lines[0]["outlook"]["plan"]
    assert plan["guide_epsilon"] > 0 < plan["bundle_epsilon"]
    plan = selpe("run", "--json", "--dry-run").lines[0]["outlook"]["plan"]
    assert plan["measure"]["epsilon"] > 0
    assert plan["bundle_epsilon"] is None  # so few rows could not be heard in a last vote


# -- stopping and going on -------------------------------------------------------------------------------------------


def begin_slowly(project: Path, *words: str) -> subprocess.Popen[str]:
    """A run in a process of its own that takes a few seconds; returns when it has begun to write."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "run", "--yes", "--records", "40", "--name", "slow", *words],
        cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    store, until = project / "runs" / "slow" / "work" / "answers.jsonl", time.monotonic() + 300
    while not (store.exists() and store.read_bytes().count(b"\n") >= 20):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


def test_ctrl_c_stops_cleanly_and_resume_finishes_without_doing_anything_twice(project: Path) -> None:
    process = begin_slowly(project)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "selpe resume runs/slow" in said
    assert "Traceback" not in said
    folder = project / "runs" / "slow"
    kept = (folder / "work" / "answers.jsonl").read_bytes()
    assert json.loads((folder / "manifest.json").read_text())["state"] == "interrupted"
    assert not (folder / "release").exists()
    assert selpe("release", "-y", "slow").code == 1
    result = selpe("resume")
    assert result.code == 0, result.err
    assert (folder / "work" / "answers.jsonl").read_bytes().startswith(kept)
    assert json.loads((folder / "manifest.json").read_text())["counts"]["replayed"] >= 20
    assert spent(project) == pytest.approx(2.0)


def test_the_second_ctrl_c_ends_it_at_once(project: Path) -> None:
    process = begin_slowly(project)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode in (130, -signal.SIGINT)
    assert selpe("resume", "slow").code == 0
    assert spent(project) == pytest.approx(2.0)


def test_a_killed_run_is_listed_as_interrupted_and_a_live_one_as_running(project: Path) -> None:
    process = begin_slowly(project)
    assert selpe("runs", "--json").lines[0]["runs"][0]["state"] == "running"
    refused = selpe("resume", "slow")
    assert (refused.code, "another process" in refused.err) == (1, True)
    process.kill()
    process.communicate()
    assert selpe("runs", "--json").lines[0]["runs"][0]["state"] == "interrupted"
    assert "interrupted" in selpe("runs").out
    assert selpe("resume", "slow").code == 0
    assert selpe("runs", "--json").lines[0]["runs"][0]["state"] == "done"


def test_resuming_a_finished_run_says_so_and_spends_nothing(project: Path) -> None:
    assert selpe("run", "--yes", "--name", "mine").code == 0
    result = selpe("resume", "mine")
    assert (result.code, "done already" in result.out) == (0, True)
    assert spent(project) == pytest.approx(2.0)
    assert selpe("resume").code == 1
    assert "no such run" in selpe("resume", "nobody").err


def test_a_run_goes_on_against_the_ledger_it_began_with(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = begin_slowly(project)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    monkeypatch.setenv("SELPE_LEDGER", str(project / "another"))
    assert selpe("resume", "slow").code == 0
    assert not (project / "another").exists()
    assert spent(project) == pytest.approx(2.0)


# -- looking ---------------------------------------------------------------------------------------------------------


def test_preview_needs_no_table_and_spends_nothing(project: Path) -> None:
    (project / "desk.csv").unlink()
    result = selpe("preview", "-n", "4")
    assert result.code == 0, result.err
    assert "nothing was spent" in result.out
    *shown, last = selpe("preview", "-n", "4", "--json").lines
    records = [line["record"] for line in shown]
    assert len(records) == 4
    assert last["grade"]["records"] == 32
    assert [SCHEMA.check(record) for record in records] == [[]] * 4
    assert not (project / "ledgers").exists()


def test_preview_says_whether_the_model_will_do_and_plan_and_run_remember_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selpe.run.session.open_model", lambda llm, **_: FakeModel())
    monkeypatch.setitem(RULE, "readable", (2.0, 2.0))  # nothing is good enough
    asked = ("--set", "llm=some/model.gguf")
    (project / "selpe.yaml").write_text(CONFIG.replace("fake", "some/model.gguf"), encoding="utf-8")
    (project / "some").mkdir()
    (project / "some" / "model.gguf").write_bytes(b"")
    assert "Not graded" in selpe("plan").out
    assert json.loads(selpe("plan", "--json").out)["grade"] is None
    seen = selpe("preview", "-n", "2", *asked)
    assert "Will some/model.gguf do? poor" in seen.out
    for words in ("valid", "own words", "distinct", "classes", "readable", "→ "):
        assert words in seen.out
    assert "poor" in selpe("plan").out
    kept = json.loads(selpe("plan", "--json").out)["grade"]
    assert kept["grade"] == "poor"
    warned = selpe("run", "--dry-run")
    assert "some/model.gguf was poor" in warned.err
    other = SCHEMA.to_yaml().replace("One entry per visitor", "One line per visitor")
    (project / "schema.yaml").write_text(other, encoding="utf-8")
    assert "Not graded" in selpe("plan").out  # another schema, another grade
    assert "was poor" not in selpe("run", "--dry-run").err
    assert "Will some/model.gguf do?" in selpe("plan", "--grade").out


def test_a_run_without_a_sample_grades_its_first_candidates_before_a_private_row_is_looked_at(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selpe.run.session.open_model", lambda llm, **_: FakeModel())
    monkeypatch.setitem(RULE, "readable", (2.0, 2.0))  # nothing is good enough
    for place in ("selpe.models.names", "selpe.run.session"):
        monkeypatch.setattr(f"{place}.require_listening", lambda llm: None)
    asked = ("--set", "llm=http://127.0.0.1:9/v1#m")
    result = selpe("run", "-y", "--json", "--name", "graded", *asked)
    assert result.code == 0, result.err
    events = [line.get("event") for line in result.lines]
    assert events.index("Graded") < events.index("Selected")
    assert events.count("Graded") == 1
    manifest = json.loads((project / "runs" / "graded" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["grade"]["grade"] == "poor"
    again = selpe("run", "--epsilon", "0", *asked)
    assert "was poor" in again.err  # this time it is said before the start
    assert "the model's first candidates are poor" in again.err


def test_preview_without_a_grade_writes_only_what_it_shows(project: Path) -> None:
    lines = selpe("preview", "-n", "3", "--no-grade", "--json").lines
    assert [set(line) for line in lines] == [{"record", "guide", "attempts"}] * 3
    assert not (project / "runs").exists()


def test_codebooks_are_previewed_without_the_table_and_at_no_cost(project: Path) -> None:
    (project / "desk.csv").unlink()
    few = selpe("preview", "--codebook", "--rows", "40").out
    assert "topic (text, 16 codes)" in few
    assert "channel" not in few, "so few rows could not be heard in a vote for a field"
    asked = ("preview", "--codebook", "--rows", "1000")
    result = selpe(*asked)
    assert result.code == 0, result.err
    for words in ("channel (category, 3 codes)", "visit", "(missing)", "a table of 1,000 rows.", "nothing was spent"):
        assert words in result.out
    books = {line["codebook"]["field"]: line["codebook"] for line in selpe(*asked, "--json").lines}
    assert list(books) == [name for name in SCHEMA.names if name != "urgency"]
    assert all(book["size"] == len(book["codes"]) > 1 for book in books.values())
    assert books["channel"]["codes"] == ["phone", "mail", "visit"]
    assert books["minutes"]["codes"][0].startswith("1 to")
    assert not (project / "ledgers").exists()
    assert not (project / "runs").exists()


def test_codebooks_are_of_the_fields_that_are_named(project: Path) -> None:
    many = ("--rows", "1000")  # enough for a vote among all fields
    lines = selpe("preview", "--codebook", "--field", "solved", "--field", "day", *many, "--json").lines
    assert [line["codebook"]["field"] for line in lines] == ["solved", "day"]
    lines = selpe("preview", "--codebook", "--set", "measure=[day]", "--json").lines
    assert [line["codebook"]["field"] for line in lines] == ["day"]
    refused = selpe("preview", "--codebook", "--set", "measure=[day]", "--field", "solved")
    assert (refused.code, "'solved' would not be measured" in refused.err) == (2, True)
    assert "assumed" in selpe("preview", "--codebook", "--field", "topic").out
    assert selpe("preview", "--field", "day").code == 2


def test_a_codebook_is_what_the_run_counts_in(project: Path) -> None:
    told = selpe("preview", "--codebook", "--set", "measure=[channel]", "--json").lines[0]["codebook"]
    assert selpe("run", "--yes", "--name", "one", "--set", "measure=[channel]").code == 0
    found = json.loads((project / "runs" / "one" / "release" / "measurements.json").read_text(encoding="utf-8"))
    assert found["looks"][0]["tables"][0]["axes"][1]["codes"] == told["codes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--rows", "2"), "No table is measured: with 2 records"), (("--set", "measure=off"), "'measure' is off")],
)
def test_where_nothing_would_be_measured_the_preview_says_why(
    project: Path, arguments: tuple[str, str], words: str
) -> None:
    assert words in selpe("preview", "--codebook", *arguments).out
    (line,) = selpe("preview", "--codebook", *arguments, "--json").lines
    assert line["codebook"] is None
    assert words in line["why"]


def test_what_is_measured_is_told_before_the_run_and_where_it_is_after_it(project: Path) -> None:
    result = selpe("run", "--yes", "--name", "one", "--set", "measure=[channel, [channel, solved]]")
    assert result.code == 0, result.err
    assert "class × channel, class × solved, channel × solved; ±" in result.out
    assert "rows a cell (to expect: " in result.out
    assert "measurements.json (noisy counts, free to use)" in result.out
    plain = selpe("run", "--yes", "--name", "two", "--epsilon", "0", "--set", "measure=off")
    assert plain.code == 0, plain.err
    assert "measure" not in plain.out


def test_runs_are_listed_with_state_records_epsilon_and_time(project: Path) -> None:
    assert "no runs" in selpe("runs").out
    selpe("run", "--yes", "--name", "one", "--epsilon", "1", "--set", "budget=2")
    selpe("run", "--yes", "--name", "two", "--epsilon", "1", "--records", "8")
    rows = [line.split()[:4] for line in selpe("runs").out.splitlines()]
    assert rows == [["run", "state", "records", "ε"], ["one", "done", "12", "1"], ["two", "done", "8", "1"]]


def _hear_interrupts() -> None:
    """What a shell starts in the background is deaf to interrupts, and so are its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_watching_a_finished_run_serves_its_page(project: Path) -> None:
    selpe("run", "--yes", "--name", "mine")
    command = [sys.executable, "-m", "selpe", "watch", "mine", "--json"]
    process = subprocess.Popen(
        command,
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_interrupts,  # noqa: PLW1509  (no other thread of this test holds a lock)
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["watch"]
        with urllib.request.urlopen(url, timeout=300) as page:
            assert b"<title>SelPE</title>" in page.read()
        with urllib.request.urlopen(url + "stream", timeout=300) as stream:
            view = json.loads(stream.readline().decode().removeprefix("data: "))
        assert (view["state"], view["reading"]["records"], view["reading"]["share"]) == ("done", 12, 1.0)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_a_run_can_be_watched_while_it_runs(project: Path) -> None:
    process = begin_slowly(project, "--watch", "--json")
    try:
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        url = next(line["watch"] for line in lines if "watch" in line)
        with urllib.request.urlopen(url + "stream", timeout=300) as stream:
            view = json.loads(stream.readline().decode().removeprefix("data: "))
        assert (view["state"], view["reading"]["total"]) == ("running", 80)
    finally:
        process.kill()
        process.communicate()


# -- releasing -------------------------------------------------------------------------------------------------------


def test_a_release_is_packed_and_nothing_else(project: Path) -> None:
    selpe("run", "--yes", "--name", "mine")
    result = selpe("release", "-y", "runs/mine")
    assert result.code == 0, result.err
    assert f"{len(RELEASED) + 1} files and nothing else" in result.out  # and the owner's note
    with zipfile.ZipFile(project / "mine-release.zip") as archive:
        assert len(archive.namelist()) == len(RELEASED) + 2  # and their sums
    packed = selpe("release", "-y", "mine", "--to", project / "x.zip", "--json").lines[0]
    assert (packed["records"], set(packed["files"])) == (12, {*RELEASED, JUDGED})


def test_a_schema_edited_later_does_not_hinder_the_release(project: Path) -> None:
    selpe("run", "--yes", "--name", "mine")
    (project / "schema.yaml").write_text("name: other\nfields: {x: {kind: boolean}}\n", encoding="utf-8")
    assert selpe("release", "-y", "mine").code == 0


def test_a_control_is_stamped_and_released_on_request_only(project: Path) -> None:
    result = selpe("run", "--yes", "--name", "open", "--epsilon", "inf")
    assert result.code == 0, result.err
    assert result.out.count("not private") >= 2
    refused = selpe("release", "-y", "open")
    assert (refused.code, "not private" in refused.err) == (2, True)
    assert not list(project.glob("*.zip"))
    result = selpe("release", "-y", "open", "--not-private-control")
    assert (result.code, "NOT private" in result.out) == (0, True)
    assert [path.name for path in project.glob("*.zip")] == ["open-NOT-PRIVATE.zip"]


# -- the demo --------------------------------------------------------------------------------------------------------


ENOUGH = "30"  # records, so that every class has some whatever the fake model writes


def test_the_demo_works_twice_and_keeps_to_its_folder(project: Path) -> None:
    for folder in ("selpe-demo", "selpe-demo-2"):
        result = selpe("demo", "--llm", "fake", "--records", ENOUGH)
        assert result.code == 0, result.err
        assert "S-CFG 100%: 30 of 30" in result.out
        assert "records per class: happy: 10, mixed: 10, unhappy: 10" in result.out
        assert "differentially private with ε = 2" in result.out
        assert f"{folder}/runs/" in result.out
        assert Ledger.names(project / folder / "ledger") == ["hotel-example"]
    assert not (project / "ledgers").exists()


def test_the_demo_for_machines_is_json_to_the_last_line(project: Path) -> None:
    lines = selpe("demo", "--llm", "fake", "--records", ENOUGH, "--json", "--out", "here").lines
    assert "validity" in lines[-1], lines[-1]
    assert lines[-1]["validity"]["rates"]["rules"] == 1.0
    assert Counter(lines[-1]["classes"]) == {"happy": 10, "mixed": 10, "unhappy": 10}
    refused = selpe("demo", "--out", "here")
    assert (refused.code, "something already" in refused.err) == (2, True)


def test_a_demo_of_a_table_without_a_label_counts_no_classes(project: Path) -> None:
    result = selpe("demo", "--example", "maintenance", "--llm", "fake", "--records", "8")
    assert result.code == 0, result.err
    assert "80 invented reports of a maintenance team" in result.out
    assert "S-CFG 100%: 8 of 8" in result.out
    assert "records per class" not in result.out
    assert Ledger.names(project / "selpe-demo" / "ledger") == ["maintenance-example"]
    refused = selpe("demo", "--example", "nothing")
    assert (refused.code, "anliegen" in refused.err) == (2, True)


def test_help_is_there_for_every_command() -> None:
    for command in ("run", "resume", "preview", "runs", "release", "watch", "demo"):
        result = selpe(command, "--help")
        assert result.code == 0
        assert re.search(rf"selpe {command}\b", result.out)


def test_a_run_reads_its_table_once_and_plans_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    def counted(module: object, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **settings: Any) -> Any:
            counts[name] += 1
            return real(*arguments, **settings)

        monkeypatch.setattr(module, name, call)

    counted(read, "_bytes")
    counted(from_settings, "make_plan")
    result = selpe("run", "--name", "once", "--yes")
    assert result.code == 0, result.err
    assert counts == {"_bytes": 1, "make_plan": 1}
