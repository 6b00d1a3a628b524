"""Where data comes from: publishers' files, prepared folders, tables of one's own; and splits as cells see them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench_world import source, table
from published import cfpb_file, jobs_file, ktas_file
from selpe.errors import ConfigError, DataError
from selpe.experiments.loaders import loader_of
from selpe.experiments.loaders.load import load
from selpe.experiments.loaders.write import write
from selpe.experiments.sources import open_source
from selpe.intake import write_table
from small_world import SCHEMA, UNLABELLED, drawn


def test_a_table_of_ones_own_is_split_by_seed_and_kept(tmp_path: Path) -> None:
    found = source(tmp_path)
    one, again, other = (found.split(tmp_path / "data", seed, 6) for seed in (0, 0, 1))
    assert one.digest == again.digest != other.digest
    assert Counter(SCHEMA.label_of(record) for record in one.side("private")) == {"low": 6, "high": 6}
    assert len(one.side("test")) > len(one.side("validation")) > 0
    everything = [SCHEMA.dumps(row) for side in ("private", "validation", "test") for row in one.side(side)]
    assert len(everything) == len(set(everything)) == 48


def test_where_test_rows_are_given_the_whole_table_is_private(tmp_path: Path) -> None:
    path = table(tmp_path)
    write_table(drawn(10, offset=500), SCHEMA, tmp_path / "test.csv")
    found = open_source(str(path), folder=tmp_path, schema=tmp_path / "schema.yaml", test=tmp_path / "test.csv")
    split = found.split(tmp_path / "data", 0, 6)
    assert found.whole
    assert (len(split.private(10**6)), len(split.side("test")), split.side("validation")) == (48, 10, [])
    with pytest.raises(DataError, match="no validation rows"):
        split.judged_on("validation", None)


def test_fewer_private_rows_are_among_more(tmp_path: Path) -> None:
    split = source(tmp_path).split(tmp_path / "data", 0, 6)
    few, more = split.private(2), split.private(5)
    assert (len(few), len(more)) == (4, 10)
    assert all(row in more for row in few)
    assert split.private_file(6).name == "private.csv"
    file = split.private_file(2)
    assert len(file.read_text(encoding="utf-8").splitlines()) == 5


def test_real_rows_to_train_on_never_come_from_the_rows_that_judge(tmp_path: Path) -> None:
    split = source(tmp_path).split(tmp_path / "data", 0, 6)
    for on in ("test", "validation"):
        judged = {SCHEMA.dumps(row) for row in split.judged_on(on, None)}
        real = split.real(8, 6, on=on)
        assert judged.isdisjoint(SCHEMA.dumps(row) for row in real)
    counts = Counter(SCHEMA.label_of(row) for row in split.real(8, 6, on="test"))
    assert max(counts.values()) <= 8


def test_a_publishers_file_is_recognised_and_a_prepared_folder_taken_as_it_is(tmp_path: Path) -> None:
    path = ktas_file(tmp_path)
    for word in (str(path), f"ktas={path}", "ktas"):
        found = open_source(word, folder=tmp_path)
        assert (found.name, found.paper) == ("ktas", "Mimic")
    loader = loader_of("ktas")
    write(load(loader, path), tmp_path / "triage", loader=loader)
    prepared = open_source(str(tmp_path / "triage"), folder=tmp_path)
    assert (prepared.name, prepared.paper, prepared.make) == ("triage", "Mimic", None)
    assert prepared.split(tmp_path, 3, 20).digest == prepared.split(tmp_path, 4, 5).digest


def test_a_rare_class_stays_rare_at_every_number_of_private_rows(tmp_path: Path) -> None:
    path = jobs_file(tmp_path, real=500, frauds=60)
    prepared = tmp_path / "ready"
    write(load(loader_of("jobs"), path, private=20), prepared, loader=loader_of("jobs"))
    for word in ("jobs", str(prepared)):
        split = open_source(word, folder=tmp_path).split(tmp_path / "data", 0, 20)
        for per_class, counts in ((20, {"false": 36, "true": 4}), (5, {"false": 9, "true": 1})):
            assert Counter(split.schema.label_of(row) for row in split.private(per_class)) == counts


def test_leaks_make_another_split(tmp_path: Path) -> None:
    ktas_file(tmp_path)
    names = [
        open_source("ktas", folder=tmp_path, leaks=leaks).split(tmp_path / "data", 0, 5).schema.names
        for leaks in (None, True)
    ]
    assert set(names[1]) - set(names[0]) == {"ed_diagnosis", "disposition", "acuity_nurse"}


def test_what_is_no_data_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such data"):
        open_source("nowhere.csv", folder=tmp_path)
    with pytest.raises(ConfigError, match="no known data set"):
        open_source(str(table(tmp_path)), folder=tmp_path)
    UNLABELLED.save(tmp_path / "plain.yaml")
    with pytest.raises(ConfigError, match="schema with a label"):
        open_source(str(tmp_path / "desk.csv"), folder=tmp_path, schema=tmp_path / "plain.yaml")
    write(load(loader_of("cfpb"), cfpb_file(tmp_path)), tmp_path / "told", loader=loader_of("cfpb"))
    for word in ("cfpb", str(tmp_path / "told")):
        with pytest.raises(ConfigError, match="schema with a label"):
            open_source(word, folder=tmp_path)
    with pytest.raises(ConfigError, match="no file of 'water'"):
        open_source("water", folder=tmp_path)
