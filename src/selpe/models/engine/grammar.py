"""Grammars: LLGuidance behind the few calls that the batching loop needs.

A schema or grammar is compiled once; every request gets a copy of the compiled matcher, which costs microseconds. Where
a request has steps, one matcher follows another, each chosen by what has been written before it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.base import JSON_STYLE, Request, Steps
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

    def __init__(self, tokens: Vocabulary, *, keep: int = 64, keep_stretches: int = 1024) -> None:
        self._tokens = tokens
        self._whole = _Kept(keep)
        # Many and small: one for each set of values that the rules leave of a field.
        self._stretches = _Kept(keep_stretches)
        self._tokenizer: Any = None

    def guide(self, request: Request) -> GrammarGuide | None:
        """The guide of a request that has a grammar; raises ModelError when the grammar is faulty."""
        if request.steps is not None:
            return _InSteps(request.steps, request.begun, self._stretch, self._tokens.pieces)
        if request.grammar is not None:
            grammar = request.grammar
            return self._whole.matcher(grammar, lambda: self._compile(grammar))
        if request.json_schema is not None:
            schema = json.dumps(request.json_schema)
            return self._whole.matcher(schema, lambda: self._compile(schema, json_schema=True))
        return None

    def _stretch(self, grammar: str) -> _Matcher:
        return self._stretches.matcher(grammar, lambda: self._compile(grammar))

    def _compile(self, text: str, *, json_schema: bool = False) -> Any:
        from llguidance import LLMatcher

        if json_schema:
            source = LLMatcher.grammar_from_json_schema(text, defaults=JSON_STYLE)
        else:
            source = LLMatcher.grammar_from_lark(text)
        matcher = LLMatcher(self._llguidance(), source, log_level=0)
        if matcher.is_error():
            what = "JSON schema" if json_schema else "grammar"
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


class _Kept:
    """Compiled grammars, the last ones that were used."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def matcher(self, text: str, compiled: Callable[[], Any]) -> _Matcher:
        """A fresh matcher of a grammar, which is compiled where it is not known."""
        if text not in self._compiled:
            self._compiled[text] = compiled()
            if len(self._compiled) > self._most:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(text)
        return _Matcher(self._compiled[text].deep_copy())


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


class _InSteps:
    """A GrammarGuide that goes from stretch to stretch: the end of one says what the next may be."""

    __slots__ = ("_matcher", "_matcher_of", "_pieces", "_steps", "_text")

    def __init__(
        self, steps: Steps, begun: str, matcher_of: Callable[[str], _Matcher], pieces: Sequence[bytes]
    ) -> None:
        self._steps = steps
        self._matcher_of = matcher_of
        self._pieces = pieces
        self._text = bytearray(begun.encode())
        self._matcher: _Matcher | None = None
        self._go_on()

    @property
    def stopped(self) -> bool:
        return self._matcher is None

    def forced(self) -> list[int]:
        found: list[int] = []
        while self._matcher is not None and (tokens := self._matcher.forced()):
            found += tokens
            self._note(self._matcher, tokens)
        return found

    def accept(self, token: int) -> None:
        if self._matcher is not None:
            self._matcher.accept(token)
            self._note(self._matcher, [token])

    def write_mask(self, into: NDArray[np.uint8]) -> None:
        if self._matcher is not None:
            self._matcher.write_mask(into)

    def _note(self, matcher: _Matcher, tokens: list[int]) -> None:
        self._text += b"".join(self._pieces[token] for token in tokens)
        if matcher.stopped:
            self._go_on()

    def _go_on(self) -> None:
        grammar = self._steps.after(self._text.decode("utf-8", "replace"))
        self._matcher = None if grammar is None else self._matcher_of(grammar)
