"""Pauses: what they cover, that one which stops leaves one verdict, and how probing goes on after it."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Cell, Claim, Limit, Pause, PauseScope, Status
from tests.integration.test_store import HASH, HERE, MINUTE, World, cell, route, verdict

HOUR = 3600.0


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell())
    return world


async def pause(
    world: World, scope: PauseScope = PauseScope.ROUTE, target: str = "alpha", seconds: float = HOUR, stops: bool = True
) -> Pause:
    return await world.store.pause(scope, target, seconds, stops, "new keys", "Ada")


async def claimed(world: World) -> dict[str, str | None]:
    return {claim.route_id: claim.unsent for claim in await world.claim()}


async def leave_out(world: World, claim: Claim) -> None:
    result = verdict(claim, Status.NOT_SENT, reason=claim.unsent, requests=0, tokens_in=None, tokens_out=None)
    assert await world.store.save([(claim, result)]) == {result.id}


async def test_a_pause_is_read_back_until_it_is_over(world: World) -> None:
    long = await pause(world, seconds=2 * HOUR, stops=False)
    short = await pause(world, PauseScope.TAG, "prod")
    assert (short.scope, short.target, short.stops, short.reason, short.by) == ("tag", "prod", True, "new keys", "Ada")
    assert (short.until - short.since, short.since.tzinfo) == (timedelta(hours=1), UTC)
    assert await world.store.pauses() == [short, long]
    assert (await world.store.snapshot()).pauses == (short, long)
    assert await world.store.pauses(ended=True) == []
    await world.pass_time(90 * MINUTE)
    assert [one.id for one in await world.store.pauses()] == [long.id]
    assert [one.id for one in await world.store.pauses(ended=True)] == [short.id]


async def test_one_that_ended_long_ago_is_forgotten(world: World) -> None:
    await world.store.pause(PauseScope.ROUTE, "alpha", 60, False, "short", "me")
    on = await world.store.pause(PauseScope.ROUTE, "alpha", 402 * 86400, False, "long", "me")
    await world.pass_time(timedelta(days=400, seconds=59))
    await world.store.forget(timedelta(days=400))
    assert len(await world.store.pauses(ended=True)) == 1
    await world.pass_time(timedelta(seconds=2))
    await world.store.forget(timedelta(days=400))
    assert await world.store.pauses(ended=True) == []
    assert [one.id for one in await world.store.pauses()] == [on.id]


async def test_one_can_be_ended_once(world: World) -> None:
    one = await pause(world)
    ended = await world.store.end_pause(one.id)
    assert ended is not None
    assert ended.until < one.until
    assert await world.store.end_pause(one.id) is None
    assert await world.store.end_pause(uuid4()) is None
    assert await world.store.pauses() == []


@pytest.mark.parametrize(
    ("scope", "target", "stopped"),
    [
        (PauseScope.ROUTE, "alpha", {"alpha"}),
        (PauseScope.PROVIDER, "acme", {"alpha", "beta"}),
        (PauseScope.TAG, "prod", {"alpha", "gamma"}),
        (PauseScope.ROUTE, "acme", set()),
        (PauseScope.TAG, "pro", set()),
    ],
)
async def test_it_stops_what_it_names(world: World, scope: PauseScope, target: str, stopped: set[str]) -> None:
    routes = [route(), route("beta", tags=("eu",)), route("gamma", provider="other", tags=("eu", "prod"))]
    await world.store.sync(HERE, HASH, routes, [cell(row.id) for row in routes])
    await pause(world, scope, target)
    assert await claimed(world) == {row.id: "paused" if row.id in stopped else None for row in routes}


async def test_one_that_only_mutes_stops_nothing(world: World) -> None:
    await pause(world, stops=False)
    assert await claimed(world) == {"alpha": None}


async def test_one_that_is_over_stops_nothing(world: World) -> None:
    await pause(world)
    await world.pass_time(61 * MINUTE)
    assert await claimed(world) == {"alpha": None}


async def test_a_spell_leaves_one_verdict_and_probing_goes_on_when_it_ends(world: World) -> None:
    proof = await world.ask()
    grid_at = await world.value("SELECT grid_at FROM schedule")
    until = (await pause(world)).until
    await leave_out(world, await world.claim_one())
    ((due_at, grid_after),) = await world.sql("SELECT next_due_at, grid_at FROM schedule")
    assert until <= due_at <= until + MINUTE
    assert grid_after == grid_at
    row = await world.row()
    assert row.standing is not None
    assert row.standing.id == proof.id
    await world.pass_time(62 * MINUTE)
    (again,) = await world.store.claim(HERE, HASH, 9)
    assert again.unsent is None


async def test_the_longest_of_several_counts(world: World) -> None:
    await pause(world)
    until = (await pause(world, PauseScope.TAG, "prod", 5 * HOUR)).until
    await pause(world, PauseScope.PROVIDER, "acme", 9 * HOUR, stops=False)
    await leave_out(world, await world.claim_one())
    assert until <= await world.value("SELECT next_due_at FROM schedule") <= until + MINUTE


async def due_in(world: World) -> timedelta:
    span: timedelta = await world.value("SELECT next_due_at - now() FROM schedule")
    return span


async def test_ended_early_what_it_stopped_is_asked_within_a_minute(world: World) -> None:
    one = await pause(world)
    await leave_out(world, await world.claim_one())
    assert await due_in(world) > 50 * MINUTE
    await world.store.end_pause(one.id)
    assert await due_in(world) <= MINUTE


async def test_ended_while_its_verdict_is_on_the_way_as_well(world: World) -> None:
    one = await pause(world)
    claim = await world.claim_one()
    await world.store.end_pause(one.id)
    await leave_out(world, claim)
    assert await due_in(world) <= MINUTE


async def test_a_route_that_it_no_longer_names_is_asked_within_a_minute(world: World) -> None:
    await pause(world, PauseScope.TAG, "prod", 9 * HOUR)
    await leave_out(world, await world.claim_one())
    await world.sync(cell())
    assert await due_in(world) > 8 * timedelta(hours=1)
    await world.sync(cell(), tags=("eu",))
    assert await due_in(world) <= MINUTE
    await world.all_due()
    assert await claimed(world) == {"alpha": None}


async def test_ending_one_that_only_mutes_hurries_nothing(world: World) -> None:
    await world.sql("UPDATE schedule SET next_due_at = now() + interval '4 minutes'")
    one = await pause(world, stops=False)
    await world.store.end_pause(one.id)
    assert await due_in(world) > 3 * MINUTE


async def test_what_is_paused_takes_neither_limit_nor_budget(world: World) -> None:
    cells: list[Cell] = [cell(name, provider="acme") for name in ("alpha", "beta")]
    await world.sync(*cells, limits=[Limit("provider", "acme", 1)], requests_per_day=1)
    await pause(world)
    await world.sql("UPDATE schedule SET next_due_at = now() - interval '1 minute' + cell_id * interval '1 s'")
    found: dict[str, Any] = {}
    for _ in cells:
        found |= {claim.route_id: claim.unsent for claim in await world.store.claim(HERE, HASH, 9)}
    assert found == {"alpha": "paused", "beta": None}
