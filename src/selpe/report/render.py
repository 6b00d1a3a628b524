"""Pages from plain data: one self-contained HTML file each, without scripts, without anything from elsewhere.

Texts in records are hostile until shown otherwise: every value is escaped, and a content policy in the page itself
allows its own style sheet, by hash, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from selpe.report.sections.fidelity import fidelity_section
from selpe.report.sections.making import making_section
from selpe.report.sections.privacy import privacy_section
from selpe.report.sections.utility import utility_section
from selpe.report.words import count, known, plural
from selpe.run.progress import duration
from selpe.schema import Schema


def report_page(evaluation: Mapping[str, Any], schema: Schema | None = None) -> str:
    """The internal report of an evaluation."""
    titles = {} if schema is None else {field.name: field.title for field in schema.fields}
    subject = evaluation["subject"]
    return page(
        "report.html",
        internal=True,
        title=f"Evaluation of {subject['name']}",
        about=_about(evaluation),
        verdict=evaluation["verdict"],
        notes=evaluation["notes"],
        utility=utility_section(evaluation),
        fidelity=fidelity_section(evaluation, titles),
        privacy=privacy_section(evaluation),
        making=making_section(evaluation, titles),
        samples=evaluation["samples"],
        footer=_footer(evaluation),
    )


def page(template: str, *, internal: bool = False, **content: Any) -> str:
    """A page of one of our templates; `internal` ones carry the notice, on screen and on paper."""
    # The style sheets are our own files: they are the one thing that goes in as it is.
    style = Markup(_source("style.css") + (_source("internal.css") if internal else ""))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-src 'none'"
    )
    return _environment().get_template(template).render(style=style, policy=policy, internal=internal, **content)


def _source(name: str) -> str:
    environment = _environment()
    text: str = environment.loader.get_source(environment, name)[0]  # type: ignore[union-attr]
    return text


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("selpe.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["commands"] = _commands
    return environment


def _commands(text: str) -> Markup:
    """A sentence in which words between backticks are set as code."""
    parts = re.split(r"`([^`]*)`", str(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def _about(evaluation: Mapping[str, Any]) -> str:
    subject = evaluation["subject"]
    size = f"{plural(subject['records'], 'synthetic record')} of {plural(subject['fields'], 'field')}"
    return f"{subject['name']}: {size}" + (f" in {len(subject['classes'])} classes" if subject["classes"] else "")


def _footer(evaluation: Mapping[str, Any]) -> list[str]:
    tables = ", ".join(f"{name} {count(size)}" for name, size in evaluation["tables"].items() if size)
    took = f" in {duration(evaluation['seconds'])}" if known(evaluation["seconds"]) else ""
    moment = str(evaluation["created"])[:16].replace("T", " ")
    encoder = f", encoder {evaluation['encoder']}" if evaluation["encoder"] else ""
    return [
        f"Records that took part: {tables}.",
        f"Evaluated{took} on {moment} UTC by SelPE {evaluation['selpe']}{encoder}.",
        "All figures are in evaluation.json beside this page.",
    ]
