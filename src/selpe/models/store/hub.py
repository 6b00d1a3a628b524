"""The Hugging Face hub as a source: `hf:org/name[@revision][:file]` becomes a list of files with their hashes.

`HF_ENDPOINT` names a mirror, `HF_TOKEN` (or the token that `hf auth login` left) opens gated models. The token goes
to the hub alone, never into a log, a manifest or an error.
"""

from __future__ import annotations

import fnmatch
import os
import re
import threading
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from selpe.errors import ModelNotFoundError
from selpe.models.store.download import Progress, SourceError, Wanted, download
from selpe.models.store.registry import HubSource, ModelEntry, ModelFile

if TYPE_CHECKING:
    import httpx

PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<file>[^\s].*))?")

# One quantisation of a GGUF repository is fetched when the user names none: small enough, hardly any loss.
GGUF_PREFERENCE = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_1", "q4_0", "f16", "bf16")
# What transformers and sentence-transformers read; other frameworks' copies of the weights stay where they are.
SNAPSHOT = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "1_Pooling/*")
SNAPSHOT_NOT = ("onnx/*", "openvino/*", "*/onnx/*", "*.onnx*", "original/*")


def endpoint() -> str:
    """The hub's address."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def is_reachable(seconds: float = 1.5) -> bool:
    """Whether the hub answers at once. Looking up its name may hang longer than any timeout, so a thread does it."""
    answered: list[bool] = []

    def ask() -> None:
        import httpx

        try:
            httpx.head(endpoint(), timeout=seconds)
            answered.append(True)
        except (httpx.HTTPError, httpx.InvalidURL):
            return

    asking = threading.Thread(target=ask, name="selpe-hub", daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(answered)


def _cache_home() -> Path:
    named = os.environ.get("HF_HOME", "")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "huggingface"


def _authorization() -> dict[str, str]:
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    stored = _cache_home() / "token"
    if not token and stored.is_file():
        token = stored.read_text(encoding="utf-8")
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


def fetch(http: httpx.Client, source: HubSource, file: ModelFile, part: Path, progress: Progress) -> None:
    """Fills `part` with a file of the hub."""
    path = f"{source.repo}/resolve/{quote(source.revision, safe='')}/{quote(source.file)}"
    wanted = Wanted(
        url=f"{endpoint()}/{path}",
        name=file.name,
        source=str(source),
        sha256=file.sha256,
        size=file.size,
        headers=_authorization(),
    )
    download(http, wanted, part, progress)


def cached_blob(sha256: str) -> Path | None:
    """The file of that hash in the hub's own cache on this machine, where its clients keep large files by hash."""
    return next(iter(_hub_cache().glob(f"models--*/blobs/{sha256}")), None) if sha256 else None


def cached_entry(name: str) -> ModelEntry | None:
    """What the hub's own cache on this machine holds under an `hf:` name of one large file; None where it has not.

    Its clients keep a large file under its hash, and link to it from a folder that is named after the commit.
    """
    repo, revision, file = parse(name)
    snapshots = _hub_cache() / f"models--{repo.replace('/', '--')}" / "snapshots"
    for path in sorted(snapshots.glob(f"*/{file}")) if file else ():
        commit, sha256 = path.relative_to(snapshots).parts[0], path.resolve().name
        if revision in ("main", commit) and re.fullmatch(r"[0-9a-f]{64}", sha256):
            size = path.stat().st_size
            held = {"rfilename": file, "size": size, "lfs": {"sha256": sha256}}
            return _entry(name, repo, file, {"sha": commit, "siblings": [held]})
    return None


def _hub_cache() -> Path:
    return Path(os.environ.get("HF_HUB_CACHE", "") or _cache_home() / "hub")


def parse(name: str) -> tuple[str, str, str]:
    """Repository, revision and file ('' when none is named) of an `hf:` name."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ModelNotFoundError(
            f"'{name}' must be hf:org/name, hf:org/name:file or hf:org/name@revision:file",
            hint="Example: hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:qwen2.5-0.5b-instruct-q8_0.gguf",
        )
    return match["repo"], match["revision"] or "main", match["file"] or ""


def describe(http: httpx.Client, name: str) -> ModelEntry:
    """What the hub holds under an `hf:` name, pinned to the commit it has now."""
    import httpx

    repo, revision, file = parse(name)
    url = f"{endpoint()}/api/models/{repo}/revision/{quote(revision, safe='')}"
    try:
        response = http.get(url, params={"blobs": "true"}, headers=_authorization())
    except httpx.TransportError as problem:
        raise SourceError(f"the hub at {httpx.URL(url).host} cannot be reached") from problem
    if response.status_code in (401, 403):
        raise SourceError(
            f"the hub refuses access to {repo}",
            hint="Check the name; for a gated model accept its terms and set HF_TOKEN.",
        )
    if response.status_code != 200:
        raise SourceError(f"the hub answered {response.status_code} for {repo} at revision {revision}")
    return _entry(name, repo, file, response.json())


def _entry(name: str, repo: str, file: str, answer: dict[str, Any]) -> ModelEntry:
    commit = str(answer.get("sha", "main"))
    held = {str(item["rfilename"]): item for item in answer.get("siblings", ()) if _plain(item["rfilename"])}
    card = answer.get("cardData") or {}
    chosen = _choose(name, tuple(held), file)
    files = tuple(
        ModelFile(
            name=path,
            sha256=str((held[path].get("lfs") or {}).get("sha256", "")),
            size=int(held[path].get("size") or 0),
            sources=(HubSource(repo, path, commit),),
        )
        for path in chosen
    )
    return ModelEntry(
        name=name,
        kind="gguf" if files[0].name.endswith(".gguf") else "hub",
        files=files,
        licence=str(card.get("license", "not stated")),
        publisher=repo.split("/", maxsplit=1)[0],
        description=f"{repo} from the Hugging Face hub",
        revision=commit,
    )


def _plain(path: str) -> bool:
    """True for a path that stays inside the model's folder."""
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts and "\\" not in path and ":" not in path


def _choose(name: str, held: tuple[str, ...], file: str) -> tuple[str, ...]:
    if file:
        if file not in held:
            raise ModelNotFoundError(f"{name}: the repository holds no such file", hint=_some(held))
        return (file,)
    weights = [path for path in held if path.endswith(".safetensors")]
    ggufs = [path for path in held if path.endswith(".gguf")]
    if ggufs and not weights:
        return (_preferred(ggufs),)
    snapshot = tuple(path for path in held if _matches(path, SNAPSHOT) and not _matches(path, SNAPSHOT_NOT))
    if not weights:
        raise ModelNotFoundError(f"{name}: no GGUF file and no safetensors there", hint=_some(held))
    return snapshot


def _preferred(ggufs: list[str]) -> str:
    for quantisation in GGUF_PREFERENCE:
        for path in sorted(ggufs):
            if quantisation in path.lower() and "-of-" not in path:
                return path
    return sorted(ggufs)[0]


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def _some(held: tuple[str, ...]) -> str:
    likely = sorted(path for path in held if path.endswith((".gguf", ".safetensors")))[:6]
    return f"Name a file after a second colon, such as: {', '.join(likely)}" if likely else ""
