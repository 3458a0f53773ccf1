"""What a route's page reads of the past, against a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import LATENCY_BOUNDS_S, Outcome, Span, Status
from tests.integration.test_store import MINUTE, World, cell

HOUR = 60 * MINUTE
DAY = 24 * HOUR
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 3 * HOUR


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell())
    return world


def counts(span: Span) -> dict[Outcome, int]:
    return {outcome: number for outcome, number in span.counts.items() if number}


def bucket(span: Span) -> list[int]:
    return [place for place, number in enumerate(span.first_token) if number]


async def test_verdicts_are_counted_by_spans_and_empty_spans_are_left_out(world: World) -> None:
    for minutes, status in (
        (0, Status.TOOLS_SUPPORTED),
        (3, Status.TIMEOUT),
        (4, Status.TIMEOUT),
        (15, Status.NOT_SENT),
    ):
        await world.ask(status, observed_at=START + minutes * MINUTE, time_to_first_token_s=0.25)
    found = await world.store.spans("alpha", "native_tools", START, START + 16 * MINUTE, 4 * MINUTE)
    assert [((span.start - START) // MINUTE, counts(span)) for span in found] == [
        (0, {Outcome.PROVEN: 1, Outcome.UNAVAILABLE: 1}),
        (4, {Outcome.UNAVAILABLE: 1}),
        (12, {Outcome.UNPROVEN: 1}),
    ]
    assert [bucket(span) for span in found] == [[1], [1], [1]]
    assert all(len(span.duration) == len(LATENCY_BOUNDS_S) + 1 and sum(span.duration) for span in found)
    assert await world.store.spans("alpha", "agent_turn", START, START + HOUR, 4 * MINUTE) == []
    assert await world.store.spans("beta", "native_tools", START, START + HOUR, 4 * MINUTE) == []


async def test_whole_hours_come_from_the_sums_and_say_the_same(world: World) -> None:
    for minutes, token in ((1, 0.1), (59, 500.0), (60, None), (121, 0.3)):
        await world.ask(observed_at=START + minutes * MINUTE, time_to_first_token_s=token)
    asked = ("alpha", "native_tools", START, START + 4 * HOUR)
    assert await world.store.spans(*asked, 2 * HOUR) == []
    await world.store.roll_up()
    by_hours = await world.store.spans(*asked, 2 * HOUR)
    assert [((span.start - START) // HOUR, counts(span), bucket(span)) for span in by_hours] == [
        (0, {Outcome.PROVEN: 3}, [0, len(LATENCY_BOUNDS_S)]),
        (2, {Outcome.PROVEN: 1}, [2]),
    ]
    raw = await world.store.spans("alpha", "native_tools", START, START + 4 * HOUR, 2 * HOUR + timedelta(seconds=1))
    assert [(counts(span), span.first_token, span.duration) for span in raw] == [
        (counts(span), span.first_token, span.duration) for span in by_hours
    ]


async def test_whole_days_come_from_the_sums_of_days_that_are_over_and_say_the_same(world: World) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for ago in (9, 5, 4, 1):
        for hour, token in ((0, 0.1), (11, 500.0), (23, None)):
            await world.ask(observed_at=today - ago * DAY + hour * HOUR, time_to_first_token_s=token)
    await world.ask(Status.TIMEOUT, observed_at=datetime.now(UTC))
    await world.store.roll_up()
    since, until = today - 8 * DAY, today + 2 * DAY
    by_days = await world.store.spans("alpha", "native_tools", since, until, 2 * DAY)
    assert [((span.start - since) // DAY, counts(span)) for span in by_days] == [
        (2, {Outcome.PROVEN: 3}),
        (4, {Outcome.PROVEN: 3}),
        (6, {Outcome.PROVEN: 3}),
        (8, {Outcome.UNAVAILABLE: 1}),
    ]
    no_midnight = await world.store.spans("alpha", "native_tools", since - HOUR, until, 2 * DAY)
    assert [sum(span.counts.values()) for span in no_midnight] == [1, 2, 4, 2, 2]
    raw = await world.store.spans("alpha", "native_tools", since, until, 2 * DAY - timedelta(seconds=1))
    assert [(counts(span), span.first_token, span.duration) for span in raw] == [
        (counts(span), span.first_token, span.duration) for span in by_days
    ]
    for tables in ("verdicts", "hourly WHERE hour < now() - interval '48 hours'"):
        await world.sql(f"DELETE FROM {tables}")
        assert await world.store.spans("alpha", "native_tools", since, until, 2 * DAY) == by_days


async def test_before_days_are_summed_up_they_are_read_by_the_hour(world: World) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for ago in (3, 2, 1):
        await world.ask(observed_at=today - ago * DAY)
    await world.store.roll_up()
    asked = ("alpha", "native_tools", today - 3 * DAY, today + DAY, DAY)
    summed_up = await world.store.spans(*asked)
    assert len(summed_up) == 3
    await world.sql("DELETE FROM daily WHERE day > now() - interval '71 hours'")
    assert await world.store.spans(*asked) == summed_up
    await world.sql("DELETE FROM daily")
    assert await world.store.spans(*asked) == summed_up


async def test_verdicts_are_found_by_time_and_id_and_those_that_are_gone_are_left_out(world: World) -> None:
    first, second = [await world.ask(observed_at=START + minutes * MINUTE) for minutes in (0, 1)]
    keys = [(verdict.observed_at, verdict.id) for verdict in (first, second)]
    found = await world.store.verdicts_at([*keys, (START, uuid4())])
    assert {stored.standing.id for stored in found} == {first.id, second.id}
    assert await world.store.verdicts_at([]) == []
    assert await world.store.verdicts_at([(START + HOUR, first.id)]) == []
