"""What was measured on the page that may leave the house: shares with error bars, beside the model's own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from page_reader import HOSTILE, Page
from selpe.config import check_config
from selpe.intake import write_table
from selpe.privacy.card import build_card
from selpe.privacy.ledger import Ledger
from selpe.report.sections.measured import MOST, measured_section
from selpe.report.summary import summary_page, write_summary
from small_world import SCHEMA, UNLABELLED, drawn

CHANNELS = ["phone", "mail", "visit"]
MODEL = [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]


def table(counts: Any, codes: list[str] = CHANNELS, field: str = "channel", **parts: Any) -> dict[str, Any]:
    classes = {"field": "urgency", "kind": "class", "codes": ["low", "high"]}
    axes = [*([classes] if np.ndim(counts) == 2 else []), {"field": field, "kind": "category", "codes": codes}]
    return {"table": field, "axes": axes, "counts": counts, **parts}


def measured(*tables: dict[str, Any], half: float = 4.0, law: str = "discrete Laplace") -> dict[str, Any]:
    noise = {"law": law, "scale": 1.3, "standard_deviation": half / 2.5, "half_width_95": half}
    looks = [{"look": "measure-1", "noise": noise, "tables": list(tables)}]
    return {
        "format": "selpe-measurements/1", "stamp": None, "written_by_the_counts": 1.0, "counted": "private records",
        "how_to_use": ["Counts are unbiased."], "looks": looks,
    }  # fmt: skip


COUNTED = measured(table([[30, 6, -2], [4, 50, 12]], model_shares=MODEL, shares=MODEL))


def page(found: dict[str, Any] | None, folder: Path, *, epsilon: float = 2.0) -> Page:
    config = check_config({"dataset": "desk", "data": "x.csv", "epsilon": epsilon}, where="test")
    ledger = Ledger.open("desk", root=folder / "ledger")
    card = build_card(schema=SCHEMA, config=config, run="r", ledger=ledger, records=12, measured=found)
    return Page(summary_page(SCHEMA, drawn(12), json.loads(json.dumps(card)), found))


@pytest.mark.parametrize(
    ("written", "anywhere", "said"),
    [
        (0.0, False, "took a release that does not use these counts"),
        (1.0, False, "100 % of the released records were written to follow these counts; what was not counted is as"),
        (
            0.5,
            True,
            "50 % of the released records were written to follow these counts; what was not counted comes from",
        ),
    ],
)
def test_the_page_says_whether_the_release_follows_the_counts(
    tmp_path: Path, written: float, anywhere: bool, said: str
) -> None:
    found = COUNTED | {"written_by_the_counts": written, "rest_of_any_class": anywhere}
    assert said in page(found, tmp_path).words


def bars(found: dict[str, Any], schema: Any = SCHEMA) -> str:
    section = measured_section(found, schema)
    assert section is not None
    return str(section["tables"][0]["chart"])


def test_shares_are_shown_with_their_noise_and_the_models_own() -> None:
    chart = bars(COUNTED)
    off = 100 * 4 * math.sqrt(2) / 100
    assert f"phone: 34 % plus or minus {off:.1f}" in chart  # 34 of 100 rows, in two cells
    assert "visit: 10 % plus or minus" in chart
    low = 34 / 100  # classes as large as they were counted, negative counts in the sum
    assert f"s own {100 * (0.5 * low + 0.1 * (1 - low)):.0f} %" in chart
    assert chart.count("whisker") == 3 * 3
    assert chart.count("mark model") == 3


def test_the_page_has_the_section_with_a_chart_for_each_table(tmp_path: Path) -> None:
    found = measured(
        table([[9, 3], [8, 2]], ["yes", "no"], "solved", model_shares=[[0.5, 0.5]] * 2), *tables_of(COUNTED)
    )
    shown = page(found, tmp_path)
    plain = page(None, tmp_path)
    for words in ("What was measured", "95 %", "Counts are unbiased.", "none by a person", "± 4"):
        assert words in shown.words
        assert words not in plain.words
    assert shown.tags.count("svg") == plain.tags.count("svg") + 2
    assert [("href", "#measured") in one.attributes for one in (shown, plain)] == [True, False]


def tables_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found["looks"][0]["tables"]
    return listed


def test_of_many_codes_the_likeliest_are_shown_and_not_those_of_lucky_noise() -> None:
    codes = [f"cluster {i}" for i in range(40)]
    counts, shares = [0] * 40, [0.5 / 39] * 40
    counts[7], counts[3] = 60, 90  # the larger count is noise that the estimate does not believe
    shares[7] = 0.5
    found = measured(table(counts, codes, "topic", shares=shares, model_shares=[1 / 40] * 40))
    chart = bars(found, UNLABELLED)
    assert chart.count("mark model") == MOST
    assert chart.index("cluster 7") < chart.index("cluster 0")
    section = measured_section(found, UNLABELLED)
    assert section is not None
    assert section["tables"][0]["note"] == f"The {MOST} likeliest codes; 28 more are in the file."


def test_few_codes_stay_in_their_order() -> None:
    codes = [f"{10 * i} to {10 * i + 9}" for i in range(MOST + 1)]
    chart = bars(measured(table(list(range(MOST + 1)), codes, "minutes")), UNLABELLED)
    places = [chart.index(f">{code}<") for code in codes]
    assert places == sorted(places)


def test_all_tables_share_the_total_with_the_least_noise() -> None:
    many = table([5] * 30, [f"c{i}" for i in range(30)], "topic", shares=[1 / 30] * 30)
    found = measured(many, table([60, 40], ["yes", "no"], "solved"))
    section = measured_section(found, UNLABELLED)
    assert section is not None
    assert section["whole"] == "100"
    assert "c0: 5 % plus or minus 4.0" in str(section["tables"][0]["chart"])


def test_pairs_have_no_share_of_the_model() -> None:
    pair = {
        "table": "channel × solved", "counts": [[5, 6], [7, 8], [9, 10]],
        "axes": [
            {"field": "channel", "kind": "category", "codes": CHANNELS},
            {"field": "solved", "kind": "boolean", "codes": ["true", "false"]},
        ],
    }  # fmt: skip
    chart = bars(measured(pair))
    assert "visit, false: 22 %" in chart
    assert "mark model" not in chart


def test_where_noise_hides_everything_nothing_is_drawn(tmp_path: Path) -> None:
    shown = page(measured(table([[2, 1, 0], [0, -3, 2]], model_shares=MODEL)), tmp_path)
    assert "there is nothing to draw" in shown.words
    assert "What was measured" in shown.words


def test_a_control_has_no_intervals(tmp_path: Path) -> None:
    found = measured(table([[30, 6, 2], [4, 50, 12]], model_shares=MODEL), half=0.0, law="none")
    assert "whisker" not in bars(found)
    shown = page(found, tmp_path, epsilon=math.inf)
    assert "protects nobody" in shown.words
    assert "holds 95 %" not in shown.words


def test_hostile_codes_are_text(tmp_path: Path) -> None:
    shown = page(measured(table([[30, 6], [4, 50]], [HOSTILE, "b"], "topic", model_shares=[[0.5, 0.5]] * 2)), tmp_path)
    assert not {"script", "img"} & set(shown.tags)


def test_the_page_is_written_from_the_files_of_the_release(tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.mkdir()
    config = check_config({"dataset": "desk", "data": "x.csv", "epsilon": 2.0}, where="test")
    ledger = Ledger.open("desk", root=tmp_path / "ledger")
    card = build_card(schema=SCHEMA, config=config, run="r", ledger=ledger, records=12, measured=COUNTED)
    write_table(drawn(12), SCHEMA, release / "synthetic.jsonl")
    (release / "privacy-card.json").write_text(json.dumps(card), encoding="utf-8")
    without = write_summary(release, SCHEMA).read_text(encoding="utf-8")
    (release / "measurements.json").write_text(json.dumps(COUNTED), encoding="utf-8")
    written = write_summary(release, SCHEMA).read_text(encoding="utf-8")
    assert "phone: 34 %" in written
    assert "phone: 34 %" not in without


@pytest.mark.parametrize("half", [0.0, 1.0, 9.0])
def test_wider_noise_never_narrows_an_interval(half: float) -> None:
    wide = bars(measured(table([300, 100], ["yes", "no"], "solved"), half=half), UNLABELLED)
    said = f" ± {100 * half / 400:.1f}"
    assert (said in wide) is (half > 0)
