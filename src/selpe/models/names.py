"""What can be told of a model before anything is read, planned or fetched: that it has no such name, or nobody listens.

Both cost a second or two. Found out later they would cost a minute, or a run that waits for nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from selpe.errors import ModelError
from selpe.models.open import LLAMACPP, TRANSFORMERS, VLLM, is_url
from selpe.models.store.curated import BY_NAME
from selpe.models.store.fetching import unknown
from selpe.models.store.registry import REGISTRY
from selpe.models.store.store import ModelStore

SECONDS = 3.0  # to take a connection; a slower server may still be there, and the run itself has patience with it
_OWN_WORDS = ("fake", "auto")


def require_names(llms: Iterable[str]) -> None:
    """Raises ModelNotFoundError, with the nearest known name, where one of these can be no model."""
    for llm in llms:
        name = llm.removeprefix(LLAMACPP).removeprefix(TRANSFORMERS)
        known = (
            name in REGISTRY or name in BY_NAME or name in _OWN_WORDS or is_url(name) or name.startswith(("hf:", VLLM))
        )
        if not known and not Path(name).expanduser().exists() and ModelStore().stored(name) is None:
            raise unknown(name)


def require_listening(llm: str) -> None:
    """Raises ModelError at once where nobody listens at any of a model's addresses. What can heal is left alone."""
    if not is_url(llm):
        return
    urls = [url.strip() for url in llm.partition("#")[0].split(",") if url.strip()]
    with ThreadPoolExecutor(max_workers=min(16, len(urls))) as pool:
        refusals = list(pool.map(_refusal, urls))
    if all(refusals):
        raise ModelError(
            "; ".join(refusals),
            hint="start the server, or correct its address in `llm`; nothing was begun",
            retryable=True,
        )


def _refusal(url: str) -> str:
    """Why no connection can be had; '' where one can, or where only the request itself will tell."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return ""
    if not host or _by_proxy(host):
        return ""
    try:
        socket.create_connection((host, port), timeout=SECONDS).close()
    except ConnectionRefusedError:
        return f"nobody listens at {host}:{port}"
    except socket.gaierror:
        return f"there is no host called {host}"
    except OSError:  # slow, or on the other side of a net that is down just now
        return ""
    return ""


def _by_proxy(host: str) -> bool:
    """Whether requests may take another way than straight to the host."""
    named = any(
        os.environ.get(name) for key in ("http_proxy", "https_proxy", "all_proxy") for name in (key, key.upper())
    )
    return named and host not in ("localhost", "127.0.0.1", "::1")
