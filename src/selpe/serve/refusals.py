"""What a client is told when something is refused: one shape for every failure, a status, and never a cell.

Nor does it learn where things lie on the server's machine: of every path in a message the last part is left.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from selpe.errors import SelPEError
from selpe.privacy.ledger import ledger_root
from selpe.privacy.ledger.key import key_path

# Kinds of our own errors and the status each is answered with; everything else is a failure of ours.
_STATUS = {
    "schema": HTTPStatus.UNPROCESSABLE_ENTITY,
    "schema-unconfirmed": HTTPStatus.CONFLICT,
    "data": HTTPStatus.UNPROCESSABLE_ENTITY,
    "config": HTTPStatus.UNPROCESSABLE_ENTITY,
    "audit": HTTPStatus.SERVICE_UNAVAILABLE,
    "privacy": HTTPStatus.CONFLICT,
    "budget": HTTPStatus.CONFLICT,
    "ledger": HTTPStatus.CONFLICT,
    "run": HTTPStatus.CONFLICT,
    "model": HTTPStatus.CONFLICT,
    "model-not-found": HTTPStatus.CONFLICT,
    "stopped": HTTPStatus.CONFLICT,
}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_IN_A_PATH = r"[^\s/\\'\"`,;:()<>|]+"
# A path from the top of a disk. What follows a letter, a dot or a colon is part of a word or of an address, and the
# addresses of the API are everybody's business.
_PATH = re.compile(
    rf"(?<![\w.…:/\\-])(?:/(?!openapi\.json|v1/|watch/)|[A-Za-z]:[/\\]|\\\\)(?:{_IN_A_PATH}[/\\])*({_IN_A_PATH})?"
)


class RefusedError(SelPEError):
    """A request that is answered with a status of its own."""

    def __init__(self, status: HTTPStatus, kind: str, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message, hint=hint, where=where)
        self.status = status
        self.kind = kind


def missing(what: str, name: str) -> RefusedError:
    """There is no such table or run. The name is repeated only where it has the form of one."""
    where = name if _PLAIN_NAME.fullmatch(name) else ""
    return RefusedError(HTTPStatus.NOT_FOUND, "missing", f"there is no such {what}", where=where)


def conflict(kind: str, message: str, *, hint: str = "", where: str = "") -> RefusedError:
    """Right in itself, but not as things stand."""
    return RefusedError(HTTPStatus.CONFLICT, kind, message, hint=hint, where=where)


def busy(message: str, *, hint: str = "try again in a while") -> RefusedError:
    """Too much at once."""
    return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "busy", message, hint=hint)


def from_child(error: Mapping[str, Any], root: str = "") -> RefusedError:
    """The error that a child process told of; folders of the server are no client's business."""
    kind = str(error.get("kind", "error"))
    said = {name: without_places(str(error.get(name, "")), root) for name in ("message", "hint", "where")}
    status = _STATUS.get(kind, HTTPStatus.INTERNAL_SERVER_ERROR)
    return RefusedError(status, kind, said["message"], hint=said["hint"], where=said["where"])


def status_of(error: SelPEError) -> HTTPStatus:
    """The status that an error is answered with."""
    if isinstance(error, RefusedError):
        return error.status
    return _STATUS.get(error.kind, HTTPStatus.INTERNAL_SERVER_ERROR)


def told(error: SelPEError, root: str = "") -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {name: without_places(text, root) for name, text in error.as_dict().items()}}


def bug(error: BaseException) -> dict[str, Any]:
    """What is said of an error that is not ours: its kind alone, for its message may quote a cell."""
    return {"error": {"kind": "bug", "message": f"an unexpected {type(error).__name__}", "where": "", "hint": ""}}


def invalid(errors: list[Any]) -> dict[str, Any]:
    """What is said of a request that does not have the form it must have; what was sent is not repeated."""
    first = errors[0] if errors else {"loc": (), "type": "", "msg": "this must have another form"}
    loc = [str(part) for part in first["loc"] if not isinstance(part, int)]
    where = ".".join(part if _PLAIN_NAME.fullmatch(part) else "…" for part in loc)
    return {"error": {"kind": "request", "message": _said(first), "where": where, "hint": "see /openapi.json"}}


def _said(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "there is no such setting, or it is not a client's to choose"
        case "missing":
            return "this must be given"
        case "json_invalid":
            return "this must be JSON"
        case kind if "tag" in kind or kind == "value_error":
            return "this must have another form"
        case _:
            return str(error["msg"]).replace("Input should", "this must").replace("String should", "this must")


def without_places(text: str, root: str = "") -> str:
    """The text with '…' for the folders of this machine in it: the server's own, those of ledgers and keys, any other.

    Known folders first, for their names may hold blanks, by which a path in a sentence cannot be told from the rest.
    """
    for folder in sorted({root, *_known_folders()} - {""}, key=len, reverse=True):
        text = text.replace(folder, "…")
    return _PATH.sub(lambda found: f"…/{found[1]}" if found[1] else "…", text)


def _known_folders() -> set[str]:
    known = [ledger_root(), key_path().parent, Path(tempfile.gettempdir()), Path(sys.prefix)]
    for where in (Path.home, Path.cwd):
        with suppress(OSError, RuntimeError):  # a user without a home, a folder that was deleted
            known.append(where())
    return {str(folder) for one in known for folder in (one, one.resolve()) if len(folder.parts) > 1}
