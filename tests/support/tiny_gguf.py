"""A GGUF file of a random Llama with two layers: everything but sense, in a few hundred kilobytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, CONTEXT = 128, 256, 2, 2, 1, 512


def byte_names() -> list[str]:
    """How byte-level BPE writes the 256 bytes: printable ones as they are, the others moved up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def write_tiny_gguf(path: Path, kind: GGMLQuantizationType = GGMLQuantizationType.Q4_1) -> None:
    """Writes the model with its matrices in the given format."""
    numbers = np.random.Generator(np.random.Philox(key=5))
    letters = byte_names()
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "th", "Ġa", "in"]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(["t h", "Ġ a", "i n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)

    def matrix(name: str, rows: int, columns: int) -> None:
        data = (numbers.normal(size=(rows, columns)) * 0.2).astype(np.float32)
        writer.add_tensor(name, quants.quantize(data, kind), raw_dtype=kind)

    kv_width = WIDTH // HEADS * KV_HEADS
    matrix("token_embd.weight", len(tokens), WIDTH)
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", kv_width, WIDTH),
            ("attn_v", kv_width, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", INNER, WIDTH),
            ("ffn_up", INNER, WIDTH),
            ("ffn_down", WIDTH, INNER),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
