"""The token: whoever has it may ask. It lies in a file that only its owner can read, and is never shown or logged."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from selpe.errors import ConfigError
from selpe.lasting import sync_file, sync_folder
from selpe.owner_only import make_folder, open_text
from selpe.serve.clients import ROLES, Client

SHORTEST = 32
OWNER = Client("owner", "owner", frozenset(ROLES))  # whoever has the one token may do everything


@dataclass(frozen=True, slots=True)
class Token:
    """A secret; its representation shows nothing of it."""

    secret: str = field(repr=False)

    def allows(self, header: bytes | None) -> bool:
        """Whether an Authorization header carries the token; takes as long for a near miss as for any other."""
        scheme, _, given = (header or b"").partition(b" ")
        right = hmac.compare_digest(_digest(given.strip()), _digest(self.secret.encode()))
        return right and scheme.lower() == b"bearer"

    def client_of(self, header: bytes) -> Client | None:
        """Who an Authorization header belongs to: the owner, or nobody."""
        return OWNER if self.allows(header) else None

    def knows(self, client: Client) -> bool:
        """Whether a client that was let in would be let in now."""
        return client == OWNER

    def key_for(self, client: Client, run: str) -> str:
        """The key of one run's page."""
        return self.key_of(run)

    def key_of(self, run: str) -> str:
        """The key of one run's page. It tells nothing about the token: browsers keep addresses, so that is in none."""
        made = hmac.new(self.secret.encode(), f"page of {run}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    def opens(self, run: str, key: str) -> bool:
        """Whether a key is that of this run's page."""
        return hmac.compare_digest(_digest(key.encode()), _digest(self.key_of(run).encode()))


def load_token(path: Path) -> Token:
    """The token of a file, which is made with a random one where there is none."""
    try:
        return _made(path) or _read(path)
    except OSError as error:
        raise ConfigError(f"the token file cannot be used ({error.strerror})", where=str(path)) from None


def _made(path: Path) -> Token | None:
    make_folder(path.parent)
    try:
        file = open_text(path, "x")
    except FileExistsError:
        return None
    secret = secrets.token_urlsafe(32)
    with file:
        file.write(secret + "\n")
    sync_file(path)
    sync_folder(path.parent)
    return Token(secret)


def _read(path: Path) -> Token:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        raw = file.read(4096)
    if os.name == "posix" and mode & 0o077:
        raise ConfigError("the token can be read by other users", where=str(path), hint=f"run: chmod 600 {path}")
    try:
        secret = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        secret = ""
    if len(secret) < SHORTEST or not secret.isprintable() or " " in secret:
        raise ConfigError(
            f"a token must be one line of at least {SHORTEST} plain characters without blanks",
            where=str(path),
            hint="delete the file, and a random one is made",
        )
    return Token(secret)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
