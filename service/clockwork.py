"""APScheduler and nothing but: jobs that run every so often, and runs that are planned one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from service.clock import suspended_clock
from service.metrics import ProcessMetrics
from service.store.errors import DATABASE_ERRORS

FURTHEST_S = 5.0
"""A single run is planned this far ahead at most."""
JOB_LIMIT_S = 300.0
_FAULTS = EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR

log = structlog.get_logger("routeproof.schedule")


@dataclass(frozen=True)
class Job:
    """Something that is done every so often, `every` in seconds, and must not hang."""

    name: str
    every: float
    work: Callable[[], Awaitable[None]]

    @property
    def overdue_after(self) -> float:
        """Seconds without an end of it after which something is wrong."""
        return 3 * self.every + JOB_LIMIT_S


class Clockwork:
    """Runs jobs, each in turn with itself, and notices when one doesn't come to its end."""

    def __init__(self, metrics: ProcessMetrics, jobs: tuple[Job, ...]) -> None:
        self._metrics = metrics
        self._jobs = jobs
        self._done_at: dict[str, float] = {}
        self._stopped = False
        self._minding: asyncio.Task[None] | None = None
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )

    def start(self) -> None:
        """Begin: every job runs at once for the first time."""
        self._scheduler.add_listener(self._missed, _FAULTS)
        started, first = suspended_clock(), datetime.now(UTC)
        for job in self._jobs:
            self._done_at[job.name] = started
            self._metrics.job_begun(job.name)
            self._scheduler.add_job(
                self._do, "interval", args=[job], seconds=job.every, id=job.name, next_run_time=first
            )
        self._scheduler.start()
        self._minding = asyncio.create_task(self._mind_the_clock())

    def once(self, name: str, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in so many seconds, instead of when it was planned under this name."""
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        self._scheduler.add_job(work, "date", run_date=at, id=name, replace_existing=True)

    def after(self, name: str, call: Callable[[], None]) -> None:
        """Have `call` called whenever a run of this name is over and put away. One that planned the next run by itself
        could have it come due while APScheduler still counts the last one as running, which drops it."""

        def heard(event: Any) -> None:
            if event.job_id == name:
                call()

        self._scheduler.add_listener(heard, EVENT_JOB_EXECUTED | _FAULTS)

    def stop(self) -> None:
        """End it; what runs is cancelled."""
        self._stopped = True
        if self._minding is not None:
            self._minding.cancel()
        self._scheduler.shutdown(wait=False)

    def faults(self) -> list[str]:
        """The jobs that have not come to their end for too long."""
        now = suspended_clock()
        silent = [(job, now - self._done_at.get(job.name, now)) for job in self._jobs]
        return [f"{job.name} has not come to its end for {s:.0f} s" for job, s in silent if s > job.overdue_after]

    async def _mind_the_clock(self) -> None:
        """APScheduler plans by the time of the day: a clock that is set back would put off everything until it is that
        time again. What is planned further ahead than it ever is runs at once."""
        spans = {job.name: job.every for job in self._jobs}
        while True:
            await asyncio.sleep(1)
            now = datetime.now(UTC)
            for planned in self._scheduler.get_jobs():
                span = timedelta(seconds=spans.get(planned.id, FURTHEST_S) + 1)
                if planned.next_run_time is not None and planned.next_run_time - now > span:
                    log.warning("the clock was set back", action="clock_set_back", job=planned.id)
                    planned.modify(next_run_time=now)

    async def _do(self, job: Job) -> None:
        try:
            async with asyncio.timeout(JOB_LIMIT_S) as limit:  # a run that hung would be the last one
                await job.work()
        except DATABASE_ERRORS as error:
            if not limit.expired():  # it came to its end: a database that is away isn't cured by a restart of ours
                self._done_at[job.name] = suspended_clock()
            self._metrics.database_error()
            log.warning("a job failed", action="job_failed", job=job.name, error=type(error).__name__)
        else:
            self._done_at[job.name] = suspended_clock()
            self._metrics.job_done(job.name)

    def _missed(self, event: Any) -> None:
        if self._stopped:  # the end of the clockwork cancels its runs
            return
        self._metrics.runs_missed()
        error = getattr(event, "exception", None)
        log.error("a run of the clockwork failed", action="run_missed", job=event.job_id, error=repr(error))
