"""Model servers that already run on this machine: Ollama, vLLM and llama.cpp at their usual ports.

Only loopback addresses are asked, each for its list of models and with little patience. `SELPE_LOCAL_SERVERS` names
other addresses, with commas, or is `off`. No key is sent.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from selpe.errors import ConfigError

VARIABLE = "SELPE_LOCAL_SERVERS"
USUAL = ("http://127.0.0.1:11434", "http://127.0.0.1:8000", "http://127.0.0.1:8080")  # Ollama, vLLM, llama.cpp
PATIENCE = 0.3  # seconds for each step of asking; an answer that takes twice as long in all is given up
_MOST_BYTES = 1 << 20
_LOOPBACK = re.compile(r"http://(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|localhost|\[::1\])(:\d{1,5})?/?")
_NO_WRITER = re.compile(r"embed|bge-|minilm|rerank|whisper|clip", re.IGNORECASE)
_BILLIONS = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d+)?)\s*([bm])(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NearbyModel:
    """A model that a server on this machine offers. `billions` of parameters is None where nobody tells."""

    address: str
    model: str
    billions: float | None

    @property
    def llm(self) -> str:
        """What `llm:` takes."""
        return f"{self.address}/v1#{self.model}"


def nearby_models(addresses: Sequence[str] | None = None) -> tuple[NearbyModel, ...]:
    """What the servers at these addresses offer for writing; by default at the usual ones, or as the variable says."""
    asked = _addresses() if addresses is None else addresses
    if not asked:
        return ()
    with ThreadPoolExecutor(len(asked)) as pool:
        return tuple(found for offered in pool.map(_offered, asked) for found in offered)


def _addresses() -> tuple[str, ...]:
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() in ("off", "none", "0", "false"):
        return ()
    addresses = tuple(one.strip().rstrip("/") for one in named.split(",") if one.strip()) or USUAL
    for address in addresses:
        if not _LOOPBACK.fullmatch(address):
            raise ConfigError(
                "must be addresses on this machine, such as http://127.0.0.1:11434, or off",
                where=VARIABLE,
                hint="name a server elsewhere in the settings: llm: http://host:8000/v1#model",
            )
    return addresses


def _offered(address: str) -> list[NearbyModel]:
    """The writers at one address; none where nobody answers, or not as a model server does."""
    listed = _entries(_asked(address, "/v1/models"), "data")
    names = [str(entry["id"]) for entry in listed if isinstance(entry.get("id"), str)]
    if not names:
        return []
    sizes = {str(entry.get("id")): _told_size(entry.get("meta")) for entry in listed}
    if not any(sizes.values()):  # Ollama tells them elsewhere
        tags = _entries(_asked(address, "/api/tags"), "models")
        sizes |= {str(entry.get("name")): _told_size(entry.get("details")) for entry in tags}
    writers = [name for name in names if not _NO_WRITER.search(name) and "#" not in name]
    return [NearbyModel(address, name, sizes.get(name) or billions_in(name)) for name in writers]


def _asked(address: str, path: str) -> Any:
    """What a server answers, read as JSON; None for anything else, or when it takes too long.

    The standard library's client knows neither proxies nor redirects, which might lead out of this machine.
    """
    from http.client import HTTPConnection, HTTPException

    until = time.monotonic() + 2 * PATIENCE
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = b""
        while part := response.read1(1 << 16):
            body += part
            if len(body) > _MOST_BYTES or time.monotonic() > until:
                return None
        return json.loads(body) if response.status == 200 else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _entries(answer: Any, name: str) -> list[Mapping[str, Any]]:
    found = answer.get(name) if isinstance(answer, Mapping) else None
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


def _told_size(about: Any) -> float | None:
    """Billions of parameters as a server tells them: llama.cpp counts them, Ollama writes '7.6B'."""
    if not isinstance(about, Mapping):
        return None
    count = about.get("n_params")
    if isinstance(count, int | float) and not isinstance(count, bool) and count > 0:
        return count / 1e9
    return billions_in(str(about.get("parameter_size", "")))


def billions_in(name: str) -> float | None:
    """Billions of parameters as a model's name has them: 'qwen2.5:7b', 'Llama-3.2-3B-Instruct', 'smollm2:135m'."""
    found = _BILLIONS.findall(re.sub(r"[-_:/]", " ", name))
    return None if not found else float(found[-1][0]) * (0.001 if found[-1][1].lower() == "m" else 1.0)
