"""The owner's key: a secret file in the user's config folder that seals ledgers and blinds fingerprints.

It never leaves the machine and is never written into a ledger. Whoever has a ledger but not the key can read
what was spent; they can neither change it unnoticed nor learn anything about the rows from its fingerprints.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from selpe.errors import LedgerError
from selpe.lasting import put_for_good
from selpe.owner_only import FILE_MODE, make_folder, open_bytes

ENV_KEY = "SELPE_KEY"
_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A secret; its representation shows only its public id."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """A short public name of the key, which says nothing about the secret."""
        return hmac.new(self.secret, b"selpe key id", hashlib.sha256).hexdigest()[:16]

    def derive(self, purpose: str) -> bytes:
        """A subkey for one purpose, so that seals and fingerprints never share a key."""
        return hmac.new(self.secret, f"selpe {purpose}".encode(), hashlib.sha256).digest()


def key_path() -> Path:
    """Where the key lies: `$SELPE_KEY`, else `ledger.key` in the user's config folder."""
    if named := os.environ.get(ENV_KEY):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("selpe", appauthor=False) / "ledger.key"


def find_key(path: Path | None = None) -> Key | None:
    """The key if there is one, else None; refuses a key that other users can read."""
    path = path or key_path()
    try:
        text = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError("the ledger key cannot be read", where=str(path)) from error
    if os.name == "posix" and mode & 0o077:
        raise LedgerError("the ledger key can be read by other users", where=str(path), hint=f"run: chmod 600 {path}")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise LedgerError(
            f"the ledger key must be {2 * _BYTES} hexadecimal digits",
            where=str(path),
            hint="restore the file from a backup; a new key cannot vouch for ledgers sealed with the old one",
        )
    return Key(secret)


def make_key(path: Path | None = None) -> Key:
    """The key, created (readable by its owner alone) if there is none; safe when two processes start at once."""
    from filelock import FileLock, Timeout

    path = path or key_path()
    if found := find_key(path):  # asks for no right to write beside it
        return found
    try:
        make_folder(path.parent)
        with FileLock(path.with_suffix(".lock"), timeout=30, mode=FILE_MODE):
            if found := find_key(path):
                return found
            draft = path.with_suffix(".new")
            draft.unlink(missing_ok=True)
            with open_bytes(draft, "xb") as file:
                file.write(secrets.token_hex(_BYTES).encode())
            # The key appears whole and for good, or not at all: a half-written or lost key would lock every ledger.
            put_for_good(draft, path)
    except (OSError, Timeout) as error:
        raise LedgerError(
            "the ledger key cannot be created",
            where=str(path),
            hint=f"make the folder writable, or name another key file in {ENV_KEY}",
        ) from error
    made = find_key(path)
    if made is None:
        raise LedgerError("the ledger key vanished while it was being created", where=str(path))
    return made
