"""Small files in the format of each publisher, made up here: odd values where the real ones have them."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

_BOTTLES = ("Steel Flask", "Copper Bottle", "Kids Sipper", "Gym Shaker", "Fridge Bottle")
_TITLES = {"1": "Useless", "2": "Bad one", "3": "Average", "4": "Quite nice", "5": "Perfect"}
_WORDS = "leaks good nice lid price colour strong cheap broke daily water hot cold gift heavy steel".split()
_COMPLAINTS = {
    "1": ("collapse", "no pulse"), "2": ("chest pain", "short of breath"), "3": ("belly pain", "dizzy"),
    "4": ("twisted foot", "cut finger"), "5": ("refill", "stitches out"),
}  # fmt: skip


def water_file(folder: Path, *, per_class: int = 40, seed: int = 0) -> Path:
    """A csv of reviews; every second review stands under two products, one row has no review."""
    chance = random.Random(seed)
    rows = []
    for rating in "12345":
        for number in range(per_class):
            review = " ".join(chance.choice(_WORDS) for _ in range(chance.randint(2, 5))) + f" {rating}{number // 2}"
            rows.append([chance.choice(_BOTTLES) + f" {number} ml Bottle Reviews", f"{chance.uniform(3.4, 4.6):.1f}",
                         rating, _TITLES[rating], review])  # fmt: skip
    rows.append(["Odd Bottle", "4.0", "5", "Perfect", ""])
    rows.append(["Long Bottle", "4.0", "5", "Perfect", "very " * 80 + "good"])
    return written(folder / "water.csv", ("product_name", "overall_rating", "rating", "title", "cleaned_review"), rows)


def ktas_file(folder: Path, *, per_class: int = 30) -> Path:
    """A csv of triage; class 1 has fewer rows than the others."""
    columns = (
        "temperature_c", "heartrate", "resprate", "o2sat", "sbp", "dbp", "pain", "acuity", "chiefcomplaint", "sex",
        "age", "arrival_mode", "injury", "mental_state", "ed_diagnosis", "disposition", "acuity_nurse",
    )  # fmt: skip
    chance = random.Random(1)
    rows = []
    for acuity, said in _COMPLAINTS.items():
        for number in range(per_class if acuity != "1" else 12):
            rows.append([f"{36 + chance.random():.1f}", chance.randint(50, 140), 20, "", 100 + int(acuity) * 8, 70, "",
                         acuity, chance.choice(said), chance.choice(("Male", "Female")), 20 + number, "Walking", "No",
                         "Alert", "diagnosis", "Discharge", acuity])  # fmt: skip
    rows.append([36.5, 80, 20, 98, 120, 80, 3, 4, "", "Male", 40, "Walking", "No", "Alert", "", "Discharge", 4])
    return written(folder / "ktas_triage.csv", columns, rows)


def mimic_folder(folder: Path, *, zipped: bool = True) -> Path:
    """The published folder: ed/triage.csv.gz and ed/edstays.csv.gz, three stays a person."""
    chance = random.Random(2)
    triage, stays = [], []
    for number in range(240):
        subject, stay, acuity = 10_000 + number // 3, 30_000 + number, str(1 + number % 5)
        triage.append([subject, stay, f"{97 + 2 * chance.random():.1f}", f"{chance.randint(60, 120)}.0", "18.0", "98.0",
                       "130.0", "80.0", str(chance.randint(0, 10)), f"{acuity}.0",
                       chance.choice(_COMPLAINTS[acuity]).upper()])  # fmt: skip
        stays.append([subject, "", stay, "2150-01-01 10:00:00", "2150-01-01 12:00:00", chance.choice("FM"), "OTHER",
                      chance.choice(("WALK IN", "AMBULANCE")), "HOME"])  # fmt: skip
    triage[0][2] = "36.5"  # Celsius
    triage[1][7] = "879.0"  # a pressure that cannot be
    triage[2][8], triage[3][8] = "ett", "7/10"
    triage[4][9] = ""
    columns = ("subject_id", "stay_id", "temperature", "heartrate", "resprate", "o2sat", "sbp", "dbp", "pain", "acuity",
               "chiefcomplaint")  # fmt: skip
    more = (
        "subject_id",
        "hadm_id",
        "stay_id",
        "intime",
        "outtime",
        "gender",
        "race",
        "arrival_transport",
        "disposition",
    )
    suffix = ".csv.gz" if zipped else ".csv"
    written(folder / "ed" / f"triage{suffix}", columns, triage)
    written(folder / "ed" / f"edstays{suffix}", more, stays)
    return folder


def lending_club_file(folder: Path, *, prospectus: bool = False, per_class: int = 12) -> Path:
    """LendingClub's own csv: a line above the header in the older files, sums below the table, many more columns."""
    columns = (
        "id", "loan_amnt", "term", "int_rate", "installment", "grade", "sub_grade", "emp_title", "emp_length",
        "home_ownership", "annual_inc", "verification_status", "issue_d", "loan_status", "desc", "purpose", "title",
        "addr_state", "dti", "fico_range_low", "fico_range_high",
    )  # fmt: skip
    chance = random.Random(3)
    rows: list[Sequence[object]] = []
    for place, grade in enumerate("ABCDEFG"):
        for number in range(per_class):
            words = (
                "" if number == 0 else f"  Borrower added on 12/22/11 > I owe {number}{grade} and want to pay<br>soon"
            )
            rows.append(
                [number, f"{1000 * (number + 5)}.0", " 36 months" if place < 4 else " 60 months", f"{6 + 3 * place}%",
                 "300.5", grade, f"{grade}{1 + number % 5}", chance.choice(("clerk", "", "driver")),
                 chance.choice(("10+ years", "< 1 year", "3 years", "n/a")),
                 chance.choice(("RENT", "MORTGAGE", "ANY")), "51234.56", "Source Verified", "Dec-2011",
                 "Fully Paid", words, "credit_card", "cards", "NY", f"{10 + place}.5", "690.0", "694.0"]
            )  # fmt: skip
    path = written(folder / "accepted_2007_to_2018Q4.csv", columns, rows)
    text = path.read_text(encoding="utf-8") + "Total amount funded in policy code 1: 460296150" + "," * 20 + "\n"
    above = "Notes offered by Prospectus (https://www.lendingclub.com/info/prospectus.action)\n" if prospectus else ""
    path.write_text(above + text, encoding="utf-8")
    return path


def openintro_file(folder: Path) -> Path:
    """The table of the R package, with its own names of columns."""
    columns = (
        "emp_title", "emp_length", "state", "homeownership", "annual_income", "verified_income", "debt_to_income",
        "loan_purpose", "loan_amount", "term", "interest_rate", "installment", "grade", "sub_grade",
    )  # fmt: skip
    rows = [
        ["clerk", "3", "NJ", "RENT", f"{40000 + number}.0", "Verified", "469.1" if number == 0 else "18.2", "moving",
         5000 + 100 * number, 36, 10.1, 161.6, grade, f"{grade}1"]
        for grade in "ABCDEFG" for number in range(10)
    ]  # fmt: skip
    return written(folder / "loans_full_schema.csv", columns, rows)


def written(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """The rows as csv, compressed where the name says so."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
