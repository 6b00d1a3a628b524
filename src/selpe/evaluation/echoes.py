"""How many records copy the schema's examples.

The examples are public and shown to the model. A record that repeats one says nothing new, and a model that repeats
them has not understood what it was asked for. Generation looks for the same copies while it writes (`method.echoes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from selpe.evaluation.words import text_fields
from selpe.method.echoes import EchoCheck
from selpe.schema import Record, Schema


@dataclass(frozen=True, slots=True)
class EchoCount:
    """Records counted, those of them that copy an example, the copies in each text field that has any, and near copies.

    Near copies are no copies: most of a text of theirs stands in an example, but not six words of it in a row.
    """

    records: int
    echoed: int
    fields: Mapping[str, int] = field(default_factory=dict)
    near: int = 0

    @property
    def share(self) -> float:
        """The share of records that copy an example. Without records, 0."""
        return self.echoed / self.records if self.records else 0.0

    @property
    def near_share(self) -> float:
        """The share of records that are near copies. Without records, 0."""
        return self.near / self.records if self.records else 0.0


def echoes(schema: Schema, records: Sequence[Record]) -> EchoCount:
    """The records with a text that shares six words in a row with a text of an example, or is one of four or more.

    A record that equals an example in every field counts too, even where its texts are shorter.
    """
    check = EchoCheck(schema)
    known = check.texts(())
    names = [one.name for one in text_fields(schema)]
    fields: Counter[str] = Counter()
    echoed = near = 0
    for record in records:
        copied = [name for name in names if isinstance(text := record.get(name), str) and check.copies(text, known)]
        fields.update(copied)
        copy = bool(copied) or check.is_echo(record, (), ())
        echoed += copy
        near += not copy and check.is_near(record)
    return EchoCount(len(records), echoed, {name: fields[name] for name in names if fields[name]}, near)
