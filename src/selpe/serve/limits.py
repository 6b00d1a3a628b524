"""What the server's operator allows: sizes, times, numbers, and the models that a client may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from selpe.errors import ConfigError
from selpe.models.store.registry import REGISTRY

MB = 2**20
IN_PROCESS_ENCODERS = MappingProxyType({"minilm": "minilm", "hash": "hash"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what clients can ask for. Whatever goes beyond one is refused, and the answer says which."""

    table_bytes: int = 100 * MB
    schema_bytes: int = 1 * MB
    body_bytes: int = 256 * 1024
    header_seconds: float = 10.0  # for the head of a first request to arrive
    idle_seconds: float = 30.0  # for the head of the next one
    body_seconds: float = 300.0  # for a whole body to arrive
    silent_seconds: float = 30.0  # without a byte of a body that is awaited, or while nothing of an answer is taken
    connections: int = 2048  # open at once, and at most half as many as the system allows files
    tables: int = 100
    records: int = 100_000  # that one run may write
    epsilon: float = 100.0  # of one run, and of a budget that a first run sets
    queue: int = 20  # accepted runs that wait for a worker
    workers: int = 1
    run_seconds: float = 7 * 24 * 3600.0  # that a run may take at once; it can be resumed
    stop_seconds: float = 30.0  # that a worker has to stop before it is killed
    readers: int = 3  # processes that read uploads
    readings: int = 32  # checks, plans and packings of one client that are read or wait for a reader
    quick_seconds: float = 10.0  # after which a reading is a slow one
    reading_seconds: float = 120.0
    reading_bytes: int = 4096 * MB  # of memory, for each reader
    view_seconds: float = 60.0  # for what the page of a run shows, the start of its reader included
    requests: int = 512  # under way at once, at most half of them of one client
    streams: int = 128  # of events, open at once, at most half of them of one client
    stream_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Operator:
    """Everything that only the operator decides. Models and encoders are known to clients by names alone."""

    models: Mapping[str, str] = field(default_factory=lambda: dict(known_models()))
    encoders: Mapping[str, str] = field(default_factory=lambda: dict(IN_PROCESS_ENCODERS))
    limits: Limits = Limits()
    second_person: bool = False  # whether a run that spends waits until somebody else has approved it

    def __post_init__(self) -> None:
        if not self.models or not self.encoders:
            raise ConfigError("a server needs at least one model and one encoder")
        if remote := [name for name, spec in self.encoders.items() if "://" in spec]:
            raise ConfigError(
                "private text would be sent to an encoder behind a URL, which a server does not do",
                where=f"encoder {remote[0]}",
                hint="use an encoder that runs in the process, or `selpe run` with allow_private_text_to",
            )


def known_models() -> dict[str, str]:
    """The language models that have a name of their own, each under that name."""
    return {name: name for name, entry in REGISTRY.items() if entry.kind != "encoder"}
