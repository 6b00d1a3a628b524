"""The shipped examples keep what their README says: valid, distinct, balanced as stated, learnable but not trivial."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from selpe.cli.demo import EXAMPLES, TABLES
from selpe.config import load_config
from selpe.intake import read_table, to_records
from selpe.schema import CategoryField, Field, IntegerField, NumberField, Record, Schema

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SIZES = {
    ("triage", "private"): {"1": 25, "2": 40, "3": 50, "4": 35},
    ("triage", "test"): {"1": 12, "2": 20, "3": 25, "4": 18},
    ("credit", "private"): {"A": 30, "B": 50, "C": 41, "D": 29},
    ("credit", "test"): {"A": 15, "B": 25, "C": 21, "D": 14},
    ("hotel", "private"): {"happy": 60, "mixed": 50, "unhappy": 40},
    ("hotel", "test"): {"happy": 30, "mixed": 25, "unhappy": 20},
    ("anliegen", "private"): {"hoch": 27, "mittel": 34, "niedrig": 37},
    ("anliegen", "test"): {"hoch": 13, "mittel": 17, "niedrig": 18},
    ("maintenance", "private"): {None: 80},
    ("maintenance", "test"): {None: 26},
}
LABELLED = tuple(name for name in EXAMPLES if name != "maintenance")


@dataclass(frozen=True)
class Example:
    name: str
    schema: Schema
    private: list[Record]
    test: list[Record]

    @property
    def all(self) -> list[Record]:
        return self.private + self.test

    def fields(self, *kinds: str) -> list[Field]:
        return [field for field in self.schema.fields if field.kind in kinds and field.name != self.schema.label]


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> Example:
    return opened(request.param)


@pytest.fixture(scope="module", params=LABELLED)
def labelled(request: pytest.FixtureRequest) -> Example:
    return opened(request.param)


def opened(name: str) -> Example:
    config = load_config(FOLDER / name / "selpe.yaml", environment={})
    assert config.test is not None
    schema = Schema.load(Path(config.data_schema))
    private, test = (to_records(read_table(Path(path)), schema) for path in (config.data, config.test))
    return Example(name, schema, private, test)


def test_the_demo_says_how_many_rows_a_table_has(example: Example) -> None:
    told = next(TABLES[name] for name in EXAMPLES if name == example.name)
    assert told.split()[0] == str(len(example.private))


def test_every_record_passes_its_schema(example: Example) -> None:
    assert [violation for record in example.all for violation in example.schema.check(record)] == []


def test_sizes_and_class_counts_are_as_stated(example: Example) -> None:
    for split, records in (("private", example.private), ("test", example.test)):
        counts = Counter(example.schema.label_of(record) for record in records)
        assert counts == SIZES[example.name, split]


def test_columns_stand_in_schema_order(example: Example) -> None:
    for split in ("private", "test"):
        header = (FOLDER / example.name / f"{split}.csv").read_text(encoding="utf-8").splitlines()[0]
        assert tuple(header.split(",")) == example.schema.names


def test_optional_fields_are_sometimes_missing_and_mostly_present(example: Example) -> None:
    for field in example.schema.fields:
        missing = sum(record.get(field.name) is None for record in example.all)
        assert (0 < missing < len(example.all) / 4) if field.optional else missing == 0, field.name


def _trigrams(text: str) -> frozenset[tuple[str, ...]]:
    """Word 3-grams; a text of fewer words counts as one gram."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def test_no_two_texts_share_more_than_60_percent_of_their_word_trigrams(example: Example) -> None:
    """Over both splits and the schema's own public examples, so that none repeats another's record."""
    for field in example.fields("text"):
        records = [*example.all, *example.schema.examples]
        grams = [_trigrams(str(record[field.name])) for record in records if record.get(field.name)]
        shared = [len(a & b) / min(len(a), len(b)) for a, b in combinations(grams, 2)]
        assert max(shared) <= 0.6, field.name


def test_no_test_record_repeats_a_private_one_in_its_structured_fields(example: Example) -> None:
    names = [field.name for field in example.fields("category", "integer", "number", "boolean", "date")]
    seen = {tuple(record.get(name) for name in names) for record in example.private}
    assert not [record for record in example.test if tuple(record.get(name) for name in names) in seen]


def test_public_examples_cover_all_classes_and_are_valid(example: Example) -> None:
    schema = example.schema
    assert {schema.label_of(record) or "" for record in schema.examples} == (set(schema.labels) or {""})
    assert [violation for record in schema.examples for violation in schema.check(record)] == []


def test_every_field_and_category_value_is_described_and_has_an_example(example: Example) -> None:
    for field in example.schema.fields:
        assert field.description, field.name
        assert field.examples, field.name
        if isinstance(field, CategoryField):
            assert set(field.descriptions) == set(field.values), field.name


