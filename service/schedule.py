"""APScheduler and nothing but: the clockwork that claims due cells, probes them, and saves what came of it.

Due times live in PostgreSQL. A dispatch wakes for the next due cell, takes as many cells as there are free slots, and
starts a probe for each; a saver writes finished verdicts in batches. No transaction is open while a probe runs. What
can't be saved now is held and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from service.clock import suspended_clock
from service.config import credentials, fingerprint
from service.metrics import ProcessMetrics
from service.model import Claim, Route, Status, Verdict
from service.probe import Moment, ProbeFault, Prober
from service.store import Store
from service.store.errors import DATABASE_ERRORS

SLOTS = 256
"""Probes under way at once in one process."""
BATCH = 200
LONGEST_SLEEP_S = 5.0
RETENTION = timedelta(days=30)
"""How long verdicts are kept one by one."""
TRANSITIONS_KEPT = timedelta(days=400)
STUCK_S = 60.0
HOUSEKEEPING_LIMIT_S = 300.0
GIVE_BACK_LIMIT_S = 5.0
LAST_SAVE_LIMIT_S = 10.0
_RETRY_S = 1.0
_DISPATCH = "dispatch"

log = structlog.get_logger("routeproof.schedule")


class Schedule:
    """Probes the cells of one location while it runs. `start` it, `drain` it."""

    def __init__(
        self,
        store: Store,
        prober: Prober,
        routes: Mapping[str, Route],
        location: str,
        metrics: ProcessMetrics,
        slots: int = SLOTS,
    ) -> None:
        self._store = store
        self._prober = prober
        self._routes = routes
        self._location = location
        self._metrics = metrics
        self._slots = slots
        self._clockwork = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._running: dict[asyncio.Task[None], Claim] = {}
        self._finished: asyncio.Queue[tuple[Claim, Verdict]] = asyncio.Queue()
        self._saver: asyncio.Task[None] | None = None
        self._dispatched_at = suspended_clock()
        self._draining = False
        self._superseded = False
        self._dispatching = asyncio.Lock()
        self._sleep = LONGEST_SLEEP_S
        self._again = False

    def start(self) -> None:
        """Begin to claim and probe."""
        self._saver = asyncio.create_task(self._save_forever())
        faults = EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR
        self._clockwork.add_listener(self._missed, faults)
        self._clockwork.add_listener(self._plan_dispatch, EVENT_JOB_EXECUTED | faults)
        self._clockwork.add_job(self._housekeeping, "interval", hours=1, id="housekeeping")
        self._clockwork.start()
        self._wake_in(0)

    async def drain(self, bound_s: float) -> None:
        """Claim nothing more; let running probes end within the bound; cancel the rest and give their leases back."""
        self._draining = True
        give_up_at = suspended_clock() + bound_s
        await self._end_dispatch(bound_s)
        self._clockwork.shutdown(wait=False)
        if self._running:
            log.info("waiting for the probes under way", action="drain", probes=len(self._running))
            await asyncio.wait(list(self._running), timeout=max(0.0, give_up_at - suspended_clock()))
        rest = list(self._running)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.gather(self._saver, return_exceptions=True)
        await self._save_rest()

    async def _end_dispatch(self, bound_s: float) -> None:
        """Let a dispatch under way end: cut short, it could leave cells claimed that nobody probes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s), self._dispatching:
                pass

    def faults(self) -> list[str]:
        """What keeps this process from probing, for `/livez`."""
        if self._draining:
            return []
        found = []
        if (silent := suspended_clock() - self._dispatched_at) > STUCK_S:
            found.append(f"the dispatch has not run for {silent:.0f} s")
        if self._saver is not None and self._saver.done():
            found.append("nothing saves verdicts any more")
        return found

    def _wake_in(self, seconds: float) -> None:
        """Dispatch in so many seconds instead of when it was planned; at the end of the one under way, if there is."""
        if self._dispatching.locked():
            self._again = True
        elif not self._draining:
            at = datetime.now(UTC) + timedelta(seconds=seconds)
            self._clockwork.add_job(self._dispatch, "date", run_date=at, id=_DISPATCH, replace_existing=True)

    def _plan_dispatch(self, event: Any) -> None:
        """Plan the next dispatch once the last one is put away: planned by itself, it could come due while APScheduler
        still counts the last one as running, which drops it, and then nothing would ever be claimed again."""
        if event.job_id == _DISPATCH:
            self._wake_in(0 if self._again else min(self._sleep, LONGEST_SLEEP_S))

    async def _dispatch(self) -> None:
        self._sleep, self._again = LONGEST_SLEEP_S, False
        try:
            async with self._dispatching, asyncio.timeout(STUCK_S / 2):
                self._sleep = await self._claim_and_start()
            self._dispatched_at = suspended_clock()
        except DATABASE_ERRORS as error:
            self._metrics.database_error()
            log.warning("could not claim", action="claim_failed", error=type(error).__name__)
            self._sleep = _RETRY_S
            self._dispatched_at = suspended_clock()

    async def _claim_and_start(self) -> float:
        """Claim what fits and start it. Returns the seconds until there may be more to claim."""
        free = self._slots - len(self._running)
        if free <= 0 or self._superseded or self._draining:
            return LONGEST_SLEEP_S
        expired_before = self._store.leases_expired
        claims = await self._store.claim(self._location, free)
        if taken_over := self._store.leases_expired - expired_before:
            self._metrics.leases_expired(taken_over)
            log.warning("took over cells whose prober did not come back", action="lease_expired", cells=taken_over)
        since = suspended_clock()
        if self._draining:  # it began while we waited for the database
            await self._store.release(claims)
            return LONGEST_SLEEP_S
        strangers = [claim for claim in claims if not self._is_ours(claim)]
        for claim in claims:  # ours first: should the strangers' release fail, nobody else would probe them
            if claim not in strangers:
                task = asyncio.create_task(self._probe(claim, Moment(claim.claimed_at, since)))
                self._running[task] = claim
                task.add_done_callback(self._ended)
        if strangers:
            self._superseded = True
            log.error(
                "another configuration is active in this location: this process stops claiming",
                action="superseded",
                location=self._location,
            )
            await self._store.release(strangers)
        if len(claims) == free:
            return LONGEST_SLEEP_S  # the next probe to end wakes us
        seconds = await self._store.seconds_to_next_due(self._location)
        return LONGEST_SLEEP_S if seconds is None else max(seconds, 0.01)

    def _is_ours(self, claim: Claim) -> bool:
        route = self._routes.get(claim.route_id)
        return route is not None and fingerprint(route) == claim.fingerprint

    async def _probe(self, claim: Claim, since: Moment) -> None:
        route = self._routes[claim.route_id]
        self._metrics.probe_started(since.later() - claim.due_at)
        try:
            probed = await self._prober.probe(route, claim.contract, credentials(route, os.environ), since)
        except ProbeFault as fault:
            self._metrics.probe_abandoned()
            log.error("a probe failed by our own fault", action="probe_failed", route=route.id, fault=str(fault))
            return  # its lease ends by itself: asking again at once would fail again at once
        except asyncio.CancelledError:  # outside of a request; inside of one it is a verdict
            self._metrics.probe_abandoned()
            await self._give_back(claim)
            raise
        verdict = probed.verdict
        self._metrics.probe_finished(route.provider, verdict)
        if self._prober.egress_up is not None:
            self._metrics.egress(self._prober.egress_up)
        for _ in range(probed.redactions_refused):
            self._metrics.redaction_refused()
        log.info(
            "probed",
            action="probed",
            route=route.id,
            contract=claim.contract,
            status=verdict.status.value,
            reason=verdict.reason,
            rule=verdict.rule_id,
            requests=verdict.requests,
            seconds=round(verdict.duration_s, 3),
        )
        if verdict.status is Status.CANCELLED:
            await self._give_back(claim)
        else:
            self._finished.put_nowait((claim, verdict))

    async def _give_back(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(GIVE_BACK_LIMIT_S):
                await self._store.release([claim])
        except DATABASE_ERRORS as error:  # the lease ends by itself
            log.warning("could not release a lease", action="release_failed", error=type(error).__name__)

    def _ended(self, task: asyncio.Task[None]) -> None:
        was_full = len(self._running) >= self._slots
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a probe's keeper failed", action="keeper_failed", error=type(error).__name__)
        if was_full:
            self._wake_in(0)

    async def _save_forever(self) -> None:
        batch: list[tuple[Claim, Verdict]] = []
        try:
            while True:
                batch.append(await self._finished.get())
                while len(batch) < BATCH and not self._finished.empty():
                    batch.append(self._finished.get_nowait())
                while not await self._save(batch):  # noqa: ASYNC110 - the database is away, nothing can tell us when
                    await asyncio.sleep(_RETRY_S)
                batch = []
        finally:
            for item in batch:
                self._finished.put_nowait(item)

    async def _save(self, batch: list[tuple[Claim, Verdict]], limit_s: float = STUCK_S) -> bool:
        refused_before = self._store.refused
        try:
            async with asyncio.timeout(limit_s):
                await self._store.save(batch)
        except DATABASE_ERRORS as error:
            self._metrics.database_error()
            log.warning("could not save", action="save_failed", verdicts=len(batch), error=type(error).__name__)
            return False
        for _ in range(self._store.refused - refused_before):
            self._metrics.verdict_refused()
        return True

    async def _save_rest(self) -> None:
        rest = []
        while not self._finished.empty():
            rest.append(self._finished.get_nowait())
        if rest and not await self._save(rest, LAST_SAVE_LIMIT_S):
            log.error("verdicts are lost: the database is away", action="verdicts_lost", verdicts=len(rest))

    async def _housekeeping(self) -> None:
        """Make days ahead, drop what is past its time."""
        try:
            async with asyncio.timeout(HOUSEKEEPING_LIMIT_S):  # a run that hung would be the last one
                await self._store.ensure_partitions()
                dropped = await self._store.drop_partitions(RETENTION)
                forgotten = await self._store.forget(TRANSITIONS_KEPT)
        except DATABASE_ERRORS as error:
            self._metrics.database_error()
            log.warning("housekeeping failed", action="housekeeping_failed", error=type(error).__name__)
            return
        log.info("housekeeping done", action="housekeeping", days_dropped=dropped, transitions_forgotten=forgotten)

    def _missed(self, event: Any) -> None:
        if self._draining:  # the end of the clockwork cancels its runs
            return
        self._metrics.runs_missed()
        error = getattr(event, "exception", None)
        log.error("a run of the clockwork failed", action="run_missed", job=event.job_id, error=repr(error))
