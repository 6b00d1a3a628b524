"""A real Chromium without a window, driven by its DevTools protocol over two pipes: no extra packages, no open port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-dev-shm-usage
--disable-component-update --disable-sync --disable-quic --disable-extensions --disable-default-apps --hide-scrollbars
--remote-debugging-pipe --mute-audio""".split()

# Chromium wants its pipes as descriptors 3 and 4; a small process of its own puts them there and becomes Chromium.
_PLACE = """
import fcntl, os, sys
high = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in zip((3, 4), high):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page. `requests` are the addresses it asked for, `complaints` what it put on the console."""

    def __init__(self, profile: Path) -> None:
        to_read, self._to_browser = os.pipe()
        self._from_browser, to_write = os.pipe()
        self._process = _launch(profile, to_read, to_write)
        os.close(to_read)
        os.close(to_write)
        self._answers: Queue[dict[str, Any]] = Queue()
        self._number = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its helpers too; it leads a group of its own
        self._process.wait()
        self._reader.join(timeout=5)
        for end in (self._to_browser, self._from_browser):
            with suppress(OSError):
                os.close(end)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._answers.get(timeout=300)
            if answer["id"] == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def visit(self, url: str) -> None:
        """Goes to an address."""
        self.call("Page.navigate", url=url)

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")

    def wait_for(self, expression: str, *, seconds: float = 30.0) -> Any:
        """The value of an expression as soon as it is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(RuntimeError):  # the page may be between two documents
                if found := self.ask(expression):
                    return found
            time.sleep(0.1)
        raise TimeoutError(expression)

    def look(self, *, width: int, height: int, dark: bool = False, scale: float = 1.0) -> None:
        """Sets size and colour scheme of the page."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """The visible page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                more = os.read(self._from_browser, 1 << 16)
            except OSError:
                return
            if not more:
                return
            *whole, rest = (rest + more).split(b"\0")
            for raw in whole:
                self._take(json.loads(raw))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.put(message)
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(message["params"]["exceptionDetails"]["text"])
        elif message["method"] == "Runtime.consoleAPICalled":
            self.complaints.append(str(message["params"]["args"]))
        elif message["method"] == "Log.entryAdded":
            self.complaints.append(message["params"]["entry"]["text"])


def _launch(profile: Path, to_read: int, to_write: int) -> subprocess.Popen[bytes]:
    """Chromium reads commands from descriptor 3 and writes to 4."""
    if CHROMIUM is None:
        raise RuntimeError("there is no Chromium on this machine")
    return subprocess.Popen(
        [sys.executable, "-c", _PLACE, str(to_read), str(to_write), CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
