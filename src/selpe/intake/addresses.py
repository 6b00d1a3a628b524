"""Addresses of databases as they may be kept: without passwords, which the environment gives back."""

from __future__ import annotations

import os
import re

from selpe.errors import ConfigError

DATA = "SELPE_DATA"
_HIDDEN = "***"
_SECRETS = re.compile(r"(?i)\b([^=&]*(?:passw|pwd|secret|token|key|odbc_connect)[^=&]*=)[^&]*")


def without_password(source: str) -> str:
    """A database's address as a manifest keeps it: with stars for passwords and keys. Anything else as it is."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return source
    rest, ask, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    shown = f"{user}:{_HIDDEN}@{place}" if at and colon else rest
    hidden = _SECRETS.sub(lambda found: found[1] + _HIDDEN, query)
    return f"{scheme}://{shown}{ask}{hidden}"


def with_password(source: str) -> str:
    """The address that a run's manifest keeps with stars, whole again: from `SELPE_DATA`."""
    if _HIDDEN not in source or "://" not in source:
        return source
    given = os.environ.get(DATA, "")
    if without_password(given) == source:
        return given
    raise ConfigError(
        "the password of this run's database is not kept in its folder",
        hint=f"give the whole address, password included, in the environment variable {DATA}",
    )
