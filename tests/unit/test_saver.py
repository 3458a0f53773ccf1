"""Finished verdicts between the probes and the database: nothing is in memory alone for long."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from service.metrics import ProcessMetrics
from service.model import Claim, Status, Verdict
from service.saver import Saver
from service.spool import Spool, SpoolError
from service.store import Store
from tests.unit.test_schedule import claim, probed

Batch = Sequence[tuple[Claim, Verdict]]


class Table:
    """A store that saves as it is told to."""

    refused = leases_lost = 0

    def __init__(self, save: Callable[[Batch], Awaitable[None]]) -> None:
        self.saved: list[UUID] = []
        self._save = save

    async def save(self, batch: Batch) -> None:
        await self._save(batch)
        self.saved += [verdict.id for _, verdict in batch]


def verdict() -> Verdict:
    return probed("native_tools", Status.TOOLS_SUPPORTED).verdict


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(saver: Saver) -> AsyncIterator[None]:
    task = asyncio.create_task(saver.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def saver_of(save: Callable[[Batch], Awaitable[None]], spool: Spool) -> tuple[Saver, Table]:
    table = Table(save)
    return Saver(cast(Store, table), spool, ProcessMetrics("here", "0")), table


async def takes(_: Batch) -> None:
    pass


async def refuses(_: Batch) -> None:
    raise OSError("away")


@pytest.fixture
def spool(tmp_path: Path) -> Any:
    made = Spool(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.saver.LOOK_S", 0.01)
    monkeypatch.setattr("service.saver.RETRY_S", 0.01)


def left_by_another(folder: Path, *kept: Verdict) -> None:
    gone = Spool(folder)
    gone.append([(claim(), one) for one in kept])
    gone.close()


async def test_what_ends_while_a_save_hangs_goes_to_disk_and_leaves_it_when_it_is_saved(spool: Spool) -> None:
    hangs = asyncio.Event()

    async def save(_: Batch) -> None:
        await hangs.wait()

    saver, table = saver_of(save, spool)
    first, second = verdict(), verdict()
    async with running(saver):
        saver.put(claim(), first)
        await until(lambda: len(spool) == 1)
        saver.put(claim(), second)
        await until(lambda: len(spool) == 2)
        assert saver.unsaved == 2
        hangs.set()
        await until(lambda: len(spool) == 0)
    assert table.saved == [first.id, second.id]


async def test_what_waits_behind_other_saves_goes_to_disk_as_well(spool: Spool) -> None:
    """Each save is quick, and there are more than one."""
    more = asyncio.Semaphore(0)

    async def save(_: Batch) -> None:
        await more.acquire()

    saver, _ = saver_of(save, spool)
    for _ in range(500):
        saver.put(claim(), verdict())
    async with running(saver):
        await until(lambda: len(spool) == 500)


async def test_the_disk_has_nothing_to_do_while_the_database_is_quick(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (writes.append(file), sync(file)))
    monkeypatch.setattr("service.saver.LOOK_S", 0.0)  # it looks whenever it can
    saver, table = saver_of(takes, spool)
    async with running(saver):
        for _ in range(50):
            saver.put(claim(), verdict())
            await until(lambda: not saver.unsaved)
            await asyncio.sleep(0)
    assert len(table.saved) == 50
    assert writes == []


async def test_a_disk_that_hangs_keeps_nothing_from_being_saved(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, begun = threading.Event(), threading.Event()
    sync = os.fsync

    def stuck(file: int) -> None:
        begun.set()
        hangs.wait(5)
        sync(file)

    monkeypatch.setattr(os, "fsync", stuck)
    away = asyncio.Event()

    async def save(_: Batch) -> None:
        await away.wait()

    saver, table = saver_of(save, spool)
    async with running(saver):
        saver.put(claim(), verdict())
        await until(begun.is_set)
        away.set()
        await until(lambda: len(table.saved) == 1)
        saver.put(claim(), verdict())
        await until(lambda: len(table.saved) == 2)
        hangs.set()
        await until(lambda: len(spool) == 0)  # what was saved before it was on disk


async def test_names_that_hang_keep_nothing_off_the_disk(spool: Spool) -> None:
    """Names are resolved on threads that everybody shares."""
    hangs = threading.Event()
    loop = asyncio.get_running_loop()
    names = [loop.run_in_executor(None, hangs.wait, 10) for _ in range(100)]
    saver, _ = saver_of(refuses, spool)
    async with running(saver):
        saver.put(claim(), verdict())
        await until(lambda: len(spool) == 1)
    hangs.set()
    await asyncio.gather(*names)


async def test_a_spool_that_cant_be_closed_holds_up_no_stop(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise SpoolError("read-only")

    saver, _ = saver_of(takes, spool)
    with monkeypatch.context() as broken:
        broken.setattr(spool, "close", fails)
        await saver.save_rest()


async def test_what_cant_be_saved_is_on_disk_until_it_can(spool: Spool) -> None:
    away = [True]

    async def save(_: Batch) -> None:
        if away[0]:
            raise OSError("away")

    saver, table = saver_of(save, spool)
    kept = [verdict() for _ in range(3)]
    for one in kept:
        saver.put(claim(), one)
    async with running(saver):
        await until(lambda: len(spool) == 3)
        away[0] = False
        await until(lambda: len(spool) == 0)
    assert set(table.saved) == {one.id for one in kept}


async def test_a_database_too_slow_for_many_verdicts_gets_fewer_at_once(spool: Spool) -> None:
    async def save(batch: Batch) -> None:
        if len(batch) > 60:
            raise OSError("a statement took too long")

    saver, table = saver_of(save, spool)
    for _ in range(300):
        saver.put(claim(), verdict())
    assert saver.unsaved == 300
    async with running(saver):
        await until(lambda: saver.unsaved == 0)
    assert len(set(table.saved)) == 300


@pytest.mark.parametrize("error", [OSError("its row is locked"), KeyError("a fault of ours")], ids=repr)
async def test_nothing_waits_behind_a_verdict_that_cant_be_saved(spool: Spool, error: Exception) -> None:
    bad, good = verdict(), [verdict() for _ in range(5)]

    async def save(batch: Batch) -> None:
        if bad.id in [one.id for _, one in batch]:
            raise error

    saver, table = saver_of(save, spool)
    for one in (bad, *good):
        saver.put(claim(), one)
    async with running(saver):
        await until(lambda: saver.unsaved == 1)
        await until(lambda: [one.id for _, one in spool.pending()] == [bad.id])
    assert set(table.saved) == {one.id for one in good}


async def test_a_slow_database_isnt_one_that_is_away(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("service.saver.suspended_clock", lambda: clock[0])
    saver, _ = saver_of(refuses, spool)
    async with running(saver):
        saver.put(claim(), verdict())
        await until(lambda: bool(saver._spooled))
        assert saver.spooled == 0
        clock[0] += 2
        assert saver.spooled == 1


async def test_a_full_disk_gets_room_before_it_is_asked_for_more(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    away = [True]

    async def save(_: Batch) -> None:
        if away[0]:
            raise OSError("away")

    saver, _ = saver_of(save, spool)
    append = spool.append

    def full(items: Any) -> None:
        if len(spool):
            raise SpoolError("full")
        append(items)

    monkeypatch.setattr(spool, "append", full)
    async with running(saver):
        saver.put(claim(), verdict())
        await until(lambda: len(spool) == 1)
        away[0] = False
        await until(lambda: not saver.unsaved)
        away[0] = True
        last = verdict()
        saver.put(claim(), last)
        await until(lambda: [one.id for _, one in spool.pending()] == [last.id])


async def test_what_a_process_left_on_disk_is_counted_and_saved(tmp_path: Path, spool: Spool) -> None:
    left = verdict()
    left_by_another(tmp_path, left)
    table, metrics = Table(takes), ProcessMetrics("here", "0")
    saver = Saver(cast(Store, table), spool, metrics)
    await saver.adopt()
    assert 'routeproof_spool_verdicts{location="here"} 1.0' in metrics.render().decode()
    await saver.save_rest()
    assert table.saved == [left.id]
    assert 'routeproof_spool_verdicts{location="here"} 0.0' in metrics.render().decode()


async def test_at_the_end_all_that_cant_be_saved_is_on_disk_while_it_is_tried(tmp_path: Path, spool: Spool) -> None:
    hangs = asyncio.Event()

    async def save(_: Batch) -> None:
        await hangs.wait()
        raise OSError("away")

    saver, _ = saver_of(save, spool)
    saver.put(claim(), verdict())
    ending = asyncio.create_task(saver.save_rest())
    await until(lambda: len(spool) == 1)
    saver.put(claim(), verdict())
    hangs.set()
    await ending
    assert len(Spool(tmp_path).adopt()) == 2
