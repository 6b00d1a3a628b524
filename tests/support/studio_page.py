"""The studio's page as a person uses it: controls are found by the names that a screen reader would say."""

from __future__ import annotations

import json
from typing import Any

from headless_browser import Browser

# The visible control of a name: by its label, or by what it says of itself.
_FIND = """
((name) => [...document.querySelectorAll('main input, main select, main textarea, main button, main a')]
  .filter((one) => one.offsetParent !== null)
  .find((one) => (one.getAttribute('aria-label') || (one.labels?.[0] || one).textContent).trim() === name))
"""
_FILL = """
((one, value) => {
  if (!one) throw new Error('there is no such control');
  one.value = value;
  one.dispatchEvent(new Event('input', { bubbles: true }));
  one.dispatchEvent(new Event('change', { bubbles: true }));
})
"""
_NAMELESS = """
[...document.querySelectorAll('main input, main select, main textarea, main button, main iframe')]
  .filter((one) => one.offsetParent !== null)
  .filter((one) => !(one.getAttribute('aria-label') || one.title || one.labels?.[0]?.textContent.trim()))
  .filter((one) => one.tagName !== 'BUTTON' || !one.textContent.trim())
  .map((one) => one.outerHTML)
"""


class StudioPage:
    """One studio in a browser."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def wait(self, expression: str, *, seconds: float = 180.0) -> Any:
        """The value of an expression as soon as it is true."""
        return self.browser.wait_for(expression, seconds=seconds)

    def go(self, step: str) -> None:
        """Goes to a step."""
        self.browser.ask(f"location.hash = '#{step}'")
        self.wait(f"document.querySelector('nav [aria-current]')?.hash === '#{step}'")

    def press(self, name: str) -> None:
        """Presses the button of a name."""
        found = f"{_FIND}({json.dumps(name)})"
        self.wait(f"{found} !== undefined")
        self.browser.ask(f"{found}.click()")

    def fill(self, name: str, value: str) -> None:
        """Types into, or chooses in, the control of a name."""
        found = f"{_FIND}({json.dumps(name)})"
        self.wait(f"{found} !== undefined")
        self.browser.ask(f"{_FILL}({found}, {json.dumps(value)})")

    def key(self, name: str, code: int) -> None:
        """Presses a key."""
        more = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.browser.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    def text(self, element: str) -> str:
        """What stands in an element."""
        return str(self.browser.ask(f"document.querySelector({json.dumps(element)}).innerText"))

    def nameless(self) -> list[str]:
        """Visible controls that a screen reader could not name."""
        found: list[str] = self.browser.ask(_NAMELESS)
        return found
