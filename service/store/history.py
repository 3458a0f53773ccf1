"""Verdicts read back, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import lateral, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import StoredVerdict
from service.store.rows import stored_verdict
from service.store.tables import cells, routes, verdicts


async def of_route(connection: AsyncConnection, route_id: str, limit: int) -> list[StoredVerdict]:
    """The newest verdicts of a route, newest first."""
    newest = lateral(
        select(verdicts).where(verdicts.c.cell_id == cells.c.id).order_by(verdicts.c.observed_at.desc()).limit(limit)
    )
    found = await connection.execute(
        select(newest)
        .join_from(cells, newest, true())
        .where(cells.c.route_id == route_id)
        .order_by(newest.c.observed_at.desc())
        .limit(limit)
    )
    return [stored_verdict(row) for row in found]


async def page(
    connection: AsyncConnection,
    *,
    wanted: Mapping[str, str],
    provider: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: tuple[datetime, UUID] | None = None,
    limit: int = 100,
) -> list[StoredVerdict]:
    """Verdicts newest first; `wanted` maps columns (route_id, contract, location, outcome, status) to their values.
    `before` is the time and the id of the last one of the page before."""
    found = select(verdicts).order_by(verdicts.c.observed_at.desc(), verdicts.c.id.desc()).limit(limit)
    for name, value in wanted.items():
        found = found.where(verdicts.c[name] == value)
    if provider is not None:
        of_provider = select(cells.c.id).join(routes, routes.c.id == cells.c.route_id)
        found = found.where(verdicts.c.cell_id.in_(of_provider.where(routes.c.provider == provider)))
    elif "route_id" in wanted:  # so that the index over cells is used
        found = found.where(verdicts.c.cell_id.in_(select(cells.c.id).where(cells.c.route_id == wanted["route_id"])))
    if since is not None:
        found = found.where(verdicts.c.observed_at >= since)
    if until is not None:
        found = found.where(verdicts.c.observed_at < until)
    if before is not None:
        found = found.where(verdicts.c.observed_at <= before[0])
        found = found.where(tuple_(verdicts.c.observed_at, verdicts.c.id) < tuple_(*before))
    return [stored_verdict(row) for row in await connection.execute(found)]


async def by_ids(connection: AsyncConnection, ids: Sequence[UUID]) -> list[StoredVerdict]:
    """Those of the verdicts with these ids that history still holds."""
    if not ids:
        return []
    return [stored_verdict(row) for row in await connection.execute(select(verdicts).where(verdicts.c.id.in_(ids)))]
