"""Finished verdicts between the probes and the database: nothing is in memory alone for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from service.metrics import ProcessMetrics
from service.model import Claim, Status, Verdict
from service.saver import Saver
from service.spool import Spool
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
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.005)


@pytest.fixture
def spool(tmp_path: Path) -> Any:
    made = Spool(tmp_path)
    yield made
    made.close()


async def test_what_ends_while_a_save_hangs_goes_to_disk_as_well(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.saver.PATIENCE_S", 0.01)
    hangs = asyncio.Event()

    async def save(_: Batch) -> None:
        await hangs.wait()

    table = Table(save)
    saver = Saver(cast(Store, table), spool, ProcessMetrics("here", "0"))
    running = asyncio.create_task(saver.run())
    first, second = verdict(), verdict()
    saver.put(claim(), first)
    await until(lambda: len(spool) == 1)
    saver.put(claim(), second)
    await until(lambda: len(spool) == 2)
    assert saver.spooled == 2
    hangs.set()
    await until(lambda: len(spool) == 0)
    assert table.saved == [first.id, second.id]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_cant_be_saved_is_on_disk_until_it_can(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.saver.RETRY_S", 0.01)
    away = [True]

    async def save(_: Batch) -> None:
        if away[0]:
            raise OSError("away")

    table = Table(save)
    saver = Saver(cast(Store, table), spool, ProcessMetrics("here", "0"))
    kept = [verdict() for _ in range(3)]
    for one in kept:
        saver.put(claim(), one)
    running = asyncio.create_task(saver.run())
    await until(lambda: len(spool) == 3)
    away[0] = False
    await until(lambda: len(spool) == 0)
    assert table.saved == [one.id for one in kept]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_database_too_slow_for_many_verdicts_gets_fewer_at_once(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.saver.RETRY_S", 0.0)

    async def save(batch: Batch) -> None:
        if len(batch) > 60:
            raise OSError("a statement took too long")

    table = Table(save)
    saver = Saver(cast(Store, table), spool, ProcessMetrics("here", "0"))
    for _ in range(300):
        saver.put(claim(), verdict())
    assert saver.unsaved == 300
    running = asyncio.create_task(saver.run())
    await until(lambda: saver.unsaved == 0)
    assert len(set(table.saved)) == 300
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_a_process_left_on_disk_is_counted_and_saved(tmp_path: Path, spool: Spool) -> None:
    gone = Spool(tmp_path)
    left = verdict()
    gone.append([(claim(), left)])
    gone.close()

    async def save(_: Batch) -> None:
        pass

    table, metrics = Table(save), ProcessMetrics("here", "0")
    saver = Saver(cast(Store, table), spool, metrics)
    await saver.adopt()
    assert 'routeproof_spool_verdicts{location="here"} 1.0' in metrics.render().decode()
    await saver.save_rest()
    assert table.saved == [left.id]
    assert 'routeproof_spool_verdicts{location="here"} 0.0' in metrics.render().decode()
