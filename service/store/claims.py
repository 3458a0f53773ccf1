"""Who probes what until when. A claim is one transaction; none stays open while a probe runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, ScalarSelect, extract, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import AskedNow, Claim
from service.pacing import DEADLINES_A_PROBE, after_midnight
from service.store import limits, pauses, probers, spends
from service.store.given import given
from service.store.tables import cells, configurations, latest, schedule, waits

LEASE_MARGIN_S = 30.0
LEFT_TO_ANOTHER_S = 1.0
"""For this long a due cell is left to the prober that it falls to; then anyone may ask it."""

_now = func.statement_timestamp()

# An asking falls to one of the probers at work by its due time, whose microseconds are as good as a lot: they share
# evenly however fast each of them wakes, and don't get in each other's way.
_MINE = "(schedule.cell_id + (extract(epoch FROM schedule.next_due_at) * 1000000)::bigint) % :probers = :place"
_CLAIMABLE_FROM = f"next_due_at + make_interval(secs => CASE WHEN {_MINE} THEN 0 ELSE :left_to_another END)"

# Ranked within each limit, the quick ones last, so that what the limit leaves goes to the longest due; a cell that one
# of its two limits has no room for takes no place before the other. Quick ones that a limit holds back are dropped.
# Locked only then, with the conditions said again, because another replica may have been faster.
_CLAIM = text(
    f"""
    WITH room AS MATERIALIZED (
      SELECT * FROM unnest(:scopes ::text[], :names ::text[], :probes ::int[], :requests ::int[])
        AS room (scope, name, probes, requests)
    ), due AS (
      SELECT schedule.cell_id, quick, next_due_at, c.provider, c.host, c.max_requests,
             p.probes AS p_probes, p.requests AS p_requests, h.probes AS h_probes, h.requests AS h_requests,
             coalesce(p.probes > 0 AND p.requests >= c.max_requests, true) AS provider_has_room,
             coalesce(h.probes > 0 AND h.requests >= c.max_requests, true) AS host_has_room
      FROM schedule JOIN cells c ON c.id = schedule.cell_id
      LEFT JOIN room p ON p.scope = 'provider' AND p.name = c.provider
      LEFT JOIN room h ON h.scope = 'host' AND h.name = c.host
      WHERE c.location = :location AND c.active
        AND next_due_at <= statement_timestamp() AND {_CLAIMABLE_FROM} <= statement_timestamp()
        AND (leased_until IS NULL OR leased_until < statement_timestamp())
        AND NOT EXISTS (
          SELECT FROM waits w
          WHERE w.provider = c.provider AND w.host = c.host AND w.credential = c.credential
            AND w.until > statement_timestamp())
        AND EXISTS (SELECT FROM configurations WHERE location = :location AND hash = :hash)
    ), ranked AS (
      SELECT cell_id, quick,
             provider_has_room AND host_has_room
             AND coalesce(count(*) FILTER (WHERE host_has_room) OVER by_provider <= p_probes
               AND sum(max_requests) FILTER (WHERE host_has_room) OVER by_provider <= p_requests, true)
             AND coalesce(count(*) FILTER (WHERE provider_has_room) OVER by_host <= h_probes
               AND sum(max_requests) FILTER (WHERE provider_has_room) OVER by_host <= h_requests, true) AS fits
      FROM due
      WINDOW by_provider AS (PARTITION BY provider ORDER BY quick, next_due_at, cell_id),
             by_host AS (PARTITION BY host ORDER BY quick, next_due_at, cell_id)
    ), taken AS (
      SELECT s.cell_id, s.lease_id IS NOT NULL AS taken_over
      FROM schedule s JOIN ranked ON ranked.cell_id = s.cell_id
      WHERE ranked.fits AND s.next_due_at <= statement_timestamp()
        AND (s.leased_until IS NULL OR s.leased_until < statement_timestamp())
      ORDER BY s.next_due_at
      LIMIT :slots
      FOR UPDATE OF s SKIP LOCKED
    ), held_back AS (
      SELECT s.cell_id FROM schedule s JOIN ranked ON ranked.cell_id = s.cell_id
      WHERE ranked.quick AND NOT ranked.fits AND s.quick
      FOR UPDATE OF s SKIP LOCKED
    ), dropped AS (
      UPDATE schedule SET next_due_at = grid_at, quick = false
      FROM held_back WHERE schedule.cell_id = held_back.cell_id
    )
    UPDATE schedule
    SET lease_id = gen_random_uuid(),
        leased_until = statement_timestamp() + make_interval(secs => :deadlines * c.deadline_s + :margin)
    FROM taken, cells c JOIN routes r ON r.id = c.route_id
    WHERE schedule.cell_id = taken.cell_id AND c.id = taken.cell_id
    RETURNING schedule.cell_id, schedule.lease_id, schedule.leased_until, schedule.next_due_at, taken.taken_over,
      c.route_id, c.contract, c.location, c.fingerprint, c.provider, c.host, c.max_requests, c.interval_s,
      r.tokens_per_day, r.requests_per_day, statement_timestamp() AS claimed_at
    """  # noqa: S608 (made of constants)
)


@dataclass(frozen=True)
class Claimed:
    """What one claim gave: `taken_over` of the claims came from a lease that had ended."""

    claims: tuple[Claim, ...]
    taken_over: int = 0


async def claim(
    connection: AsyncConnection, location: str, config_hash: str, slots: int, prober: UUID | None = None
) -> Claimed:
    """Up to `slots` due cells, longest due first, within the limits; none when another configuration is active.

    Of what fell due within `LEFT_TO_ANOTHER_S`, only what falls to `prober`, if that is among those at work. A claim
    that isn't to be sent says why in `unsent`: its budget is spent, which is said once a day, or a pause stops it.
    """
    rooms = await limits.rooms(connection, location)
    share = await probers.share(connection, location, config_hash, prober)
    result = await connection.execute(
        _CLAIM,
        {
            "location": location,
            "hash": config_hash,
            "slots": slots,
            "probers": share.probers,
            "place": share.place,
            "left_to_another": LEFT_TO_ANOTHER_S,
            "deadlines": DEADLINES_A_PROBE,
            "margin": LEASE_MARGIN_S,
            "scopes": [room.scope for room in rooms],
            "names": [room.name for room in rooms],
            "probes": [room.probes for room in rooms],
            "requests": [room.requests for room in rooms],
        },
    )
    rows = sorted(result, key=lambda row: row.next_due_at)
    stopped = await pauses.stopped(connection, [row.cell_id for row in rows])
    spent = await spends.spent(connection, [row for row in rows if row.cell_id not in stopped])
    await _put_off(connection, [row for row in rows if spent.get(row.cell_id)])
    taken_over = sum(row.taken_over for row in rows)
    rows = [row for row in rows if not spent.get(row.cell_id)]
    claims = [
        _claim(row, "paused" if row.cell_id in stopped else "budget_spent" if row.cell_id in spent else None)
        for row in rows
    ]
    sent = [
        (one, row.provider, row.host, row.max_requests)
        for one, row in zip(claims, rows, strict=True)
        if one.unsent is None
    ]
    await limits.debit(connection, location, sent, rooms)
    return Claimed(tuple(claims), taken_over)


async def _put_off(connection: AsyncConnection, rows: Sequence[Row[Any]]) -> None:
    """Give back at once what would only be said again, until the budget's next day: it was made due out of turn."""
    if rows:
        again = [(row.cell_id, after_midnight(row.claimed_at, timedelta(seconds=row.interval_s))) for row in rows]
        names = ("cell_id", "next_due_at")
        new = given([schedule.c[name] for name in names], [dict(zip(names, one, strict=True)) for one in again]).c
        await connection.execute(
            update(schedule)
            .where(schedule.c.cell_id == new.cell_id)
            .values(lease_id=None, leased_until=None, quick=False, next_due_at=new.next_due_at)
        )


