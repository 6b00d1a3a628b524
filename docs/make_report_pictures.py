"""Makes docs/images/report-*.png from an evaluated run: `python docs/make_report_pictures.py runs/<name>`.

Evaluate the run first (`selpe evaluate runs/<name>`); its report must not show real records.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from headless_browser import Browser  # noqa: E402

# name: page, width, height, dark, the element to begin at, scale
PICTURES = {
    "light": ("internal/report.html", 1080, 1180, False, "body", 1.0),
    "fidelity": ("internal/report.html", 1080, 1240, False, "#fidelity", 1.0),
    "dark": ("internal/report.html", 1080, 1180, True, "body", 1.0),
    "privacy": ("internal/report.html", 1080, 1100, True, "#privacy", 1.0),
    "phone": ("internal/report.html", 390, 844, False, "body", 1.5),
    "summary": ("release/summary.html", 1080, 1000, False, "body", 1.0),
}
MOST_BYTES = 300_000


def main(folder: Path) -> None:
    """Writes the pictures, and refuses where one is too large to be kept in a repository."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile, Browser(Path(profile)) as browser:
        for name, (page, width, height, dark, begin, scale) in PICTURES.items():
            path = (folder / page).resolve()
            if not path.is_file():
                sys.exit(f"{path} is not there; run `selpe evaluate {folder}` first")
            browser.look(width=width, height=height, dark=dark, scale=scale)
            browser.visit(path.as_uri())
            browser.wait_for("document.readyState === 'complete'")
            top = browser.ask(f"Math.max(0, document.querySelector('{begin}').getBoundingClientRect().top - 14)")
            clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
            shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
            picture = base64.b64decode(shot["data"])
            if len(picture) > MOST_BYTES:
                sys.exit(f"report-{name}.png would have {len(picture):,} bytes")
            (HERE / "images" / f"report-{name}.png").write_bytes(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
