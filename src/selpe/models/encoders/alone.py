"""Private texts as vectors: each a function of its own text, whatever other rows there are.

Padding and shape of a batch touch the last bits of its vectors, and a server may do with a batch what it likes. So
an encoder gets a private text by itself unless it runs in this process and promises that company does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from selpe.models.encoders.base import Encoder


def encode_alone(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """One unit row per text, in order, for texts that may be private.

    To a server goes one text a request, and the next one when it has answered: it never has two to put together. Equal
    texts are asked once. That saves a request and changes no vector.
    """
    if not texts or (encoder.rowwise and encoder.remote is None):
        return encoder.encode(texts)
    known = {text: encoder.encode([text])[0] for text in dict.fromkeys(texts)}
    return np.stack([known[text] for text in texts])
