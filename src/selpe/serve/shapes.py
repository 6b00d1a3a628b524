"""The forms of the answers, as the API's description states them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from selpe.serve.runs import State
from selpe.serve.store import TableFormat


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(_Shape):
    """What was wrong: never a value of a table."""

    kind: str = Field(description="One word, for machines.")
    message: str
    where: str = Field("", description="A file, a row, a field, a table or a run.")
    hint: str = Field("", description="What to do about it.")


class Refusal(_Shape):
    """The body of every answer that is not a success."""

    error: Problem


class Health(_Shape):
    """That the server answers, and nothing else."""

    status: Literal["ok"] = "ok"


class Models(_Shape):
    """The models and encoders that a run may name; the first of each is the default."""

    models: list[str]
    encoders: list[str]


class TableAbout(_Shape):
    """What is known of an uploaded table without reading it."""

    table: str
    format: TableFormat
    bytes: int
    uploaded: str
    has_schema: bool


class Tables(_Shape):
    """All tables of the server."""

    tables: list[TableAbout]


class FieldAbout(_Shape):
    """One field of a schema."""

    name: str
    kind: str
    optional: bool


class SchemaAbout(_Shape):
    """What a schema says. A run needs every field confirmed."""

    name: str
    fields: list[FieldAbout]
    label: str | None
    labels: list[str]
    rules: int
    unconfirmed: list[str]


class Checked(_Shape):
    """How a table fits its schema: rows and fields, never a value."""

    ok: bool
    rows: int
    fit: int
    problems: list[str]
    more_problems: int
    notes: list[str]
    unconfirmed: list[str]


class Planned(_Shape):
    """What a run would do and cost. Nothing is spent by asking."""

    allowed: bool = Field(description="Whether the budget holds the whole run now.")
    refusal: str | None
    budget_free: float | None = Field(description="ε neither spent nor set aside; null while there is no budget.")
    plan: dict[str, Any]
    estimate: dict[str, Any]
    warnings: list[str]
    verdict: str


class ApprovalState(_Shape):
    """Whether a second person has agreed to what a run will spend."""

    state: Literal["waiting", "given", "refused"]
    by: str | None = Field(description="Who has decided.")
    at: str | None


class RunAbout(_Shape):
    """A run as it stands."""

    run: str
    table: str
    state: State
    method: str
    llm: str
    encoder: str
    records: int
    epsilon: float
    delta: float
    adjacency: str
    seed: int
    submitted: str
    finished: str | None
    seconds: float | None
    private: bool | None
    spent: dict[str, Any] | None
    counts: dict[str, Any] | None
    error: Problem | None
    budget: float | None = Field(None, description="The budget that it sets if its table has none yet.")
    submitted_by: str | None = Field(None, description="The client; null on a server of one token.")
    approval: ApprovalState | None = Field(None, description="Null where none is needed.")


class Runs(_Shape):
    """Runs, the latest first."""

    runs: list[RunAbout]
    total: int


class BudgetAbout(_Shape):
    """The budget of a table, under its own neighbour relation."""

    table: str
    budget: dict[str, Any] | None
    used: float | None
    left: float | None = Field(description="ε not spent yet.")
    free: float | None = Field(description="ε neither spent nor set aside.")
    by_run: dict[str, dict[str, float]]
    set_aside: list[str] = Field(description="Accepted runs that are not over.")


class PageAbout(_Shape):
    """Where a browser can watch a run. Whoever has the address can, without the token."""

    path: str
