"""Patterns that users write, in the fields and rules of a schema: read by Python's grammar, matched by RE2.

This is the only place that reads or matches them. `re` goes back over a text again and again, so that a schema with
`(x+x+)+y` would stop a run, a server or a reader for ever; RE2 never goes back, and its time grows with the text alone.
What a pattern means stays Python's: its own parser takes the pattern apart, and its own matcher says which characters
each class holds. RE2 sees neither: each character is replaced by that of its class (those that no part of the pattern
tells apart), so that only their order is left to it, and `\\w{0,400}` is as cheap as `a{0,400}`.

Why not LLGuidance, which is installed anyway: it keeps states between texts and gives up when there are too many, so
that what it says of one row can depend on another.
"""

from __future__ import annotations

import importlib
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, TypeAlias

from selpe.errors import SchemaError

Where: TypeAlias = Literal["whole", "start", "anywhere"]

MOST_CHARACTERS = 10_000  # of a pattern, also with its repetitions written out
MOST_REPEATED = 5_000  # of them, those of one repetition
_MOST_REPEATS = 1000  # RE2's own limit, also for repetitions within repetitions
_MEMORY = 64 * 2**20
_WORDS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"  # what RE2's \b takes for words
_NOTHING = r"[^\x{0}-\x{10FFFF}]"
_BACKWARDS = "the pattern must not use look-around, word boundaries or back-references"
_SIMPLER = (
    f"the pattern must be simpler: of {MOST_CHARACTERS:,} characters at most, {MOST_REPEATED:,} of them "
    "by one repetition (a{1,9} counts as nine)"
)
_HINTS = {
    _BACKWARDS: "a model writes from left to right under the pattern; state what may stand there instead",
    "": "write it without the surrounding ^ and $; it always matches the whole text",
}

_ASSIGNED = 0x40000  # Unicode assigns no letter, digit or space from here on
_WITH_CASES = (range(0x3000), range(0xA000, 0xB000), range(0xF900, 0x20000))  # everything but East Asian signs
_MOST_ATOMS = 300  # parts of a pattern with categories or without letter case, which Python is asked about

Node: TypeAlias = tuple[Any, Any]


class PatternError(SchemaError):
    """A pattern that cannot be used, and why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=_HINTS.get(message, _HINTS[""]))


def parsed(pattern: str) -> Any:
    """The tree of a pattern, by Python's own parser. Raises PatternError where Python cannot read it."""
    if len(pattern) > MOST_CHARACTERS:
        raise PatternError(_SIMPLER)
    try:
        return _sre("parse").parse(pattern)
    except (re.error, OverflowError, RecursionError):
        pass
    raise PatternError("the pattern must be a regular expression that Python can read")


@lru_cache(maxsize=256)
def matcher(pattern: str, where: Where = "whole") -> Matcher:
    """What matches a pattern: the whole text, its start, or any part of it. Raises PatternError."""
    return Matcher(pattern, where)


class Matcher:
    """A pattern that has been read. The time it takes grows with the text, whatever the pattern."""

    def __init__(self, pattern: str, where: Where) -> None:
        tree = parsed(pattern)
        try:
            script = _Script(tree, where)
        except RecursionError:
            script = None
        self._classes = {} if script is None else script.classes
        self._engine = None if script is None else _engine(script.text)
        if self._engine is None:
            raise PatternError(_SIMPLER)
        self._match = {
            "whole": self._engine.fullmatch, "start": self._engine.match, "anywhere": self._engine.search
        }[where]  # fmt: skip

    def matches(self, text: str) -> bool:
        """Whether a text matches."""
        return self._match(text.translate(self._classes).encode()) is not None


def _engine(script: str) -> Any:
    try:
        import re2
    except ImportError as missing:
        raise PatternError(
            "patterns need the package google-re2, which is not installed here: pip install google-re2"
        ) from missing
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    try:
        return re2.compile(script.encode(), options)
    except re2.error:
        return None


