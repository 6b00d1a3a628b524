"""Listening: on this machine alone unless the operator insists, until a signal asks for a clean end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import uvicorn

from selpe.errors import ConfigError
from selpe.serve import reading, supervisor
from selpe.serve.app import build_app
from selpe.serve.clients import Door
from selpe.serve.connections import SELDOM, Connections, told_of_trouble
from selpe.serve.limits import Operator
from selpe.serve.reading import Reader
from selpe.serve.service import Desk
from selpe.serve.store import Store
from selpe.serve.supervisor import Supervisor
from selpe.serve.trail import Trail

_HEADER_BYTES = 32 * 1024
_BACKLOG = 512  # who comes before the server has its turn waits, and is not turned away
_AT_ONCE = 16  # connections taken in at once: there are no files for all who wait, and others have a turn between
_THREADS = 32  # most of them wait for the disk, so that on few cores too one client's uploads do not take all


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. `names` are further names by which the server may be asked, as behind a proxy."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    open_to_network: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a certificate and its key go together", where="--tls-cert, --tls-key")
        if not is_loopback(self.host) and not self.open_to_network:
            raise ConfigError(
                "this would let other machines reach the private tables; it is refused",
                where=f"--host {self.host}",
                hint="leave --host out and put a proxy with TLS in front, or say --open-to-network if you mean it",
            )


@dataclass(frozen=True, slots=True)
class Commands:
    """The child processes: what reads uploads, and what does a run."""

    reader: Sequence[str] = field(default=reading.COMMAND)
    worker: Sequence[str] = field(default=supervisor.COMMAND)


class SelPEServer(uvicorn.Server):
    """A server that ends its streams as soon as it is asked to stop, so that stopping does not wait for them."""

    def __init__(self, config: uvicorn.Config, desk: Desk, connections: Connections) -> None:
        super().__init__(config)
        self._desk, self._connections = desk, connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(told_of_trouble(self._connections))
        loop.set_default_executor(ThreadPoolExecutor(_THREADS))
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # asyncio has set it to as many as are taken in at once

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Takes note of a signal."""
        self._desk.closing = True
        # Not the parent's way, which raises the signal again at the end: a clean end is a success.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    root: Path, operator: Operator, door: Door, address: ListenAddress, *, ready: Callable[[str], None],
    commands: Commands | None = None, trail: Trail | None = None,
) -> None:  # fmt: skip
    """Serves a folder until SIGINT or SIGTERM; `ready` is told the address once it is listened on."""
    server, listener = build_server(root, operator, door, address, commands=commands, trail=trail)
    with listener:
        ready(url_of(address, listener))
        server.run(sockets=[listener])


def build_server(
    root: Path, operator: Operator, door: Door, address: ListenAddress, *, commands: Commands | None = None,
    trail: Trail | None = None,
) -> tuple[SelPEServer, socket.socket]:  # fmt: skip
    """A server that has everything but its turn to run, and the socket that it will listen on."""
    commands, limits = commands or Commands(), operator.limits
    store = Store(root)
    listener = _listen(address)
    reader = Reader(limits, root=str(store.root), command=commands.reader)
    # What a page shows takes no long: a second kind of reader, so that it does not wait for uploads.
    briefly = replace(limits, readers=2, reading_seconds=limits.view_seconds)
    viewer = Reader(briefly, root=str(store.root), command=commands.reader)
    desk = Desk(store, operator, reader, Supervisor(limits, command=commands.worker), trail, viewer=viewer)
    app, connections = build_app(desk, door, hosts=_hosts(address, listener.getsockname()[1])), Connections(limits)
    for name in ("asyncio", "uvicorn.error"):  # what they say is not for every time that somebody causes it
        logging.getLogger(name).addFilter(SELDOM)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, ws="none",
        http=connections.protocol(), lifespan="on", timeout_keep_alive=math.ceil(limits.idle_seconds), backlog=_AT_ONCE,
        timeout_graceful_shutdown=int(limits.stop_seconds),
        h11_max_incomplete_event_size=_HEADER_BYTES,
        ssl_certfile=address.certificate, ssl_keyfile=address.key,
    )  # fmt: skip
    return SelPEServer(config, desk, connections), listener


def url_of(address: ListenAddress, listener: socket.socket) -> str:
    """The address to ask at."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'https' if address.certificate else 'http'}://{host}:{listener.getsockname()[1]}"


def _listen(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {address.host}, port {address.port} ({error.strerror})", hint="try --port 0"
        ) from None
    return listener


def _hosts(address: ListenAddress, port: int) -> set[str]:
    """The names by which the server may be asked: its own with the port, and those that the operator added."""
    own = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(address.host) else set()
    own |= {f"[{address.host}]" if ":" in address.host else address.host} - {"0.0.0.0", "[::]"}
    return {f"{name}:{port}" for name in own} | set(address.names)
