"""With the models cached, nothing but this machine is spoken to: not by us, and not by a library's telemetry."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from guarded_process import outcome
from selpe.errors import ModelNotFoundError
from selpe.models.store.store import ModelStore

# In a network namespace of its own a process has no way out, and the kernel counts what native code tried as well.
_OWN_NAMESPACE = ("unshare", "--map-root-user", "--net")
_LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anyone:
    fcntl.ioctl(anyone, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
"""
_COUNTED = """
with open("/proc/self/net/snmp") as counters:
    names, values = (line.split() for line in list(counters)[:2])
attempts.append(int(values[names.index("OutNoRoutes")]))
"""

_EVERYTHING = """
import importlib, pkgutil
import selpe
for module in pkgutil.walk_packages(selpe.__path__, "selpe."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if missing.name != "mbi":  # of the extra [marginals], which has an environment of its own
                raise
"""

_GENERATE = """
from selpe.models.base import Request
from selpe.models.open import open_model
model = open_model("smollm2", parallel=2, threads=1, memory=64 << 20)
schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["age"], "additionalProperties": False}
answers = list(model.generate([Request(prompt="The capital of France is", max_tokens=4, temperature=0.0),
                               Request(prompt="A child: ", json_schema=schema, max_tokens=20)]))
assert all(answer.finish in ("stop", "length") for answer in answers), answers
model.close()
"""

_ENCODE = """
from selpe.models.open import open_encoder
rows = open_encoder("minilm").encode(["a dog", "a cat"])
assert rows.shape == (2, 384), rows.shape
"""


def routes_missed(program: str, home: Path) -> int:
    """How often a program, native code included, tried to send something to another machine."""
    if shutil.which(_OWN_NAMESPACE[0]) is None:
        pytest.skip("this platform has no network namespaces")
    if subprocess.run([*_OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    found = outcome(_LOOPBACK_UP + program + _COUNTED, home, *_OWN_NAMESPACE)["attempts"]
    return int(found[-1])


def cached(*names: str) -> None:
    try:
        for name in names:
            ModelStore().ensure(name)
    except ModelNotFoundError as problem:
        pytest.skip(f"the weights are not to be had here: {problem.message}")


def test_the_guard_notices_an_attempt(tmp_path: Path) -> None:
    program = "\nimport httpx\ntry: httpx.get('http://example.invalid/')\nexcept httpx.HTTPError: pass\n"
    assert outcome(program, tmp_path)["attempts"] == ["socket.getaddrinfo example.invalid"]


def test_the_kernel_notices_an_attempt_of_native_code(tmp_path: Path) -> None:
    """Through libc, past the audit hook: socket(AF_INET, SOCK_STREAM) and connect to 192.0.2.1:80."""
    program = """
import ctypes, struct
libc = ctypes.CDLL(None)
libc.connect(libc.socket(2, 1, 0), struct.pack("=H", 2) + struct.pack(">H", 80) + bytes([192, 0, 2, 1]) + bytes(8), 16)
"""
    assert routes_missed(program, tmp_path) == 1


def test_importing_every_module_speaks_to_no_one(tmp_path: Path) -> None:
    found = outcome(_EVERYTHING, tmp_path)
    assert found["attempts"] == []
    assert not found["telemetry"]


@pytest.mark.real_model
def test_generating_with_a_cached_model_speaks_to_no_one(tmp_path: Path) -> None:
    cached("smollm2")
    found = outcome(_GENERATE, tmp_path)
    assert found["attempts"] == []
    assert not found["telemetry"]
    assert list(tmp_path.rglob("*")) == []  # no identifier left in the user's folders


@pytest.mark.real_model
def test_encoding_with_a_cached_model_speaks_to_no_one(tmp_path: Path) -> None:
    cached("minilm")
    found = outcome(_ENCODE, tmp_path)
    assert found["attempts"] == []
    assert not found["telemetry"]


@pytest.mark.real_model
def test_native_code_of_the_embedded_engine_speaks_to_no_one(tmp_path: Path) -> None:
    cached("smollm2")
    assert routes_missed(_GENERATE, tmp_path) == 0


@pytest.mark.real_model
def test_llama_cpp_speaks_to_this_machine_alone(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the llama.cpp engine is not installed")
    cached("smollm2")
    program = _GENERATE.replace('"smollm2", parallel=2, threads=1, memory=64 << 20', '"llamacpp:smollm2", threads=1')
    assert outcome(program, tmp_path)["attempts"] == []
    assert routes_missed(program, tmp_path) == 0
