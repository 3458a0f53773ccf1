"""Who probes what until when. A claim is one statement; no transaction stays open while a probe runs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, extract, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Claim
from service.store.tables import cells, schedule

JITTER = 0.1
LONGEST_WAIT_S = 3600.0
LEASE_MARGIN_S = 30.0
DEADLINES_A_PROBE = 3

_now = func.statement_timestamp()


async def claim(connection: AsyncConnection, location: str, slots: int) -> tuple[list[Claim], int]:
    """Up to `slots` due cells, longest due first, and how many of them were taken over from an ended lease."""
    due = (
        select(
            schedule.c.cell_id,
            schedule.c.next_due_at,
            schedule.c.lease_id.is_not(None).label("taken_over"),
            cells.c.route_id,
            cells.c.contract,
            cells.c.location,
            cells.c.fingerprint,
            cells.c.deadline_s,
        )
        .join_from(schedule, cells, cells.c.id == schedule.c.cell_id)
        .where(cells.c.location == location, cells.c.active, schedule.c.next_due_at <= _now)
        .where(or_(schedule.c.leased_until.is_(None), schedule.c.leased_until < _now))
        .order_by(schedule.c.next_due_at)
        .limit(slots)
        .with_for_update(of=schedule, skip_locked=True)
        .cte("due")
    )
    lease = func.make_interval(0, 0, 0, 0, 0, 0, DEADLINES_A_PROBE * due.c.deadline_s + LEASE_MARGIN_S)
    taken = await connection.execute(
        update(schedule)
        .where(schedule.c.cell_id == due.c.cell_id)
        .values(lease_id=func.gen_random_uuid(), leased_until=_now + lease)
        .returning(
            schedule.c.cell_id,
            schedule.c.lease_id,
            schedule.c.next_due_at,
            due.c.route_id,
            due.c.contract,
            due.c.location,
            due.c.fingerprint,
            due.c.taken_over,
            _now.label("claimed_at"),
        )
    )
    rows = sorted(taken, key=lambda row: row.next_due_at)
    claims = [
        Claim(
            cell_id=row.cell_id,
            route_id=row.route_id,
            contract=row.contract,
            location=row.location,
            fingerprint=row.fingerprint,
            lease_id=row.lease_id,
            claimed_at=row.claimed_at,
            due_at=row.next_due_at,
        )
        for row in rows
    ]
    return claims, sum(row.taken_over for row in rows)


async def seconds_to_next_due(connection: AsyncConnection, location: str) -> float | None:
    """Seconds until a cell may be claimed, 0 when one may now, None without any cell. A lease is waited for."""
    claimable_at: ColumnElement[datetime] = func.min(func.greatest(schedule.c.next_due_at, schedule.c.leased_until))
    seconds = await connection.scalar(
        select(extract("epoch", claimable_at - _now))
        .join_from(schedule, cells, cells.c.id == schedule.c.cell_id)
        .where(cells.c.location == location, cells.c.active)
    )
    return None if seconds is None else max(0.0, float(seconds))


async def release(connection: AsyncConnection, claims: Sequence[Claim]) -> None:
    """Give leases back without a verdict: the cells are due as they were."""
    await connection.execute(
        update(schedule)
        .where(schedule.c.cell_id.in_([claim.cell_id for claim in claims]))
        .where(schedule.c.lease_id.in_([claim.lease_id for claim in claims]))
        .values(lease_id=None, leased_until=None)
    )


def next_grid_point(grid_at: datetime, interval: timedelta, now: datetime) -> datetime:
    """The next point of the grid after now.

    A point nearer than the jitter is the one that this probe was early for, and doesn't count.
    """
    steps = math.floor((now + interval * JITTER - grid_at) / interval) + 1
    return grid_at + interval * steps


def next_due(grid_point: datetime, interval: timedelta, now: datetime, retry_after_s: float | None) -> datetime:
    """When to ask: the grid point with its jitter, but not before a wait that the provider asked for, up to 1 h."""
    due = grid_point + interval * random.uniform(-JITTER, JITTER)  # noqa: S311
    wait = timedelta(seconds=min(max(retry_after_s or 0.0, 0.0), LONGEST_WAIT_S))
    return max(due, now + wait)


def somewhere_in(now: datetime, interval: timedelta) -> datetime:
    return now + interval * random.random()  # noqa: S311
