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


def jobs_file(folder: Path, *, real: int = 180, frauds: int = 20) -> Path:
    """EMSCAD's csv: masks, mark-up, columns that are not read; every advertisement stands twice, under two titles."""
    columns = (
        "job_id", "title", "location", "department", "salary_range", "company_profile", "description", "requirements",
        "benefits", "telecommuting", "has_company_logo", "has_questions", "employment_type", "required_experience",
        "required_education", "industry", "function", "fraudulent",
    )  # fmt: skip
    chance = random.Random(4)
    rows: list[Sequence[object]] = []
    for number in range(real + frauds):
        fraud = int(number >= real)
        told = f"Work number {number // 2} {'at home for quick money' if fraud else 'in our workshop with a team'}."
        rows.append(
            [number + 1, chance.choice(("Clerk", "Driver", "Nurse")), chance.choice(("US, OH, Akron", "")), "", "",
             "" if fraud else "<p>We make hinges &amp; locks. #URL_0f3c#</p>", f"{told} #EMAIL_12ab#\r\nApply now.",
             chance.choice(("", "A driving licence")), "Lunch", chance.choice("01"), 1 - fraud, chance.choice("01"),
             chance.choice(("Full-time", "Contract", "")), chance.choice(("Entry level", "Not Applicable", "")), "", "",
             chance.choice(("Sales", "")), fraud]
        )  # fmt: skip
    rows.append([9999, "Cook", "", "", "", "", "", "", "", 0, 1, 0, "", "", "", "", "", 0])  # says nothing of the job
    rows.append([9998, "Cook", "", "", "", "", "long " * 200, "", "", 0, 1, 0, "", "", "", "", "", 0])
    return written(folder / "fake_job_postings.csv", columns, rows)


def b2w_file(folder: Path, *, per_class: int = 30) -> Path:
    """B2W-Reviews01: cells between semicolons, times of day, years of birth as floats, two reviews a person."""
    columns = (
        "submission_date", "reviewer_id", "product_id", "product_name", "product_brand", "site_category_lv1",
        "site_category_lv2", "review_title", "overall_rating", "recommend_to_a_friend", "review_text",
        "reviewer_birth_year", "reviewer_gender", "reviewer_state",
    )  # fmt: skip
    words = {"1": "não chegou", "2": "veio quebrado; péssimo", "3": "é razoável", "4": "gostei, é bom", "5": "adorei"}
    chance = random.Random(5)
    rows: list[Sequence[object]] = []
    for number in range(5 * per_class):
        rating = str(1 + number % 5)
        rows.append(
            [f"2018-0{1 + number % 5}-11 06:23:22", f"person{number // 2}", 100 + number, "Cafeteira Elétrica 127V", "",
             "Eletroportáteis", "Cafeteiras", chance.choice(("", "Minha opinião")), rating,
             "Yes" if rating > "3" else "No", f"{words[rating]} {number}", chance.choice(("1984.0", "", "1800.0")),
             chance.choice("FM"), chance.choice(("SP", "RJ", ""))]
        )  # fmt: skip
    rows.append(["2018-01-02 10:00:00", "someone", 1, "Copo", "", "", "", "", 5, "Yes", "", "", "", ""])
    return written(folder / "B2W-Reviews01.csv", columns, rows, between=";")


def cfpb_file(folder: Path, *, count: int = 120, zipped: bool = False) -> Path:
    """The CFPB's csv: two days, masks, stories of many lengths; a third has none or a short one; no class anywhere."""
    columns = (
        "Date received", "Product", "Sub-product", "Issue", "Sub-issue", "Consumer complaint narrative",
        "Company public response", "Company", "State", "ZIP code", "Tags", "Consumer consent provided?",
        "Submitted via", "Date sent to company", "Company response to consumer", "Timely response?",
        "Consumer disputed?", "Complaint ID",
    )  # fmt: skip
    said = "fee bank letter phone clerk account twice never paid month asked manager answer number loan wrote".split()
    chance = random.Random(6)
    rows: list[Sequence[object]] = []
    for number in range(count):
        length = (0, 12, 60, 90, 70, 150)[number % 6]
        words = " ".join(chance.choice(said) for _ in range(length))
        story = f"On XX/XX/XXXX my {words} {number}" if words else ""
        rows.append(
            [f"2021-03-{1 + number % 28:02}", "Mortgage", "", "Trouble during payment process", "",
             story, "", "BANK", chance.choice(("OH", "ZZ", "")), "441XX",
             "", "Consent provided", "Web", f"2021-04-{1 + number % 28:02}", "Closed with explanation",
             chance.choice(("Yes", "No")), "N/A", 4_000_000 + number]
        )  # fmt: skip
    rows[2] = ["2021-06-01", *rows[2][1:]]  # received after it was sent
    return written(folder / f"complaints.csv{'.gz' if zipped else ''}", columns, rows)


def written(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], *, between: str = ",") -> Path:
    """The rows as csv, compressed where the name says so."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=between)
    writer.writerow(columns)
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
