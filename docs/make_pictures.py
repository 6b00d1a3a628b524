"""Makes the pictures of docs/images from the event log of a real run: `python docs/make_pictures.py runs/<name>`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from headless_browser import Browser  # noqa: E402
from selpe.cli.display import Milestones, render  # noqa: E402
from selpe.events import Answered, Event, Started  # noqa: E402
from selpe.run.event_log import EventReader  # noqa: E402
from selpe.run.progress import Meter  # noqa: E402
from selpe.watch import WatchServer  # noqa: E402
from selpe.watch.view import live_view  # noqa: E402

SHARE = 0.7  # how much of the run the pictures have seen
COLUMNS = 96


def main(folder: Path) -> None:
    """Writes progress.svg, watch-light.png, watch-dark.png and watch-phone.png."""
    events = EventReader(folder / "work" / "events.jsonl").more()
    events = events[max(i for i, (_, event) in enumerate(events) if isinstance(event, Started)) :]  # after a resumption
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    moment, milestones = events[0][0], Milestones(console)
    meter = Meter(epsilon=2.0, clock=lambda: moment)
    for moment, event in events:
        meter.listen(event, moment)
        if not isinstance(event, Answered):
            milestones.event(event, meter.read(moment))
        if meter.read(moment).share >= SHARE and _writes(event):
            break
    console.print(render(meter.read(moment), COLUMNS))
    # Without the web font: a picture asks nobody for anything.
    plain = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    (HERE / "images" / "progress.svg").write_text(
        console.export_svg(title="selpe run", code_format=plain), encoding="utf-8"
    )
    view = live_view(folder, meter)

    def still_running() -> dict[str, object]:
        return view() | {"state": "running", "folder": f"runs/{folder.name}"}

    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        WatchServer(still_running) as server,
        Browser(Path(profile)) as browser,
    ):
        for name, width, height, dark in (
            ("light", 960, 820, False),
            ("dark", 960, 820, True),
            ("phone", 390, 780, False),
        ):
            browser.look(width=width, height=height, dark=dark)
            browser.visit(server.url)
            browser.wait_for("document.querySelectorAll('.sample').length > 0")
            browser.wait_for(
                "document.getAnimations().every((one) => one.playState !== 'running' || one.animationName)"
            )
            (HERE / "images" / f"watch-{name}.png").write_bytes(browser.picture())


def _writes(event: Event) -> bool:
    return isinstance(event, Answered)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
