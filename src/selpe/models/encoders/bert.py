"""BERT with mean pooling as an OpenVINO graph, built from the weights of a safetensors file.

Built rather than imported: without torch nothing else on a plain machine turns such a file into something that
runs, and a graph of our own holds just what is needed, pooling and normalisation included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.engine.runtime import openvino

_GROUP = 64  # weights that share a scale when they are stored in 8 bits


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The f32 tensors of a safetensors file by name, mapped rather than read."""
    data = np.memmap(path, np.uint8, mode="r")
    size = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8 : 8 + size]))
    tensors = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start, end = (8 + size + offset for offset in about["data_offsets"])
            # Copied where needed only: the format does not promise alignment, numpy copes without.
            tensors[name] = data[start:end].view("<f4").reshape(about["shape"])
    return tensors


def build(folder: Path, *, eight_bit: bool) -> Any:
    """The model of a sentence-transformers folder: `ids` and `mask` (texts × tokens) in, unit vectors out."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        weights = read_safetensors(folder / "model.safetensors")
        return _Builder(config, weights, eight_bit=eight_bit).model()
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            "the folder does not hold a BERT model with its weights",
            where=str(folder),
            hint="Fetch it again: selpe models pull minilm.",
        ) from error


class _Builder:
    """One method per part of the network, in the words of the BERT paper."""

    def __init__(
        self, config: Mapping[str, Any], weights: Mapping[str, NDArray[np.float32]], *, eight_bit: bool
    ) -> None:
        self._config = config
        self._weights = weights
        self._eight_bit = eight_bit
        self._ov = openvino()
        self._op = self._ov.opset13
        self._heads = int(config["num_attention_heads"])
        self._width = int(config["hidden_size"])

    def model(self) -> Any:
        op = self._op
        ids = op.parameter([-1, -1], np.int64, name="ids")
        mask = op.parameter([-1, -1], np.int64, name="mask")
        real = op.convert(mask, np.float32)
        hidden = self._embeddings(ids)
        # 0 where a token is real, a very negative number where it is padding: [texts, 1, 1, tokens]
        bias = op.multiply(op.subtract(real, self._number(1.0)), self._number(1e9))
        bias = op.unsqueeze(bias, op.constant(np.array([1, 2])))
        for layer in range(int(self._config["num_hidden_layers"])):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}")
        pooled = self._mean(hidden, op.unsqueeze(real, op.constant(np.int64(2))))
        unit = op.normalize_l2(pooled, op.constant(np.array([1])), 1e-12, "max")
        return self._ov.Model([unit], [ids, mask])

    def _embeddings(self, ids: Any) -> Any:
        op = self._op
        words = op.gather(self._constant("embeddings.word_embeddings.weight"), ids, op.constant(np.int64(0)))
        # Texts have one segment, so its embedding joins that of the positions.
        places = self._weights["embeddings.position_embeddings.weight"]
        segment = self._weights["embeddings.token_type_embeddings.weight"][0]
        length = op.gather(op.shape_of(ids), op.constant(np.array([1])), op.constant(np.int64(0)))
        first = op.slice(op.constant(places + segment), op.constant(np.array([0])), length, op.constant(np.array([1])))
        return self._norm(op.add(words, first), "embeddings.LayerNorm")

    def _layer(self, hidden: Any, bias: Any, name: str) -> Any:
        op = self._op
        query, key, value = (
            self._by_head(hidden, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
        )
        scale = self._number(1 / math.sqrt(self._width // self._heads))
        context = op.scaled_dot_product_attention(query, key, value, bias, scale)
        context = op.transpose(context, op.constant(np.array([0, 2, 1, 3])))
        context = op.reshape(context, op.constant(np.array([0, 0, self._width])), True)
        attended = op.add(self._dense(context, f"{name}.attention.output.dense"), hidden)
        attended = self._norm(attended, f"{name}.attention.output.LayerNorm")
        inner = op.gelu(self._dense(attended, f"{name}.intermediate.dense"), "erf")
        return self._norm(op.add(self._dense(inner, f"{name}.output.dense"), attended), f"{name}.output.LayerNorm")

    def _by_head(self, hidden: Any, name: str) -> Any:
        op = self._op
        shape = op.constant(np.array([0, 0, self._heads, self._width // self._heads]))
        split = op.reshape(self._dense(hidden, name), shape, True)
        return op.transpose(split, op.constant(np.array([0, 2, 1, 3])))

    def _dense(self, hidden: Any, name: str) -> Any:
        weight = self._weights[f"{name}.weight"]
        matrix = self._eight_bits(weight) if self._eight_bit else self._op.constant(np.ascontiguousarray(weight))
        return self._op.add(self._op.matmul(hidden, matrix, False, True), self._constant(f"{name}.bias"))

    def _eight_bits(self, weight: NDArray[np.float32]) -> Any:
        """The matrix as whole numbers from −127 to 127 times a scale per group of columns."""
        op = self._op
        groups = weight.reshape(len(weight), -1, _GROUP)
        scales = np.maximum(np.abs(groups).max(axis=2, keepdims=True) / 127, 1e-12).astype(np.float32)
        whole = op.convert(op.constant(np.rint(groups / scales).astype(np.int8)), np.float32)
        return op.reshape(op.multiply(whole, op.constant(scales)), op.constant(np.array(weight.shape)), False)

    def _norm(self, hidden: Any, name: str) -> Any:
        op = self._op
        centred = op.mvn(hidden, op.constant(np.array([2])), True, float(self._config["layer_norm_eps"]), "inside_sqrt")
        return op.add(op.multiply(centred, self._constant(f"{name}.weight")), self._constant(f"{name}.bias"))

    def _mean(self, hidden: Any, real: Any) -> Any:
        op = self._op
        over = op.constant(np.array([1]))
        total = op.reduce_sum(op.multiply(hidden, real), over, False)
        return op.divide(total, op.reduce_sum(real, over, False))

    def _constant(self, name: str) -> Any:
        return self._op.constant(np.ascontiguousarray(self._weights[name]))

    def _number(self, value: float) -> Any:
        return self._op.constant(np.float32(value))
