"""B2W-Reviews01: customers' reviews of a Brazilian shop, in Portuguese; a day, several texts, ratings 1 to 5.

`recommends` nearly says the rating and is left out unless asked for. All reviews of a person stay on one side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import rows

COLUMNS = {
    "submitted": "submission_date", "product_name": "product_name", "category": "site_category_lv1",
    "review_title": "review_title", "review_text": "review_text", "birth_year": "reviewer_birth_year",
    "gender": "reviewer_gender", "state": "reviewer_state", "recommends": "recommend_to_a_friend",
    "rating": "overall_rating",
}  # fmt: skip


def _rows(path: Path) -> Iterator[Cells]:
    return rows(path, {*COLUMNS.values(), "reviewer_id"})


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    made = {field: " ".join(cells.get(column, "").split()) for field, column in COLUMNS.items()}
    if not made["review_text"]:
        tally.note("'review_text': missing, row left out")
        return None
    made["submitted"] = made["submitted"].partition(" ")[0]  # the day alone
    for name in ("rating", "birth_year"):
        made[name] = made[name].removesuffix(".0")
    made["gender"], made["state"] = made["gender"].upper(), made["state"].upper()
    return Raw(made, group=cells.get("reviewer_id", ""))


LOADER = Loader(
    name="b2w",
    title="Reviews of a Brazilian shop (B2W-Reviews01)",
    paper="",
    files=("B2W-Reviews01.csv", "b2w-10k.csv"),
    label="overall_rating",
    validation=dict.fromkeys("12345", 100),
    test=dict.fromkeys("12345", 200),
    marks=(frozenset({"submission_date", "review_title", "review_text", "overall_rating", "recommend_to_a_friend"}),),
    rows=_rows,
    clean=_clean,
    fields=lambda path: tuple(COLUMNS),
    grouping="all reviews of a person",
    leaks=("recommends",),
    about_leaks="Who recommends a product has mostly rated it 4 or 5.",
)
