"""Longer texts for records, by a public template or by a model on this machine. Never by a service elsewhere.

The paper had texts of MIMIC-ED and Loan rewritten by a remote model. Rows that are to count as private must not go
there. A template adds no information, and a text is made from its own row alone, so that it does not matter on which
side of a split the row stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from selpe.errors import ConfigError, PrivacyError
from selpe.experiments.loaders.base import Enrichment
from selpe.schema import Record, Schema, TextField

if TYPE_CHECKING:
    from selpe.models.base import ChatModel, Request

AUTO, OFF, TEMPLATE = "auto", "off", "template"
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def require_local(llm: str) -> None:
    """Raises PrivacyError for a model that is not on this machine."""
    for address in llm.partition("#")[0].split(","):
        if "://" in address and urlsplit(address.strip()).hostname not in _HERE:
            raise PrivacyError(
                "texts of rows are not sent to another machine",
                where="--enrich",
                hint="use 'template' or a local model",
            )


def enriched_schema(schema: Schema, enrichment: Enrichment) -> Schema:
    """The schema whose text field holds the longer text, its examples rewritten by the template."""
    fields = tuple(
        replace(field, max_length=enrichment.longest, description=enrichment.description)
        if field.name == enrichment.field and isinstance(field, TextField)
        else field
        for field in schema.fields
    )
    if enrichment.field not in schema.names:
        raise ConfigError(f"there is no field '{enrichment.field}' to enrich", where=schema.name)
    return replace(schema, fields=fields, examples=tuple(templated(schema.examples, enrichment)))


def templated(records: Sequence[Record], enrichment: Enrichment) -> list[Record]:
    """The records with the template's text."""
    return [{**record, enrichment.field: enrichment.template(record)[: enrichment.longest]} for record in records]


def rewritten(records: Sequence[Record], enrichment: Enrichment, model: ChatModel) -> tuple[list[Record], int]:
    """The records with a text that a local model wrote from the template's, and how many kept the template's own."""
    from selpe.models.base import Answer

    plain = templated(records, enrichment)
    texts = list(dict.fromkeys(str(record[enrichment.field]) for record in plain))
    found: dict[str, str] = {}

    def keep(answer: Answer) -> None:
        text = " ".join(answer.text.split()).strip("\"' ")
        if answer.finish == "stop" and 0 < len(text) <= enrichment.longest:
            found[answer.request.key] = text

    for answer in model.generate(_request(model, enrichment, text, place) for place, text in enumerate(texts)):
        if answer.error is not None and not answer.error.retryable:
            raise answer.error
        keep(answer)
    made = dict(zip(texts, (found.get(str(place)) for place in range(len(texts))), strict=True))
    new = [
        {**record, enrichment.field: made[str(record[enrichment.field])] or record[enrichment.field]}
        for record in plain
    ]
    return new, sum(made[str(record[enrichment.field])] is None for record in plain)


def _request(model: ChatModel, enrichment: Enrichment, text: str, place: int) -> Request:
    from selpe.models.base import Message, Request

    said = f"{enrichment.instruction}\n\n{text}"
    tokens = enrichment.longest // 2
    if model.capabilities().chat_template:
        return Request(
            messages=(Message("user", said),), temperature=0.3, max_tokens=tokens, seed=place, key=str(place)
        )
    return Request(
        prompt=f"{said}\n\nRewritten:\n", stop=("\n",), temperature=0.3, max_tokens=tokens, seed=place, key=str(place)
    )
