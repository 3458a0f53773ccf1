"""Stored verdicts with their facts, a page at a time, oldest first: whoever reads them holds one page and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.rejudge import Recorded
from service.store import partitions
from service.store.tables import cells, verdicts

PAGE = 500

_KEY = (verdicts.c.observed_at, verdicts.c.id)
_COLUMNS = tuple(verdicts.c[field.name] for field in fields(Recorded))

Place = tuple[datetime, UUID]
"""Where a page ended, in the order of the key."""


@dataclass(frozen=True)
class Part:
    """The verdicts to read: from `since` on, up to the time at which the reading began, of these cells (None: all)."""

    since: datetime | None
    until: datetime
    cell_ids: Sequence[int] | None


async def part(
    connection: AsyncConnection, since: timedelta | None, route_id: str | None, contract: str | None
) -> Part:
    """The part of the history that the database's clock and the names say. Cells at rest count."""
    now = await partitions.clock(connection)
    return Part(
        since=None if since is None else now - since,
        until=now,
        cell_ids=await _cell_ids(connection, route_id, contract),
    )


async def page(
    connection: AsyncConnection, of: Part, after: Place | None, size: int
) -> tuple[list[Recorded], Place | None]:
    """The verdicts behind a place, and the place where they end; None when there are no more."""
    query = select(*_COLUMNS).where(verdicts.c.observed_at <= of.until).order_by(*_KEY).limit(size)
    if of.since is not None:
        query = query.where(verdicts.c.observed_at >= of.since)
    if of.cell_ids is not None:
        query = query.where(verdicts.c.cell_id.in_(of.cell_ids))
    if (
        after is not None
    ):  # a comparison of rows doesn't tell the planner which days can be left out, that of a time does
        query = query.where(verdicts.c.observed_at >= after[0], tuple_(*_KEY) > tuple_(*after))
    found = [Recorded(**{**row._mapping, "quirks": tuple(row.quirks)}) for row in await connection.execute(query)]
    return found, (found[-1].observed_at, found[-1].id) if len(found) == size else None


async def _cell_ids(connection: AsyncConnection, route_id: str | None, contract: str | None) -> Sequence[int] | None:
    """There are few, and an index leads from each to its verdicts."""
    if route_id is None and contract is None:
        return None
    wanted = select(cells.c.id)
    if route_id is not None:
        wanted = wanted.where(cells.c.route_id == route_id)
    if contract is not None:
        wanted = wanted.where(cells.c.contract == contract)
    return (await connection.scalars(wanted)).all()
