"""Docs that cannot rot: generated pages are up to date, links lead somewhere, and named commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from selpe.cli import build
from selpe.schema import Schema

ROOT = Path(__file__).resolve().parents[1]
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


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in text
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
