"""Speaking with one endpoint in its own dialect: introduction, probes, and requests without what it does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from selpe.models.base import Message, Request
from selpe.models.http.dialects import (
    DIALECTS,
    PROBE_GRAMMAR,
    PROBE_SCHEMA,
    Constraint,
    Dialect,
    Route,
    Said,
    adapt,
    constraint_of,
    drop_extras,
    outline_holds,
    passes_probe,
    read,
    route_of,
    wire,
)
from selpe.models.http.faults import Fault
from selpe.models.http.fleet import Endpoint

Learnt = Callable[[str, Mapping[str, Any]], None]

# What an unconstrained model would do with these is to go on with colours, never to write the probe's value.
_CHAT_PROBE = (Message("user", 'Name a colour as a JSON object on one line, like {"colour": "red"}'),)
_TEXT_PROBE = '{"colour": "red"}\n{"colour": "blue"}\n{"colour": "green"}\n'
_PROBE_TOKENS = 48
_CHAT_GREETING = Request(messages=(Message("user", "Say yes."),), temperature=0.0, max_tokens=1)
_TEXT_GREETING = Request(prompt="Yes,", temperature=0.0, max_tokens=1)
_UNDECIDED = ("server", "timeout", "cut", "overloaded", "busy", "unreachable", "garbage", "auth", "tls", "absent")


class Speaker:
    """How requests are put to endpoints. `learnt(address, facts)` is told whenever something new is known."""

    def __init__(self, model: str, learnt: Learnt | None = None) -> None:
        self._model = model
        self._learnt = learnt

    async def prepare(self, endpoint: Endpoint, request: Request) -> Fault | None:
        """Learns what must be known before a request can be put; a fault where that cannot be learnt."""
        fault = await self.introduce(endpoint)
        constraint = constraint_of(request)
        if fault is None and constraint is not None:
            fault = await self.learn(endpoint, constraint, route_of(request))
        return fault

    async def ask(self, endpoint: Endpoint, request: Request) -> Said | Fault:
        """The answer of a prepared endpoint to a request, constrained where it can be."""
        constraint, route = constraint_of(request), route_of(request)
        dialect = endpoint.traits.dialect(constraint, route) if constraint is not None else None
        if constraint == "grammar" and dialect is None:
            return Fault("refused", endpoint.host, detail="this server does not take grammars")
        if constraint == "schema" and dialect is None:
            dialect = DIALECTS[0]  # nothing is lost by asking in the usual way; the caller checks
        said = await self._post(endpoint, request, dialect)
        if isinstance(said, Said) and request.json_schema is not None and said.finish == "stop":
            endpoint.traits.notice(outline_holds(said.text, request.json_schema), route)
        return said

    async def introduce(self, endpoint: Endpoint) -> Fault | None:
        """Learns which model and what kind of server it is; a fault where that cannot be asked at all."""
        async with endpoint.learning:
            if endpoint.traits.introduced:
                return None
            reply = await endpoint.transport.get("models")
            if isinstance(reply, Fault):
                if reply.kind not in ("no-route", "absent", "refused", "garbage", "too-big"):
                    return replace(reply, aside=True)
            else:
                _take_in(endpoint, reply.data, self._model)
            endpoint.traits.introduced = True
            return None

    async def learn(self, endpoint: Endpoint, constraint: Constraint, route: Route) -> Fault | None:
        """Finds the dialect for a kind of constraint on a route; a fault where the endpoint could not be asked.

        Only an endpoint that has answered every probe is said to ignore them all: a crash or a cut proves nothing.
        What a probe has shown is not asked again when a later one is cut.
        """
        async with endpoint.learning:
            traits = endpoint.traits
            if traits.knows(constraint, route):
                return None
            request = _probe(constraint, route)
            undecided: Fault | None = None
            ignored = traits.ignored.setdefault(f"{constraint}/{route}", set())
            for dialect in traits.candidates(constraint):
                if dialect.name in ignored:
                    continue
                said = await self._post(endpoint, request, dialect)
                if isinstance(said, Said) and passes_probe(said, constraint):
                    self._settle(endpoint, constraint, route, dialect.name)
                    return None
                if isinstance(said, Fault) and said.kind in _UNDECIDED:
                    undecided = said
                    if said.kind != "server":
                        return said
                elif isinstance(said, Fault) and said.kind == "no-route" and not dialect.native:
                    return said
                else:
                    ignored.add(dialect.name)
            if undecided is None:
                self._settle(endpoint, constraint, route, "")
            return undecided

    async def greet(self, endpoint: Endpoint) -> Fault | None:
        """What is wrong with an endpoint that does not answer a single word; None where it does."""
        chat = "chat" not in endpoint.traits.no_routes
        said = await self._post(endpoint, _CHAT_GREETING if chat else _TEXT_GREETING, None)
        return said if isinstance(said, Fault) else None

    async def count(self, endpoint: Endpoint, text: str) -> int | None:
        """The number of tokens as the server counts them, if it does."""
        if not endpoint.traits.tokenizes:
            return None
        model = self._model or endpoint.traits.model
        body = {"content": text, "prompt": text, **({"model": model} if model else {})}
        reply = await endpoint.transport.post("/tokenize", body, total=10.0)
        if isinstance(reply, Fault) and reply.kind in _UNDECIDED:
            return None  # this time
        data = None if isinstance(reply, Fault) else reply.data
        tokens = data.get("tokens") if isinstance(data, dict) else None
        if not isinstance(tokens, list):
            endpoint.traits.tokenizes = False
            return None
        return len(tokens)

    def _settle(self, endpoint: Endpoint, constraint: Constraint, route: Route, name: str) -> None:
        endpoint.traits.dialects[f"{constraint}/{route}"] = name
        endpoint.traits.ignored.pop(f"{constraint}/{route}", None)
        self._tell(endpoint)

    async def _post(self, endpoint: Endpoint, request: Request, dialect: Dialect | None) -> Said | Fault:
        traits = endpoint.traits
        refusal: Fault | None = None
        extras: set[str] = set()
        while True:
            path, body = wire(request, traits, self._model or traits.model, dialect)
            reply = await endpoint.transport.post(path, body)
            if not isinstance(reply, Fault):
                if extras:
                    self._tell(endpoint)
                return self._read(endpoint, reply.data)
            if reply.kind == "no-route" and not (dialect is not None and dialect.native):
                traits.no_routes.add(route_of(request))
                self._tell(endpoint)
            if reply.kind == "refused" and adapt(traits, body, reply.named):
                self._tell(endpoint)  # each turn leaves out something that was sent, so this ends
                continue
            unnamed = reply.kind == "refused" and reply.status in (400, 422) and not traits.settled
            if refusal is None and unnamed and (extras := drop_extras(traits)):
                refusal = reply
                continue
            traits.dropped -= extras  # they were not what it minded
            return refusal or reply

    def _read(self, endpoint: Endpoint, data: Any) -> Said | Fault:
        said = read(data)
        if said is None:
            return Fault("garbage", endpoint.host, 200)
        endpoint.breaker.won()  # also in the middle of many probes, the last of which may be cut
        endpoint.traits.settled = True
        endpoint.traits.reuses_prefix |= said.cached_tokens > 0
        return said

    def _tell(self, endpoint: Endpoint) -> None:
        if self._learnt is not None:
            self._learnt(endpoint.transport.address.base, endpoint.traits.as_dict())


def _probe(constraint: Constraint, route: Route) -> Request:
    return Request(
        prompt=_TEXT_PROBE if route == "completion" else "",
        messages=_CHAT_PROBE if route == "chat" else (),
        json_schema=PROBE_SCHEMA if constraint == "schema" else None,
        grammar=PROBE_GRAMMAR if constraint == "grammar" else None,
        temperature=0.0,
        max_tokens=_PROBE_TOKENS,
    )


def _take_in(endpoint: Endpoint, data: Any, model: str) -> None:
    """Reads the list of models: which one is meant, who serves it, how long its context is."""
    listed = data.get("data") if isinstance(data, dict) else None
    models = [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    if not models:
        return
    mine = next((m for m in models if m.get("id") == model), models[0])
    traits = endpoint.traits
    traits.model = model or str(mine.get("id", ""))
    traits.owner = str(mine.get("owned_by", ""))
    meta = mine.get("meta")
    length = mine.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else 0)
    traits.context_length = length if isinstance(length, int) else 0
