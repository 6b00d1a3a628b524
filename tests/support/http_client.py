"""Clients and requests for the tests of models over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from faulty_server import Behaviour, Call, FastClock, said
from selpe.models import Message, Request
from selpe.models.http.model import HttpModel

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 90},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
RECORD = '{"name": "Ada", "age": 36}'


def chat(key: str = "", **settings: Any) -> Request:
    return Request(messages=(Message("user", f"hello {key}"),), key=key, **settings)


def chats(count: int) -> list[Request]:
    return [chat(str(i)) for i in range(count)]


def model(*urls: str, **settings: Any) -> HttpModel:
    return HttpModel(list(urls), "toy", **({"clock": FastClock()} | settings))


def echo(*, after: float = 0.0) -> Behaviour:
    """Answers with the last word of the chat, so that each answer can be told apart."""

    async def behave(call: Call) -> None:
        await asyncio.sleep(after)
        await call.reply(200, said(call.body["messages"][-1]["content"].split()[-1]))

    return behave
