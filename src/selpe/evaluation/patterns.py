r"""Regular expressions that both grammars are made of: JSON's lexemes, and values as people and models write them.

Every pattern is read by Lark and by `re`, so it is ASCII, has no capturing group, and never puts a quote right after
a backslash (Lark's grammar files unescape that pair). Every repetition is anchored or bounded, so that no text can
make the matcher go back over the same characters again and again.
"""

from __future__ import annotations

# -- JSON (RFC 8259) -----------------------------------------------------------------------------------------------

SPACE = r"[ \t\r\n]"
_PLAIN = r"[^\x22\\\x00-\x1f\ud800-\udfff]"
STRING = rf"\x22{_PLAIN}*(?:\\(?:[bfnrt\\\/\x22]|u[0-9a-fA-F]{{4}}){_PLAIN}*)*\x22"
JSON_INTEGER = r"-?(?:0|[1-9][0-9]*)(?![0-9.eE])"
JSON_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

# JSON's short escapes, as patterns.
_SHORT = {
    '"': r"\\\x22",
    "\\": r"\\\\",
    "/": r"\\\/",
    "\b": r"\\b",
    "\f": r"\\f",
    "\n": r"\\n",
    "\r": r"\\r",
    "\t": r"\\t",
}


def literal(text: str) -> str:
    """A pattern for exactly this text, in ASCII."""
    return "".join(_literal(char) for char in text)


def _literal(char: str) -> str:
    if char == "/":
        return r"\/"
    if char.isascii() and char.isalnum():
        return char
    if char == "\\":
        return r"\\"
    if char in "\"'" or not char.isascii() or not char.isprintable():
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char if char in " _%&,:;<=>@`!" else f"\\{char}"


def json_key(name: str) -> str:
    """A pattern for the name as a JSON string, in every spelling that JSON's escapes allow."""
    return rf"\x22{''.join(_json_char(char) for char in name)}\x22"


def _json_char(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    spellings = ["".join(rf"\\u{_hex(code)}" for code in codes)]
    if char in _SHORT:
        spellings.append(_SHORT[char])
    if char not in '"\\' and char >= " ":
        spellings.insert(0, _literal(char))
    return f"(?:{'|'.join(spellings)})"


def _hex(code: int) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:04x}")


# -- values in free text -------------------------------------------------------------------------------------------

# What may stand around a value: quotes, emphasis, brackets.
WRAP = r"[*_`\x22\x27\[(<\u201c\u2018\u00ab]{0,4}"

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_ABOUT = r"(?:(?:about|approximately|approx\.?|around|roughly|circa|ca\.)[ \t]+)?[~\u2248]?[ \t]?"
_BEFORE = rf"{_ABOUT}[$\u20ac\u00a3\u00a5\u20b9]?[ \t]?"
# Not the end of a number: more digits, a decimal comma, a range, a time, a version, a date, hexadecimal, or a word
# that multiplies it. A slash may follow once: 7/10, 120/80.
_AFTER = (
    r"(?![0-9]|[.,:\-\u2013][0-9]|[ \u00a0\u2009\u202f][0-9]|[eE][+\-]?[0-9]|[xX][0-9a-fA-F]|\/[0-9]{1,9}\/"
    r"|[ ]?(?:[kKM]|thousand|million|billion|lakh|crore)(?![A-Za-z]))"
)
_SIGN = r"[+\-\u2212]?"
NUMBER_BODY = rf"{_SIGN}(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+\-]?[0-9]+)?"
INTEGER_BODY = rf"{_SIGN}{_DIGITS}(?:\.0+)?"
NUMBER = rf"{WRAP}{_BEFORE}{NUMBER_BODY}{_AFTER}"
INTEGER = rf"{WRAP}{_BEFORE}{INTEGER_BODY}{_AFTER}"

BOOLEAN_BODY = r"(?i:true|false|yes|no|on|off|[ytnf10])"
BOOLEAN = rf"{WRAP}{BOOLEAN_BODY}(?!\w|[.,\/\-][0-9]|[ \t]*[:=])"

_YEAR, _MONTH, _DAY = r"[0-9]{4}", r"(?:1[0-2]|0?[1-9])", r"(?:[12][0-9]|3[01]|0?[1-9])"
_NAMED = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_TH = r"(?i:st|nd|rd|th)?"
_GAP = r"[ \t\-,.]{1,3}"
DATE_BODY = "|".join(
    [
        *(rf"{_YEAR}{sep}{_MONTH}{sep}{_DAY}" for sep in (r"-", r"\/", r"\.")),
        *(rf"[0-9]{{1,2}}{sep}[0-9]{{1,2}}{sep}{_YEAR}" for sep in (r"-", r"\/", r"\.")),
        rf"{_DAY}{_TH}{_GAP}(?:of[ ])?{_NAMED}{_GAP}{_YEAR}",
        rf"{_NAMED}{_GAP}{_DAY}{_TH}{_GAP}{_YEAR}",
    ]
)
_WEEKDAY = r"(?:(?i:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?i:day)?,?[ ])?"
DATE = rf"{WRAP}{_WEEKDAY}(?:{DATE_BODY})(?![0-9]|[\-\/.][0-9])"

# Text in quotes: double ones as in JSON (line breaks forgiven), single ones up to a quote that ends a value, so that
# an apostrophe inside does not; curly ones up to their partner.
_EMPHASIS = r"[*_`]{0,3}"
_PAIRS = ((r"\u201c", r"\u201d"), (r"\u2018", r"\u2019"), (r"\u00ab", r"\u00bb"), ("`", "`"))


def quoted(at_least: int) -> str:
    """A pattern for text in quotes with at least so many characters (0 or 1)."""
    # Bounds keep a thousand opening quotes on one line from reading that line a thousand times.
    inside, ends = r"[^\x27\\\n]{0,1000}", r"[ \t]*(?:[,;})\]|\n]|\Z)"
    some, some_single = (r"(?!\x22)", rf"(?!\x27{ends})") if at_least else ("", "")
    double = rf"\x22{some}[^\x22\\]*(?:\\[\s\S][^\x22\\]*)*\x22(?![ \t]*[:=])"
    single = rf"\x27{some_single}{inside}(?:(?:\\[^\n]|\x27(?!{ends})){inside}){{0,20}}\x27(?={ends})"
    paired = [rf"{first}[^{last}\n]{{1,1000}}{last}" for first, last in _PAIRS]
    return rf"{_EMPHASIS}(?:{'|'.join([double, single, *paired])})"


# A character that says something, and what may stand before it: ASCII punctuation (but no double quote, bar or brace),
# dashes, curly quotes.
_CONTENT = r"[^\s\x00-\x2f:-@\[-`{-\x7f\u2010-\u2027]"
_LEAD = r"[ \t!#-\/:-@\[-`~\u2010-\u2027]"


def bare(key: str) -> str:
    """A pattern for text without quotes: up to the end of the line, a bar, a closing brace or the next key."""
    return rf"(?:(?!{key}){_LEAD}){{0,12}}(?!{key}){_CONTENT}[^\n|}}]*?(?=[\n|}}]|\Z|{key})"
