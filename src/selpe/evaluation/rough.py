"""R-CFG: is every required field somewhere in the text, and readable for its kind? Enums and ranges do not matter.

The same parse reads structured fields out of the free text of methods that do not write JSON (`extract`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from selpe.evaluation.grammar import rough_grammar
from selpe.evaluation.lexical import lexeme, says_nothing, value_of
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    from lark import Lark

# A record has a few dozen pairs; beyond this many tokens there is only noise, and reading stops.
MAX_TOKENS = 10_000
_Entry: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class RoughVerdict:
    """What R-CFG says of one output: the text found for each field, and the required fields it lacks."""

    found: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    unparsable: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every required field is there and readable."""
        return not self.missing and not self.unparsable


class RoughParser:
    """The R-CFG validator of one schema."""

    def __init__(self, schema: Schema) -> None:
        from lark import Lark

        self._schema = schema
        self._lark: Lark = Lark(rough_grammar(schema), parser="lalr", lexer="contextual")

    def judge(self, raw: str) -> RoughVerdict:
        """The verdict on one raw output."""
        entries = list(self._entries(raw))
        found = self._record(entries)
        named = {name for name, _ in entries}
        absent = [name for name in self._schema.required if name not in found]
        return RoughVerdict(
            found,
            tuple(name for name in absent if name not in named),
            tuple(name for name in absent if name in named),
        )

    def extract(self, raw: str) -> Record:
        """The fields that can be read from a raw output, converted by kind; None for the rest. No domain check."""
        found = self._record(list(self._entries(raw)))
        return {
            entry.name: value_of(entry, found[entry.name]) if entry.name in found else None
            for entry in self._schema.fields
        }

    def _entries(self, raw: str) -> Iterator[_Entry]:
        """Each key in the text with the text of its value, or None where no readable value follows."""
        key: str | None = None
        for number, token in enumerate(self._lark.parse_interactive(_unwrapped(raw)).iter_parse()):
            if number > MAX_TOKENS:
                break
            if token.type.startswith(("KEY_", "NAME_")):
                if key is not None:
                    yield key, None
                key = self._schema.names[int(token.type.rpartition("_")[2])]
            elif key is not None:
                yield key, self._read(key, token.type, str(token))
                key = None
        if key is not None:
            yield key, None

    def _read(self, key: str, kind: str, token: str) -> str | None:
        if kind in ("JUNK", "OTHER", "NULL"):
            return None
        field = self._schema.field(key)
        text = lexeme(field, token)
        if kind == "BARE" and says_nothing(field, text):
            return None
        return text if text or kind == "STRING" else None

    def _record(self, entries: list[_Entry]) -> dict[str, str]:
        """The first stretch of text that holds every required field; failing that, each field's first readable text."""
        required = set(self._schema.required)
        first: dict[str, str] = {}
        stretch: dict[str, str] = {}
        for name, text in entries:
            if text is None:
                continue
            first.setdefault(name, text)
            if name in stretch:
                if required <= stretch.keys():
                    return stretch
                stretch = {}
            stretch[name] = text
        return stretch if required <= stretch.keys() else first


def _unwrapped(raw: str) -> str:
    """The text inside an output that is one JSON string: some models write their record twice encoded."""
    text = raw.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return raw
    return raw
