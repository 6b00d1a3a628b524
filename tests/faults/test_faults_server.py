"""Damaged files of a server: it starts, tells of what is whole, and leaves the rest alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults_world import damaged, fuzz, twisted
from serve_world import House


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server with two runs that wait."""
    folder = tmp_path_factory.mktemp("house")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELPE_LEDGER", str(folder / "ledgers"))
        patch.setenv("SELPE_KEY", str(folder / "key"))
        house = House(folder / "root")
        house.take_in()
        for _ in range(2):
            assert house.submit(epsilon=1.0, budget=4.0).status_code == 202
        yield house
        house.close()


@fuzz
@given(data=st.data())
def test_a_run_whose_files_are_damaged_does_not_hide_the_others(house: House, data: st.DataObject) -> None:
    runs = sorted(path for path in (house.root / "runs").iterdir() if path.is_dir())
    path = runs[0] / data.draw(st.sampled_from(("manifest.json", "work/accepted.json")))
    before = path.read_bytes()
    other = data.draw(twisted(json.loads(before)).map(lambda content: json.dumps(content).encode()) | damaged(before))
    try:
        path.write_bytes(other)
        told = house.ask("GET", "/v1/runs")
        assert told.status_code == 200
        assert runs[1].name in {run["run"] for run in told.json()["runs"]}
        for address in (f"/v1/runs/{runs[0].name}", "/v1/tables/desk/budget", f"/v1/runs/{runs[0].name}/events"):
            assert house.ask("GET", address).status_code < 500
        assert house.ask("GET", f"/v1/runs/{runs[0].name}/release").status_code < 500
    finally:
        path.write_bytes(before)


def test_a_server_starts_beside_a_damaged_run(house: House, tmp_path: Path) -> None:
    for number, raw in enumerate((b"", b"[]", b'{"name": 1}', b"\0" * 100)):
        half = tmp_path / "root" / "runs" / f"desk-{number}"
        (half / "work").mkdir(parents=True)
        (half / "manifest.json").write_bytes(raw)
    other = House(tmp_path / "root")
    try:
        assert other.ask("GET", "/v1/runs").json()["runs"] == []
    finally:
        other.close()
