"""The clockwork against a store that is a counter."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from service.metrics import ProcessMetrics
from service.model import Claim
from service.probe import Prober
from service.schedule import Schedule
from service.store import Store


class BusyLoop:
    """A store with nothing due that always says to look again at once, in a process whose loop is late each time."""

    leases_expired = 0

    def __init__(self) -> None:
        self.claims = 0

    async def claim(self, location: str, slots: int) -> list[Claim]:
        self.claims += 1
        return []

    async def seconds_to_next_due(self, location: str) -> float:
        asyncio.get_running_loop().call_soon(time.sleep, 0.03)
        return 0.0


async def test_dispatch_follows_dispatch_however_late_the_loop_is() -> None:
    store = BusyLoop()
    schedule = Schedule(cast(Store, store), cast(Prober, None), {}, "here", ProcessMetrics("here", "0"))
    schedule.start()
    async with asyncio.timeout(5):
        while store.claims < 5:
            await asyncio.sleep(0.01)
    await schedule.drain(1)
    assert schedule.faults() == []


class Stalled:
    """A store whose database answers a claim only when told to."""

    leases_expired = 0

    def __init__(self, claims: list[Any]) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.released: list[Any] = []
        self._claims = claims

    async def claim(self, location: str, slots: int) -> list[Any]:
        self.asked.set()
        await self.answer.wait()
        return self._claims

    async def release(self, claims: list[Any]) -> None:
        self.released += claims


async def test_what_is_claimed_while_the_service_stops_is_given_back() -> None:
    store = Stalled(["a cell", "another"])
    schedule = Schedule(cast(Store, store), cast(Prober, None), {}, "here", ProcessMetrics("here", "0"))
    schedule.start()
    await store.asked.wait()
    draining = asyncio.create_task(schedule.drain(5))
    await asyncio.sleep(0)
    store.answer.set()
    async with asyncio.timeout(2):
        await draining
    assert store.released == ["a cell", "another"]


async def test_a_claim_that_never_ends_does_not_hold_up_the_stop() -> None:
    store = Stalled([])
    schedule = Schedule(cast(Store, store), cast(Prober, None), {}, "here", ProcessMetrics("here", "0"))
    schedule.start()
    await store.asked.wait()
    async with asyncio.timeout(2):
        await schedule.drain(0.05)
