"""Finished verdicts on their way into the database, and by way of the spool where that takes longer than usual.

Two tasks share the verdicts that aren't saved yet, and neither waits for the other: one saves them in batches, the
other looks every `LOOK_S` and puts on disk what it saw the last time already, and takes off it what is saved meanwhile.
So the disk has nothing to do while the database is quick, and a process that is killed while the database hangs loses
no more than what has ended within the last two looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from uuid import UUID

import structlog

from service.clock import suspended_clock
from service.metrics import ProcessMetrics
from service.model import Claim, Verdict
from service.spool import Spool, SpoolError
from service.store import Store
from service.store.errors import DATABASE_ERRORS

BATCH = 200
LOOK_S = 0.125
WAITING_S = 2.0
"""A verdict that is on disk is spoken of when it has waited for that long: a slow database isn't one that is away."""
LIMIT_S = 60.0
LAST_LIMIT_S = 10.0
RETRY_S = 1.0

log = structlog.get_logger("routeproof.saver")

Item = tuple[Claim, Verdict]
R = TypeVar("R")


class Saver:
    """Takes finished verdicts by `put` and saves them while `run` runs. What can't be saved is kept on disk, and in
    memory where the disk refuses it as well, and tried again; so is what another process left on disk. A verdict that
    is saved and can't be taken off the disk is saved once more after a restart, which changes nothing."""

    def __init__(self, store: Store, spool: Spool, metrics: ProcessMetrics) -> None:
        self._store = store
        self._spool = spool
        self._metrics = metrics
        self._disk = ThreadPoolExecutor(1, "spool")  # of its own: a few dead names hold up the threads of all
        self._unsaved: dict[UUID, Item] = {}  # oldest first, but for those that could not be saved alone
        self._finished_at: dict[UUID, float] = {}  # of those that this process made
        self._something = asyncio.Event()
        self._spooled: set[UUID] = set()  # on disk; what is saved leaves it at the next look
        self._batch = BATCH  # fewer at once while the database is too slow for that

    @property
    def unsaved(self) -> int:
        """Verdicts that are finished and not in the database."""
        return len(self._unsaved)

    @property
    def spooled(self) -> int:
        """Verdicts that are on disk because the database is away."""
        since = suspended_clock() - WAITING_S
        return sum(self._finished_at.get(id, since) <= since for id in self._spooled & self._unsaved.keys())

    def put(self, claim: Claim, verdict: Verdict) -> None:
        self._finished_at[verdict.id] = suspended_clock()
        self._add(claim, verdict)

    async def adopt(self) -> None:
        """Take over what processes that are gone left on disk."""
        for claim, verdict in await self._on_disk(self._spool.adopt):
            self._spooled.add(verdict.id)
            self._add(claim, verdict)
        self._metrics.spooled(self.spooled)

    async def run(self) -> None:
        """Save until cancelled. What wasn't saved then is for `save_rest`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_saving())
            tasks.create_task(self._keep_looking())

    async def save_rest(self) -> None:
        """Save what is left, or leave it on disk for the next process."""
        looking = asyncio.create_task(self._keep_looking())
        while self._unsaved and await self._save(LAST_LIMIT_S):
            pass
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await self._look(self._unsaved.keys())
        if left := self._unsaved.keys() - self._spooled:
            log.error(
                "verdicts are lost: neither database nor disk takes them", action="verdicts_lost", verdicts=len(left)
            )
        try:
            await self._on_disk(self._spool.close)
        except SpoolError as error:
            log.error("the spool can't be closed", action="spool_failed", error=str(error))
        self._disk.shutdown(wait=False)

    async def _on_disk(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    def _add(self, claim: Claim, verdict: Verdict) -> None:
        self._unsaved[verdict.id] = (claim, verdict)
        self._something.set()

    async def _keep_saving(self) -> None:
        while True:
            await self._something.wait()
            if not await self._save(LIMIT_S):
                await asyncio.sleep(RETRY_S)

    async def _save(self, limit_s: float) -> bool:
        """Save the oldest. Fewer are tried after a failure, and at last each alone, so that none waits behind another
        that can't be saved."""
        ids = list(self._unsaved)[: self._batch]
        if not await self._save_batch([self._unsaved[id] for id in ids], limit_s):
            self._batch = max(1, self._batch // 2)
            if len(ids) == 1:
                self._unsaved[ids[0]] = self._unsaved.pop(ids[0])
            return False
        self._batch = min(BATCH, 2 * self._batch)
        for id in ids:
            del self._unsaved[id]
            self._finished_at.pop(id, None)
        if not self._unsaved:
            self._something.clear()
        return True

    async def _save_batch(self, batch: list[Item], limit_s: float) -> bool:
        refused_before, lost_before = self._store.refused, self._store.leases_lost
        try:
            async with asyncio.timeout(limit_s):
                await self._store.save(batch)
        except DATABASE_ERRORS as error:
            self._metrics.database_error()
            log.warning("could not save", action="save_failed", verdicts=len(batch), error=type(error).__name__)
            return False
        except Exception as error:
            # A fault of ours: what brings it about stays on disk until a release can save it, and holds nothing up.
            log.error(
                "a fault of ours kept verdicts from being saved",
                action="save_fault",
                verdicts=len(batch),
                error=type(error).__name__,
            )
            return False
        for _ in range(self._store.refused - refused_before):
            self._metrics.verdict_refused()
        if lost := self._store.leases_lost - lost_before:
            log.warning("verdicts came after their lease and are void", action="lease_lost", verdicts=lost)
        return True

    async def _keep_looking(self) -> None:
        seen: set[UUID] = set()
        while True:
            await asyncio.sleep(LOOK_S)
            if not await self._look(seen):
                await asyncio.sleep(RETRY_S)
            seen = set(self._unsaved)

    async def _look(self, seen: Set[UUID]) -> bool:
        """Take off the disk what is saved, and put on it what isn't if any of `seen` still isn't; whether it agrees."""
        try:
            if saved := self._spooled - self._unsaved.keys():  # first: a full disk needs the room
                await self._on_disk(partial(self._spool.settle, saved))
                self._spooled -= saved
            if (seen & self._unsaved.keys()) - self._spooled:
                missing = {id: item for id, item in self._unsaved.items() if id not in self._spooled}
                await self._on_disk(partial(self._spool.append, list(missing.values())))
                self._spooled |= missing.keys()
        except SpoolError as error:
            log.error("the spool refuses", action="spool_failed", error=str(error))
            return False
        finally:
            self._metrics.spooled(self.spooled)
        return True
