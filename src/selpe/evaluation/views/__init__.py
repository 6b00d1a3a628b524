"""The predictors that utility is measured by, one module each, behind one protocol, opened by name.

| name | kind | what it is |
|---|---|---|
| `minilm` | text | sentence embeddings and logistic regression; embedded |
| `boosted` | structured | columns per field and gradient boosting; embedded |
| `roberta`, `roberta:<model>` | text | a fine-tuned Hugging Face classifier (extra `[hf]`) |
| `tabstar` | structured | TabSTAR, in an environment of its own |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.evaluation.views.base import View
    from selpe.evaluation.views.embedding import Embeddings
    from selpe.schema import Schema

__all__ = ["VIEWS", "open_view"]

VIEWS = ("minilm", "boosted", "roberta", "tabstar")


def open_view(name: str, schema: Schema, embeddings: Embeddings) -> View:
    """The view of that name for records of a schema; views that embed texts share `embeddings`."""
    kind, _, model = name.partition(":")
    if kind not in VIEWS or (model and kind != "roberta"):
        raise ConfigError(f"there is no view '{name}'", hint=f"the views are {', '.join(VIEWS)} and roberta:<model>")
    if kind == "roberta":
        from selpe.evaluation.views.roberta import RobertaView

        return RobertaView(schema, model or "roberta-base", name=name)
    if kind == "tabstar":
        from selpe.evaluation.views.tabstar import TabStarView

        return TabStarView(schema)
    if kind == "boosted":
        from selpe.evaluation.views.boosted import BoostedView

        return BoostedView(schema, embeddings)
    from selpe.evaluation.views.text import TextView

    return TextView(schema, embeddings)
