"""The protocol that every language model meets: a batch of requests in, a stream of answers out.

A model is asked what it can do (`capabilities`), never guessed at. Answers arrive as they finish, in any order,
each with the index of its request. `follow` lets an answer cause further requests while the batch is running, so
that stage II of one record can overlap with stage I of another and the engine never runs dry.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from selpe.errors import ModelError

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "cancelled", "error"]

# How LLGuidance lays constrained JSON out: as models have mostly seen it. A schema may ask for something else
# under its key 'x-guidance'.
JSON_STYLE: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer belongs with its caller: the stage that asks, the number of the request there, the attempt."""

    stage: str
    number: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.stage}:{self.number}:{self.attempt}"


class Steps(Protocol):
    """A constraint that follows the writing: what may come next depends on what stands there already.

    Its text says what it binds to: requests with the same grammar and other steps are not the same request.
    """

    def after(self, text: str) -> str | None:
        """The grammar (Lark, in LLGuidance's dialect) of the next stretch; None where nothing more is to follow."""


# What counts as a copy (`Request.unlike`): so many words in a row, or a whole text of at least so many words. Who holds
# copies back and who looks for them later must agree on it. Of 23,000 real rows of five tables none has a whole text of
# four words or more in common with made-up examples; of three words, eleven have.
COPIED_WORDS = 6
WHOLE_WORDS = 4
# A near copy: a text with at least so many runs of three words, more than half of which another text has, too.
NEAR_RUNS = 3
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to generate: either a plain `prompt` to continue, or chat `messages`.

    `json_schema` or `grammar` (Lark, in LLGuidance's dialect) constrain the answer where the model can do that.
    `steps` do so more closely, stretch by stretch, in models that can follow them; others go by the grammar alone.
    `begun` is what the answer begins with, for models that take steps: only what follows it is written.
    `no_repeat` keeps an answer from going in circles, where the model runs in this process: no run of so many tokens is
    written twice if it ends in a word (0: anything goes).
    `unlike` are texts that it does not copy, six words in a row, most of one, or a whole one of two words or more,
    where the model runs in this process; words that several of them share are a form and may be written.
    `own` is what the model wrote itself, in answer to an earlier request, as it stands in the prompt: an engine may
    still have it in memory. It says nothing new: the answer is the same whether the engine does or not.
    `key` and `place` are the caller's own handles; they come back on the answer untouched.
    """

    prompt: str = ""
    messages: tuple[Message, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    grammar: str | None = None
    steps: Steps | None = None
    begun: str = ""
    stop: tuple[str, ...] = ()
    temperature: float = 1.0
    min_p: float = 0.0
    top_p: float = 1.0
    no_repeat: int = 0
    unlike: tuple[str, ...] = ()
    own: str = ""
    max_tokens: int = 256
    seed: int = 0
    key: str = ""
    place: Place | None = None

    def __post_init__(self) -> None:
        if bool(self.prompt) == bool(self.messages):
            raise ValueError("a request must have either a prompt or messages")
        if self.json_schema is not None and self.grammar is not None:
            raise ValueError("a request must have at most one of json_schema and grammar")
        if self.no_repeat < 0 or self.no_repeat == 1:
            raise ValueError("no_repeat must be 0, or 2 or more")

    @property
    def stage(self) -> str:
        """The stage that asks; empty where the caller has said nothing about it."""
        return "" if self.place is None else self.place.stage

    def anonymous(self) -> Request:
        """The request without its caller's handles: what it is to be answered by."""
        return replace(self, key="", place=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came out of one request. `error` is set exactly when `finish` is 'error'.

    `cached_tokens` are those of the prompt that were computed for an earlier one, `forced_tokens` those of the answer
    that a grammar left no choice about, as far as the model says. `replayed` says that it was kept from before: no
    model was asked.
    """

    request: Request
    text: str
    finish: Finish
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    error: ModelError | None = field(default=None, compare=False)
    replayed: bool = field(default=False, compare=False)
    forced_tokens: int = 0

    @property
    def place(self) -> Place:
        """The place that the request was given by its caller."""
        if self.request.place is None:
            raise ValueError("the request has no place")
        return self.request.place


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do, as found out by asking it."""

    grammar: bool = False
    steps: bool = False
    json_schema: bool = False
    seed: bool = False
    prefix_cache: bool = False
    chat_template: bool = False
    completion: bool = True
    context_length: int = 2048
    parallel: int = 1


@dataclass(frozen=True, slots=True)
class Computed:
    """Tokens that a model has computed since it was opened, those of unfinished answers included."""

    read: int = 0
    written: int = 0


@runtime_checkable
class Counting(Protocol):
    """A model that can say at any moment how much it has computed."""

    @property
    def computed(self) -> Computed:
        """What it has computed so far."""


Follow = Callable[[Answer], Iterable[Request]]


@runtime_checkable
class ChatModel(Protocol):
    """A language model, wherever it runs."""

    @property
    def name(self) -> str:
        """A name that stays the same across runs, for manifests and caches."""

    def capabilities(self) -> Capabilities:
        """What this model can do."""

    def generate(
        self,
        requests: Iterable[Request],
        *,
        follow: Follow | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[Answer]:
        """Answers as they finish. Requests are pulled lazily, so a generator bounds memory.

        `follow(answer)` may return further requests; they are served before new ones are pulled. Setting
        `cancel` ends the stream soon: unfinished requests come back with finish 'cancelled'. An error of one
        request comes back as an answer with finish 'error'; an error of the model as a whole is raised.
        """

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text, or a close estimate where only the server knows."""

    def close(self) -> None:
        """Frees memory, threads and connections. The model cannot be used afterwards."""
