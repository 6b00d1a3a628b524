"""A file from a URL, resumed where it was cut, with the bytes counted as they come.

The bytes land in a `.part` file that outlives the process: the next attempt asks only for what is missing. Nothing
here trusts the bytes; the store hashes the whole file before anyone may use it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from selpe.errors import ModelError

if TYPE_CHECKING:
    import httpx

CHUNK = 1 << 20
CONNECT_SECONDS = 8.0
READ_SECONDS = 60.0
ATTEMPTS = 5  # in a row without a single new byte
CONNECT_ATTEMPTS = 2  # a host that cannot be reached is given up early: the next source may be near
RETRY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHA256_DIGITS = 64


class SourceError(ModelError):
    """A source that could not hand over the file; another one may. `unreachable`: its host is not even there."""

    kind = "model-source"
    unreachable = False


@dataclass(frozen=True, slots=True)
class Step:
    """How far a fetch is, for progress bars."""

    file: str
    source: str
    done: int
    total: int
    note: str = ""


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Takes progress and shows nothing."""


def client() -> httpx.Client:
    """A client for downloads: follows redirects, uses the user's proxies, never waits for ever."""
    import httpx

    from selpe.version import __version__

    for talker in ("httpx", "httpcore"):  # at the lower levels they log addresses that were signed for this user
        logging.getLogger(talker).setLevel(logging.WARNING)
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    agent = {"User-Agent": f"selpe/{__version__}", "Accept-Encoding": "identity"}
    return httpx.Client(follow_redirects=True, timeout=timeout, headers=agent)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to download: `sha256` and `size` may be unknown ('' and 0)."""

    url: str
    name: str
    source: str
    sha256: str = ""
    size: int = 0
    headers: Mapping[str, str] | None = None


def download(http: httpx.Client, wanted: Wanted, part: Path, progress: Progress = silent) -> None:
    """Fills `part` with the bytes behind the URL, going on from the bytes that are already there."""
    import httpx

    if not wanted.sha256:
        part.unlink(missing_ok=True)  # without a hash there is no telling whether old bytes belong to this file
    idle, most = 0, part.stat().st_size if part.exists() else 0
    while True:
        try:
            _stream(http, wanted, part, progress)
            return
        except (httpx.TransportError, SourceError) as problem:
            if isinstance(problem, SourceError) and not problem.retryable:
                raise
            after = part.stat().st_size if part.exists() else 0
            # New is what was never there: a file that ends early, again and again from its start, is no progress.
            idle, most = (0, after) if after > most else (idle + 1, most)
            reached = not isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout)
            if idle >= (ATTEMPTS if reached else CONNECT_ATTEMPTS):
                raise _given_up(wanted, problem) from problem
            time.sleep(_pause(problem, idle))


def _stream(http: httpx.Client, wanted: Wanted, part: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    if wanted.size and have == wanted.size:
        return
    if wanted.size and have > wanted.size:
        part.unlink()
        have = 0
    headers = dict(wanted.headers or {})
    if have:
        headers["Range"] = f"bytes={have}-"
    with http.stream("GET", wanted.url, headers=headers) as response:
        _check(response, wanted)
        if response.status_code == 416:  # the part does not belong to what the server holds now
            part.unlink(missing_ok=True)
            raise SourceError("the server refused to resume", retryable=True)
        resumed = response.status_code == 206 and _starts_at(response) == have
        done = have if resumed else 0
        total = wanted.size or done + int(response.headers.get("content-length", 0))
        with part.open("ab" if resumed else "wb") as target:
            for chunk in response.iter_bytes(CHUNK):
                target.write(chunk)
                done += len(chunk)
                if wanted.size and done > wanted.size:
                    break  # what comes is not the file; no need to fill the disk to find out
                progress(Step(wanted.name, wanted.source, done, total))
    if wanted.size and done > wanted.size:
        part.unlink()
        raise SourceError("the file there is larger than the pinned one")
    if wanted.size and done < wanted.size:
        raise SourceError("the connection was cut", retryable=True)


def _check(response: httpx.Response, wanted: Wanted) -> None:
    """Refuses answers that cannot be the file, before their body is read."""
    status = response.status_code
    if status in RETRY_STATUS:
        retry_after = _seconds(response.headers.get("retry-after", ""))
        raise SourceError(f"the server answered {status}", retryable=True, retry_after=retry_after)
    if status in (401, 403):
        raise SourceError(f"access refused ({status})", hint="Set HF_TOKEN, and accept the model's terms on its page.")
    if status == 404:
        raise SourceError("no such file there (404)")
    if status >= 400 and status != 416:
        raise SourceError(f"the server answered {status}")
    # The hub tells the hash of a large file on the way: a different file is refused at no cost.
    told = {hop.headers.get("x-linked-etag", "").strip('W/"') for hop in (*response.history, response)}
    hashes = {tag for tag in told if len(tag) == _SHA256_DIGITS}
    if wanted.sha256 and hashes and wanted.sha256 not in hashes:
        raise SourceError("the file there has another hash than the pinned one")


def _starts_at(response: httpx.Response) -> int:
    """The first byte of a partial answer, -1 when the server does not say."""
    span = response.headers.get("content-range", "").removeprefix("bytes").strip().split("-")[0]
    return int(span) if span.isdigit() else -1


def _seconds(text: str) -> float | None:
    return float(text) if text.strip().isdigit() else None


def _pause(problem: Exception, idle: int) -> float:
    asked = getattr(problem, "retry_after", None)
    return min(asked if asked is not None else 0.5 * 2.0**idle, 30.0)


def _given_up(wanted: Wanted, problem: Exception) -> SourceError:
    """The last problem in words; only its type is shown, since its text may name a signed address."""
    if isinstance(problem, SourceError):
        return problem
    import httpx

    host = httpx.URL(wanted.url).host
    words = {"ConnectError": "cannot be reached", "ConnectTimeout": "does not answer"}
    error = SourceError(f"{host} {words.get(type(problem).__name__, 'cut the connection again and again')}")
    error.unreachable = type(problem).__name__ in words
    return error
