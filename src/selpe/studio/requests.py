"""What the page can ask for: a shape for every request, and the method of the studio that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selpe.errors import ConfigError
from selpe.studio.desk import Task
from selpe.studio.edits import Condition
from selpe.studio.forms import FieldForm
from selpe.studio.studio import Studio

_LONG = 20_000
Texts = dict[str, str]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class _Names(_Asked):
    names: list[str] = Field(max_length=10_000)


class _TryField(_Asked):
    name: str
    form: FieldForm


class _TryExample(_Asked):
    values: Texts


class _TryRule(_Asked):
    then: Condition
    given: Condition | None = None


class _Settings(_Asked):
    changes: Texts


class _Revised(_Asked):
    revision: str


class _SetField(_Revised):
    name: str = Field(min_length=1, max_length=200)
    form: FieldForm


class _RemoveField(_Revised):
    name: str


class _SetAbout(_Revised):
    description: str = Field(max_length=_LONG)
    label: str | None = None


class _AddExample(_Revised):
    values: Texts


class _AddRule(_Revised):
    text: str = Field(min_length=1, max_length=_LONG)


class _RemoveItem(_Revised):
    which: Literal["examples", "rules"]
    place: int


class _SetSettings(_Revised):
    changes: Texts
    confirmed: list[str] = []


class _StartRun(_Revised):
    epsilon: str = Field(max_length=40)


class _Stop(_Asked):
    task: Task


class _RunName(_Asked):
    run: str


class _Evaluate(_RunName):
    test: str = Field("", max_length=4000)


Answer = Callable[[Studio, Any], dict[str, Any]]
# By the last part of the address. What only looks is asked by GET, what does something or sends texts by POST.
GETS: Mapping[str, Callable[[Studio], dict[str, Any]]] = {
    "state": Studio.state,
    "activity": Studio.activity,
    "words": Studio.words,
    "columns": Studio.columns,
}
POSTS: Mapping[str, tuple[type[BaseModel], Answer]] = {
    "show": (_Names, lambda studio, asked: studio.show(asked.names)),
    "try/field": (_TryField, lambda studio, asked: studio.try_field(asked.name, asked.form)),
    "try/example": (_TryExample, lambda studio, asked: studio.try_example(asked.values)),
    "try/rule": (_TryRule, lambda studio, asked: studio.try_rule(asked.then, asked.given)),
    "plan": (_Settings, lambda studio, asked: studio.plan(asked.changes)),
    "field": (_SetField, lambda studio, asked: studio.set_field(asked.name, asked.form, asked.revision)),
    "field/remove": (_RemoveField, lambda studio, asked: studio.remove_field(asked.name, asked.revision)),
    "about": (_SetAbout, lambda studio, asked: studio.set_about(asked.description, asked.label, asked.revision)),
    "example": (_AddExample, lambda studio, asked: studio.add_example(asked.values, asked.revision)),
    "rule": (_AddRule, lambda studio, asked: studio.add_rule(asked.text, asked.revision)),
    "remove": (_RemoveItem, lambda studio, asked: studio.remove_item(asked.which, asked.place, asked.revision)),
    "settings": (
        _SetSettings, lambda studio, asked: studio.set_settings(asked.changes, asked.confirmed, asked.revision),
    ),
    "check": (_Asked, lambda studio, asked: studio.check()),
    "preview": (_Asked, lambda studio, asked: studio.preview()),
    "run": (_StartRun, lambda studio, asked: studio.start_run(asked.epsilon, asked.revision)),
    "stop": (_Stop, lambda studio, asked: studio.stop(asked.task)),
    "resume": (_RunName, lambda studio, asked: studio.resume(asked.run)),
    "evaluate": (_Evaluate, lambda studio, asked: studio.evaluate(asked.run, asked.test)),
}  # fmt: skip


# These look at what a person is just typing: that it is not right yet is an answer, and no failure.
LOOKING = frozenset({"try/field", "try/example", "try/rule", "plan"})


def read_request(shape: type[BaseModel], body: bytes) -> BaseModel:
    """A request's body in its shape. Raises ConfigError, which does not repeat the input."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as invalid:
        first = invalid.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(str(first["msg"]), where=where or "the request") from None
