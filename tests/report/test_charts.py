"""Charts: well-formed SVG with a title and a description, whatever the figures and names are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from selpe.report.charts import Level, Line, Round, Scale, level_bars, lines, spending, winners
from selpe.report.panels import Spread, spread
from selpe.report.planes import matrix, record_map
from selpe.report.svg import tag

HOSTILE = """"><script>alert(1)</script>&amp;'{{ 7 * 7 }}]]>"""
SCALE = Scale(40.0, 100.0, (40.0, 50.0, 100.0))
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), max_size=40)
shares = st.floats(0, 1)


def parsed(picture: Markup) -> ElementTree.Element:
    """The picture as XML: it must be well-formed, be an image, and say what it shows."""
    root = ElementTree.fromstring(str(picture))
    assert root.get("role") == "img"
    title, description = root.find("title"), root.find("desc")
    assert title is not None
    assert title.text
    assert description is not None
    assert description.text
    assert not list(root.iter("script"))
    return root


def words(root: ElementTree.Element) -> str:
    return " ".join("".join(node.itertext()) for node in root.iter("text"))


def test_levels_show_name_value_and_interval() -> None:
    root = parsed(level_bars([Level("ours", 78.4, 74.3, 82.5, "synthetic", "80 rows")], SCALE, title="AUC", start=50.0))
    assert "ours" in words(root)
    assert "78.4" in words(root)
    assert len([line for line in root.iter("line") if line.get("class") == "whisker"]) == 3
    assert "95 % interval 74.3 to 82.5" in str(root.find("desc").text)  # type: ignore[union-attr]


def test_a_level_below_the_start_goes_to_the_left() -> None:
    root = parsed(level_bars([Level("ours", 45.0)], SCALE, title="AUC", start=50.0))
    (bar,) = [rect for rect in root.iter("rect") if rect.get("class") == "fill other"]
    assert (bar.get("x"), bar.get("width")) == ("8.333%", "8.333%")


def test_values_beyond_the_scale_stay_inside_the_picture() -> None:
    assert (SCALE.at(-5.0), SCALE.at(70.0), SCALE.at(500.0)) == (0.0, 0.5, 1.0)


def test_many_rounds_are_drawn_with_few_names() -> None:
    root = parsed(spending([(f"round {number}", 0.1) for number in range(50)], title="ε"))
    assert len(list(root.iter("rect"))) == 50
    assert len([node for node in root.iter("text") if "round" in "".join(node.itertext())]) <= 8


def test_winners_are_dots_with_their_mean_and_what_was_expected() -> None:
    root = parsed(winners([Round("round 1", 82.0, (("low", 40.0), ("high", 100.0)))], title="winners"))
    assert len(list(root.iter("circle"))) == 2
    assert any(line.get("class") == "expected" for line in root.iter("line"))
    assert "mean 70" in str(root.find("desc").text)  # type: ignore[union-attr]


def test_a_matrix_has_a_cell_for_every_pair_and_none_on_the_diagonal() -> None:
    root = parsed(matrix(["a", "b"], [[1.0, 0.4], [0.4, None]], title="pairs"))
    kinds = [rect.get("class") for rect in root.iter("rect")]
    assert kinds == ["cell none", "cell bond", "cell bond", "cell none"]
    assert "b and a 0.40" in str(root.find("desc").text)  # type: ignore[union-attr]


def test_runs_stand_beside_each_other() -> None:
    runs = [Line(name, (Level("minilm", 70.0, 66.0, 74.0, "text"),)) for name in ("a", "b")]
    assert len(list(parsed(lines(runs, SCALE, title="runs")).iter("circle"))) == 2


def test_names_are_text_and_never_markup() -> None:
    for picture in (
        level_bars([Level(HOSTILE, 1.0, note=HOSTILE)], SCALE, title=HOSTILE, start=50.0),
        spread(Spread(HOSTILE, (HOSTILE,), (1.0,), (0.5,))),
        spread(Spread(HOSTILE, (HOSTILE, "", HOSTILE), (1.0,), (0.5,), histogram=True, unit=HOSTILE)),
        matrix([HOSTILE, HOSTILE], [[1.0, 0.1], [0.1, 1.0]], title=HOSTILE),
        spending([(HOSTILE, 1.0)], title=HOSTILE),
        winners([Round(HOSTILE, None, ((HOSTILE, 3.0),))], title=HOSTILE),
        lines([Line(HOSTILE, (Level(HOSTILE, 1.0, kind="text"),))], SCALE, title=HOSTILE),
        record_map({"real": [(0.0, 1.0)], "synthetic": [(0.5, 0.5)]}, title=HOSTILE, description=HOSTILE),
    ):
        parsed(picture)
        assert "<script" not in picture


def test_elements_escape_children_and_attributes() -> None:
    assert tag("text", "<b>", x='1"2') == Markup('<text x="1&#34;2">&lt;b&gt;</text>')
    assert tag("g", None_=None, class_="a") == Markup('<g class="a"></g>')


@given(st.lists(st.tuples(names, shares, shares), min_size=1, max_size=8), st.booleans())
def test_any_shares_can_be_drawn(rows: list[tuple[str, float, float]], real: bool) -> None:
    labels, ours, theirs = zip(*rows, strict=True)
    parsed(spread(Spread("field", labels, ours, theirs if real else None)))
    parsed(spread(Spread("field", ("a", "b", "c"), ours, theirs if real else None, histogram=True)))


@pytest.mark.parametrize("histogram", [True, False])
def test_a_field_without_any_value_can_be_drawn(histogram: bool) -> None:
    parsed(spread(Spread("empty", ("", "", "") if histogram else (), (), None, histogram=histogram)))
