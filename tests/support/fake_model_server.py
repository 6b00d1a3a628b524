"""A server whose model is the fake one, and a clock for clients of it that do not wait long."""

from __future__ import annotations

from faulty_server import Call, FastClock, said
from selpe.models import Message, Request
from selpe.models.fake import FakeModel


class Clock(FastClock):
    """Fast, but not so fast that a busy machine makes a living server look dead."""

    factor = 20.0


async def written(call: Call) -> None:
    """Answers as the fake model does, which heeds the usual way to ask for a schema."""
    body = call.body
    request = Request(
        prompt=body.get("prompt", ""),
        messages=tuple(Message(**message) for message in body.get("messages", ())),
        json_schema=body.get("response_format", {}).get("json_schema", {}).get("schema"),
        seed=body["seed"],
        temperature=body["temperature"],
    )
    (answer,) = FakeModel().generate([request])
    await call.reply(200, said(answer.text, tokens=answer.completion_tokens))
