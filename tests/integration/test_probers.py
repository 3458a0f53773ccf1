"""Who is at work: signs of life, and the one configuration that is active in each location."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.store import Sign
from tests.integration.test_store import HASH, HERE, MINUTE, World, cell, route

OTHER = "fedcba9876543210"


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell())
    return world


def sign(location: str = HERE, config_hash: str = HASH) -> Sign:
    return Sign(uuid4(), location, True, config_hash, "1.0", egress_up=True, spooled=3)


async def at_work(world: World) -> list[UUID]:
    return [prober.id for prober in (await world.store.snapshot()).probers]


async def test_a_process_is_seen_as_it_last_told_of_itself(world: World) -> None:
    one = sign()
    assert await world.store.tell(one) == HASH
    (first,) = (await world.store.snapshot()).probers
    await world.store.tell(replace(one, superseded=True, egress_up=None, spooled=0))
    (prober,) = (await world.store.snapshot()).probers
    assert (first.location, first.probes, first.config_hash, first.version) == (HERE, True, HASH, "1.0")
    assert (first.superseded, first.egress_up, first.spooled) == (False, True, 3)
    assert (prober.superseded, prober.egress_up, prober.spooled) == (True, None, 0)
    assert prober.started_at == first.started_at < prober.seen_at
    assert prober.seen_at.tzinfo is UTC


async def test_one_that_is_silent_for_a_minute_is_no_longer_at_work_and_comes_back_as_it_was(world: World) -> None:
    silent, lively = sign(), sign()
    for one in (silent, lively):
        await world.store.tell(one)
    await world.pass_time(61 * timedelta(seconds=1))
    await world.store.tell(lively)
    assert await at_work(world) == [lively.id]
    await world.store.tell(silent)
    assert await at_work(world) == [silent.id, lively.id]  # the longest running first


async def test_one_that_leaves_is_gone_at_once(world: World) -> None:
    one, other = sign(), sign()
    for each in (one, other):
        await world.store.tell(each)
    await world.store.leave(one.id)
    assert await at_work(world) == [other.id]
    await world.store.leave(one.id)


async def test_one_that_was_silent_for_a_day_is_forgotten(world: World) -> None:
    await world.store.tell(sign())
    await world.pass_time(timedelta(hours=23))
    await world.store.forget(timedelta(days=400))
    assert await world.value("SELECT count(*) FROM probers") == 1
    await world.pass_time(timedelta(hours=2))
    await world.store.forget(timedelta(days=400))
    assert await world.value("SELECT count(*) FROM probers") == 0


class TestConfigurations:
    async def test_only_holders_of_the_one_that_was_loaded_last_claim(self, world: World) -> None:
        await world.all_due()
        await world.store.sync(HERE, OTHER, [route()], [cell()])
        assert await world.store.claim(HERE, HASH, 9) == []
        assert await world.store.tell(sign()) == OTHER
        assert len(await world.store.claim(HERE, OTHER, 9)) == 1

    async def test_one_that_is_loaded_again_is_active_again(self, world: World) -> None:
        await world.store.sync(HERE, OTHER, [route()], [cell()])
        await world.store.sync(HERE, HASH, [route()], [cell()])
        await world.all_due()
        assert await world.store.claim(HERE, OTHER, 9) == []
        assert len(await world.store.claim(HERE, HASH, 9)) == 1

    async def test_each_location_has_its_own(self, world: World) -> None:
        await world.store.sync("there", OTHER, [route()], [cell(location="there")])
        await world.all_due()
        assert (await world.store.snapshot()).active == {HERE: HASH, "there": OTHER}
        assert await world.store.tell(sign("there", HASH)) == OTHER
        assert len(await world.store.claim(HERE, HASH, 9)) == 1
        assert len(await world.store.claim("there", OTHER, 9)) == 1

    async def test_a_location_that_nobody_loaded_has_none(self, world: World) -> None:
        assert await world.store.tell(sign("nowhere")) is None
        assert await world.store.claim("nowhere", HASH, 9) == []

    async def test_a_probe_under_way_ends_as_it_began(self, world: World) -> None:
        claim = await world.claim_one()
        await world.store.sync(HERE, OTHER, [route()], [cell()])
        assert claim.leased_until - claim.claimed_at > MINUTE
        assert await world.store.claim(HERE, OTHER, 9) == []
        await world.store.release([claim])
        assert len(await world.store.claim(HERE, OTHER, 9)) == 1
