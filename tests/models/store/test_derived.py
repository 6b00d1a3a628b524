"""What an engine made from weights: known again byte by byte, thrown away where it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from selpe.errors import ModelError
from selpe.models.store import derived
from selpe.models.store.store import ModelStore


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder as an engine leaves it, for a model that lies outside the store."""
    model = tmp_path / "own.gguf"
    model.write_bytes(b"weights")
    folder = ModelStore(tmp_path / "store").prepared_dir(str(model)) / "engine-1"
    (folder / "parts").mkdir(parents=True)
    (folder / "graph.xml").write_bytes(b"<graph/>")
    (folder / "parts" / "graph.bin").write_bytes(bytes(1000))
    derived.record(folder)
    return folder


def flip(path: Path) -> None:
    """Changes one byte, and nothing that a look at size and time would tell."""
    kept, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))


@pytest.mark.parametrize("name", ["graph.xml", "parts/graph.bin"])
def test_a_changed_byte_is_found_by_verify_and_never_executed(made: Path, name: str, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "store")
    assert store.verify_derived() == 1
    flip(made / name)
    with pytest.raises(ModelError, match=f"{name} has changed since an engine made it from .*own.gguf"):
        store.verify_derived()
    assert not made.exists()
    assert store.verify_derived() == 0


def test_a_file_whose_size_or_time_changed_is_hashed_before_use(made: Path) -> None:
    os.utime(made / "graph.xml", ns=(1, 1))
    assert derived.changed(made) == ""
    (made / "graph.xml").write_bytes(b"<other/>")
    assert derived.changed(made) == "graph.xml"


def test_a_file_more_or_less_is_a_change(made: Path) -> None:
    (made / "tokenizer.xml").write_bytes(b"")
    assert derived.changed(made) == "tokenizer.xml"
    (made / "tokenizer.xml").unlink()
    assert derived.changed(made) == ""
    (made / "graph.xml").unlink()
    assert derived.changed(made) == "graph.xml"


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"graph.xml": 1, "parts/graph.bin": 1}'])
def test_a_list_that_is_gone_or_is_none_vouches_for_nothing(made: Path, content: bytes | None) -> None:
    (made / derived.LISTING).unlink()
    if content is not None:
        (made / derived.LISTING).write_bytes(content)
    assert derived.changed(made)
