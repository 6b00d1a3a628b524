"""A real llama.cpp server on 127.0.0.1, in a process of its own so that a test may also kill it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_PROGRAM = """
import json, sys
import xllamacpp
wanted = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = wanted["path"]
params.model_alias = {wanted["alias"]}
params.hostnames = ["127.0.0.1"]
params.n_parallel = wanted["parallel"]
params.n_ctx = wanted["context"] * wanted["parallel"]
params.kv_unified = False
params.cpuparams.n_threads = wanted["threads"]
params.cpuparams_batch.n_threads = wanted["threads"]
if wanted["embedding"]:
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
params.api_keys = [wanted["api_key"]] if wanted["api_key"] else []
params.warmup = params.ui = params.fit_params = False
params.offline = True
params.verbosity = -1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()  # until the test closes its end
"""


@dataclass(frozen=True)
class LlamaServer:
    """A running server: its address, the name it gives the model, and its process (`kill()` ends it rudely)."""

    base_url: str
    model: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def start(
    gguf: Path,
    *,
    parallel: int = 4,
    context: int = 1024,
    threads: int = 1,  # with more, spin barriers stall the server whenever other tests keep the cores busy
    api_key: str = "",
    embedding: bool = False,
) -> Iterator[LlamaServer]:
    """Starts a server, hands it over, and ends it."""
    pytest.importorskip("xllamacpp", reason="the llama.cpp engine is not installed")
    wanted = {
        "path": str(gguf),
        "alias": gguf.stem,
        "parallel": parallel,
        "context": context,
        "threads": threads,
        "api_key": api_key,
        "embedding": embedding,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(wanted)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address.startswith("http://127.0.0.1:"):
            raise RuntimeError(f"the llama.cpp server did not start: {address!r}")
        yield LlamaServer(address, gguf.stem, process)
    finally:
        process.stdin.close()
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def serve(gguf: Path, parallel: int = 4) -> Iterator[str]:
    """The base URL of a running server (add `/v1` for the OpenAI protocol)."""
    with start(gguf, parallel=parallel) as server:
        yield server.base_url
