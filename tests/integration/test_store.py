"""The store against a real PostgreSQL. Time is moved by changing rows, not by waiting."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Cell, CellRow, Claim, Limit, Outcome, RouteRow, Rung, Snapshot, Status, Verdict
from service.store import Board, Store, cells, claims
from service.store.rows import UNSTORABLE

HERE = "here"
HASH = "0123456789abcdef"
MINUTE = timedelta(minutes=1)
INTERVAL = timedelta(minutes=5)
RUNG = Rung("forced", "tools, choice forced", "complete", "events 9", 200, "ok", 1.25, headers_s=0.5)


def route(key: str = "alpha", **changes: Any) -> RouteRow:
    row = RouteRow(key, f"acme/{key}", "acme", "openai-chat", "model-1", "https://api.example/v1", ("prod",))
    return replace(row, **changes)


def cell(name: str = "alpha", **changes: Any) -> Cell:
    base = Cell(
        route_id=name,
        contract="native_tools",
        location=HERE,
        required=True,
        fingerprint="f1",
        interval=INTERVAL,
        fresh_for=3 * INTERVAL,
        expires_after=6 * INTERVAL,
        deadline=MINUTE,
    )
    return replace(base, **changes)


def verdict(claim: Claim, status: Status = Status.TOOLS_SUPPORTED, **changes: Any) -> Verdict:
    base = Verdict(
        id=uuid4(),
        route_id=claim.route_id,
        contract=claim.contract,
        location=claim.location,
        status=status,
        rule_id="RP-001",
        reason=None,
        quirks=("done_missing",),
        served_model="model-1-2025",
        detail="a whole call",
        requests=1,
        retry_after_s=None,
        started_at=claim.claimed_at,
        observed_at=claim.claimed_at + timedelta(seconds=1.5),
        duration_s=1.5,
        time_to_first_token_s=0.25,
        tokens_in=40,
        tokens_out=12,
        rungs=(RUNG,),
        facts={"forced": "called"},
        fingerprint=claim.fingerprint,
        ruleset=1,
    )
    return replace(base, **changes)


class World:
    """A store with a hand on the rows beneath it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.store = Store(engine)
        self._engine = engine

    async def sync(self, *wanted: Cell, location: str = HERE, limits: Sequence[Limit] = (), **of_routes: Any) -> None:
        routes = [route(name, **of_routes) for name in {cell.route_id for cell in wanted}]
        await self.store.sync(location, HASH, routes, wanted, limits)

    async def sql(self, statement: str, **values: Any) -> Any:
        async with self._engine.begin() as connection:
            result = await connection.execute(text(statement), values)
            return result.all() if result.returns_rows else None

    async def value(self, statement: str, **values: Any) -> Any:
        return (await self.sql(statement, **values))[0][0]

    async def all_due(self) -> None:
        await self.sql("UPDATE schedule SET next_due_at = now() - interval '1 second'")

    async def end_leases(self) -> None:
        await self.sql("UPDATE schedule SET leased_until = now() - interval '1 second'")

    async def pass_time(self, span: timedelta) -> None:
        """Move all that lies ahead, or counts for a while, that much nearer."""
        for table, columns in {
            "schedule": ("grid_at", "next_due_at", "leased_until"),
            "debits": ("running_until", "settled_at"),
            "waits": ("until",),
            "pauses": ("since", "until"),
            "probers": ("started_at", "seen_at"),
        }.items():
            moved = ", ".join(f"{column} = {column} - :span" for column in columns)
            await self.sql(f"UPDATE {table} SET {moved}", span=span)

    async def claim(self, slots: int = 10, location: str = HERE) -> list[Claim]:
        await self.all_due()
        return await self.store.claim(location, HASH, slots)

    async def claim_one(self) -> Claim:
        (claim,) = await self.claim()
        return claim

    async def ask(self, status: Status = Status.TOOLS_SUPPORTED, **changes: Any) -> Verdict:
        """Claim the one cell that there is and save a verdict for it."""
        claim = await self.claim_one()
        result = verdict(claim, status, **changes)
        assert await self.store.save([(claim, result)]) == {result.id}
        return result

    async def row(self) -> CellRow:
        (row,) = (await self.store.snapshot()).cells
        return row

    async def contents(self) -> dict[str, Any]:
        return {
            name: await self.sql(f"SELECT * FROM {name} ORDER BY 1, 2")
            for name in ("schedule", "latest", "verdicts", "transitions", "spends", "debits", "waits", "hours")
        }


@pytest.fixture
def world(engine: AsyncEngine) -> World:
    return World(engine)


