"""The processes that are at work, and the configuration that is active in each location."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import ProberRow
from service.store.tables import configurations
from service.store.tables import probers as table

HEARD_OF_WITHIN = timedelta(minutes=1)
AT_WORK_WITHIN = timedelta(seconds=15)
"""Without a sign of life for longer than this, a prober has no part in what falls due."""
_now = func.statement_timestamp()


@dataclass(frozen=True)
class Sign:
    """What a process tells of itself, the times apart."""

    id: UUID
    location: str
    probes: bool
    config_hash: str
    version: str
    superseded: bool = False
    egress_up: bool | None = None
    spooled: int = 0


@dataclass(frozen=True)
class Share:
    """The part of a prober in the work of its location: it is the one at `place`, from 0, of so many `probers`."""

    place: int
    probers: int


ALL = Share(place=0, probers=1)


async def tell(connection: AsyncConnection, sign: Sign) -> None:
    """Write down that this process is alive."""
    values = vars(sign)
    put = insert(table).values(**values, started_at=_now, seen_at=_now)
    changing = {name: put.excluded[name] for name in values if name != "id"}
    await connection.execute(put.on_conflict_do_update(index_elements=[table.c.id], set_={**changing, "seen_at": _now}))


async def leave(connection: AsyncConnection, id: UUID) -> None:
    """This process stops, and says so."""
    await connection.execute(delete(table).where(table.c.id == id))


async def share(connection: AsyncConnection, location: str, config_hash: str, prober: UUID | None) -> Share:
    """What part falls to `prober`; all of it, if it isn't among those at work."""
    at_work = await connection.scalars(
        select(table.c.id)
        .where(table.c.location == location, table.c.probes, ~table.c.superseded, table.c.config_hash == config_hash)
        .where(table.c.seen_at > _now - AT_WORK_WITHIN)
        .order_by(table.c.id)
    )
    ids = at_work.all()
    return Share(ids.index(prober), len(ids)) if prober in ids else ALL


async def heard_of(connection: AsyncConnection) -> list[ProberRow]:
    """The processes that were alive within the last minute, the longest running first."""
    found = select(table).where(table.c.seen_at > _now - HEARD_OF_WITHIN).order_by(table.c.started_at, table.c.id)
    return [ProberRow(**row._mapping) for row in await connection.execute(found)]


async def active(connection: AsyncConnection) -> dict[str, str]:
    """The hash of the active configuration of every location."""
    found = await connection.execute(select(configurations.c.location, configurations.c.hash))
    return {row.location: row.hash for row in found}


async def forget(connection: AsyncConnection, before: datetime) -> None:
    """Delete those that weren't heard of since."""
    await connection.execute(delete(table).where(table.c.seen_at < before))
