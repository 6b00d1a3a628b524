"""The embedded sentence encoder: all-MiniLM-L6-v2 on this machine's processor.

A text's vector is the same, bit for bit, whatever other texts are encoded along with it. Privacy depends on that:
one person's record must not change the vote of another, not even by a rounding. How wide a row is padded changes
roundings, so the width follows from the text alone and never from its neighbours. Whether 8-bit products keep rows
apart depends on the processor: where they do not, single precision takes their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ModelError
from selpe.models.encoders.base import EncoderBase
from selpe.models.encoders.bert import build
from selpe.models.engine.runtime import openvino

Precision = Literal["int8", "fp32"]

LONGEST = 256  # word pieces, as the model was trained; longer texts are cut
WIDTH_STEP = 8  # texts are padded to a multiple of this many word pieces
TOKENS_PER_BATCH = 2048  # fills the cores, and what a batch needs stays in their caches
_DIMENSION = 384
# Texts of several widths, several of each, by which it is seen whether a row depends on its neighbours.
_PROBES = tuple(f"{start} {'word ' * count}" for count in (1, 5, 14, 40) for start in ("a", "the", "no", "one", "ten"))


class MiniLMEncoder(EncoderBase):
    """Unit vectors of 384 numbers in which texts of like meaning lie close together."""

    def __init__(self, model_dir: Path, *, precision: Precision = "int8", threads: int | None = None) -> None:
        if precision not in ("int8", "fp32"):
            raise ValueError(f"precision must be 'int8' or 'fp32'. Got {precision!r} instead")
        self._tokenizer = _tokenizer(model_dir)
        self._request = _compiled(model_dir, precision, threads)
        if precision == "int8" and not self._keeps_rows_apart():
            # Seen on processors without VNNI, where it is no faster than single precision anyway.
            precision = "fp32"
            self._request = _compiled(model_dir, precision, threads)
        # Row by row: how a text is padded follows from the text alone.
        super().__init__(f"minilm-l6-v2-{precision}", _DIMENSION, remote=None, rowwise=True)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row per text, in order; a text's row is a function of the text alone."""
        rows = np.zeros((len(texts), _DIMENSION), np.float32)
        pieces = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]
        for width, chosen in _batches([len(ids) for ids in pieces]):
            rows[chosen] = self._infer([pieces[i] for i in chosen], width)
        return rows

    def _keeps_rows_apart(self) -> bool:
        """Whether texts have the same rows together and alone, on this processor."""
        alone = np.concatenate([self.encode([text]) for text in _PROBES])
        return np.array_equal(self.encode(_PROBES), alone)

    def _infer(self, pieces: list[list[int]], width: int) -> NDArray[np.float32]:
        ids = np.zeros((len(pieces), width), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(pieces):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        self._request.infer([ids, mask])
        vectors: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return vectors


def _compiled(model_dir: Path, precision: Precision, threads: int | None) -> Any:
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": "NO",
        "INFERENCE_PRECISION_HINT": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "64" if precision == "int8" else "0",
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    model = build(model_dir, eight_bit=precision == "int8")
    return openvino().Core().compile_model(model, "CPU", settings).create_infer_request()


def _batches(lengths: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Widths and the indices of the texts computed at that width, which follows from each text's own length."""
    by_width: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        by_width.setdefault(-(-length // WIDTH_STEP) * WIDTH_STEP, []).append(index)
    for width, indices in by_width.items():
        count = max(TOKENS_PER_BATCH // width, 1)
        for start in range(0, len(indices), count):
            yield width, indices[start : start + count]


def _tokenizer(model_dir: Path) -> Any:
    from tokenizers import Tokenizer

    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise ModelError("the encoder's tokenizer is missing", where=str(path), hint="selpe models pull minilm")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    return tokenizer
