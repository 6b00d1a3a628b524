"""Which rows take part in a round, and in which batch: decided by random numbers that have seen no row.

Every unit is drawn into a batch on its own. A balanced split (shuffle, then cut) would keep batch sizes equal, but
adding one unit to it can move another unit to a different batch, and the add-remove statement would no longer hold
(PROOF.md, step 5). Independent draws move nobody, so that one round keeps both statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def one_row_each(units: Sequence[Sequence[int]], below: Callable[[int], int]) -> NDArray[np.intp]:
    """One row position per unit, drawn evenly among that unit's rows and independently of all others.

    Rows that abstain are drawn like the others; who does not vote is left out afterwards, when all draws are made.
    """
    return np.array([rows[below(len(rows))] if len(rows) > 1 else rows[0] for rows in units], dtype=np.intp)


def assign(units: int, batches: int, below: Callable[[int], int]) -> NDArray[np.intp]:
    """The batch of each unit, drawn evenly and independently."""
    if batches == 1:
        return np.zeros(units, dtype=np.intp)
    return np.array([below(batches) for _ in range(units)], dtype=np.intp)
