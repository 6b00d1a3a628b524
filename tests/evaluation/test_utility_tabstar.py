"""The view `tabstar`: the worker's side on its own, the pipe to it with a stand-in package, and the real package."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnable_world import SHOP, learnable
from selpe.errors import ModelError
from selpe.evaluation.utility import utility
from selpe.evaluation.views import tabstar_worker
from selpe.evaluation.views.tabstar import VARIABLE, TabStarView, create_environment, environment_python
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record

# What the view uses of the package: learns how often each device comes with each class, and lists classes backwards.
CLASSIFIER = """
import numpy as np
class TabSTARClassifier:
    def __init__(self, *, random_state, device, output_dir, keep_model, max_epochs=50):
        print("this must not stand between answers")
        self.seed = random_state
    def fit(self, X, y, x_val, y_val):
        assert set(y_val) == set(y), "every class decides when to stop"
        if (X["complaint"] == "SECRET").any():
            raise ValueError("cannot read SECRET")
        if (X["complaint"] == "die").any():
            import os; os._exit(9)
        assert str(X["age"].dtype) == "float64" and str(X["bought"].dtype).startswith("datetime64")
        assert X["complaint"].dtype == object and set(X["dropped"]) <= {"yes", "no"}
        self.classes_ = np.array(sorted(set(y), reverse=True))
        self.table = {d: [(y[X["device"] == d] == c).mean() for c in self.classes_] for d in set(X["device"])}
    def predict_proba(self, X):
        return np.array([self.table.get(d, [1 / len(self.classes_)] * len(self.classes_)) for d in X["device"]])
