"""An API key that is known by where it lies. The value itself is in no attribute, repr, pickle or message."""

from __future__ import annotations

import os
from pathlib import Path

from selpe.errors import ConfigError


class Secret:
    """A key in an environment variable or in a file; it is read when a connection is made."""

    __slots__ = ("_env", "_file")

    def __init__(self, *, env: str = "", file: str | Path = "") -> None:
        if bool(env) == bool(file):
            raise ConfigError("an API key must come from one environment variable or one file")
        self._env = env
        self._file = str(file)

    def __repr__(self) -> str:
        return f"Secret(env={self._env!r})" if self._env else f"Secret(file={self._file!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._env, self._file) == (other._env, other._file)

    def __hash__(self) -> int:
        return hash((self._env, self._file))

    def reveal(self) -> str:
        """The key as it is now; for the transport alone."""
        value = os.environ.get(self._env, "") if self._env else self._from_file()
        value = value.strip()
        if not value:
            raise ConfigError("the API key is empty", where=repr(self), hint=self._hint())
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise ConfigError("the API key must be one line of plain characters", where=repr(self))
        return value

    def _from_file(self) -> str:
        try:
            return Path(self._file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            pass  # raised below, outside the handler, so that no bytes of the file hang on the error
        raise ConfigError("the API key's file cannot be read", where=self._file, hint=self._hint())

    def _hint(self) -> str:
        if self._env:
            return f"set the environment variable {self._env}"
        return "write the key into that file, readable by you alone"
