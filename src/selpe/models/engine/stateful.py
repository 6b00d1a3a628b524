"""The fallback back end: the model as OpenVINO keeps it, with its KV cache inside.

Slower than `paged.py`, because requests cannot join a batch that is under way and every row is padded to the
longest; but it needs nothing of OpenVINO that is private. A batch starts with the prefix that all its prompts
share, computed once; rows that have ended are dropped as the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.engine.runtime import Precision, openvino, settings
from selpe.models.engine.schedule import Work

_BYTES_PER_VALUE = 4  # at most: the cache is f16 or f32, as OpenVINO sees fit


class StatefulBackend:
    """A compiled model whose state holds one batch of sequences from start to end."""

    name = "openvino-stateful"
    block_size = 32
    shares = False

    def __init__(self, graph: Path, *, memory: int, threads: int | None, precision: Precision = "fast") -> None:
        ov = openvino()
        core = ov.Core()
        model = core.read_model(graph)
        try:
            self.blocks = max(memory // (_bytes_per_token(model) * self.block_size), 1)
            _keep_last_row(model)
        except (RuntimeError, IndexError) as error:
            raise ModelError("the converted model is not one of a language model with a KV cache") from error
        compiled = core.compile_model(model, "CPU", settings(threads, precision))
        self._request: Any = compiled.create_infer_request()
        self._rows: list[int] = []
        self._seen = np.zeros((0, 0), np.int64)

    def run(self, work: Sequence[Work], meanwhile: Callable[[], None]) -> NDArray[np.float32]:
        """The logits after the last token of every piece of work, in order."""
        meanwhile()
        tokens = [item.tokens for item in work]
        pasts = [item.past for item in work]
        if not any(pasts):
            shared = self._begin(tokens)
            tokens = [row[shared:] for row in tokens]
            pasts = [shared] * len(work)
            self._rows = [0] * len(work)
        else:
            places = {owner: row for row, owner in enumerate(self._rows)}
            self._rows = [places[id(item.owner)] for item in work]
        logits = self._infer(tokens, pasts)
        self._rows = [id(item.owner) for item in work]
        return logits

    def copy(self, source: int, target: int) -> None:
        """Blocks are only counted here, never shared, so nothing is to be copied."""

    def close(self) -> None:
        """Frees the model."""
        self._request = None

    def _begin(self, prompts: list[list[int]]) -> int:
        """Computes what all prompts begin with, once; returns its length. The state is then one row."""
        self._request.reset_state()
        self._rows, self._seen = [0], np.zeros((1, 0), np.int64)
        columns = zip(*(prompt[:-1] for prompt in prompts), strict=False)
        shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        if shared:
            self._infer([prompts[0][:shared]], [0])
        return shared

    def _infer(self, tokens: list[list[int]], pasts: list[int]) -> NDArray[np.float32]:
        width = max(map(len, tokens))
        ids = np.zeros((len(tokens), width), np.int64)
        real = np.zeros_like(ids)
        places = np.zeros_like(ids)
        for row, (new, past) in enumerate(zip(tokens, pasts, strict=True)):
            # To the right, so that the last column is everybody's newest token.
            ids[row, width - len(new) :] = new
            real[row, width - len(new) :] = 1
            places[row, width - len(new) :] = np.arange(past, past + len(new))
        self._seen = np.concatenate([self._seen[self._rows], real], axis=1)
        self._request.infer(
            {
                "input_ids": ids,
                "attention_mask": self._seen,
                "position_ids": places,
                "beam_idx": np.array(self._rows, np.int32),
            }
        )
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits.reshape(len(tokens), -1)


def _bytes_per_token(model: Any) -> int:
    total = 0
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            _, heads, _, width = node.get_output_partial_shape(0)
            total += heads.get_length() * width.get_length() * _BYTES_PER_VALUE
    if not total:
        raise IndexError("the model has no KV cache")
    return total


def _keep_last_row(model: Any) -> None:
    """Makes the model compute logits for the last column only; for a long prompt the others would fill the memory."""
    ops = openvino().opset13
    head = model.get_results()[0].input_value(0).get_node()
    while head.get_type_name() != "MatMul":
        head = head.input_value(0).get_node()
    last = ops.gather(head.input_value(0), ops.constant(np.array([-1])), ops.constant(np.int64(1)))
    head.input(0).replace_source_output(last.output(0))
    model.validate_nodes_and_infer_types()
