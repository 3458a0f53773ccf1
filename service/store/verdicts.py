"""Verdicts written: what history, state, schedule, limits and budgets learn from each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Boolean,
    Integer,
    Row,
    Text,
    Update,
    and_,
    case,
    cast,
    column,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.derive import FUTURE_TOLERANCE
from service.model import Change, Claim, Confirmed, Mark, Outcome, Spend, Status, Verdict
from service.pacing import LONGEST_WAIT, Plan, Rhythm, after_midnight, plan, somewhere_in, stretch
from service.regression import confirm, confirmed_of, confirmed_values, set_back, to_judge_again, wants_quick_reprobe
from service.rejudge import judge_again
from service.rules import RULESET
from service.store import limits, pauses, rollup, spends, transitions
from service.store.given import given
from service.store.rows import mark_of, standing_values, verdict_values
from service.store.tables import Moment, cells, latest, routes, schedule, verdicts

Finished = tuple[Claim, Verdict]


@dataclass(frozen=True)
class Announced:
    """A change of a required cell's confirmed state that people are told of."""

    claim: Claim
    change: Change


@dataclass(frozen=True)
class Applied:
    """The verdicts that were stored, what they changed, and how many were void: made after a lease that was no longer
    theirs, or `strays` of cells that this database doesn't have."""

    ids: frozenset[UUID]
    leases_lost: int
    strays: int = 0
    announced: tuple[Announced, ...] = ()


async def apply(connection: AsyncConnection, finished: Sequence[Finished]) -> Applied:
    """Store verdicts, and let state, schedule, limits and budgets follow. Done twice it changes nothing.

    A verdict counts that was observed within its lease, however late it comes; one that was observed after it counts
    only while nobody else has taken the cell over: a prober that slept tells nothing of the route.
    """
    once = {verdict.id: (claim, verdict) for claim, verdict in finished}
    rows = await _lock_schedule(connection, [claim for claim, _ in finished])
    # A database that was made anew, or lost its last seconds, may not have a cell, or another one under its number.
    known = [(claim, verdict) for claim, verdict in once.values() if _is_of(claim, rows.get(claim.cell_id))]
    finished = sorted(known, key=lambda one: one[1].observed_at)
    leases = {claim.lease_id for claim, _ in finished}
    held = {row.lease_id: row for row in rows.values() if row.lease_id in leases}
    void = [one for one in finished if not _counts(*one, held)]
    counting = [one for one in finished if _counts(*one, held)]
    stored = await _insert(connection, counting)
    new = [(claim, verdict) for claim, verdict in counting if verdict.id in stored]
    announced = await _follow(connection, new, held) if new else ()
    lost = len(void) - await _count_stored(connection, [verdict for _, verdict in void])
    return Applied(stored, lost, len(once) - len(known), announced)


def _is_of(claim: Claim, row: Row[Any] | None) -> bool:
    return row is not None and (row.route_id, row.contract, row.location) == (
        claim.route_id,
        claim.contract,
        claim.location,
    )


def _counts(claim: Claim, verdict: Verdict, held: Mapping[UUID, Row[Any]]) -> bool:
    return claim.lease_id in held or verdict.observed_at <= claim.leased_until


async def _insert(connection: AsyncConnection, finished: Sequence[Finished]) -> frozenset[UUID]:
    if not finished:
        return frozenset()
    rows = [verdict_values(verdict, claim.cell_id) for claim, verdict in finished]
    put = insert(verdicts).from_select(list(rows[0]), select(given([verdicts.c[name] for name in rows[0]], rows)))
    return frozenset(await connection.scalars(put.on_conflict_do_nothing().returning(verdicts.c.id)))


