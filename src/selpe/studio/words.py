"""What a person is asked, and why it matters: the same words in the page and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from selpe.schema.fields import Kind

KINDS: Mapping[Kind, str] = {
    "text": "free text",
    "category": "one of a few values",
    "integer": "a whole number",
    "number": "a number with decimals",
    "boolean": "yes or no",
    "date": "a day",
}
# What a person confirms of a field of each kind, as a question that is answered with yes.
PUBLIC: Mapping[Kind, str] = {
    "text": "Everybody may know that this text exists and how long it can be.",
    "category": "Everybody may know these values, also if no record had them.",
    "integer": "Everybody may know these bounds, whatever the table holds.",
    "number": "Everybody may know these bounds and this step, whatever the table holds.",
    "boolean": "Everybody may know that records have this field.",
    "date": "Everybody may know this period.",
}
WHY: Mapping[Kind, str] = {
    "text": "The lengths stand in the release. Take what a form allows, not the longest text of the table.",
    "category": (
        "The list stands in the release as it is. A rare value that only your table could tell would give its row "
        "away: list the options of the form, and leave out what somebody wrote in once."
    ),
    "integer": (
        "The bounds stand in the release. The oldest patient's age as an upper bound would give that patient away: "
        "take a scale, a device's range or a round number."
    ),
    "number": (
        "The bounds stand in the release. The largest amount of the table as an upper bound would give its row away: "
        "take a scale, a device's range or a round number."
    ),
    "boolean": "That records have this field becomes public, nothing else.",
    "date": "The period stands in the release. Take whole years, not the first and the last day of the table.",
}
DESCRIPTION = "One sentence that the model reads: what is written here, by whom, in which words or unit?"
VALUES = (
    "Values, separated by semicolons. Say what one means if it does not tell by itself, as in: 1 = at once; 2 = soon"
)
PROPOSAL = "What the draft proposes was read off your private table, so it is not shown unless you ask for it."
LABEL = "The field that says a record's class. Records are written class by class, and a classifier is tested on it."
UNIT = (
    "The column that says whose record it is. If one person can have several records, name it: "
    "the guarantee is then for each person with all their records."
)
ROWS = "How many records (or people, with a unit) there are, rounded. The plan is made from it, and it becomes public."
EXAMPLES = (
    "Two to five made-up records show the model the style. Never copy one from the table: examples stand in the "
    "release, and no guarantee covers them."
)
RULES = "What must hold between fields in every record, such as: the lower blood pressure is below the upper one."
EPSILON = "The privacy budget of one run. Smaller is more private; spent ε never comes back."
RECORDS = "How many synthetic records to write. More cost no ε, but time."
SETTINGS: Mapping[str, str] = {
    "encoding": "How the text of the table is written",
    "delimiter": "What separates the cells of a row",
    "day_first": "Whether 03/04/2024 is the third of April",
    "decimal": "The decimal mark of numbers",
    "rows": ROWS,
    "unit": UNIT,
}


def described() -> dict[str, object]:
    """All of it as plain data, for the page."""
    return {
        "kinds": dict(KINDS), "public": dict(PUBLIC), "why": dict(WHY), "description": DESCRIPTION,
        "proposal": PROPOSAL, "label": LABEL, "unit": UNIT, "rows": ROWS, "examples": EXAMPLES, "rules": RULES,
        "epsilon": EPSILON, "records": RECORDS, "settings": dict(SETTINGS),
    }  # fmt: skip
