"""Texts as vectors for evaluation: every distinct text encoded once, in steps that can be watched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from selpe.errors import PrivacyError
from selpe.models.encoders.base import Encoder

STEP = 512  # texts per call of the encoder


class Remembering:
    """An encoder that encodes no text twice: utility, fidelity and attacks ask for many of the same texts."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, NDArray[np.float32]] = {}

    @property
    def name(self) -> str:
        """The name of the encoder behind it."""
        return self._encoder.name

    @property
    def dimension(self) -> int:
        """The length of each vector."""
        return self._encoder.dimension

    @property
    def remote(self) -> str | None:
        """Where the encoder behind it sends texts."""
        return self._encoder.remote

    @property
    def rowwise(self) -> bool:
        """Whether the encoder behind it promises as much."""
        return self._encoder.rowwise

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row per text, in order."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self.fresh(new), strict=True))
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        for place, text in enumerate(texts):
            rows[place] = self._known[text]
        return rows

    def fresh(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of texts that are not known yet."""
        return self._encoder.encode(texts)


def embed(encoder: Encoder, texts: Sequence[str], tick: Callable[[float], None] | None = None) -> NDArray[np.float32]:
    """One unit row per text. `tick` is called with the share that is done."""
    # Sorted by length, texts of one call need about the same width.
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    place = {text: number for number, text in enumerate(distinct)}
    table = np.zeros((len(distinct), encoder.dimension), dtype=np.float32)
    for start in range(0, len(distinct), STEP):
        part = distinct[start : start + STEP]
        table[start : start + len(part)] = encoder.encode(part)
        if tick is not None:
            tick((start + len(part)) / len(distinct))
    return table[np.array([place[text] for text in texts], dtype=np.intp)]


def require_local(encoder: Encoder, allowed: str | Collection[str]) -> None:
    """Raises PrivacyError where the encoder would send real rows to a host that is not allowed."""
    hosts = [allowed] if isinstance(allowed, str) else allowed
    if encoder.remote is not None and _host(encoder.remote) not in {_host(host) for host in hosts}:
        raise PrivacyError(
            f"the encoder would send real rows to {_host(encoder.remote)}",
            hint=f"use an encoder in this process, or set 'allow_private_text_to: {_host(encoder.remote)}'",
        )


def _host(address: str) -> str:
    parts = urlsplit(address if "://" in address else f"//{address}")
    return (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
