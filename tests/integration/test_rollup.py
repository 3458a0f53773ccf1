"""Sums by the hour, made from verdicts in a real PostgreSQL, and how long verdicts and sums are kept."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Hour, Outcome, Status
from service.store import rollup
from tests.integration.test_store import MINUTE, World, cell, verdict

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell())
    return world


async def this_hour(world: World) -> datetime:
    now: datetime = await world.value("SELECT date_trunc('hour', now(), 'UTC')")
    return now.astimezone(UTC)


async def ask_at(world: World, at: datetime, status: Status = Status.TOOLS_SUPPORTED, **changes: Any) -> None:
    await world.ask(status, observed_at=at, **changes)


async def hours(world: World, route_id: str = "alpha") -> list[Hour]:
    present = await this_hour(world)
    return await world.store.hours(route_id, present - 500 * DAY, present + HOUR)


async def counts(world: World) -> dict[int, int]:
    """Verdicts by hours ago."""
    present = await this_hour(world)
    return {(present - hour.at) // HOUR: sum(hour.counts.values()) for hour in await hours(world)}


async def test_an_hour_sums_up_what_was_observed_in_it(world: World) -> None:
    hour = await this_hour(world) - 2 * HOUR
    end = hour + HOUR - timedelta(microseconds=1)
    await ask_at(world, hour, requests=2, duration_s=0.1, time_to_first_token_s=0.05)
    await ask_at(world, end, Status.TIMEOUT, requests=1, duration_s=120.5, time_to_first_token_s=None, tokens_in=None)
    await ask_at(world, end, Status.UNREACHABLE, requests=1, duration_s=0.3, time_to_first_token_s=0.11)
    await ask_at(world, hour - timedelta(microseconds=1))
    await ask_at(world, hour + HOUR)
    await world.store.roll_up()
    (found,) = [one for one in await hours(world) if one.at == hour]
    assert found == Hour(
        at=hour,
        contract="native_tools",
        location="here",
        counts={outcome: {"proven": 1, "unavailable": 2}.get(outcome.value, 0) for outcome in Outcome},
        statuses={"tools_supported": 1, "timeout": 1, "unreachable": 1},
        requests=4,
        tokens_in=80,
        tokens_out=36,
        first_token=(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        duration=(1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    )
    assert found.at.tzinfo is UTC


async def test_the_hour_that_runs_is_summed_up_again_and_again(world: World) -> None:
    await ask_at(world, datetime.now(UTC))
    await world.store.roll_up()
    first = sum((await counts(world)).values())
    await ask_at(world, datetime.now(UTC))
    await world.store.roll_up()
    assert (first, sum((await counts(world)).values())) == (1, 2)


async def test_a_late_verdict_has_its_hour_summed_up_once_more(world: World) -> None:
    hour = await this_hour(world) - 5 * HOUR
    await ask_at(world, hour)
    await world.store.roll_up()
    assert await world.store.roll_up() <= 3  # the one that runs, and those that aren't over for long
    before = await counts(world)
    await ask_at(world, hour + MINUTE)
    assert await counts(world) == before
    await world.store.roll_up()
    assert (await counts(world))[5] == before[5] + 1 == 2


async def test_all_hours_that_went_by_are_summed_up_after_a_rest(world: World) -> None:
    present = await this_hour(world)
    for ago in (30, 29, 3):
        await ask_at(world, present - ago * HOUR)
    await world.sql("DELETE FROM hours")  # of an earlier release that didn't note them
    await world.store.roll_up()
    assert await counts(world) == {30: 1, 29: 1, 3: 1}
    assert await world.value("SELECT count(*) FROM hours WHERE rolled_at IS NOT NULL") >= 29


async def test_an_hour_is_done_only_when_saves_that_began_in_it_have_ended(world: World, engine: AsyncEngine) -> None:
    """A verdict that was saved while the hour ran, and committed after its sums were made, isn't lost."""
    hour = await this_hour(world) - 3 * HOUR
    over = hour + HOUR + timedelta(seconds=1)
    await ask_at(world, hour)
    await world.sql("DELETE FROM hours")  # it was none that came late
    async with engine.begin() as connection:
        await rollup.roll(connection, hour, over)
    assert hour in await outstanding(engine, over)
    async with engine.begin() as connection:
        await rollup.roll(connection, hour, over + rollup.GRACE)
    assert hour not in await outstanding(engine, over + rollup.GRACE)


