"""What a column's name gives away: identifiers, people, labels, and measures whose range is public knowledge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

_PEOPLE = frozenset(
    {"subject", "patient", "person", "user", "customer", "client", "member", "employee", "student", "borrower", "pupil"}
)
_CASES = frozenset(
    {
        "stay",
        "visit",
        "encounter",
        "case",
        "record",
        "row",
        "order",
        "transaction",
        "account",
        "loan",
        "admission",
        "hadm",
    }
)
_ID_WORDS = frozenset({"id", "ids", "uuid", "guid", "mrn", "idx", "index", "pk"})
_NAME_OF = frozenset({"first", "last", "full", "given", "family", "maiden", "middle", "contact", "nick", *_PEOPLE})
_LABEL_WORDS = (
    "label",
    "target",
    "class",
    "outcome",
    "acuity",
    "grade",
    "severity",
    "rating",
    "stars",
    "sentiment",
    "risk",
)
_SCALES = frozenset(
    {"acuity", "rating", "stars", "grade", "severity", "class", "label", "target", "level", "stage", "priority", "tier"}
)
_PERSONAL = (
    ("an e-mail address", re.compile(r"(^|_)(e_?mail|mail_address)(_|$)")),
    ("a telephone number", re.compile(r"(^|_)(phone|telephone|tel|mobile|cell_?phone|fax)(_|$)")),
    (
        "an official number",
        re.compile(r"(^|_)(ssn|social_security|passport|national_id|nhs|tax_id|driver_?s?_licen[cs]e)(_|$)"),
    ),
    ("a postal address", re.compile(r"(^|_)(address|street|house_number|addr1|addr2)(_|$)")),
    ("a network address", re.compile(r"(^|_)(ip|ip_?addr(ess)?|mac_?addr(ess)?)(_|$)")),
    ("a bank or card number", re.compile(r"(^|_)(iban|credit_card|card_(no|num|number)|account_(no|num|number))(_|$)")),
    ("a date of birth", re.compile(r"(^|_)(dob|birth_?date|birth_?day|date_of_birth)(_|$)")),
    ("a post code", re.compile(r"(^|_)(zip|zip_?code|post_?code|postal_code)(_|$)")),
)


NARROWING = ("a date of birth", "a post code")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity with a range that anybody can know, whatever a table holds."""

    low: Decimal
    high: Decimal
    unit: str = ""


_MEASURES: tuple[tuple[re.Pattern[str], tuple[Quantity, ...]], ...] = tuple(
    (re.compile(pattern), tuple(Quantity(Decimal(low), Decimal(high), unit) for low, high, unit in options))
    for pattern, options in (
        (r"(^|_)age(_years)?$", [("0", "120", "years")]),
        (r"(^|_)pain(_score|_scale)?$|^nrs(_pain)?$", [("0", "10", "")]),
        (r"^(o2_?sat(uration)?|sp_?o2|sa_?o2|saturation)$", [("50", "100", "%")]),
        (r"^(heart_?rate|pulse|hr)$", [("20", "250", "/min")]),
        (r"^(resp(iratory)?_?rate|rr)$", [("4", "70", "/min")]),
        (r"^(sbp|systolic(_bp|_blood_pressure)?)$", [("40", "300", "mmHg")]),
        (r"^(dbp|diastolic(_bp|_blood_pressure)?)$", [("20", "200", "mmHg")]),
        (r"^(body_)?temp(erature)?(_[cf])?$|^bt$", [("30", "45", "°C"), ("86", "113", "°F")]),
        (r"(^|_)fico(_|$)", [("300", "850", "")]),
    )
)


def words(name: str) -> str:
    """A column's name in lower case with underscores: 'PatientID' and 'Patient ID' are both 'patient_id'."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", spaced.casefold()).strip("_")


def is_identifier(name: str) -> bool:
    """True for names such as subject_id, StayID, uuid, mrn."""
    parts = words(name).split("_")
    joined = parts[-1].removesuffix("id")
    return parts[-1] in _ID_WORDS or (parts[-1].endswith("id") and joined in _PEOPLE | _CASES)


def names_a_person(name: str) -> bool:
    """True for identifiers of people, as against cases or rows."""
    text = words(name)
    return any(part in _PEOPLE or part.removesuffix("id") in _PEOPLE for part in text.split("_")) or text == "mrn"


def personal(name: str) -> str:
    """What kind of personal detail a name promises, or ''."""
    text = words(name)
    parts = text.split("_")
    if text in ("name", "surname", "fullname", "firstname", "lastname", "forename"):
        return "a person's name"
    if parts[-1] == "name" and len(parts) == 2 and parts[0] in _NAME_OF:
        return "a person's name"
    return next((what for what, pattern in _PERSONAL if pattern.search(text)), "")


def is_scale(name: str) -> bool:
    """True for names of graded classes, whose few whole numbers are categories rather than amounts."""
    return bool(_SCALES & set(words(name).split("_")))


def likely_labels(names: Sequence[str]) -> tuple[str, ...]:
    """The names that look like a record's class, the likeliest first."""

    def rank(name: str) -> tuple[bool, int]:
        parts = words(name).split("_")
        return (len(parts) > 1, min(_LABEL_WORDS.index(part) for part in parts if part in _LABEL_WORDS))

    hinted = [name for name in names if set(_LABEL_WORDS) & set(words(name).split("_"))]
    return tuple(sorted(hinted, key=rank))


def measures(name: str) -> tuple[Quantity, ...]:
    """The publicly known ranges that a name can stand for."""
    text = words(name)
    return next((options for pattern, options in _MEASURES if pattern.search(text)), ())
