"""Loan: LendingClub loans with credit grades A to G, from three kinds of file.

LendingClub's own (`accepted_*.csv`, `LoanStats*.csv`), openintro's `loans_full_schema`, and tables made from either.
Interest rate and sub-grade give the grade away; so does the installment, from which the rate follows with amount and
term. They are left out unless asked for. Where borrowers wrote something (`desc`), that is the text, and rows without
it are left out; else a profile is written by a template from the other fields, never from those that leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Enrichment, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import header, rows
from selpe.experiments.loaders.vitals import number
from selpe.schema import Record

# Our field, and what publishers call it.
COLUMNS = {
    "loan_amount": ("loan_amount", "loan_amnt"),
    "term_months": ("term_months", "term"),
    "interest_rate": ("interest_rate", "int_rate"),
    "installment": ("installment",),
    "sub_grade": ("sub_grade",),
    "emp_title": ("emp_title",),
    "emp_length_years": ("emp_length_years", "emp_length"),
    "homeownership": ("homeownership", "home_ownership"),
    "annual_income": ("annual_income", "annual_inc"),
    "verified_income": ("verified_income", "verification_status"),
    "loan_purpose": ("loan_purpose", "purpose"),
    "debt_to_income": ("debt_to_income", "dti"),
    "state": ("state", "addr_state"),
    "fico_range_low": ("fico_range_low",),
    "desc": ("desc",),
    "grade": ("grade",),
}
_ADDED = re.compile(r"Borrower added on \d\d/\d\d/\d\d\s*>\s*", re.IGNORECASE)
_BREAK = re.compile(r"<\s*br\s*/?\s*>", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_HOMES = {"MORTGAGE": "pays a mortgage", "RENT": "rents", "OWN": "owns a home"}
_CHECKED = {"Verified": "verified", "Source Verified": "source verified", "Not Verified": "not verified"}
_PURPOSES = {
    "debt_consolidation": "to consolidate debts", "credit_card": "to pay off credit cards",
    "home_improvement": "to improve a home", "major_purchase": "for a major purchase",
    "medical": "for medical costs", "house": "for a house", "car": "for a car",
    "small_business": "for a small business", "moving": "to move", "vacation": "for a vacation",
    "wedding": "for a wedding", "educational": "for education", "renewable_energy": "for renewable energy",
}  # fmt: skip


def _has_words(path: Path) -> bool:
    return "desc" in header(path)


def _rows(path: Path) -> Iterator[Cells]:
    return rows(path, {name for names in COLUMNS.values() for name in names})


def _fields(path: Path) -> tuple[str, ...]:
    columns = frozenset(header(path))
    return tuple(field for field, names in COLUMNS.items() if columns.intersection(names))


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    made = {field: next((cells[name] for name in names if name in cells), "") for field, names in COLUMNS.items()}
    for name in ("loan_amount", "annual_income"):
        made[name] = _whole(made[name])
    made["term_months"] = _first_number(made["term_months"])
    made["emp_length_years"] = _years(made["emp_length_years"])
    made["interest_rate"] = made["interest_rate"].rstrip("% ")
    made["fico_range_low"] = _whole(made["fico_range_low"])
    if made["homeownership"].upper() in ("ANY", "NONE"):
        made["homeownership"] = "OTHER"
    made["emp_title"] = " ".join(made["emp_title"].split())
    made["desc"] = _spoken(made["desc"], tally)
    return Raw(made, group=made["desc"].casefold())


def _whole(text: str) -> str:
    value = number(text)
    return text if value is None else str(round(value))


def _first_number(text: str) -> str:
    found = _DIGITS.search(text)
    return found.group() if found else ""


def _years(text: str) -> str:
    """'10+ years' is 10, '< 1 year' is 0, 'n/a' is missing."""
    return "0" if text.startswith("<") else _first_number(text)


def _spoken(text: str, tally: RowTally) -> str:
    """The borrower's words without the platform's own marks."""
    plain = _BREAK.sub(" ", _ADDED.sub("", text))
    if plain != text:
        tally.note("'desc': marks of the platform removed")
    return " ".join(plain.split())


def _profile(record: Record) -> str:
    """One sentence from the fields that do not leak."""
    who = (
        f"A borrower in {record['state']} who {_HOMES.get(str(record['homeownership']), 'has a home of another kind')}"
    )
    income = record["annual_income"]
    earns = "" if income is None else f", earns ${income:,} a year ({_CHECKED[str(record['verified_income'])]})"
    debt = record["debt_to_income"]
    owes = "" if debt is None else f" and spends {debt:g}% of income on debts"
    job = record.get("emp_title")
    works = "" if not job else f", works as {str(job).lower()}"
    why = _PURPOSES.get(str(record["loan_purpose"]), "for other reasons")
    asks = f"asks for ${record['loan_amount']:,} over {record['term_months']} months {why}"
    return f"{who}{works}{earns}{owes}, {asks}."


PROFILE = Enrichment(
    field="financial_profile_desc",
    template=_profile,
    longest=300,
    description="one sentence on the borrower and the loan",
    instruction="Rewrite this profile of a borrower in one or two natural sentences. Keep every figure, add nothing.",
)

LOADER = Loader(
    name="loan",
    title="LendingClub loans",
    paper="Loan",
    files=(
        "loan.csv", "accepted_2007_to_2018Q4.csv", "accepted_2007_to_2018Q4.csv.gz", "loans_full_schema.csv",
        "loan_lendingclub_desc.csv",
    ),
    label="grade",
    validation=dict(zip("ABCDEFG", (69, 74, 63, 74, 81, 84, 55), strict=True)),
    test=dict(zip("ABCDEFG", (141, 144, 158, 125, 149, 151, 132), strict=True)),
    marks=(
        frozenset({"loan_amnt", "term", "grade", "annual_inc", "addr_state"}),
        frozenset({"loan_amount", "grade", "annual_income", "homeownership", "state"}),
    ),
    rows=_rows,
    clean=_clean,
    fields=_fields,
    grouping="rows with the same words of the borrower, or the same in every field where there are none",
    leaks=("interest_rate", "installment", "sub_grade"),
    about_leaks="The grade follows from the rate, and the rate from installment, amount and term.",
    enrichment=PROFILE,
    enriched=lambda path: not _has_words(path),
    usable=lambda cells, schema: "desc" not in schema.names or bool(cells.get("desc")),
)  # fmt: skip
