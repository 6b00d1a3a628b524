"""Connections that take what is not theirs: time, files, room in the log. Others are answered meanwhile."""

from __future__ import annotations

import logging
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from selpe.serve.connections import Connections, Seldom
from selpe.serve.limits import Limits
from serve_world import SECRET, Served, served

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX"),
]
WAIT = 60.0  # seconds for what must happen some time; a busy machine is slow
ROOM = 12
HEAD = b"GET /v1/%s HTTP/1.1\r\nHost: %s\r\n"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that has little patience."""
    server = served(tmp_path_factory.mktemp("strict"), header_seconds=2.0, idle_seconds=2.0, silent_seconds=2.0)
    yield server
    server.end(signal.SIGKILL)


def connected(server: Served) -> socket.socket:
    at = urlsplit(str(server.client.base_url))
    return socket.create_connection((at.hostname or "", at.port or 0), timeout=WAIT)


def head(server: Served, path: bytes) -> bytes:
    return HEAD % (path, urlsplit(str(server.client.base_url)).netloc.encode())


def require_closed(connection: socket.socket, drip: bytes = b"") -> bytes:
    """What came before the other side closed the connection, whatever was sent meanwhile."""
    connection.settimeout(0.2)
    end, said = time.monotonic() + WAIT, b""
    while time.monotonic() < end:
        try:
            if drip:
                connection.send(drip)
            if not (more := connection.recv(65536)):
                return said
            said += more
        except TimeoutError:
            continue
        except OSError:
            return said
    raise AssertionError("the connection is still open")


def require_well(server: Served, times: int = 1) -> None:
    with httpx.Client(base_url=server.client.base_url, timeout=WAIT) as client:
        for _ in range(times):
            assert client.get("/v1/health").json() == {"status": "ok"}


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_who_sends_no_head_or_one_byte_by_byte_is_not_waited_for(strict: Served, drip: bytes) -> None:
    with connected(strict) as connection:
        connection.send(head(strict, b"health") + b"X-Long: ")
        assert require_closed(connection, drip) == b""


def test_who_drips_after_an_answer_is_not_waited_for(strict: Served) -> None:
    with connected(strict) as connection:
        connection.send(head(strict, b"health") + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        require_closed(connection, b"x")


def test_a_refused_body_is_not_listened_to_for_long(strict: Served) -> None:
    with connected(strict) as connection:
        asked = head(strict, b"tables/desk").replace(b"GET", b"PUT") + b"Content-Length: 9999999\r\n\r\n"
        connection.send(asked)
        assert require_closed(connection, b"x").startswith(b"HTTP/1.1 401 ")


def test_a_body_that_falls_silent_is_given_up(strict: Served) -> None:
    with connected(strict) as connection:
        more = b"Authorization: Bearer %s\r\nContent-Type: text/csv\r\nContent-Length: 9999999\r\n\r\nabc"
        asked = head(strict, b"tables/desk").replace(b"GET", b"PUT") + more % SECRET.encode()
        connection.send(asked)
        assert require_closed(connection).startswith(b"HTTP/1.1 408 ")


def test_who_takes_no_answer_is_not_waited_for(strict: Served) -> None:
    with connected(strict) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(2.0)
        with suppress(OSError):
            connection.sendall((head(strict, b"health").replace(b"/v1/health", b"/openapi.json") + b"\r\n") * 20_000)
        hung_up = select.poll()
        hung_up.register(connection, 0)
        assert hung_up.poll(1000 * WAIT), "the connection is still open"


# -- number ------------------------------------------------------------------------------------------------------------


def test_strangers_take_each_others_room_and_nobody_elses(tmp_path: Path) -> None:
    server = served(tmp_path, connections=ROOM)
    try:
        with ExitStack() as stack:
            known = stack.enter_context(connected(server))
            require_listed(known, server)
            crowd = [stack.enter_context(connected(server)) for _ in range(3 * ROOM)]
            require_well(server)
            assert require_closed(crowd[0]) == b""
            require_listed(known, server)
    finally:
        server.end(signal.SIGKILL)


def require_listed(connection: socket.socket, server: Served) -> None:
    connection.send(head(server, b"tables") + b"Authorization: Bearer %s\r\n\r\n" % SECRET.encode())
    said = b""
    while not said.endswith(b'{"tables":[]}'):
        more = connection.recv(65536)
        assert more, "the connection is closed"
        said += more


def test_where_files_run_out_health_is_told_and_the_log_stays_short(tmp_path: Path) -> None:
    server = served(tmp_path, files=80)
    try:
        with ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(connected(server))
            require_well(server, times=3)
            time.sleep(2.0)  # in which a loop that cannot accept would say so again and again
            require_well(server)
    finally:
        server.end(signal.SIGKILL)
    assert len(server.log.read_text().splitlines()) < 300


def test_where_other_things_take_the_files_connections_are_shed_and_the_log_stays_short(tmp_path: Path) -> None:
    # As above, but with more connections allowed than there are files: accepting one fails, over and over.
    server = served(tmp_path, files=200, spare=60)
    try:
        with ExitStack() as stack:
            for _ in range(150):
                stack.enter_context(connected(server))
            require_well(server, times=3)
            time.sleep(2.0)
    finally:
        server.end(signal.SIGKILL)
    log = server.log.read_text()
    assert log.count("out of system resource") == 1
    assert len(log.splitlines()) < 300


def test_noise_fills_no_log(strict: Served) -> None:
    for _ in range(50):
        with connected(strict) as connection:
            connection.send(b"\x16\x03\x01 what is this\r\n\r\n")
            assert require_closed(connection).startswith(b"HTTP/1.1 400 ")
    assert strict.log.read_text().count("Invalid HTTP request") == 1


def test_a_message_is_passed_on_seldom_and_others_are_too() -> None:
    seldom = Seldom()

    def passed(text: str) -> bool:
        return bool(seldom.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), None)))

    assert [passed("no file\nsocket 1"), passed("no file\nsocket 2"), passed("another")] == [True, False, True]


def test_half_of_all_files_are_left_for_everything_else() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        room = Connections(Limits(connections=10**9)).most
        assert room <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        assert Connections(Limits(connections=20)).most == 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
