"""A grid that takes seconds: a small table, the fake model, the hashing encoder, amounts of next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from selpe.experiments.cells import Bench
from selpe.experiments.designs import Ask
from selpe.experiments.judging import CellJudge
from selpe.experiments.sizes import SIZES, Size
from selpe.experiments.sources import Source, open_source
from selpe.intake import write_table
from selpe.models.base import ChatModel
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from small_world import SCHEMA, drawn

# Votes on guides and sets train models, which takes long where many share a processor.
QUICK = {"guides": "off", "bundles": 0, "rounds": 1}


def size(**changes: Any) -> Size:
    """The tiny size, made smaller still."""
    small = replace(
        SIZES["tiny"], per_class=3, private=6, most_test=6, views=("minilm",), rows=(2, 4),
        settings={**SIZES["tiny"].settings, "augpe": {"rounds": 1, "expansion": 2}, **QUICK},
    )  # fmt: skip
    return replace(small, **changes)


def table(folder: Path, *, rows: int = 48) -> Path:
    """A table of one's own, with its schema beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    SCHEMA.save(folder / "schema.yaml")
    return write_table(drawn(rows), SCHEMA, folder / "desk.csv")


def source(folder: Path) -> Source:
    """The table as a source of splits."""
    return open_source(str(table(folder)), folder=folder, schema=folder / "schema.yaml")


def ask(**changes: Any) -> Ask:
    """SelPE and WASP at ε = 2, one seed."""
    return replace(Ask(size(), ["desk"], [0], [2.0], methods=("selpe", "wasp"), llms=("fake",)), **changes)


def bench(
    root: Path, sources: Mapping[str, Source] | None = None, *, model: ChatModel | None = None, **changes: Any
) -> Bench:
    """A place to do cells in; every model is `model`, or a fake one."""
    encoder = HashingEncoder(64)
    found = sources or {"desk": source(root.parent / "table")}
    known = model or FakeModel()
    settings: dict[str, Any] = {
        "judge": CellJudge.of(encoder, ("minilm",), most=6), "encoder": encoder, "encoder_name": "hash",
        "open_model": lambda llm: known, "pool": 6, **changes,
    }  # fmt: skip
    return Bench(root=root, sources=found, **settings)
