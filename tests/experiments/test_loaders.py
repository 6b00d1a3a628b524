"""Loaders on small files in each publisher's format: what is read, cleaned, left out and kept together."""

from __future__ import annotations

from pathlib import Path

import pytest

from published import (
    b2w_file,
    cfpb_file,
    jobs_file,
    ktas_file,
    lending_club_file,
    mimic_folder,
    openintro_file,
    water_file,
)
from selpe.errors import ConfigError, DataError, PrivacyError
from selpe.experiments.loaders import NAMES, find, loader_of, recognise
from selpe.experiments.loaders.enrich import require_local
from selpe.experiments.loaders.load import LoadedDataset, load, shortened
from selpe.experiments.loaders.write import is_prepared, load_schema, write
from selpe.intake import parse_records, read_table
from selpe.models.fake import FakeModel
from selpe.schema import Record, Schema


def everything(loaded: LoadedDataset) -> list[Record]:
    return [record for records in loaded.sides.values() for record in records]


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_has_descriptions_and_made_up_examples_of_every_class(name: str) -> None:
    schema = Schema.load(loader_of(name).schema_file)
    assert schema.description
    assert 8 <= len(schema.examples) <= 12
    assert {schema.label_of(record) or "" for record in schema.examples} == (set(schema.labels) or {""})
    assert [violation for record in schema.examples for violation in schema.check(record)] == []
    assert not schema.unconfirmed


@pytest.mark.parametrize("name", NAMES)
def test_the_splits_asked_for_are_as_large_as_those_of_the_papers_table(name: str) -> None:
    loader = loader_of(name)
    assert sum(loader.validation.values()) == 500
    assert sum(loader.test.values()) == (1006 if name == "water" else 1000)  # the paper's own sum is off
    labels = set(Schema.load(loader.schema_file).labels) or {""}
    assert set(loader.validation) == set(loader.test) == labels
    assert set(loader.shares) in (set(), labels)
    assert sum(loader.shares.values()) in (0, pytest.approx(1))


def test_files_are_recognised_by_their_columns(tmp_path: Path) -> None:
    files = {
        "water": water_file(tmp_path), "ktas": ktas_file(tmp_path), "mimic-ed": mimic_folder(tmp_path / "mimic"),
        "loan": lending_club_file(tmp_path), "jobs": jobs_file(tmp_path), "b2w": b2w_file(tmp_path),
        "cfpb": cfpb_file(tmp_path),
    }  # fmt: skip
    for name, path in files.items():
        found = recognise(path)
        assert found is not None
        assert found.name == name
    other = tmp_path / "other.csv"
    other.write_text("a,b,c\n1,2,3\n", encoding="utf-8")
    assert recognise(other) is None
    assert recognise(tmp_path / "nowhere.csv") is None
    assert find("ktas", tmp_path) == files["ktas"]
    with pytest.raises(ConfigError, match="no file of 'mimic-ed'"):
        find("mimic-ed", tmp_path)


def test_a_file_of_another_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a file of 'loan'"):
        load(loader_of("loan"), water_file(tmp_path))


# -- water -----------------------------------------------------------------------------------------------------------


def test_rows_with_the_same_review_stay_on_one_side(tmp_path: Path) -> None:
    path = water_file(tmp_path, per_class=200)
    for seed in range(3):
        loaded = load(loader_of("water"), path, seed=seed)
        held = {side: {record["cleaned_review"] for record in records} for side, records in loaded.sides.items()}
        sides = list(held)
        assert all(held[a].isdisjoint(held[b]) for i, a in enumerate(sides) for b in sides[i + 1 :])
        assert loaded.counts("private") == dict.fromkeys("12345", 20)


def test_the_title_stays_unless_leaks_are_dropped(tmp_path: Path) -> None:
    path = water_file(tmp_path)
    assert "title" in load(loader_of("water"), path).schema.names
    without = load(loader_of("water"), path, leaks=False)
    assert without.schema.names == ("product_name", "overall_rating", "cleaned_review", "rating")
    assert all("title" not in record for record in (*everything(without), *without.schema.examples))


