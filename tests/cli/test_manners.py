"""The command line as a stranger meets it: help, version, exit codes, errors without tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import selpe.cli as command_line
from selpe import __version__
from selpe.cli import console
from selpe.errors import BudgetError, DataError, ExitCode, ModelError, SchemaError


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "selpe", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
    )


def test_help_lists_the_commands_in_the_order_of_use() -> None:
    done = run("--help")
    assert done.returncode == 0
    places = [done.stdout.index(f" {name} ") for name in ("demo", "init", "check", "plan", "run", "resume", "budget")]
    assert places == sorted(places)


def test_the_version_is_said() -> None:
    assert run("--version").stdout.strip() == f"selpe {__version__}"


def test_help_starts_without_numpy_pandas_or_the_engines() -> None:
    code = (
        "import sys\nfrom selpe.cli import build\nbuild()\n"
        "heavy = {'numpy', 'pandas', 'openvino', 'opendp', 'sklearn', 'pydantic', 'pyarrow'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [("no-such-command",), ("schema",), ("release",), ("run", "--no-such-flag")])
def test_a_wrong_call_is_bad_input_and_shows_how_it_is_meant(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == ExitCode.BAD_INPUT
    assert "Traceback" not in done.stderr
    assert "Usage" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SchemaError("wrong", hint="mend it", where="schema.yaml:3"), 2),
        (DataError("wrong", hint="mend it", where="schema.yaml:3"), 2),
        (BudgetError("wrong", hint="mend it", where="schema.yaml:3"), 3),
        (ModelError("wrong", hint="mend it", where="schema.yaml:3"), 1),
        (KeyboardInterrupt(), 130),
        (RuntimeError("MARKER"), 1),
    ],
)
def test_every_error_has_its_exit_code_and_no_foreign_message_is_shown(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build() -> typer.Typer:
        app = typer.Typer(pretty_exceptions_enable=False)
        app.callback()(command_line._options)

        @app.command()
        def fail() -> None:
            raise error

        return app

    monkeypatch.setattr(command_line, "build", build)
    monkeypatch.setattr(console.MANNERS, "json", False)
    console.err.cache_clear()
    with pytest.raises(SystemExit) as left:
        command_line.main(["fail", "--json"])
    shown = capsys.readouterr()
    console.err.cache_clear()
    assert left.value.code == code
    assert "MARKER" not in shown.out + shown.err
    assert "Traceback" not in shown.err
    if code in (2, 3):
        assert "schema.yaml:3: wrong" in shown.err
        assert "mend it" in shown.err
        assert json.loads(shown.out)["error"]["hint"] == "mend it"


def test_flags_for_machines_may_stand_behind_the_command(tmp_path: Path) -> None:
    done = run("schema", "show", str(tmp_path / "none.yaml"), "--json")
    assert done.returncode == ExitCode.BAD_INPUT
    assert json.loads(done.stdout.splitlines()[0])["error"]["kind"] == "schema"


# -- streams, encodings and homes that are not as usual


CLOSING = """
import os, sys
for number in map(int, sys.argv[1]):
    os.close(number)
os.execv(sys.executable, [sys.executable, "-m", "selpe", *sys.argv[2:]])
"""


def closed(numbers: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CLOSING, numbers, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.skipif(os.name == "nt", reason="a program there is not started with closed streams")
@pytest.mark.parametrize("numbers", ["0", "1", "2", "12", "012"])
def test_closed_streams_change_neither_what_is_done_nor_its_exit_code(numbers: str) -> None:
    done = closed(numbers, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if "1" in numbers else f"selpe {__version__}\n")
    failed = closed(numbers, "--json", "schema", "show", "none.yaml")
    assert failed.returncode == ExitCode.BAD_INPUT
    assert ("there is no such file" in failed.stdout) == ("1" not in numbers)
    assert ("there is no such file" in failed.stderr) == ("2" not in numbers)
    assert "Traceback" not in failed.stderr


@pytest.mark.skipif(os.name == "nt", reason="a program there is not started with closed streams")
def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.close(0); os.close(1); os.close(2); sys.stdin = sys.stdout = sys.stderr = None\n"
        "from selpe.cli import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: pass\n"
        f"kept = open({str(tmp_path / 'ledger')!r}, 'w')\n"
        "kept.write(str(kept.fileno())); os.write(1, b'said'); os.write(2, b'said')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert int((tmp_path / "ledger").read_text()) > 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [("no-such-command",), ("schema", "show", "none.yaml")])
def test_an_error_that_cannot_be_said_has_its_exit_code_all_the_same(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "selpe", "--json", *words], stdout=full, stderr=full, check=False)
    assert done.returncode == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    "locale",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C"}],
)
def test_a_locale_without_our_letters_shows_question_marks(locale: dict[str, str]) -> None:
    done = run("run", "--help", **locale)
    assert (done.returncode, done.stderr) == (0, "")
    assert "selpe run" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_a_file_that_the_locale_cannot_name_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "selpe.yaml").write_text("dataset: d\nschema: Prüfung.yaml\ndata: d.csv\n", encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("plan", str(tmp_path / "selpe.yaml"), **plain)
    assert done.returncode == ExitCode.BAD_INPUT
    assert "Traceback" not in done.stderr
    assert "unexpected" not in done.stderr
