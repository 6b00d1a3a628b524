"""Text to tokens and back, exact to the byte."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from selpe.errors import ModelError
from selpe.models.base import Request
from selpe.models.engine.runtime import openvino_genai


class Vocabulary(Protocol):
    """The tokens of a model, and how a request becomes a list of them."""

    @property
    def names(self) -> Sequence[bytes]:
        """The bytes that each token is written with; for a special token, its name."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes that each token adds to a text; nothing for a special token."""

    @property
    def special(self) -> frozenset[int]:
        """The tokens that stand for something other than text."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end an answer, the model's own first."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with nothing added."""

    def prompt(self, request: Request) -> list[int]:
        """The tokens that the model is to continue."""


def places_of(text: str, tokens: Sequence[int], names: Sequence[bytes]) -> range:
    """The places of the tokens that spell a text where it stands last among them; none where it does not.

    A blank before it belongs to its first token, as a model would have written it.
    """
    said, wanted = b"".join(names[token] for token in tokens), text.encode()
    at = said.rfind(wanted) if wanted else -1
    if at < 0:
        return range(0)
    ends = list(accumulate(len(names[token]) for token in tokens))
    return range(bisect_right(ends, at), bisect_right(ends, at + len(wanted)))


class GenAIVocabulary:
    """The tokenizer that was converted along with the model, run by OpenVINO GenAI."""

    def __init__(self, folder: Path, *, size: int, special: Sequence[int], ends: Sequence[int]) -> None:
        self._tokenizer: Any = openvino_genai().Tokenizer(str(folder))
        names = [b""] * size
        for name, token in self._tokenizer.get_vocab().items():
            if token < size:
                names[token] = name
        self.names: Sequence[bytes] = names
        self.special = frozenset(special)
        self.ends = tuple(ends)
        self.pieces: Sequence[bytes] = [b"" if i in self.special else name for i, name in enumerate(names)]

    @property
    def has_chat_template(self) -> bool:
        """True when the model says how a chat is to be written."""
        return bool(self._tokenizer.chat_template)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with nothing added."""
        return self._encode(text, marked=False)

    def prompt(self, request: Request) -> list[int]:
        """The tokens of a chat by the model's own template, or of a plain prompt as its tokenizer begins a text."""
        if not request.messages:
            return self._encode(request.prompt + request.begun, marked=True) or [self.ends[0]]
        if not self.has_chat_template:
            raise ModelError(
                "the model has no chat template",
                hint="Send a plain prompt, or choose a model that was tuned for chat.",
            )
        turns = [{"role": turn.role, "content": turn.content} for turn in request.messages]
        return self.encode(self._tokenizer.apply_chat_template(turns, add_generation_prompt=True) + request.begun)

    def _encode(self, text: str, *, marked: bool) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=marked).input_ids.data[0].tolist()
        return tokens
