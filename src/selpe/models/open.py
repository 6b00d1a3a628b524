"""A model or an encoder from what a user writes in `llm:` or `encoder:`.

| written | opened |
|---|---|
| `smollm2`, `qwen2.5-1.5b` and other names | the embedded engine on weights of the store, fetched at first use |
| `path/to/model.gguf`, `hf:org/name:file.gguf` | the embedded engine; llama.cpp where OpenVINO cannot read the model |
| `llamacpp:<any of the above>` | llama.cpp |
| `hf:org/name`, a folder with safetensors | transformers (extra `[hf]`) |
| `transformers:<any of the above>` | transformers |
| `http(s)://host/v1[#model]`, several with commas | servers that speak the OpenAI protocol |
| `fake` | the fake model |
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.errors import ConfigError, ModelError, did_you_mean
from selpe.models.base import ChatModel
from selpe.models.store.blobs import read_json, write_json
from selpe.models.store.curated import AUTO
from selpe.models.store.download import Progress, Step, silent
from selpe.models.store.registry import DEFAULT_ENCODER, DEFAULT_MODEL, REGISTRY
from selpe.models.store.store import ModelStore, cache_folder

if TYPE_CHECKING:
    from selpe.models.encoders.base import Encoder
    from selpe.models.http.secret import Secret

log = logging.getLogger(__name__)

LLAMACPP, TRANSFORMERS, VLLM, SENTENCE_TRANSFORMERS = "llamacpp:", "transformers:", "vllm:", "st:"
_KEY, _KEY_FILE = "SELPE_API_KEY", "SELPE_API_KEY_FILE"
_SHARED_SETTINGS = ("parallel", "threads")


def open_model(
    spec: str = DEFAULT_MODEL,
    *,
    store: ModelStore | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ChatModel:
    """The language model that a specification names; `settings` go to its constructor."""
    store, progress = store or ModelStore(), progress or silent
    if spec == "fake":
        from selpe.models.fake import FakeModel

        return FakeModel(**settings)
    if is_url(spec):
        return _server(spec, settings)
    if spec.startswith(LLAMACPP):
        return _llamacpp(_weights(spec.removeprefix(LLAMACPP), store, progress), settings)
    if spec.startswith(TRANSFORMERS):
        return _transformers(_weights(spec.removeprefix(TRANSFORMERS), store, progress), spec, settings)
    if spec == AUTO:
        raise ConfigError(
            "'auto' stands for a model that a run chooses for itself",
            where="llm",
            hint="name one here; `selpe models list` shows those that have a name",
        )
    if spec.startswith(VLLM):
        raise ConfigError(
            "vLLM does not run inside SelPE",
            where=spec,
            hint=f"start `vllm serve {spec.removeprefix(VLLM)}` and write its address: llm: http://host:8000/v1",
        )
    weights = _weights(spec, store, progress)
    if weights.is_dir():
        return _transformers(weights, spec, settings)
    return _embedded(spec, weights, store, progress, settings)


def open_encoder(
    spec: str = DEFAULT_ENCODER,
    *,
    store: ModelStore | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Encoder:
    """The sentence encoder that a specification names: `minilm`, `hash`, `st:name`, or an embeddings URL."""
    store = store or ModelStore()
    if spec == "hash":
        from selpe.models.encoders.hashing import HashingEncoder

        return HashingEncoder(**settings)
    if is_url(spec):
        from selpe.models.encoders.http import HttpEncoder

        url, _, model = spec.partition("#")
        return HttpEncoder(url, model, **{"key": _key(), **settings})
    if spec.startswith(SENTENCE_TRANSFORMERS):
        from selpe.models.encoders.st import SentenceTransformersEncoder

        return SentenceTransformersEncoder(spec.removeprefix(SENTENCE_TRANSFORMERS), **settings)
    if spec == DEFAULT_ENCODER:
        from selpe.models.encoders.minilm import MiniLMEncoder

        return MiniLMEncoder(store.ensure(spec, progress), **settings)
    raise ConfigError(
        f"there is no encoder called '{spec}'",
        hint=did_you_mean(spec, (DEFAULT_ENCODER, "hash"))
        + "Use minilm, hash, st:name, or the URL of an embeddings server.",
    )


def is_url(spec: str) -> bool:
    """Whether a specification names servers."""
    return spec.startswith(("http://", "https://"))


def _weights(name: str, store: ModelStore, progress: Progress) -> Path:
    known = REGISTRY.get(name)
    if known is not None and known.kind == "encoder":
        raise ConfigError(f"'{name}' is an encoder, not a language model", hint=f"Write it under encoder: {name}")
    return store.ensure(name, progress)


def _embedded(spec: str, gguf: Path, store: ModelStore, progress: Progress, settings: Mapping[str, Any]) -> ChatModel:
    """The embedded engine, or llama.cpp where that engine cannot run or read the model."""
    from selpe.models.engine.local import LocalModel

    folder, size = store.prepared_dir(spec), gguf.stat().st_size

    def preparing(what: str, share: float) -> None:
        progress(Step(f"{gguf.stem} (first use)", "", int(share * size), size, what))

    try:
        return LocalModel(gguf, folder, progress=preparing, **settings)
    except (ModelError, ImportError) as problem:
        if find_spec("xllamacpp") is None:
            raise
        why = problem.message if isinstance(problem, ModelError) else "OpenVINO is not installed"
        log.warning("the embedded engine cannot run %s (%s): using llama.cpp, which is slower", gguf.name, why)
        return _llamacpp(gguf, {key: settings[key] for key in _SHARED_SETTINGS if key in settings})


def _llamacpp(gguf: Path, settings: Mapping[str, Any]) -> ChatModel:
    from selpe.models.llamacpp import LlamaCppModel

    return LlamaCppModel(gguf, **settings)


def _transformers(weights: Path, spec: str, settings: Mapping[str, Any]) -> ChatModel:
    from selpe.models.hf import HFModel

    return HFModel(weights, **{"name": f"hf:{spec.removeprefix(TRANSFORMERS).removeprefix('hf:')}", **settings})


def _server(spec: str, settings: Mapping[str, Any]) -> ChatModel:
    from selpe.models.http.model import HttpModel

    addresses, _, model = spec.partition("#")
    urls = [url.strip() for url in addresses.split(",") if url.strip()]
    known, learnt = _memory_of_servers()
    return HttpModel(urls, model, **{"key": _key(), "known": known, "learnt": learnt, **settings})


def _key() -> Secret | None:
    """Where the key of a server lies: named by `SELPE_API_KEY_FILE`, or in `SELPE_API_KEY` itself."""
    from selpe.models.http.secret import Secret

    if named := os.environ.get(_KEY_FILE):
        return Secret(file=named)
    return Secret(env=_KEY) if os.environ.get(_KEY) else None


def _memory_of_servers() -> tuple[dict[str, Any], Callable[[str, Mapping[str, Any]], None]]:
    """What was found out about servers before, and a callback that keeps what is found out now."""
    path = cache_folder() / "servers.json"
    writing = threading.Lock()

    def learnt(address: str, facts: Mapping[str, Any]) -> None:
        with writing:
            try:
                write_json(path, {**(read_json(path) or {}), address: dict(facts)})
            except OSError:  # a cache that cannot be written costs a probe next time, no more
                log.info("cannot keep what was learnt about a server in %s", path)

    return read_json(path) or {}, learnt