async def _follow(
    connection: AsyncConnection, new: Sequence[Finished], held: Mapping[UUID, Row[Any]]
) -> tuple[Announced, ...]:
    # Read after the lock and in a statement of its own: a reload that came in between is seen.
    current = (
        select(
            cells,
            routes.c.tokens_per_day,
            routes.c.requests_per_day,
            latest.c.standing,
            latest.c.confirmed,
            func.statement_timestamp().label("now"),
        )
        .join_from(cells, latest, latest.c.cell_id == cells.c.id)
        .join(routes, routes.c.id == cells.c.route_id)
        .where(cells.c.id.in_([claim.cell_id for claim, _ in new]))
    )
    configured = {row.id: row for row in await connection.execute(current)}
    steps = await _steps(connection, new, configured, held)
    for part in _in_turn(steps):
        await connection.execute(_update_latest([_latest_values(step) for step in part]))
    await transitions.record(connection, steps)
    await spends.add(connection, [_as_spent(step, held) for step in steps])
    await limits.settle(connection, {claim.lease_id: verdict.requests for claim, verdict in new})
    await limits.wait(connection, _waits(steps))
    await rollup.note_late(connection, [verdict.observed_at for _, verdict in new], steps[0].row.now)
    holding = [step for step in steps if step.claim.lease_id in held]
    if holding:
        budgeted = {step.row.route_id for step in holding if step.row.tokens_per_day or step.row.requests_per_day}
        day = holding[0].row.now.astimezone(UTC).date()
        used = await spends.of_day(connection, day, budgeted) if budgeted else {}
        paused = [step.claim.cell_id for step in holding if step.claim.unsent == "paused"]
        stopped = await pauses.stopped(connection, paused)
        await connection.execute(
            _update_schedule([_schedule_values(step, held[step.claim.lease_id], used, stopped) for step in holding])
        )
    return tuple(
        Announced(step.claim, step.change)
        for step in steps
        if step.row.required and step.change is not None and step.change.announced
    )


@dataclass(frozen=True)
class Step:
    """One stored verdict and what it makes of its cell. `row` is how the cell is configured; `holds` says that nobody
    has claimed it since; `replaced` is the standing verdict before it, `stands` that it stands now; `standing` is the
    one that stands after it."""

    claim: Claim
    verdict: Verdict
    row: Row[Any]
    holds: bool
    stands: bool
    replaced: Mapping[str, Any] | None
    standing: Mapping[str, Any] | None
    confirmed: Confirmed
    change: Change | None
    quick: bool


async def _steps(
    connection: AsyncConnection,
    new: Sequence[Finished],
    configured: Mapping[int, Row[Any]],
    held: Mapping[UUID, Row[Any]],
) -> list[Step]:
    """What each verdict does, in the order of their times; several of one cell follow upon each other."""
    standing = {cell_id: row.standing for cell_id, row in configured.items()}
    confirmed = {cell_id: confirmed_of(row.confirmed) for cell_id, row in configured.items()}
    steps = []
    for claim, verdict in new:
        row, old, state = configured[claim.cell_id], standing[claim.cell_id], confirmed[claim.cell_id]
        holds, ahead = claim.lease_id in held, row.now + FUTURE_TOLERANCE
        counts = verdict.fingerprint == row.fingerprint and (holds or verdict.observed_at <= ahead)
        stands = (
            counts
            and verdict.outcome is not Outcome.UNPROVEN
            and (old is None or _is_newer(verdict, datetime.fromisoformat(old["observed_at"]), holds, ahead))
        )
        change, quick = None, False
        if counts and verdict.status is not Status.NOT_SENT:  # that was no asking
            mark = mark_of(verdict)
            if state.last is not None and holds and state.last.observed_at > ahead:
                state = set_back(state, mark.observed_at)
            again = await _judged_again(
                connection, row.id, state.grounds if to_judge_again(state, mark) else None, mark
            )
            state, change = confirm(state, mark, again)
            quick = bool(row.required) and wants_quick_reprobe(state, mark)
        if stands:
            standing[claim.cell_id] = standing_values(verdict)
        confirmed[claim.cell_id] = state
        steps.append(Step(claim, verdict, row, holds, stands, old, standing[claim.cell_id], state, change, quick))
    return steps


def _is_newer(verdict: Verdict, known_at: datetime, holds: bool, ahead: datetime) -> bool:
    """Whether a verdict is newer than one observed at `known_at`. What lies `ahead` was observed before the database's
    clock was set back, so that its time says nothing: then the lease tells, after which nobody has asked."""
    return known_at < verdict.observed_at or (holds and known_at > ahead)