async def outstanding(engine: AsyncEngine, now: datetime) -> list[datetime]:
    async with engine.begin() as connection:
        return await rollup.outstanding(connection, now)


async def test_a_verdict_that_is_saved_while_its_hour_is_summed_up_is_summed_up_next_time(
    world: World, engine: AsyncEngine
) -> None:
    hour = await this_hour(world) - 4 * HOUR
    await ask_at(world, hour)
    claim = await world.claim_one()
    async with engine.begin() as connection:
        await rollup.roll(connection, hour, hour + 4 * HOUR)
        saving = asyncio.create_task(world.store.save([(claim, verdict(claim, observed_at=hour + MINUTE))]))
        done, _ = await asyncio.wait({saving}, timeout=0.1)
        assert not done  # it waits until the sums are there
    await saving
    await world.store.roll_up()
    assert (await counts(world))[4] == 2


async def test_replicas_take_turns(world: World) -> None:
    present = await this_hour(world)
    for ago in (4, 3, 2):
        await ask_at(world, present - ago * HOUR)
    await asyncio.gather(*(world.store.roll_up() for _ in range(3)))
    assert await counts(world) == {4: 1, 3: 1, 2: 1}


async def test_a_sum_outlives_its_verdicts_and_a_late_one_does_not_shrink_it(world: World) -> None:
    hour = await this_hour(world) - 3 * DAY
    for minute in range(3):
        await ask_at(world, hour + minute * MINUTE)
    await world.store.roll_up()
    assert await world.store.drop_partitions(older_than=DAY) > 0
    await ask_at(world, hour + 9 * MINUTE)  # its day is made anew
    await world.store.roll_up()
    assert (await counts(world))[72] == 3


