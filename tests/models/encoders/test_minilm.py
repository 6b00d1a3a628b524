"""The embedded encoder on its real weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from selpe.errors import ModelError, ModelNotFoundError
from selpe.models.encoders.base import Encoder
from selpe.models.encoders.bert import read_safetensors
from selpe.models.encoders.minilm import MiniLMEncoder, Precision
from selpe.models.store.store import ModelStore

Rows = NDArray[Any]

TEXTS = [
    "sudden chest pain and short of breath",
    "The patient has pressure on the chest and cannot breathe well.",
    "wants to consolidate two credit cards",
    "a water bottle that keeps drinks cold",
    "",
    "word " * 700,
    "Ünïcödé 漢字 🙂",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return ModelStore().ensure("minilm")
    except ModelNotFoundError as problem:
        pytest.skip(f"the weights of minilm are not to be had here: {problem.message}")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> MiniLMEncoder:
    return MiniLMEncoder(folder)


@pytest.mark.real_model
def test_rows_are_unit_vectors_in_the_order_of_the_texts(encoder: MiniLMEncoder) -> None:
    assert isinstance(encoder, Encoder)
    rows = encoder.encode(TEXTS)
    assert rows.shape == (len(TEXTS), encoder.dimension)
    assert rows.dtype == np.float32
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-5
    likeness = rows @ rows[0]
    assert likeness[1] > 0.5 > likeness[2]
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert encoder.name in ("minilm-l6-v2-int8", "minilm-l6-v2-fp32")  # by the processor
    assert encoder.remote is None


@pytest.mark.real_model
def test_eight_bits_give_way_to_single_precision_where_they_do_not_keep_rows_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for apart, name in ((True, "minilm-l6-v2-int8"), (False, "minilm-l6-v2-fp32")):
        monkeypatch.setattr(MiniLMEncoder, "_keeps_rows_apart", lambda self, apart=apart: apart)
        assert MiniLMEncoder(folder).name == name


@pytest.mark.real_model
@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_row_is_the_same_bit_for_bit_whatever_stands_beside_it(folder: Path, precision: Precision) -> None:
    encoder = MiniLMEncoder(folder, precision=precision)
    numbers = np.random.Generator(np.random.Philox(key=3))
    words = "pain chest loan water bottle since two days fever arm debt card cold hot left right".split()
    texts = [*TEXTS, *(" ".join(numbers.choice(words, numbers.integers(1, 40))) for _ in range(60))]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.array_equal(together, alone)
    order = numbers.permutation(len(texts))
    assert np.array_equal(encoder.encode([texts[i] for i in order]), together[order])
    assert np.array_equal(encoder.encode(texts[:10]), together[:10])


@pytest.mark.real_model
def test_long_texts_are_cut_at_256_word_pieces(encoder: MiniLMEncoder) -> None:
    cut, longer = encoder.encode(["word " * 254, "word " * 700])
    assert float(cut @ longer) > 0.99999


@pytest.mark.real_model
def test_full_precision_agrees_with_a_plain_computation_and_eight_bits_stay_close(
    folder: Path, encoder: MiniLMEncoder
) -> None:
    exact = MiniLMEncoder(folder, precision="fp32")
    rows = exact.encode(TEXTS)
    for text, row in zip(TEXTS[:4], rows, strict=False):
        assert np.abs(plain_bert(folder, exact._tokenizer.encode(text).ids) - row).max() < 1e-4
    assert (rows * encoder.encode(TEXTS)).sum(axis=1).min() > 0.99


def plain_bert(folder: Path, ids: list[int]) -> Rows:
    """The network written out in numpy for a single text: slow, and independent of OpenVINO."""
    from scipy.special import erf

    weights = read_safetensors(folder / "model.safetensors")
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]

    def dense(x: Rows, name: str) -> Rows:
        return np.asarray(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])

    def norm(x: Rows, name: str) -> Rows:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return np.asarray(x * weights[f"{name}.weight"] + weights[f"{name}.bias"])

    x: Rows = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, f"{name}.attention.self.{part}").reshape(-1, 12, 32).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(32))
        context = (scores / scores.sum(2, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
        x = norm(x + dense(context, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        inner = dense(x, f"{name}.intermediate.dense")
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = norm(x + dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def test_a_folder_without_the_model_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tokenizer is missing"):
        MiniLMEncoder(tmp_path)


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be 'int8' or 'fp32'"):
        MiniLMEncoder(tmp_path, precision="int4")  # type: ignore[arg-type]
