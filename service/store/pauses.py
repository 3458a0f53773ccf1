"""Pauses: set, ended, and what they stop."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, Select, and_, any_, delete, func, or_, select, update
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
    if row.stops:
        held = _covered(cells.c.id).where(table.c.id == id, cells.c.active)
        await connection.execute(
            update(schedule)
            .where(schedule.c.cell_id.in_(held), schedule.c.lease_id.is_(None))
            .values(next_due_at=func.least(schedule.c.next_due_at, _now + RESUME_WITHIN * func.random()))
        )
    return _pause(row)


async def forget(connection: AsyncConnection, before: datetime) -> None:
    """Delete those that ended earlier."""
    await connection.execute(delete(table).where(table.c.until < before))


async def stopped(connection: AsyncConnection, cell_ids: Sequence[int]) -> dict[int, datetime]:
    """Those of these cells that aren't to be asked now, and until when."""
    if not cell_ids:
        return {}
    found = _covered(cells.c.id, func.max(table.c.until).label("until")).where(table.c.stops, table.c.until > _now)
    rows = await connection.execute(found.where(cells.c.id.in_(cell_ids)).group_by(cells.c.id))
    return {row.id: row.until for row in rows}


def _covered(*columns: Any) -> Select[Any]:
    """Cells with the pauses that name them."""
    names = or_(
        and_(table.c.scope == PauseScope.ROUTE.value, table.c.target == cells.c.route_id),
        and_(table.c.scope == PauseScope.PROVIDER.value, table.c.target == routes.c.provider),
        and_(table.c.scope == PauseScope.TAG.value, table.c.target == any_(routes.c.tags)),
    )
    return select(*columns).join_from(cells, routes, routes.c.id == cells.c.route_id).join(table, names)


def _pause(row: Row[Any]) -> Pause:
    return Pause(**{**row._mapping, "scope": PauseScope(row.scope)})
