"""Verdicts summed up by the hour, and hours by the day. An hour is summed up once it is over, and once more when a
verdict for it comes late; the hour that runs is summed up again and again. A day is summed up once it is over, and once
more when one of its hours was."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from sqlalchemy import and_, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import LATENCY_BOUNDS_S, Hour, Outcome
from service.store.tables import OUTCOMES, cells, daily, hourly, hours, verdicts

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
PATIENCE = "60s"
GRACE = timedelta(minutes=2)
"""An hour isn't done before: saves that began in it may still come to their end."""
_LOCK = 7_066_113_407


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def day_of(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


async def note_late(connection: AsyncConnection, observed: Sequence[datetime], now: datetime) -> None:
    """These verdicts were stored: hours that were over already have to be summed up once more."""
    late = sorted({hour_of(moment) for moment in observed} - {hour_of(now)})
    if late:
        put = insert(hours)
        await connection.execute(
            put.on_conflict_do_update(index_elements=[hours.c.hour], set_={"rolled_at": None}),
            [{"hour": hour} for hour in late],
        )


async def outstanding(connection: AsyncConnection, now: datetime) -> list[datetime]:
    """The hours to sum up, oldest first: those noted, those that went by since the last run, and the one that runs."""
    noted = set((await connection.scalars(select(hours.c.hour).where(hours.c.rolled_at.is_(None)))).all())
    last = await connection.scalar(select(func.max(hours.c.hour)).where(hours.c.rolled_at.is_not(None)))
    present = hour_of(now)
    if last is None:
        first = await connection.scalar(select(func.min(verdicts.c.observed_at)))
        last = hour_of(first) - HOUR if first is not None else present - HOUR
    passed = max(0, (present - last) // HOUR - 1)
    return sorted(noted | {last + HOUR * (step + 1) for step in range(passed)} | {present})


async def roll(connection: AsyncConnection, hour: datetime, now: datetime) -> int:
    """Sum up one hour anew; the number of cells whose sums were written. Replicas take turns. A sum never shrinks: the
    verdicts that it counts may be gone when a late one comes."""
    await _take_turns(connection)
    if hour + HOUR + GRACE <= now:
        # Marked before it is read: a verdict that comes meanwhile marks it back, and waits for nobody.
        put = insert(hours).values(hour=hour, rolled_at=now)
        await connection.execute(
            put.on_conflict_do_update(index_elements=[hours.c.hour], set_={"rolled_at": put.excluded.rolled_at})
        )
    rolled = await connection.execute(_ROLL, {"from": hour, "to": hour + HOUR})
    return rolled.rowcount


async def outstanding_days(connection: AsyncConnection, now: datetime) -> list[datetime]:
    """The days to sum up, oldest first: those that are over and have an hour that was summed up since."""
    found = await connection.scalars(
        select(hours.c.hour).where(_IS_NEW, hours.c.hour < day_of(now - GRACE)).order_by(hours.c.hour)
    )
    return list(dict.fromkeys(map(day_of, found)))


async def roll_day(connection: AsyncConnection, day: datetime) -> int:
    """Sum up one day anew; the number of cells whose sums were written. Replicas take turns. A sum never shrinks: some
    of its hours may be forgotten."""
    await _take_turns(connection)
    rolled = await connection.execute(_ROLL_DAY, {"from": day, "to": day + DAY})
    within = and_(hours.c.hour >= day, hours.c.hour < day + DAY, _IS_NEW)
    # A release that doesn't know of days sums hours up as well: what it sums up after this differs in its time.
    await connection.execute(update(hours).where(within).values(added_at=hours.c.rolled_at))
    return rolled.rowcount


_IS_NEW = and_(hours.c.rolled_at.is_not(None), hours.c.rolled_at.is_distinct_from(hours.c.added_at))


async def _take_turns(connection: AsyncConnection) -> None:
    await connection.execute(text(f"SET LOCAL statement_timeout = '{PATIENCE}'"))
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


async def forget(connection: AsyncConnection, before: datetime) -> None:
    """Delete the sums of earlier hours and days."""
    await connection.execute(text(f"SET LOCAL statement_timeout = '{PATIENCE}'"))
    await connection.execute(delete(hourly).where(hourly.c.hour < before))
    await connection.execute(delete(hours).where(hours.c.hour < before))
    await connection.execute(delete(daily).where(daily.c.day < day_of(before)))


async def of_route(connection: AsyncConnection, route_id: str, since: datetime, until: datetime) -> list[Hour]:
    """The hours of a route's cells, oldest first."""
    found = await connection.execute(
        select(hourly, cells.c.contract, cells.c.location)
        .join_from(cells, hourly, hourly.c.cell_id == cells.c.id)
        .where(cells.c.route_id == route_id, hourly.c.hour >= since, hourly.c.hour < until)
        .order_by(hourly.c.hour, cells.c.id)
    )
    return [
        Hour(
            at=row.hour,
            contract=row.contract,
            location=row.location,
            counts={outcome: row._mapping[outcome.value] for outcome in Outcome},
            statuses=row.statuses,
            requests=row.requests,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            first_token=tuple(row.first_token),
            duration=tuple(row.duration),
        )
        for row in found
    ]


async def shares(connection: AsyncConnection, since: datetime) -> dict[str, tuple[int, int]]:
    """Of each route, over its required contracts since then: proven verdicts, and those that count for or against."""
    counted = hourly.c.proven + hourly.c.violated + hourly.c.blocked + hourly.c.unavailable
    found = await connection.execute(
        select(cells.c.route_id, func.sum(hourly.c.proven), func.sum(counted))
        .join_from(cells, hourly, hourly.c.cell_id == cells.c.id)
        .where(cells.c.active, cells.c.required, hourly.c.hour >= since)
        .group_by(cells.c.route_id)
    )
    return {route_id: (int(proven), int(all_counted)) for route_id, proven, all_counted in found}


def _buckets(column: str) -> str:
    edges = (None, *LATENCY_BOUNDS_S, None)
    parts = []
    for low, high in pairwise(edges):
        bounds = [f"{column} IS NOT NULL"]
        bounds += [f"{column} > {low}"] if low is not None else []
        bounds += [f"{column} <= {high}"] if high is not None else []
        parts.append(f"count(*) FILTER (WHERE {' AND '.join(bounds)})")
    return f"ARRAY[{', '.join(parts)}]::int[]"


def added(column: str) -> str:
    """The sum of a column of buckets, in SQL."""
    return f"ARRAY[{', '.join(f'sum({column}[{n}])' for n in range(1, len(LATENCY_BOUNDS_S) + 2))}]::int[]"


def _never_shrinks(table: str) -> str:
    return f"{' + '.join(f'excluded.{n}' for n in OUTCOMES)} >= {' + '.join(f'{table}.{n}' for n in OUTCOMES)}"


_SUMS = (*OUTCOMES, "statuses", "requests", "tokens_in", "tokens_out", "first_token", "duration")
_ROLL = text(
    f"""
    INSERT INTO hourly (cell_id, hour, {", ".join(OUTCOMES)}, statuses, requests, tokens_in, tokens_out,
                        first_token, duration)
    SELECT v.cell_id, :from, {", ".join(f"count(*) FILTER (WHERE outcome = '{name}')" for name in OUTCOMES)},
           (SELECT jsonb_object_agg(status, n) FROM (
             SELECT s AS status, count(*) AS n FROM unnest(array_agg(v.status)) s GROUP BY s) counted),
           sum(requests), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0),
           {_buckets("time_to_first_token_s")}, {_buckets("duration_s")}
    FROM verdicts v
    WHERE v.observed_at >= :from AND v.observed_at < :to
    GROUP BY v.cell_id
    ON CONFLICT (cell_id, hour) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _SUMS)}
    WHERE {_never_shrinks("hourly")}
    """  # noqa: S608 - of our own words
)
_OF_DAYS = (*OUTCOMES, "first_token", "duration")
_ROLL_DAY = text(
    f"""
    INSERT INTO daily (cell_id, day, {", ".join(_OF_DAYS)})
    SELECT cell_id, :from, {", ".join(f"sum({name})" for name in OUTCOMES)}, {added("first_token")}, {added("duration")}
    FROM hourly WHERE hour >= :from AND hour < :to GROUP BY cell_id
    ON CONFLICT (cell_id, day) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _OF_DAYS)}
    WHERE {_never_shrinks("daily")}
    """  # noqa: S608 - of our own words
)