class TestDays:
    async def days(self, world: World) -> dict[int, int]:
        """Verdicts by days ago."""
        today = await self.today(world)
        found = await world.sql("SELECT day, sum(proven)::int FROM daily GROUP BY day")
        return {(today - day) // DAY: number for day, number in found}

    async def today(self, world: World) -> datetime:
        return rollup.day_of(await this_hour(world))

    async def test_a_day_is_summed_up_once_it_is_over(self, world: World) -> None:
        day = await self.today(world) - 3 * DAY
        for at in (day, day + DAY - timedelta(microseconds=1), day + DAY, await this_hour(world)):
            await ask_at(world, at)
        await world.store.roll_up()
        assert await self.days(world) == {3: 2, 2: 1}

    async def test_it_is_over_only_when_its_last_hour_is(self, world: World, engine: AsyncEngine) -> None:
        day = await self.today(world) - 3 * DAY
        await ask_at(world, day)
        async with engine.begin() as connection:
            await rollup.roll(connection, day, day + DAY)
            assert await rollup.outstanding_days(connection, day + DAY + rollup.GRACE - MINUTE) == []
            assert await rollup.outstanding_days(connection, day + DAY + rollup.GRACE) == [day]

    async def test_a_late_verdict_has_its_day_summed_up_once_more(self, world: World, engine: AsyncEngine) -> None:
        day = await self.today(world) - 2 * DAY
        await ask_at(world, day)
        await world.store.roll_up()
        await ask_at(world, day + 5 * HOUR)
        async with engine.begin() as connection:
            assert await rollup.outstanding_days(connection, datetime.now(UTC)) == []  # its hour comes first
        await world.store.roll_up()
        assert (await self.days(world))[2] == 2
        async with engine.begin() as connection:
            assert await rollup.outstanding_days(connection, datetime.now(UTC)) == []

    async def test_hours_that_a_release_without_days_summed_up_are_noticed(self, world: World) -> None:
        day = await self.today(world) - 2 * DAY
        await ask_at(world, day)
        await world.store.roll_up()
        await world.sql("UPDATE hourly SET proven = 7")
        await world.store.roll_up()
        assert (await self.days(world))[2] == 1
        await world.sql("UPDATE hours SET rolled_at = now() WHERE hour = :day", day=day)
        await world.store.roll_up()
        assert (await self.days(world))[2] == 7

    async def test_a_day_whose_hours_are_forgotten_in_part_does_not_shrink(self, world: World) -> None:
        day = await self.today(world) - 2 * DAY
        for hour in (3, 4, 5):
            await ask_at(world, day + hour * HOUR)
        await world.store.roll_up()
        await world.sql("DELETE FROM hourly WHERE hour < :at", at=day + 5 * HOUR)
        await ask_at(world, day + 6 * HOUR)
        await world.store.roll_up()
        assert (await self.days(world))[2] == 3

    async def test_days_are_kept_for_four_hundred(self, world: World) -> None:
        today = await self.today(world)
        await world.sql("INSERT INTO hours VALUES (:hour, now())", hour=await this_hour(world) - HOUR)
        for ago in (399, 400, 401):
            await ask_at(world, today - ago * DAY)
        await world.store.roll_up()
        assert set(await self.days(world)) == {399, 400, 401}
        await world.store.forget(timedelta(days=400))
        assert set(await self.days(world)) == {399, 400}

    async def test_replicas_take_turns(self, world: World) -> None:
        today = await self.today(world)
        for ago in (4, 3, 2):
            await ask_at(world, today - ago * DAY)
        await asyncio.gather(*(world.store.roll_up() for _ in range(3)))
        assert await self.days(world) == {4: 1, 3: 1, 2: 1}


async def test_the_share_of_proven_verdicts_counts_required_contracts_and_no_unproven_ones(world: World) -> None:
    await world.sync(cell(), cell(contract="missing_tool_results", required=False), cell("beta"))
    hour = await this_hour(world) - 2 * HOUR
    for status in (Status.TOOLS_SUPPORTED, Status.TIMEOUT, Status.CANCELLED):
        for claim in await world.claim():
            await world.store.save([(claim, verdict(claim, status, observed_at=hour))])
    await world.store.roll_up()
    assert await world.store.shares(DAY) == {"alpha": (1, 2), "beta": (1, 2)}
    assert await world.store.shares(HOUR) == {}


async def test_sums_are_kept_for_four_hundred_days(world: World) -> None:
    present = await this_hour(world)
    await world.sql("INSERT INTO hours VALUES (:hour, now())", hour=present - HOUR)
    for ago in (399, 401):
        await ask_at(world, present - ago * DAY)
    await world.store.roll_up()
    assert {ago // 24 for ago in await counts(world)} == {399, 401}
    await world.store.forget(timedelta(days=400))
    assert {ago // 24 for ago in await counts(world)} == {399}
    assert await world.value("SELECT count(*) FROM hours WHERE hour < now() - interval '400 days'") == 0


class TestSizes:
    async def days(self, world: World) -> list[int]:
        """The days that have a partition, in days ago."""
        names = await world.sql(
            "SELECT (now() AT TIME ZONE 'UTC')::date - to_date(right(relname, 8), 'YYYYMMDD') FROM pg_inherits "
            "JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'verdicts'::regclass ORDER BY relname"
        )
        return [row[0] for row in names]

    async def size(self, world: World) -> int:
        return int(
            await world.value(
                "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'verdicts'::regclass"
            )
        )

    async def test_the_oldest_days_go_until_the_rest_fits(self, world: World) -> None:
        await world.store.ensure_partitions(days_back=5, days_ahead=1)
        for ago in (5, 4):
            await ask_at(world, datetime.now(UTC) - ago * DAY)
        whole = await self.size(world)
        assert await world.store.drop_largest(whole) == 0
        assert await world.store.drop_largest(whole - 1) == 1
        assert (await self.days(world))[0] == 4

    async def test_today_and_yesterday_stay_however_large_they_are(self, world: World) -> None:
        await world.store.ensure_partitions(days_back=4, days_ahead=1)
        await ask_at(world, datetime.now(UTC))
        assert await world.store.drop_largest(1) == 3
        assert [ago for ago in await self.days(world) if ago >= 0] == [1, 0]
        assert len(await world.store.verdicts("alpha")) == 1

    async def test_a_day_that_is_being_read_stays_until_the_next_time(
        self, world: World, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.store.partitions.DROP_LOCK_TIMEOUT", "20ms")
        await world.store.ensure_partitions(days_back=3, days_ahead=0)
        async with engine.begin() as reader:
            await reader.execute(text("SELECT count(*) FROM verdicts"))
            assert await world.store.drop_largest(1) == 0
        assert await world.store.drop_largest(1) == 2
