"""Where requests go: by measured speed and by what is under way."""

from __future__ import annotations

import asyncio
from collections import Counter

from selpe.models.http.endpoint import Limit
from selpe.models.http.fleet import Done, Endpoint, Fleet
from selpe.models.http.transport import Address, Transport


def endpoint(name: str, *, pace: float = 0.0, slots: int = 64) -> Endpoint:
    made = Endpoint(Transport(Address.parse(f"http://{name}")), limit=Limit(start=slots))
    made.pace = pace
    return made


async def place(fleet: Fleet, count: int) -> Counter[str]:
    """Where so many requests go that all come at once."""
    release = asyncio.Event()
    seen: Counter[str] = Counter()

    async def job(chosen: Endpoint) -> Done[None]:
        seen[chosen.host] += 1
        await release.wait()
        return Done(None)

    tasks = [asyncio.ensure_future(fleet.deliver(job)) for _ in range(count)]
    while sum(seen.values()) < count:
        await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*tasks)
    return seen


def test_requests_are_shared_out_in_proportion_to_speed() -> None:
    fleet = Fleet([endpoint("slow", pace=0.4), endpoint("fast", pace=0.1)])
    assert asyncio.run(place(fleet, 50)) == {"slow": 10, "fast": 40}


def test_when_the_fast_endpoint_is_full_the_slow_one_helps() -> None:
    fleet = Fleet([endpoint("slow", pace=9.0), endpoint("fast", pace=0.1, slots=5)])
    assert asyncio.run(place(fleet, 12)) == {"slow": 7, "fast": 5}


def test_an_endpoint_not_yet_measured_gets_its_share() -> None:
    fleet = Fleet([endpoint("new"), endpoint("known", pace=0.1)])
    assert asyncio.run(place(fleet, 20)) == {"new": 10, "known": 10}
