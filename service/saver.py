"""Finished verdicts on their way into the database: in batches, and by way of the spool while the database is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

import structlog

from service.metrics import ProcessMetrics
from service.model import Claim, Verdict
from service.spool import Spool, SpoolError
from service.store import Store
from service.store.errors import DATABASE_ERRORS

BATCH = 200
PATIENCE_S = 2.0
"""How long a save may take before what it holds is put on disk."""
LIMIT_S = 60.0
LAST_LIMIT_S = 10.0
RETRY_S = 1.0

log = structlog.get_logger("routeproof.saver")

Item = tuple[Claim, Verdict]


class Saver:
    """Takes finished verdicts by `put` and saves them while `run` runs. What can't be saved is kept on disk, and in
    memory where the disk refuses it as well, and tried again; so is what another process left on disk."""

    def __init__(self, store: Store, spool: Spool, metrics: ProcessMetrics) -> None:
        self._store = store
        self._spool = spool
        self._metrics = metrics
        self._finished: asyncio.Queue[Item] = asyncio.Queue()
        self._held: list[Item] = []  # taken from the queue, not saved yet
        self._spooled: set[UUID] = set()
        self._batch = BATCH  # fewer at once while the database is too slow for that

    @property
    def unsaved(self) -> int:
        """Verdicts that are finished and not in the database."""
        return self._finished.qsize() + len(self._held)

    @property
    def spooled(self) -> int:
        """Verdicts that are on disk, because the database was away."""
        return len(self._spooled)

    def put(self, claim: Claim, verdict: Verdict) -> None:
        self._finished.put_nowait((claim, verdict))

    async def adopt(self) -> None:
        """Take over what processes that are gone left on disk."""
        found = await asyncio.to_thread(self._spool.adopt)
        if found:
            self._metrics.spooled(len(self._spool))
            self._spooled |= {verdict.id for _, verdict in found}
            for item in found:
                self._finished.put_nowait(item)

    async def run(self) -> None:
        """Save until cancelled. What wasn't saved then is for `save_rest`."""
        while True:
            if not self._held:
                self._held.append(await self._finished.get())
            self._take(BATCH)
            if not await self._save(LIMIT_S):
                await asyncio.sleep(RETRY_S)

    async def save_rest(self) -> None:
        """Save what is left, or leave it on disk for the next process."""
        self._take_all()
        while self._held and await self._save(LAST_LIMIT_S):
            pass
        left = len(self._held) - len(self._spooled)
        if left > 0:
            log.error("verdicts are lost: neither database nor disk takes them", action="verdicts_lost", verdicts=left)
        await asyncio.to_thread(self._spool.close)

    def _take(self, most: int) -> None:
        while len(self._held) < most and not self._finished.empty():
            self._held.append(self._finished.get_nowait())

    def _take_all(self) -> None:
        self._take(len(self._held) + self._finished.qsize())

    async def _save(self, limit_s: float) -> bool:
        """Save the oldest of what is held. When that takes long or fails, all of it goes to disk."""
        batch = self._held[: self._batch]
        saving = asyncio.create_task(self._save_batch(batch, limit_s))
        try:
            while not (await asyncio.wait({saving}, timeout=PATIENCE_S))[0]:
                self._take_all()  # what has ended meanwhile too
                await self._keep()
            saved = await saving
        except asyncio.CancelledError:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
            raise
        self._batch = min(BATCH, 2 * self._batch) if saved else max(1, self._batch // 2)
        if not saved:
            self._take_all()
            await self._keep()
            return False
        del self._held[: len(batch)]
        await self._let_go(verdict.id for _, verdict in batch)
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
        for _ in range(self._store.refused - refused_before):
            self._metrics.verdict_refused()
        if lost := self._store.leases_lost - lost_before:
            log.warning("verdicts came after their lease and are void", action="lease_lost", verdicts=lost)
        return True

    async def _keep(self) -> None:
        """Put on disk what is held and isn't there yet."""
        missing = [item for item in self._held if item[1].id not in self._spooled]
        if not missing:
            return
        try:
            await asyncio.to_thread(self._spool.append, missing)
        except SpoolError as error:
            log.error("verdicts are held in memory alone", action="spool_failed", error=str(error))
        else:
            self._spooled |= {verdict.id for _, verdict in missing}
        self._metrics.spooled(len(self._spool))

    async def _let_go(self, ids: Iterable[UUID]) -> None:
        gone = self._spooled & set(ids)
        if not gone:
            return
        try:
            await asyncio.to_thread(self._spool.settle, gone)
        except SpoolError as error:  # they are saved once more after a restart, which changes nothing
            log.error("the spool could not be emptied", action="spool_failed", error=str(error))
        else:
            self._spooled -= gone
        self._metrics.spooled(len(self._spool))
