"""The schema 𝒮 = (𝒞, 𝒱, 𝓡): field labels, their domains, and the rules between them.

One object serves everything: prompt text, the JSON Schema that decoding obeys, the grammars that judge validity,
the kernel's channels, the validator and the report.
"""

from selpe.schema.core import Schema
from selpe.schema.fields import (
    BooleanField,
    CategoryField,
    DateField,
    Field,
    IntegerField,
    NumberField,
    Record,
    Span,
    TextField,
    Value,
    Violation,
)
from selpe.schema.rules import Rule

__all__ = [
    "BooleanField",
    "CategoryField",
    "DateField",
    "Field",
    "IntegerField",
    "NumberField",
    "Record",
    "Rule",
    "Schema",
    "Span",
    "TextField",
    "Value",
    "Violation",
]
