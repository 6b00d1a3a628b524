"""The clients of a server for a team: a token for each, what it may be used for, and whom it belongs to.

    clients.json       names, persons, roles, and of each token a salted hash; readable by its owner alone

A token is shown once, when it is made. The file is looked at with every request, so that what was revoked is refused
from then on. A name is given once: after its token was revoked nobody else can become it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selpe.errors import ConfigError
from selpe.owner_only import FILE_MODE, make_folder
from selpe.serve.store import write_json

Role = Literal["submit", "approve", "read"]
ROLES: tuple[Role, ...] = get_args(Role)
FILE = "clients.json"
NAME = r"^[a-z0-9][a-z0-9_.-]{0,47}$"
_PREFIX = "selpe_"  # by which a token that got into a file or a chat can be searched for
_LONGEST = 256
_BYTES = 16


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody who may ask, and for what. `person` is who answers for it: one person may have several clients."""

    name: str
    person: str
    roles: frozenset[Role]
    secret: bytes = field(default=b"", repr=False)  # what keys of its pages are made from; not its token


class Door(Protocol):
    """Who may come in: whoever has the one token of a server, or one of those of a team."""

    def client_of(self, header: bytes) -> Client | None:
        """Who an Authorization header belongs to; None where nobody."""
        ...

    def knows(self, client: Client) -> bool:
        """Whether a client that was let in would be let in now."""
        ...

    def key_for(self, client: Client, run: str) -> str:
        """The key of one run's page for a client."""
        ...

    def opens(self, run: str, key: str) -> bool:
        """Whether a key is that of this run's page."""
        ...


class ClientRecord(BaseModel):
    """A client as the file has it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=NAME)]
    person: Annotated[str, Field(pattern=NAME)]
    roles: Annotated[list[Role], Field(min_length=1)]
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    made: str
    rotated: str | None = None
    revoked: str | None = None

    @property
    def client(self) -> Client:
        """Who this is, to the server."""
        return Client(self.name, self.person, frozenset(self.roles), bytes.fromhex(self.hash))


class _Listed(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    version: Literal[1] = 1
    clients: list[ClientRecord]


class Clients:
    """The clients in a server's folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._known: tuple[tuple[int, ...], tuple[ClientRecord, ...]] | None = None

    @property
    def exist(self) -> bool:
        """Whether there is a list of clients; then the one token of the server opens nothing."""
        return self.path.exists()

    def records(self) -> tuple[ClientRecord, ...]:
        """All clients, those with revoked tokens too; raises ConfigError where the list cannot be relied on."""
        try:
            about = self.path.stat()
            stamp = (about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_mode)
            if self._known is None or self._known[0] != stamp:
                if os.name == "posix" and about.st_mode & 0o077:
                    hint = f"run: chmod 600 {self.path}"
                    raise ConfigError("the list of clients can be read by other users", where=str(self.path), hint=hint)
                listed = _Listed.model_validate_json(self.path.read_bytes())
                self._known = (stamp, tuple(listed.clients))
        except OSError as error:
            raise ConfigError(f"the list of clients cannot be read ({error.strerror})", where=str(self.path)) from None
        except ValidationError:
            raise ConfigError(
                "the list of clients is damaged", where=str(self.path), hint="restore it from a backup"
            ) from None
        return self._known[1]

    # -- asking -----------------------------------------------------------------------------------------------------

    def client_of(self, header: bytes) -> Client | None:
        """Who an Authorization header belongs to. It takes as long for a near miss as for any other."""
        scheme, _, given = header.partition(b" ")
        given, found = given.strip()[:_LONGEST], None
        for record in self.records():
            right = hmac.compare_digest(_hash(record.salt, given), record.hash)
            if right and record.revoked is None:
                found = record.client
        return found if scheme.lower() == b"bearer" else None

    def knows(self, client: Client) -> bool:
        """Whether the token that a client came in with is still good."""
        return any(record.client == client for record in self._live())

    def key_for(self, client: Client, run: str) -> str:
        """The key of one run's page for a client: it opens nothing any more once its token is rotated or revoked."""
        made = hmac.new(client.secret, f"page of {run}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    def opens(self, run: str, key: str) -> bool:
        """Whether a key is that of this run's page, for any client."""
        right = [hmac.compare_digest(self.key_for(one.client, run).encode(), key.encode()) for one in self._live()]
        return any(right)

    # -- changing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Iterator[ChangedClients]:
        """The list, held against other processes; what was changed is on the disk when the block is left."""
        from filelock import FileLock, Timeout

        try:
            make_folder(self.path.parent)
            with FileLock(self.path.with_suffix(".lock"), timeout=30, mode=FILE_MODE):
                changed = ChangedClients(self.records() if self.exist else ())
                yield changed
                write_json(self.path, _Listed(clients=list(changed.records)).model_dump())
        except Timeout:
            raise ConfigError("another process changes the list of clients", where=str(self.path)) from None
        except OSError as error:
            raise ConfigError(
                f"the list of clients cannot be written ({error.strerror})", where=str(self.path)
            ) from None

    def _live(self) -> list[ClientRecord]:
        return [record for record in self.records() if record.revoked is None]


@dataclass(slots=True)
class ChangedClients:
    """A list of clients on its way to the disk."""

    records: tuple[ClientRecord, ...]

    def make(self, name: str, person: str, roles: list[Role]) -> tuple[ClientRecord, str]:
        """A new client, and its token."""
        if any(record.name == name for record in self.records):
            raise ConfigError(
                "there is a client of this name, or there was one", where=name,
                hint="rotate its token, or take another name: names are not given twice, so that the log stays clear",
            )  # fmt: skip
        salt, digest, token = _fresh()
        try:
            record = ClientRecord(name=name, person=person, roles=roles, salt=salt, hash=digest, made=_now())
        except ValidationError:
            raise ConfigError(
                "must be 1 to 48 small letters, digits, dots, dashes or underscores", where="name or --person"
            ) from None
        self.records = (*self.records, record)
        return record, token

    def rotate(self, name: str) -> tuple[ClientRecord, str]:
        """The client with another token in the place of the one that it had."""
        salt, digest, token = _fresh()
        return self._put(self.live(name).model_copy(update={"salt": salt, "hash": digest, "rotated": _now()})), token

    def revoke(self, name: str) -> ClientRecord:
        """The client without a token."""
        return self._put(self.live(name).model_copy(update={"revoked": _now()}))

    def live(self, name: str) -> ClientRecord:
        """The client of this name, whose token has not been revoked."""
        for record in self.records:
            if record.name == name and record.revoked is None:
                return record
        was = any(record.name == name for record in self.records)
        raise ConfigError(
            "the token of this client was revoked" if was else "there is no such client",
            where=name,
            hint="`selpe server tokens` lists them",
        )

    def _put(self, changed: ClientRecord) -> ClientRecord:
        self.records = tuple(changed if one.name == changed.name else one for one in self.records)
        return changed


def _fresh() -> tuple[str, str, str]:
    """A salt, a hash and the token that they are of. It is random enough that no slow hash is needed."""
    token, salt = _PREFIX + secrets.token_urlsafe(32), secrets.token_hex(_BYTES)
    return salt, _hash(salt, token.encode()), token


def _hash(salt: str, token: bytes) -> str:
    return hmac.new(bytes.fromhex(salt), token, hashlib.sha256).hexdigest()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