class TestSync:
    async def test_a_snapshot_returns_what_was_configured(self, world: World) -> None:
        other = cell(contract="agent_turn", required=False, interval=timedelta(hours=1), deadline=2 * MINUTE)
        await world.store.sync(HERE, HASH, [route()], [cell(), other])
        snapshot = await world.store.snapshot()
        assert [row.cell for row in snapshot.cells] == [other, cell()]
        assert [row.route for row in snapshot.cells] == [route(), route()]
        assert all(row.standing is None and row.last is None for row in snapshot.cells)
        assert set(snapshot.cells[0].counts.items()) == {(outcome, 0) for outcome in Outcome}
        assert snapshot.now.tzinfo is UTC

    async def test_a_snapshot_that_is_made_in_parts_is_whole(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.store.snapshot._AT_ONCE", 2)
        names = [f"r{number}" for number in range(5)]
        await world.sync(*map(cell, names))
        assert [row.route.id for row in (await world.store.snapshot()).cells] == names

    async def test_an_empty_store_has_a_clock(self, world: World) -> None:
        snapshot = await world.store.snapshot()
        assert snapshot.cells == ()
        assert abs(snapshot.now - datetime.now(UTC)) < MINUTE

    async def test_few_cells_start_soon_and_many_within_the_interval(self, world: World) -> None:
        await world.sync(cell("one"), cell("two"), cell("three"))
        for count, longest in ((3, 3), (900, 300)):
            before = await world.value("SELECT now()")
            await world.sync(*(cell(f"{count}-{number}") for number in range(count)))
            after = await world.value("SELECT now()")
            starts = await world.sql(
                "SELECT next_due_at FROM schedule JOIN cells ON id = cell_id WHERE active ORDER BY next_due_at"
            )
            assert before <= starts[0][0] <= after
            seconds = [(start - starts[0][0]).total_seconds() for (start,) in starts]
            assert longest * 0.6 < seconds[-1] < longest
            gaps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
            assert max(gaps) < 1.01
        spread = await world.value("SELECT stddev(extract(epoch FROM grid_at))::float FROM schedule")
        assert spread == pytest.approx(300 / 12**0.5, rel=0.2)  # of a uniform distribution over the interval

    async def test_a_contract_that_is_asked_seldom_starts_within_its_routes_interval_and_keeps_its_own_grid(
        self, world: World
    ) -> None:
        seldom = [cell(f"r{number}", contract="agent_turn", interval=12 * INTERVAL) for number in range(400)]
        await world.sync(*(cell(one.route_id) for one in seldom), *seldom)
        starts = "SELECT max(extract(epoch FROM {} - now()))::float FROM schedule JOIN cells ON id = cell_id "
        of_seldom = starts + "WHERE contract = 'agent_turn'"
        assert await world.value(of_seldom.format("next_due_at")) < INTERVAL.total_seconds()
        assert await world.value(of_seldom.format("grid_at")) > 6 * INTERVAL.total_seconds()

    async def test_a_contract_that_is_asked_seldom_is_soon_asked_when_it_is_added(self, world: World) -> None:
        seldom = cell(contract="agent_turn", interval=12 * INTERVAL)
        await world.sync(cell())
        await world.ask()
        await world.sync(cell(), seldom)
        assert [claim.contract for claim in await world.store.claim(HERE, HASH, 9)] == ["agent_turn"]

    async def test_a_rename_loses_nothing(self, world: World) -> None:
        await world.sync(cell())
        result = await world.ask()
        before = await world.contents()
        await world.store.sync(
            HERE, HASH, [route(name="a new name", url="https://other.example")], [cell(required=False)]
        )
        row = await world.row()
        assert (row.route.name, row.cell.required) == ("a new name", False)
        assert row.standing is not None
        assert row.standing.id == result.id
        assert await world.contents() == before

    async def test_a_new_fingerprint_is_due_at_once_and_has_no_standing(self, world: World) -> None:
        await world.sync(cell())
        result = await world.ask()
        await world.sync(cell(fingerprint="f2"))
        row = await world.row()
        assert (row.standing, row.state_since) == (None, None)
        assert row.last is not None
        assert row.last.id == result.id
        assert row.counts[Outcome.PROVEN] == 1
        assert row.last_proven_at == result.observed_at
        assert [claim.fingerprint for claim in await world.store.claim(HERE, HASH, 9)] == ["f2"]

    async def test_a_verdict_under_an_old_fingerprint_is_history_and_the_cell_is_due_at_once(
        self, world: World
    ) -> None:
        await world.sync(cell())
        claim = await world.claim_one()
        await world.sync(cell(fingerprint="f2"))
        assert await world.store.claim(HERE, HASH, 9) == []  # still being probed: two never overlap
        result = verdict(claim)
        assert await world.store.save([(claim, result)]) == {result.id}
        row = await world.row()
        assert row.standing is None
        assert row.last is not None
        assert row.last.fingerprint == "f1"
        assert [claim.fingerprint for claim in await world.store.claim(HERE, HASH, 9)] == ["f2"]

    async def test_a_new_interval_moves_the_next_start_into_it(self, world: World) -> None:
        await world.sync(cell(interval=timedelta(hours=20)))
        await world.sql("UPDATE schedule SET next_due_at = now() + interval '10 hours'")
        await world.sync(cell(interval=MINUTE))
        assert await world.store.seconds_to_next_due(HERE, HASH) <= 60  # type: ignore[operator]

    async def test_the_same_configuration_again_changes_nothing(self, world: World) -> None:
        await world.sync(cell(), cell("beta"))
        before = await world.contents()
        await world.sync(cell("beta"), cell())
        assert await world.contents() == before

    async def test_it_takes_as_many_statements_for_many_cells_as_for_few(
        self, world: World, engine: AsyncEngine
    ) -> None:
        rows = 0

        def count(_connection: Any, _cursor: Any, _statement: str, given: Any, _context: Any, many: bool) -> None:
            nonlocal rows
            rows += len(given) if many else 1

        event.listen(engine.sync_engine, "before_cursor_execute", count)
        taken = []
        for number in (2, 40):
            names = [f"{number}-{place}" for place in range(number)]
            for changes in ({}, {"fingerprint": "f2"}, {"fingerprint": "f2", "interval": MINUTE}):
                rows = 0
                await world.sync(*(cell(name, **changes) for name in names))
                taken.append(rows)
        assert taken[:3] == taken[3:]
        assert max(taken) < 20

    async def test_a_cell_that_is_gone_rests_with_its_history_and_may_come_back(self, world: World) -> None:
        await world.sync(cell(), cell("beta"))
        await world.all_due()
        await world.sync(cell("beta"))
        assert [row.cell.route_id for row in (await world.store.snapshot()).cells] == ["beta"]
        assert [claim.route_id for claim in await world.store.claim(HERE, HASH, 9)] == ["beta"]
        await world.sync(cell(), cell("beta"))
        assert len((await world.store.snapshot()).cells) == 2
        assert await world.value("SELECT count(*) FROM cells") == 2

    async def test_locations_dont_touch_each_other(self, world: World) -> None:
        there = cell(location="there")
        await world.sync(cell(), cell("beta"))
        await world.sync(there, location="there")
        await world.sync(cell())
        assert {(row.cell.route_id, row.cell.location) for row in (await world.store.snapshot()).cells} == {
            ("alpha", HERE),
            ("alpha", "there"),
        }
        assert [claim.location for claim in await world.claim(location="there")] == ["there"]
        assert await world.store.seconds_to_next_due("nowhere", HASH) is None
        with pytest.raises(ValueError, match="another location than here"):
            await world.sync(there)

    async def test_replicas_of_one_location_may_load_at_once(self, world: World) -> None:
        wanted = [cell(f"r{number}") for number in range(20)]
        await asyncio.gather(*(world.sync(*wanted) for _ in range(4)))
        assert len((await world.store.snapshot()).cells) == 20

    async def test_one_location_is_loaded_by_one_at_a_time(self, world: World, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await cells.sync(connection, HERE, HASH, [route()], [cell()])
            await world.sync(cell("beta", location="there"), location="there")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(world.sync(cell("beta")), 0.2)
        await world.sync(cell("beta"))
        assert {row.cell.route_id for row in (await world.store.snapshot()).cells} == {"beta"}


class TestForgotten:
    """What was taken out of the configuration more than 400 days ago."""

    KEPT = timedelta(days=400)

    async def rest(self, world: World, **of: timedelta) -> None:
        """Have these routes rest for that long."""
        for route_id, length in of.items():
            await world.sql(
                "UPDATE cells SET rests_since = now() - :length WHERE route_id = :route", length=length, route=route_id
            )

    async def left(self, world: World) -> dict[str, list[str]]:
        names = {
            "routes": "SELECT id FROM routes ORDER BY 1",
            "cells": "SELECT route_id FROM cells ORDER BY 1",
            "schedule": "SELECT route_id FROM schedule JOIN cells ON cells.id = cell_id ORDER BY 1",
            "latest": "SELECT route_id FROM latest JOIN cells ON cells.id = cell_id ORDER BY 1",
        }
        return {name: [row[0] for row in await world.sql(statement)] for name, statement in names.items()}

    async def test_a_cell_goes_four_hundred_days_after_it_was_taken_out_and_its_route_with_the_last_one(
        self, world: World
    ) -> None:
        await world.sync(cell("gone"), cell("resting"), cell("cut"), cell("cut", contract="agent_turn"), cell("on"))
        await world.sync(cell("on"), cell("cut"))
        await self.rest(world, gone=self.KEPT + MINUTE, resting=self.KEPT - MINUTE)
        await world.sql("UPDATE cells SET rests_since = now() - interval '401 days' WHERE contract = 'agent_turn'")
        await world.store.forget(self.KEPT)
        kept = ["cut", "on", "resting"]
        assert await self.left(world) == dict.fromkeys(("routes", "cells", "schedule", "latest"), kept)

    async def test_the_time_counts_from_the_last_time_that_it_was_taken_out(self, world: World) -> None:
        await world.sync(cell())
        result = await world.ask()
        await world.sync()
        await self.rest(world, alpha=self.KEPT - MINUTE)
        await world.sync(cell())
        assert await world.value("SELECT rests_since FROM cells") is None
        assert (await world.row()).last_proven_at == result.observed_at
        await world.sync()
        assert await world.value("SELECT now() - rests_since FROM cells") < MINUTE
        await world.sync()
        await self.rest(world, alpha=self.KEPT - MINUTE)
        await world.sync()  # it rests on
        await world.store.forget(self.KEPT)
        assert await world.value("SELECT count(*) FROM cells") == 1
        await self.rest(world, alpha=self.KEPT + MINUTE)
        await world.store.forget(self.KEPT)
        assert await world.value("SELECT count(*) FROM cells") == 0
        await world.sync(cell())
        assert (await world.row()).last_proven_at is None

    async def test_what_an_earlier_release_took_out_rests_since_it_is_noticed(self, world: World) -> None:
        await world.sync(cell(), cell("beta"))
        await world.sync(cell("beta"))
        await world.sql("UPDATE cells SET rests_since = NULL")
        await world.store.forget(self.KEPT)
        assert await world.sql("SELECT route_id, now() - rests_since < '1 minute' FROM cells ORDER BY 1") == [
            ("alpha", True),
            ("beta", None),
        ]

    async def test_what_an_earlier_release_took_up_again_stays(self, world: World) -> None:
        await world.sync(cell())
        await self.rest(world, alpha=self.KEPT + MINUTE)
        await world.store.forget(self.KEPT)
        assert (await world.row()).cell == cell()
        await world.sync(cell())
        assert await world.value("SELECT rests_since FROM cells") is None

    async def test_a_cell_that_comes_back_at_that_moment_stays(self, world: World, engine: AsyncEngine) -> None:
        await world.sync(cell())
        await world.sync()
        await self.rest(world, alpha=self.KEPT + MINUTE)
        async with engine.begin() as loading:
            await cells.sync(loading, HERE, HASH, [route()], [cell()])
            forgetting = asyncio.create_task(world.store.forget(self.KEPT))
            done, _ = await asyncio.wait({forgetting}, timeout=0.1)
            assert not done  # it waits for its turn
        await forgetting
        assert (await world.row()).cell == cell()
        assert [claim.route_id for claim in await world.claim()] == ["alpha"]

    async def test_a_cell_that_comes_back_a_moment_later_is_new(self, world: World, engine: AsyncEngine) -> None:
        await world.sync(cell())
        await world.sync()
        await self.rest(world, alpha=self.KEPT + MINUTE)
        async with engine.begin() as forgetting:
            await cells.forget(forgetting, datetime.now(UTC) - self.KEPT)
            loading = asyncio.create_task(world.sync(cell()))
            done, _ = await asyncio.wait({loading}, timeout=0.1)
            assert not done
        await loading
        assert (await world.row()).cell == cell()

    async def test_a_route_that_another_location_takes_up_stays(self, world: World, engine: AsyncEngine) -> None:
        await world.sync(cell())
        await world.sync()
        await self.rest(world, alpha=self.KEPT + MINUTE)
        async with engine.begin() as loading:
            await cells.sync(loading, "there", HASH, [route()], [cell(location="there")])
            await world.store.forget(self.KEPT)
        assert [row.cell.location for row in (await world.store.snapshot()).cells] == ["there"]

    async def test_any_number_of_processes_may_forget_at_once(self, world: World) -> None:
        for location in ("one", "two"):
            names = [f"r{number}" for number in range(20)]
            await world.sync(*(cell(name, location=location) for name in names), location=location)
            await world.sync(location=location)
        await self.rest(world, **dict.fromkeys(names, self.KEPT + MINUTE))
        await asyncio.gather(*(world.store.forget(self.KEPT) for _ in range(4)))
        assert not any((await self.left(world)).values())


class TestClaims:
    async def test_concurrent_claimers_never_get_the_same_cell(self, world: World) -> None:
        await world.sync(*(cell(f"r{number}") for number in range(60)))
        await world.all_due()
        taken = await asyncio.gather(*(world.store.claim(HERE, HASH, 7) for _ in range(12)))
        counts = Counter(claim.cell_id for claims in taken for claim in claims)
        assert set(counts.values()) == {1}
        assert len(counts) + len(await world.store.claim(HERE, HASH, 99)) == 60
        assert max(len(claims) for claims in taken) <= 7

    async def test_a_cell_that_another_is_claiming_is_passed_over(self, world: World, engine: AsyncEngine) -> None:
        await world.sync(cell(), cell("beta"))
        await world.all_due()
        async with engine.begin() as other:
            (first,) = (await claims.claim(other, HERE, HASH, 1)).claims
            (second,) = await asyncio.wait_for(world.store.claim(HERE, HASH, 9), 60)
        assert first.cell_id != second.cell_id

    async def test_the_longest_due_come_first_and_the_rest_stay(self, world: World) -> None:
        await world.sync(*(cell(f"r{number}") for number in range(5)))
        await world.sql("UPDATE schedule SET next_due_at = now() - cell_id * interval '1 second'")
        await world.sql(
            "UPDATE schedule SET next_due_at = now() + interval '1 hour' WHERE cell_id = (SELECT max(id) FROM cells)"
        )
        claims = await world.store.claim(HERE, HASH, 3)
        assert [claim.cell_id for claim in claims] == sorted((claim.cell_id for claim in claims), reverse=True)
        assert [claim.due_at for claim in claims] == sorted(claim.due_at for claim in claims)
        assert len(await world.store.claim(HERE, HASH, 9)) == 1  # the fifth isn't due
        assert all(claim.claimed_at > claim.due_at and claim.claimed_at.tzinfo is UTC for claim in claims)

    async def test_a_lease_lasts_three_deadlines_and_half_a_minute(self, world: World) -> None:
        await world.sync(cell(deadline=timedelta(seconds=20)))
        claim = await world.claim_one()
        until = await world.value("SELECT leased_until FROM schedule")
        assert until - claim.claimed_at == timedelta(seconds=90)
        assert 0 < await world.store.seconds_to_next_due(HERE, HASH) <= 90  # type: ignore[operator]

    async def test_an_ended_lease_is_taken_over_and_counted(self, world: World) -> None:
        await world.sync(cell())
        first = await world.claim_one()
        assert await world.claim() == []
        await world.end_leases()
        second = await world.claim_one()
        assert second.lease_id != first.lease_id
        assert world.store.leases_expired == 1

    async def test_a_verdict_made_after_its_lease_is_void_when_the_cell_was_taken_over(self, world: World) -> None:
        await world.sync(cell())
        slept = await world.claim_one()
        await world.end_leases()
        awake = await world.claim_one()
        good = verdict(awake)
        after = slept.leased_until + timedelta(seconds=1)
        overslept = verdict(slept, Status.TIMEOUT, observed_at=after)
        assert await world.store.save([(slept, overslept), (awake, good)]) == {good.id}
        assert world.store.leases_lost == 1
        assert await world.value("SELECT count(*) FROM verdicts") == 1
        assert (await world.row()).counts[Outcome.UNAVAILABLE] == 0

    async def test_a_verdict_made_within_its_lease_counts_however_late_it_comes(self, world: World) -> None:
        await world.sync(cell())
        held_up = await world.claim_one()
        await world.end_leases()
        other = await world.claim_one()
        newer = verdict(other, observed_at=other.claimed_at + timedelta(seconds=9))
        assert await world.store.save([(other, newer)]) == {newer.id}
        due = await world.value("SELECT next_due_at FROM schedule")
        late = verdict(held_up, Status.TIMEOUT)
        assert await world.store.save([(held_up, late)]) == {late.id}
        row = await world.row()
        assert row.counts[Outcome.UNAVAILABLE] == 1
        assert row.standing is not None
        assert row.standing.id == newer.id
        assert await world.value("SELECT next_due_at FROM schedule") == due
        assert world.store.leases_lost == 0

    async def test_a_late_verdict_whose_lease_nobody_took_counts(self, world: World) -> None:
        await world.sync(cell())
        claim = await world.claim_one()
        await world.end_leases()
        result = verdict(claim)
        assert await world.store.save([(claim, result)]) == {result.id}

    async def test_a_released_cell_is_due_again_and_another_ones_lease_stays(self, world: World) -> None:
        await world.sync(cell(), cell("beta"))
        mine, others = await world.claim()
        await world.store.release([mine, replace(others, lease_id=uuid4())])
        (again,) = await world.store.claim(HERE, HASH, 9)
        assert (again.cell_id, again.due_at) == (mine.cell_id, mine.due_at)
        assert world.store.leases_expired == 0


class TestSchedule:
    @pytest.mark.parametrize(
        ("due_ago", "expected"),
        [
            pytest.param(timedelta(seconds=2), INTERVAL - timedelta(seconds=2), id="on time"),
            pytest.param(-0.09 * INTERVAL, 1.09 * INTERVAL, id="early by the jitter: that point is used up"),
            pytest.param(0.8 * INTERVAL, 0.2 * INTERVAL, id="a long probe: the next point stays"),
            pytest.param(2.5 * INTERVAL, 0.5 * INTERVAL, id="an overrun takes the next grid point"),
            pytest.param(-0.5 * INTERVAL, 0.5 * INTERVAL, id="asked out of turn: the point ahead stays"),
        ],
    )
    async def test_the_next_start_is_the_next_grid_point(
        self, world: World, due_ago: timedelta, expected: timedelta
    ) -> None:
        await world.sync(cell())
        ((before, now),) = await world.sql(
            "UPDATE schedule SET grid_at = now() - :ago RETURNING grid_at, now()", ago=due_ago
        )
        await world.ask()
        ((grid_at, next_due_at, lease_id, leased_until),) = await world.sql(
            "SELECT grid_at, next_due_at, lease_id, leased_until FROM schedule"
        )
        assert grid_at == now + expected  # the grid is kept to the microsecond
        assert (grid_at - before) % INTERVAL == timedelta()
        assert abs(next_due_at - grid_at) <= 0.1 * INTERVAL
        assert (lease_id, leased_until) == (None, None)

    async def test_starts_are_jittered_both_ways(self, world: World) -> None:
        await world.sync(*(cell(f"r{number}") for number in range(60)))
        await world.store.save([(claim, verdict(claim)) for claim in await world.claim(99)])
        off = [
            row[0] / INTERVAL.total_seconds()
            for row in await world.sql("SELECT extract(epoch FROM next_due_at - grid_at)::float FROM schedule")
        ]
        assert len(off) == 60
        assert -0.1 <= min(off) < -0.05
        assert 0.05 < max(off) <= 0.1

    @pytest.mark.parametrize(
        ("wait_s", "least_s", "most_s"), [(1200.0, 1200, 1202), (90_000.0, 3600, 3602), (1.0, 0, 360), (-5.0, 0, 360)]
    )
    async def test_a_wait_that_was_asked_for_is_kept_up_to_an_hour(
        self, world: World, wait_s: float, least_s: float, most_s: float
    ) -> None:
        await world.sync(cell())
        before = await world.value("SELECT now()")
        await world.ask(Status.RATE_LIMITED, retry_after_s=wait_s)
        seconds = await world.store.seconds_to_next_due(HERE, HASH)
        assert seconds is not None
        assert seconds <= most_s
        assert before + timedelta(seconds=least_s) <= await world.value("SELECT now()") + timedelta(seconds=seconds)


class TestSave:
    async def test_a_verdict_comes_back_as_it_was(self, world: World) -> None:
        await world.sync(cell())
        result = await world.ask(Status.RATE_LIMITED, reason="request_exceeds_rate_budget", retry_after_s=2.5)
        row = await world.row()
        (stored,) = await world.store.verdicts("alpha")
        assert row.standing == row.last == stored.standing
        names = [name for name in vars(stored.standing) if name != "outcome"]
        assert {name: getattr(stored.standing, name) for name in names} == {
            name: getattr(result, name) for name in names
        }
        assert stored.standing.outcome is Outcome.BLOCKED
        assert row.standing is not None
        assert row.standing.observed_at.tzinfo is UTC
        assert (stored.contract, stored.location, stored.ruleset) == ("native_tools", HERE, 1)
        assert (stored.rungs, stored.facts) == ((RUNG,), {"forced": "called"})

    async def test_the_same_save_again_changes_nothing(self, world: World) -> None:
        await world.sync(cell(), cell("beta"))
        batch = [(claim, verdict(claim)) for claim in await world.claim()]
        assert await world.store.save(batch) == {result.id for _, result in batch}
        before = await world.contents()
        assert await world.store.save(batch) == set()
        assert await world.contents() == before
        assert world.store.leases_lost == 0  # a commit of unknown fate, not a lost lease

    async def test_nothing_to_save_is_fine(self, world: World) -> None:
        assert await world.store.save([]) == set()

    async def test_a_late_verdict_is_history_and_replaces_nothing(self, world: World) -> None:
        await world.sync(cell())
        newer = await world.ask(Status.TIMEOUT)
        late = await world.ask(Status.TOOLS_SUPPORTED, observed_at=newer.observed_at - MINUTE)
        row = await world.row()
        assert row.standing is not None
        assert row.last is not None
        assert row.standing.id == row.last.id == newer.id
        assert row.state_since == newer.observed_at
        assert row.last_proven_at == late.observed_at
        assert row.counts[Outcome.PROVEN] == row.counts[Outcome.UNAVAILABLE] == 1
        assert [stored.standing.id for stored in await world.store.verdicts("alpha")] == [newer.id, late.id]

    async def test_an_unproven_verdict_never_replaces_the_standing_one(self, world: World) -> None:
        await world.sync(cell())
        proof = await world.ask()
        doubt = await world.ask(Status.FORCED_TOOL_CHOICE_IGNORED)
        row = await world.row()
        assert row.standing is not None
        assert row.last is not None
        assert (row.standing.id, row.last.id) == (proof.id, doubt.id)
        assert row.last_proven_at == proof.observed_at
        assert row.counts[Outcome.UNPROVEN] == 1

    async def test_state_since_is_the_start_of_the_run_of_an_outcome(self, world: World) -> None:
        await world.sync(cell())
        since = []
        first = await world.ask(Status.TIMEOUT)
        for status in (
            Status.UNREACHABLE,
            Status.CANCELLED,
            Status.TOOLS_SUPPORTED,
            Status.FORCED_TOOL_CHOICE_REJECTED,
        ):
            result = await world.ask(status)
            since.append(((await world.row()).state_since, result.observed_at))
        assert [begun for begun, _ in since] == [first.observed_at, first.observed_at, since[2][1], since[2][1]]

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"detail": "a\0b"}, id="NUL in the text"),
            pytest.param({"detail": "a\ud800b"}, id="lone surrogate in the text"),
            pytest.param({"facts": {"x": "a\0b"}}, id="NUL in the facts"),
            pytest.param({"rungs": (replace(RUNG, detail="\ud800"),)}, id="lone surrogate in a rung"),
            pytest.param({"facts": {"x": float("nan")}}, id="not a number"),
            pytest.param({"facts": {"x": {1}}}, id="not JSON"),
            pytest.param({"tokens_out": 2**70}, id="too large a number"),
            pytest.param({"retry_after_s": 1e300}, id="too long a wait"),
            pytest.param({"retry_after_s": float("nan")}, id="a wait that is no number"),
        ],
    )
    async def test_nothing_waits_behind_a_bad_row(self, world: World, changes: dict[str, Any]) -> None:
        await world.sync(cell(), cell("beta"), cell("gamma"))
        claims = await world.claim()
        bad = verdict(claims[1], Status.MALFORMED_TOOL_CALL, **changes)
        batch = [(claims[0], verdict(claims[0])), (claims[1], bad), (claims[2], verdict(claims[2]))]
        assert await world.store.save(batch) == {result.id for _, result in batch}
        assert world.store.refused == 1
        (stored,) = await world.store.verdicts(claims[1].route_id)
        assert (stored.standing.status, stored.standing.detail) == ("malformed_tool_call", UNSTORABLE)
        assert (stored.rungs, stored.facts) == ((), {})
        (good,) = await world.store.verdicts(claims[0].route_id)
        assert good.standing.detail == "a whole call"
        assert await world.value("SELECT count(*) FROM schedule WHERE lease_id IS NOT NULL") == 0

    async def test_a_row_that_is_beyond_help_stops_nobody(self, world: World) -> None:
        await world.sync(cell(), cell("beta"))
        first, second = await world.claim()
        good = verdict(second)
        assert await world.store.save([(first, verdict(first, rule_id="\0")), (second, good)]) == {good.id}
        assert world.store.refused == 1

    async def test_a_verdict_of_a_day_without_partition_gets_one(self, world: World) -> None:
        await world.sync(cell())
        result = await world.ask(observed_at=datetime(2025, 3, 9, 23, 59, 59, 999_999, tzinfo=UTC))
        assert [stored.standing.id for stored in await world.store.verdicts("alpha")] == [result.id]
        assert world.store.refused == 0

    async def test_history_is_limited_and_newest_first_over_contracts(self, world: World) -> None:
        await world.sync(cell(), cell(contract="agent_turn"), cell("beta"))
        results = []
        for back in range(4):
            for claim in await world.claim():
                result = verdict(claim, observed_at=claim.claimed_at - back * MINUTE)
                await world.store.save([(claim, result)])
                results += [result] if claim.route_id == "alpha" else []
        expected = sorted((result.observed_at for result in results), reverse=True)[:5]
        assert [stored.standing.observed_at for stored in await world.store.verdicts("alpha", limit=5)] == expected


