"""The two files of a project, schema.yaml and selpe.yaml: read, changed and written back with their comments.

The files are the truth. Nothing is kept beside them, and a change that was made from an older version of them is
refused: an editor may be open too.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ruamel.yaml.comments import CommentedMap

from selpe.config import RunConfig, check_config, load_config
from selpe.errors import ConfigError, SchemaError, SelPEError
from selpe.lasting import put_for_good
from selpe.operating_system import refusal
from selpe.owner_only import open_text
from selpe.schema import Schema
from selpe.studio.yaml_edit import edited
from selpe.yaml import parse_yaml

Change = Callable[[CommentedMap], None]
Which = Literal["schema", "settings"]
# What `selpe init` could tell of a table, or could not, and a person has not confirmed yet.
_ASKED = re.compile(r"^(?:# )?(\w+):.*please (?:confirm|say)$", re.MULTILINE)


class StaleError(SelPEError):
    """A change that was made from an older version of the files."""

    kind = "stale"

    def __init__(self) -> None:
        super().__init__(
            "the files were changed meanwhile, so nothing was saved",
            hint="look at what they say now, then change it again",
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Both files at one moment."""

    schema: Schema
    settings: RunConfig
    revision: str
    asked: tuple[str, ...]  # settings that are to be confirmed


class Project:
    """A settings file and its schema."""

    def __init__(self, config: Path) -> None:
        self.config = config.resolve()
        self._lock = threading.RLock()

    @property
    def folder(self) -> Path:
        """Where the settings are."""
        return self.config.parent

    def read(self) -> Snapshot:
        """The files as they are now. Raises SelPEError where one cannot be read."""
        with self._lock:
            while True:
                revision = self.revision()
                settings = load_config(self.config)
                schema = Schema.load(settings.data_schema)
                text = self.config.read_text(encoding="utf-8-sig")
                if self.revision() == revision:  # else an editor has just saved: what was read may be of two versions
                    return Snapshot(schema, settings, revision, tuple(dict.fromkeys(_ASKED.findall(text))))

    def revision(self) -> str:
        """A fingerprint of both files."""
        digest = hashlib.sha256()
        for path in (self.config, self._schema_path()):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise refusal(error, where=str(path)) from None
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()[:32]

    def change(self, which: Which, change: Change, *, revision: str, confirmed: tuple[str, ...] = ()) -> Snapshot:
        """Changes one file, if it is still that revision and says something sound afterwards.

        `confirmed` names settings that a person has looked at.
        """
        path = self.config if which == "settings" else self._schema_path()
        error = ConfigError if which == "settings" else SchemaError
        with self._lock:
            if self.revision() != revision:
                raise StaleError
            before = path.read_text(encoding="utf-8-sig")
            after = edited(before, change, where=path.name, error=error)
            if which == "settings":
                after = _confirmed(after, confirmed)
                check_config(_mapping(after, path), where=path.name)
            else:
                Schema.from_yaml(after, where=path.name)
            if after != before:
                if self.revision() != revision:
                    raise StaleError
                _write(path, after)
            return self.read()

    def _schema_path(self) -> Path:
        path = Path(load_config(self.config).data_schema)
        if path.suffix.lower() == ".json":
            raise SchemaError(
                "a JSON Schema cannot be edited here",
                where=path.name,
                hint="write the schema as YAML, as `selpe init` does",
            )
        return path.resolve()


def _mapping(text: str, path: Path) -> dict[str, Any]:
    content = parse_yaml(text, where=path.name, error=ConfigError)
    if not isinstance(content, dict):
        raise ConfigError("a configuration must be a mapping of settings", where=path.name)
    return dict(content)


def _confirmed(text: str, names: tuple[str, ...]) -> str:
    """The text with the questions about some settings answered; those that only a comment asked are gone."""
    for name in names:
        text = re.sub(rf"^({name}:.*)please confirm$", r"\1confirmed", text, flags=re.MULTILINE)
        text = re.sub(rf"^# {name}:.*please say\n", "", text, flags=re.MULTILINE)
    return text


def _write(path: Path, text: str) -> None:
    """Puts a text in the place of a file, at once or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open_text(part, newline="") as file:
            file.write(text)
        put_for_good(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise refusal(error, where=str(path)) from None
