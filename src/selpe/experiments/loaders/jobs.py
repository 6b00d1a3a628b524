"""EMSCAD: advertisements for jobs, of which about one in twenty is a fraud. Here one in ten: a rare class of two.

Advertisements of one employer often share whole paragraphs: rows with the same description stay on one side. The
publisher masked addresses and numbers by marks such as '#URL_…#', which are taken out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import rows

FIELDS = (
    "title", "location", "company_profile", "description", "requirements", "telecommuting", "has_company_logo",
    "has_questions", "employment_type", "required_experience", "function", "fraudulent",
)  # fmt: skip
_MASKED = re.compile(r"#(?:EMAIL|PHONE|URL)_[0-9A-Za-z]*#")
_MARKED_UP = re.compile(r"<[^<>]{1,200}>")
_LONG = ("company_profile", "description", "requirements")


def _rows(path: Path) -> Iterator[Cells]:
    return rows(path, FIELDS)


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    made = {name: " ".join(cells.get(name, "").split()) for name in FIELDS}
    for name in _LONG:
        plain = " ".join(_MARKED_UP.sub(" ", html.unescape(_MASKED.sub(" ", made[name]))).split())
        if plain != made[name]:
            tally.note(f"'{name}': masks and mark-up removed")
        made[name] = plain
    if not made["description"]:
        tally.note("'description': missing, row left out")
        return None
    return Raw(made, group=made["description"].casefold())


LOADER = Loader(
    name="jobs",
    title="Job advertisements, some of them frauds (EMSCAD)",
    paper="",
    files=("fake_job_postings.csv", "emscad_v1.csv"),
    label="fraudulent",
    validation={"false": 450, "true": 50},
    test={"false": 900, "true": 100},
    shares={"false": 0.9, "true": 0.1},
    marks=(frozenset({"company_profile", "telecommuting", "has_company_logo", "fraudulent"}),),
    rows=_rows,
    clean=_clean,
    fields=lambda path: FIELDS,
    grouping="rows with the same description",
)
