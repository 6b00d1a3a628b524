"""The second person: what a run that spends waits for, where the owner wants it, and who may say yes."""

from __future__ import annotations

from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any

from selpe.serve.clients import Client
from selpe.serve.refusals import RefusedError
from selpe.serve.runs import ShelvedRun

WAITING: dict[str, Any] = {"approval": {"state": "waiting", "by": None, "at": None}}


def granted(run: ShelvedRun) -> bool:
    """Whether a run may spend: nobody had to be asked, or somebody has agreed."""
    return run.approval is None or run.approval.get("state") == "given"


def require_second_person(run: ShelvedRun, by: Client) -> None:
    """Raises where the person who submitted a run would approve it, with this token or with another one."""
    submitted_by = run.accepted.get("person")
    if not submitted_by or submitted_by == by.person:
        raise RefusedError(
            HTTPStatus.FORBIDDEN, "approval", "whoever submitted a run cannot approve it", where=run.name,
            hint="another person with the role 'approve' can",
        )  # fmt: skip


def decided(run: ShelvedRun, by: Client, *, given: bool) -> dict[str, Any]:
    """What was agreed to about a run, with the decision in it."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return {**run.accepted, "approval": {"state": "given" if given else "refused", "by": by.name, "at": now}}
