"""An encoder that remembers public text: vectors of what a model wrote are kept on disk, and are not computed again.

Private text must never get here, not even as a hash. So this is no `Encoder`: it has no `encode`, and nothing that sees
private rows (a kernel's `represent`, a judge's `score`) can be given it in the place of one.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError, RunError
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.owner_only import claim, make_folder

_AT_ONCE = 500  # keys in one query; SQLite bounds them


class VectorStore:
    """Vectors of public texts in one SQLite file, by hash of encoder and text."""

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        self._path = path
        try:
            self._base = self._opened()
        except sqlite3.DatabaseError:
            self._base = self._anew()

    def __len__(self) -> int:
        (count,) = self._base.execute("SELECT count(*) FROM vectors").fetchone()
        return int(count)

    def keys(self) -> set[bytes]:
        """The keys of all vectors."""
        return {key for (key,) in self._base.execute("SELECT key FROM vectors")}

    def get(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors that are there, of those asked for."""
        found: dict[bytes, NDArray[np.float32]] = {}
        try:
            for part in _parts(list(keys)):
                marks = ",".join("?" * len(part))
                for key, raw in self._base.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part):
                    if isinstance(raw, bytes) and raw and len(raw) % 4 == 0:
                        found[key] = np.frombuffer(raw, dtype="<f4")
        except sqlite3.DatabaseError:
            self._base.close()
            self._base = self._anew()
            return {}
        return found

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keeps vectors: all of them, or after a kill none. A batch cut in two would be encoded as other batches."""
        rows = [(key, np.asarray(vector, dtype="<f4").tobytes()) for key, vector in vectors.items()]
        try:
            with self._base:
                self._base.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.Error as problem:
            raise RunError(f"vectors cannot be kept ({problem})", where=str(self._path)) from None

    def close(self) -> None:
        """Closes the file."""
        self._base.close()

    def _anew(self) -> sqlite3.Connection:
        """An empty store in the place of a damaged one: all that is lost is time."""
        try:
            self._path.unlink(missing_ok=True)
            return self._opened()
        except sqlite3.Error as problem:
            raise RunError(f"vectors cannot be kept ({problem})", where=str(self._path)) from None

    def _opened(self) -> sqlite3.Connection:
        # A run is executed in one thread, which need not be the one that opened it.
        claim(self._path)  # files that SQLite puts beside it get the same rights
        base = sqlite3.connect(self._path, check_same_thread=False)
        try:
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        except sqlite3.DatabaseError:
            base.close()
            raise
        return base


class RememberingEncoder:
    """A PublicEncoder in front of an encoder: known texts come from the store, new vectors are kept before use.

    `public` may compute new vectors in the encoder's place, where that is elsewhere.
    """

    def __init__(self, encoder: Encoder, store: VectorStore, public: PublicEncoder | None = None) -> None:
        self._encoder = encoder
        self._store = store
        self._compute = encoder.encode if public is None else public.encode_public

    def encode_public(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per public text, in order."""
        if not texts:
            return np.zeros((0, self._encoder.dimension), dtype=np.float32)
        keys = [self.key(text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        known = self._store.get(wanted)
        missing = {key: text for key, text in wanted.items() if key not in known}
        if missing:
            fresh = dict(zip(missing, self._compute(list(missing.values())), strict=True))
            self._store.put(fresh)
            known |= fresh
        if len({len(vector) for vector in known.values()}) > 1:
            raise ModelError(
                "the encoder's vectors have another length than before",
                where=self._encoder.name,
                hint="the server holds another model than when this run began",
            )
        return np.stack([known[key] for key in keys]).astype(np.float32)

    def key(self, text: str) -> bytes:
        """The name of a text's vector."""
        raw = text.encode("utf-8", "surrogatepass")
        return hashlib.sha256(self._encoder.name.encode() + b"\0" + raw).digest()


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]