"""
HUB = """
def snapshot_download(repo_id, allow_patterns=None, local_files_only=False):
    import os
    if os.environ.get("FAKE_HUB") == "none":
        raise OSError("no route to host")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a stand-in for the package and for the hub."""
    folder = tmp_path_factory.mktemp("tabstar")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    place = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for name, text in {"tabstar/tabstar_model.py": CLASSIFIER, "huggingface_hub/__init__.py": HUB}.items():
        (place / name).parent.mkdir()
        (place / name).write_text(text)
    (place / "tabstar-1.2.2.dist-info").mkdir()
    (place / "tabstar-1.2.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tabstar\nVersion: 1.2.2\n"
    )
    (place / "ours.pth").write_text(sysconfig.get_path("purelib"))  # for pandas
    return environment_python(folder)


def asked(view: TabStarView, train: list[Record], test: list[Record], seeds: int = 1) -> list[Any]:
    labels = [str(record["fault"]) for record in train]
    return list(view.chances(train, labels, test, seeds=range(seeds), tick=lambda part: None))


def test_records_go_to_the_worker_and_chances_come_back_in_our_order_of_classes(python: Path) -> None:
    train: list[Record] = learnable(90, seed=1)
    first, second = asked(TabStarView(SHOP, python=python), train, learnable(30, seed=2), seeds=2)
    assert first.shape == second.shape == (30, 3)
    radios: list[Record] = [{**train[0], "device": "radio"}]
    chances = asked(TabStarView(SHOP, python=python), train, radios)[0][0]
    assert chances.argmax() == 2  # battery, screen, sound: radios have trouble with sound
    assert chances[1] == 0  # and never with a screen


def test_it_is_a_view_like_the_others(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(python))
    gaps: list[Record] = [{"fault": record["fault"], "device": record["device"]} for record in learnable(6, seed=3)]
    broken: list[Record] = [{**record, "age": "old", "price": float("nan")} for record in learnable(6, seed=4)]
    train = [{**record, "dropped": True} for record in [*learnable(90, seed=1), *gaps, *broken]]
    found = utility(SHOP, train, learnable(60, seed=2), encoder=HashingEncoder(), views=["tabstar"], seeds=2)
    score = found.of("tabstar", "synthetic")
    assert score is not None
    assert (score.kind, score.seeds, score.rows) == ("structured", 2, 102)
    assert score.auc > 55


def test_an_environment_that_is_absent_is_named_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ModelError) as caught:
        utility(SHOP, learnable(6, seed=1), learnable(6, seed=2), encoder=HashingEncoder(), views=["tabstar"])
    assert caught.value.where == str(environment_python())
    assert f"-m venv {tmp_path / 'tabstar'}" in caught.value.hint
    assert "-m pip install 'tabstar==" in caught.value.hint
    assert VARIABLE in caught.value.hint


def test_an_environment_without_the_package_is_told_apart() -> None:
    with pytest.raises(ModelError, match="PackageNotFoundError") as caught:
        TabStarView(SHOP, python=Path(sys.executable)).require()
    assert "pip show tabstar" in caught.value.hint


def test_weights_that_cannot_be_fetched_are_said_to_come_from_a_hub(
    python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_HUB", "none")
    with pytest.raises(ModelError, match="cannot be fetched") as caught:
        TabStarView(SHOP, python=python).require()
    assert caught.value.where == "alana89/TabSTAR"
    assert "Hugging Face hub" in caught.value.hint


def test_no_cell_is_in_the_message_when_the_package_fails(python: Path) -> None:
    train: list[Record] = [{**record, "complaint": "SECRET"} for record in learnable(9, seed=1)]
    with pytest.raises(ModelError, match=r"ValueError in tabstar_model\.py:\d+") as caught:
        asked(TabStarView(SHOP, python=python), train, train)
    assert "SECRET" not in str(caught.value) + caught.value.hint


def test_a_worker_that_dies_is_reported(python: Path) -> None:
    train: list[Record] = [{**record, "complaint": "die"} for record in learnable(9, seed=1)]
    with pytest.raises(ModelError, match="status 9"):
        asked(TabStarView(SHOP, python=python), train, train)


# -- the worker's own parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [{"a": 1, "b": 1}, {"a": 1, "b": 40}, {"a": 3, "b": 4, "c": 5}, {"a": 200, "b": 95}])
def test_every_class_decides_when_training_stops(counts: dict[str, int]) -> None:
    labels = [name for name, count in counts.items() for _ in range(count)]
    held = tabstar_worker.held_out(labels, seed=0)
    assert len(held) == len(set(held))
    for name, count in counts.items():
        assert sum(labels[row] == name for row in held) == max(1, round(0.1 * count))
    assert held != tabstar_worker.held_out(labels, seed=1) or len(labels) == 2


def test_columns_of_digits_become_numbers_on_both_sides() -> None:
    kinds = {"code": "text", "size": "category"}
    train = tabstar_worker.frame({"code": [str(k) for k in range(60)], "size": ["1", "2"] * 30}, kinds)
    test = tabstar_worker.frame({"code": ["7", "x7", None], "size": ["1", "3", None]}, kinds)
    known, asked_about = tabstar_worker.aligned(train, test)
    assert known["code"].tolist() == list(range(60))
    assert asked_about["code"].tolist()[0] == 7
    assert np.isnan(asked_about["code"].tolist()[1])
    assert known["size"].dtype == object


@pytest.mark.parametrize(
    ("visible", "device", "left"), [(None, None, None), ("1", None, "1"), ("2,3", None, "2"), ("", "cpu", None)]
)
def test_hidden_gpus_are_put_in_words_that_the_package_reads(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str | None, left: str | None
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert tabstar_worker.device() == device
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == left


# -- making the environment, and the real thing ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_environment_is_made_with_venv_and_pip(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    options = ["--no-index", "--find-links", str(wheels)]
    with pytest.raises(ModelError, match="cannot be made") as caught:
        create_environment(tmp_path / "made", pip_options=options)
    assert "by hand" in caught.value.hint
    with zipfile.ZipFile(wheels / "tabstar-1.2.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tabstar/__init__.py", "")
        wheel.writestr("tabstar-1.2.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: tabstar\nVersion: 1.2.2\n")
        wheel.writestr(
            "tabstar-1.2.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tabstar-1.2.2.dist-info/RECORD", "")
    python = create_environment(tmp_path / "made", pip_options=options)
    assert python == environment_python(tmp_path / "made")
    with pytest.raises(ModelError, match="ModuleNotFoundError"):  # the package is found; the hub's library is not
        TabStarView(SHOP, python=python).require()


@pytest.mark.slow
@pytest.mark.real_model
def test_the_real_package_trains_and_answers() -> None:
    if VARIABLE not in os.environ:
        pytest.skip(f"no environment with TabSTAR is named by {VARIABLE}")
    view = TabStarView(SHOP, options={"max_epochs": 1})
    try:
        view.require()
    except ModelError as problem:
        pytest.skip(f"TabSTAR cannot run here: {problem.message}")
    strange: list[Record] = [{"fault": "sound"}, {**learnable(1, seed=5)[0], "complaint": "ünïcode ✓", "bought": None}]
    for train in (learnable(40, seed=1), learnable(2, seed=1)):
        classes = len({record["fault"] for record in train})
        (chances,) = asked(view, train, [*learnable(8, seed=2), *strange])
        assert chances.shape == (10, classes)
        assert np.allclose(chances.sum(axis=1), 1, atol=1e-5)