class TestPartitions:
    async def test_days_are_made_ahead_and_dropped_whole(self, world: World) -> None:
        days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'verdicts'::regclass"
        assert await world.value(days) == 9
        await asyncio.gather(*(world.store.ensure_partitions(days_back=40, days_ahead=9) for _ in range(3)))
        assert await world.value(days) == 50
        await world.sync(cell())
        old = await world.ask(observed_at=datetime.now(UTC) - timedelta(days=35))
        kept = await world.ask(observed_at=datetime.now(UTC) - timedelta(days=30))
        assert await world.store.drop_partitions(older_than=timedelta(days=30)) == 10
        assert [stored.standing.id for stored in await world.store.verdicts("alpha")] == [kept.id]
        assert (await world.row()).counts[Outcome.PROVEN] == 2
        assert old.id != kept.id

    async def test_a_day_that_is_being_read_stays_until_the_next_time(
        self, world: World, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.store.partitions.DROP_LOCK_TIMEOUT", "20ms")
        await world.store.ensure_partitions(days_back=2, days_ahead=0)
        async with engine.begin() as reader:
            await reader.execute(text("SELECT count(*) FROM verdicts"))
            assert await world.store.drop_partitions(older_than=timedelta(days=1)) == 0
        assert await world.store.drop_partitions(older_than=timedelta(days=1)) == 1


class TestBoard:
    """The clock is a list of one number; the store is real where the database matters."""

    async def test_one_query_serves_all_who_look_within_a_second(self, world: World) -> None:
        await world.sync(cell())
        clock, calls = [100.0], []

        class Counting(Store):
            async def snapshot(self) -> Any:
                calls.append(clock[0])
                return await super().snapshot()

        board = Board(Counting(world._engine), lambda: clock[0])
        views = await asyncio.gather(*(board.view() for _ in range(5)))
        assert calls == [100.0]
        assert all(view.database_up and len(view.snapshot.cells) == 1 and view.age_s == 0 for view in views)
        clock[0] += 0.75
        view = await board.view()
        assert (view.age_s, view.now - view.snapshot.now) == (0.75, timedelta(seconds=0.75))
        clock[0] += 0.25
        await board.view()
        assert calls == [100.0, 101.0]

    async def test_it_ages_while_the_database_is_away_and_comes_back(self, world: World) -> None:
        await world.sync(cell())
        clock, away = [0.0], [False]

        class Failing(Store):
            async def snapshot(self) -> Any:
                if away[0]:
                    raise OperationalError("SELECT", {}, Exception("gone"))
                return await super().snapshot()

        board = Board(Failing(world._engine), lambda: clock[0])
        fresh = await board.view()
        away[0] = True
        clock[0] += 3600
        old = await board.view()
        assert (old.database_up, old.age_s, board.errors) == (False, 3600, 1)
        assert old.snapshot is fresh.snapshot
        assert old.now - fresh.now == timedelta(hours=1)
        await board.view()
        assert board.errors == 1  # not asked again within the second
        away[0] = False
        clock[0] += 1
        assert (await board.view()).database_up

    async def test_after_a_change_the_next_view_is_of_after_it_even_when_a_query_was_under_way(self) -> None:
        class Held:
            def __init__(self) -> None:
                self.waiting: list[asyncio.Future[Snapshot]] = []

            async def snapshot(self) -> Snapshot:
                self.waiting.append(asyncio.get_running_loop().create_future())
                return await self.waiting[-1]

        store, now = Held(), datetime.now(UTC)
        before, after = Snapshot(now, ()), Snapshot(now + MINUTE, ())
        board = Board(store, lambda: 0.0)
        looking = asyncio.create_task(board.view())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        renewing = asyncio.create_task(board.renew())
        store.waiting[0].set_result(before)
        await renewing
        assert (await looking).snapshot is before
        looking = asyncio.create_task(board.view())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        store.waiting[1].set_result(after)
        assert (await looking).snapshot is after

    async def test_before_the_first_snapshot_it_is_empty_and_down(self) -> None:
        class Never:
            async def snapshot(self) -> Any:
                raise TimeoutError

        view = await Board(Never()).view()
        assert (view.snapshot.cells, view.age_s, view.database_up) == ((), 0.0, False)

    async def test_who_looks_first_or_first_for_a_while_waits_longer_for_a_slow_database(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock, slow = [0.0], [True]

        class Slow:
            async def snapshot(self) -> Snapshot:
                if slow[0]:
                    await asyncio.sleep(0.01)
                return Snapshot(datetime.now(UTC), ())

        monkeypatch.setattr("service.store.board.PATIENCE_S", 0.0)
        board = Board(Slow(), lambda: clock[0])
        assert (await board.view()).database_up
        clock[0] += 600
        assert (await board.view()).age_s == 0
        clock[0] += 5
        view = await board.view()
        assert (view.database_up, view.age_s) == (False, 5)
        clock[0] += 600
        view = await board.view()  # it was away the last time as well
        assert (view.database_up, view.age_s) == (False, 605)
        await board.close()

    async def test_a_query_that_hangs_doesnt_hold_up_the_page(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        release, clock = asyncio.Event(), [0.0]
        release.set()

        class Slow(Store):
            async def snapshot(self) -> Any:
                await release.wait()
                return await super().snapshot()

        board = Board(Slow(world._engine), lambda: clock[0])
        first = await board.view()
        monkeypatch.setattr("service.store.board.PATIENCE_S", 0.01)
        release.clear()
        clock[0] += 5
        view = await board.view()
        assert (view.database_up, view.age_s, view.snapshot is first.snapshot) == (False, 5, True)
        await board.close()