def test_bounds_are_wider_than_what_the_tables_hold(example: Example) -> None:
    """Bounds are public knowledge: none is the table's own extreme, but for natural ends (pain 0 to 10)."""
    scales = {
        "pain",
        "age",
        "nights",
        "o2sat",
        "years_employed",
        "term_months",
        "aufwand",
        "downtime",
        "parts_cost",
        "staff",
    }
    for field in example.fields("integer", "number"):
        values = [float(record[field.name] or 0) for record in example.all if record.get(field.name) is not None]
        if isinstance(field, IntegerField | NumberField) and field.name not in scales:
            assert field.min < min(values), field.name
            assert max(values) < field.max, field.name


def test_a_credit_debt_ratio_covers_at_least_the_loan_itself() -> None:
    schema = Schema.load(FOLDER / "credit" / "schema.yaml")
    for split in ("private", "test"):
        records = to_records(read_table(FOLDER / "credit" / f"{split}.csv"), schema)
        known = [record for record in records if record["debt_ratio"] is not None]
        assert len(known) > len(records) / 2
        for record in known:
            figures = (record[name] for name in ("debt_ratio", "amount", "term_months", "income"))
            ratio, amount, term, income = (float(figure or "nan") for figure in figures)
            assert ratio >= amount / term / (income / 12) * 100 - 0.1


def test_maintenance_reports_are_long_and_name_no_class() -> None:
    maintenance = opened("maintenance")
    assert maintenance.schema.label is None
    lengths = [len(str(record["report"])) for record in maintenance.all]
    assert 300 <= min(lengths) < max(lengths) <= 600
    assert max(lengths) - min(lengths) > 100


def test_the_german_concerns_are_written_in_german_with_its_own_letters() -> None:
    """Every fourth word or so of German is one of few; files that lost their umlauts have none."""
    common = set("der die das den dem ein eine und ist nicht mit von auf in im zu seit wird hat es wir".split())
    german = opened("anliegen")
    texts = " ".join(f"{record['meldung']} {record['vermerk']}" for record in german.all)
    words = re.findall(r"\w+", texts.lower())
    assert sum(word in common for word in words) > len(words) / 6
    assert sum(any(letter in word for letter in "äöüß") for word in words) > len(words) / 12


def test_days_of_an_example_stand_in_order_and_urgent_concerns_end_soonest() -> None:
    from datetime import date

    german = opened("anliegen")
    waited: dict[str | None, list[int]] = {}
    for record in german.all:
        if record["erledigt"] is not None:
            days = date.fromisoformat(str(record["erledigt"])) - date.fromisoformat(str(record["eingang"]))
            waited.setdefault(german.schema.label_of(record), []).append(days.days)
    means = {label: sum(days) / len(days) for label, days in waited.items()}
    assert means["hoch"] < 3 < means["mittel"]


def _features(fields: list[Field]) -> Any:
    """TF-IDF of texts, one-hot categories and scaled numbers, to be fitted on the private split."""
    from sklearn.compose import make_column_transformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps: list[tuple[Any, Any]] = []
    for field in fields:
        if field.kind == "text":
            steps.append((TfidfVectorizer(sublinear_tf=True), field.name))
        elif field.kind in ("category", "boolean"):
            steps.append((OneHotEncoder(handle_unknown="ignore"), [field.name]))
        elif field.kind != "date":
            steps.append((make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), [field.name]))
    return make_column_transformer(*steps)


def _auc(example: Example, fields: list[Field]) -> float:
    """One-vs-rest AUC on the test split of a logistic regression trained on the private one."""
    import pandas as pd
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline

    def frame(records: list[Record]) -> Any:
        table = pd.DataFrame(records)
        texts = [field.name for field in example.fields("text", "category", "boolean")]
        return table.assign(**{name: table[name].fillna("").astype(str) for name in texts})

    def labels(records: list[Record]) -> list[str | None]:
        return [example.schema.label_of(record) for record in records]

    model = make_pipeline(_features(fields), LogisticRegression(max_iter=2000))
    model.fit(frame(example.private), labels(example.private))
    scores = model.predict_proba(frame(example.test))
    return float(roc_auc_score(labels(example.test), scores, multi_class="ovr"))


def test_a_simple_model_learns_the_label_but_not_perfectly(labelled: Example) -> None:
    assert 0.65 <= _auc(labelled, labelled.fields("text", "category", "boolean", "integer", "number")) <= 0.97


def test_no_single_field_gives_the_label_away(labelled: Example) -> None:
    for field in labelled.fields("text", "category", "boolean", "integer", "number"):
        assert _auc(labelled, [field]) <= 0.87, field.name
        if field.kind in ("category", "boolean"):
            pairs = {(record.get(field.name), labelled.schema.label_of(record)) for record in labelled.all}
            classes = Counter(value for value, _ in pairs)
            assert min(classes.values()) > 1, field.name
