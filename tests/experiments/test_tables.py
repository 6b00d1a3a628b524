"""Tables and charts from made-up results: means, errors, the paper's figures, who leads, what was left out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench_world import ask, size
from selpe.experiments.arms import ARMS, NOTHING, PRIVATE_ROWS, REAL_ROWS
from selpe.experiments.blocks import Block, TableBlock, Text, markdown, mean_cell
from selpe.experiments.charts import charts
from selpe.experiments.designs import DESIGNS, LATER, TWO_ROUNDS
from selpe.experiments.grid import ALL_ROWS, Cell
from selpe.experiments.lead import leads
from selpe.experiments.outputs import write_outputs
from selpe.experiments.results import Mean, Meant, Point, Results, tidy
from selpe.experiments.tables import HEADINGS, Setting, page

LEVEL = {"selpe": 70.0, "selpe-paper": 64.0, "augpe": 66.0, "wasp": 68.0, NOTHING: 65.0, PRIVATE_ROWS: 80.0}
SPENT = {"selpe": (2.0, 1.0, 0.0), "augpe": (2.0, 1.361, 1e-5)}


def setting(name: str, **changes: object) -> Setting:
    base = Setting(
        name, "small", ("fake",), "hash", ("minilm", "boosted"), "test", (0, 1, 2), 12, (4.0, 2.0),
        papers={"ktas": "Mimic", "water": "Water"},
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def results(name: str, *, data: Sequence[str] = ("ktas",), without: Sequence[str] = ()) -> Results:
    """Results in which a row has its level, ε a little effect, and seeds differ by one point."""
    asked = ask(
        data=list(data), seeds=[0, 1, 2], epsilons=(4.0, 2.0), size=size(rows=(5, 20)),
        methods=("selpe", "selpe-paper", "augpe", "wasp", "dpds"), llms=("fake", "llama-3.1-8b-instruct-q4.gguf"),
    )  # fmt: skip
    cells = tuple(DESIGNS[name](asked))
    points = [point for cell in cells if cell.row not in without for point in figures(cell)]
    return Results(tuple(points), cells, sum(cell.row not in without for cell in cells))


def figures(cell: Cell) -> list[Point]:
    level = LEVEL.get(cell.row, 60.0) + cell.seed - 1 + (0.0 if math.isinf(cell.epsilon) else cell.epsilon / 2)
    if cell.row == "dpds":
        return [Point(cell, "auc", 55.0, "dp-ds", "text")]
    found = [Point(cell, "auc", level, "minilm", "text"), Point(cell, "auc", level - 10, "boosted", "structured")]
    found.append(Point(cell, "records", 60.0))
    if cell.kind != "run":
        return found
    names = (("r_cfg", 100.0), ("s_cfg", 99.5), ("nrs", 1.0), ("dcr", 6.25), ("alarms", 0.0), ("seconds", 100.0),
             ("completion_tokens", 12_345.0), ("marginals", 0.2), ("recall", 0.5))  # fmt: skip
    found += [Point(cell, measure, value) for measure, value in names]
    found += [Point(cell, "tpr", 2.5, "text"), Point(cell, "tpr", 1.5, "kernel")]
    spent = SPENT.get(cell.row, (cell.epsilon, cell.epsilon / 2, 0.0))
    names_spent = ("epsilon_replace_one", "epsilon_add_remove", "delta")
    return found + [Point(cell, measure, value) for measure, value in zip(names_spent, spent, strict=True)]


def tables(blocks: Sequence[Block]) -> list[TableBlock]:
    return [block for block in blocks if isinstance(block, TableBlock)]


def row(table: TableBlock, start: str) -> tuple[str, ...]:
    (found,) = [line for line in table.rows if line[0] == start]
    return found


# -- figures ---------------------------------------------------------------------------------------------------------


def test_a_mean_has_its_standard_error_over_seeds() -> None:
    mean = Mean.of([1.0, 2.0, 3.0])
    assert mean == Mean(2.0, 1 / math.sqrt(3), 3)
    assert mean_cell(mean) == "2.0 ± 0.6"
    assert mean_cell(mean, paper=61.36, best=True) == "**2.0** ± 0.6 (61.36)"
    assert mean_cell(Mean(-1.0, 0.0, 1), sign=True) == "−1.0"
    assert mean_cell(None, paper=3.0) == "– (3)"
    assert Mean.of([]) is None


def test_several_figures_of_one_seed_count_as_one() -> None:
    cell = Cell("ktas", 0, "selpe", epsilon=2.0)
    points = [Point(replace(cell, seed=seed), "auc", value, "minilm", "text") for seed, value in
              ((0, 60.0), (0, 70.0), (1, 75.0))]  # fmt: skip
    found = Results(tuple(points), (cell,), 1).mean("auc", Meant("ktas", "selpe"))
    assert found is not None
    assert (found.value, found.seeds) == (70.0, 2)


def test_tidy_rows_say_which_figure_they_are() -> None:
    found = tidy(results("scale"), "scale")
    one = next(line for line in found if line["row"] == "selpe" and line["measure"] == "auc" and line["seed"] == 2)
    assert (one["experiment"], one["data"], one["epsilon"], one["rows"], one["view"]) == (
        "scale",
        "ktas",
        4.0,
        5,
        "minilm",
    )
    assert one["value"] == 73.0


@pytest.mark.parametrize("experiment", sorted(DESIGNS))
def test_no_column_of_tidy_rows_covers_another(experiment: str) -> None:
    found = results(experiment)
    for point, line in zip(found.points, tidy(found, experiment), strict=True):
        assert line["value"] == point.value
        told = dict(point.cell.factors)
        value = told.pop("value", None)
        assert line.get("parameter_value") == value
        assert {name: line[name] for name in told} == told


def test_a_page_says_how_many_private_rows_there_were_at_most() -> None:
    most = {name: max(cell.private for cell in results(name).cells) for name in ("main", "scale")}
    assert most["main"] != most["scale"]
    for name, rows in most.items():
        assert f"up to {rows} private rows a class" in markdown(page(results(name), setting(name)))
    found = results("main")
    whole = replace(found, cells=tuple(replace(cell, private=ALL_ROWS) for cell in found.cells))
    assert "12 synthetic records a class and all private rows, 3 seeds" in markdown(page(whole, setting("main")))


# -- pages -----------------------------------------------------------------------------------------------------------


def test_the_main_table_stands_beside_the_papers_figures_with_controls_below() -> None:
    blocks = page(results("main", data=("ktas", "water")), setting("main"))
    table = tables(blocks)[0]
    assert table.headings == ("method", "ε = 4: text", "structured", "R-CFG", "ε = 2: text", "structured", "R-CFG")
    assert row(table, "WASP")[1:3] == ("70.0 ± 0.6 (63.57)", "60.0 ± 0.6 (52.55)")
    assert row(table, "SelPE")[4] == "**71.0** ± 0.6"
    assert row(table, "SelPE, paper's configuration")[4] == "65.0 ± 0.6 (62.44)"
    assert row(table, "DP-DS")[1:4] == ("55.0 ± 0.0 (55.58)", "– (52.91)", "–")
    assert row(table, NOTHING)[1] == row(table, NOTHING)[4] == "65.0 ± 0.6"
    assert [line[0] for line in table.rows][-2:] == [PRIVATE_ROWS, REAL_ROWS]
    assert row(table, PRIVATE_ROWS)[3] == "–"
    text = markdown(blocks)
    assert "## water (the paper: Water)" in text
    assert "(85.34)" in text


def test_every_figure_is_on_the_page_with_both_true_epsilons() -> None:
    table = tables(page(results("compare"), setting("compare")))[0]
    assert table.headings == HEADINGS
    told = dict(zip(table.headings, next(line for line in table.rows if line[:2] == ("Aug-PE", "2")), strict=True))
    assert (told["ε replace-one"], told["ε add-remove"], told["δ"]) == ("2", "1.36", "1e-05")
    assert (told["AUC text"], told["AUC structured"], told["mean"]) == ("67.0 ± 0.6", "57.0 ± 0.6", "62.0 ± 0.6")
    assert (told["R-CFG"], told["S-CFG"], told["NRS"], told["DCR"]) == (
        "100.0 ± 0.0", "99.5 ± 0.0", "1.000 ± 0.000", "6.25 ± 0.00",
    )  # fmt: skip
    assert (told["TPR text"], told["time"], told["tokens"]) == ("2.5 ± 0.0", "2 min", "12 k")
    unlimited = dict(zip(table.headings, row(table, "control: ε = ∞"), strict=True))
    assert unlimited["ε replace-one"] == "∞"


def test_who_leads_is_judged_by_seed_and_beside_the_control() -> None:
    found = {(lead.data, lead.epsilon): lead for lead in leads(results("main"), (4.0, 2.0))}
    lead = found["ktas", 2.0]
    assert (lead.best, lead.leads, lead.owed) == ("wasp", True, True)
    assert lead.over_best == Mean(2.0, 0.0, 3)
    assert lead.over_nothing == Mean(6.0, 0.0, 3)
    behind = results("main")
    lifted = [replace(point, value=point.value + 9) if point.cell.row == "augpe" and point.measure == "auc" else point
              for point in behind.points]  # fmt: skip
    lead = leads(replace(behind, points=tuple(lifted)), (2.0,))[0]
    assert (lead.best, lead.leads) == ("augpe", False)
    text = markdown(page(behind, setting("main")))
    assert "| ktas, ε = 2 | 66.0 ± 0.6 | WASP | +2.0 ± 0.0 | yes | +6.0 ± 0.0 | yes |" in text


def test_a_baseline_without_records_or_at_a_larger_epsilon_alone_takes_part_in_the_lead() -> None:
    found = results("main")
    best = [replace(point, value=90.0) if point.cell.row == "dpds" else point for point in found.points]
    assert leads(replace(found, points=tuple(best)), (2.0,))[0].best == "dpds"
    only_four = [point for point in best if point.cell.row != "dpds" or point.cell.epsilon == 4.0]
    lead = leads(replace(found, points=tuple(only_four)), (2.0,))[0]
    assert (lead.best, lead.leads) == ("dpds", False)
    only_less = [point for point in best if point.cell.row != "dpds" or point.cell.epsilon == 2.0]
    assert leads(replace(found, points=tuple(only_less)), (4.0,))[0].best == "wasp"


def test_one_seed_tells_nothing_about_standard_errors() -> None:
    one = results("main")
    points = tuple(point for point in one.points if point.cell.seed == 0)
    assert leads(replace(one, points=points), (2.0,))[0].owed is None


def test_scale_has_a_table_for_each_kind_of_view() -> None:
    blocks = page(results("scale"), setting("scale", epsilons=(2.0,)))
    text, structured = tables(blocks)[:2]
    assert text.headings == ("method", "n = 5", "n = 20")
    assert row(text, "SelPE")[1] == "71.0 ± 0.6"
    assert row(structured, PRIVATE_ROWS)[2] == "70.0 ± 0.6"


def test_hyper_has_a_table_for_each_parameter_and_the_controls() -> None:
    found = tables(page(results("hyper"), setting("hyper", epsilons=(2.0,))))
    assert [table.headings[0] for table in found[:5]] == ["rounds", "multiplicity", "batches", "temperature", "control"]
    assert [line[0] for line in found[3].rows] == ["0.7", "1.2"]
    assert row(found[4], NOTHING)[1] == "65.0 ± 0.6"


def test_ablation_shows_the_difference_to_the_whole_and_the_papers_figures() -> None:
    found = tables(page(results("ablation"), setting("ablation", epsilons=(2.0,))))[0]
    assert row(found, "without two stages")[1:3] == ("61.0 ± 0.6 (60.32)", "51.0 ± 0.6 (51.27)")
    assert row(found, "full")[4] == ""
    assert row(found, "SelPE, paper's configuration")[4] == "+4.0 ± 0.0"
    elsewhere = tables(page(results("ablation", data=("water",)), setting("ablation", epsilons=(2.0,))))[0]
    assert row(elsewhere, "without two stages")[1] == "61.0 ± 0.6"


def test_what_is_taken_from_a_run_of_two_rounds_is_held_against_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEVEL, TWO_ROUNDS, 65.0)
    monkeypatch.setitem(LEVEL, LATER[0], 62.0)
    found = tables(page(results("ablation"), setting("ablation", epsilons=(2.0,))))[0]
    assert row(found, LATER[0])[4] == "−3.0 ± 0.0"
    assert row(found, "without guides")[4] == "0.0 ± 0.0"


def test_privacy_shows_nrs_dcr_and_true_positives() -> None:
    found = tables(page(results("privacy"), setting("privacy", epsilons=(2.0,))))[0]
    assert row(found, "Aug-PE")[1:4] == ("1.000 ± 0.000 (1)", "6.25 ± 0.00 (10.03)", "2.5 ± 0.0 (36)")
    assert row(found, NOTHING)[1] == "1.000 ± 0.000"
    assert "DP-DS" not in {line[0] for line in found.rows}


def test_backbones_are_matched_with_the_papers_by_name() -> None:
    found = tables(page(results("backbone"), setting("backbone", epsilons=(4.0, 2.0))))
    assert row(found[0], "llama-3.1-8b-instruct-q4.gguf: SelPE")[1].endswith("(66.08)")
    assert "(" not in row(found[0], "fake: SelPE")[1]
    assert row(found[1], "Gemma-2-9B-Instruct")[1] == "64.2"


def test_what_is_missing_is_said() -> None:
    told = setting("main", skipped={"dpds": "needs torch"}, failed={"ktas, wasp": "the model is gone"})
    text = markdown(page(results("main", without=("wasp", "dpds")), told))
    assert re.search(r"\*\*\d+ of \d+ cells are done\.\*\*", text)
    assert "- dpds: skipped. needs torch" in text
    assert "- ktas, wasp: failed. the model is gone" in text
    assert "cells are done" not in markdown(page(results("main"), setting("main")))


def test_cells_of_a_table_cannot_break_it() -> None:
    assert "a\\|b" in markdown([TableBlock(("x",), (("a|b",),)), Text("t", 2)])


# -- charts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["ktas", "emergency-department-visits-of-the-last-quarter"])
@pytest.mark.parametrize("name", sorted({*DESIGNS} - {"ablation", "compare", "privacy"}))
def test_titles_of_panels_stay_in_their_panels(name: str, data: str) -> None:
    (content,) = charts(results(name, data=(data,)), setting(name)).values()
    titles = [one for one in ElementTree.fromstring(content).iter() if one.get("class") == "title"]
    assert titles
    for title in titles:
        assert len(str(title.text)) * 7.5 <= 350 - 40


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_every_experiment_has_a_chart_that_is_whole_and_says_what_it_shows(name: str) -> None:
    (content,) = charts(results(name), setting(name)).values()
    tree = ElementTree.fromstring(content)
    space = "{http://www.w3.org/2000/svg}"
    assert tree.tag == f"{space}svg"
    assert tree.find(f"{space}title") is not None
    assert tree.find(f"{space}desc") is not None
    drawn = tree.findall(f".//{space}polyline") + tree.findall(f".//{space}circle")
    assert len(drawn) >= 4
    assert "script" not in content


def test_lines_have_intervals_and_a_key() -> None:
    content = charts(results("scale"), setting("scale", epsilons=(2.0,)))["auc-by-rows.svg"]
    assert "SelPE, paper" in content
    assert content.count("SelPE: 71.0 ± 0.6") == 2  # a point for each number of rows
    assert "stroke-dasharray" in content  # controls


def test_without_figures_there_is_no_chart() -> None:
    empty = Results((), results("scale").cells, 0)
    assert charts(empty, setting("scale")) == {}


def test_everything_is_written_to_a_folder(tmp_path: Path) -> None:
    import pandas as pd

    write_outputs(results("scale"), setting("scale"), tmp_path / "scale")
    names = {path.name for path in (tmp_path / "scale").iterdir()}
    assert names == {"auc-by-rows.svg", "results.csv", "results.parquet", "table.md"}
    text = (tmp_path / "scale" / "table.md").read_text(encoding="utf-8")
    assert text.startswith("# Private rows a class\n")
    assert "![auc-by-rows](auc-by-rows.svg)" in text
    frames = [pd.read_csv(tmp_path / "scale" / "results.csv"), pd.read_parquet(tmp_path / "scale" / "results.parquet")]
    assert frames[0].shape == frames[1].shape
    assert set(frames[1]["measure"]) >= {"auc", "s_cfg", "tpr"}


def test_all_arms_have_titles_and_known_methods() -> None:
    from selpe.config.methods import METHODS

    assert {arm.method for arm in ARMS.values()} == set(METHODS)
    assert len({arm.title for arm in ARMS.values()}) == len(ARMS)
