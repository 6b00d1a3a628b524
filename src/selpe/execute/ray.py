"""Workers on a Ray cluster (extra `[ray]`): the only module that uses Ray.

What goes to a cluster goes through `RayHands.send` and the workers' order, and is public: prompts, synthetic texts,
names of models. Private rows and their encoding stay in this process. No code, folder or environment is shipped: the
nodes have SelPE installed. Ray's usage statistics are off.

A Ray that is started here listens on this machine's loopback alone, has no dashboard, keeps its sockets and logs in a
folder of the owner, and asks for a token that its owner alone can read. Left to itself, Ray listens on every network,
in folders that every user may write to: who reaches it runs code in the process that holds the private table.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from selpe.config.execution import RaySettings
from selpe.errors import ConfigError, ModelError
from selpe.execute.worker import Order, Worker
from selpe.execute.workers import Crew, WorkerLostError
from selpe.owner_only import make_folder, open_owned

_STORE_BYTES = 128 << 20  # requests and answers are small; Ray's default takes a third of the memory
_NO_ROOM = "see `ray status`: is there a node with room for a worker (`ray.cpus`, `ray.gpus`), and SelPE on it?"
_HINTS = {
    "local": "try again when the machine is less busy, or see the logs in {folder}",
    "auto": "start one with `ray start --head`, or use --address local",
}
_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_INSTALL = "pip install 'selpe[ray]', on this machine and on all nodes"


class RayHands:
    """Calls to Ray actors, one for each worker. Ray begins a lost one again, on another node where it must."""

    def __init__(self, ray: Any, order: Order, settings: RaySettings) -> None:
        self._ray = ray
        # Ray must not repeat by itself what a lost worker had begun: the crew sends it again.
        actor = ray.remote(Worker).options(
            num_cpus=settings.cpus,
            num_gpus=settings.gpus,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=100_000,  # the crew bounds what is in flight
            scheduling_strategy="SPREAD",
        )
        self._actors = [actor.remote(order) for _ in range(settings.workers)]

    def send(self, worker: int, method: str, *arguments: object) -> Future[Any]:
        """The outcome to come of a call. Everything that goes to a node goes through here."""
        ended: Future[Any] = Future()
        try:
            under_way = getattr(self._actors[worker], method).remote(*arguments).future()
        except self._ray.exceptions.RayError as problem:
            ended.set_exception(_lost(problem))
            return ended
        under_way.add_done_callback(lambda done: self._passed_on(done, ended))
        return ended

    def restart(self, worker: int) -> None:
        """Ends a worker; Ray begins it again."""
        self._ray.kill(self._actors[worker], no_restart=False)

    def dismiss(self, worker: int) -> None:
        """Ends a worker permanently."""
        self._ray.kill(self._actors[worker], no_restart=True)

    def _passed_on(self, done: Future[Any], ended: Future[Any]) -> None:
        problem = done.exception()
        if problem is None:
            ended.set_result(done.result())
        else:
            ended.set_exception(_lost(problem))


@contextmanager
def connected(settings: RaySettings, *, crews: int = 1) -> Iterator[Any]:
    """Ray itself, connected as the settings say; one that was connected before is used and left as it is.

    A Ray that is started here has room for so many crews.
    """
    ray = _imported(settings.address)
    if ray.is_initialized():
        yield ray
        return
    with ExitStack() as stack:
        folder = stack.enter_context(_kept_in(ray)) if settings.address == "local" else None
        with _unnamed(ray):
            _connect(ray, settings, crews, folder)
        if folder is not None:  # of one that did not start it stays: its logs tell why
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(ray.shutdown)
        if folder is not None:
            _require_loopback(ray)
        yield ray


def crew_of(ray: Any, order: Order, settings: RaySettings) -> Crew:
    """A crew of Ray workers for this order."""
    return Crew(
        RayHands(ray, order, settings),
        settings.workers,
        in_flight=settings.in_flight,
        restarts=settings.restarts,
        patience=settings.patience,
        hint=_NO_ROOM,
    )


def order_of(llm: str, encoder: str, settings: RaySettings) -> Order:
    """What a worker of these settings is to be."""
    return Order(llm, encoder, threads=max(1, int(settings.cpus)))


def _imported(address: str) -> Any:
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed", hint=_INSTALL, where="execute: ray")
    # Read when Ray is imported and by the processes that it starts.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # On a busy machine a cluster's first answers take longer than Ray waits by default.
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", "300")
    # Ray shows its token to a cluster by itself, but not through a client server.
    if address.startswith("ray://") and _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    return ray


def _has_token() -> bool:
    named = any(os.environ.get(name) for name in _TOKENS)
    return named or (Path.home() / ".ray" / "auth_token").is_file()


@contextmanager
def _kept_in(ray: Any) -> Iterator[Path]:
    """Keeps a Ray that is started in the block to this machine and this user; the folder of its sockets and logs."""
    _require_token()
    constants = ray._private.ray_constants
    switch, told = constants.ENABLE_RAY_CLUSTERS_ENV_VAR, constants.ENABLE_RAY_CLUSTER
    before = os.environ.get(switch)
    # Paths of sockets must be short, which those of a user's own temporary folder are not on every system.
    folder = Path(tempfile.mkdtemp(prefix="selpe-ray-", dir="/tmp" if os.name == "posix" else None))
    try:
        # Without clusters Ray takes the loopback for this node's address; told that address itself, it takes another.
        constants.ENABLE_RAY_CLUSTER, os.environ[switch] = False, "0"
        yield folder
    finally:
        constants.ENABLE_RAY_CLUSTER = told
        os.environ.pop(switch, None)
        if before is not None:
            os.environ[switch] = before


def _require_token() -> None:
    """Makes sure that only who has a token of this user is served, and that nobody else can read it."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        raise ConfigError(
            "without a token, every user of this machine could run code in this process",
            where="RAY_AUTH_MODE",
            hint="unset it; Ray makes a token by itself",
        )
    token = Path.home() / ".ray" / "auth_token"
    if any(os.environ.get(name) for name in _TOKENS):
        return
    try:
        make_folder(token.parent)
        os.close(open_owned(token, os.O_RDWR | os.O_CREAT))  # takes the rights of others from one that is there
        if not token.read_text(encoding="ascii").strip():
            token.write_text(secrets.token_hex(32), encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "Ray's token cannot be kept there", where=str(token), hint="name a file for it in RAY_AUTH_TOKEN_PATH"
        ) from None


