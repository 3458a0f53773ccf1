"""Budgets of a UTC day: what is left out, what is kept for cells in doubt, and what is counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Cell, Claim, Limit, Spend, Status
from tests.integration.test_store import HASH, HERE, INTERVAL, MINUTE, World, cell, verdict

TOKENS = {"tokens_per_day": 1000}
REQUESTS = {"requests_per_day": 100}


@pytest.fixture
def world(engine: AsyncEngine) -> World:
    return World(engine)


def budgeted(**changes: Any) -> Cell:
    return cell(**({"max_requests": 5} | changes))


async def today(world: World) -> date:
    now: datetime = await world.value("SELECT now()")
    return now.astimezone(UTC).date()


async def use_up(world: World, tokens: int = 0, requests: int = 0) -> None:
    """Make it that much that the route has used up today."""
    await world.sql(
        "INSERT INTO spends VALUES ('alpha', :day, :tokens, 0, :requests, false) ON CONFLICT (route_id, day) "
        "DO UPDATE SET tokens_in = excluded.tokens_in, tokens_out = 0, requests = excluded.requests",
        day=await today(world),
        tokens=tokens,
        requests=requests,
    )


async def spent(world: World) -> Spend:
    return (await world.store.snapshot()).spends["alpha"]


async def reasons(world: World) -> dict[str, str | None]:
    return {claim.contract: claim.unsent for claim in await world.claim()}


class TestWhatIsLeftOut:
    @pytest.mark.parametrize(
        ("budget", "used", "left_out"),
        [
            pytest.param(TOKENS, {"tokens": 999_999}, "budget_spent", id="tokens are spent"),
            pytest.param(TOKENS, {"tokens": 800}, "budget_spent", id="the last fifth isn't for a proven cell"),
            pytest.param(TOKENS, {"tokens": 799}, None, id="tokens are left"),
            pytest.param(REQUESTS, {"requests": 80}, "budget_spent", id="the last fifth of the requests"),
            pytest.param(REQUESTS, {"requests": 79}, None, id="requests are left"),
            pytest.param({}, {"tokens": 999_999}, None, id="without a budget"),
        ],
    )
    async def test_of_a_proven_cell(
        self, world: World, budget: dict[str, int], used: dict[str, int], left_out: str | None
    ) -> None:
        await world.sync(budgeted(), **budget)
        await world.ask(requests=0)
        await use_up(world, **used)
        assert (await world.claim_one()).unsent == left_out

    async def test_the_last_fifth_is_for_required_cells_in_doubt(self, world: World) -> None:
        await world.sync(budgeted(), budgeted(contract="missing_tool_results", required=False), **TOKENS)
        await use_up(world, tokens=950)
        assert await reasons(world) == {"native_tools": None, "missing_tool_results": "budget_spent"}

    async def test_which_includes_those_confirmed_as_broken_until_they_are_confirmed_as_proven(
        self, world: World
    ) -> None:
        await world.sync(budgeted(), **TOKENS)
        for status in (Status.TIMEOUT, Status.TIMEOUT, Status.TOOLS_SUPPORTED):
            await world.ask(status, requests=0)
        await use_up(world, tokens=950)
        assert (await world.claim_one()).unsent is None  # standing proven, confirmed not

    async def test_yesterday_counts_no_more(self, world: World) -> None:
        await world.sync(budgeted(), **TOKENS)
        await world.ask(requests=0)
        await use_up(world, tokens=5000)
        await world.sql("UPDATE spends SET day = day - 1")
        assert (await world.claim_one()).unsent is None

    async def test_replicas_that_claim_at_once_never_send_more_requests_than_the_day_has(self, world: World) -> None:
        contracts = [
            budgeted(contract=f"c{number}", location=place) for number in range(8) for place in (HERE, "there")
        ]
        for place in (HERE, "there"):
            await world.sync(*(one for one in contracts if one.location == place), location=place, requests_per_day=22)
        await world.all_due()
        taken = await asyncio.gather(*(world.store.claim(place, HASH, 4) for place in (HERE, "there") * 3))
        claims = [claim for some in taken for claim in some]
        assert len(claims) == 16
        assert sum(claim.unsent is None for claim in claims) == 4  # of five each: 20 of 22

    async def test_what_is_left_out_takes_no_place_under_a_limit(self, world: World) -> None:
        one_a_time = [Limit("provider", "acme", 1)]
        cells = [budgeted(provider="acme", contract=f"c{number}") for number in range(3)]
        await world.sync(*cells, limits=one_a_time, **TOKENS)
        await use_up(world, tokens=1000)
        for _ in cells:
            assert (await world.claim_one()).unsent == "budget_spent"
        assert await world.value("SELECT count(*) FROM debits") == 0


class TestOnceASpell:
    async def test_the_next_asking_is_on_the_next_utc_day_and_the_grid_stays(self, world: World) -> None:
        await world.sync(budgeted(), **TOKENS)
        proof = await world.ask(requests=0)
        await use_up(world, tokens=1000)
        grid_at = await world.value("SELECT grid_at FROM schedule")
        claim = await world.claim_one()
        midnight = datetime.combine(await today(world) + timedelta(days=1), time(), UTC)
        await world.store.save([(claim, unsent(claim))])
        ((due_at, grid_after),) = await world.sql("SELECT next_due_at, grid_at FROM schedule")
        assert midnight <= due_at <= midnight + INTERVAL
        assert (grid_after - grid_at) % INTERVAL == timedelta()
        row = await world.row()
        assert row.standing is not None
        assert row.standing.id == proof.id  # it ages and expires
        assert row.last is not None
        assert (row.last.status, row.last.reason) == ("not_sent", "budget_spent")

    async def test_a_cell_that_is_made_due_again_is_put_off_in_silence(self, world: World) -> None:
        await world.sync(budgeted(), budgeted(contract="agent_turn"), **TOKENS)
        await use_up(world, tokens=1000)
        for claim in await world.claim():
            await world.store.save([(claim, unsent(claim))])
        before = await world.value("SELECT count(*) FROM verdicts")
        await world.sync(budgeted(interval=2 * INTERVAL), budgeted(contract="agent_turn"), **TOKENS)
        assert await world.claim() == []
        midnight = datetime.combine(await today(world) + timedelta(days=1), time(), UTC)
        assert await world.value("SELECT min(next_due_at) FROM schedule") >= midnight
        assert await world.sql("SELECT lease_id, leased_until FROM schedule") == [(None, None)] * 2
        assert await world.value("SELECT count(*) FROM verdicts") == before

    async def test_it_is_said_again_on_another_day_and_asked_when_there_is_budget_again(self, world: World) -> None:
        await world.sync(budgeted(), **TOKENS)
        await use_up(world, tokens=1000)
        claim = await world.claim_one()
        yesterday = datetime.combine(await today(world), time(), UTC) - MINUTE
        await world.store.save([(claim, replace(unsent(claim), observed_at=yesterday))])
        claim = await world.claim_one()
        assert claim.unsent == "budget_spent"
        await world.store.save([(claim, unsent(claim))])
        assert await world.claim() == []
        await world.sync(budgeted(), tokens_per_day=5000)
        assert (await world.claim_one()).unsent is None

    async def test_a_run_of_blocked_answers_goes_on_after_it(self, world: World) -> None:
        await world.sync(budgeted(), **TOKENS)
        await world.ask(Status.ENDPOINT_AUTH_FAILED, requests=0)
        await world.ask(Status.ENDPOINT_AUTH_FAILED, requests=0)
        await use_up(world, tokens=1000)
        claim = await world.claim_one()
        await world.store.save([(claim, unsent(claim))])
        assert await world.value("SELECT blocked_run FROM schedule") == 2


class TestAnotherBudget:
    """It takes effect at the reload, as the alert says."""

    @pytest.mark.parametrize("budget", [{}, {"tokens_per_day": 5000}])
    async def test_what_the_old_one_left_out_is_asked_within_a_minute(
        self, world: World, budget: dict[str, int]
    ) -> None:
        await world.sync(budgeted(), **TOKENS)
        await world.ask(requests=0)
        await use_up(world, tokens=1000)
        claim = await world.claim_one()
        await world.store.save([(claim, unsent(claim))])
        await world.sync(budgeted(), **budget)
        assert await world.value("SELECT next_due_at - now() FROM schedule") <= MINUTE
        assert (await world.claim_one()).unsent is None

    async def test_the_same_one_is_as_spent_as_before_and_not_said_to_be_again(self, world: World) -> None:
        await world.sync(budgeted(), **TOKENS)
        await world.ask(requests=0)
        await use_up(world, tokens=1000)
        claim = await world.claim_one()
        await world.store.save([(claim, unsent(claim))])
        await world.sync(budgeted(), **TOKENS)
        assert await world.claim() == []
        midnight = datetime.combine(await today(world) + timedelta(days=1), time(), UTC)
        assert await world.value("SELECT next_due_at FROM schedule") >= midnight


class TestPacing:
    """Four fifths of the budget but for a token are gone: above the even share until the day's last seconds."""

    async def next_in(self, world: World, subject: Cell, status: Status, used: int) -> float:
        """Intervals until the next asking after a verdict."""
        await world.sync(subject, **TOKENS)
        await use_up(world, tokens=used)
        await world.ask(status, tokens_in=0, tokens_out=0)
        span: timedelta = await world.value("SELECT grid_at - now() FROM schedule")
        return span / INTERVAL

    async def test_informational_cells_are_asked_as_seldom_as_their_expiry_allows(self, world: World) -> None:
        subject = budgeted(contract="missing_tool_results", required=False, expires_after=12 * INTERVAL)
        assert 10 < await self.next_in(world, subject, Status.HISTORY_ACCEPTED, 799) < 11.5

    async def test_required_ones_follow_when_that_isnt_enough(self, world: World) -> None:
        assert 4 < await self.next_in(world, budgeted(), Status.TOOLS_SUPPORTED, 800) < 5.5

    async def test_cells_in_doubt_keep_their_pace(self, world: World) -> None:
        assert await self.next_in(world, budgeted(), Status.TIMEOUT, 950) < 1.1

    async def test_an_answer_that_decides_nothing_puts_no_proof_in_doubt(self, world: World) -> None:
        await world.sync(budgeted(), **TOKENS)
        await world.ask(requests=0)
        claim = await world.claim_one()
        await use_up(world, tokens=800)
        undecided = verdict(claim, Status.INCONCLUSIVE_NO_TOOL_CALL, tokens_in=0, tokens_out=0)
        assert await world.store.save([(claim, undecided)]) == {undecided.id}
        assert await world.value("SELECT grid_at - now() FROM schedule") > 4 * INTERVAL

    async def test_so_do_all_without_a_budget(self, world: World) -> None:
        await world.sync(budgeted(required=False))
        await use_up(world, tokens=10**9)
        await world.ask()
        assert await world.value("SELECT grid_at - now() FROM schedule") < 1.1 * INTERVAL


