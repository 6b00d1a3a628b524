"""What can go wrong between us and a server, and what is done about each of it: one table, used and documented.

A fault is a value, not an exception, so that nothing of a request can hang on it by way of a traceback.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from selpe.errors import ModelError, PromptTooLongError

FaultKind = Literal[
    "busy",
    "overloaded",
    "server",
    "timeout",
    "cut",
    "garbage",
    "unreachable",
    "tls",
    "auth",
    "absent",
    "no-route",
    "refused",
    "too-long",
    "too-big",
]
Bench = Literal["never", "after three", "at once"]

DETAIL_CHARS = 200
LONGEST_WAIT = 86_400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What follows from one kind of fault.

    `charged` faults use up one of the request's attempts: it might have caused them. The others are the endpoint's
    own and only use up time.
    """

    meaning: str
    retried: bool
    charged: bool
    bench: Bench
    slower: bool
    hint: str


POLICIES: Mapping[FaultKind, Policy] = {
    "busy": Policy(
        "the server asks us to slow down (429)",
        retried=True,
        charged=False,
        bench="never",
        slower=True,
        hint="wait, or raise the server's rate limit, and resume",
    ),
    "overloaded": Policy(
        "the server is starting or overloaded (503, 529)",
        retried=True,
        charged=False,
        bench="after three",
        slower=True,
        hint="wait until the server has room, and resume",
    ),
    "server": Policy(
        "the server failed (any other 5xx)",
        retried=True,
        charged=True,
        bench="after three",
        slower=False,
        hint="look at the server's own log, then resume",
    ),
    "timeout": Policy(
        "no byte came in time, or the whole answer took too long",
        retried=True,
        charged=True,
        bench="after three",
        slower=True,
        hint="raise the timeouts or ask for shorter answers, then resume",
    ),
    "cut": Policy(
        "the connection broke before the answer was complete",
        retried=True,
        charged=True,
        bench="after three",
        slower=False,
        hint="look at the server's own log and at proxies in between, then resume",
    ),
    "garbage": Policy(
        "what came back is not HTTP, not JSON, or not an answer",
        retried=True,
        charged=True,
        bench="after three",
        slower=False,
        hint="check that the address is that of an OpenAI-compatible server",
    ),
    "unreachable": Policy(
        "nobody listens at that address",
        retried=True,
        charged=False,
        bench="after three",
        slower=False,
        hint="start the server or correct its address, then resume",
    ),
    "tls": Policy(
        "the TLS handshake failed",
        retried=True,
        charged=False,
        bench="at once",
        slower=False,
        hint="check https or http in the address, or name the server's certificate by `ca_file`",
    ),
    "auth": Policy(
        "the key is missing or refused (401, 403)",
        retried=True,
        charged=False,
        bench="at once",
        slower=False,
        hint="check the environment variable or file that holds the API key",
    ),
    "absent": Policy(
        "the server does not have this model (404)",
        retried=True,
        charged=False,
        bench="at once",
        slower=False,
        hint="check the model's name against the server's list at /v1/models",
    ),
    "no-route": Policy(
        "the server does not offer this kind of request (404, 405, 501)",
        retried=True,
        charged=False,
        bench="never",
        slower=False,
        hint="check the address, or use a server that offers this kind of request",
    ),
    "refused": Policy(
        "the server refuses this request (other 3xx and 4xx)",
        retried=False,
        charged=True,
        bench="never",
        slower=False,
        hint="the server's documentation says which requests and schemas it takes",
    ),
    "too-long": Policy(
        "the prompt does not fit the context window",
        retried=False,
        charged=True,
        bench="never",
        slower=False,
        hint="shorten the prompt or start the server with a larger context",
    ),
    "too-big": Policy(
        "the answer is larger than the limit; reading stopped there",
        retried=False,
        charged=True,
        bench="never",
        slower=False,
        hint="ask for fewer tokens, or raise `max_body`",
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong at one endpoint. `detail` is the server's own words: cleaned, capped, or left out.

    `aside` is a fault of a look that came before the request: the request cannot have caused it.
    """

    kind: FaultKind
    host: str
    status: int = 0
    detail: str = ""
    retry_after: float | None = None
    named: tuple[str, ...] = ()
    aside: bool = False

    @property
    def policy(self) -> Policy:
        """What is done about this fault."""
        return POLICIES[self.kind]

    @property
    def charged(self) -> bool:
        """Whether it uses up one of the request's attempts."""
        return self.policy.charged and not self.aside

    @property
    def lasting(self) -> bool:
        """Whether trying the same again later is pointless."""
        return not self.policy.retried or self.policy.bench == "at once" or self.kind == "no-route"

    def describe(self) -> str:
        """The fault in words, without the host."""
        status = f" (HTTP {self.status})" if self.status else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.policy.meaning.partition(' (')[0]}{status}{detail}"

    def error(self, tries: int = 1) -> ModelError:
        """The error that a caller sees."""
        words = self.describe() + (f", after {tries} tries" if tries > 1 else "")
        kind = PromptTooLongError if self.kind == "too-long" else ModelError
        return kind(
            words,
            hint=self.policy.hint,
            where=self.host,
            retryable=not self.lasting,
            retry_after=self.retry_after,
        )


def retry_after(value: str | None, wall: float | None = None) -> float | None:
    """The seconds that a Retry-After header asks for, given as a number or as an HTTP date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            then = parsedate_to_datetime(value).timestamp()
        except (ValueError, OverflowError):
            return None
        seconds = then - (time.time() if wall is None else wall)
    if not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)


def clean(text: str, secret: str = "") -> str:
    """A server's words made safe to show: no key, no control characters, one line, capped."""
    if secret:
        text = text.replace(secret, "***")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= DETAIL_CHARS else text[: DETAIL_CHARS - 1] + "…"


_TOO_LONG = re.compile(r"context.{0,12}(length|size|window)|exceed_context|too many tokens|prompt is too long", re.I)
_NO_MODEL = re.compile(r"model_not_found|model\b.{0,120}(not found|not exist)|no such model", re.I | re.S)
_UNKNOWN = re.compile(
    r"unknown|unrecogni[sz]ed|unsupported|unexpected|not supported|not permitted|not allowed|extra (input|field)"
    r"|additional propert|invalid (argument|parameter|field)|does not support",
    re.I,
)


def _words(raw: bytes) -> tuple[str, str]:
    """(what the server says in its error, the parameter it blames) of an error body."""
    text = raw[:20_000].decode("utf-8", "replace")
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text, ""
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return error if isinstance(error, str) else json.dumps(error), ""
    said = error.get("message") or error.get("detail") or error
    code = error.get("code") or error.get("type") or ""
    param = error.get("param") or ""
    return (said if isinstance(said, str) else json.dumps(said)) + f" [{code}]" * bool(code), str(param)


def _status_kind(status: int, said: str) -> FaultKind:
    if status == 429:
        return "busy"
    if status in (503, 529):
        return "overloaded"
    if status in (401, 403):
        return "auth"
    if status in (404, 405, 501):
        return "absent" if _NO_MODEL.search(said) else "no-route"
    if status in (400, 413, 422) and _TOO_LONG.search(said):
        return "too-long"
    if status in (408, 504):
        return "timeout"
    return "server" if status >= 500 else "refused"


def from_status(
    status: int,
    headers: Mapping[str, str],
    raw: bytes,
    *,
    host: str,
    secret: str = "",
    quiet: bool = False,
    droppable: tuple[str, ...] = (),
) -> Fault:
    """The fault behind an HTTP status. With `quiet`, nothing of the body is kept: it may echo private text."""
    said, param = _words(raw)
    kind = _status_kind(status, said)
    named: tuple[str, ...] = ()
    if kind == "refused" and _UNKNOWN.search(said):
        named = tuple(n for n in droppable if (n == param if param else re.search(rf"\b{n}\b", said)))
    wait = retry_after(headers.get("retry-after")) if kind in ("busy", "overloaded") else None
    return Fault(kind, host, status, "" if quiet else clean(said, secret), wait, named)