def _require_loopback(ray: Any) -> None:
    address = ray._private.worker._global_node.node_ip_address
    if not ipaddress.ip_address(address).is_loopback:
        raise ConfigError(
            f"this version of Ray ({ray.__version__}) listens on {address} and not on this machine alone",
            where="ray.address: local",
            hint="install a version that pip install 'selpe[ray]' takes",
        )


def _connect(ray: Any, settings: RaySettings, crews: int, folder: Path | None) -> None:
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if folder is not None:
        common |= {
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
            "num_cpus": max(1, math.ceil(crews * settings.workers * settings.cpus)),
            "_temp_dir": str(folder / "r"),  # Ray opens this one to all users, so it lies in one that is closed
        }
    try:
        ray.init(address=settings.address, **common)
    except Exception as problem:  # Ray raises bare ones too
        raise ModelError(
            f"{'Ray did not start' if folder is not None else 'no Ray cluster can be reached'} "
            f"({type(problem).__name__})",
            where=f"ray.address: {settings.address}",
            hint=_HINTS.get(
                settings.address, "check the address, and that Ray and Python are of the same versions there"
            ).format(folder=folder),
            retryable=True,
        ) from problem


@contextmanager
def _unnamed(ray: Any) -> Iterator[None]:
    """Keeps this process's command line, which may name files and databases, out of the cluster's list of jobs."""
    place = ray._private.utils
    told: Callable[[], str] | None = getattr(place, "get_entrypoint_name", None)
    if told is None:
        yield
        return
    place.get_entrypoint_name = lambda: "selpe"
    try:
        yield
    finally:
        place.get_entrypoint_name = told


def _lost(problem: BaseException) -> WorkerLostError:
    """A loss told by the kind of Ray's error alone: its message has stacks and paths of the nodes."""
    kinds = {
        "ActorDiedError": "its process or its node died",
        "ActorUnavailableError": "it cannot be reached",
        "NodeDiedError": "its node died",
        "OutOfMemoryError": "its node ran out of memory",
    }
    kind = type(problem).__name__
    return WorkerLostError(kinds.get(kind, f"it failed with {kind}"), away=kind == "ActorUnavailableError")