def test_empty_reviews_are_left_out_and_long_ones_cut_and_both_are_counted(tmp_path: Path) -> None:
    loaded = load(loader_of("water"), water_file(tmp_path))
    assert loaded.dirt["'cleaned_review': nothing left of the review, row left out"] == 1
    assert loaded.dirt["'cleaned_review': texts cut to 200 letters"] == 1
    assert all(0 < len(str(record["cleaned_review"])) <= 200 for record in everything(loaded))
    assert shortened("one two three", 9) == "one two"
    assert shortened("one two three", 7) == "one two"


def test_a_split_is_the_same_for_a_seed_and_another_for_another(tmp_path: Path) -> None:
    path = water_file(tmp_path)
    first, again, other = (load(loader_of("water"), path, seed=seed) for seed in (0, 0, 1))
    assert first.sides == again.sides
    assert first.sides["private"] != other.sides["private"]


# -- triage ----------------------------------------------------------------------------------------------------------


def test_a_small_class_gives_at_most_half_of_itself_to_the_private_rows(tmp_path: Path) -> None:
    loaded = load(loader_of("ktas"), ktas_file(tmp_path))
    assert loaded.counts("private") == {"1": 6, "2": 15, "3": 15, "4": 15, "5": 15}
    assert loaded.counts("test")["1"] > loaded.counts("validation")["1"] > 0
    assert "Class 1, 2, 3, 4, 5" in loaded.notes[0]
    assert loaded.dirt["'chiefcomplaint': missing, row left out"] == 1


def test_what_is_known_only_after_triage_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    path = ktas_file(tmp_path)
    names = load(loader_of("ktas"), path).schema.names
    assert not {"ed_diagnosis", "disposition", "acuity_nurse", "o2sat"} & set(names)
    assert {"ed_diagnosis", "disposition", "acuity_nurse"} < set(load(loader_of("ktas"), path, leaks=True).schema.names)


@pytest.mark.parametrize("zipped", [True, False])
def test_mimic_is_joined_with_its_stays_and_cleaned(tmp_path: Path, zipped: bool) -> None:
    loaded = load(loader_of("mimic-ed"), mimic_folder(tmp_path, zipped=zipped), private=5)
    records = everything(loaded)
    assert loaded.schema.names[:3] == ("chiefcomplaint", "gender", "arrival_transport")
    assert {record["gender"] for record in records} == {"F", "M"}
    assert all(record["temperature"] is None or 97 <= float(str(record["temperature"])) <= 99.1 for record in records)
    assert loaded.dirt == {
        "'temperature': Celsius, converted to Fahrenheit": 1,
        "'dbp': not below 'sbp', read as missing": 1,
        "'pain': not a value of the field, read as missing": 1,
        "rows without a class, left out": 1,
    }
    assert loaded.counts("private") == dict.fromkeys("12345", 5)


def test_a_triage_file_without_stays_has_the_triage_fields_alone(tmp_path: Path) -> None:
    folder = mimic_folder(tmp_path)
    (folder / "ed" / "edstays.csv.gz").unlink()
    loaded = load(loader_of("mimic-ed"), folder / "ed" / "triage.csv.gz")
    assert set(loaded.schema.names) == {
        "chiefcomplaint", "temperature", "heartrate", "resprate", "o2sat", "sbp", "dbp", "pain", "acuity",
    }  # fmt: skip


def test_all_stays_of_a_person_are_on_one_side(tmp_path: Path) -> None:
    from selpe.experiments.loaders.base import RowTally
    from selpe.experiments.loaders.load import _read
    from selpe.experiments.loaders.split import Targets, split

    loader = loader_of("mimic-ed")
    path = loader.locate(mimic_folder(tmp_path))
    assert path is not None
    schema = load(loader, path).schema
    rows = list(_read(list(loader.rows(path)), loader, schema, RowTally(), longer=False))
    assert len({row.group for row in rows}) == 80
    private = dict.fromkeys("12345", 5)
    targets = Targets.of(dict.fromkeys("12345", 48), private=private, validation={"1": 10}, test={"2": 10})
    sides = split(
        rows, label=lambda row: str(row.record["acuity"]), group=lambda row: row.group, targets=targets, seed="x"
    )
    groups = [{row.group for row in part} for part in sides.values()]
    assert sum(map(len, groups)) == len(set.union(*groups))


# -- a rare class ----------------------------------------------------------------------------------------------------


