"""The database's clock set back by an hour: what it wrote before then lies ahead, and holds nothing up. The tests move the
rows ahead instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.derive import Shown, derive
from service.model import Claim, Limit, Outcome, Status, Verdict
from service.rejudge import Judged
from service.rules import Conclusion
from tests.integration.test_confirmed import SECOND, ask, kinds
from tests.integration.test_store import HASH, HERE, INTERVAL, MINUTE, World, cell, verdict

PROVEN, FAILED = Status.TOOLS_SUPPORTED, Status.TIMEOUT
HOUR = timedelta(hours=1)


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell())
    return world


async def set_back(world: World, by: timedelta = HOUR) -> None:
    """As if all that is stored had been written before the clock was set back."""
    await world.store.ensure_partitions()
    for table, columns in {
        "schedule": ("grid_at", "next_due_at", "leased_until"),
        "debits": ("running_until", "settled_at"),
        "waits": ("until",),
        "verdicts": ("observed_at", "started_at"),
        "transitions": ("at",),
        "latest": ("standing_observed_at", "state_since", "last_observed_at", "last_proven_at", "last_transition_at"),
    }.items():
        moved = ", ".join(f"{column} = {column} + :by" for column in columns)
        await world.sql(f"UPDATE {table} SET {moved}", by=by)
    for name, path in [
        *((name, "{observed_at}") for name in ("standing", "last")),
        *(("confirmed", f"{{{mark},observed_at}}") for mark in ("last_good", "last_bad", "first_good", "first_bad")),
        *(("confirmed", f"{{{at}}}") for at in ("since", "regressed_since", "last_regression_at")),
    ]:
        await world.sql(
            f"UPDATE latest SET {name} = jsonb_set({name}, :path ::text[], to_jsonb(to_char("
            f"(({name} #>> :path ::text[])::timestamptz + :by) AT TIME ZONE 'UTC', "
            f"'YYYY-MM-DD\"T\"HH24:MI:SS.US+00:00'))) WHERE {name} #>> :path ::text[] IS NOT NULL",
            path=path, by=by,
        )  # fmt: skip


async def shown(world: World) -> Shown:
    snapshot = await world.store.snapshot()
    (row,) = snapshot.cells
    return derive(row, snapshot.now).shown


async def save(world: World, claim: Claim, status: Status, **changes: Any) -> Verdict:
    result = verdict(claim, status, **changes)
    assert await world.store.save([(claim, result)]) == {result.id}
    return result


def made_ahead(claim: Claim) -> Claim:
    """As if it had been claimed before the clock was set back."""
    return replace(claim, claimed_at=claim.claimed_at + HOUR, leased_until=claim.leased_until + HOUR)


class TestState:
    async def test_the_next_verdict_replaces_one_that_lies_ahead(self, world: World) -> None:
        await ask(world, PROVEN)
        await set_back(world)
        assert await shown(world) is Shown.UNKNOWN
        now = await ask(world, FAILED)
        assert await shown(world) is Shown.UNAVAILABLE
        row = await world.row()
        assert row.standing is not None
        assert row.last is not None
        assert row.standing.id == row.last.id == now.id
        assert row.state_since == now.observed_at
        assert await world.value("SELECT last_observed_at FROM latest") == now.observed_at
        later = await ask(world, FAILED)
        row = await world.row()
        assert row.standing is not None
        assert row.standing.id == later.id
        assert row.state_since == now.observed_at

    async def test_the_same_outcome_stands_since_now_at_the_latest(self, world: World) -> None:
        await ask(world, PROVEN)
        await set_back(world)
        now = await ask(world, PROVEN)
        row = await world.row()
        assert row.state_since == row.last_proven_at == now.observed_at

    async def test_a_proof_that_lies_ahead_expires_in_its_time(self, world: World) -> None:
        proof = await ask(world, PROVEN)
        await world.sql("UPDATE latest SET last_proven_at = last_proven_at - interval '9 minutes'")
        await set_back(world)
        now = await ask(world, FAILED)
        assert (await world.row()).last_proven_at == now.observed_at - 9 * MINUTE
        assert proof.observed_at > now.observed_at - 9 * MINUTE

    async def test_a_cell_that_was_never_proven_stays_so(self, world: World) -> None:
        await ask(world, FAILED)
        await set_back(world)
        await ask(world, FAILED)
        assert (await world.row()).last_proven_at is None

    async def test_what_proves_nothing_replaces_no_verdict_that_lies_ahead(self, world: World) -> None:
        proof = await ask(world, PROVEN)
        await set_back(world)
        doubt = await ask(world, Status.OWN_NETWORK)
        row = await world.row()
        assert row.standing is not None
        assert row.last is not None
        assert (row.standing.id, row.last.id) == (proof.id, doubt.id)
        assert await shown(world) is Shown.UNKNOWN
        await ask(world, FAILED)
        row = await world.row()
        assert await shown(world) is Shown.UNAVAILABLE
        assert row.last_proven_at is not None
        assert row.last_proven_at <= doubt.observed_at

    async def test_a_clock_that_is_off_by_seconds_was_not_set_back(self, world: World) -> None:
        newer = await ask(world, PROVEN)
        await set_back(world, timedelta(seconds=4))
        claim = await world.claim_one()
        await save(world, claim, FAILED, observed_at=newer.observed_at)
        assert await shown(world) is Shown.PROVEN
        last = (await world.row()).last
        assert last is not None
        assert last.id == newer.id

    async def test_one_that_comes_late_is_history_whatever_its_time(self, world: World) -> None:
        """It was asked before the verdict that stands, and observed before the clock was set back, or long before."""
        before = await world.claim_one()
        await world.end_leases()
        claim = await world.claim_one()
        standing = await save(world, claim, PROVEN)
        ahead = made_ahead(before)
        await save(world, ahead, FAILED, observed_at=ahead.claimed_at + SECOND)
        row = await world.row()
        assert row.standing is not None
        assert row.last is not None
        assert row.standing.id == row.last.id == standing.id
        assert row.counts[Outcome.UNAVAILABLE] == 1
        await set_back(world)
        await save(world, before, FAILED, observed_at=before.claimed_at + 2 * SECOND)
        row = await world.row()
        assert row.standing is not None
        assert row.standing.id == standing.id

    async def test_a_late_proof_lets_none_seem_newer_than_now(self, world: World) -> None:
        before = made_ahead(await world.claim_one())
        await world.end_leases()
        await ask(world, FAILED)
        await save(world, before, PROVEN, observed_at=before.claimed_at + SECOND)
        snapshot = await world.store.snapshot()
        assert snapshot.cells[0].last_proven_at is not None
        assert snapshot.cells[0].last_proven_at <= snapshot.now + timedelta(seconds=5)


class TestConfirmed:
    async def test_a_regression_takes_two_failures_before_and_after_as_ever(self, world: World) -> None:
        await ask(world, PROVEN, FAILED)
        await set_back(world)
        assert not (await world.row()).confirmed.regressed
        again = await ask(world, FAILED)
        assert await kinds(world) == ["regression", "first"]  # by their times
        row = await world.row()
        assert row.confirmed.regressed_since is not None
        assert row.confirmed.regressed_since < again.observed_at
        assert row.last_transition_at == again.observed_at

    async def test_one_failure_after_it_is_no_regression_and_two_are(self, world: World) -> None:
        await ask(world, PROVEN, PROVEN)
        await set_back(world)
        await ask(world, FAILED)
        assert (await world.row()).confirmed.run == 1
        assert not (await world.row()).confirmed.regressed
        await ask(world, FAILED)
        assert (await world.row()).confirmed.regressed

    async def test_proofs_between_failures_break_their_run(self, world: World) -> None:
        await ask(world, PROVEN, FAILED)
        await set_back(world)
        await ask(world, PROVEN, FAILED)
        assert not (await world.row()).confirmed.regressed

    async def test_a_recovery_comes_as_ever_and_a_regression_soon_after_is_flapping(self, world: World) -> None:
        await ask(world, PROVEN, FAILED, FAILED)
        await set_back(world)
        await ask(world, PROVEN)
        assert (await world.row()).confirmed.regressed
        await ask(world, PROVEN)
        assert not (await world.row()).confirmed.regressed
        await ask(world, FAILED, FAILED)
        assert (await world.row()).confirmed.flapping

    async def test_a_late_failure_from_before_is_no_step_towards_a_regression(self, world: World) -> None:
        await ask(world, PROVEN)
        before = made_ahead(await world.claim_one())
        await world.end_leases()
        await ask(world, FAILED)
        await save(world, before, FAILED, observed_at=before.claimed_at + SECOND)
        assert not (await world.row()).confirmed.regressed

    async def test_what_the_state_rests_on_is_still_found_to_be_judged_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.store.verdicts.RULESET", 2)
        judged = Judged(Conclusion(FAILED, "RP-001", "", None), ())
        monkeypatch.setattr("service.store.verdicts.judge_again", lambda *_: judged)
        await ask(world, PROVEN)
        await set_back(world)
        await ask(world, FAILED, ruleset=2)
        assert set(await kinds(world)) == {"first", "rules"}


class TestSchedule:
    async def test_what_is_due_too_far_ahead_is_asked_within_its_interval(self, world: World) -> None:
        await ask(world, PROVEN)
        await set_back(world)
        assert await world.store.seconds_to_next_due(HERE, HASH) > 3000  # type: ignore[operator]
        await world.store.mind_the_clock()
        due = await world.store.seconds_to_next_due(HERE, HASH)
        assert due is not None
        assert due <= INTERVAL.total_seconds()
        await world.store.mind_the_clock()
        assert await world.store.seconds_to_next_due(HERE, HASH) == pytest.approx(due, abs=2)

    async def test_so_is_what_was_never_asked(self, world: World) -> None:
        await set_back(world)
        await world.store.mind_the_clock()
        assert await world.store.seconds_to_next_due(HERE, HASH) <= INTERVAL.total_seconds()  # type: ignore[operator]

    async def test_what_may_be_due_far_ahead_stays_so_while_the_clock_goes_on(self, world: World) -> None:
        await ask(world, PROVEN)
        await world.sql("UPDATE schedule SET next_due_at = now() + interval '20 hours'")
        before = await world.contents()
        await world.store.mind_the_clock()
        assert await world.contents() == before

    async def test_waits_end_within_an_hour(self, world: World) -> None:
        await ask(world, Status.RATE_LIMITED, retry_after_s=1800)
        await set_back(world)
        await world.store.mind_the_clock()
        assert await world.value("SELECT until - now() <= interval '1 hour' FROM waits")

    async def test_a_late_wait_is_no_longer_than_an_hour_from_now(self, world: World) -> None:
        before = made_ahead(await world.claim_one())
        await world.end_leases()
        await save(world, before, Status.RATE_LIMITED, retry_after_s=9999, observed_at=before.claimed_at + SECOND)
        assert await world.value("SELECT until - now() <= interval '1 hour 5 seconds' FROM waits")

    async def test_limits_give_room_again_after_a_minute(self, world: World) -> None:
        await world.sync(cell(provider="acme"), limits=[Limit("provider", "acme", None, 1)])
        await ask(world, PROVEN)
        await set_back(world)
        await world.store.mind_the_clock()
        await world.pass_time(2 * MINUTE)
        await ask(world, PROVEN)
