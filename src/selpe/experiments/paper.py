"""The figures that the paper prints, to compare with ours.

Source: 'SelPE: Progressive Selection for Private Structured Text Synthesis', KDD 2026, doi 10.1145/3770855.3817858,
tables 'Main results', 'Transferability', 'Ablation study' and 'Privacy evaluation'. The generator is
Llama-3.1-8B-Instruct unless a row names another; the text view is RoBERTa, the structured view TabSTAR, both as ROC-AUC
in percent, one-vs-rest, macro average. Our own figures are of other models and other splits: only the order of
methods can be compared, not the level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

CITATION = "SelPE: Progressive Selection for Private Structured Text Synthesis, KDD 2026"
Figures: TypeAlias = tuple[float | None, ...]

EPSILONS = (math.inf, 4.0, 2.0, 1.0)
_MAIN = """
Water dpds    57.54 56.97 -      45.81 52.88 -      45.81 52.23 -      45.81 44.61 -
Water dpgen   83.69 61.91 100    77.65 59.07 100    76.85 53.67 99.95  78.03 58.74 100
Water augpe   64.99 52.11 98.35  58.96 52.11 52.10  63.17 54.63 52.15  64.46 53.93 53.15
Water wasp    85.08 57.38 55.40  82.15 57.02 53.25  85.34 54.15 62.05  78.52 52.22 39.45
Water ctcl    44.25 59.78 96.15  52.08 51.25 0      55.75 50.58 0      52.43 50.21 0
Water selpe   86.95 66.80 100    86.62 65.07 100    84.98 64.89 100    85.86 63.15 100
Mimic dpds    70.48 56.47 -      55.58 52.91 -      55.58 47.26 -      55.58 48.50 -
Mimic dpgen   56.22 63.46 78.94  55.07 53.46 66.20  51.35 51.89 68.05  50.96 50.70 66.20
Mimic augpe   54.22 56.04 96.95  54.26 47.53 54.20  50.06 51.29 55.10  40.59 47.21 56.00
Mimic wasp    70.27 52.21 45.75  63.57 52.55 49.75  68.02 53.17 56.25  62.85 43.19 52.75
Mimic ctcl    54.63 49.31 8.36   48.42 52.06 0      48.53 46.95 0      50.62 48.54 0
Mimic selpe   75.15 68.67 95.20  66.08 59.34 87.05  62.44 59.65 91.90  65.06 53.20 95.80
Loan  dpds    49.84 55.30 -      47.74 53.57 -      47.74 52.63 -      47.73 45.48 -
Loan  dpgen   53.64 50.42 83.08  54.41 52.21 95.37  54.76 48.86 94.89  53.42 47.44 94.67
Loan  augpe   49.01 49.47 90.50  49.33 49.56 49.54  48.72 51.46 49.04  50.01 49.12 50.50
Loan  wasp    58.51 49.64 14.43  58.22 51.89 12.11  58.01 49.64 22.36  55.78 53.11 18.36
Loan  ctcl    49.86 48.98 100    48.64 52.11 0      50.67 46.94 0      51.00 49.03 0
Loan  selpe   55.54 55.27 93.21  57.18 56.43 97.57  55.55 53.21 98.21  58.27 53.21 95.00
"""
_BACKBONE = """
Llama-3.1-8B-Instruct  75.15 68.67 95.20  66.08 59.34 87.05  62.44 59.65 91.90  65.06 53.20 95.80
Gemma-2-9B-Instruct    64.20 60.21 49.75  63.57 59.48 43.95  62.71 59.48 61.50  62.01 54.02 82.30
Mistral-7B-Instruct    66.95 66.44 62.35  64.97 57.15 39.60  61.79 53.37 27.20  57.20 52.36 93.65
Qwen-2.5-7B-Instruct   63.85 64.74 95.65  64.50 60.10 99.50  63.20 59.26 100    69.29 57.40 99.25
Qwen-2.5-14B-Instruct  70.24 66.52 99.85  67.75 56.23 95.60  66.53 60.12 99.95  68.64 60.11 99.95
"""
_PRIVACY = """
Water dpgen 1.00 8.16  3.00
Water augpe 1.00 9.05  8.00
Water wasp  0.99 8.71  14.00
Water ctcl  1.00 7.04  7.00
Water selpe 1.00 7.47  8.00
Mimic dpgen 1.00 10.13 12.00
Mimic augpe 1.00 10.03 36.00
Mimic wasp  0.99 9.90  16.00
Mimic ctcl  1.00 7.92  0.00
Mimic selpe 1.00 9.99  10.00
Loan  dpgen 1.00 16.02 12.86
Loan  augpe 1.00 15.51 20.00
Loan  wasp  0.99 16.02 41.43
Loan  ctcl  1.00 14.04 2.86
Loan  selpe 1.00 16.20 11.43
"""
# Table 'Ablation study', MIMIC at ε = 2: text, structured.
ABLATION: Mapping[str, Figures] = {
    "full": (62.44, 59.65),
    "without contrast": (59.19, 51.93),
    "without progressive quota": (61.36, 54.22),
    "without two stages": (60.32, 51.27),
    "without field kernel": (62.38, 55.13),
}


def _read(word: str) -> float | None:
    return None if word == "-" else float(word)


def _rows(text: str, names: int) -> dict[tuple[str, ...], Figures]:
    """Rows of a table: the first words are its name, the rest figures."""
    lines = (line.split() for line in text.strip().splitlines())
    return {tuple(words[:names]): tuple(map(_read, words[names:])) for words in lines}


_MAIN_ROWS, _BACKBONE_ROWS, _PRIVACY_ROWS = _rows(_MAIN, 2), _rows(_BACKBONE, 1), _rows(_PRIVACY, 2)


def main(data: str, method: str, epsilon: float) -> Figures | None:
    """Text AUC, structured AUC and R-CFG of a method (ours: 'selpe') on a data set, as the paper names it."""
    return _at(_MAIN_ROWS.get((data, method)), epsilon)


def backbones() -> tuple[str, ...]:
    """The generators of the table on transfer."""
    return tuple(name for (name,) in _BACKBONE_ROWS)


def backbone(name: str, epsilon: float) -> Figures | None:
    """Text AUC, structured AUC and S-CFG with a generator, on MIMIC."""
    return _at(_BACKBONE_ROWS.get((name,)), epsilon)


def privacy(data: str, method: str) -> Figures | None:
    """NRS, DCR, and the true positive rate in percent at a false positive rate of 1 %."""
    return _PRIVACY_ROWS.get((data, method))


def _at(row: Figures | None, epsilon: float) -> Figures | None:
    if row is None or epsilon not in EPSILONS:
        return None
    place = 3 * EPSILONS.index(epsilon)
    return row[place : place + 3]
