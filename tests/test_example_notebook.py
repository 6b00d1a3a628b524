"""The example notebook runs from top to bottom, is typed, and is shipped without outputs. Jupyter is not needed."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from page_reader import inert_piece
from selpe import SelPE
from selpe.privacy.ledger import Ledger

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "triage.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


def code() -> list[str]:
    return ["".join(cell["source"]) for cell in cells("code")]


def run(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell as a notebook does: the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        return exec(compile(tree, NOTEBOOK.name, "exec"), names)
    exec(compile(ast.Module(tree.body[:-1], []), NOTEBOOK.name, "exec"), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the examples' folder, in which the notebook is started."""
    shutil.copytree(ROOT / "examples" / "triage", tmp_path / "triage")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("error::selpe.errors.InferredTypesWarning")
def test_the_notebook_runs_and_fitting_again_spends_nothing(started: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run(cell, names) for cell in code()]
    ours = [value for value in shown if type(value).__module__.startswith("selpe") and hasattr(value, "_repr_html_")]
    for value in ours:
        inert_piece(value._repr_html_())
    assert [type(value).__name__ for value in ours] == ["Draft", "Schema", "Plan", "SelPE", "PrivacyCard"]
    assert isinstance(names["again"], SelPE)
    assert names["selpe"].card["guarantee"]["epsilon"]["replace_one"] == pytest.approx(2.0)
    assert set(names["urgent"]["acuity"]) == {"1"}
    assert (names["selpe"].run_folder / "internal" / "report.html").is_file()
    assert {path.name for path in started.iterdir()} <= {"triage", "runs", "ledgers", "config"}
    spent = Ledger.open("triage-notebook").charges()
    assert spent
    run(next(cell for cell in code() if ".fit(" in cell), names)
    assert Ledger.open("triage-notebook").charges() == spent


def test_the_notebook_is_shipped_without_outputs_and_explains_every_step() -> None:
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells("code")] == [([], None)] * len(code())
    assert len(cells("markdown")) >= 10
    assert max(len(line) for source in code() for line in source.splitlines()) <= 120


@pytest.mark.slow
def test_the_notebook_is_typed_and_a_mistake_in_it_would_be_noticed(tmp_path: Path) -> None:
    source = "\n\n".join(code())
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(source, encoding="utf-8")
    wrong.write_text(source + '\nselpe.sample("five")\nselpe.smaple()\n', encoding="utf-8")
    # From the root, where `make lint` has left what it knows of all our modules.
    command = [sys.executable, "-m", "mypy", str(right), str(wrong)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert {Path(line.partition(":")[0]).name for line in errors} == {"wrong.py"}, done.stdout + done.stderr
    assert any('"smaple"' in line for line in errors)
    assert any('"sample"' in line and "overload" in line for line in errors)
