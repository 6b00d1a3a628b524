"""How a run was made, from its manifest and its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selpe.events import PoolReady, Selected, Started
from selpe.report.making import making
from selpe.report.sections.making import making_section
from selpe.run.event_log import EventLog

MANIFEST: dict[str, Any] = {
    "name": "desk-1", "state": "done", "seconds": 12.5, "model": "fake", "encoder": "hash-64", "guide": "plain",
    "bundle": "evolved",
    "settings": {"epsilon": "2.0", "adjacency": "add-remove", "records": 8, "data": "/secret/place.csv"},
    "plan": {"rounds": [{"percentile": 0.82}]}, "counts": {"prompt_tokens": 1200, "retries": {"rule": 3}},
    "versions": {"selpe": "1"},
}  # fmt: skip


def told(folder: Path, *events: Any, **changes: Any) -> dict[str, Any]:
    (folder / "work").mkdir(exist_ok=True)
    with EventLog(folder / "work" / "events.jsonl") as log:
        for event in events:
            log.listen(event)
    return making(folder, MANIFEST | changes)


def chosen(name: str, epsilon: float, *, private: bool = True) -> Selected:
    return Selected(name, "permute-and-flip", epsilon, 2 * epsilon, private, False, {"low": (3,)}, {"low": ({"a": 1},)})


def test_choices_have_the_price_under_the_asked_relation(tmp_path: Path) -> None:
    found = told(
        tmp_path, Started(1, 8, 24), PoolReady("round", 1, 22, {"rule": 3}, {"rule": 2}), chosen("round-1", 0.5)
    )
    assert [(one["name"], one["epsilon"]) for one in found["choices"]] == [("round-1", 0.5)]
    assert found["choices"][0]["records"] == {"low": [{"a": 1}]}
    assert found["pools"] == [{"name": "round-1", "found": 22, "retries": 3, "given_up": 2}]
    assert found["expected"] == [82.0]


def test_a_resumed_run_is_told_once(tmp_path: Path) -> None:
    events = (Started(1, 8, 24), chosen("guide", 0.5))
    assert len(told(tmp_path, *events, *events)["choices"]) == 1


def test_without_a_log_the_manifest_tells_the_choices(tmp_path: Path) -> None:
    kept = {key: value for key, value in chosen("round-1", 0.5).as_dict().items() if key != "records"}
    found = told(tmp_path, selections=[json.loads(json.dumps(kept))])
    assert [(one["name"], one["records"]) for one in found["choices"]] == [("round-1", {})]


def test_paths_are_not_part_of_the_story(tmp_path: Path) -> None:
    assert "/secret" not in json.dumps(told(tmp_path))


def test_plans_of_other_methods_expect_nothing(tmp_path: Path) -> None:
    for plan in ({"rounds": 3}, {"rounds": [{"noise": 1.0}]}, {}, None):
        assert told(tmp_path, plan=plan)["expected"] == []


def test_a_choice_without_noise_is_shown_as_a_control(tmp_path: Path) -> None:
    found = told(tmp_path, Started(1, 8, 24), chosen("round-1", float("inf"), private=False))
    assert found["choices"][0]["epsilon"] == "inf"
    section = making_section({"making": found, "winners": None, "subject": {"epsilon": "inf"}})
    assert section is not None
    assert section["controls"]
    assert section["spending"] is None
    assert section["total"] == "∞"


def test_what_was_measured_is_told_and_whether_the_release_follows_it(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    axes = [{"field": "urgency", "kind": "class"}, {"field": "topic", "kind": "text"}]
    measured = {
        "looks": [{"tables": [{"axes": axes}]}], "written_by_the_counts": 0.0, "rest_of_any_class": False,
        "counted": "private records",
    }  # fmt: skip
    (tmp_path / "release" / "measurements.json").write_text(json.dumps(measured), encoding="utf-8")
    found = told(tmp_path, Started(1, 8, 24), chosen("field-1", 0.1), chosen("measure-1", 0.8), chosen("bundle", 0.1))
    assert found["measured"]["fields"] == [["topic"]]
    section = making_section({"making": found, "winners": None, "subject": {"epsilon": 2.0}}, {"topic": "Topic"})
    assert section is not None
    assert section["measured"].startswith("Counted with noise: Topic. The last private choice took a release that does")
    for words in ("vote for field 1 to count", "noisy counts, look 1", "choice among whole releases"):
        assert words in section["spending"]
    (tmp_path / "release" / "measurements.json").write_text("{", encoding="utf-8")
    assert told(tmp_path)["measured"] is None
