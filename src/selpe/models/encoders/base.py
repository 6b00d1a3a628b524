"""The protocols that sentence encoders meet: one for any text, and one that public text alone may go through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Encoder(Protocol):
    """Texts in, unit vectors out."""

    @property
    def name(self) -> str:
        """A name that stays the same across runs, for manifests and cache keys."""

    @property
    def dimension(self) -> int:
        """The length of each vector."""

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to, or None when they stay in this process."""

    @property
    def rowwise(self) -> bool:
        """Whether a text's vector is the same, bit for bit, whatever other texts are encoded with it."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row per text, in order; shape (len(texts), dimension)."""


class EncoderBase:
    """What an encoder says of itself, fixed when it is made."""

    def __init__(self, name: str, dimension: int, *, remote: str | None, rowwise: bool) -> None:
        self._name = name
        self._dimension = dimension
        self._remote = remote
        self._rowwise = rowwise

    @property
    def name(self) -> str:
        """A name that stays the same across runs."""
        return self._name

    @property
    def dimension(self) -> int:
        """The length of each vector."""
        return self._dimension

    @property
    def remote(self) -> str | None:
        """The host that texts are sent to, or None when they stay in this process."""
        return self._remote

    @property
    def rowwise(self) -> bool:
        """Whether a text's vector is the same, bit for bit, whatever other texts are encoded with it."""
        return self._rowwise


@runtime_checkable
class PublicEncoder(Protocol):
    """Public texts in, unit vectors out. It may keep what it is given, so private text must never get here."""

    def encode_public(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row per text, in order."""
