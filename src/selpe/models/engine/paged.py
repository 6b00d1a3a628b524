"""What computes: OpenVINO's paged attention over KV blocks of ours.

The transformation that turns a model's attention into paged attention is a private part of OpenVINO, which is why
its version is pinned. Where it fails, `open.py` takes llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.engine.runtime import Precision, openvino, settings
from selpe.models.engine.schedule import Work
from selpe.models.machine import this_machine

BLOCK_SIZE = 32  # fixed by OpenVINO's CPU kernels
_WANTED_ROWS = "selpe_wanted_rows"

# Without AVX-512, a few more rows than these go through kernels that round differently.
MOST_ROWS = 80


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that follow `past` others in the blocks of `table`; `sampled` says that their logits are wanted."""

    tokens: list[int]
    past: int
    table: list[int]
    sampled: bool


class PagedBackend:
    """A compiled model with paged attention, and the memory of its blocks."""

    block_size = BLOCK_SIZE

    def __init__(self, graph: Path, *, memory: int, threads: int | None, precision: Precision = "fast") -> None:
        ov = openvino()
        core = ov.Core()
        model = _paged_model(core, graph)
        compiled = core.compile_model(model, "CPU", settings(threads, precision))
        self._request = compiled.create_infer_request()
        self._tensor = ov.Tensor
        self._most = None if "avx512f" in this_machine().instruction_sets else MOST_ROWS
        inputs = [port for port in compiled.inputs if "_cache." in port.get_any_name()]
        shapes = [[side.get_length() for side in list(port.get_partial_shape())[1:]] for port in inputs]
        types = [port.get_element_type().to_dtype() for port in inputs]
        bytes_per_block = sum(int(np.prod(s)) * t.itemsize for s, t in zip(shapes, types, strict=True))
        # One block more than can be leased: the place of the row that keeps a lonely token company.
        self.blocks = max(memory // bytes_per_block, 2) - 1
        self._spare = self.blocks
        self._caches: list[NDArray[Any]] = []
        for port, shape, kind in zip(inputs, shapes, types, strict=True):
            # Zeroed pages are not resident until they are written: memory is used as it is needed.
            cache = np.zeros([self.blocks + 1, *shape], kind)
            self._request.set_tensor(port, ov.Tensor(cache, shared_memory=True))
            self._caches.append(cache)

    def run(self, work: Sequence[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        """The logits after the last token of each sampled piece of work, in order."""
        parts = list(parts_of([Piece(item.tokens, item.past, item.table, item.sampled) for item in work], self._most))
        found = [self._infer(part, meanwhile if part is parts[0] else _nothing) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _infer(self, part: list[Piece], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        pieces = list(part)
        if len(pieces) == 1 and len(pieces[0].tokens) == 1:
            # One row alone would go through kernels that round differently from those of a batch.
            pieces.append(Piece([0], 0, [self._spare], sampled=False))
        counts = np.array([len(piece.tokens) for piece in pieces], np.int64)
        pasts = np.array([piece.past for piece in pieces], np.int64)
        begins = np.concatenate(([0], np.cumsum(counts)))
        used = -(-(pasts + counts) // BLOCK_SIZE)
        tables = chain.from_iterable(piece.table[:n] for piece, n in zip(pieces, used.tolist(), strict=True))
        sampled = np.array([piece.sampled for piece in pieces])
        wanted = begins[1:][sampled] - 1
        inputs = {
            "input_ids": np.fromiter(chain.from_iterable(piece.tokens for piece in pieces), np.int64),
            "position_ids": np.arange(begins[-1]) + np.repeat(pasts - begins[:-1], counts),
            "past_lens": pasts.astype(np.int32),
            "subsequence_begins": begins.astype(np.int32),
            "block_indices": np.fromiter(tables, np.int32),
            "block_indices_begins": np.concatenate(([0], np.cumsum(used))).astype(np.int32),
            "max_context_len": np.array((pasts + counts).max(), np.int32),
            # The last product is one of those that round a lonely row differently, without AVX-512.
            _WANTED_ROWS: np.repeat(wanted, 2) if len(wanted) == 1 else wanted,
        }
        for name, value in inputs.items():
            self._request.set_tensor(name, self._tensor(value))
        self._request.start_async()
        try:
            meanwhile()
        finally:
            self._request.wait()
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        rows = logits.reshape(-1, logits.shape[-1])[: len(wanted)]
        return rows if self._most is None else rows.copy()  # the next part overwrites them

    def copy(self, source: int, target: int) -> None:
        """Copies one block's contents into another."""
        for cache in self._caches:
            cache[target] = cache[source]

    def close(self) -> None:
        """Frees the model and the blocks."""
        self._request = None
        self._caches = []


def parts_of(pieces: Sequence[Piece], most: int | None) -> Iterator[list[Piece]]:
    """The pieces in parts of at most so many rows, to be computed one after the other; longer ones are divided.

    No piece of a prompt becomes a single row by that.
    """
    part: list[Piece] = []
    room = most or 0
    for piece in pieces:
        rest = piece
        while most is not None and len(rest.tokens) > room:
            if room > 1 and len(rest.tokens) > 2:
                cut = room - 1 if len(rest.tokens) - room == 1 else room
                if cut > 1:
                    part.append(Piece(rest.tokens[:cut], rest.past, rest.table, sampled=False))
                    rest = replace(rest, tokens=rest.tokens[cut:], past=rest.past + cut)
            yield part
            part, room = [], most
        part.append(rest)
        room -= len(rest.tokens)
    yield part


def _nothing() -> None:
    """What is done meanwhile, where everything has been done."""


def _paged_model(core: Any, graph: Path) -> Any:
    """The model with paged attention that computes logits for wanted rows only."""
    ov = openvino()
    try:
        from openvino._offline_transformations import paged_attention_transformation
    except ImportError as error:
        raise ModelError("this version of OpenVINO has no paged-attention transformation") from error
    model = core.read_model(graph)
    try:
        paged_attention_transformation(model)
        head = model.get_results()[0].input_value(0).get_node()
        while head.get_type_name() != "MatMul":
            head = head.input_value(0).get_node()
        rows = ov.opset13.parameter([-1], np.int64, name=_WANTED_ROWS)
        rows.output(0).get_tensor().set_names({_WANTED_ROWS})
        wanted = ov.opset13.gather(head.input_value(0), rows, ov.opset13.constant(np.int64(0)))
        head.input(0).replace_source_output(wanted.output(0))
        model.add_parameters([rows])
        model.validate_nodes_and_infer_types()
    except (RuntimeError, IndexError) as error:
        raise ModelError("OpenVINO could not give this model paged attention") from error
    return model
