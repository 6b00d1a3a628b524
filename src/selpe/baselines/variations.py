"""Public ways to vary a text: tones to rephrase it in, blanks to fill in, and keywords to start from."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from selpe.schema import CategoryField, Schema, TextField, Value

# How a rewritten record should sound: our own list, and public. One is drawn for every rephrasing.
TONES = (
    "in a matter-of-fact tone", "in a warm tone", "in a hurried tone", "in the words of an expert",
    "in the words of a beginner", "as a worried person would put it", "as a calm observer would put it",
    "in as few words as possible", "with one more detail", "with fewer details", "in everyday language",
    "in formal language", "as a note to oneself", "as a message to a colleague", "as a report to a superior",
    "with the most important thing first", "in the order in which things happened", "with doubts", "with confidence",
    "politely", "bluntly", "as an older person would put it", "as a young person would put it",
    "for a slightly different case", "for a milder case", "for a more serious case", "with different numbers",
    "with the same facts in other words",
)  # fmt: skip
BLANK = "_"
_WORD = re.compile(r"\w+(?:[.,'’-]\w+)*")
_MOST_KEYWORDS = 400


def tone(chance: random.Random) -> str:
    """Any of the tones."""
    return chance.choice(TONES)


def blanked(text: str, share: float, chance: random.Random) -> str:
    """The text with about this share of its words blanked out.

    Where it is a JSON object, field names stay: what is to be filled in are its values.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return _blank_words(text, share, chance)
    values = (_blank_words(_shown(value), share, chance) for value in content.values())
    pairs = (f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in zip(content, values, strict=True))
    return "{" + ", ".join(pairs) + "}"


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _blank_words(text: str, share: float, chance: random.Random) -> str:
    return _WORD.sub(lambda word: BLANK if chance.random() < share else word.group(), text)


def words_in(text: str) -> int:
    """How many words a text has."""
    return len(_WORD.findall(text))


def keywords_of(schema: Schema, own: Sequence[str] = ()) -> tuple[str, ...]:
    """Public keywords to start a text from: the user's own, else what the schema says of its fields.

    These are the values of categories other than the label, with their descriptions, and the longer words of example
    texts and field descriptions. Nothing of it comes from private rows.
    """
    if own:
        return tuple(own)
    found: dict[str, None] = {}
    for field in schema.fields:
        if isinstance(field, CategoryField) and field.name != schema.label:
            for value in field.values:
                found[f"{field.title}: {field.descriptions.get(value) or value}"] = None
        if isinstance(field, TextField):
            texts: list[Value] = [*field.examples, *(record.get(field.name) for record in schema.examples)]
            for text in texts:
                found |= dict.fromkeys(word for word in _WORD.findall(str(text or "")) if len(word) > 4)
    return tuple(found)[:_MOST_KEYWORDS]
