"""Grammars: LLGuidance behind the few calls that the batching loop needs.

A schema or grammar is compiled once; every request gets a copy of the compiled matcher, which costs microseconds.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.base import JSON_STYLE, Request
from selpe.models.engine.vocabulary import Vocabulary


class GrammarGuide(Protocol):
    """The constraint on one answer while it is being written."""

    @property
    def stopped(self) -> bool:
        """True when nothing more may follow."""

    def forced(self) -> list[int]:
        """The tokens that must come next, taken as written; empty where the model has a choice."""

    def accept(self, token: int) -> None:
        """Takes a token that the mask allowed as written; one that ends the answer, too."""

    def write_mask(self, into: NDArray[np.uint8]) -> None:
        """Writes one bit per token: may it come next?"""


class Grammars:
    """Guides for requests, each distinct grammar compiled once."""

    def __init__(self, tokens: Vocabulary, *, keep: int = 64) -> None:
        self._tokens = tokens
        self._keep = keep
        self._compiled: OrderedDict[str, Any] = OrderedDict()
        self._tokenizer: Any = None

    def guide(self, request: Request) -> GrammarGuide | None:
        """The guide of a request that has a grammar; raises ModelError when the grammar is faulty."""
        if request.json_schema is None and request.grammar is None:
            return None
        return _Matcher(self._matcher(request).deep_copy())

    def _matcher(self, request: Request) -> Any:
        key = request.grammar if request.grammar is not None else json.dumps(request.json_schema)
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        matcher = self._compile(request)
        self._compiled[key] = matcher
        if len(self._compiled) > self._keep:
            self._compiled.popitem(last=False)
        return matcher

    def _compile(self, request: Request) -> Any:
        from llguidance import LLMatcher

        if request.grammar is not None:
            source = LLMatcher.grammar_from_lark(request.grammar)
        else:
            source = LLMatcher.grammar_from_json_schema(json.dumps(request.json_schema), defaults=JSON_STYLE)
        matcher = LLMatcher(self._llguidance(), source, log_level=0)
        if matcher.is_error():
            what = "grammar" if request.grammar is not None else "JSON schema"
            raise ModelError(
                f"the {what} cannot be compiled: {matcher.get_error().splitlines()[0]}",
                hint="Correct the grammar, or leave out the keyword that the message names.",
            )
        return matcher

    def _llguidance(self) -> Any:
        if self._tokenizer is None:
            from llguidance import LLTokenizer, TokenizerWrapper

            self._tokenizer = LLTokenizer(TokenizerWrapper(_Adapter(self._tokens)), eos_token=list(self._tokens.ends))
        return self._tokenizer


class _Adapter:
    """Our tokenizer in the shape that LLGuidance expects."""

    def __init__(self, tokens: Vocabulary) -> None:
        self.tokens = list(tokens.names)
        self.special_token_ids = sorted(tokens.special)
        self.eos_token_id = tokens.ends[0]
        self.bos_token_id = None
        # The same few stretches are forced in every record of a schema.
        self._encode = lru_cache(maxsize=4096)(tokens.encode)

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.decode("utf-8") if isinstance(text, bytes) else text)


class _Matcher:
    """A GrammarGuide by LLGuidance."""

    __slots__ = ("_matcher",)

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    @property
    def stopped(self) -> bool:
        if not self._matcher.is_stopped():
            return False
        # A matcher that has failed counts as stopped, too, but what it has let through is not complete.
        self._checked(not self._matcher.is_error())
        return True

    def forced(self) -> list[int]:
        tokens: list[int] = self._matcher.compute_ff_tokens()
        if tokens:
            self._checked(self._matcher.consume_tokens(tokens))
        return tokens

    def accept(self, token: int) -> None:
        self._checked(self._matcher.consume_token(token))

    def write_mask(self, into: NDArray[np.uint8]) -> None:
        self._matcher.unsafe_compute_mask_ptr(into.ctypes.data, into.nbytes)

    def _checked(self, fine: bool) -> None:
        if not fine:
            raise ModelError(
                f"the grammar stopped working midway: {self._matcher.get_error().splitlines()[0]}",
                hint="Simplify the grammar; long patterns and large counts are the usual cause.",
            )
