"""What the overview reads of the last day, against a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import LATENCY_BOUNDS_S
from service.store import overview
from service.store.tables import cells, hourly
from service.web.charts import quantile
from tests.integration.test_store import World, cell

HOUR = timedelta(hours=1)
NOW = datetime(2025, 3, 9, 3, 12, 7, tzinfo=UTC)
THIS = datetime(2025, 3, 9, 3, tzinfo=UTC)
NONE = [0] * (len(LATENCY_BOUNDS_S) + 1)


def buckets(**counts: int) -> list[int]:
    """`b3=2`: two in the fourth bucket."""
    return [counts.get(f"b{place}", 0) for place in range(len(LATENCY_BOUNDS_S) + 1)]


async def put(
    engine: AsyncEngine, name: str, contract: str, location: str, hour: datetime, first_token: Sequence[int]
) -> None:
    wanted = (cells.c.route_id == name, cells.c.contract == contract, cells.c.location == location)
    async with engine.begin() as connection:
        cell_id = await connection.scalar(select(cells.c.id).where(*wanted))
        values = {"cell_id": cell_id, "hour": hour, "proven": sum(first_token), "first_token": list(first_token)}
        others = dict.fromkeys(
            ("violated", "blocked", "unavailable", "unproven", "requests", "tokens_in", "tokens_out"), 0
        )
        await connection.execute(hourly.insert().values(**values, **others, statuses={}, duration=NONE))


async def medians(engine: AsyncEngine) -> dict[str, tuple[float | None, ...]]:
    async with engine.begin() as connection:
        return await overview.first_tokens(connection, NOW)


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell(), cell(contract="agent_turn"), cell(contract="parallel_tool_calls", required=False))
    return world


async def test_medians_made_by_the_database_are_those_that_charts_show(world: World, engine: AsyncEngine) -> None:
    cases = (
        buckets(b0=1),
        buckets(b1=3, b2=1),
        buckets(b0=2, b3=2),
        buckets(b2=1, b5=5, b9=9),
        buckets(b4=7, b11=2),
        buckets(b3=1, b11=2),
        buckets(b11=4),
    )
    for back, counts in enumerate(reversed(cases)):
        await put(engine, "alpha", "native_tools", "here", THIS - back * HOUR, counts)
    wanted = [quantile(LATENCY_BOUNDS_S, counts, 0.5) for counts in cases]
    assert (await medians(engine))["alpha"][-len(cases) :] == tuple(pytest.approx(one.seconds) for one in wanted if one)


async def test_hours_without_a_token_are_gaps_and_only_the_last_day_is_read(world: World, engine: AsyncEngine) -> None:
    for back, counts in ((24, buckets(b4=1)), (23, buckets(b0=1)), (2, NONE), (0, buckets(b1=1)), (-1, buckets(b4=1))):
        await put(engine, "alpha", "native_tools", "here", THIS - back * HOUR, counts)
    line = (await medians(engine))["alpha"]
    assert line == (pytest.approx(0.05), *[None] * 22, pytest.approx(0.175))


async def test_required_contracts_are_taken_together_and_others_left_out(world: World, engine: AsyncEngine) -> None:
    await put(engine, "alpha", "native_tools", "here", THIS, buckets(b0=1))
    await put(engine, "alpha", "agent_turn", "here", THIS, buckets(b3=3))
    await put(engine, "alpha", "parallel_tool_calls", "here", THIS, buckets(b9=99))
    wanted = quantile(LATENCY_BOUNDS_S, buckets(b0=1, b3=3), 0.5)
    assert wanted is not None
    assert (await medians(engine))["alpha"][-1] == pytest.approx(wanted.seconds)


async def test_a_route_that_no_token_came_from_is_absent(world: World, engine: AsyncEngine) -> None:
    await put(engine, "alpha", "native_tools", "here", THIS, NONE)
    assert await medians(engine) == {}
    assert await world.store.first_tokens() == {}
