"""What each address needs: a role, and a line in the audit log. One table, looked at before a body is read.

An address that is not in the table cannot be built, so a new one is closed until somebody has said who may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.routing import APIRoute

from selpe.serve.clients import ROLES, Client, Role
from selpe.serve.guard import CLIENT
from selpe.serve.refusals import RefusedError
from selpe.serve.trail import ANSWERED, ASKED, Trail, who, why_of

Logged = Literal["refusals", "answers", "changes"]


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Who may use an address, any of these roles, and what of its use is logged.

    `refusals` alone for what only looks at the state of things; `answers` too for what reads a table or hands something
    out; for `changes` also a line before anything is done.
    """

    roles: frozenset[Role]
    logged: Logged = "refusals"


_EVERYBODY, _SUBMIT = frozenset(ROLES), frozenset[Role]({"submit"})
_APPROVE, _READ = frozenset[Role]({"approve"}), frozenset[Role]({"read"})
RULES = MappingProxyType(
    {
        "models": AddressRule(_EVERYBODY),
        "list_tables": AddressRule(_EVERYBODY),
        "show_table": AddressRule(_EVERYBODY),
        "show_schema": AddressRule(_EVERYBODY),
        "budget": AddressRule(_EVERYBODY),
        "list_runs": AddressRule(_EVERYBODY),
        "show_run": AddressRule(_EVERYBODY),
        "upload_table": AddressRule(_SUBMIT, "changes"),
        "upload_schema": AddressRule(_SUBMIT, "changes"),
        "delete_table": AddressRule(_SUBMIT, "changes"),
        "check": AddressRule(_SUBMIT, "answers"),
        "plan": AddressRule(_SUBMIT, "answers"),
        "submit": AddressRule(_SUBMIT, "changes"),
        "resume": AddressRule(_SUBMIT, "changes"),
        "cancel": AddressRule(_SUBMIT | _APPROVE, "changes"),
        "approve": AddressRule(_APPROVE, "changes"),
        "reject": AddressRule(_APPROVE, "changes"),
        "events": AddressRule(_SUBMIT | _READ),
        "page": AddressRule(_SUBMIT | _READ, "answers"),
        "release": AddressRule(_READ, "answers"),
    }
)

Names = Callable[[str, dict[str, str]], dict[str, str]]


def client_of(request: Request) -> Client:
    """Who asks. The guard has let nobody else so far."""
    found: Client = request.scope[CLIENT]
    return found


def route_class(trail: Trail, names: Names) -> type[APIRoute]:
    """The kind of route that asks for a role and tells the log. `names` says which table and run a request is about."""

    class WatchedRoute(APIRoute):
        """A route with a rule."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            """The handler, behind its rule."""
            handle, what, rule = super().get_route_handler(), self.name, RULES[self.name]

            async def watched(request: Request) -> Response:
                client = client_of(request)
                about: dict[str, Any] = {"what": what, **(names(what, request.path_params) if trail.kept else {})}
                try:
                    _require(rule, client)
                    if rule.logged == "changes" and (line := await trail.note(ASKED, **who(client), **about)):
                        about["asked"] = line.seq
                    answer = await handle(request)
                except Exception as error:
                    status, why = why_of(error)
                    await trail.refused(client, status, why, **about)
                    raise
                if rule.logged != "refusals":
                    if digest := answer.headers.get("x-sha256"):
                        about["sha256"] = digest
                    # It is on the disk before a byte of the answer leaves; where it cannot be, the answer does not.
                    await trail.note(ANSWERED, **who(client), **about, status=answer.status_code)
                return answer

            return watched

    return WatchedRoute


def _require(rule: AddressRule, client: Client) -> None:
    if not rule.roles & client.roles:
        wanted = " or ".join(f"'{role}'" for role in ROLES if role in rule.roles)
        raise RefusedError(
            HTTPStatus.FORBIDDEN, "role", "this token may not be used for that",
            hint=f"it takes a token with the role {wanted}", where=client.name,
        )  # fmt: skip