async def _judged_again(connection: AsyncConnection, cell_id: int, grounds: Mark | None, mark: Mark) -> Status | None:
    """What a stored verdict says under the rules of `mark`; None when it is gone, when its facts don't say enough, or
    when `mark` is itself of earlier rules: it came by way of the spool."""
    if grounds is None or mark.ruleset != RULESET:
        return None
    found = await connection.execute(
        select(verdicts.c.contract, verdicts.c.facts).where(
            verdicts.c.id == grounds.id,
            verdicts.c.cell_id == cell_id,
            verdicts.c.observed_at >= grounds.observed_at,  # later where the clock was set back
        )
    )
    row = found.one_or_none()
    judged = judge_again(row.contract, row.facts) if row is not None else None
    return judged.conclusion.status if judged is not None else None


def _as_spent(step: Step, held: Mapping[UUID, Row[Any]]) -> Verdict:
    """The verdict as the budget counts it: of a cell that was taken over meanwhile, all requests counted then."""
    budgeted = step.row.tokens_per_day or step.row.requests_per_day
    return replace(step.verdict, requests=0) if budgeted and step.claim.lease_id not in held else step.verdict


def _waits(steps: Sequence[Step]) -> dict[tuple[str, str, str], datetime]:
    asked: dict[tuple[str, str, str], datetime] = {}
    for step in steps:
        if step.verdict.retry_after_s and step.verdict.fingerprint == step.row.fingerprint:
            key = (step.row.provider, step.row.host, step.row.credential)
            since = min(step.verdict.observed_at, step.row.now + FUTURE_TOLERANCE)
            until = since + min(timedelta(seconds=step.verdict.retry_after_s), LONGEST_WAIT)
            asked[key] = max(until, asked.get(key, until))
    return asked


async def _lock_schedule(connection: AsyncConnection, claims: Sequence[Claim]) -> dict[int, Row[Any]]:
    """The schedule rows by cell, with what names the cell, locked in one order everywhere."""
    found = await connection.execute(
        select(schedule, cells.c.route_id, cells.c.contract, cells.c.location)
        .join_from(schedule, cells, cells.c.id == schedule.c.cell_id)
        .where(schedule.c.cell_id.in_([claim.cell_id for claim in claims]))
        .order_by(schedule.c.cell_id)
        .with_for_update(of=schedule)
    )
    return {row.cell_id: row for row in found}


async def _count_stored(connection: AsyncConnection, candidates: Sequence[Verdict]) -> int:
    """How many are in the history already: the earlier commit of a repeated save, not a lease that was lost."""
    if not candidates:
        return 0
    times = [verdict.observed_at for verdict in candidates]
    stored = select(func.count()).select_from(verdicts).where(verdicts.c.id.in_([v.id for v in candidates]))
    return await connection.scalar(stored.where(verdicts.c.observed_at.in_(times))) or 0