class TestWhatIsCounted:
    async def test_tokens_requests_and_whether_they_are_estimates(self, world: World) -> None:
        await world.sync(budgeted())
        await world.ask(requests=2, tokens_in=40, tokens_out=12)
        assert await spent(world) == Spend(40, 12, 2, False)
        await world.ask(requests=3, tokens_in=None, tokens_out=8, tokens_estimated=True)
        assert await spent(world) == Spend(40, 20, 5, True)
        row = await world.row()
        assert (row.tokens_in, row.tokens_out) == (40, 20)

    async def test_once_however_often_it_is_saved(self, world: World) -> None:
        await world.sync(budgeted())
        claim = await world.claim_one()
        one = (claim, verdict(claim))
        await world.store.save([one, one])
        await world.store.save([one])
        assert await spent(world) == Spend(40, 12, 1)
        assert (await world.row()).tokens_in == 40

    async def test_what_was_not_sent_costs_nothing(self, world: World) -> None:
        await world.sync(budgeted())
        await world.ask(Status.NOT_SENT, requests=0, tokens_in=None, tokens_out=None)
        assert (await world.store.snapshot()).spends == {}

    async def test_on_the_day_on_which_it_was_observed(self, world: World) -> None:
        await world.sync(budgeted())
        claim = await world.claim_one()
        yesterday = datetime.combine(await today(world) - timedelta(days=1), time(12), UTC)
        await world.store.save([(claim, verdict(claim, observed_at=yesterday))])
        assert (await world.store.snapshot()).spends == {}
        assert await world.value("SELECT day FROM spends") == yesterday.date()

    async def test_a_probe_without_an_end_with_all_that_it_may_have_sent(self, world: World) -> None:
        await world.sync(budgeted(), **REQUESTS)
        killed = await world.claim_one()
        await world.end_leases()
        claim = await world.claim_one()
        assert await spent(world) == Spend(requests=5)
        await world.store.save([(claim, verdict(claim))])
        assert await spent(world) == Spend(40, 12, 6)
        late = verdict(killed, requests=2)  # it was on its disk
        assert await world.store.save([(killed, late)]) == {late.id}
        assert await spent(world) == Spend(80, 24, 6)

    async def test_which_counts_before_more_is_sent(self, world: World) -> None:
        await world.sync(budgeted(), requests_per_day=9)
        await world.claim_one()
        await world.end_leases()
        assert (await world.claim_one()).unsent == "budget_spent"

    async def test_for_four_hundred_days(self, world: World) -> None:
        await world.sync(budgeted())
        await world.ask()
        await world.sql("INSERT INTO spends SELECT 'alpha', day - 401, 1, 1, 1, false FROM spends")
        await world.store.forget(timedelta(days=400))
        assert await world.value("SELECT count(*) FROM spends") == 1


def unsent(claim: Claim) -> Any:
    return verdict(
        claim, Status.NOT_SENT, reason=claim.unsent, requests=0, tokens_in=None, tokens_out=None, quirks=(), rungs=()
    )
