"""The sums of the last day: no page waits for them, and they are read again once a minute at most."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from service.derive import Shown
from service.web.last_day import Day, LastDay
from service.web.states import States
from tests.samples import MINUTE, NOW, SECOND, View, row, snapshot, standing

READ = Day({"alpha": (281, 287)}, {"alpha": (0.4,)})


class Sums:
    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def shares(self, length: timedelta) -> Mapping[str, tuple[int, int]]:
        self.calls += 1
        assert length == timedelta(hours=24)
        await self.gate.wait()
        if self.error:
            raise self.error
        return READ.shares

    async def first_tokens(self) -> Mapping[str, Sequence[float | None]]:
        return READ.first_tokens


class World:
    """A last day whose clock is moved by hand."""

    def __init__(self) -> None:
        self.sums, self.now = Sums(), 0.0
        self.day = LastDay(self.sums, (ConnectionError,), lambda: self.now)

    async def get(self) -> Day:
        """What is known once everything that could be read has been."""
        self.day.get()
        for _ in range(5):
            await asyncio.sleep(0)
        return self.day.get()


async def test_nothing_is_known_at_first_and_then_what_was_read() -> None:
    world = World()
    assert world.day.get() == Day()
    assert await world.get() == READ


async def test_it_is_read_once_a_minute_at_most_and_by_one_reader_at_a_time() -> None:
    world = World()
    world.sums.gate.clear()
    for moment in (0.0, 59.0, 300.0):
        world.now = moment
        assert await world.get() == Day()
    assert world.sums.calls == 1
    world.sums.gate.set()
    world.now = 301.0
    assert await world.get() == READ
    await world.get()
    assert world.sums.calls == 2
    world.now = 360.9
    await world.get()
    assert world.sums.calls == 2


async def test_when_it_can_not_be_read_the_old_is_kept_for_an_hour() -> None:
    world = World()
    await world.get()
    world.sums.error = ConnectionError("gone")
    for moment, known in ((61.0, READ), (3600.0, READ), (3601.0, Day())):
        world.now = moment
        assert await world.get() == known
    world.sums.error, world.now = None, 3661.0
    assert await world.get() == READ


async def test_a_fault_of_ours_is_not_taken_for_a_lost_database() -> None:
    world = World()
    world.sums.error = ZeroDivisionError("ours")
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(str(told["exception"])))
    assert await world.get() == Day()
    import gc

    gc.collect()
    assert failures == ["ours"]


async def test_closing_gives_up_what_is_being_read() -> None:
    world = World()
    world.sums.gate.clear()
    world.day.get()
    await asyncio.sleep(0)
    await asyncio.wait_for(world.day.close(), 60)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def test_states_are_derived_once_a_snapshot_and_again_after_a_second() -> None:
    states, cells = States(), snapshot(row(state=standing(ago=30 * MINUTE - 2 * SECOND)))
    first = states.of(View(cells))
    assert states.of(View(cells, age_s=0.9)) is first
    assert first[0].shown is Shown.PROVEN
    assert states.of(View(cells, age_s=3))[0].shown is Shown.UNKNOWN
    other = snapshot(row(state=standing()))
    assert states.of(View(other, age_s=3)) is not first
    assert states.of(View(other, age_s=3))[0].shown is Shown.PROVEN


@pytest.mark.parametrize("back_s", [1, 3600])
def test_a_clock_that_was_set_back_keeps_no_state(back_s: int) -> None:
    states, cells = States(), snapshot(row(state=standing()))
    first = states.of(View(cells))
    assert states.of(View(cells, at=NOW - back_s * SECOND)) is not first
