"""OpenVINO, imported so that it sends nothing.

`import openvino` reports the import to an analytics server and leaves an identifier in the user's home folder. It
does so through the package `openvino_telemetry`, and works without it by a stub of its own. So that package is made
unavailable while OpenVINO is being imported: nothing is sent, nothing is written, and no setting of the user changes.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

_TELEMETRY = "openvino_telemetry"
_lock = threading.Lock()


def openvino() -> Any:
    """The module `openvino`, with telemetry off."""
    return _quietly("openvino")


def openvino_genai() -> Any:
    """The module `openvino_genai` (GGUF reader and tokenizers), with telemetry off."""
    return _quietly("openvino_genai")


def _quietly(name: str) -> ModuleType:
    from importlib import import_module

    with _lock:
        absent = object()
        before: Any = sys.modules.get(_TELEMETRY, absent)
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # the import system's own sign for 'not there'
        try:
            import_module("openvino")
            return import_module(name)
        finally:
            if before is absent:
                del sys.modules[_TELEMETRY]
            else:
                sys.modules[_TELEMETRY] = before
