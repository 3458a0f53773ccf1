"""All active cells at one moment, in one statement."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from datetime import UTC, timedelta
from typing import Any

from sqlalchemy import Row, Text, and_, case, cast, extract, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Cell, CellRow, Confirmed, Outcome, RouteRow, Snapshot
from service.pacing import DEADLINES_A_PROBE
from service.regression import confirmed_of
from service.store import pauses, probers, spends
from service.store.claims import LEASE_MARGIN_S
from service.store.rows import standing_of
from service.store.tables import cells, latest, routes, schedule, waits

_AT_ONCE = 250
_ROUTE = tuple(field.name for field in fields(RouteRow) if field.name != "id")
_COUNTED = tuple((outcome, outcome.value) for outcome in Outcome)
_DUE_AT = func.greatest(schedule.c.next_due_at, waits.c.until)
_LEASED = schedule.c.leased_until > func.statement_timestamp()
_LEASE = func.make_interval(0, 0, 0, 0, 0, 0, DEADLINES_A_PROBE * cells.c.deadline_s + LEASE_MARGIN_S)
_CLOCK = select(func.statement_timestamp().label("now")).subquery("clock")
_CELLS = (
    select(
        cells,
        *(routes.c[name] for name in _ROUTE if name != "provider"),
        routes.c.provider.label("of_provider"),
        *(column for column in latest.c if column.name not in ("standing", "last", "confirmed")),
        # JSON is read part by part, not by the driver in one go.
        cast(latest.c.standing, Text).label("standing"),
        cast(latest.c.last, Text).label("last"),
        cast(latest.c.confirmed, Text).label("confirmed"),
        case((_LEASED, None), else_=_DUE_AT).label("next_due_at"),
        case((_LEASED, extract("epoch", schedule.c.leased_until - _LEASE - _DUE_AT))).label("claimed_late_s"),
    )
    .join_from(cells, routes, routes.c.id == cells.c.route_id)
    .join(latest, latest.c.cell_id == cells.c.id)
    .join(schedule, schedule.c.cell_id == cells.c.id)
    .outerjoin(
        waits,
        and_(
            waits.c.provider == cells.c.provider,
            waits.c.host == cells.c.host,
            waits.c.credential == cells.c.credential,
        ),
    )
    .where(cells.c.active)
    .subquery("cell")
)
_SNAPSHOT = (
    select(_CLOCK.c.now, _CELLS)
    .select_from(_CLOCK.outerjoin(_CELLS, true()))
    .order_by(_CELLS.c.name, _CELLS.c.route_id, _CELLS.c.contract, _CELLS.c.location)
)


async def snapshot(connection: AsyncConnection) -> Snapshot:
    """Made part by part: ten thousand cells at once would hold up the event loop for a second."""
    rows = (await connection.execute(_SNAPSHOT)).all()
    shared: dict[str, RouteRow] = {}
    found: list[CellRow] = []
    for start in range(0, len(rows), _AT_ONCE):
        found += (_cell(row, shared) for row in rows[start : start + _AT_ONCE] if row.id is not None)
        await asyncio.sleep(0)
    now = rows[0].now
    return Snapshot(
        now,
        tuple(found),
        pauses=tuple(await pauses.current(connection)),
        probers=tuple(await probers.heard_of(connection)),
        spends=await spends.of_day(connection, now.astimezone(UTC).date()),
        active=await probers.active(connection),
    )


def _cell(row: Row[Any], shared: dict[str, RouteRow]) -> CellRow:
    values = row._mapping
    route = shared.get(row.route_id)
    if route is None:
        known = {name: values[name] for name in _ROUTE}
        known |= {"provider": row.of_provider, "tags": tuple(row.tags)}
        route = shared[row.route_id] = RouteRow(id=row.route_id, **known)
    standing = standing_of(row.standing)
    return CellRow(
        cell_id=row.id,
        route=route,
        cell=Cell(
            route_id=row.route_id,
            contract=row.contract,
            location=row.location,
            required=row.required,
            fingerprint=row.fingerprint,
            interval=timedelta(seconds=row.interval_s),
            fresh_for=timedelta(seconds=row.fresh_for_s),
            expires_after=timedelta(seconds=row.expires_after_s),
            deadline=timedelta(seconds=row.deadline_s),
            provider=row.provider,
            host=row.host,
            credential=row.credential,
            max_requests=row.max_requests,
            route_interval=timedelta(seconds=row.route_interval_s),
        ),
        standing=standing,
        last=standing if row.last == row.standing else standing_of(row.last),
        last_proven_at=row.last_proven_at,
        state_since=row.state_since,
        counts={outcome: values[name] for outcome, name in _COUNTED},
        next_due_at=row.next_due_at,
        confirmed=confirmed_of(json.loads(row.confirmed)) if row.confirmed else Confirmed(),
        last_transition_at=row.last_transition_at,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        claimed_late_s=None if row.claimed_late_s is None else float(row.claimed_late_s),
    )
