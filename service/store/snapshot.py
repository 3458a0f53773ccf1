"""All active cells at one moment, in one statement."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Row, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Cell, CellRow, Outcome, RouteRow, Snapshot
from service.store.rows import standing_of
from service.store.tables import cells, latest, routes, schedule

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
        latest,
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
    rows = (await connection.execute(_SNAPSHOT)).all()
    shared: dict[str, RouteRow] = {}
    return Snapshot(rows[0].now, tuple(_cell(row, shared) for row in rows if row.id is not None))


def _cell(row: Row[Any], shared: dict[str, RouteRow]) -> CellRow:
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
        standing=standing_of(row.standing),
        last=standing_of(row.last),
        last_proven_at=row.last_proven_at,
        state_since=row.state_since,
        counts={outcome: row._mapping[outcome.value] for outcome in Outcome},
        next_due_at=row.next_due_at,
    )
