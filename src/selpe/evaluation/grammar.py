"""The two grammars of a schema as Lark text: S-CFG, one JSON object and nothing else, and R-CFG, fields in free text.

Both are made from the schema alone and are what the validators run. Field i of the schema appears as `KEY_i`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from selpe.evaluation import patterns
from selpe.evaluation.patterns import SPACE, json_key, literal
from selpe.schema import Field, Schema, TextField

_STRICT_VALUES = {
    "text": "STRING",
    "category": "STRING",
    "date": "STRING",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": "BOOLEAN",
}


def strict_grammar(schema: Schema) -> str:
    """The Lark grammar of S-CFG's first level: one JSON object, known keys, the right JSON types.

    That no key comes twice and none is missing is counted beside the grammar: a context-free grammar would have to
    list every order of the fields.
    """
    pairs = [f'KEY_{i} ":" {_strict_value(field)}' for i, field in enumerate(schema.fields)]
    keys = [f"KEY_{i}: /{json_key(field.name)}/  {_note(field)}" for i, field in enumerate(schema.fields)]
    return "\n".join(
        [
            f"// S-CFG of {_quote(schema.name)}: exactly one JSON object (RFC 8259)",
            'start: "{" (pair ("," pair)*)? "}"',
            f"pair: {_alternatives(pairs)}",
            "",
            *keys,
            "",
            f"STRING: /{patterns.STRING}/",
            f"INTEGER: /{patterns.JSON_INTEGER}/",
            f"NUMBER: /{patterns.JSON_NUMBER}/",
            'BOOLEAN: "true" | "false"',
            'NULL: "null"',
            f"%ignore /{SPACE}+/",
            "",
        ]
    )


def _strict_value(field: Field) -> str:
    terminal = _STRICT_VALUES[field.kind]
    return f"({terminal} | NULL)" if field.optional else terminal


def rough_grammar(schema: Schema) -> str:
    """The Lark grammar of R-CFG: keys with values of the right shape, in any order, amid anything else."""
    exact = [rf"{json_key(field.name)}{SPACE}*:=?" for field in schema.fields]
    names = [_loose_name(field, schema.fields) for field in schema.fields]
    key = _either([*exact, _loose_key(_either(names))])
    entries, terminals = [], []
    for i, field in enumerate(schema.fields):
        entries += [f"KEY_{i} {_rough_value(field)}?", f"NAME_{i} {_rough_value(field)}?"]
        terminals += [
            f"KEY_{i}.9: /{exact[i]}{SPACE}*/  {_note(field)}",
            rf"NAME_{i}.7: /{_loose_key(names[i])}[*_`]{{0,3}}[ \t]*(?:\r?\n[ \t]*)?/",
        ]
    return "\n".join(
        [
            f"// R-CFG of {_quote(schema.name)}: every required field somewhere, readable for its kind",
            "start: (entry | OTHER | JUNK)*",
            f"entry: {_alternatives(entries)}",
            "text: QUOTED | BARE | NULL",
            "blank: STRING | BARE | NULL",
            "",
            "// KEY_i: the key as JSON; NAME_i: the name in prose, lists, tables and other notations",
            *terminals,
            "",
            "// values",
            r"NULL.8: /null(?!\w)/",
            f"QUOTED.8: /{patterns.quoted(1)}/",
            f"STRING.8: /{patterns.quoted(0)}/",
            f"INTEGER.8: /{patterns.INTEGER}/",
            f"NUMBER.8: /{patterns.NUMBER}/",
            f"BOOLEAN.8: /{patterns.BOOLEAN}/",
            f"DATE.8: /{patterns.DATE}/",
            f"BARE.4: /{patterns.bare(key)}/",
            "",
            "// a pair of some other key, skipped as a whole, and everything else up to the next key",
            f"OTHER.3: /{_OTHER}/",
            rf"JUNK.1: /[\s\S]+?(?={key}|{_OTHER}|\Z)/",
            "",
        ]
    )


_OTHER = (
    r"(?:\x22[^\x22\\\n]{1,80}\x22[ \t]*:[ \t]*\x22[^\x22\\\n]*(?:\\.[^\x22\\\n]*)*\x22"
    r"|\x27[^\x27\\\n]{1,80}\x27[ \t]*:[ \t]*\x27[^\x27\\\n]*(?:\\.[^\x27\\\n]*)*\x27)"
)
_ROUGH_VALUES = {"category": "text", "integer": "INTEGER", "number": "NUMBER", "boolean": "BOOLEAN", "date": "DATE"}


def _rough_value(field: Field) -> str:
    if isinstance(field, TextField):
        return "text" if field.min_length else "blank"
    return _ROUGH_VALUES[field.kind]


def _loose_key(name: str) -> str:
    """A pattern for a name with its separator: `k:`, `'k' =`, `**k**:`, `k (unit) ->`, or a table's first cell."""
    close = r"[*_`\x22\x27\])>\u201d\u2019\u00bb]{0,4}"
    unit = r"(?:[ \t]?\([^()\n]{1,20}\)[*_`\x22\x27]{0,3})?"
    named = rf"{patterns.WRAP}{name}{close}{unit}[ \t]{{0,8}}"
    return rf"(?:(?<!\w){named}(?::=?|={{1,2}}>?|->|\u2192|\uff1a)|(?:(?<![^\n])|\|[ \t]{{0,8}}){named}\|)"


def _loose_name(field: Field, fields: Sequence[Field]) -> str:
    """A pattern for the name in any case and with any of space, underscore and hyphen, unless a twin forbids it."""
    name = field.name.strip()
    twins = [other for other in fields if other is not field and _folded(other.name) == _folded(name)]
    if twins or not _folded(name):
        return literal(name or field.name)
    return "".join(_loose_char(char) for char in name)


def _loose_char(char: str) -> str:
    if char in " _-":
        return r"[ _\-]?"
    cases = sorted({case for case in (char, char.lower(), char.upper()) if len(case) == 1})
    return literal(char) if len(cases) == 1 else f"[{''.join(literal(case) for case in cases)}]"


def _folded(name: str) -> str:
    return "".join(char for char in name.upper().lower() if char not in " _-")


def _either(parts: Sequence[str]) -> str:
    return f"(?:{'|'.join(parts)})"


def _alternatives(parts: Sequence[str]) -> str:
    return "\n    | ".join(parts)


def _note(field: Field) -> str:
    return f"// {_quote(field.name)}, {field.kind}{', optional' if field.optional else ''}"


def _quote(text: str) -> str:
    return json.dumps(text)
