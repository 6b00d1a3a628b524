"""Changes of a YAML text: what was not meant stays as it was, comments included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from selpe.errors import SchemaError
from selpe.studio.yaml_edit import assign, edited, remove
from selpe.yaml import parse_yaml

TEXT = """\
# head
name: "desk"    # a name
# between

fields:
  # about one
  one:
    kind: category
    values:    # listed
      "a":
      "b": bee    # buzz
    confirmed: false    # is it?

  # about two
  two:
    kind: integer
    min: 0
    max: 9
    # trailing of two
# rules to come
# rules:
#   - one < two
"""
COMMENTS = [line.partition("#")[2].strip() for line in TEXT.splitlines() if "#" in line]


def changed(change: Callable[[Any], None], text: str = TEXT) -> str:
    return edited(text, change, where="t.yaml", error=SchemaError)


def comments(text: str) -> list[str]:
    return [line.partition("#")[2].strip() for line in text.splitlines() if "#" in line]


def test_no_change_is_no_change() -> None:
    assert changed(lambda content: None) == TEXT


CHANGES: list[tuple[str, Callable[[Any], None], set[str]]] = [
    ("one scalar", lambda c: assign(c["fields"]["two"], "max", 11), set()),
    ("the same again", lambda c: assign(c["fields"]["two"], "max", 9), set()),
    ("confirming", lambda c: assign(c["fields"]["one"], "confirmed", True), set()),
    ("a new key before another", lambda c: assign(c["fields"]["one"], "optional", True, before="confirmed"), set()),
    ("a new key at the end", lambda c: assign(c, "rules", ["two > 1"]), set()),
    ("values replaced", lambda c: assign(c["fields"]["one"], "values", {"x": None}), {"buzz"}),
    ("a last key removed", lambda c: remove(c["fields"]["two"], "max"), set()),
    ("the last field removed", lambda c: remove(c["fields"], "two"), set()),
    ("the first field removed", lambda c: remove(c["fields"], "one"), {"about one", "listed", "buzz", "is it?"}),
    ("a key with a comment removed", lambda c: remove(c["fields"]["one"], "confirmed"), {"is it?"}),
]


@pytest.mark.parametrize(("change", "lost"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_only_comments_of_what_was_changed_are_lost(change: Callable[[Any], None], lost: set[str]) -> None:
    after = changed(change)
    assert {line for line in COMMENTS if line not in comments(after)} <= lost
    parse_yaml(after, where="t.yaml", error=SchemaError)


def test_items_of_a_list_are_removed_with_what_stands_behind_them_kept() -> None:
    text = "rules:\n  - a < b\n  # why\n  - c < d\n# the end\n"
    after = changed(lambda content: remove(content["rules"], 1), text)
    assert after == "rules:\n  - a < b\n  # why\n# the end\n"
    assert "# why" in changed(lambda content: remove(content["rules"], 0), text)


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(SchemaError, match="mapping"):
        changed(lambda content: None, "- a\n")


def test_what_is_no_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(SchemaError, match="not YAML") as refused:
        changed(lambda content: None, "a: [1\n")
    assert refused.value.where.startswith("t.yaml:")
