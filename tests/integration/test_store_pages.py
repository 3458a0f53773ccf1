"""What a route's page reads of the past, against a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import LATENCY_BOUNDS_S, Outcome, Span, Status
from tests.integration.test_store import MINUTE, World, cell

HOUR = 60 * MINUTE
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


async def test_verdicts_are_found_by_time_and_id_and_those_that_are_gone_are_left_out(world: World) -> None:
    first, second = [await world.ask(observed_at=START + minutes * MINUTE) for minutes in (0, 1)]
    keys = [(verdict.observed_at, verdict.id) for verdict in (first, second)]
    found = await world.store.verdicts_at([*keys, (START, uuid4())])
    assert {stored.standing.id for stored in found} == {first.id, second.id}
    assert await world.store.verdicts_at([]) == []
    assert await world.store.verdicts_at([(START + HOUR, first.id)]) == []
