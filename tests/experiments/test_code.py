"""The hash by which an experiment knows the code that a result is from."""

from __future__ import annotations

from pathlib import Path

import selpe
from selpe.experiments.code import deciding

HOME = Path(selpe.__file__).parent


def test_what_decides_a_figure_is_in_the_hash_and_what_shows_it_is_not() -> None:
    files = deciding(HOME)
    for inside in ("models/engine/sampling.py", "models/sampled_text.py", "method/algorithm.py", "privacy/votes.py",
                   "method/prompts/chat_record.j2", "intake/cells.py"):  # fmt: skip
        assert inside in files
    for room in ("cli/", "report/", "serve/", "watch/", "experiments/", "intake/draft/", "models/store/"):
        assert (HOME / room).is_dir()
        assert not [inside for inside in files if inside.startswith(room)]
