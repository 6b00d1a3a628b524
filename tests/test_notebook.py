"""Progress of a fit where it is seen: in a notebook if one is running, on a terminal, or nowhere; and results there."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from page_reader import inert_piece
from selpe import SelPE, draft_schema
from selpe.models.store.download import Step
from selpe.notebook import NoDisplay, NotebookDisplay, TerminalDisplay, progress_display, progress_view
from selpe.run.progress import ProgressReading
from selpe.schema import Schema
from small_world import SCHEMA, drawn

QUICK: dict[str, Any] = {"records": 16, "llm": "fake", "encoder": "hash", "bundles": 0, "guides": "off"}


class Cell:
    """What stands below a notebook's cell: one output, and how often it was changed."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, content: str, *, display_id: bool) -> Cell:
        assert display_id
        assert not self.shown, "one output, which is changed"
        self.shown.append(content)
        return self

    def update(self, content: str) -> None:
        self.shown.append(content)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A notebook's kernel, as far as we look at it."""
    cell, ipython, display = Cell(), ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(display).update(HTML=str, display=cell.display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return cell


def terminal(monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: there, write=len, flush=lambda: None))


@pytest.mark.parametrize(
    ("progress", "on_terminal", "kind"),
    [
        (None, True, TerminalDisplay),
        (None, False, NoDisplay),
        (True, False, TerminalDisplay),
        (False, True, NoDisplay),
    ],
)
def test_progress_is_shown_where_it_is_seen(
    monkeypatch: pytest.MonkeyPatch, progress: bool | None, on_terminal: bool, kind: type
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    terminal(monkeypatch, there=on_terminal)
    assert type(progress_display(progress)) is kind


@pytest.mark.parametrize(("progress", "kind"), [(None, NotebookDisplay), (True, NotebookDisplay), (False, NoDisplay)])
def test_a_notebook_shows_it_unless_told_not_to(cell: Cell, progress: bool | None, kind: type) -> None:
    assert type(progress_display(progress)) is kind


def test_ipython_on_a_terminal_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = ModuleType("IPython")
    vars(ipython)["get_ipython"] = SimpleNamespace
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    terminal(monkeypatch, there=True)
    assert type(progress_display(None)) is TerminalDisplay


def test_ipython_is_never_imported_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def noticed(name: str, *rest: Any, **more: Any) -> Any:
        assert name.partition(".")[0] not in ("IPython", "ipywidgets")
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(builtins, "__import__", noticed)
    progress_display(None)


def test_a_fit_and_further_records_are_followed_in_the_notebook(cell: Cell, tmp_path: Path) -> None:
    fitted = SelPE(SCHEMA, **QUICK, out=tmp_path).fit(drawn(40))
    assert "Opening the models" in cell.shown[0]
    assert any("Round 1 of" in shown and "<progress" in shown for shown in cell.shown)
    assert "Done" in cell.shown[-1]
    assert "16 records" in cell.shown[-1]
    assert "ε 2 of 2 spent" in cell.shown[-1]
    cell.shown.clear()
    fitted.sample(40)
    assert any("Further records" in shown for shown in cell.shown)
    assert "24 records" in cell.shown[-1]
    cell.shown.clear()
    fitted.sample(5)
    assert cell.shown == []


def test_a_silent_fit_says_nothing(cell: Cell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SelPE(SCHEMA, **QUICK, out=tmp_path).fit(drawn(40), progress=False).sample(20, progress=False)
    assert cell.shown == []
    assert capsys.readouterr() == ("", "")


def test_a_fit_that_is_to_be_shown_writes_lines_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SelPE(SCHEMA, **QUICK, out=tmp_path).fit(drawn(40), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "16 records" in err
    assert "round 1 written" in err


def test_a_model_that_is_fetched_is_shown(cell: Cell) -> None:
    with progress_display(None).fetching() as fetching:
        assert fetching is not None
        fetching(Step("<b>model</b>.gguf", "hub", 30_000_000, 120_000_000))
        fetching(Step("model.gguf", "hub", 0, 0, "checking"))
    assert 'value="0.2500"' in cell.shown[1]
    assert "30 of 120 MB" in cell.shown[1]
    assert "<b>" not in cell.shown[1]
    assert "checking" in cell.shown[2]


def test_a_moment_before_anything_is_known_is_shown() -> None:
    assert "Preparing …" in progress_view(ProgressReading())


# -- views ------------------------------------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script>"
HOSTILE = {
    "name": EVIL,
    "description": EVIL,
    "label": "kind",
    "fields": {
        EVIL: {"kind": "integer", "min": 0, "max": 900, "unit": EVIL, "description": EVIL},
        "kind": {"kind": "category", "values": {'"><img src=x onerror=alert(1)>': EVIL, "plain": "plain"}},
    },
}


def test_no_name_or_value_of_a_schema_does_anything_in_a_notebook(tmp_path: Path) -> None:
    schema = Schema.from_dict(HOSTILE)
    rows = drawn(40, schema=schema)
    made = SelPE(HOSTILE, **QUICK, measure="off", dataset="hostile", out=tmp_path)
    unfitted = made._repr_html_()
    made.fit(rows)
    pieces = [unfitted, schema._repr_html_(), made._repr_html_(), made.card._repr_html_(), made.plan()._repr_html_()]  # type: ignore[attr-defined]
    for piece in pieces:
        inert_piece(piece)
    assert EVIL in inert_piece(schema._repr_html_()).words


def test_a_result_shows_records_and_the_promise_and_nothing_of_private_rows(tmp_path: Path) -> None:
    rows = [dict(row, topic=f"Zebra-{number} of the private table") for number, row in enumerate(drawn(40))]
    made = SelPE(SCHEMA, **QUICK, out=tmp_path).fit(rows)
    shown = "".join(
        (repr(made), made._repr_html_(), repr(made.card), made.card._repr_html_(), repr(made.plan()))
    )  # fmt: skip
    assert "Zebra" not in shown
    assert str(made.records[0]["topic"]) in inert_piece(made._repr_html_()).words
    assert made.card["guarantee"]["statement"] in inert_piece(made._repr_html_()).words
    assert made.card["guarantee"]["statement"] in inert_piece(made.card._repr_html_()).words


def test_a_card_is_plain_data_that_shows_itself_in_a_line(tmp_path: Path) -> None:
    card = SelPE(SCHEMA, **QUICK, out=tmp_path).fit(drawn(40), name="mine").card
    assert repr(card) == "<PrivacyCard of 'mine': ε 2 (one unit replaced)>"
    assert isinstance(card, dict)
    assert json.loads(json.dumps(card)) == card
    assert card.to_markdown() == (tmp_path / "mine" / "release" / "privacy-card.md").read_text(encoding="utf-8")


def test_a_card_without_a_guarantee_says_so(tmp_path: Path) -> None:
    card = SelPE(SCHEMA, **QUICK, epsilon=float("inf"), out=tmp_path).fit(drawn(40)).card
    assert "NOT PRIVATE" in repr(card)
    assert "NOT PRIVATE" in card._repr_html_()
    assert "∞" in card._repr_html_()


def test_a_plan_shows_every_step_and_what_it_costs() -> None:
    plan = SelPE(SCHEMA, **QUICK | {"guides": "auto", "bundles": 8}, measure="off").plan(150)
    html = plan._repr_html_()  # type: ignore[attr-defined]
    assert all(name in html for name in plan.prices())
    assert plan.verdict in inert_piece(html).words
    assert repr(plan) == f"<Plan: ε 2 (replace-one) on 150 units, {len(plan.prices())} private steps, 16 records>"
    gaussian = SelPE(SCHEMA, **QUICK, method="augpe").plan(150)
    assert repr(gaussian).startswith("<GaussianPlan: ε 2")
    assert "<table" in gaussian._repr_html_()  # type: ignore[attr-defined]


def test_a_draft_shows_no_bound_or_value_that_only_the_table_could_tell() -> None:
    rows = [
        {"age": str(23 + i % 60), "ward": "Zebra" if i % 2 else "Okapi", "note": f"Quagga number {i} was seen"}
        for i in range(80)
    ]
    draft = draft_schema(rows, label="ward")
    shown = "".join((repr(draft), repr(draft.schema), draft._repr_html_(), draft.schema._repr_html_()))
    assert not any(word in shown for word in ("23", "82", "Zebra", "Okapi", "Quagga"))
    assert "Zebra" in draft.to_yaml()
    stated = draft.schema.change("age", min=0, max=110).confirm("age")
    assert "0 to 110" in stated._repr_html_()
    assert "not confirmed yet are ward, note" in stated._repr_html_()
