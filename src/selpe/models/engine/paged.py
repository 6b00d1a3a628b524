"""What computes: OpenVINO's paged attention over KV blocks of ours.

The transformation that turns a model's attention into paged attention is a private part of OpenVINO, which is why
its version is pinned. Where it fails, `open.py` takes llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.engine.runtime import Precision, openvino, settings
from selpe.models.engine.schedule import Work

BLOCK_SIZE = 32  # fixed by OpenVINO's CPU kernels
_WANTED_ROWS = "selpe_wanted_rows"


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
        pieces = [(item.tokens, item.past, item.table) for item in work]
        if len(pieces) == 1 and len(pieces[0][0]) == 1:
            # One row alone would go through kernels that round differently from those of a batch.
            pieces.append(([0], 0, [self._spare]))
        counts = np.array([len(tokens) for tokens, _, _ in pieces], np.int64)
        pasts = np.array([past for _, past, _ in pieces], np.int64)
        begins = np.concatenate(([0], np.cumsum(counts)))
        used = -(-(pasts + counts) // BLOCK_SIZE)
        tables = chain.from_iterable(table[:n] for (_, _, table), n in zip(pieces, used.tolist(), strict=True))
        sampled = np.array([item.sampled for item in work] + [False] * (len(pieces) - len(work)))
        inputs = {
            "input_ids": np.fromiter(chain.from_iterable(tokens for tokens, _, _ in pieces), np.int64),
            "position_ids": np.arange(begins[-1]) + np.repeat(pasts - begins[:-1], counts),
            "past_lens": pasts.astype(np.int32),
            "subsequence_begins": begins.astype(np.int32),
            "block_indices": np.fromiter(tables, np.int32),
            "block_indices_begins": np.concatenate(([0], np.cumsum(used))).astype(np.int32),
            "max_context_len": np.array((pasts + counts).max(), np.int32),
            _WANTED_ROWS: begins[1:][sampled] - 1,
        }
        for name, value in inputs.items():
            self._request.set_tensor(name, self._tensor(value))
        self._request.start_async()
        try:
            meanwhile()
        finally:
            self._request.wait()
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits.reshape(-1, logits.shape[-1])

    def copy(self, source: int, target: int) -> None:
        """Copies one block's contents into another."""
        for cache in self._caches:
            cache[target] = cache[source]

    def close(self) -> None:
        """Frees the model and the blocks."""
        self._request = None
        self._caches = []


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
