"""Bytes that are no table at all: whatever comes in, nothing but our own errors comes out."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from selpe.errors import SelPEError
from selpe.intake import parse_records, read_table
from selpe.intake.draft import draft_schema
from selpe.schema import Schema
from table_files import FORMATS, write_as

SCHEMA = Schema.from_dict(
    {
        "name": "x",
        "fields": {
            "a": {"kind": "integer", "min": 0, "max": 10, "optional": True},
            "b": {"kind": "text", "optional": True},
            "c": {"kind": "date", "min": "2020-01-01", "max": "2030-12-31", "optional": True},
            "d": {"kind": "number", "min": 0, "max": 1, "optional": True},
        },
    }
)
PIECES = [
    "a",
    "b",
    "c",
    "d",
    ",",
    ";",
    "\t",
    "\n",
    "\r",
    '"',
    "'",
    "1",
    "-",
    ".",
    "e",
    "{",
    "}",
    "[",
    "]",
    ":",
    "null",
    "\\u",
]
TEXTISH = st.lists(st.sampled_from([*PIECES, "NaN", "1,234", "3/4/2024", "é", "\ufeff", "\x00", "%"]), max_size=60)
LIKELY = TEXTISH.map("".join).flatmap(
    lambda text: st.sampled_from([f"a,b,c,d\n{text}", f'{{"a": {text}}}', f'[{{"a": 1, "b": "{text}"}}]', text])
)
BYTES = st.binary(max_size=400) | LIKELY.flatmap(
    lambda text: st.sampled_from([text.encode(), text.encode("utf-16"), text.encode("cp1252", errors="ignore")])
)


def _survives(act: Callable[[], object]) -> None:
    found: SelPEError | None = None
    try:
        act()
    except SelPEError as error:
        found = error
    # An error of a library, kept as context, would carry what it stumbled over.
    assert found is None or (found.message and found.__context__ is None)


def _read(name: str, raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        table = read_table(path)
    _survives(lambda: parse_records(table, SCHEMA))
    _survives(lambda: Schema.from_yaml(draft_schema(table).to_yaml()))


@pytest.mark.parametrize("form", FORMATS)
@given(raw=BYTES)
@example(raw=b"[" * 50_000)
@example(raw=b'""')
@example(raw=b'[{"a": ' + b"9" * 5000 + b"}]")
@example(raw=b'{"a": 1e999999999}')
@example(raw=b"a\n1e999\n")
@example(raw=b'{"a": 1e-999999999}')
@example(raw=b"\xff\xfe\x00")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_read_or_refused(form: str, raw: bytes) -> None:
    _survives(lambda: _read(f"t.{form}", raw))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    rows = [(str(i % 11), f"note {i}", "2024-01-31", "0.5") for i in range(20)]
    return {form: write_as(form, ("a", "b", "c", "d"), rows, folder).read_bytes() for form in FORMATS}


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_files_are_read_or_refused(form: str, whole: dict[str, bytes], data: st.DataObject) -> None:
    raw = bytearray(whole[form])
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(raw)))
    _survives(lambda: _read(f"t.{form}", bytes(raw[:cut])))


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(rows=st.lists(st.dictionaries(st.sampled_from("abcd") | st.text(max_size=4), JSONISH, max_size=5), max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_mappings_are_read_or_refused(rows: list[dict[str, object]]) -> None:
    def read() -> None:
        table = read_table(rows)
        _survives(lambda: parse_records(table, SCHEMA))
        _survives(lambda: Schema.from_yaml(draft_schema(table).to_yaml()))

    _survives(read)


@given(columns=st.lists(st.lists(JSONISH, min_size=3, max_size=3), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_frame_of_objects_is_read_or_refused(columns: list[list[object]]) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in zip("abcd", columns, strict=False)})
    _survives(lambda: parse_records(read_table(frame), SCHEMA))


def test_an_excel_file_of_another_kind_of_zip_is_refused(tmp_path: Path) -> None:
    import zipfile

    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    (tmp_path / "t.xlsx").write_bytes(buffer.getvalue())
    with pytest.raises(SelPEError, match="not a readable Excel"):
        read_table(tmp_path / "t.xlsx")
