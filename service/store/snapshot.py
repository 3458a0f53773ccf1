"""All active cells at one moment, in one statement."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, Text, cast, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Cell, CellRow, Outcome, RouteRow, Snapshot
from service.store.rows import standing_of
from service.store.tables import cells, latest, routes, schedule

_AT_ONCE = 250
_COUNTED = tuple((outcome, outcome.value) for outcome in Outcome)
_CLOCK = select(func.statement_timestamp().label("now")).subquery("clock")
_CELLS = (
    select(
        cells,
        routes.c.name,
        routes.c.provider,
        routes.c.dialect,
        routes.c.model,
        routes.c.url,
        routes.c.tags,
        *(column for column in latest.c if column.name not in ("standing", "last")),
        # JSON is read part by part, not by the driver in one go.
        cast(latest.c.standing, Text).label("standing"),
        cast(latest.c.last, Text).label("last"),
        schedule.c.next_due_at,
    )
    .join_from(cells, routes, routes.c.id == cells.c.route_id)
    .join(latest, latest.c.cell_id == cells.c.id)
    .join(schedule, schedule.c.cell_id == cells.c.id)
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
    return Snapshot(rows[0].now, tuple(found))


def _cell(row: Row[Any], shared: dict[str, RouteRow]) -> CellRow:
    values = row._mapping
    route = shared.get(row.route_id)
    if route is None:
        route = shared[row.route_id] = RouteRow(
            id=row.route_id,
            name=row.name,
            provider=row.provider,
            dialect=row.dialect,
            model=row.model,
            url=row.url,
            tags=tuple(row.tags),
        )
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
        ),
        standing=standing,
        last=standing if row.last == row.standing else standing_of(row.last),
        last_proven_at=row.last_proven_at,
        state_since=row.state_since,
        counts={outcome: values[name] for outcome, name in _COUNTED},
        next_due_at=row.next_due_at,
    )