def test_frauds_are_one_in_ten_on_the_private_side(tmp_path: Path) -> None:
    loaded = load(loader_of("jobs"), jobs_file(tmp_path, real=3000, frauds=300), private=20)
    assert loaded.counts("private") == {"false": 36, "true": 4}
    assert loaded.counts("test")["false"] == 900
    assert 90 <= loaded.counts("test")["true"] <= 100  # equal advertisements stand on one side
    few = load(loader_of("jobs"), jobs_file(tmp_path), private=20)
    assert few.counts("private")["true"] == 4


def test_advertisements_lose_masks_and_mark_up_and_equal_ones_stay_together(tmp_path: Path) -> None:
    loaded = load(loader_of("jobs"), jobs_file(tmp_path))
    records = everything(loaded)
    assert not [text for record in records for text in map(str, record.values()) if "#" in text or "<p>" in text]
    assert {record["company_profile"] for record in records} == {None, "We make hinges & locks."}
    assert loaded.dirt["'description': missing, row left out"] == 1
    assert loaded.dirt["'description': texts cut to 600 letters"] == 1
    assert loaded.dirt["'description': masks and mark-up removed"] == 200
    held = [{record["description"] for record in side} for side in loaded.sides.values()]
    assert sum(map(len, held)) == len(set.union(*held))


# -- another language, days, several texts ---------------------------------------------------------------------------


def test_reviews_between_semicolons_keep_their_accents_and_days(tmp_path: Path) -> None:
    loaded = load(loader_of("b2w"), b2w_file(tmp_path))
    records = everything(loaded)
    assert 120 <= len(records) <= 150  # the reviews of a person stand on one side
    assert any("não chegou" in str(record["review_text"]) for record in records)
    assert any("quebrado; péssimo" in str(record["review_text"]) for record in records)
    assert {record["submitted"] for record in records} == {f"2018-0{month}-11" for month in range(1, 6)}
    assert {record["birth_year"] for record in records} == {1984, None}
    assert "recommends" not in loaded.schema.names
    assert "recommends" in load(loader_of("b2w"), b2w_file(tmp_path), leaks=True).schema.names
    assert loaded.dirt["'review_text': missing, row left out"] == 1


# -- no label, long texts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_complaints_without_a_label_are_split_by_number_alone(tmp_path: Path, zipped: bool) -> None:
    loaded = load(loader_of("cfpb"), cfpb_file(tmp_path, zipped=zipped), private=20)
    assert loaded.schema.label is None
    assert len(loaded.sides["private"]) == 20
    assert loaded.counts("private") == {}
    records = everything(loaded)
    lengths = [len(str(record["narrative"])) for record in records]
    assert 300 <= min(lengths) < max(lengths) <= 600
    assert all("XX/XX" not in str(record["narrative"]) for record in records)
    assert loaded.dirt["rows without the text, left out"] >= 40
    assert loaded.dirt["rows that contradict a rule of the schema, left out"] == 1
    assert {record["state"] for record in records} == {"OH", None}
    assert "fewer rows than the split asks for" in loaded.notes[0]


