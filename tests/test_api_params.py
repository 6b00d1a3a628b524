"""SelPE as scikit-learn expects an estimator: parameters kept as given, changed, cloned, shown; and unfitted ones."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selpe import Schema, SelPE
from selpe.errors import NotFittedError, RunError
from selpe.models.fake import FakeModel
from small_world import SCHEMA, drawn

QUICK: dict[str, Any] = {"records": 16, "llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off"}


def test_parameters_are_kept_untouched_even_where_they_are_wrong(tmp_path: Path) -> None:
    given: dict[str, Any] = {"schema": tmp_path / "none.yaml", "epsilon": -3, "quotas": {"low": 1.0}, "out": tmp_path}
    kept = SelPE(**given).get_params()
    assert all(kept[name] is value for name, value in given.items())
    signature = inspect.signature(SelPE.__init__).parameters
    assert {name: kept[name] for name in kept if name not in given} == {
        name: signature[name].default for name in signature if name not in (*given, "self", "settings")
    }


def test_nothing_but_parameters_and_the_fit_is_set_by_the_constructor() -> None:
    assert set(vars(SelPE(SCHEMA))) == {"_params", "_made"}


def test_set_params_changes_parameters_and_gives_itself_back() -> None:
    one = SelPE(SCHEMA)
    assert one.set_params(epsilon=4.0, rounds=2) is one
    assert one.epsilon == 4.0
    assert one.get_params(deep=False)["rounds"] == 2
    assert one.plan(150).epsilon == 4.0
    assert SelPE(SCHEMA).get_params().keys() == inspect.signature(SelPE.__init__).parameters.keys() - {
        "self", "settings"
    }  # fmt: skip


def test_what_get_params_gives_is_a_copy() -> None:
    one = SelPE(SCHEMA)
    one.get_params()["epsilon"] = 9.0
    assert one.epsilon == 2.0


def test_a_clone_of_scikit_learn_has_the_parameters_and_not_the_fit(tmp_path: Path) -> None:
    from sklearn.base import clone

    model = FakeModel()
    fitted = SelPE(SCHEMA, **QUICK | {"llm": model}, quotas={"low": 0.5, "high": 0.5}, out=tmp_path).fit(drawn(40))
    copy = clone(fitted)
    assert isinstance(copy, SelPE)
    assert copy.get_params() == fitted.get_params()
    assert copy.get_params()["llm"] is model
    assert copy.get_params()["quotas"] is not fitted.get_params()["quotas"]
    with pytest.raises(NotFittedError):
        copy.sample()
    assert len(fitted.sample()) == 16


def test_parameters_changed_after_the_fit_do_not_change_what_was_fitted(tmp_path: Path) -> None:
    fitted = SelPE(SCHEMA, **QUICK, out=tmp_path).fit(drawn(40))
    more = fitted.sample(20)
    fitted.set_params(llm="no-such-model", records=3, temperature=0.1, schema=tmp_path / "gone.yaml")
    assert fitted.sample(20).equals(more)
    assert fitted.plan().records == 16


def test_an_unfitted_one_raises_what_scikit_learn_raises() -> None:
    from sklearn.exceptions import NotFittedError as TheirError
    from sklearn.utils.validation import check_is_fitted

    with pytest.raises(TheirError, match="not fitted") as caught:
        SelPE(SCHEMA).sample()
    assert isinstance(caught.value, NotFittedError)
    assert isinstance(caught.value, RunError)
    with pytest.raises(TheirError):
        check_is_fitted(SelPE(SCHEMA))
    assert not hasattr(SelPE(SCHEMA), "card")


def test_an_unfitted_one_costs_no_import_of_scikit_learn() -> None:
    code = (
        "import sys\nfrom selpe import SelPE\nfrom selpe.errors import NotFittedError\n"
        "try:\n    SelPE({'name': 'n', 'fields': {'a': {'kind': 'boolean'}}}).card\n"
        "except NotFittedError: assert 'sklearn' not in sys.modules\nelse: raise SystemExit('nothing raised')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (SelPE(SCHEMA), "SelPE('desk'), not fitted"),
        (SelPE("place/schema.yaml", epsilon=1.0), "SelPE('place/schema.yaml', epsilon=1.0), not fitted"),
        (SelPE(SCHEMA.to_dict(), llm=FakeModel()), "SelPE('desk', llm='fake'), not fitted"),
        (SelPE(SCHEMA, rounds=2, out=Path("here")), "SelPE('desk', out='here', rounds=2), not fitted"),
        (SelPE(SCHEMA, llm="http://me:word@host/v1#m"), "SelPE('desk', llm='…'), not fitted"),
        (SelPE(SCHEMA, llm="http://host/v1?api_key=1234#m"), "SelPE('desk', llm='…'), not fitted"),
    ],
)
def test_repr_shows_what_differs_from_the_defaults_and_no_secret(made: SelPE, shown: str) -> None:
    assert repr(made) == shown
    assert "word" not in made._repr_html_()
    assert "1234" not in made._repr_html_()


def test_long_parameters_are_cut_short_in_repr() -> None:
    assert len(repr(SelPE(SCHEMA, guides=["ask " * 100]))) < 120


def test_the_schema_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "schema.yaml")
    one = SelPE(tmp_path / "schema.yaml")
    assert one.schema.to_dict() == SCHEMA.to_dict()
    SCHEMA.change("minutes", max=100).save(tmp_path / "schema.yaml")
    assert one.schema.to_dict() == Schema.load(tmp_path / "schema.yaml").to_dict() != SCHEMA.to_dict()
