"""Changes of informational contracts, against a real PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Status, Transition
from tests.integration.test_store import HERE, MINUTE, World, cell, verdict

ACCEPTED, REJECTED = Status.HISTORY_ACCEPTED, Status.HISTORY_REJECTED
SHAPE = cell(contract="missing_tool_results", required=False)


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    world = World(engine)
    await world.sync(SHAPE)
    return world


async def statuses(world: World) -> list[tuple[str, str]]:
    return [(change.from_status, change.to_status) for change in await world.store.transitions()]


async def test_a_changed_status_is_written_with_both_verdicts_and_what_differs(world: World) -> None:
    before = await world.ask(ACCEPTED)
    after = await world.ask(REJECTED, reason="http_400", served_model="model-2", ruleset=2)
    assert await world.store.transitions() == [
        Transition(
            at=after.observed_at,
            route_id="alpha",
            contract="missing_tool_results",
            location=HERE,
            kind="informational",
            from_status="history_accepted",
            from_reason=None,
            to_status="history_rejected",
            to_reason="http_400",
            changed={"served_model": {"from": "model-1-2025", "to": "model-2"}, "rules": {"from": 1, "to": 2}},
            id=1,
        )
    ]
    assert await world.sql("SELECT from_verdict, to_verdict FROM transitions") == [(before.id, after.id)]


@pytest.mark.parametrize("known", [("model-1", None), (None, "model-1"), (None, None), ("model-1", "model-1")])
async def test_what_isnt_known_to_differ_isnt_named(world: World, known: tuple[str | None, str | None]) -> None:
    await world.ask(ACCEPTED, served_model=known[0])
    await world.sql("UPDATE latest SET standing = standing - 'ruleset'")  # as an earlier release left it
    await world.ask(REJECTED, served_model=known[1], ruleset=2)
    assert [change.changed for change in await world.store.transitions()] == [{}]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param([REJECTED], [], id="the first standing verdict"),
        pytest.param([Status.CANCELLED, REJECTED], [], id="the first that isn't unproven"),
        pytest.param([ACCEPTED, ACCEPTED], [], id="the same status"),
        pytest.param([ACCEPTED, Status.TURN_UNFINISHED], [], id="unproven doesn't stand"),
        pytest.param(
            [ACCEPTED, Status.TURN_UNFINISHED, REJECTED],
            [(ACCEPTED, REJECTED)],
            id="unproven in between is passed over",
        ),
        pytest.param([ACCEPTED, Status.TURN_UNFINISHED, ACCEPTED], [], id="back where it was"),
        pytest.param(
            [Status.TIMEOUT, Status.UNREACHABLE], [(Status.TIMEOUT, Status.UNREACHABLE)], id="within one outcome"
        ),
        pytest.param(
            [ACCEPTED, REJECTED, ACCEPTED],
            [(REJECTED, ACCEPTED), (ACCEPTED, REJECTED)],
            id="there and back, newest first",
        ),
    ],
)
async def test_only_a_change_of_the_standing_status_counts(
    world: World, asked: list[Status], expected: list[tuple[Status, Status]]
) -> None:
    for place, status in enumerate(asked):
        await world.ask(status, observed_at=datetime.now(UTC) + place * MINUTE)
    assert await statuses(world) == expected


async def test_another_reason_is_no_transition(world: World) -> None:
    await world.ask(REJECTED, reason="http_400")
    await world.ask(REJECTED, reason="http_500")
    assert await statuses(world) == []


async def test_a_required_cell_makes_none(world: World) -> None:
    await world.ask(ACCEPTED)
    await world.sync(replace(SHAPE, required=True))
    await world.ask(REJECTED)
    assert await statuses(world) == []


async def test_a_late_verdict_makes_none_and_the_next_compares_with_the_standing_one(world: World) -> None:
    newer = await world.ask(ACCEPTED)
    await world.ask(REJECTED, observed_at=newer.observed_at - MINUTE)
    assert await statuses(world) == []
    await world.ask(ACCEPTED)
    assert await statuses(world) == []


async def test_another_configuration_begins_anew(world: World) -> None:
    await world.ask(ACCEPTED)
    under_way = await world.claim_one()
    await world.sync(replace(SHAPE, fingerprint="f2"))
    await world.store.save([(under_way, verdict(under_way, REJECTED))])
    await world.ask(Status.TIMEOUT)
    assert await statuses(world) == []
    await world.ask(ACCEPTED)
    assert await statuses(world) == [(Status.TIMEOUT, ACCEPTED)]


async def test_the_same_save_again_and_a_lost_lease_write_nothing(world: World) -> None:
    await world.ask(ACCEPTED)
    slept = await world.claim_one()
    await world.end_leases()
    claim = await world.claim_one()
    result = verdict(claim, REJECTED)
    overslept = verdict(slept, Status.TIMEOUT, observed_at=slept.leased_until + MINUTE)
    assert await world.store.save([(claim, result), (slept, overslept)]) == {result.id}
    assert await world.store.save([(claim, result)]) == set()
    assert await statuses(world) == [(ACCEPTED, REJECTED)]


async def test_two_verdicts_of_one_cell_in_a_batch_follow_each_other(world: World) -> None:
    await world.ask(ACCEPTED)
    claim = await world.claim_one()
    first = verdict(claim, REJECTED)
    second = replace(first, id=uuid4(), status=Status.TIMEOUT, observed_at=first.observed_at + MINUTE)
    older = replace(first, id=uuid4(), status=Status.OVERLOADED)
    await world.store.save([(claim, first), (claim, second), (claim, older)])
    assert await statuses(world) == [(REJECTED, Status.TIMEOUT), (ACCEPTED, REJECTED)]
    standing = (await world.row()).standing
    assert standing is not None
    assert standing.id == second.id


async def test_a_verdict_without_its_details_still_tells_of_the_change(world: World) -> None:
    await world.ask(ACCEPTED)
    await world.ask(REJECTED, detail="a\0b", reason="http_400", served_model="model-2")
    (change,) = await world.store.transitions()
    assert (change.to_status, change.to_reason, change.changed) == ("history_rejected", None, {})


async def test_they_are_listed_by_route_newest_first_and_limited(world: World) -> None:
    other = replace(SHAPE, contract="orphaned_tool_results")
    await world.sync(SHAPE, other, replace(SHAPE, route_id="beta"))
    begun = datetime.now(UTC)
    for back in range(5, 0, -1):
        status = ACCEPTED if back % 2 else REJECTED
        for claim in await world.claim():
            earlier = timedelta(minutes=30 if claim.route_id == "beta" else 0)  # written later, observed before
            result = verdict(claim, status, observed_at=begun - back * MINUTE - earlier)
            await world.store.save([(claim, result)])
    everything = await world.store.transitions()
    assert len(everything) == 3 * 4
    assert [change.at for change in everything] == sorted((change.at for change in everything), reverse=True)
    assert await world.store.transitions(limit=4) == everything[:4]
    of_alpha = [change for change in everything if change.route_id == "alpha"]
    assert {change.contract for change in of_alpha} == {SHAPE.contract, other.contract}
    assert await world.store.transitions("alpha", limit=3) == of_alpha[:3]
    assert await world.store.transitions("gamma") == []


async def test_they_outlive_their_verdicts_and_are_forgotten_in_the_end(world: World) -> None:
    await world.ask(ACCEPTED)
    await world.ask(REJECTED)
    await world.ask(ACCEPTED)
    await world.sql("TRUNCATE verdicts")
    await world.sql("UPDATE transitions SET at = now() - interval '400 days 1 minute' WHERE to_status = :s", s=REJECTED)
    assert await world.store.forget(timedelta(days=400)) == 1
    assert await statuses(world) == [(REJECTED, ACCEPTED)]
    assert await world.store.forget(timedelta(days=400)) == 0


async def test_a_batch_takes_one_statement_more_and_only_when_something_changed(
    world: World, engine: AsyncEngine
) -> None:
    await world.sync(*(replace(SHAPE, route_id=f"r{number}") for number in range(30)))
    sent: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *about: sent.append(about[2]))

    async def statements(status: Status) -> list[str]:
        batch = [(claim, verdict(claim, status)) for claim in await world.claim(99)]
        sent.clear()
        assert len(await world.store.save(batch)) == 30
        return sent.copy()

    await statements(ACCEPTED)
    unchanged = await statements(ACCEPTED)
    changed = await statements(REJECTED)
    assert len(await world.store.transitions()) == 30
    (more,) = [statement for statement in changed if "INTO transitions" in statement]
    assert [statement for statement in changed if statement != more] == unchanged
