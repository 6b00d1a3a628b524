from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.models.encoders import Encoder
from selpe.models.encoders.hashing import HashingEncoder


def test_it_is_an_encoder_that_keeps_texts_here() -> None:
    encoder = HashingEncoder()
    assert isinstance(encoder, Encoder)
    assert encoder.remote is None


@given(st.lists(st.text(), max_size=8))
def test_every_row_is_a_unit_vector(texts: list[str]) -> None:
    rows = HashingEncoder(64).encode(texts)
    assert rows.shape == (len(texts), 64)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


def test_texts_that_share_words_lie_closer() -> None:
    a, b, c = HashingEncoder().encode(["chest pain since morning", "pain in the chest", "leaking water bottle"])
    assert a @ b > a @ c + 0.2


def test_the_same_text_gets_the_same_vector_in_another_process() -> None:
    code = (
        "from selpe.models.encoders.hashing import HashingEncoder; "
        "print(HashingEncoder(16).encode(['sore throat']).tolist())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert other.stdout.strip() == str(HashingEncoder(16).encode(["sore throat"]).tolist())


def test_a_tiny_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        HashingEncoder(2)
