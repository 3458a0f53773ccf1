"""From saved verdicts to the confirmed state: its transitions, the askings that follow, and what can't disturb it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.facts import record
from service.model import Claim, Exchange, Limit, Outcome, Route, Status, Transition, Verdict
from service.rejudge import Judged
from service.rules import Circumstances, Conclusion
from service.store.rows import UNSTORABLE
from tests.integration.test_store import HASH, HERE, INTERVAL, MINUTE, RUNG, World, cell, verdict

PROVEN, FAILED, REFUSED = Status.TOOLS_SUPPORTED, Status.TIMEOUT, Status.ENDPOINT_AUTH_FAILED
SECOND = timedelta(seconds=1)


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(cell())
    return world


async def kinds(world: World) -> list[str]:
    """Oldest first."""
    return [change.kind for change in reversed(await world.store.transitions())]


async def ask(world: World, *statuses: Status, **changes: Any) -> Verdict:
    """One verdict after the other; the last one."""
    for status in statuses:
        result = await world.ask(status, observed_at=datetime.now(UTC), **changes)
    return result


async def planned(world: World) -> Any:
    """The next asking: when it is due, whether that is before the grid, and the point of the grid."""
    ((due_at, quick, grid_at),) = await world.sql("SELECT next_due_at, quick, grid_at FROM schedule")
    return due_at, quick, grid_at


class TestTransitions:
    async def test_a_regression_is_told_with_both_sides_and_what_changed_between_them(self, world: World) -> None:
        good = await ask(world, PROVEN, version="1.0")
        bad = await ask(world, FAILED, reason="no_headers", served_model="model-2", version="1.1")
        assert await kinds(world) == ["first"]
        again = await ask(world, REFUSED, version="1.1")
        change = (await world.store.transitions())[0]
        assert change == Transition(
            at=again.observed_at,
            route_id="alpha",
            contract="native_tools",
            location=HERE,
            kind="regression",
            from_status="tools_supported",
            from_reason=None,
            to_status="timeout",
            to_reason="no_headers",
            changed={
                "served_model": {"from": "model-1-2025", "to": "model-2"},
                "version": {"from": "1.0", "to": "1.1"},
            },
            id=change.id,
            announced=True,
        )
        causes = "SELECT from_verdict, to_verdict FROM transitions WHERE kind = 'regression'"
        assert await world.sql(causes) == [(good.id, again.id)]
        row = await world.row()
        assert (row.confirmed.proven, row.confirmed.regressed) == (False, True)
        assert row.confirmed.first_bad is not None
        assert row.confirmed.first_bad.id == bad.id
        assert row.confirmed.regressed_since == bad.observed_at
        assert row.last_transition_at == again.observed_at

    async def test_there_and_back_and_flapping(self, world: World) -> None:
        await ask(world, PROVEN, FAILED, FAILED, PROVEN, PROVEN, FAILED, FAILED)
        assert await kinds(world) == ["first", "regression", "recovery", "flapping"]
        confirmed = (await world.row()).confirmed
        assert (confirmed.flapping, confirmed.regressed) == (True, True)
        await ask(world, *[FAILED] * 4)
        assert (await kinds(world))[-1] == "broken"
        await ask(world, *[PROVEN] * 30)
        assert (await kinds(world))[-1] == "settled"
        assert not (await world.row()).confirmed.regressed

    async def test_rate_limits_and_unproven_verdicts_change_nothing(self, world: World) -> None:
        await ask(world, PROVEN, FAILED, Status.RATE_LIMITED, Status.OWN_NETWORK, Status.NOT_SENT)
        assert await kinds(world) == ["first"]
        await ask(world, FAILED)
        assert await kinds(world) == ["first", "regression"]

    async def test_of_a_cell_that_isnt_required_the_confirmed_state_moves_in_silence(self, world: World) -> None:
        await world.sync(cell(required=False))
        await ask(world, PROVEN, FAILED, FAILED)
        assert (await world.row()).confirmed.regressed
        assert await kinds(world) == ["informational"]

    async def test_two_verdicts_of_a_cell_in_one_batch_follow_each_other(self, world: World) -> None:
        await ask(world, PROVEN)
        first = await world.claim_one()
        await world.end_leases()
        second = await world.claim_one()
        at = datetime.now(UTC)
        later, sooner = (
            verdict(claim, FAILED, observed_at=at + place * SECOND) for claim, place in ((second, 2), (first, 1))
        )
        assert await world.store.save([(second, later), (first, sooner)]) == {later.id, sooner.id}
        assert await kinds(world) == ["first", "regression"]
        assert (await world.row()).counts[Outcome.UNAVAILABLE] == 2

    async def test_a_late_verdict_is_history(self, world: World) -> None:
        held_up = await world.claim_one()
        await world.end_leases()
        await ask(world, PROVEN)
        await ask(world, FAILED)
        before = (await world.row()).confirmed
        long_ago = verdict(held_up, FAILED, observed_at=held_up.claimed_at)
        assert await world.store.save([(held_up, long_ago)]) == {long_ago.id}
        row = await world.row()
        assert row.confirmed == before
        assert await kinds(world) == ["first"]
        assert row.counts[Outcome.UNAVAILABLE] == 2

    async def test_a_late_verdict_counts_when_nothing_that_counts_is_newer(self, world: World) -> None:
        await ask(world, PROVEN, FAILED)
        held_up = await world.claim_one()
        await world.end_leases()
        await ask(world, Status.OWN_NETWORK)
        late = verdict(held_up, FAILED, observed_at=held_up.claimed_at)
        assert await world.store.save([(held_up, late)]) == {late.id}
        assert await kinds(world) == ["first", "regression"]
        row = await world.row()
        assert row.standing is not None
        assert row.standing.id == late.id


class TestAskings:
    @pytest.mark.parametrize("before", [[], [PROVEN], [PROVEN, FAILED, FAILED]], ids=["never", "proven", "regressed"])
    async def test_the_first_verdict_that_contradicts_is_followed_by_a_quick_one(
        self, world: World, before: list[Status]
    ) -> None:
        if before:
            await ask(world, *before)
        ((grid,),) = await world.sql("UPDATE schedule SET grid_at = now() RETURNING grid_at")
        await ask(world, PROVEN if len(before) == 3 else FAILED)
        due_at, quick, grid_at = await planned(world)
        assert quick
        assert grid + 30 * SECOND <= due_at <= await world.value("SELECT now()") + 36 * SECOND
        assert grid_at == grid + INTERVAL
        await ask(world, PROVEN if len(before) == 3 else FAILED)
        assert (await planned(world))[1] is False

    async def test_none_follows_where_nothing_is_contradicted_or_nobody_is_called(self, world: World) -> None:
        await ask(world, PROVEN, PROVEN)
        assert (await planned(world))[1] is False
        await world.sync(cell(required=False))
        await ask(world, FAILED)
        assert (await planned(world))[1] is False

    async def test_it_waits_for_as_long_as_the_provider_asks(self, world: World) -> None:
        await ask(world, PROVEN)
        ((grid,),) = await world.sql("UPDATE schedule SET grid_at = now() RETURNING grid_at")
        await ask(world, Status.OVERLOADED, retry_after_s=100)
        due_at, quick, _ = await planned(world)
        assert quick
        assert grid + 100 * SECOND <= due_at <= await world.value("SELECT now()") + 120 * SECOND

    async def test_twelve_askings_of_a_required_cell_come_at_its_routes_interval(self, world: World) -> None:
        seldom = cell(contract="agent_turn", interval=12 * INTERVAL, expires_after=72 * INTERVAL,
                      route_interval=INTERVAL)  # fmt: skip
        await world.sync(seldom)
        await world.sql("UPDATE schedule SET grid_at = now() - interval '7 minutes'")
        grid = await world.value("SELECT grid_at FROM schedule WHERE cell_id = (SELECT max(id) FROM cells)")
        await ask(world, PROVEN, FAILED, FAILED)
        assert await kinds(world) == ["first", "regression"]
        spans = []
        for _ in range(14):
            spans.append((await planned_of(world))[1])
            await ask(world, FAILED)
        soon = [span < 2 * INTERVAL for span in spans]
        assert soon == [True] * 12 + [False] * 2
        after = (await planned_of(world))[0]
        assert (after - grid) % INTERVAL == timedelta()  # the grid is kept through all of it

    async def test_what_is_not_sent_is_none_of_them(self, world: World) -> None:
        await ask(world, PROVEN, FAILED, FAILED)
        await ask(world, Status.NOT_SENT, Status.NOT_SENT)
        assert (await world.row()).confirmed.askings_left == 12
        await ask(world, Status.OWN_NETWORK)
        assert (await world.row()).confirmed.askings_left == 11

    async def test_a_cell_that_isnt_required_keeps_its_own_pace(self, world: World) -> None:
        await world.sync(cell(contract="agent_turn", required=False, interval=12 * INTERVAL, route_interval=INTERVAL))
        await world.sql("UPDATE schedule SET grid_at = now()")
        await ask(world, PROVEN, FAILED, FAILED)
        assert (await planned_of(world))[1] > 10 * INTERVAL

    async def test_blocked_answers_back_off_and_are_asked_before_they_expire(self, world: World) -> None:
        await world.sql("UPDATE schedule SET grid_at = now()")
        await ask(world, REFUSED, REFUSED)
        spans = []
        for _ in range(4):
            await ask(world, REFUSED)
            (_, span) = await planned_of(world)
            spans.append(span / INTERVAL)
        assert max(spans) < 5.3  # of six, less three deadlines
        assert min(spans) > 3.5
        await ask(world, FAILED)
        assert (await planned_of(world))[1] < 1.2 * INTERVAL


async def planned_of(world: World) -> tuple[datetime, timedelta]:
    """The point of the grid of the next asking, and how far it lies ahead, of the cell that is active."""
    ((grid_at, span),) = await world.sql(
        "SELECT grid_at, grid_at - now() FROM schedule JOIN cells ON id = cell_id WHERE active"
    )
    return grid_at, span


class TestFingerprints:
    async def test_another_configuration_voids_the_standing_verdict_and_keeps_the_confirmed_state(
        self, world: World
    ) -> None:
        await ask(world, PROVEN, FAILED, FAILED)
        before = (await world.row()).confirmed
        await world.sync(cell(fingerprint="f2"))
        row = await world.row()
        assert row.standing is None
        assert row.confirmed == before
        assert len(await world.store.claim(HERE, HASH, 9)) == 1

    async def test_a_verdict_under_an_earlier_configuration_confirms_nothing(self, world: World) -> None:
        await ask(world, PROVEN, FAILED)
        under_way = await world.claim_one()
        await world.sync(cell(fingerprint="f2"))
        before = (await world.row()).confirmed
        await world.store.save([(under_way, verdict(under_way, FAILED, observed_at=datetime.now(UTC)))])
        row = await world.row()
        assert (row.standing, row.confirmed) == (None, before)
        assert await kinds(world) == ["first"]
        await ask(world, FAILED)
        assert await kinds(world) == ["first"]  # a run begins anew under another configuration
        await ask(world, FAILED)
        assert await kinds(world) == ["first", "regression"]
        assert (await world.store.transitions())[0].changed == {}  # it had begun to fail before


class TestOtherRules:
    """The rules of today are the second; what was stored under the first is judged again by its facts."""

    ROUTE = Route("alpha", "alpha", "acme", "openai-chat", "https://api.example/v1", "m")

    @pytest.fixture(autouse=True)
    def second_rules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("service.store.verdicts.RULESET", 2)

    def facts(self, **circumstances: Any) -> Any:
        return record(self.ROUTE, list[Exchange](), Circumstances(**circumstances), lambda text, *_: text)

    async def test_a_change_that_the_rules_made_is_no_regression(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []

        def judge(contract: str, facts: Any) -> Any:
            asked.append((contract, facts))
            return Judged(Conclusion(FAILED, "RP-001", "", None), ())

        monkeypatch.setattr("service.store.verdicts.judge_again", judge)
        old = await ask(world, PROVEN, facts={"forced": "called"})
        new = await ask(world, FAILED, ruleset=2)
        assert asked == [("native_tools", {"forced": "called"})]
        change = (await world.store.transitions())[0]
        assert (change.kind, change.announced, change.changed) == ("rules", False, {"rules": {"from": 1, "to": 2}})
        causes = "SELECT from_verdict, to_verdict FROM transitions WHERE kind = 'rules'"
        assert await world.sql(causes) == [(old.id, new.id)]
        assert not (await world.row()).confirmed.regressed

    async def test_one_that_the_rules_didnt_make_counts_as_ever(self, world: World) -> None:
        await ask(world, PROVEN, facts=self.facts(unsent="paused"))  # says nothing of either side
        await ask(world, FAILED, ruleset=2)
        assert await kinds(world) == ["first"]
        await ask(world, FAILED, ruleset=2)
        assert await kinds(world) == ["first", "regression"]

    async def test_without_the_facts_the_confirmed_state_is_carried_over(self, world: World) -> None:
        await ask(world, PROVEN)
        await world.sql("TRUNCATE verdicts")
        await ask(world, FAILED, ruleset=2)
        assert await kinds(world) == ["first"]
        assert (await world.row()).confirmed.proven is True

    async def test_a_verdict_of_earlier_rules_that_comes_late_judges_nothing_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.store.verdicts.judge_again", lambda *_: pytest.fail("judged by rules not its own"))
        await ask(world, PROVEN, ruleset=2)
        await ask(world, FAILED, ruleset=1)


@asynccontextmanager
async def cut_in_commit(engine: AsyncEngine) -> AsyncIterator[None]:
    """The next commit is carried out, and its answer is lost."""

    def lose(connection: Any) -> None:
        event.remove(engine.sync_engine, "commit", lose)
        connection.connection.dbapi_connection.commit()
        raise OperationalError("COMMIT", {}, Exception("the connection is gone"))

    event.listen(engine.sync_engine, "commit", lose)
    yield


class TestUnknownFate:
    async def batch(self, world: World) -> list[tuple[Claim, Verdict]]:
        """One verdict of each kind that leaves traces: a regression, a wait, an hour that is over, a void one."""
        limits = [Limit("provider", "acme", 9, 99)]
        names = ("alpha", "beta", "gamma", "delta")
        await world.sync(
            *(cell(name, provider="acme", credential=name, max_requests=5) for name in names), limits=limits
        )
        for status in (PROVEN, FAILED):
            await world.store.save(
                [(claim, verdict(claim, status, observed_at=datetime.now(UTC))) for claim in await world.claim()]
            )
        claims = {claim.route_id: claim for claim in await world.claim()}
        slept = claims["delta"]
        await world.sql(
            "UPDATE schedule SET leased_until = now() - interval '1 s' WHERE cell_id = :id", id=slept.cell_id
        )
        await world.claim()
        return [
            (claims["alpha"], verdict(claims["alpha"], FAILED, observed_at=datetime.now(UTC))),
            (claims["beta"], verdict(claims["beta"], Status.RATE_LIMITED, retry_after_s=300)),
            (claims["gamma"], verdict(claims["gamma"], observed_at=datetime.now(UTC) - timedelta(hours=3))),
            (slept, verdict(slept, FAILED, observed_at=slept.leased_until + MINUTE)),
        ]

    async def test_a_commit_whose_answer_is_lost_is_repeated_and_changes_nothing(
        self, world: World, engine: AsyncEngine
    ) -> None:
        batch = await self.batch(world)
        async with cut_in_commit(engine):
            with pytest.raises(OperationalError):
                await world.store.save(batch)
        before = await world.contents()
        assert await world.value("SELECT count(*) FROM verdicts") == 11
        assert await world.store.save(batch) == set()
        assert await world.contents() == before
        assert world.store.leases_lost == 1  # the void one, which was not stored

    async def test_a_repeat_that_comes_with_others_changes_nothing_twice(
        self, world: World, engine: AsyncEngine
    ) -> None:
        batch = await self.batch(world)
        await world.store.save(batch)
        before = await world.contents()
        claim = next(claim for claim in await world.claim() if claim.route_id == "alpha")
        more = verdict(claim, FAILED, observed_at=datetime.now(UTC))
        assert await world.store.save([*batch, (claim, more), *batch]) == {more.id}
        after = await world.contents()
        assert len(after["verdicts"]) == len(before["verdicts"]) + 1
        assert after["transitions"] == before["transitions"]
        spent = {row.route_id: row.requests for row in before["spends"]}
        assert {row.route_id: row.requests for row in after["spends"]} == spent | {"alpha": spent["alpha"] + 1}


HOSTILE = "NUL \0 surrogate \ud800 bidi \u202e isolate \u2066 zero \u200b width \ufeff"


@pytest.mark.parametrize(
    ("changes", "stored"),
    [
        pytest.param({"detail": "bidi \u202e\u2066 zero-width \u200b\ufeff"}, True, id="strange, but text"),
        pytest.param({"detail": HOSTILE}, False, id="in the detail"),
        pytest.param({"reason": HOSTILE}, False, id="in the reason"),
        pytest.param({"served_model": HOSTILE}, False, id="in the model's name"),
        pytest.param({"quirks": (HOSTILE,)}, False, id="in a quirk"),
        pytest.param({"facts": {HOSTILE: HOSTILE}}, False, id="in the facts"),
        pytest.param({"rungs": (replace(RUNG, read=HOSTILE),)}, False, id="in a rung"),
    ],
)
async def test_hostile_texts_are_stored_or_replaced_and_nothing_waits_behind_them(
    world: World, changes: dict[str, Any], stored: bool
) -> None:
    """They bring a regression, so that every table takes them."""
    await world.sync(cell(), cell("beta"))
    for status in (PROVEN, FAILED):
        for claim in await world.claim():
            await world.store.save([(claim, verdict(claim, status, observed_at=datetime.now(UTC)))])
    first, second = await world.claim()
    bad = verdict(first, FAILED, observed_at=datetime.now(UTC), **changes)
    good = verdict(second, FAILED, observed_at=datetime.now(UTC), id=uuid4())
    assert await world.store.save([(first, bad), (second, good)]) == {bad.id, good.id}
    assert world.store.refused == (0 if stored else 1)
    assert [change.kind for change in await world.store.transitions()][:2] == ["regression", "regression"]
    details = {row.route.id: row.last.detail for row in (await world.store.snapshot()).cells if row.last}
    assert details == {
        first.route_id: changes["detail"] if stored else UNSTORABLE,
        second.route_id: "a whole call",
    }
    assert await world.value("SELECT count(*) FROM schedule WHERE lease_id IS NOT NULL") == 0
