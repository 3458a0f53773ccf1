"""What routes use up of their budgets, by UTC day, over all locations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Row, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Outcome, Spend, Status, Verdict
from service.pacing import Allowance, is_spent
from service.regression import confirmed_of
from service.store.given import given
from service.store.tables import cells, latest, schedule
from service.store.tables import spends as table

_now = func.statement_timestamp()


def allowance_of(row: Row[Any]) -> Allowance:
    """The budget of a row that carries a route's columns."""
    return Allowance(row.tokens_per_day, row.requests_per_day)


def in_doubt(required: bool, outcome: Outcome | None, confirmed: bool | None) -> bool:
    """Whether a required cell isn't proven: by its standing verdict (None: there is none) or by its confirmed state."""
    return required and (outcome is not Outcome.PROVEN or confirmed is False)


async def spent(connection: AsyncConnection, claimed: Sequence[Row[Any]]) -> Mapping[int, bool]:
    """The cells among the claimed ones whose route has no budget left for them, and whether their last verdict says so
    for this day.

    The rows of the day are locked, so that two replicas don't spend the same remainder. What was taken over from a
    prober that didn't come back counts with all that it may have sent.
    """
    rows = [row for row in claimed if row.tokens_per_day or row.requests_per_day]
    if not rows:
        return {}
    day = rows[0].claimed_at.astimezone(UTC).date()
    route_ids = sorted({row.route_id for row in rows})
    nothing = {"day": day, "tokens_in": 0, "tokens_out": 0, "requests": 0, "estimated": False}
    await connection.execute(
        insert(table).on_conflict_do_nothing(), [{"route_id": route_id, **nothing} for route_id in route_ids]
    )
    found = await of_day(connection, day, route_ids, lock=True)
    for route_id, requests in _lost(rows).items():
        found[route_id] = replace(found[route_id], requests=found[route_id].requests + requests)
        counted = update(table).where(table.c.route_id == route_id, table.c.day == day)
        await connection.execute(counted.values(requests=found[route_id].requests))
    mine = [row.cell_id for row in rows]
    sending = await connection.execute(
        select(cells.c.route_id, func.sum(cells.c.max_requests).label("requests"))
        .join_from(cells, schedule, schedule.c.cell_id == cells.c.id)
        .where(cells.c.route_id.in_(route_ids), schedule.c.leased_until > _now, cells.c.id.not_in(mine))
        .group_by(cells.c.route_id)
    )
    under_way = {row.route_id: int(row.requests) for row in sending}
    states = {
        row.cell_id: row
        for row in await connection.execute(
            select(latest.c.cell_id, latest.c.standing, latest.c.last, latest.c.confirmed, cells.c.required)
            .join_from(latest, cells, cells.c.id == latest.c.cell_id)
            .where(latest.c.cell_id.in_(mine))
        )
    }
    none_left = {}
    for row in rows:
        used, more = found[row.route_id], under_way.get(row.route_id, 0)
        state = states[row.cell_id]
        standing = Outcome(state.standing["outcome"]) if state.standing else None
        doubtful = in_doubt(state.required, standing, confirmed_of(state.confirmed).proven)
        if is_spent(allowance_of(row), used, more, row.max_requests, in_doubt=doubtful):
            none_left[row.cell_id] = _is_said(state.last, day)
        else:
            under_way[row.route_id] = more + row.max_requests
    return none_left


def _lost(rows: Iterable[Row[Any]]) -> Counter[str]:
    """The requests by route that probes without an end may have sent."""
    lost: Counter[str] = Counter()
    for row in rows:
        if row.taken_over:
            lost[row.route_id] += row.max_requests
    return lost


def _is_said(last: Mapping[str, Any] | None, day: date) -> bool:
    return (
        last is not None
        and (last["status"], last["reason"]) == (Status.NOT_SENT, "budget_spent")
        and datetime.fromisoformat(last["observed_at"]).date() == day
    )


async def of_day(
    connection: AsyncConnection, day: date, route_ids: Iterable[str] | None = None, *, lock: bool = False
) -> dict[str, Spend]:
    """What each route has used up on that day; routes without a row are left out."""
    wanted = select(table).where(table.c.day == day).order_by(table.c.route_id)
    if route_ids is not None:
        wanted = wanted.where(table.c.route_id.in_(list(route_ids)))
    if lock:
        wanted = wanted.with_for_update()
    return {
        row.route_id: Spend(row.tokens_in, row.tokens_out, row.requests, row.estimated)
        for row in await connection.execute(wanted)
    }


async def add(connection: AsyncConnection, new: Iterable[Verdict]) -> None:
    """Count what these verdicts used up, on the day on which each was observed."""
    sums: defaultdict[tuple[str, date], Spend] = defaultdict(Spend)
    for verdict in new:
        if verdict.requests or verdict.tokens_in or verdict.tokens_out:
            key = (verdict.route_id, verdict.observed_at.astimezone(UTC).date())
            sums[key] = _plus(sums[key], verdict)
    if not sums:
        return
    rows = [{"route_id": route_id, "day": day, **vars(spend)} for (route_id, day), spend in sums.items()]
    handed = given([table.c[name] for name in rows[0]], rows)
    ordered = select(handed).order_by(handed.c.route_id, handed.c.day)  # the same everywhere, against deadlocks
    put = insert(table).from_select(list(rows[0]), ordered)
    counted = {name: table.c[name] + put.excluded[name] for name in ("tokens_in", "tokens_out", "requests")}
    await connection.execute(
        put.on_conflict_do_update(
            index_elements=[table.c.route_id, table.c.day],
            set_={**counted, "estimated": or_(table.c.estimated, put.excluded.estimated)},
        )
    )


def _plus(spend: Spend, verdict: Verdict) -> Spend:
    return Spend(
        spend.tokens_in + (verdict.tokens_in or 0),
        spend.tokens_out + (verdict.tokens_out or 0),
        spend.requests + verdict.requests,
        spend.estimated or verdict.tokens_estimated,
    )


async def forget(connection: AsyncConnection, before: date) -> None:
    """Delete the earlier days."""
    await connection.execute(delete(table).where(table.c.day < before))
