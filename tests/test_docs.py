"""Docs that cannot rot: generated pages are up to date, links lead somewhere, and named commands exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import selpe
from selpe.cli import build
from selpe.schema import Schema

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "selpe"
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"), ROOT / "CONTRIBUTING.md"])


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/build_reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_lead_to_files_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def known_commands() -> set[str]:
    def walk(command: object, path: tuple[str, ...]) -> set[str]:
        found = {" ".join(path)}
        for name, sub in getattr(command, "commands", {}).items():
            found |= walk(sub, (*path, name))
        return found

    return walk(typer.main.get_command(build()), ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_exist(page: Path) -> None:
    known = known_commands()
    for call in re.findall(r"(?:^|`)\s*selpe ([a-z]+(?: [a-z]+)?)", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert call in known or call.split()[0] in known, f"{page.name} names 'selpe {call}'"


def test_the_schema_page_shows_a_schema_that_reads() -> None:
    text = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    assert Schema.from_yaml(block.group(1)).label == "acuity"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_of_make_in_the_text_exist(page: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= known
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"^make ([a-z-]+) *(?:#.*)?$", text, re.MULTILINE)
    assert set(named) <= known


def _names(body: list[ast.stmt], path: str) -> bool:
    """Whether statements define `Name` or `Class.member`, or take it in by an import or an assignment."""
    first, _, rest = path.partition(".")
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == first:
            return not rest or _names(node.body, rest)
        if isinstance(node, ast.Import | ast.ImportFrom) and first in {a.asname or a.name for a in node.names}:
            return True
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if first in {target.id for target in targets if isinstance(target, ast.Name)}:
            return True
    return False


def _defines(module: Path, path: str) -> bool:
    return _names(ast.parse(module.read_text(encoding="utf-8")).body, path)


def test_every_place_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"`([\w/]+\.(?:py|md))(?::([\w.]+))?`", text)
    assert len([name for _, name in places if name]) > 20
    for file, name in places:
        found = [base / file for base in (SOURCE, ROOT) if (base / file).is_file()] or [SOURCE / file]
        assert found[0].is_file(), file
        assert not name or _defines(found[0], name), f"{file}:{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for file in re.findall(r"src/selpe/[\w/]+\.\w+", text):
        assert (ROOT / file).is_file(), f"{page.name} names {file}"
    for name in re.findall(r"(?:`|from |import )(selpe(?:\.[A-Za-z_]+)+)", text):
        path, rest = SOURCE, name.split(".")[1:]
        while rest and (path / rest[0]).is_dir():
            path /= rest.pop(0)
        module = path / f"{rest.pop(0)}.py" if rest and (path / f"{rest[0]}.py").is_file() else path / "__init__.py"
        if module == SOURCE / "__init__.py":  # what is imported lazily, and the files selpe.yaml and selpe.lock
            assert rest[0] in {*selpe.__all__, "lock", "yaml"}, f"{page.name} names {name}"
        else:
            assert not rest or _defines(module, ".".join(rest)), f"{page.name} names {name}"
