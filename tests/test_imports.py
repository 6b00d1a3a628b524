"""The direction of imports holds, and a wrong one is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLANTED = {
    "method/algorithm.py": "selpe.cli",
    "evaluation/roc.py": "selpe.report.render",
    "privacy/votes.py": "selpe.run.lifecycle",
    "api.py": "selpe.models.open",
}


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = (sys.executable, "-c", program, "--no-cache", "--config", str(ROOT / "pyproject.toml"))
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


@pytest.mark.parametrize(("module", "imported"), PLANTED.items())
def test_a_planted_wrong_import_breaks_the_contract(source: Path, module: str, imported: str) -> None:
    path = source / "selpe" / module
    path.write_text(f"{path.read_text(encoding='utf-8')}\nimport {imported}\n", encoding="utf-8")
    found = lint(source)
    assert found.returncode == 1, found.stdout + found.stderr
    where = f"selpe.{module.removesuffix('.py').replace('/', '.')}"
    assert f"{where} -> {imported}" in " ".join(found.stdout.split())


def test_the_contract_says_who_may_open_models(source: Path) -> None:
    assert "Models and encoders are opened by run.session alone KEPT" in lint(source).stdout


def test_the_contract_holds(source: Path) -> None:
    found = lint(source)
    assert found.returncode == 0, found.stdout + found.stderr
