"""What is done when: due cells are claimed and probed, and the rest is cared for.

Due times live in PostgreSQL. A dispatch wakes for the next due cell, takes as many cells as there are free slots, and
starts a probe for each; finished verdicts go to the saver. No transaction is open while a probe runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID, uuid4

import structlog

from service.clock import suspended_clock
from service.clockwork import FURTHEST_S, Clockwork, Job
from service.config import credentials
from service.metrics import ProcessMetrics
from service.model import Claim, Route, Status, Verdict
from service.probe import Moment, Probed, ProbeFault, Prober
from service.saver import Saver
from service.store import Sign, Store
from service.store.errors import DATABASE_ERRORS

SLOTS = 256
"""Probes under way at once in one process."""
MOST_UNSAVED = 4096
"""Finished verdicts that wait for the database; beyond it nothing more is asked."""
RETENTION = timedelta(days=30)
"""How long verdicts are kept one by one."""
TRANSITIONS_KEPT = timedelta(days=400)
HOUSEKEEPING_S = 3600.0
STUCK_S = 60.0
GIVE_BACK_LIMIT_S = 5.0
_OF_INTERVAL = 0.1
_RETRY_S = 1.0
_HELD_UP_S = 0.2
_SHORTEST_SLEEP_S = 0.1
"""A claim costs some milliseconds whatever it gives, so that what falls due within this time is claimed together."""
_DISPATCH = "dispatch"

log = structlog.get_logger("routeproof.schedule")


class Schedule:
    """Probes the cells of one location while it runs. `configure` it, `start` it, `drain` it.

    `extra` are jobs of others that the same clockwork drives.
    """

    def __init__(
        self,
        store: Store,
        prober: Prober,
        saver: Saver,
        location: str,
        metrics: ProcessMetrics,
        version: str,
        *,
        slots: int = SLOTS,
        max_raw_bytes: int | None = None,
        extra: tuple[Job, ...] = (),
    ) -> None:
        self._store = store
        self._prober = prober
        self._saver = saver
        self._location = location
        self._metrics = metrics
        self._version = version
        self._slots = slots
        self._id: UUID = uuid4()
        self._routes: Mapping[str, Route] = {}
        self._config_hash = ""
        self.max_raw_bytes = max_raw_bytes
        self._clockwork = Clockwork(
            metrics,
            (
                Job("sign_of_life", 5.0, self._tell),
                Job("roll_up", 120.0, self._roll_up),
                Job("housekeeping", HOUSEKEEPING_S, self._housekeeping),
                Job("adopt", 60.0, saver.adopt),
                *extra,
            ),
        )
        self._running: dict[asyncio.Task[None], Claim] = {}
        self._saving: asyncio.Task[None] | None = None
        self._dispatched_at = suspended_clock()
        self._draining = False
        self._superseded = False
        self._dispatching = asyncio.Lock()
        self._sleep = self._longest_sleep = FURTHEST_S
        self._again = False

    @property
    def superseded(self) -> bool:
        """Whether another configuration is active in this location, so that nothing is claimed here."""
        return self._superseded

    def configure(self, routes: Mapping[str, Route], config_hash: str) -> None:
        """What is probed from now on. Probes under way end as they began."""
        self._routes, self._config_hash = routes, config_hash
        # What is saved during a sleep may be due within it, when intervals are as short.
        shortest = min((route.interval.total_seconds() for route in routes.values()), default=FURTHEST_S)
        self._longest_sleep = min(FURTHEST_S, max(_OF_INTERVAL * shortest, _HELD_UP_S))
        self._superseded = False
        if self._saving is not None:
            self._wake()

    def start(self) -> None:
        """Begin to claim and probe."""
        self._saving = asyncio.create_task(self._saver.run())
        self._clockwork.after(_DISPATCH, self._plan_dispatch)
        self._metrics.job_begun(_DISPATCH)
        self._clockwork.start()
        self._wake()

    async def drain(self, bound_s: float) -> None:
        """Claim nothing more; let running probes end within the bound; cancel the rest and give their leases back."""
        self._draining = True
        give_up_at = suspended_clock() + bound_s
        await self._end_dispatch(bound_s)
        self._clockwork.stop()
        if self._running:
            log.info("waiting for the probes under way", action="drain", probes=len(self._running))
            await asyncio.wait(list(self._running), timeout=max(0.0, give_up_at - suspended_clock()))
        rest = list(self._running)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
        await self._saver.save_rest()
        with contextlib.suppress(*DATABASE_ERRORS):  # the row ages by itself
            async with asyncio.timeout(GIVE_BACK_LIMIT_S):
                await self._store.leave(self._id)

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
        if self._saving is not None and self._saving.done():
            found.append("nothing saves verdicts any more")
        return found + self._clockwork.faults()

    def _wake(self) -> None:
        """Dispatch soon instead of when it was planned, and not before the one under way has ended."""
        self._again = True
        if not self._dispatching.locked():
            self._plan_dispatch()

    def _plan_dispatch(self) -> None:
        if not self._draining:
            seconds = _SHORTEST_SLEEP_S if self._again else min(self._sleep, self._longest_sleep)
            self._clockwork.once(_DISPATCH, seconds, self._dispatch)

    async def _dispatch(self) -> None:
        self._sleep, self._again = FURTHEST_S, False
        try:
            async with self._dispatching, asyncio.timeout(STUCK_S / 2):
                self._sleep = await self._claim_and_start()
            self._dispatched_at = suspended_clock()
            self._metrics.job_done(_DISPATCH)
        except DATABASE_ERRORS as error:
            self._metrics.database_error()
            log.warning("could not claim", action="claim_failed", error=type(error).__name__)
            self._sleep = _RETRY_S
            self._dispatched_at = suspended_clock()

    async def _claim_and_start(self) -> float:
        """Claim what fits and start it. Returns the seconds until there may be more to claim."""
        free = self._slots - len(self._running)
        if free <= 0 or self._draining or self._saver.unsaved >= MOST_UNSAVED:
            return FURTHEST_S
        expired_before, asked = self._store.leases_expired, suspended_clock()
        claims = await self._store.claim(self._location, self._config_hash, free, self._id)
        if taken_over := self._store.leases_expired - expired_before:
            self._metrics.leases_expired(taken_over)
            log.warning("took over cells whose prober did not come back", action="lease_expired", cells=taken_over)
        since = suspended_clock()
        if self._draining or since - asked > STUCK_S / 2:  # it began, or we slept, while we waited for the database
            await self._store.release(claims)
            return _HELD_UP_S
        for claim in claims:
            self._begin(claim, Moment(claim.claimed_at, since))
        if len(claims) == free:  # the next probe to end wakes us, unless some ended while we waited for the database
            return FURTHEST_S if len(self._running) >= self._slots else _SHORTEST_SLEEP_S
        if self._superseded:
            return FURTHEST_S
        seconds = await self._store.seconds_to_next_due(self._location, self._config_hash, self._id)
        if seconds is None:
            return FURTHEST_S
        if not seconds and not claims:  # something is due and wasn't given to us: a limit holds it
            return _HELD_UP_S
        return max(seconds, _SHORTEST_SLEEP_S)

    def _begin(self, claim: Claim, since: Moment) -> None:
        route = self._routes.get(claim.route_id)
        if route is None:  # a reload came in between
            work = self._give_back(claim)
        elif claim.unsent is not None:
            work = self._leave_out(route, claim, claim.unsent, since)
        else:
            work = self._probe(route, claim, since)
        task = asyncio.create_task(work)
        self._running[task] = claim
        self._metrics.in_flight(len(self._running))
        task.add_done_callback(self._ended)

    async def _leave_out(self, route: Route, claim: Claim, reason: str, since: Moment) -> None:
        self._metrics.probe_started(since.later() - claim.due_at)
        self._finish(route, claim, self._prober.unsent(route, claim.contract, reason, since))

    async def _probe(self, route: Route, claim: Claim, since: Moment) -> None:
        self._metrics.probe_started(since.later() - claim.due_at)
        try:
            probed = await self._prober.probe(route, claim.contract, credentials(route, os.environ), since)
        except ProbeFault as fault:
            log.error("a probe failed by our own fault", action="probe_failed", route=route.id, fault=str(fault))
            return  # its lease ends by itself: asking again at once would fail again at once
        except asyncio.CancelledError:  # outside of a request; inside of one it is a verdict
            await self._give_back(claim)
            raise
        if self._prober.egress_up is not None:
            self._metrics.egress(self._prober.egress_up)
        if probed.verdict.status is Status.CANCELLED:
            self._metrics.probe_finished(route.provider, probed.verdict)
            await self._give_back(claim, probed.verdict)
        else:
            self._finish(route, claim, probed)

    def _finish(self, route: Route, claim: Claim, probed: Probed) -> None:
        verdict = probed.verdict
        self._saver.put(claim, verdict)
        self._metrics.probe_finished(route.provider, verdict)
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

    async def _give_back(self, claim: Claim, *cancelled: Verdict) -> None:
        try:
            async with asyncio.timeout(GIVE_BACK_LIMIT_S):
                await self._store.release([claim], cancelled)
        except DATABASE_ERRORS as error:  # the lease ends by itself
            log.warning("could not release a lease", action="release_failed", error=type(error).__name__)

    def _ended(self, task: asyncio.Task[None]) -> None:
        was_full = len(self._running) >= self._slots
        self._running.pop(task, None)
        self._metrics.in_flight(len(self._running))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a probe's keeper failed", action="keeper_failed", error=type(error).__name__)
        if was_full:
            self._wake()

    async def _tell(self) -> None:
        told = self._config_hash
        active = await self._store.tell(
            Sign(
                id=self._id,
                location=self._location,
                probes=True,
                config_hash=told,
                version=self._version,
                superseded=self._superseded,
                egress_up=self._prober.egress_up,
                spooled=self._saver.spooled,
            )
        )
        if told != self._config_hash:  # a reload came in between, and the answer is about the time before it
            return
        superseded = active is not None and active != told
        if superseded and not self._superseded:
            log.error(
                "another configuration is active in this location: this process stops claiming",
                action="superseded",
                location=self._location,
                ours=self._config_hash,
                active=active,
            )
        elif self._superseded and not superseded:
            log.info("this configuration is the active one again", action="active_again", location=self._location)
            self._wake()
        self._superseded = superseded

    async def _roll_up(self) -> None:
        await self._store.roll_up()
        await self._store.forget_debits()
        await self._store.mind_the_clock()

    async def _housekeeping(self) -> None:
        """Make days ahead, drop what is past its time."""
        await self._store.ensure_partitions()
        dropped = await self._store.drop_partitions(RETENTION)
        if self.max_raw_bytes is not None:
            dropped += await self._store.drop_largest(self.max_raw_bytes)
        forgotten = await self._store.forget(TRANSITIONS_KEPT)
        log.info("housekeeping done", action="housekeeping", days_dropped=dropped, transitions_forgotten=forgotten)
