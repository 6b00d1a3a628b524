"""Judging synthetic records: validity of raw model output, fidelity, utility and privacy attacks.

`selpe.evaluate(run, test=…)` does all of it (see whole.py); the modules here do each part by itself.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Evaluate(ModuleType):
    """This package, which can be called: `selpe.evaluate(…)` must mean the same whether or not it was imported."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from selpe.evaluate.whole import evaluate

        return evaluate(*arguments, **settings)


sys.modules[__name__].__class__ = _Evaluate
