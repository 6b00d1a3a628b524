"""The API keeps to its own description, whatever is sent: schemathesis makes requests from it, right ones and wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from selpe.serve.limits import Limits
from selpe.serve.store import TABLE_NAME
from serve_world import HOST, SECRET, House

schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis.errors import Unsatisfiable  # noqa: E402
from schemathesis import GenerationMode, checks  # noqa: E402
from schemathesis.core.errors import OperationNotFound  # noqa: E402

OPERATIONS = """
GET /v1/health
GET /v1/models
GET /v1/tables
PUT /v1/tables/{table}
GET /v1/tables/{table}
DELETE /v1/tables/{table}
PUT /v1/tables/{table}/schema
GET /v1/tables/{table}/schema
POST /v1/tables/{table}/check
POST /v1/tables/{table}/plan
POST /v1/tables/{table}/runs
GET /v1/tables/{table}/budget
GET /v1/runs
GET /v1/runs/{run}
GET /v1/runs/{run}/events
GET /v1/runs/{run}/release
GET /v1/runs/{run}/page
POST /v1/runs/{run}/approve
POST /v1/runs/{run}/reject
POST /v1/runs/{run}/cancel
POST /v1/runs/{run}/resume
""".strip().splitlines()
# What fits the description can still be refused for what it means: a class that the schema lacks, a missing column.
LEFT_OUT = [checks.positive_data_acceptance]
_LIMITS = Limits(workers=0, tables=6, queue=6, records=60, epsilon=2.0, schema_bytes=4096, stream_seconds=0.2)
_BY_HAND = {"host", "authorization", "content-length", "transfer-encoding", "user-agent"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, str]]:
    """A server with a table and a run that waits."""
    folder = tmp_path_factory.mktemp("contract")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_LEDGER", str(folder / "ledgers"))
        patch.setenv("SELPE_KEY", str(folder / "key"))
        house = House(folder / "root", _LIMITS)
        house.take_in()
        yield house, str(house.submit(epsilon=0.5, budget=2.0).json()["run"])
        house.close()


@pytest.fixture(scope="module")
def described(world: tuple[House, str]) -> Any:
    document = world[0].ask("GET", "/openapi.json").json()
    for operation in (found for path in document["paths"].values() for found in path.values()):
        operation.pop("security", None)  # who may ask is tested by hand
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_api_does_what_it_says(operation: str, mode: Any, described: Any, world: tuple[House, str]) -> None:
    house, run = world
    method, path = operation.split()
    try:
        cases = described[path][method].as_strategy(generation_mode=mode)
    except OperationNotFound:
        pytest.fail(f"{operation} is not described")

    @settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def keeps_to_it(case: Any) -> None:
        aim(case, {"table": "desk", "run": run})
        response = send(house, case)
        assert response.status_code < 500, response.text
        case.validate_response(response, excluded_checks=LEFT_OUT)

    try:
        keeps_to_it()
    except Unsatisfiable:  # there is no wrong way to ask for this
        assert mode == GenerationMode.NEGATIVE


def test_every_address_is_put_to_the_test(described: Any) -> None:
    found = {f"{operation.ok().method.upper()} {operation.ok().path}" for operation in described.get_all_operations()}
    assert found == set(OPERATIONS)


def aim(case: Any, known: dict[str, str]) -> None:
    """Half of the names that could be names become names of things that exist, so that not everything is missing."""
    for name, value in known.items():
        given = (case.path_parameters or {}).get(name)
        if isinstance(given, str) and re.fullmatch(TABLE_NAME, given) and len(given) % 2:
            case.path_parameters[name] = value


def send(house: House, case: Any) -> httpx.Response:
    """The server's answer to a case."""
    wanted = case.as_transport_kwargs(base_url=f"http://{HOST}")
    headers = {k: v for k, v in dict(wanted.get("headers") or {}).items() if k.lower() not in _BY_HAND}
    request = httpx.Request(
        wanted["method"], wanted["url"], params=wanted.get("params"), content=wanted.get("data"),
        json=wanted.get("json"), headers={**headers, "Authorization": f"Bearer {SECRET}"},
    )  # fmt: skip
    assert urlsplit(str(request.url)).netloc == HOST
    return house.do(house.client().send(request))
