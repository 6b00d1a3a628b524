"""YAML with places: a text in, plain data out, and a way to say on which line a thing stands."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from selpe.errors import SelPEError

DEEPEST = 200  # brackets within brackets
MOST_VALUES = 1_000_000  # a file of a few lines can name a billion


def parse_yaml(text: str, *, where: str, error: type[SelPEError]) -> Any:
    """The data of a YAML 1.2 text (no tags, no code). Raises `error` with line and column where it is not YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if "&" in text and "*" in text and len(text) > 100_000:
        raise error("large files must not use YAML anchors", where=where)
    if _deepest(text) > DEEPEST:  # the parser would give up too, but only after minutes
        raise error("the file is nested too deeply", where=where)
    yaml = YAML(typ="rt")
    try:
        content = yaml.load(text)
        if _written_out(content, {}) > MOST_VALUES:
            raise error("the file says too much by YAML anchors", where=where, hint="write out what is meant")
        return content
    except MarkedYAMLError as mark:
        at = mark.problem_mark
        line = f"{where}:{at.line + 1}:{at.column + 1}" if at is not None else where
        raise error(f"this is not YAML ({mark.problem or 'syntax error'})", where=line) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, KeyError, IndexError):
        # ruamel raises bare Python errors on some hostile inputs.
        raise error("this is not YAML", where=where) from None


def _deepest(text: str) -> int:
    """How many brackets are open at most, quoted ones included: an upper bound that needs no parser."""
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if mark in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def _written_out(content: Any, known: dict[int, float]) -> float:
    """How many values there are with every alias written out; without end where one contains itself."""
    if not isinstance(content, (Mapping, list)):
        return 1
    if id(content) not in known:
        known[id(content)] = math.inf  # until it is known: met again inside itself, it has no end
        inside = [*content, *content.values()] if isinstance(content, Mapping) else content
        known[id(content)] = 1 + sum(_written_out(value, known) for value in inside)
    return known[id(content)]


def place(content: Any, path: Sequence[str | int], where: str) -> str:
    """'file:line (a.b.c)' for a path into parsed YAML; without the line for plain data."""
    line: int | None = None
    node = content
    for part in path:
        marks = getattr(node, "lc", None)
        with suppress(KeyError, AttributeError, TypeError, IndexError):
            line = marks.key(part)[0] if isinstance(node, Mapping) else marks.item(part)[0]  # type: ignore[union-attr]
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            break
    shown = ".".join(str(part) for part in path)
    at = f"{where}:{line + 1}" if line is not None else where
    return f"{at} ({shown})" if shown else at
