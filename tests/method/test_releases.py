from __future__ import annotations

from selpe.method.generation import Candidate, Proposal
from selpe.method.guides import Guide
from selpe.method.releases import Origin, make_releases
from small_world import SCHEMA, drawn


def world() -> tuple[dict[str, list[Candidate]], dict[str, list[Origin]]]:
    included: dict[str, list[Candidate]] = {}
    origins: dict[str, list[Origin]] = {}
    for number, label in enumerate(SCHEMA.labels):
        records = drawn(60, offset=1000 * number)
        candidates = [
            Candidate(record, "", Proposal(Guide("a" if i % 2 else "b"), i, positives=(record,) if i % 3 else ()))
            for i, record in enumerate(records)
        ]
        origins[label] = [Origin(c, i // 30, i / 59, not c.proposal.positives) for i, c in enumerate(candidates)]
        included[label] = candidates[:12]
    return included, origins


def test_candidate_releases_have_the_class_sizes_of_the_evolved_set_which_comes_first() -> None:
    included, origins = world()
    releases = make_releases(included, origins, count=24, seed=1)
    assert len(releases) == 24
    assert releases[0].name == "evolved"
    assert releases[0].records == {label: tuple(records) for label, records in included.items()}
    for release in releases:
        for label in SCHEMA.labels:
            assert len({id(candidate) for candidate in release.records[label]}) == 12


def test_candidate_releases_really_differ_and_are_the_same_for_the_same_seed() -> None:
    included, origins = world()
    one, two = (make_releases(included, origins, count=24, seed=1) for _ in range(2))
    assert one == two
    assert len({tuple(id(c) for c in release.records["low"]) for release in one}) == 24
    assert make_releases(included, origins, count=24, seed=2) != one


def test_a_policy_takes_what_its_name_says() -> None:
    included, origins = world()
    made = {release.name: release.records for release in make_releases(included, origins, count=24, seed=3)}
    taken = {name: [candidate for each in records.values() for candidate in each] for name, records in made.items()}
    assert not any(candidate.proposal.positives for candidate in taken["without exemplars"])
    assert {candidate.proposal.guide.name for candidate in taken["guide 'a'"]} == {"a"}
