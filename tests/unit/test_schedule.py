"""The clockwork against a store that is a counter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import pytest

from service.config import fingerprint
from service.metrics import ProcessMetrics
from service.model import Claim, Route
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


class Shelf:
    """A store that holds some claims; giving back is refused, or never ends."""

    leases_expired = 0

    def __init__(self, claims: list[Claim], release: Callable[[list[Claim]], Awaitable[None]]) -> None:
        self.release = release
        self._claims = claims

    async def claim(self, location: str, slots: int) -> list[Claim]:
        claims, self._claims = self._claims, []
        return claims

    async def seconds_to_next_due(self, location: str) -> None:
        return None


class Asked:
    """A prober whose probes last until they are cancelled."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    async def probe(self, route: Route, contract: str, *_: Any) -> None:
        self.begun.put_nowait(contract)
        await asyncio.Event().wait()


ROUTE = Route("r", "r", "acme", "openai-chat", "https://api.example/v1", "m")


def claim(contract: str, mark: str) -> Claim:
    now = datetime.now(UTC)
    return Claim(1, "r", contract, "here", mark, uuid4(), now, now)


async def test_cells_of_ours_are_probed_even_if_another_configurations_cant_be_given_back() -> None:
    async def refuse(claims: list[Claim]) -> None:
        raise OSError("gone")

    prober = Asked()
    store = Shelf([claim("theirs", "another"), claim("ours", fingerprint(ROUTE))], refuse)
    schedule = Schedule(cast(Store, store), cast(Prober, prober), {"r": ROUTE}, "here", ProcessMetrics("here", "0"))
    schedule.start()
    async with asyncio.timeout(2):
        assert await prober.begun.get() == "ours"
    await schedule.drain(0)


async def test_a_lease_that_cant_be_given_back_does_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(claims: list[Claim]) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("service.schedule.GIVE_BACK_LIMIT_S", 0.05)
    prober = Asked()
    store = Shelf([claim("ours", fingerprint(ROUTE))], hang)
    schedule = Schedule(cast(Store, store), cast(Prober, prober), {"r": ROUTE}, "here", ProcessMetrics("here", "0"))
    schedule.start()
    async with asyncio.timeout(2):
        await prober.begun.get()
        await schedule.drain(0)


class House:
    """A store that is only tidied; `stuck` keeps the first step from ending."""

    def __init__(self, stuck: bool = False) -> None:
        self.done: list[tuple[str, timedelta | None]] = []
        self._stuck = stuck

    async def ensure_partitions(self) -> None:
        if self._stuck:
            await asyncio.Event().wait()
        self.done.append(("made days", None))

    async def drop_partitions(self, older_than: timedelta) -> int:
        self.done.append(("dropped days", older_than))
        return 0

    async def forget(self, older_than: timedelta) -> int:
        self.done.append(("forgot transitions", older_than))
        return 0


async def test_housekeeping_makes_days_and_drops_what_is_past_its_time() -> None:
    store = House()
    schedule = Schedule(cast(Store, store), cast(Prober, None), {}, "here", ProcessMetrics("here", "0"))
    await schedule._housekeeping()
    assert store.done == [
        ("made days", None),
        ("dropped days", timedelta(days=30)),
        ("forgot transitions", timedelta(days=400)),
    ]


async def test_housekeeping_that_hangs_gives_up_until_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.schedule.HOUSEKEEPING_LIMIT_S", 0.05)
    schedule = Schedule(cast(Store, House(stuck=True)), cast(Prober, None), {}, "here", ProcessMetrics("here", "0"))
    async with asyncio.timeout(2):
        await schedule._housekeeping()


async def test_a_claim_that_never_ends_does_not_hold_up_the_stop() -> None:
    store = Stalled([])
    schedule = Schedule(cast(Store, store), cast(Prober, None), {}, "here", ProcessMetrics("here", "0"))
    schedule.start()
    await store.asked.wait()
    async with asyncio.timeout(2):
        await schedule.drain(0.05)