class _Script:
    """A pattern as RE2 reads it, and the class that each character is replaced by."""

    def __init__(self, tree: Any, where: Where) -> None:
        self._where = where
        self._atoms: dict[tuple[Any, int], int] = {}
        self._flags = tree.state.flags
        parts, _, _ = self._sequence(tree, self._flags, last=True)
        if sum(map(_asked, self._atoms)) > _MOST_ATOMS:
            raise PatternError(_SIMPLER)
        self.classes = _Classes([_edges(*atom) for atom in self._atoms])
        if r"\b" in parts and self.classes.crowded:
            raise PatternError(_SIMPLER)
        self.text = "".join(self.classes.written(part) if isinstance(part, int) else part for part in parts)

    def _atom(self, node: Node, flags: int) -> int:
        """The number of a part of the pattern that takes one character."""
        kind, what = node
        key = (kind, tuple(what) if isinstance(what, list) else what), flags
        return self._atoms.setdefault(key, len(self._atoms))

    def _sequence(self, nodes: Iterable[Node], flags: int, last: bool) -> tuple[list[Any], int, int]:
        """What stands for these nodes, how many characters they spell, and their largest count of repetitions."""
        nodes = list(nodes)
        parts: list[Any] = []
        size, deep = 0, 1
        for place, node in enumerate(nodes):
            found, spelt, repeated = self._node(node, flags, last and place == len(nodes) - 1)
            size, deep = size + spelt, max(deep, repeated)
            if size > MOST_CHARACTERS:
                raise PatternError(_SIMPLER)
            parts += found
        return parts, size, deep

    def _node(self, node: Node, flags: int, last: bool) -> tuple[list[Any], int, int]:
        kind, what = str(node[0]), node[1]
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return [self._atom(node, flags)], 1, 1
        if kind == "SUBPATTERN":
            _, added, removed, inner = what
            kept = flags & ~(re.ASCII | re.UNICODE) if added & (re.ASCII | re.UNICODE) else flags
            parts, size, deep = self._sequence(inner, (kept | added) & ~removed, last)
            return ["(?:", *parts, ")"], size, deep
        if kind == "BRANCH":
            found = [self._sequence(branch, flags, last) for branch in what[1]]
            parts = list(chain.from_iterable(["|", *branch] for branch, _, _ in found))[1:]
            return ["(?:", *parts, ")"], sum(size for _, size, _ in found), max(deep for _, _, deep in found)
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeated(what, flags)
        if kind == "AT":
            return self._edge(str(what), flags, last), 0, 1
        if kind in ("ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
            raise PatternError("the pattern must not use possessive repetitions or atomic groups")
        raise PatternError(_BACKWARDS)

    def _repeated(self, what: Any, flags: int) -> tuple[list[Any], int, int]:
        low, high, inner = int(what[0]), int(what[1]), what[2]
        parts, size, deep = self._sequence(inner, flags, last=False)
        part = ["(?:", *parts, ")"]
        if not size:  # it takes no text, so that once is as good as often
            return [*part, "" if low else "?"], 0, deep
        endless = what[1] == _sre("parse").MAXREPEAT
        spelt = size * (low + 1 if endless else high)
        if spelt > MOST_REPEATED:
            raise PatternError(_SIMPLER)
        most = _MOST_REPEATS // deep  # at once
        written: list[Any] = []
        for count, how in ((low, "{{{0}}}"), (0 if endless else high - low, "{{0,{0}}}")):
            for start in range(0, count, most):
                written += [*part, how.format(min(most, count - start))]
        written += [*part, "*"] if endless else []
        return ["(?:", *written, ")"], spelt, deep * min(most, max(low, 0 if endless else high - low, 1))

    def _edge(self, kind: str, flags: int, last: bool) -> list[Any]:
        if kind == "AT_BOUNDARY" and self._where != "whole":
            self._atom((_sre("parse").IN, ((_sre("parse").CATEGORY, _sre("parse").CATEGORY_WORD),)), self._flags)
            return [r"\b"]
        if kind == "AT_BEGINNING_STRING" or (kind == "AT_BEGINNING" and not flags & re.MULTILINE):
            return [r"\A"]
        if kind == "AT_END_STRING":
            return [r"\z"]
        if kind == "AT_END" and last and not flags & re.MULTILINE:
            newline = self._atom((_sre("parse").LITERAL, 10), 0)  # `$` also stands before a last line feed
            return [r"\z"] if self._where == "whole" else ["(?:", newline, r")?\z"]
        if kind in ("AT_BEGINNING", "AT_END"):
            raise PatternError("the pattern must not use ^ and $ in its middle, or for the ends of lines")
        raise PatternError(_BACKWARDS)


class _Classes(dict[int, int]):
    """For each character, the one that stands for its class; filled as texts bring them."""

    def __init__(self, atoms: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        turns: dict[int, set[int]] = {0: set()}
        for number, edges in enumerate(atoms):
            for edge in edges:
                turns.setdefault(edge, set()).add(number)
        self._starts = sorted(turns)
        self._signs: list[int] = []  # of the characters from each start up to the next
        self._of_atom: list[set[int]] = [set() for _ in atoms]
        signs: dict[frozenset[int], int] = {}
        words, others = map(ord, _WORDS), _other_signs()
        self.crowded = False  # more classes of letters and digits than RE2 takes for parts of words
        inside: frozenset[int] = frozenset()
        for start in self._starts:
            inside ^= turns[start]
            if inside not in signs:
                word = _WORD.match(chr(start)) is not None
                signs[inside] = next(words, 0) if word else next(others)
                self.crowded = self.crowded or not signs[inside]
                signs[inside] = signs[inside] or next(others)
                for number in inside:
                    self._of_atom[number].add(signs[inside])
            self._signs.append(signs[inside])

    def __missing__(self, character: int) -> int:
        sign = self[character] = self._signs[bisect_right(self._starts, character) - 1]
        return sign

    def written(self, atom: int) -> str:
        """The classes of one part of the pattern as RE2 reads them."""
        signs = sorted(self._of_atom[atom])
        return "[" + "".join(f"\\x{{{sign:x}}}" for sign in signs) + "]" if signs else _NOTHING


_WORD = re.compile(r"\w")


def _other_signs() -> Iterator[int]:
    """Characters for classes that hold no part of a word."""
    return (sign for sign in range(1, 0xD800) if chr(sign) not in _WORDS)


# -- which characters a part of a pattern takes --------------------------------------------------------------------


def _asked(atom: tuple[Node, int]) -> bool:
    """Whether only Python knows what it takes: classes such as \\w, and letters of either case."""
    (kind, what), flags = atom
    if str(kind) == "IN" and any(str(code) == "CATEGORY" for code, _ in what):
        return True
    return bool(flags & re.IGNORECASE) and str(kind) != "ANY"


@lru_cache(maxsize=1024)
def _edges(node: Node, flags: int) -> tuple[int, ...]:
    """The characters from which on it takes them, or no longer: in, out, in …"""
    places = {0}
    kind, what = str(node[0]), node[1]
    for code, argument in what if kind == "IN" else [node]:
        if str(code) in ("LITERAL", "NOT_LITERAL"):
            places |= {argument, argument + 1}
        elif str(code) == "RANGE":
            places |= {argument[0], argument[1] + 1}
        elif str(code) == "CATEGORY":
            places |= _category_edges()
        elif str(code) == "ANY":
            places |= {10, 11}
    if flags & re.IGNORECASE:
        places |= _cased()
    takes = _one_character(node, flags)
    edges: list[int] = []
    for place in sorted(places - {sys.maxunicode + 1}):
        if (takes.match(chr(place)) is not None) != len(edges) % 2:
            edges.append(place)
    return tuple(edges)


def _one_character(node: Node, flags: int) -> re.Pattern[str]:
    """A single part of a pattern by itself, as Python compiles it."""
    parser = _sre("parse")
    state = parser.State()
    state.flags, state.str = flags, ""
    kind, what = node
    inner = parser.SubPattern(state, [(kind, list(what) if isinstance(what, tuple) else what)])
    compiled: re.Pattern[str] = _sre("compile").compile(inner, flags)
    return compiled


@lru_cache(maxsize=1)
def _category_edges() -> frozenset[int]:
    """Where words, digits or spaces begin or end among all characters."""
    every = "".join(map(chr, range(_ASSIGNED)))
    runs = (match.span() for category in (r"\w+", r"\d+", r"\s+") for match in re.finditer(category, every))
    # With re.ASCII, the categories end within ASCII.
    return frozenset(chain(range(129), chain.from_iterable(runs)))


@lru_cache(maxsize=1)
def _cased() -> frozenset[int]:
    """The characters that have a letter case, and those after them."""
    every = chain(*_WITH_CASES)
    found = [place for place in every if chr(place).lower() != chr(place) or chr(place).upper() != chr(place)]
    return frozenset(chain(found, (place + 1 for place in found)))


def _sre(part: Literal["parse", "compile"]) -> Any:
    """A part of Python's own regular expressions; they moved in 3.11."""
    new = {"parse": "re._parser", "compile": "re._compiler"}[part]
    return importlib.import_module(new if sys.version_info >= (3, 11) else f"sre_{part}")
