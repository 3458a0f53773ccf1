"""Limits by provider and by host, held across replicas, and the waits that providers asked for.

A probe is debited when it is claimed, with all the requests that it may send, and settled with those that it sent. What
runs and what ended within the last minute is never more than the limit, so that neither are the requests of any minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Claim, Limit
from service.store.given import given
from service.store.tables import debits, limits, waits

MINUTE = timedelta(minutes=1)
BOUNDLESS = 1_000_000
_now = func.statement_timestamp()
# The first bound, which the index knows, is that of all that may count.
_counts = and_(
    debits.c.running_until > _now - MINUTE, or_(debits.c.settled_at.is_(None), debits.c.settled_at > _now - MINUTE)
)


@dataclass(frozen=True)
class Room:
    """What a limit leaves now: probes that may start, and requests that they may send."""

    scope: str
    name: str
    probes: int
    requests: int


async def put(connection: AsyncConnection, location: str, wanted: Iterable[Limit]) -> None:
    """Make the limits of `location` those of `wanted`."""
    rows = {(limit.scope, limit.name): limit for limit in wanted}
    for row in await connection.execute(select(limits.c.scope, limits.c.name).where(limits.c.location == location)):
        if (row.scope, row.name) not in rows:
            gone = (limits.c.location == location, limits.c.scope == row.scope, limits.c.name == row.name)
            await connection.execute(delete(limits).where(*gone))
    if rows:
        put = insert(limits)
        names = ("max_concurrency", "max_requests_per_minute")
        await connection.execute(
            put.on_conflict_do_update(
                index_elements=[limits.c.location, limits.c.scope, limits.c.name],
                set_={name: put.excluded[name] for name in names},
            ),
            [
                {"location": location, "scope": one.scope, "name": one.name, **{n: getattr(one, n) for n in names}}
                for one in (rows[key] for key in sorted(rows))
            ],
        )


async def rooms(connection: AsyncConnection, location: str) -> list[Room]:
    """What every limit of `location` leaves. The limits stay locked until the transaction ends: what is claimed under
    them is debited before anybody else claims."""
    found = (
        await connection.execute(
            select(limits)
            .where(limits.c.location == location)
            .order_by(limits.c.scope, limits.c.name)
            .with_for_update()
        )
    ).all()
    if not found:
        return []
    running = debits.c.settled_at.is_(None) & (debits.c.running_until > _now)
    used = {
        (row.scope, row.name): row
        for row in await connection.execute(
            select(
                debits.c.scope,
                debits.c.name,
                func.count().filter(running).label("probes"),
                func.sum(debits.c.requests).label("requests"),
            )
            .where(debits.c.location == location, _counts)
            .group_by(debits.c.scope, debits.c.name)
        )
    }
    left = []
    for limit in found:
        use = used.get((limit.scope, limit.name))
        probes, requests = (use.probes, use.requests) if use is not None else (0, 0)
        left.append(
            Room(
                limit.scope,
                limit.name,
                BOUNDLESS if limit.max_concurrency is None else limit.max_concurrency - probes,
                BOUNDLESS if limit.max_requests_per_minute is None else limit.max_requests_per_minute - requests,
            )
        )
    return left


async def debit(
    connection: AsyncConnection, location: str, taken: Sequence[tuple[Claim, str, str, int]], under: Iterable[Room]
) -> None:
    """Debit claims, each given with its provider, its host and the requests that it may send."""
    limited = {(room.scope, room.name) for room in under}
    rows = [
        {
            "lease_id": claim.lease_id,
            "scope": scope,
            "location": location,
            "name": name,
            "requests": requests,
            "running_until": claim.leased_until,
        }
        for claim, provider, host, requests in taken
        for scope, name in (("provider", provider), ("host", host))
        if (scope, name) in limited
    ]
    if rows:
        await connection.execute(insert(debits), rows)


async def settle(connection: AsyncConnection, sent: Mapping[UUID, int]) -> None:
    """These leases' probes have ended, with so many requests sent."""
    if sent:
        rows = [{"lease_id": lease, "requests": requests} for lease, requests in sent.items()]
        ended = given((debits.c.lease_id, debits.c.requests), rows).c
        await connection.execute(
            update(debits)
            .where(debits.c.lease_id == ended.lease_id, debits.c.settled_at.is_(None))
            .values(settled_at=_now, requests=func.least(debits.c.requests, ended.requests))
        )


async def forget(connection: AsyncConnection) -> None:
    """Delete debits that count no more, and waits that are over."""
    await connection.execute(delete(debits).where(debits.c.running_until < _now - MINUTE))
    await connection.execute(delete(waits).where(waits.c.until < _now))


async def wait(connection: AsyncConnection, asked: Mapping[tuple[str, str, str], datetime]) -> None:
    """Hold the cells of each provider, host and credential until then, unless they are held for longer."""
    if asked:
        put = insert(waits)
        await connection.execute(
            put.on_conflict_do_update(
                index_elements=[waits.c.provider, waits.c.host, waits.c.credential],
                set_={"until": put.excluded.until},
                where=waits.c.until < put.excluded.until,
            ),
            [
                {"provider": provider, "host": host, "credential": credential, "until": until}
                for (provider, host, credential), until in sorted(asked.items())
            ],
        )
