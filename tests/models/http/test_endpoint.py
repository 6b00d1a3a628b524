"""Back-off, circuit breaker and concurrency limit, each on its own."""

from __future__ import annotations

import random

import pytest

from selpe.models.http.endpoint import Backoff, Breaker, Limit


def test_waiting_times_are_spread_evenly_below_a_bound_that_doubles_up_to_the_cap() -> None:
    backoff = Backoff(base=1.0, cap=8.0, rng=random.Random(1))
    for failures, bound in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0), (10_000, 8.0)):
        waits = [backoff.delay(failures) for _ in range(400)]
        assert 0.0 <= min(waits) < 0.1 * bound
        assert 0.9 * bound < max(waits) <= bound


def test_the_breaker_opens_after_three_failures_in_a_row_only() -> None:
    breaker = Breaker()
    breaker.lost(0.0)
    breaker.lost(0.0)
    breaker.won()
    breaker.lost(0.0)
    breaker.lost(0.0)
    assert breaker.ready(0.0)
    breaker.lost(0.0)
    assert not breaker.ready(0.5)


def test_after_the_bench_one_trial_decides_and_benches_double() -> None:
    breaker = Breaker(threshold=1, cooldown=1.0, cap=3.0)
    now, benches = 0.0, []
    breaker.lost(now)
    for _ in range(4):
        benches.append(breaker.retry_at - now)
        now = breaker.retry_at
        assert breaker.ready(now)
        breaker.begin()
        assert not breaker.ready(now)
        breaker.lost(now)
    assert benches == [1.0, 2.0, 3.0, 3.0]
    breaker.begin()
    breaker.won()
    assert breaker.state == "closed"


def test_failures_that_were_under_way_do_not_lengthen_the_bench() -> None:
    breaker = Breaker(threshold=1)
    breaker.lost(0.0)
    retry_at = breaker.retry_at
    breaker.lost(0.9)
    assert breaker.retry_at == retry_at


def test_a_trial_that_is_called_off_can_be_made_anew() -> None:
    breaker = Breaker(threshold=1)
    breaker.lost(0.0)
    breaker.begin()
    breaker.abandon(5.0)
    assert breaker.ready(5.0)


def test_an_endpoint_is_dead_after_patience_or_at_once_for_a_final_failure() -> None:
    breaker = Breaker(threshold=1, patience=10.0)
    breaker.lost(0.0)
    assert not breaker.dead(10.0)  # nobody has tried it out yet
    breaker.begin()
    breaker.lost(1.0)
    assert not breaker.dead(9.0)
    assert breaker.dead(10.0)
    assert breaker.ready(10.0)  # but still worth a trial
    final = Breaker()
    final.lost(0.0, final=True)
    final.won()
    assert final.dead(0.0)
    assert not final.ready(1e9)


def run(limit: Limit, capacity: int, answers: int, tokens: float = 10.0) -> None:
    """Feeds the limit with a server that works on `capacity` requests at once, a second each, and queues the rest."""
    now, done = 0.0, 0
    while done < answers:
        at_once = limit.slots
        seconds = max(1.0, at_once / capacity)
        now += seconds
        for _ in range(at_once):
            limit.won(now, seconds=seconds, work=tokens, in_use=at_once)
            done += 1


@pytest.mark.parametrize("capacity", [2, 8, 32])
def test_the_limit_settles_near_what_the_server_can_do_at_once(capacity: int) -> None:
    limit = Limit(ceiling=256)
    run(limit, capacity, 4000)
    assert capacity / 2 <= limit.slots <= 2.5 * capacity + 2


def test_the_limit_grows_to_the_ceiling_while_throughput_follows_and_no_further() -> None:
    limit = Limit(ceiling=24)
    run(limit, 1000, 500)
    assert limit.slots == 24


def test_the_limit_does_not_grow_while_it_is_not_used() -> None:
    limit = Limit()
    for i in range(100):
        limit.won(float(i), seconds=1.0, work=10.0, in_use=1)
    assert limit.slots == 4


def test_being_turned_away_halves_the_limit_once_for_all_that_was_under_way() -> None:
    limit = Limit(start=32)
    for _ in range(20):
        limit.lost(10.0, started=9.0)
    assert limit.slots == 16
    limit.lost(12.0, started=11.0)
    assert limit.slots == 8
    for now in range(20, 40):
        limit.lost(float(now), started=float(now))
    assert limit.slots == 1


def test_a_server_that_has_become_slow_is_pressed_less_but_not_starved() -> None:
    limit = Limit(ceiling=64)
    run(limit, 16, 1000)
    before = limit.slots
    for i in range(3000):
        limit.won(1e6 + i, seconds=10.0, work=10.0, in_use=limit.slots)
    assert 1 < limit.slots < before
