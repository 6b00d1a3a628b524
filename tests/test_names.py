"""One name for one thing: a reader who looks a class up finds one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import selpe

SRC = Path(selpe.__file__).parent


def test_no_class_name_occurs_twice() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(SRC).as_posix())
    assert len(found) > 100
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
