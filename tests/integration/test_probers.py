"""Who is at work: signs of life, and the one configuration that is active in each location."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.store import Sign, claims
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


class TestShares:
    """What falls due is left for a while to the prober that it falls to."""

    @pytest.fixture(autouse=True)
    def for_a_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(claims, "LEFT_TO_ANOTHER_S", 60.0)

    async def due(self, world: World, ago_s: float) -> None:
        """Make each cell due at a moment of its own, so long ago and up to a millisecond more."""
        await world.sql(
            "UPDATE schedule SET next_due_at = now() - make_interval(secs => :ago + 0.001 * random())", ago=ago_s
        )

    async def fleet(self, world: World, cells: int, *signs: Sign) -> None:
        await world.sync(*(cell(f"r{n}") for n in range(cells)))
        for one in signs:
            await world.store.tell(one)

    async def test_probers_at_work_share_what_falls_due_evenly_however_late_each_comes(self, world: World) -> None:
        signs = [sign() for _ in range(3)]
        await self.fleet(world, 300, *signs)
        await self.due(world, 0.1)
        taken = [len(await world.store.claim(HERE, HASH, 999, one.id)) for one in signs]
        assert sum(taken) == 300
        assert all(50 < count < 150 for count in taken)  # six deviations of chance

    async def test_they_take_turns_at_a_cell(self, world: World) -> None:
        signs = [sign(), sign()]
        await self.fleet(world, 1, *signs)
        askers = set()
        for _ in range(24):
            await self.due(world, 0.1)
            for one in signs:
                for claim in await world.store.claim(HERE, HASH, 1, one.id):
                    askers.add(one.id)
                    await world.store.release([claim])
        assert askers == {one.id for one in signs}

    async def test_what_its_prober_left_for_so_long_anyone_may_ask(self, world: World) -> None:
        signs = [sign(), sign()]
        await self.fleet(world, 40, *signs)
        await self.due(world, 0.1)
        mine = len(await world.store.claim(HERE, HASH, 99, signs[0].id))
        seconds = await world.store.seconds_to_next_due(HERE, HASH, signs[0].id)
        assert seconds is not None
        assert 0 < seconds <= 59.9
        await world.sql("UPDATE schedule SET next_due_at = next_due_at - interval '60 seconds'")
        assert await world.store.seconds_to_next_due(HERE, HASH, signs[0].id) == 0
        assert 0 < mine < 40
        assert len(await world.store.claim(HERE, HASH, 99, signs[0].id)) == 40 - mine

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(sign("there"), id="in another location"),
            pytest.param(replace(sign(), probes=False), id="that only serves pages"),
            pytest.param(replace(sign(), superseded=True), id="that stopped claiming"),
            pytest.param(sign(config_hash=OTHER), id="of another configuration"),
        ],
    )
    async def test_nothing_falls_to_a_process(self, world: World, other: Sign) -> None:
        me = sign()
        await self.fleet(world, 40, me, other)
        await self.due(world, 0.1)
        assert len(await world.store.claim(HERE, HASH, 99, me.id)) == 40

    async def test_nothing_falls_to_one_that_has_gone_silent(self, world: World) -> None:
        me, silent = sign(), sign()
        await self.fleet(world, 40, silent)
        await world.pass_time(timedelta(seconds=16))
        await world.store.tell(me)
        await self.due(world, 0.1)
        assert len(await world.store.claim(HERE, HASH, 99, me.id)) == 40

    async def test_one_that_is_not_at_work_takes_whatever_is_due(self, world: World) -> None:
        await self.fleet(world, 40, sign(), sign())
        await self.due(world, 0.1)
        assert len(await world.store.claim(HERE, HASH, 99, sign().id)) == 40
