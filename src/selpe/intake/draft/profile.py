"""What a column's cells look like, counted once. It stays in memory: a profile is as private as the table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import pairwise

from selpe.intake.cells import FALSE, MISSING, TRUE, cell_text
from selpe.intake.days import date_readings
from selpe.intake.numerals import read_numeral

_PATTERNS = (
    ("an e-mail address", re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")),
    ("an official number", re.compile(r"[0-9]{3}-[0-9]{2}-[0-9]{4}")),
    ("a telephone number", re.compile(r"(?=.*[+() .-])\+?(?:[0-9][() .-]{0,2}){9,15}|\([0-9]{2,4}\)[0-9 .-]{6,12}")),
    (
        "a bank or card number",
        re.compile(r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){3,7}[A-Z0-9 ]{0,4}|(?:[0-9]{4}[ -]){3}[0-9]{4}"),
    ),
)
_EMAIL_INSIDE = re.compile(r"\S@\S+\.[A-Za-z]{2,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One column: its cells as text, and what they read as."""

    name: str
    position: int
    rows: int
    cells: tuple[tuple[int, str], ...] = field(repr=False)  # row number and text of each cell that is not missing
    counts: Counter[str] = field(repr=False)
    numbers: dict[str, Decimal] = field(repr=False)
    days: dict[str, tuple[date, ...]] = field(repr=False)
    percent: bool = False

    @property
    def filled(self) -> int:
        """How many cells are not missing."""
        return len(self.cells)

    @property
    def missing(self) -> int:
        """How many cells are missing."""
        return self.rows - len(self.cells)

    def share(self, texts: dict[str, Decimal] | dict[str, tuple[date, ...]]) -> float:
        """The share of filled cells whose text is among these."""
        return sum(self.counts[text] for text in texts) / max(1, self.filled)

    def rows_without(self, texts: dict[str, Decimal] | dict[str, tuple[date, ...]]) -> tuple[int, ...]:
        """The rows whose filled cell is not among these."""
        return tuple(row for row, text in self.cells if text not in texts)

    @property
    def spellings(self) -> frozenset[str]:
        """The distinct cells in lower case."""
        return frozenset(text.casefold() for text in self.counts)

    @property
    def truth(self) -> bool:
        """True when the cells are the two halves of one usual yes/no pair, or one half of a clear one."""
        seen = self.spellings
        clear = {"true", "false", "yes", "no"}
        pairs = seen <= TRUE | FALSE and bool(seen & TRUE) and bool(seen & FALSE)
        return bool(seen) and (pairs or seen <= clear) and len(seen) <= 2

    @property
    def mean_words(self) -> float:
        """The mean number of words of a filled cell."""
        return sum(len(text.split()) * count for text, count in self.counts.items()) / max(1, self.filled)

    @property
    def longest(self) -> int:
        """The length of the longest cell."""
        return max((len(text) for text in self.counts), default=0)

    @property
    def pattern(self) -> str:
        """What kind of personal detail most cells look like, or ''."""
        if self.share(self.numbers) > 0.5 or self.share(self.days) > 0.5:
            return ""
        for what, pattern in _PATTERNS:
            if self._matching(pattern) > 0.5:
                return what
        return ""

    @property
    def mentions_addresses(self) -> bool:
        """True when some free text holds an e-mail address."""
        return any(_EMAIL_INSIDE.search(text) for text in self.counts)

    @property
    def coded(self) -> bool:
        """True when every cell is its own and looks made by a machine: a running number, a long number, a UUID."""
        if self.filled < 20 or len(self.counts) < self.filled:
            return False
        if self._matching(_UUID) == 1 or all(_is_code(text) for text in self.counts):
            return True
        if not all(text.isdecimal() for text in self.counts):
            return False
        order = [int(text) for _, text in self.cells]
        running = all(later > earlier for earlier, later in pairwise(order))
        long = len({len(text) for text in self.counts}) == 1 and len(str(order[0])) >= 6
        round_ones = sum(number % 10 == 0 for number in order) / len(order)
        return (running and order[-1] - order[0] <= 2 * len(order)) or (long and round_ones < 0.5)

    def _matching(self, pattern: re.Pattern[str]) -> float:
        hits = sum(count for text, count in self.counts.items() if len(text) < 100 and pattern.fullmatch(text))
        return hits / max(1, self.filled)


def profile(name: str, position: int, rows: Sequence[int], cells: Sequence[object]) -> Profile:
    """The profile of one column."""
    shown = [(row, cell_text(cell)) for row, cell in zip(rows, cells, strict=True) if cell is not None]
    filled = tuple((row, text) for row, text in shown if text.casefold() not in MISSING)
    counts = Counter(text for _, text in filled)
    numerals = {text: read_numeral(text) for text in counts}
    numbers = {text: numeral.readings[0] for text, numeral in numerals.items() if numeral.readings}
    percents = sum(counts[text] for text, numeral in numerals.items() if numeral.readings and numeral.percent)
    return Profile(
        name=name,
        position=position,
        rows=len(rows),
        cells=filled,
        counts=counts,
        numbers=numbers,
        days={text: days for text in counts if (days := date_readings(text))},
        percent=percents > 0.5 * max(1, len(filled)),
    )


def _is_code(text: str) -> bool:
    """Letters and digits without a space, such as A-10442 or INV00017."""
    return " " not in text and sum(char.isdigit() for char in text) >= 3 and not text[:1].isdigit() and "." not in text
