"""What an experiment leaves behind: tidy results, a page with tables, charts."""

from __future__ import annotations

from pathlib import Path

from selpe.errors import ConfigError
from selpe.experiments.blocks import Block, Text, markdown
from selpe.experiments.charts import charts
from selpe.experiments.results import Results, write_tidy
from selpe.experiments.tables import Setting, page
from selpe.owner_only import write_text


def write_outputs(results: Results, setting: Setting, folder: Path) -> list[Block]:
    """Writes results.csv, results.parquet, table.md and the charts into a folder; returns the page's blocks."""
    write_tidy(results, setting.experiment, folder)
    blocks = page(results, setting)
    drawn = charts(results, setting)
    shown: list[Block] = [Text(f"![{name.removesuffix('.svg')}]({name})") for name in drawn]
    try:
        for old in folder.glob("auc-*.svg"):
            old.unlink()
        for name, content in drawn.items():
            write_text(folder / name, content)
        write_text(folder / "table.md", markdown([*blocks[:2], *shown, *blocks[2:]]))
    except OSError as error:
        raise ConfigError(f"results cannot be written ({error.strerror})", where=str(folder)) from None
    return blocks