def _claim(row: Row[Any], unsent: str | None) -> Claim:
    return Claim(
        cell_id=row.cell_id,
        route_id=row.route_id,
        contract=row.contract,
        location=row.location,
        fingerprint=row.fingerprint,
        lease_id=row.lease_id,
        claimed_at=row.claimed_at,
        due_at=row.next_due_at,
        leased_until=row.leased_until,
        unsent=unsent,
    )


async def seconds_to_next_due(
    connection: AsyncConnection, location: str, config_hash: str, prober: UUID | None = None
) -> float | None:
    """Seconds until `prober` may claim a cell, 0 when it may now (a limit apart), None without any cell. Leases and
    waits are waited for."""
    share = await probers.share(connection, location, config_hash, prober)
    claimable_at: Any = func.min(func.greatest(text(_CLAIMABLE_FROM), schedule.c.leased_until, _waited_for()))
    seconds = await connection.scalar(
        select(extract("epoch", claimable_at - _now))
        .join_from(schedule, cells, cells.c.id == schedule.c.cell_id)
        .where(cells.c.location == location, cells.c.active),
        {"probers": share.probers, "place": share.place, "left_to_another": LEFT_TO_ANOTHER_S},
    )
    return None if seconds is None else max(0.0, float(seconds))


def _waited_for() -> ScalarSelect[datetime]:
    return (
        select(waits.c.until)
        .where(waits.c.provider == cells.c.provider, waits.c.host == cells.c.host)
        .where(waits.c.credential == cells.c.credential)
        .scalar_subquery()
    )


async def release(connection: AsyncConnection, claims: Sequence[Claim]) -> None:
    """Give leases back without a verdict: the cells are due as they were. What they may have sent counts as sent."""
    await connection.execute(
        update(schedule)
        .where(schedule.c.cell_id.in_([claim.cell_id for claim in claims]))
        .where(schedule.c.lease_id.in_([claim.lease_id for claim in claims]))
        .values(lease_id=None, leased_until=None)
    )
    await limits.settle(connection, {claim.lease_id: limits.BOUNDLESS for claim in claims})


