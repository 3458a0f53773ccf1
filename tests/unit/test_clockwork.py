"""Jobs that run every so often, hang or fail."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.exc import OperationalError

from service.clockwork import Clockwork, Job
from service.metrics import ProcessMetrics


async def turns(number: int = 20) -> None:
    """Let everything that can go on now go on."""
    for _ in range(number):
        await asyncio.sleep(0)


class TestClockwork:
    async def run(self, job: Job) -> Clockwork:
        clockwork = Clockwork(ProcessMetrics("here", "0"), (job,))
        clockwork.start()
        return clockwork

    async def test_a_job_runs_at_once_and_again(self) -> None:
        runs: asyncio.Queue[None] = asyncio.Queue()

        async def work() -> None:
            runs.put_nowait(None)

        clockwork = await self.run(Job("tick", 0.02, work))
        async with asyncio.timeout(60):
            for _ in range(3):
                await runs.get()
        assert clockwork.faults() == []
        clockwork.stop()

    @pytest.mark.parametrize("fault", [OSError("gone"), OperationalError("", {}, Exception()), ValueError("a bug")])
    async def test_a_job_that_fails_runs_again(self, fault: Exception) -> None:
        runs: asyncio.Queue[None] = asyncio.Queue()

        async def work() -> None:
            runs.put_nowait(None)
            raise fault

        clockwork = await self.run(Job("tick", 0.02, work))
        async with asyncio.timeout(60):
            for _ in range(3):
                await runs.get()
        clockwork.stop()

    async def test_a_job_that_never_comes_to_its_end_shows_since_when_it_was_begun_with(self) -> None:
        metrics = ProcessMetrics("here", "0")
        clockwork = Clockwork(metrics, (Job("tick", 60.0, asyncio.Event().wait),))  # type: ignore[arg-type]
        clockwork.start()
        await turns()
        assert (
            'routeproof_job_last_success_timestamp_seconds{location="here",task="tick"} 1' in metrics.render().decode()
        )
        clockwork.stop()

    async def test_a_job_that_hangs_is_cut_off_and_runs_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("service.clockwork.JOB_LIMIT_S", 0.02)
        runs: asyncio.Queue[None] = asyncio.Queue()

        async def work() -> None:
            runs.put_nowait(None)
            await asyncio.Event().wait()

        clockwork = await self.run(Job("tick", 0.02, work))
        async with asyncio.timeout(60):
            for _ in range(3):
                await runs.get()
        clockwork.stop()

    async def test_a_job_that_does_not_come_to_its_end_is_a_fault_and_one_that_does_is_none(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, fails = [1000.0], [True]
        monkeypatch.setattr("service.clockwork.suspended_clock", lambda: now[0])

        async def work() -> None:
            if fails[0]:
                raise ValueError("a bug")

        job = Job("tick", 10.0, work)
        clockwork = await self.run(job)
        await turns()
        now[0] += job.overdue_after
        assert clockwork.faults() == []
        now[0] += 1
        assert clockwork.faults() == ["tick has not come to its end for 331 s"]
        fails[0] = False
        await clockwork._do(job)
        assert clockwork.faults() == []
        clockwork.stop()

    async def test_a_database_that_is_away_is_no_fault_of_a_job_but_a_job_that_hangs_is(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, hangs = [1000.0], [False]
        monkeypatch.setattr("service.clockwork.suspended_clock", lambda: now[0])
        monkeypatch.setattr("service.clockwork.JOB_LIMIT_S", 0.01)

        async def work() -> None:
            if hangs[0]:
                await asyncio.Event().wait()
            raise OperationalError("", {}, Exception())

        job = Job("tick", 10.0, work)
        clockwork = await self.run(job)
        for _ in range(3):
            now[0] += job.overdue_after
            await clockwork._do(job)
        assert clockwork.faults() == []
        hangs[0] = True
        now[0] += job.overdue_after + 1
        await clockwork._do(job)
        assert len(clockwork.faults()) == 1
        clockwork.stop()

    async def test_one_that_was_never_started_has_no_faults(self) -> None:
        assert Clockwork(ProcessMetrics("here", "0"), (Job("tick", 1.0, lambda: _never()),)).faults() == []


async def _never() -> None:
    raise AssertionError