def test_a_set_without_a_label_says_so_where_it_is_written(tmp_path: Path) -> None:
    loader = loader_of("cfpb")
    write(load(loader, cfpb_file(tmp_path), private=20), tmp_path / "set", loader=loader)
    said = (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    assert "There is no label." in said
    assert "| file | all | what it is for |\n|---|---|---|\n| `private.csv` | 20 |" in said
    assert "records: 100" in (tmp_path / "set" / "selpe.yaml").read_text(encoding="utf-8")


# -- loans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prospectus", [True, False])
def test_lending_clubs_own_file_is_read_with_the_borrowers_words(tmp_path: Path, prospectus: bool) -> None:
    loaded = load(loader_of("loan"), lending_club_file(tmp_path, prospectus=prospectus))
    records = everything(loaded)
    assert len(records) == 7 * 11  # one of each class has no words
    assert loaded.dirt["rows without the text, left out"] == 7
    assert loaded.dirt["rows without a class, left out"] == 1  # the sum below the table
    assert loaded.dirt["'desc': marks of the platform removed"] == 77
    assert not {"interest_rate", "installment", "sub_grade", "loan_status"} & set(loaded.schema.names)
    one = records[0]
    assert str(one["desc"]).startswith("I owe")
    assert "<br>" not in str(one["desc"])
    assert (one["annual_income"], one["state"], one["term_months"] in ("36", "60")) == (51235, "NY", True)
    assert {record["emp_length_years"] for record in records} == {0, 3, 10, None}
    assert {record["homeownership"] for record in records} == {"RENT", "MORTGAGE", "OTHER"}


def test_openintros_table_gets_a_profile_by_template_which_does_not_leak(tmp_path: Path) -> None:
    loaded = load(loader_of("loan"), openintro_file(tmp_path))
    assert "financial_profile_desc" in loaded.schema.names
    assert loaded.dirt == {"'debt_to_income': not a value of the field, read as missing": 7}
    for record in (*everything(loaded), *loaded.schema.examples):
        text = str(record["financial_profile_desc"])
        assert f"${record['loan_amount']:,} over {record['term_months']} months" in text
        assert "10.1" not in text
        assert not loaded.schema.check(record)
    assert "by a public template" in loaded.notes[-1]
    plain = load(loader_of("loan"), openintro_file(tmp_path), enrich="off")
    assert "financial_profile_desc" not in plain.schema.names


def test_leaks_of_loans_can_be_put_back(tmp_path: Path) -> None:
    names = load(loader_of("loan"), openintro_file(tmp_path), leaks=True).schema.names
    assert {"interest_rate", "installment", "sub_grade"} < set(names)


# -- longer texts ----------------------------------------------------------------------------------------------------


def test_a_template_makes_a_sentence_of_every_complaint_also_in_the_examples(tmp_path: Path) -> None:
    loaded = load(loader_of("mimic-ed"), mimic_folder(tmp_path), enrich="template")
    for record in (*everything(loaded), *loaded.schema.examples):
        assert str(record["chiefcomplaint"]).startswith("The patient comes to the emergency department because of ")
        assert not loaded.schema.check(record)
    assert "chest pain" in " ".join(str(record["chiefcomplaint"]) for record in everything(loaded))


def test_a_model_on_this_machine_can_rewrite_them(tmp_path: Path) -> None:
    path = mimic_folder(tmp_path)
    loaded = load(loader_of("mimic-ed"), path, enrich="fake", model=FakeModel())
    texts = {str(record["chiefcomplaint"]) for record in everything(loaded)}
    assert not any(loaded.schema.check(record) for record in everything(loaded))
    assert len(texts) > 3
    assert "was rewritten by fake on this machine" in loaded.notes[-1]


@pytest.mark.parametrize(
    "llm", ["http://example.org/v1", "https://10.0.0.2:8000/v1#m", "http://localhost/v1,http://far/v1"]
)
def test_no_text_goes_to_another_machine(llm: str) -> None:
    with pytest.raises(PrivacyError, match="another machine"):
        require_local(llm)


@pytest.mark.parametrize("llm", ["smollm2", "some/model.gguf", "http://localhost:8000/v1#m", "http://127.0.0.1/v1"])
def test_models_on_this_machine_are_fine(llm: str) -> None:
    require_local(llm)


def test_water_has_no_text_to_enrich(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no text to enrich"):
        load(loader_of("water"), water_file(tmp_path), enrich="template")


# -- on disk ---------------------------------------------------------------------------------------------------------


def test_what_is_written_reads_back_under_its_schema_and_the_readme_counts(tmp_path: Path) -> None:
    loader = loader_of("ktas")
    loaded = load(loader, ktas_file(tmp_path), seed=4)
    write(loaded, tmp_path / "out", loader=loader, seed=4)
    assert is_prepared(tmp_path / "out")
    schema = load_schema(tmp_path / "out")
    assert schema.fingerprint() == loaded.schema.fingerprint()
    for side in ("private", "validation", "test"):
        reading = parse_records(read_table(tmp_path / "out" / f"{side}.csv"), schema)
        assert (reading.records, reading.dropped) == (loaded.sides[side], 0)
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| `private.csv` | 6 | 15 | 15 | 15 | 15 | 66 |" in readme
    assert "left out: ed_diagnosis, disposition, acuity_nurse" in readme
    assert "| 'chiefcomplaint': missing, row left out | 1 |" in readme


def test_the_settings_that_are_written_start_a_run(tmp_path: Path) -> None:
    from selpe.config import load_config

    write(load(loader_of("ktas"), ktas_file(tmp_path)), tmp_path / "out")
    config = load_config(tmp_path / "out" / "selpe.yaml", environment={})
    assert (config.dataset, Path(config.data).is_file(), Path(config.data_schema).is_file()) == ("ktas", True, True)
