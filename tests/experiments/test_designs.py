"""Cells, their keys, and which of them each experiment asks for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench_world import ask, size
from selpe.config import check_config
from selpe.errors import ConfigError
from selpe.experiments import paper
from selpe.experiments.arms import ARMS, CONTROLS, arm_of
from selpe.experiments.designs import DESIGNS, LATER, TWO_ROUNDS, WITHOUT, Ask
from selpe.experiments.grid import Cell, merged
from selpe.experiments.sizes import SIZES, size_of

CELL = Cell("desk", 0, "selpe", epsilon=2.0, llm="fake", settings={"rounds": 2})
JUDGED = {"encoder": "hash", "views": ["minilm"]}


def key(cell: Cell, split: str = "a", judged: dict[str, object] | None = None) -> str:
    return cell.key(split=split, judged=JUDGED if judged is None else judged)


def test_a_key_stands_for_what_the_result_depends_on() -> None:
    assert key(CELL) == key(replace(CELL, row="another name", factors={"rows": 3}, data="alias"))
    changed = [
        replace(CELL, seed=1), replace(CELL, epsilon=math.inf), replace(CELL, method="wasp"),
        replace(CELL, llm="other"), replace(CELL, per_class=21), replace(CELL, private=5),
        replace(CELL, settings={"rounds": 3}), replace(CELL, draw=1),
    ]  # fmt: skip
    keys = {key(CELL), key(CELL, split="b"), key(CELL, judged={"encoder": "minilm"}), *map(key, changed)}
    assert len(keys) == 3 + len(changed)


def test_controls_on_real_rows_do_not_depend_on_the_model() -> None:
    one, other = (Cell("desk", 0, "x", kind="private rows", llm=llm, settings={"a": 1}) for llm in ("fake", "other"))
    assert key(one) == key(other) != key(replace(one, kind="real rows"))


def test_groups_of_settings_are_completed_not_replaced() -> None:
    assert merged({"wasp": {"rounds": 2, "votes": 4}, "k": 1}, {"wasp": {"rounds": 3}, "k": 2}) == {
        "wasp": {"rounds": 3, "votes": 4}, "k": 2,
    }  # fmt: skip


def cells(name: str, asked: Ask) -> list[Cell]:
    return list(DESIGNS[name](asked))


@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("amounts", sorted(SIZES))
def test_every_experiment_has_its_controls_and_settings_that_a_run_accepts(name: str, amounts: str) -> None:
    found = cells(name, ask(size=SIZES[amounts], data=["desk", "other"], seeds=[0, 1], methods=tuple(ARMS)))
    for data in ("desk", "other"):
        for seed in (0, 1):
            here = {cell.row for cell in found if (cell.data, cell.seed) == (data, seed)}
            assert set(CONTROLS) <= here
    for cell in found:
        if cell.kind == "run":
            check_config({"dataset": "x", "data": "x.csv", "method": cell.method, **cell.settings}, where=cell.title)


def test_the_main_table_has_every_method_at_every_epsilon() -> None:
    found = cells("main", ask(epsilons=(math.inf, 1.0), methods=("selpe", "augpe", "dpgen")))
    runs = {(cell.row, cell.epsilon) for cell in found if cell.row not in CONTROLS}
    assert runs == {(row, epsilon) for row in ("selpe", "augpe", "dpgen") for epsilon in (math.inf, 1.0)}


def test_the_main_table_draws_selpe_and_its_control_several_times_and_shares_the_first_with_the_comparison() -> None:
    several = ask(size=size(draws=3), methods=("selpe", "selpe-paper", "augpe"))
    count = Counter(cell.row for cell in cells("main", several) if cell.kind == "run")
    assert count == {"selpe": 3, "control: ε = 0": 6, "control: ε = ∞": 1, "selpe-paper": 1, "augpe": 1}
    keys = [key(cell) for cell in cells("main", several)]
    assert len(set(keys)) == len(keys)
    assert {key(cell) for cell in cells("compare", several)} < set(keys)


def test_slow_methods_are_run_at_few_epsilon_unless_asked_for_another() -> None:
    few = size(slow_at=(4.0,))
    for epsilons, at in (((4.0, 2.0, 1.0), {4.0}), ((2.0, 1.0), {2.0, 1.0})):
        found = cells("main", ask(size=few, epsilons=epsilons, methods=("wasp", "augpe", "dpgen")))
        assert {cell.epsilon for cell in found if cell.row == "dpgen"} == at
        assert {cell.epsilon for cell in found if cell.row == "augpe"} == at
        assert {cell.epsilon for cell in found if cell.row == "wasp"} == at


def test_a_cell_carries_the_settings_of_its_own_method_alone() -> None:
    found = {cell.method: cell for cell in cells("main", ask(methods=("selpe", "augpe", "wasp")))}
    assert set(found["augpe"].settings) & {"augpe", "wasp"} == {"augpe"}
    assert not set(found["selpe"].settings) & {"augpe", "wasp"}
    assert set(found["augpe"].settings) == {"augpe"}  # what a size says of SelPE is not for others


def test_settings_of_the_user_win() -> None:
    found = cells("ablation", ask(settings={"bundles": 7}, size=size(settings={})))
    assert all(cell.settings["bundles"] == 7 for cell in found if cell.kind == "run")


def test_scale_varies_the_private_rows_and_the_control_of_them() -> None:
    found = cells("scale", ask())
    assert {cell.private for cell in found} == {2, 4}
    assert {cell.factors["rows"] for cell in found if cell.row == "control: private rows"} == {2, 4}


def test_numbers_of_rows_that_a_data_set_does_not_have_are_left_out() -> None:
    asked = ask(size=replace(ask().size, rows=(5, 20, 50, 100)), most_private={"desk": 30})
    assert asked.rows("desk") == (5, 20, 50)  # of 50 a class, it has all that there are
    assert asked.rows("other") == (5, 20, 50, 100)
    assert {cell.private for cell in cells("scale", asked)} == {5, 20, 50}


@pytest.mark.parametrize(("classes", "records"), [(2, 200), (3, 201), (5, 200), (7, 280)])
def test_a_small_experiment_writes_at_least_two_hundred_records(classes: int, records: int) -> None:
    asked = ask(size=SIZES["small"], classes={"desk": classes})
    assert {cell.per_class * classes for cell in cells("main", asked)} == {records}
    assert {cell.per_class for cell in cells("main", replace(asked, classes={}))} == {40}


def test_medium_has_as_many_records_a_class_as_the_paper() -> None:
    medium, paper = SIZES["medium"], SIZES["paper"]
    assert (medium.per_class, medium.private, medium.seeds) == (paper.per_class, paper.private, paper.seeds)
    assert (min(medium.rows), max(medium.rows)) == (5, 400)


def test_hyper_varies_one_parameter_at_a_time() -> None:
    found = [cell for cell in cells("hyper", ask(size=size(settings={}))) if "parameter" in cell.factors]
    assert {cell.factors["parameter"] for cell in found} == {"rounds", "multiplicity", "batches", "temperature"}
    for cell in found:
        assert set(cell.settings) == {cell.factors["parameter"]}
        assert cell.settings[str(cell.factors["parameter"])] == cell.factors["value"]


def test_what_is_varied_can_be_named() -> None:
    asked = ask(size=size(settings={"rounds": 1}))
    some = [cell for cell in cells("hyper", replace(asked, vary=["batches"])) if cell.factors]
    assert {cell.factors["parameter"] for cell in some} == {"batches"}
    parts = cells("ablation", replace(asked, vary=["field kernel", "without bundles"]))
    rows = {cell.row for cell in parts} - {*CONTROLS}
    assert rows == {"full", "without field kernel", "without bundles"}
    later = {cell.row for cell in cells("ablation", replace(asked, vary=["contrast"]))} - {*CONTROLS}
    assert later == {"full", TWO_ROUNDS, "without contrast"}
    for name in ("hyper", "ablation"):
        with pytest.raises(ConfigError, match="nothing called 'luck'"):
            cells(name, replace(asked, vary=["luck"]))


def test_hyper_draws_often_what_shares_its_texts() -> None:
    found = [cell for cell in cells("hyper", ask(size=size(settings={"rounds": 1}, draws=4))) if cell.factors]
    count = Counter((cell.factors["parameter"], cell.settings["rounds"]) for cell in found)
    assert count == {
        ("rounds", 1): 4, ("rounds", 3): 1, ("multiplicity", 1): 8, ("batches", 1): 8, ("temperature", 1): 8,
    }  # fmt: skip


@pytest.mark.parametrize("base", ["selpe", "selpe-paper"])
def test_ablation_takes_one_part_away_each(base: str) -> None:
    found = {cell.row: cell for cell in cells("ablation", ask(base=base, size=size(settings={})))}
    full = found["full"].settings
    for row, taken in WITHOUT.items():
        assert found[row].settings == {**full, **taken}
    assert ("without guides" in found) == (base == "selpe")


def test_parts_of_later_rounds_are_taken_from_two_where_a_size_has_one() -> None:
    small = size(settings={"rounds": 1}, draws=16)
    found = cells("ablation", ask(size=small))
    count = Counter(cell.row for cell in found)
    assert count["full"] == count["without guides"] == 16
    assert {row: count[row] for row in (TWO_ROUNDS, *LATER)} == dict.fromkeys((TWO_ROUNDS, *LATER), 2)
    assert {cell.settings["rounds"] for cell in found if cell.row in (TWO_ROUNDS, *LATER)} == {2}
    assert TWO_ROUNDS not in {cell.row for cell in cells("ablation", ask(size=small, base="selpe-paper"))}


def test_backbones_have_controls_of_their_own() -> None:
    found = cells("backbone", ask(llms=("fake", "other")))
    controls = {(cell.row, cell.llm) for cell in found if cell.row == "control: ε = 0"}
    assert controls == {("control: ε = 0", "fake"), ("control: ε = 0", "other")}


def test_attacks_are_not_tried_on_what_releases_nothing() -> None:
    assert "dpds" not in {cell.method for cell in cells("privacy", ask(methods=tuple(ARMS)))}


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="no method 'magic'"):
        arm_of("magic")
    with pytest.raises(ConfigError, match="no size 'huge'"):
        size_of("huge")


# -- the paper's figures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "printed"),
    [
        (paper.main("Water", "wasp", 2.0), (85.34, 54.15, 62.05)),
        (paper.main("Mimic", "selpe", 1.0), (65.06, 53.20, 95.80)),
        (paper.main("Loan", "dpds", math.inf), (49.84, 55.30, None)),
        (paper.backbone("Qwen-2.5-14B-Instruct", 1.0), (68.64, 60.11, 99.95)),
        (paper.privacy("Loan", "wasp"), (0.99, 16.02, 41.43)),
        (paper.ABLATION["without two stages"], (60.32, 51.27)),
    ],
)
def test_the_papers_figures_are_as_printed(found: Sequence[float | None], printed: Sequence[float | None]) -> None:
    assert found == printed


def test_the_papers_tables_are_whole_and_say_nothing_about_the_rest() -> None:
    for data in ("Water", "Mimic", "Loan"):
        for method in ("dpds", "dpgen", "augpe", "wasp", "ctcl", "selpe"):
            for epsilon in paper.EPSILONS:
                assert len(paper.main(data, method, epsilon) or ()) == 3
    assert paper.main("Water", "selpe", 3.0) is None
    assert paper.main("", "selpe", 2.0) is None
    assert paper.privacy("Water", "") is None
