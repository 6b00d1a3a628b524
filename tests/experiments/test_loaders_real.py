"""Loaders on the real files, where they are beside this checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from selpe.experiments.loaders import recognise
from selpe.experiments.loaders.load import LoadedDataset, load

FILES = {
    "water.csv": "water", "ktas_triage.csv": "ktas", "mimic_ed_demo_triage.csv": "mimic-ed", "loan.csv": "loan",
    "loan_lendingclub_desc.csv": "loan",
}  # fmt: skip


@pytest.fixture
def loaded(shared_data: Callable[[str], Path]) -> Callable[[str], LoadedDataset]:
    def find(file: str) -> LoadedDataset:
        loader = recognise(shared_data(file))
        assert loader is not None
        assert loader.name == FILES[file]
        return load(loader, shared_data(file))

    return find


@pytest.mark.parametrize("file", FILES)
def test_every_record_fits_its_schema_and_no_record_stands_on_two_sides(
    loaded: Callable[[str], LoadedDataset], file: str
) -> None:
    found = loaded(file)
    for records in found.sides.values():
        assert not any(found.schema.check(record) for record in records)
    private = {found.schema.dumps(record) for record in found.sides["private"]}
    rest = {found.schema.dumps(record) for side in ("validation", "test", "reserve") for record in found.sides[side]}
    assert private.isdisjoint(rest)


def test_water_has_the_papers_private_and_test_counts(loaded: Callable[[str], LoadedDataset]) -> None:
    found = loaded("water.csv")
    assert found.rows == 20_000
    assert list(found.counts("private").values()) == [20] * 5
    assert list(found.counts("test").values()) == [77, 39, 86, 222, 582]
    assert sum(found.counts("validation").values()) >= 490  # class 2 has only just enough groups


def test_ktas_is_as_large_as_the_data_allow(loaded: Callable[[str], LoadedDataset]) -> None:
    found = loaded("ktas_triage.csv")
    assert found.counts("private") == {"1": 13, "2": 20, "3": 20, "4": 20, "5": 20}
    assert found.counts("test") == {"1": 10, "2": 138, "3": 201, "4": 195, "5": 35}


def test_the_demos_dirt_is_known(loaded: Callable[[str], LoadedDataset]) -> None:
    found = loaded("mimic_ed_demo_triage.csv")
    assert found.dirt["rows without a class, left out"] == 15
    assert found.dirt["'temperature': Celsius, converted to Fahrenheit"] == 1
    assert found.dirt["'dbp': not below 'sbp', read as missing"] == 1
    assert found.dirt["'pain': not a value of the field, read as missing"] == 19


def test_loans_have_words_or_a_profile(loaded: Callable[[str], LoadedDataset]) -> None:
    assert "financial_profile_desc" in loaded("loan.csv").schema.names
    assert "desc" in loaded("loan_lendingclub_desc.csv").schema.names
