"""Water: reviews of water bottles in an online shop, five fields, ratings 1 to 5.

`title` almost reveals the rating: the shop offers a few titles per rating. It is one of the paper's own fields,
so it stays by default; `--without-leaks` drops it. One review often stands under many variants of a product: rows with
the same review stay on one side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from selpe.experiments.loaders.base import Cells, Loader, Raw, RowTally
from selpe.experiments.loaders.reading import rows

FIELDS = ("product_name", "overall_rating", "title", "cleaned_review", "rating")


def _rows(path: Path) -> Iterator[Cells]:
    return rows(path, FIELDS)


def _clean(cells: Cells, tally: RowTally) -> Raw | None:
    review = " ".join(cells["cleaned_review"].split())
    if not review:
        tally.note("'cleaned_review': nothing left of the review, row left out")
        return None
    made = {name: " ".join(cells.get(name, "").split()) for name in FIELDS}
    made["rating"] = made["rating"].removesuffix(".0")
    return Raw(made, group=review.casefold())


LOADER = Loader(
    name="water",
    title="Water bottle reviews",
    paper="Water",
    files=("water.csv", "Water.csv"),
    label="rating",
    validation=dict.fromkeys("12345", 100),
    test={"1": 77, "2": 39, "3": 86, "4": 222, "5": 582},
    marks=(frozenset(FIELDS),),
    rows=_rows,
    clean=_clean,
    fields=lambda path: FIELDS,
    grouping="rows with the same review text",
    leaks=("title",),
    keeps_leaks=True,
    about_leaks="The title is one of the paper's own fields and therefore stays unless `--without-leaks` is given.",
)
