"""Makes docs/images/studio-*.png: a stranger's hour on the triage example, in a real browser.

`python docs/make_studio_pictures.py [model]` copies the example's private table alone, as a stranger would have it,
drafts a schema from it, and goes through the studio's page to the report. The answers are those of its own schema.
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "triage"
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from headless_browser import Browser  # noqa: E402
from selpe.cli.init import draft_files  # noqa: E402
from selpe.schema import Schema  # noqa: E402
from selpe.studio.forms import FieldForm, form_of, text_of  # noqa: E402
from selpe.studio.project import Project  # noqa: E402
from selpe.studio.server import StudioServer  # noqa: E402
from selpe.studio.studio import Studio  # noqa: E402
from studio_page import StudioPage  # noqa: E402

MOST_BYTES = 250_000
WIDTH, HEIGHT = 1080, 860
LONG = 1800.0  # seconds to wait for a run or its evaluation


class Camera:
    """Takes pictures of the page, and refuses those that are too large to be kept in a repository."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def look(self, *, width: int = WIDTH, height: int = HEIGHT, dark: bool = False) -> None:
        """Sets size and theme."""
        self._browser.look(width=width, height=height, dark=dark)

    def shoot(self, name: str, *, begin: str = "body", width: int = WIDTH, height: int = HEIGHT) -> None:
        """Writes one picture, from the top of an element on."""
        top = self._browser.ask(
            f"Math.max(0, document.querySelector({begin!r}).getBoundingClientRect().top + scrollY - 14)"
        )
        clip = {"x": 0, "y": top if begin != "body" else 0, "width": width, "height": height, "scale": 1}
        shot = self._browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        picture = base64.b64decode(shot["data"])
        if len(picture) > MOST_BYTES:
            sys.exit(f"studio-{name}.png would have {len(picture):,} bytes")
        (HERE / "images" / f"studio-{name}.png").write_bytes(picture)


def main(model: str) -> None:
    """Goes through the hour."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place) / "clinic"
        folder.mkdir()
        os.environ |= {"SELPE_LEDGER": f"{place}/ledgers", "SELPE_KEY": f"{place}/ledger.key"}
        for name, source in (("visits.csv", "private.csv"), ("held-out.csv", "test.csv")):
            shutil.copy(EXAMPLE / source, folder / name)
        draft_files(str(folder / "visits.csv"), folder)
        studio = Studio(Project(folder / "selpe.yaml"))
        with StudioServer(studio) as server, Browser(Path(place) / "profile") as browser:
            page, camera = StudioPage(browser), Camera(browser)
            camera.look()
            browser.visit(server.url)
            page.wait("document.querySelectorAll('.head').length > 10")
            draft(page, camera, studio)
            table_and_examples(page, camera, studio)
            plan_and_run(page, camera, model)
            if browser.complaints:
                sys.exit(f"the page complained: {browser.complaints}")
        studio.desk.close()


def draft(page: StudioPage, camera: Camera, studio: Studio) -> None:
    """Fields: the first as drafted, one with its proposal, the rest answered."""
    known = Schema.load(EXAMPLE / "schema.yaml")
    page.wait("document.querySelector('.body [role=status]').textContent !== ''")
    camera.shoot("draft")
    page.browser.ask("document.querySelectorAll('.head')[1].click()")
    page.press("Show the proposal")
    page.wait("document.querySelectorAll('.values li').length > 1")
    page.fill("Description", known.field("arrival_mode").description)
    page.wait("document.querySelector('.body [role=status]').textContent.startsWith('✓')")
    camera.shoot("field", begin="#main li:nth-child(2)")
    camera.look(width=390, height=844)
    camera.shoot("phone", begin="#main li:nth-child(2)", width=390, height=844)
    camera.look()
    for field in known.fields:
        form = FieldForm.model_validate({**form_of(field), "confirmed": True})
        studio.set_field(field.name, form, studio.project.revision())
    for rule in known.rules[1:]:
        studio.add_rule(rule.text, studio.project.revision())
    for record in known.examples:
        texts = {field.name: text_of(field, record.get(field.name)) for field in known.fields}
        studio.add_example(texts, studio.project.revision())
    page.browser.ask("location.reload()")
    page.wait("document.querySelector('main')?.innerText.includes('Every field is confirmed')")


def table_and_examples(page: StudioPage, camera: Camera, studio: Studio) -> None:
    """The table as a whole, an example while it is typed, and a rule by choosing."""
    known = Schema.load(EXAMPLE / "schema.yaml")
    page.go("table")
    page.fill("In one sentence: what is one record, and where does it arise?", known.description)
    page.fill("The class", "acuity")
    camera.shoot("table")
    page.press("These are right: save")
    page.wait("location.hash === '#examples'")
    typed = {"arrived": "2025-04-02", "arrival mode": "walk-in", "age": "340", "sex": "female", "heart rate": "88",
             "complaint": "burnt my hand on the kettle", "injury": "yes", "acuity": "4", "resp rate": "16", "pain": "5",
             "nurse note": "Blister on the back of the left hand, cooled at home. Moves all fingers."}  # fmt: skip
    for name, value in typed.items():
        page.fill(name, value)
    page.wait("document.querySelector('[aria-invalid=true]') !== null")
    camera.shoot("examples")
    page.fill("age", "34")
    page.wait("document.querySelector('main').innerText.includes('This is a valid record')")
    page.press("Add this example")
    page.wait("document.getElementById('news').textContent.includes('added')")
    page.go("rules")
    page.fill("Field", "dbp")
    page.fill("With", "field")
    page.fill("Which field", "sbp")
    page.wait("document.querySelector('form code')?.textContent === 'dbp < sbp'")
    camera.shoot("rules", height=640)
    page.press("Add this rule")
    page.wait("document.getElementById('news').textContent.includes('added')")


def plan_and_run(page: StudioPage, camera: Camera, model: str) -> None:
    """The plan, the run and its report, light and dark."""
    camera.look(dark=True)
    page.go("plan")
    page.wait("document.querySelector('.verdict') !== null")
    page.browser.ask("document.querySelector('details').open = true")
    page.fill("Model", model)
    page.fill("Budget of the table", "4")
    page.fill("Records to write", "32")
    page.wait("document.querySelector('.numbers')?.innerText.includes('synthetic records\\n32')")
    page.browser.ask("document.querySelector('details').open = false")
    camera.shoot("plan", height=1080)
    page.press("Keep these settings, go on to the run")
    page.wait("document.querySelector('.start form') !== null")
    camera.look()
    page.press("Check everything")
    page.wait("document.querySelectorAll('.findings li').length > 3", seconds=LONG)
    page.wait("document.querySelector('.start').innerText.includes('will be left')")
    page.fill("Type 2 to start", "2")
    camera.shoot("start", height=900)
    page.press("Spend ε 2 and start")
    page.wait("document.querySelector('iframe')?.contentDocument?.querySelectorAll('.sample').length > 0", seconds=LONG)
    camera.shoot("watch", height=1250)
    page.wait("document.querySelector('.start').innerText.includes('is done')", seconds=LONG)
    page.fill("A table of real records to test on (may be empty)", "held-out.csv")
    page.press("Judge it")
    page.wait("document.querySelector('.runs').innerText.includes('Report (internal)')", seconds=LONG)
    page.press("Report (internal)")
    page.wait("document.querySelector('iframe').contentDocument?.querySelector('.notice') !== null")
    page.wait("document.querySelector('iframe').offsetHeight > 1500")
    camera.look(dark=True)
    camera.shoot("report", begin="#main section:nth-child(3)", height=1250)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2")
