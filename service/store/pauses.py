"""Pauses: set, ended, and what they stop."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Row, any_, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Pause, PauseScope
from service.store.tables import cells, routes, schedule
from service.store.tables import pauses as table

RESUME_WITHIN = timedelta(minutes=1)
_now = func.statement_timestamp()


async def current(connection: AsyncConnection) -> list[Pause]:
    """The pauses that haven't ended, the first to end first."""
    found = select(table).where(table.c.until > _now).order_by(table.c.until, table.c.id)
    return [_pause(row) for row in await connection.execute(found)]


async def ended(connection: AsyncConnection, limit: int) -> list[Pause]:
    """The pauses that are over, the last to end first."""
    found = select(table).where(table.c.until <= _now).order_by(table.c.until.desc(), table.c.id).limit(limit)
    return [_pause(row) for row in await connection.execute(found)]


async def add(
    connection: AsyncConnection, scope: PauseScope, target: str, length: timedelta, stops: bool, reason: str, by: str
) -> Pause:
    """A pause from now on."""
    put = insert(table).values(
        id=uuid4(),
        scope=scope.value,
        target=target,
        since=_now,
        until=_now + length,
        stops=stops,
        reason=reason,
        by=by,
    )
    return _pause((await connection.execute(put.returning(table))).one())


async def end(connection: AsyncConnection, id: UUID) -> Pause | None:
    """End a pause now; None when there is none that goes on. What it stopped is due within a minute."""
    done = update(table).where(table.c.id == id, table.c.until > _now).values(until=_now).returning(table)
    row = (await connection.execute(done)).one_or_none()
    if row is None:
        return None
    pause = _pause(row)
    if pause.stops:
        held = select(cells.c.id).join(routes, routes.c.id == cells.c.route_id).where(_targets(pause), cells.c.active)
        soon = _now + RESUME_WITHIN * func.random()
        await connection.execute(
            update(schedule)
            .where(schedule.c.cell_id.in_(held), schedule.c.lease_id.is_(None))
            .values(next_due_at=func.least(schedule.c.next_due_at, soon))
        )
    return pause


def _targets(pause: Pause) -> ColumnElement[bool]:
    if pause.scope is PauseScope.ROUTE:
        return cells.c.route_id == pause.target
    if pause.scope is PauseScope.PROVIDER:
        return routes.c.provider == pause.target
    return any_(routes.c.tags) == pause.target


def _pause(row: Row[Any]) -> Pause:
    return Pause(**{**row._mapping, "scope": PauseScope(row.scope)})
