"""Random texts that match a regular expression: what the fake model writes into fields with a pattern."""

from __future__ import annotations

import random
import string
from typing import Any

from selpe.schema.patterns import matcher, parsed

_LETTERS = string.ascii_letters + string.digits + " "
_CLASSES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": string.ascii_letters + string.digits + "_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": string.ascii_letters,
    "CATEGORY_NOT_SPACE": string.ascii_letters + string.digits,
    "CATEGORY_NOT_WORD": " -.,",
}


def sample_pattern(pattern: str, chance: random.Random, shortest: int = 0, longest: int = 400) -> str:
    """A text that matches a pattern without look-around, within a length where one can be found."""
    checker = matcher(pattern)
    tree = parsed(pattern)
    text = ""
    for attempt in range(200):
        # Repeats grow with the attempts, so that a minimum length is reached in the end.
        text = _sample(tree, chance, extra=3 + attempt // 4)
        if shortest <= len(text) <= longest and checker.matches(text):
            return text
    return text


def _sample(tree: Any, chance: random.Random, extra: int) -> str:
    return "".join(_node(str(code), argument, chance, extra) for code, argument in tree)


def _node(code: str, argument: Any, chance: random.Random, extra: int) -> str:
    if code == "LITERAL":
        return chr(argument)
    if code == "ANY":
        return chance.choice(_LETTERS)
    if code == "NOT_LITERAL":
        return chance.choice([letter for letter in _LETTERS if ord(letter) != argument])
    if code == "IN":
        return _member(argument, chance)
    if code == "BRANCH":
        return _sample(chance.choice(argument[1]), chance, extra)
    if code == "SUBPATTERN":
        return _sample(argument[-1], chance, extra)
    if code in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, high, body = argument
        count = chance.randint(int(low), int(min(int(high), int(low) + extra)))
        return "".join(_sample(body, chance, extra) for _ in range(count))
    return ""  # anchors match without text


def _member(entries: Any, chance: random.Random) -> str:
    letters: list[str] = []
    negated = False
    for code, argument in entries:
        if str(code) == "NEGATE":
            negated = True
        elif str(code) == "LITERAL":
            letters.append(chr(argument))
        elif str(code) == "RANGE":
            letters.extend(chr(point) for point in range(argument[0], min(argument[1], argument[0] + 200) + 1))
        elif str(code) == "CATEGORY":
            letters.extend(_CLASSES.get(str(argument), ""))
    if negated:
        letters = [letter for letter in _LETTERS if letter not in letters] or ["~"]
    return chance.choice(letters)
