"""Limits of providers and hosts, the waits that providers ask for, and quick re-probes under both."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Cell, Claim, Limit, PauseScope, Status
from tests.integration.test_store import HASH, HERE, MINUTE, World, cell, verdict

HOST = "api.example:443"
SECOND = timedelta(seconds=1)


@pytest.fixture
def world(engine: AsyncEngine) -> World:
    return World(engine)


def limited(name: str = "alpha", **changes: Any) -> Cell:
    return cell(name, **({"provider": "acme", "host": HOST, "credential": "env:KEY", "max_requests": 5} | changes))


def provider(concurrency: int | None = None, per_minute: int | None = None, name: str = "acme") -> Limit:
    return Limit("provider", name, concurrency, per_minute)


def host(concurrency: int | None = None, per_minute: int | None = None, name: str = HOST) -> Limit:
    return Limit("host", name, concurrency, per_minute)


def many(count: int, prefix: str = "r", **changes: Any) -> list[Cell]:
    return [limited(f"{prefix}{number}", **changes) for number in range(count)]


async def oldest_first(world: World, *names: str) -> None:
    """Make the cells of these routes due, the first one longest."""
    for place, name in enumerate(names):
        await world.sql(
            "UPDATE schedule SET next_due_at = now() - :ago FROM cells WHERE id = cell_id AND route_id = :name",
            ago=timedelta(seconds=len(names) - place),
            name=name,
        )


async def finish(world: World, *claims: Claim, requests: int = 1) -> None:
    await world.store.save([(claim, verdict(claim, requests=requests)) for claim in claims])


class TestConcurrency:
    async def test_no_more_probes_run_than_a_limit_allows(self, world: World) -> None:
        await world.sync(*many(9), limits=[provider(3)])
        running = await world.claim(99)
        assert len(running) == 3
        assert await world.claim(99) == []
        await finish(world, running[0])
        assert len(await world.claim(99)) == 1

    async def test_replicas_that_claim_at_once_keep_it_together(self, world: World) -> None:
        await world.sync(*many(30), limits=[provider(7)])
        await world.all_due()
        taken = await asyncio.gather(*(world.store.claim(HERE, HASH, 5) for _ in range(8)))
        assert sum(map(len, taken)) == 7

    async def test_a_long_backlog_of_a_limited_provider_starves_nobody(self, world: World) -> None:
        others = [cell(f"free{number}", provider="other") for number in range(4)]
        await world.sync(*many(50), *others, limits=[provider(2)])
        await world.all_due()
        await world.sql(
            "UPDATE schedule SET next_due_at = now() - interval '1 hour' FROM cells "
            "WHERE id = cell_id AND provider = 'acme'"
        )
        claims = await world.store.claim(HERE, HASH, 6)
        assert Counter(claim.route_id.rstrip("0123456789") for claim in claims) == {"free": 4, "r": 2}

    async def test_a_provider_and_a_host_are_both_kept(self, world: World) -> None:
        elsewhere = many(4, "elsewhere", host="eu.api.example:443")
        of_others = many(4, "other", provider="reseller")
        await world.sync(*many(4), *elsewhere, *of_others, limits=[provider(3), host(2)])
        claims = await world.claim(99)
        by = {(claim.route_id.rstrip("0123456789")): 0 for claim in claims}
        assert sum(not claim.route_id.startswith("other") for claim in claims) <= 3, by
        assert sum(not claim.route_id.startswith("elsewhere") for claim in claims) <= 2, by
        claims += await world.claim(99)
        assert sum(not claim.route_id.startswith("other") for claim in claims) == 3  # all of both is used in the end
        assert sum(not claim.route_id.startswith("elsewhere") for claim in claims) == 2

    async def test_cells_of_a_full_host_take_no_places_of_their_provider(self, world: World) -> None:
        await world.sync(*many(5), limited("free", host="eu.api.example:443"), limits=[provider(3), host(1)])
        await oldest_first(world, "r0", "r1", "r2", "r3", "r4", "free")
        first = await world.store.claim(HERE, HASH, 99)
        assert "r0" in [claim.route_id for claim in first]
        again = await world.store.claim(HERE, HASH, 99)
        assert [claim.route_id for claim in (*first, *again)] == ["r0", "free"]

    async def test_cells_of_a_full_provider_take_no_places_of_their_host(self, world: World) -> None:
        await world.sync(*many(5), limited("free", provider="reseller"), limits=[provider(1), host(3)])
        await oldest_first(world, "r0", "r1", "r2", "r3", "r4", "free")
        first = await world.store.claim(HERE, HASH, 99)
        assert [claim.route_id for claim in (*first, *await world.store.claim(HERE, HASH, 99))] == ["r0", "free"]

    async def test_a_killed_replicas_probes_count_until_their_leases_end(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(1)])
        (lost,) = await world.claim(9)
        bound = lost.leased_until - lost.claimed_at
        await world.pass_time(bound - SECOND)
        assert await world.claim(9) == []
        await world.pass_time(2 * SECOND)
        assert len(await world.claim(9)) == 1

    async def test_a_limit_counts_in_its_own_location_alone(self, world: World) -> None:
        there = [limited(f"r{number}", location="there") for number in range(3)]
        await world.sync(*many(3), limits=[provider(1)])
        await world.sync(*there, location="there", limits=[provider(2)])
        assert len(await world.claim(9)) == 1
        assert len(await world.claim(9, "there")) == 2

    async def test_a_reload_changes_and_lifts_limits(self, world: World) -> None:
        await world.sync(*many(9), limits=[provider(1), host(5)])
        assert len(await world.claim(99)) == 1
        await world.sync(*many(9), limits=[provider(3)])
        assert len(await world.claim(99)) == 2
        await world.sync(*many(9))
        assert len(await world.claim(99)) == 6


class TestRequestsAMinute:
    async def test_a_probe_counts_with_all_that_it_may_send_until_it_ends_and_then_with_what_it_sent(
        self, world: World
    ) -> None:
        await world.sync(*many(9), limits=[provider(per_minute=12)])
        running = await world.claim(99)
        assert len(running) == 2  # ten of twelve
        await finish(world, *running, requests=2)
        assert len(await world.claim(99)) == 1  # four and five
        await world.pass_time(58 * SECOND)
        assert len(await world.claim(99)) == 0
        await world.pass_time(3 * SECOND)
        assert len(await world.claim(99)) == 1  # what ended a minute ago is forgotten, the third still runs

    async def test_what_was_given_back_counts_as_sent(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(per_minute=5)])
        await world.store.release(await world.claim(9))
        assert await world.claim(9) == []
        await world.pass_time(61 * SECOND)
        assert len(await world.claim(9)) == 1

    async def test_what_a_killed_replica_may_have_sent_counts_for_a_minute_beyond_its_lease(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(per_minute=5)])
        (lost,) = await world.claim(9)
        bound = lost.leased_until - lost.claimed_at
        await world.pass_time(bound + 58 * SECOND)
        assert await world.claim(9) == []
        await world.pass_time(3 * SECOND)
        assert len(await world.claim(9)) == 1

    async def test_a_dear_probe_is_not_overtaken_by_cheap_ones_for_ever(self, world: World) -> None:
        dear = limited("dear", contract="orphaned_tool_results", max_requests=8)
        await world.sync(dear, *many(20, max_requests=1), limits=[provider(per_minute=10)])
        await oldest_first(world, "r0", "r1", "r2", "dear", *(f"r{number}" for number in range(3, 20)))
        first = await world.store.claim(HERE, HASH, 3)
        await finish(world, *first)
        assert await world.store.claim(HERE, HASH, 99) == []  # seven are left, and eight are wanted first
        await world.pass_time(61 * SECOND)
        await oldest_first(world, "dear", *(f"r{number}" for number in range(3, 20)))
        assert "dear" in [claim.route_id for claim in await world.store.claim(HERE, HASH, 99)]

    @pytest.mark.parametrize("seed", range(2))
    async def test_no_sixty_seconds_hold_more_requests_than_the_limit_and_no_moment_more_probes(
        self, world: World, seed: int
    ) -> None:
        """Probes of random lengths that end, are lost, or are given back, under all limits at once, in moved time."""
        chance = random.Random(seed)
        per_minute, concurrency, of_host = 25, 4, 18
        short = timedelta(seconds=20)
        cells = [
            limited(f"r{n}", host=f"{n % 2}.example", deadline=short, max_requests=chance.choice((1, 5, 8)))
            for n in range(24)
        ]
        await world.sync(*cells, limits=[provider(concurrency, per_minute), host(None, of_host, "0.example")])
        clock, begun = 0.0, datetime.now(UTC)
        running: dict[UUID, tuple[Claim, float, list[float]]] = {}
        sent: list[tuple[float, str]] = []
        for _ in range(40):
            passed = chance.uniform(0, 20)
            await world.pass_time(timedelta(seconds=passed))
            clock += passed
            for claim, _, times in [one for one in running.values() if one[1] <= clock]:
                del running[claim.lease_id]
                fate = chance.random()
                if fate < 0.8:
                    await finish(world, claim, requests=len(times))
                elif fate < 0.95:
                    await world.store.release([claim])
            real = (datetime.now(UTC) - begun).total_seconds()
            for claim in await world.claim(chance.choice((2, 99))):
                cell = cells[int(claim.route_id[1:])]
                lasts = chance.choice((0.5, 5, 50)) * chance.random()
                times = [
                    clock + real + lasts * chance.random()
                    for _ in range(chance.randint((cell.max_requests + 1) // 2, cell.max_requests))
                ]
                running[claim.lease_id] = (claim, clock + lasts, times)
                sent += [(time, cell.host) for time in times]
            assert sum(end > clock for _, end, _ in running.values()) <= concurrency
        for most, times in (
            (per_minute, sorted(time for time, _ in sent)),
            (of_host, sorted(time for time, name in sent if name == "0.example")),
        ):
            busiest = max(bisect_right(times, time + 60) - place for place, time in enumerate(times))
            assert busiest <= most
            assert len(times) > most / 2  # and the limit is made use of


class TestQuickReProbes:
    async def quick(self, world: World, name: str) -> None:
        await world.sql(
            "UPDATE schedule SET quick = true, grid_at = now() + interval '2 minutes', "
            "next_due_at = now() - interval '9 minutes' FROM cells WHERE id = cell_id AND route_id = :name",
            name=name,
        )

    async def test_under_a_limit_they_come_last_and_fall_back_to_the_grid(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(2)])
        await world.all_due()
        await self.quick(world, "r0")
        assert {claim.route_id for claim in await world.store.claim(HERE, HASH, 9)} == {"r1", "r2"}
        ((quick, due_at, grid_at),) = await world.sql(
            "SELECT quick, next_due_at, grid_at FROM schedule WHERE lease_id IS NULL"
        )
        assert (quick, due_at) == (False, grid_at)

    async def test_one_that_the_limit_leaves_room_for_is_asked(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(3)])
        await world.all_due()
        await self.quick(world, "r0")
        assert len(await world.store.claim(HERE, HASH, 9)) == 3

    async def test_without_slots_they_wait_and_are_not_dropped(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(3)])
        await world.all_due()
        await self.quick(world, "r0")
        await self.quick(world, "r1")
        assert len(await world.store.claim(HERE, HASH, 1)) == 1
        assert await world.value("SELECT count(*) FROM schedule WHERE quick AND lease_id IS NULL") == 1

    async def test_a_process_with_another_configuration_drops_none(self, world: World) -> None:
        await world.sync(*many(3), limits=[provider(0)])
        await self.quick(world, "r0")
        assert await world.store.claim(HERE, "another", 9) == []
        assert await world.value("SELECT count(*) FROM schedule WHERE quick") == 1


class TestWaits:
    async def asked_to_wait(self, world: World, seconds: float, **changes: Any) -> None:
        """The cell that is due first is told to wait; all others of the location are due."""
        (first,) = await world.claim(1)
        await world.store.save([(first, verdict(first, Status.RATE_LIMITED, retry_after_s=seconds, **changes))])
        await world.sql("UPDATE schedule SET next_due_at = now() - interval '1 s' WHERE lease_id IS NULL")

    async def test_a_wait_holds_all_that_share_provider_host_and_credential_everywhere(self, world: World) -> None:
        sharing = limited("sharing", contract="agent_turn")
        apart = (
            limited("of another provider", provider="reseller"),
            limited("at another host", host="eu.api.example:443"),
            limited("with another key", credential="env:OTHER"),
        )
        await world.sync(limited(), sharing)
        await world.sync(*(limited(name, location="there") for name in ("sharing", "more")), location="there")
        await self.asked_to_wait(world, 120)
        await world.sync(limited(), sharing, *apart)
        assert {claim.route_id for claim in await world.claim(99)} == {one.route_id for one in apart}
        assert await world.claim(99, "there") == []
        await world.pass_time(130 * SECOND)
        assert {claim.route_id for claim in await world.claim(99)} == {"alpha", "sharing"}
        assert len(await world.claim(99, "there")) == 2

    @pytest.mark.parametrize(("asked_s", "kept_s"), [(90, 90), (3600, 3600), (1e6, 3600)])
    async def test_it_is_kept_up_to_an_hour_and_slept_through(self, world: World, asked_s: float, kept_s: int) -> None:
        await world.sync(*many(3))
        await self.asked_to_wait(world, asked_s)
        seconds = await world.store.seconds_to_next_due(HERE, HASH)
        assert seconds is not None
        assert kept_s - 30 < seconds <= kept_s + 2
        assert await world.store.claim(HERE, HASH, 9) == []

    async def test_a_shorter_one_does_not_end_a_longer_one(self, world: World) -> None:
        await world.sync(*many(2))
        both = await world.claim(9)
        for claim, seconds in zip(both, (600, 20), strict=True):
            await world.store.save([(claim, verdict(claim, Status.RATE_LIMITED, retry_after_s=seconds))])
        await world.pass_time(MINUTE)
        assert await world.claim(9) == []

    async def test_what_a_provider_said_to_an_earlier_configuration_holds_nobody(self, world: World) -> None:
        await world.sync(limited())
        claim = await world.claim_one()
        await world.sync(limited(fingerprint="f2", credential="env:NEW"))
        await world.store.save([(claim, verdict(claim, Status.RATE_LIMITED, retry_after_s=600))])
        assert await world.value("SELECT count(*) FROM waits") == 0
        assert len(await world.store.claim(HERE, HASH, 9)) == 1

    async def test_a_wait_counts_from_the_answer_however_late_its_verdict_comes(self, world: World) -> None:
        await world.sync(limited(interval=2 * MINUTE))
        claim = await world.claim_one()
        long_ago = claim.claimed_at - timedelta(minutes=50)  # the database was away since
        answer = verdict(claim, Status.RATE_LIMITED, retry_after_s=3000, started_at=long_ago, observed_at=long_ago)
        await world.store.save([(claim, answer)])
        seconds = await world.store.seconds_to_next_due(HERE, HASH)
        assert seconds is not None
        assert seconds < 200

    async def test_cells_that_wait_are_not_late(self, world: World) -> None:
        await world.sync(*many(3))
        await self.asked_to_wait(world, 600)
        snapshot = await world.store.snapshot()
        assert all(row.next_due_at and row.next_due_at > snapshot.now + 9 * MINUTE for row in snapshot.cells)

    async def test_asking_now_keeps_the_wait(self, world: World) -> None:
        await world.sync(*many(1))
        await self.asked_to_wait(world, 600)
        asked = await world.store.ask_now("r0", None, 0)
        assert [place[:2] for place in asked.waiting] == [("native_tools", HERE)]
        assert (asked.due, await world.store.claim(HERE, HASH, 9)) == ([], [])


async def test_asking_now_leaves_alone_what_a_pause_stops(world: World) -> None:
    await world.sync(*many(1))
    await world.store.pause(PauseScope.ROUTE, "r0", 600, False, "", "Ada")
    assert len((await world.store.ask_now("r0", None, 0)).due) == 1
    await world.store.pause(PauseScope.ROUTE, "r0", 1200, True, "", "Ada")
    due = await world.value("SELECT next_due_at FROM schedule")
    asked = await world.store.ask_now("r0", None, 0)
    ((*cell, seconds),) = asked.paused
    assert (asked.due, cell, 1190 < seconds <= 1200) == ([], ["native_tools", HERE], True)
    assert await world.value("SELECT next_due_at FROM schedule") == due


async def test_what_counts_no_more_is_forgotten(world: World) -> None:
    await world.sync(*many(4), limits=[provider(2, 100), host(2)])
    first = await world.claim(9)
    assert await world.value("SELECT count(*) FROM debits") == 4  # one for each of the two limits
    await world.store.save([(first[0], verdict(first[0], Status.RATE_LIMITED, retry_after_s=30))])
    await world.store.forget_debits()
    assert await world.value("SELECT count(*) FROM debits") == 4
    await world.pass_time(first[1].leased_until - first[1].claimed_at + 61 * SECOND)
    await world.store.forget_debits()
    assert await world.value("SELECT count(*) FROM debits") == 0
    assert await world.value("SELECT count(*) FROM waits") == 0


async def test_without_limits_nothing_is_debited(world: World) -> None:
    await world.sync(*many(4), limits=[provider(name="other", concurrency=1)])
    assert len(await world.claim(9)) == 4
    assert await world.value("SELECT count(*) FROM debits") == 0


class TestHurry:
    """What happens to cells whose key was rotated."""

    NOT_WITHIN = timedelta(seconds=10)

    async def hurry(self, world: World) -> int:
        return await world.store.hurry(HERE, ["alpha"], self.NOT_WITHIN)

    async def later(self, world: World, span: timedelta) -> None:
        await world.pass_time(span)
        await world.sql("UPDATE latest SET last_observed_at = last_observed_at - :span", span=span)

    async def test_a_key_that_is_rotated_every_minute_has_each_cell_asked_once_a_rotation(self, world: World) -> None:
        """Three replicas see it within some seconds; the proof stands until the answer comes."""
        await world.sync(limited(), limited("beta"), limited(location=HERE, contract="agent_turn"))
        await world.store.save([(claim, verdict(claim)) for claim in await world.claim(9)])
        for _ in range(5):
            await self.later(world, MINUTE)
            asked: Counter[str] = Counter()
            for _ in range(3):
                await self.hurry(world)
                standing = [row.standing for row in (await world.store.snapshot()).cells]
                assert None not in standing
                claims = await world.store.claim(HERE, HASH, 9)
                asked.update(claim.contract for claim in claims if claim.route_id == "alpha")
                await world.store.save([(claim, verdict(claim, observed_at=datetime.now(UTC))) for claim in claims])
                await self.later(world, 2 * SECOND)
            assert asked == {"native_tools": 1, "agent_turn": 1}

    async def test_a_cell_that_is_being_asked_with_the_old_key_is_asked_again(self, world: World) -> None:
        await world.sync(limited())
        under_way = await world.claim_one()
        assert await self.hurry(world) == 0  # only just begun
        await self.later(world, 11 * SECOND)
        assert await self.hurry(world) == 1
        assert await world.store.claim(HERE, HASH, 9) == []
        await finish(world, under_way)
        assert len(await world.store.claim(HERE, HASH, 9)) == 1

    async def test_others_stay_as_they_are(self, world: World) -> None:
        await world.sync(limited("beta"), limited("gamma"))
        await world.sync(limited("alpha", location="there"), location="there")
        await world.sql("UPDATE schedule SET next_due_at = now() + interval '3 minutes'")
        before = await world.contents()
        assert await self.hurry(world) == 0
        assert await world.contents() == before
