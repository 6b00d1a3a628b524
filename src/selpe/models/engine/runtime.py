"""OpenVINO, imported so that it sends nothing, and how it is to compute.

`import openvino` reports the import to an analytics server and leaves an identifier in the user's home folder. It
does so through the package `openvino_telemetry`, and works without it by a stub of its own. So that package is made
unavailable while OpenVINO is being imported: nothing is sent, nothing is written, and no setting of the user changes.
"""

from __future__ import annotations

import os
import sys
import threading
from types import ModuleType
from typing import Any, Literal

from selpe.errors import ModelError

Precision = Literal["fast", "exact"]

_TELEMETRY = "openvino_telemetry"
_INSTEAD = (
    'Without it, llm takes llamacpp:… (pip install "selpe[llamacpp]") or the address of a server, and encoder takes '
    "st:… (pip install sentence-transformers) or the address of a server."
)
_lock = threading.Lock()


def openvino() -> Any:
    """The module `openvino`, with telemetry off."""
    return _quietly("openvino")


def openvino_genai() -> Any:
    """The module `openvino_genai` (GGUF reader and tokenizers), with telemetry off."""
    return _quietly("openvino_genai")


def settings(threads: int | None, precision: Precision) -> dict[str, Any]:
    """How OpenVINO is to compute.

    'fast' multiplies in 8 bits, rounding activations in groups of 32, and keeps an f16 cache, which is both faster
    to read and nearer to the exact result than OpenVINO's 8-bit default. 'exact' rounds nothing but the weights.
    """
    chosen: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        # Threads bound to a core that another program uses would keep all others waiting at every barrier.
        "ENABLE_CPU_PINNING": "NO",
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f16" if precision == "fast" else "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32" if precision == "fast" else "0",
    }
    return chosen if threads is None else {**chosen, "INFERENCE_NUM_THREADS": threads}


def _quietly(name: str) -> ModuleType:
    from importlib import import_module

    with _lock:
        absent = object()
        before: Any = sys.modules.get(_TELEMETRY, absent)
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # the import system's own sign for 'not there'
        try:
            import_module("openvino")
            return import_module(name)
        except ModuleNotFoundError as problem:
            raise ModelError("OpenVINO is not installed; some machines have no build of it", hint=_INSTEAD) from problem
        except (ImportError, OSError) as problem:
            needs = "On Windows it needs the Microsoft Visual C++ runtime. " if os.name == "nt" else ""
            raise ModelError("OpenVINO is installed but cannot be loaded", hint=needs + _INSTEAD) from problem
        finally:
            if before is absent:
                del sys.modules[_TELEMETRY]
            else:
                sys.modules[_TELEMETRY] = before