def _in_turn(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Parts in which each cell stands once, one after the other: what is written at once doesn't build on itself."""
    places: Counter[int] = Counter()
    parts: defaultdict[int, list[Step]] = defaultdict(list)
    for step in steps:
        parts[places[step.claim.cell_id]].append(step)
        places[step.claim.cell_id] += 1
    yield from parts.values()


def _latest_values(step: Step) -> dict[str, Any]:
    verdict = step.verdict
    return {
        "cell_id": step.claim.cell_id,
        "value": standing_values(verdict),
        "seen_at": verdict.observed_at,
        "ahead": step.row.now + FUTURE_TOLERANCE,
        "holds": step.holds,
        "result": verdict.outcome.value,
        "stands": step.stands,
        "state": confirmed_values(step.confirmed),
        "changed_at": step.change.at if step.change else None,
        "used_in": verdict.tokens_in or 0,
        "used_out": verdict.tokens_out or 0,
    }


def _schedule_values(
    step: Step, held: Row[Any], used: Mapping[str, Spend], stopped: Mapping[int, datetime]
) -> dict[str, Any]:
    planned = _plan(step, held, used, stopped)
    asked_for = [held.next_due_at] if held.next_due_at > step.claim.claimed_at else []  # while the probe ran
    return {
        "cell_id": step.claim.cell_id,
        "lease_id": step.claim.lease_id,
        "grid_at": planned.grid_at,
        "next_due_at": min(planned.due_at, *asked_for) if asked_for else planned.due_at,
        "quick": planned.quick,
        "blocked_run": planned.blocked_run,
    }


def _plan(step: Step, held: Row[Any], used: Mapping[str, Spend], stopped: Mapping[int, datetime]) -> Plan:
    row, verdict, now = step.row, step.verdict, step.row.now
    interval = timedelta(seconds=row.interval_s)
    if verdict.fingerprint != row.fingerprint:  # the configuration changed under the probe: ask again at once
        return Plan(held.grid_at, now)
    if step.claim.unsent == "budget_spent":
        return Plan(held.grid_at, after_midnight(now, interval), blocked_run=held.blocked_run)
    if step.claim.unsent == "paused":
        resumed = stopped.get(step.claim.cell_id, now)  # it may have been ended meanwhile
        return Plan(held.grid_at, somewhere_in(resumed, pauses.RESUME_WITHIN), blocked_run=held.blocked_run)
    often = row.required and step.confirmed.askings_left > 0 and row.route_interval_s > 0
    standing = step.standing
    known = Outcome(standing["outcome"]) if standing else None
    doubtful = spends.in_doubt(row.required, known, step.confirmed.proven)
    return plan(
        held.grid_at,
        Rhythm(
            timedelta(seconds=row.route_interval_s) if often else interval,
            timedelta(seconds=row.expires_after_s),
            timedelta(seconds=row.deadline_s),
        ),
        now,
        outcome=verdict.outcome,
        blocked_run=held.blocked_run,
        wait_s=(verdict.retry_after_s or 0.0) - max(now - verdict.observed_at, timedelta()).total_seconds(),
        known_at=datetime.fromisoformat(standing["observed_at"]) if standing else None,
        quick=step.quick,
        stretch=stretch(
            spends.allowance_of(row),
            used.get(row.route_id, Spend()),
            now,
            required=row.required,
            in_doubt=doubtful,
        ),
    )


_LATEST = (
    latest.c.cell_id,
    column("value", JSONB),
    column("seen_at", Moment),
    column("ahead", Moment),
    column("holds", Boolean),
    column("result", Text),
    column("stands", Boolean),
    column("state", JSONB),
    column("changed_at", Moment),
    column("used_in", Integer),
    column("used_out", Integer),
)


def _update_latest(values: Sequence[Mapping[str, Any]]) -> Update:
    new = given(_LATEST, values).c
    seen_at, ahead, result = new.seen_at, new.ahead, new.result
    was_set_back = and_(new.holds, latest.c.last_observed_at > ahead)  # the clock; see `_is_newer`
    newer = or_(latest.c.last_observed_at.is_(None), latest.c.last_observed_at < seen_at, was_set_back)
    newest = and_(newer, or_(new.holds, seen_at <= ahead))
    turned = and_(new.stands, latest.c.standing["outcome"].astext.is_distinct_from(result))
    proof = case((result == Outcome.PROVEN.value, func.least(seen_at, ahead)))
    proven_before = case(
        (
            and_(was_set_back, latest.c.last_proven_at > seen_at),
            latest.c.last_proven_at - (latest.c.last_observed_at - seen_at),
        ),
        else_=latest.c.last_proven_at,
    )
    return (
        update(latest)
        .where(latest.c.cell_id == new.cell_id)
        .values(
            standing=case((new.stands, new.value), else_=latest.c.standing),
            standing_observed_at=case((new.stands, seen_at), else_=latest.c.standing_observed_at),
            state_since=case(
                (or_(turned, and_(new.stands, latest.c.state_since > seen_at)), seen_at), else_=latest.c.state_since
            ),
            last=case((newest, new.value), else_=latest.c.last),
            last_observed_at=case((newest, seen_at), else_=latest.c.last_observed_at),
            last_proven_at=func.greatest(proven_before, proof),
            confirmed=new.state,
            last_transition_at=func.coalesce(new.changed_at, latest.c.last_transition_at),
            tokens_in=latest.c.tokens_in + new.used_in,
            tokens_out=latest.c.tokens_out + new.used_out,
            **{name.value: latest.c[name.value] + cast(result == name.value, Integer) for name in Outcome},
        )
    )


def _update_schedule(values: Sequence[Mapping[str, Any]]) -> Update:
    """Give the leases back, each with what comes next."""
    planned = ("grid_at", "next_due_at", "quick", "blocked_run")
    new = given([schedule.c[name] for name in ("cell_id", "lease_id", *planned)], values).c
    return (
        update(schedule)
        .where(schedule.c.cell_id == new.cell_id, schedule.c.lease_id == new.lease_id)
        .values(lease_id=None, leased_until=None, **{name: new[name] for name in planned})
    )