async def resume(connection: AsyncConnection, location: str) -> None:
    """Have asked within a minute what was left out for a pause or a budget, unless a pause still stops it: another
    configuration may have another budget, and a route that a pause doesn't name. What is still spent is put off again.
    """
    left_out = await connection.scalars(
        select(schedule.c.cell_id)
        .join_from(schedule, cells, cells.c.id == schedule.c.cell_id)
        .join(latest, latest.c.cell_id == cells.c.id)
        .where(cells.c.location == location, cells.c.active, schedule.c.lease_id.is_(None))
        .where(latest.c.last["reason"].astext.in_(("budget_spent", "paused")))
        .where(schedule.c.next_due_at > _now + pauses.RESUME_WITHIN)
        .with_for_update(of=schedule, skip_locked=True)
    )
    ids = left_out.all()
    stopped = await pauses.stopped(connection, ids)
    await connection.execute(
        update(schedule)
        .where(schedule.c.cell_id.in_([id for id in ids if id not in stopped]))
        .values(next_due_at=_now + pauses.RESUME_WITHIN * func.random(), quick=False)
    )


async def activate(connection: AsyncConnection, location: str, config_hash: str) -> None:
    """From now on only holders of this configuration claim in `location`."""
    put = insert(configurations).values(location=location, hash=config_hash, loaded_at=_now)
    await connection.execute(
        put.on_conflict_do_update(
            index_elements=[configurations.c.location],
            set_={"hash": put.excluded.hash, "loaded_at": put.excluded.loaded_at},
        )
    )


async def make_due(connection: AsyncConnection, route_id: str, contract: str | None, not_within: timedelta) -> AskedNow:
    """Have the cells of a route asked at once, but for those that are asked at this moment, that a pause stops, that
    were asked within `not_within`, or whose provider asked us to wait."""
    wanted = (
        select(
            cells.c.id,
            cells.c.contract,
            cells.c.location,
            _now.label("now"),
            (schedule.c.leased_until > _now).label("leased"),
            extract("epoch", _waited_for() - _now).label("waits"),
            extract("epoch", latest.c.last_observed_at - (_now - not_within)).label("early"),
        )
        .join_from(cells, schedule, schedule.c.cell_id == cells.c.id)
        .join(latest, latest.c.cell_id == cells.c.id)
        .where(cells.c.route_id == route_id, cells.c.active)
        .order_by(cells.c.id)
        .with_for_update(of=schedule)
    )
    if contract is not None:
        wanted = wanted.where(cells.c.contract == contract)
    rows = (await connection.execute(wanted)).all()
    stopped = await pauses.stopped(connection, [row.id for row in rows])
    asked = AskedNow()
    due: list[int] = []
    for row in rows:
        cell = (row.contract, row.location)
        if row.leased:
            asked.under_way.append(cell)
        elif row.id in stopped:
            asked.paused.append((*cell, (stopped[row.id] - row.now).total_seconds()))
        elif (row.waits or 0) > 0:
            asked.waiting.append((*cell, float(row.waits)))
        elif (row.early or 0) > 0:
            asked.too_soon.append((*cell, float(row.early)))
        else:
            asked.due.append(cell)
            due.append(row.id)
    await connection.execute(
        update(schedule)
        .where(schedule.c.cell_id.in_(due))
        .values(next_due_at=func.least(schedule.c.next_due_at, _now), quick=False)
    )
    return asked


async def hurry(connection: AsyncConnection, location: str, route_ids: Sequence[str], unless_within: timedelta) -> int:
    """Have the cells of these routes in `location` asked at once, but for those that were asked that recently; how
    many. A cell that is being asked since longer is asked again after that."""
    bound = DEADLINES_A_PROBE * cells.c.deadline_s + LEASE_MARGIN_S
    asked_at = func.coalesce(
        schedule.c.leased_until - func.make_interval(0, 0, 0, 0, 0, 0, bound), latest.c.last_observed_at
    )
    mine = (
        select(cells.c.id)
        .join_from(cells, schedule, schedule.c.cell_id == cells.c.id)
        .join(latest, latest.c.cell_id == cells.c.id)
        .where(cells.c.location == location, cells.c.active, cells.c.route_id.in_(route_ids))
        .where((asked_at > _now - unless_within).is_not(True))
        .where(or_(schedule.c.next_due_at > _now, schedule.c.lease_id.is_not(None)))
        .order_by(cells.c.id)
        .with_for_update(of=schedule)
    )
    due = (await connection.scalars(mine)).all()
    await connection.execute(update(schedule).where(schedule.c.cell_id.in_(due)).values(next_due_at=_now, quick=False))
    return len(due)


async def active(connection: AsyncConnection, location: str) -> str | None:
    """The hash of the configuration that was loaded last in `location`."""
    return await connection.scalar(select(configurations.c.hash).where(configurations.c.location == location))
