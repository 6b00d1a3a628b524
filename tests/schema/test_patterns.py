"""Patterns that users write mean what they mean to Python, and no text can make them slow."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selpe.errors import SchemaError
from selpe.models.sampled_text import sample_pattern
from selpe.schema import Schema
from selpe.schema.patterns import PatternError, Where, _cased, _category_edges, matcher
from selpe.schema.rules import Rule

# Patterns that take `re` longer than anybody waits, each with a text.
WORST = [
    ("(x+x+)+y", "x" * 400),
    ("(a|aa)+!", "a" * 400),
    ("(a|a)*b", "a" * 400),
    ("([a-zA-Z]+)*!", "a" * 400),
    (r"(\w+\s?)*!", "a " * 200),
    (r"(.*)*,(.*)*,(.*)*;", "," * 400),
    (r"([0-9]+,?)+[a-z]", "1," * 200),
    (r"(a?){60}a{60}", "a" * 59),
    (r"(([a-z])+.)+[A-Z]([a-z])+", "a" * 400),
    (r"([a-zA-Z0-9_.-])+@(([a-zA-Z0-9-])+.)+([a-zA-Z0-9]{2,4})+", "a@" + "a." * 190),
    (r"(?:(?:\w{1,9}){1,9} ?){1,9}#", "word " * 80),
]


NEW = pytest.mark.skipif(sys.version_info < (3, 11), reason="new in Python 3.11")


def schema_with(pattern: str) -> Schema:
    return Schema.from_dict({"name": "x", "fields": {"note": {"kind": "text", "pattern": pattern}}})


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("pattern", "text"), WORST)
def test_the_worst_patterns_come_to_an_end(pattern: str, text: str) -> None:
    assert schema_with(pattern).check({"note": text})
    document = {"title": "x", "properties": {"note": {"type": "string", "pattern": f"^{pattern}$"}}}
    assert Schema.from_json_schema(document).check({"note": text})
    fields = schema_with(".*").fields
    for operator in ("=~", "=~~"):
        assert not Rule.parse(f'note {operator} r"{pattern}"', fields).holds({"note": text})
    # The library compares texts that are known while it reads a rule, and takes patterns from fields.
    Rule.parse(f'note != "" and "{text}" =~ r"{pattern}"', fields)
    two = Schema.from_dict({"name": "x", "fields": {"note": {"kind": "text"}, "like": {"kind": "text"}}})
    assert not Rule.parse("note =~ like", two.fields).holds({"note": text, "like": pattern})


@pytest.mark.timeout(60)
def test_a_text_is_sampled_under_the_worst_patterns() -> None:
    import random

    for pattern, _ in WORST:
        sample_pattern(pattern, random.Random(1), longest=40)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "rule",
    ["a < (1 << 99999999999)", "(1e999999999).floor > a", "(10**999999).floor > a", "(1e99**9999).floor > a",
     "[[[[x for x in n.to_ary] for x in n.to_ary] for x in n.to_ary] for x in n.to_ary] == [a]",
     "a > " + "(" * 100_000],
)  # fmt: skip
def test_a_short_rule_that_would_take_hours_is_refused(rule: str) -> None:
    schema = Schema.from_dict(
        {"name": "x", "fields": {"a": {"kind": "integer", "min": 0, "max": 9}, "n": {"kind": "text"}}}
    )
    with pytest.raises(SchemaError):
        Rule.parse(rule, schema.fields)


# -- the same meaning ----------------------------------------------------------------------------------------------

LETTERS = "aAbBkKſ\u212aİıßẞéÉ٣²ⅷ字0_ \t\n\u00a0\u2003.-^$[]\\\U00010400\U00010428\U000f0000"
ATOMS = [
    *"abkAKéß0_ .", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\.", r"\\", r"\n", r"\u00e9", "[a-c]", "[^a-c]",
    "[abk]", r"[\w-]", r"[^\d\s]", r"[\W_]", "[a&&b]", "[]a]", "[^^]", r"[\]\\]", "[À-ÿ]", "[A-Z]", "(?i:k)",
    "(?i:[a-z])", "(?a:\\w)", "(?s:.)", "(?-i:A)", "(?#no)",
]  # fmt: skip
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}?", "{,2}", "{2,}", "{", "{x}"]


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.builds("(?:{}){}".format, inner, st.sampled_from(REPEATS)),
        st.builds("(?P<n>{})".format, inner),
    )


PATTERNS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "", "", "(?i)", "(?a)", "(?s)", "(?ia)", "(?x)"]),
    st.sampled_from(["", "", "^", r"\A"]),
    st.recursive(st.sampled_from(ATOMS), _grown, max_leaves=6),
    st.sampled_from(["", "", "$", r"\Z"]),
)
TEXTS = st.text(st.sampled_from(LETTERS) | st.characters(), max_size=8)


def python_says(pattern: str, text: str, where: Where) -> bool | None:
    """What `re` says of a text; None where it does not know the pattern."""
    try:
        compiled = re.compile(pattern)
    except re.error:
        return None
    how: Any = {"whole": compiled.fullmatch, "start": compiled.match, "anywhere": compiled.search}[where]
    return how(text) is not None


@pytest.mark.filterwarnings("ignore:Possible")
@given(
    pattern=PATTERNS,
    texts=st.lists(TEXTS, min_size=1, max_size=6),
    where=st.sampled_from(["whole", "start", "anywhere"]),
)
@settings(max_examples=400, deadline=None)
def test_a_pattern_means_what_it_means_to_python(pattern: str, texts: list[str], where: Where) -> None:
    said = [python_says(pattern, text, where) for text in texts]
    if None in said:
        with pytest.raises(PatternError):
            matcher(pattern, where)
    else:
        assert [matcher(pattern, where).matches(text) for text in texts] == said


@pytest.mark.parametrize(
    "pattern",
    [r"\w", r"\d", r"\s", r"\W", r"(?i)k", r"(?i)s", r"(?i)[à-þ]", r"(?i)i", "(?i)[^a]", r"(?a)\w", "(?ai)k", ".",
     "[^ -~]", "(?i)\u1e9e", "(?i)\u0390", "(?i)\ufb05", r"[\U00020000-\U0010ffff]"],
)  # fmt: skip
def test_every_character_of_unicode_falls_into_the_class_that_python_says(pattern: str) -> None:
    """Also those that Unicode added last: the classes are asked of this Python."""
    ours, python = matcher(pattern), re.compile(pattern)
    every = {*range(0x3000), *range(0x3000, sys.maxunicode + 1, 23), *_category_edges(), *_cased()} - {
        sys.maxunicode + 1
    }
    differ = [hex(code) for code in every if ours.matches(chr(code)) != (python.fullmatch(chr(code)) is not None)]
    assert differ == []


def test_every_letter_that_has_a_case_is_known() -> None:
    known = _cased()
    every = map(chr, range(sys.maxunicode + 1))
    assert all(ord(char) in known for char in every if char.lower() != char or char.upper() != char)


@given(
    pattern=st.sampled_from([r"\bpain\b", r"\ba", r"a\b", r"\b.\b", r"a\b.", r"(?i)\bé+\b"]),
    text=st.text(st.sampled_from("pain .é-_1\n字"), max_size=12) | st.just("no pain, no gain"),
)
@settings(max_examples=200, deadline=None)
def test_rules_know_the_ends_of_words(pattern: str, text: str) -> None:
    for where in ("start", "anywhere"):
        assert matcher(pattern, where).matches(text) == python_says(pattern, text, where)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [("a{0,4000}", "a" * 4000, True), ("a{0,4000}", "a" * 4001, False), ("a{4000}", "a" * 4000, True),
     ("a{1500,}", "a" * 1499, False), ("a{1500,}", "a" * 1500, True), ("(?:a{3}b{0,40}){30,40}", "aaab" * 35, True),
     ("(?:a{3}b{0,40}){30,40}", "aaab" * 29, False), ("(?:a{3}b{0,40}){30,40}", "aaab" * 41, False),
     ("(?:(?:a{20}){10}){10}", "a" * 2000, True), ("(?:(?:a{20}){10}){10}", "a" * 1999, False),
     ("(){3}a", "a", True), ("(?:a{2}){0}b", "b", True), (r"[^\s\S]|b", "b", True), (r"[^\s\S]", "b", False),
     ("", "", True)],
)  # fmt: skip
def test_repetitions_are_counted_exactly(pattern: str, text: str, matches: bool) -> None:
    assert matcher(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("(?=a)a", "look-around"), ("(?<!a)b", "look-around"), (r"(a)\1", "back-references"), (r"\ba", "word boundaries"),
     ("a{5001}", "simpler"), ("((a{0,99}){0,99}){0,99}", "simpler"), ("a" * 10_001, "simpler"), ("a$b", r"\^ and \$"),
     ("(?m)^a$|b", r"\^ and \$"), ("[", "Python can read"), ("(" * 5000, "Python can read"),
     ("a{999999999999}", "Python can read|simpler"), pytest.param("a++", "possessive", marks=NEW),
     pytest.param("(?>a)", "possessive", marks=NEW)],
)  # fmt: skip
def test_what_cannot_be_matched_in_linear_time_is_refused_when_the_schema_is_read(pattern: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said) as refused:
        schema_with(pattern)
    assert refused.value.hint
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_a_pattern_says_the_same_of_a_text_whatever_was_read_before() -> None:
    """A matcher keeps states between texts; its answers must not depend on them."""
    texts = ["a" * 400, "ab" * 200, "b", "a" * 60 + "b", "é" * 400]
    fresh = []
    for text in texts:
        matcher.cache_clear()
        fresh.append(matcher("((a{0,9}){0,40}b?){0,9}").matches(text))
    for _ in range(3):
        assert [matcher("((a{0,9}){0,40}b?){0,9}").matches(text) for text in texts] == fresh


def test_rules_of_other_programs_in_this_process_are_left_alone() -> None:
    import rule_engine

    assert rule_engine.Rule(r'name =~ "(?=a)a(.)" and $re_groups[0] == "b"').matches({"name": "ab"})
