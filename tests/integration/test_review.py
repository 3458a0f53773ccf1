"""What was found by reading the code against its design: each a wrong word, a lost verdict or a doubled probe once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from service.metrics import render_cells
from service.model import Claim, Status
from tests.integration.test_store import HASH, HERE, INTERVAL, World, cell, verdict


@pytest.fixture
def world(engine: AsyncEngine) -> World:
    return World(engine)


async def claimed(world: World) -> list[Claim]:
    await world.all_due()
    return await world.store.claim(HERE, HASH, 10)


async def test_a_verdict_of_a_cell_that_the_database_lost_holds_up_no_other(world: World) -> None:
    await world.sync(cell())
    (claim,) = await claimed(world)
    lost, kept = replace(claim, cell_id=claim.cell_id + 1000), verdict(claim)
    with capture_logs() as lines:
        assert await world.store.save([(lost, verdict(lost)), (claim, kept)]) == {kept.id}
    assert [(line["action"], line["verdicts"]) for line in lines] == [("verdicts_stray", 1)]


@pytest.mark.parametrize("other", [cell("beta"), cell(contract="agent_turn")])
async def test_a_verdict_is_never_stored_for_another_cell_under_the_same_number(world: World, other: Any) -> None:
    await world.sync(cell(), other)
    claims = {(claim.route_id, claim.contract): claim for claim in await claimed(world)}
    mine, theirs = claims["alpha", "native_tools"], claims[other.route_id, other.contract]
    astray = replace(mine, cell_id=theirs.cell_id)
    assert await world.store.save([(astray, verdict(astray))]) == set()
    assert await world.value("SELECT count(*) FROM verdicts") == 0
    assert await world.value("SELECT sum(proven) FROM latest") == 0


async def test_what_is_announced_is_logged_once_and_what_isnt_is_not(world: World) -> None:
    await world.sync(cell(), cell(contract="agent_turn", required=False))
    told = []
    for status in (
        Status.TOOLS_SUPPORTED,
        Status.TIMEOUT,
        Status.TIMEOUT,
        Status.TOOLS_SUPPORTED,
        Status.TOOLS_SUPPORTED,
    ):
        batch = [(claim, verdict(claim, status)) for claim in await claimed(world)]
        with capture_logs() as lines:
            await world.store.save(batch)
            await world.store.save(batch)
        told += lines
    of_cell = {"action": "state_changed", "route": "alpha", "contract": "native_tools", "location": HERE}
    words = {"event": "A confirmed state changed."} | of_cell
    down = {"kind": "regression", "from_status": "tools_supported", "to_status": "timeout", "log_level": "warning"}
    up = {"kind": "recovery", "from_status": "timeout", "to_status": "tools_supported", "log_level": "info"}
    assert told == [words | down, words | up]


def oldest_due(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("routeproof_location_oldest_due_seconds{")]
    return line.rpartition(" ")[2]


async def test_a_cell_waits_until_it_is_asked_and_again_when_nothing_comes_of_that(world: World) -> None:
    await world.sync(cell())
    await world.store.claim(HERE, HASH, 10)
    in_time = await world.store.snapshot()
    assert float(oldest_due(render_cells(in_time, in_time.now))) < 60
    await world.end_leases()
    await world.sql("UPDATE schedule SET next_due_at = now() - interval '20 minutes'")
    left = await world.store.snapshot()
    assert 1200 <= float(oldest_due(render_cells(left, left.now))) < 1800
    later = render_cells(left, left.now + timedelta(hours=1))
    assert float(oldest_due(later)) >= 4800
    await world.store.claim(HERE, HASH, 10)  # as after each start of a process that dies while it probes
    asked = await world.store.snapshot()
    assert asked.cells[0].next_due_at is None
    assert 1200 <= float(oldest_due(render_cells(asked, asked.now))) < 1800


async def test_a_cell_that_a_provider_holds_off_is_due_when_the_wait_is_over(world: World) -> None:
    await world.sync(cell(provider="acme", host="h", credential="env:K"))
    await world.sql("UPDATE schedule SET next_due_at = now() - interval '20 minutes'")
    await world.sql("INSERT INTO waits VALUES ('acme', 'h', 'env:K', now() + interval '10 minutes')")
    snapshot = await world.store.snapshot()
    assert oldest_due(render_cells(snapshot, snapshot.now)) == "0.0"
    assert 0 < float(oldest_due(render_cells(snapshot, snapshot.now + timedelta(minutes=11)))) <= 61


async def test_taking_up_a_configuration_and_a_save_dont_deadlock(world: World, engine: AsyncEngine) -> None:
    await world.sync(cell("alpha"), cell("beta"))
    low, high = sorted(await world.sql("SELECT route_id, id FROM cells"), key=lambda row: row.id)
    hold = text("SELECT FROM schedule WHERE cell_id = :id FOR UPDATE")
    async with engine.begin() as save:
        await save.execute(hold, {"id": low.id})
        wanted = cell(low.route_id, interval=2 * INTERVAL), cell(high.route_id, fingerprint="f2")
        sync = asyncio.create_task(world.sync(*wanted))
        async with asyncio.timeout(60):
            while not await world.value("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
        await save.execute(hold, {"id": high.id})
    await sync
    assert await world.value("SELECT fingerprint FROM cells WHERE id = :id", id=high.id) == "f2"


async def test_what_a_probe_used_up_before_it_was_cancelled_is_spent(world: World) -> None:
    await world.sync(cell(), tokens_per_day=1000)
    (claim,) = await claimed(world)
    await world.store.release([claim], [verdict(claim, Status.CANCELLED, requests=2)])
    assert await world.sql("SELECT requests, tokens_in, tokens_out FROM spends") == [(2, 40, 12)]
    assert await world.value("SELECT count(*) FROM verdicts") == 0
    (again,) = await world.store.claim(HERE, HASH, 10)
    assert again.due_at == claim.due_at


async def test_another_interval_doesnt_put_off_what_is_asked_soon_to_confirm_a_change(world: World) -> None:
    await world.sync(cell())
    for status in (Status.TOOLS_SUPPORTED, Status.TIMEOUT):
        await world.store.save([(claim, verdict(claim, status)) for claim in await claimed(world)])
    ((soon, grid_at),) = await world.sql("SELECT next_due_at, grid_at FROM schedule WHERE quick")
    await world.sync(cell(interval=1000 * INTERVAL, expires_after=6000 * INTERVAL))
    ((still, other_grid),) = await world.sql("SELECT next_due_at, grid_at FROM schedule WHERE quick")
    assert still == soon
    assert other_grid != grid_at
