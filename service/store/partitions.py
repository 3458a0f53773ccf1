"""The daily partitions of `verdicts`, made days ahead and dropped whole. Days are UTC days of the database's clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.store.tables import PARTITIONS

_LOCK = 7_066_113_406
DROP_LOCK_TIMEOUT = "2s"


async def clock(connection: AsyncConnection) -> datetime:
    """The database's time, in UTC."""
    now: datetime = (await connection.execute(select(func.now()))).scalar_one()
    return now.astimezone(UTC)


async def ensure(connection: AsyncConnection, days: Iterable[date]) -> None:
    """Make the partitions of these days where they are missing.

    Made apart and then attached, which lets reading and writing go on; made at once it would stop both.
    """
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    await connection.execute(text("SET LOCAL lock_timeout = '2s'"))
    present = await existing(connection)
    for day in sorted(set(days) - set(present)):
        name, first, end = _name(day), _midnight(day).isoformat(), end_of(day).isoformat()
        await connection.execute(text(f"CREATE TABLE {name} (LIKE verdicts INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"))
        await connection.execute(
            text(f"ALTER TABLE verdicts ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{end}')")
        )


async def existing(connection: AsyncConnection) -> list[date]:
    """The days that have a partition."""
    names = await connection.scalars(
        text(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
            "WHERE inhparent = 'verdicts'::regclass ORDER BY relname"
        )
    )
    return [_day(name) for name in names]


async def sizes(connection: AsyncConnection) -> dict[date, int]:
    """The bytes that each day takes up, with its indexes."""
    found = await connection.execute(
        text(
            "SELECT relname, pg_total_relation_size(pg_class.oid) FROM pg_inherits "
            "JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'verdicts'::regclass"
        )
    )
    return {_day(name): int(size) for name, size in found}


async def drop(connection: AsyncConnection, day: date) -> None:
    """Drop one day. It waits at most 2 s for the readers, because everything else would wait behind it."""
    await connection.execute(text(f"SET LOCAL lock_timeout = '{DROP_LOCK_TIMEOUT}'"))
    await connection.execute(text(f"DROP TABLE IF EXISTS {_name(day)}"))


def end_of(day: date) -> datetime:
    return _midnight(day + timedelta(days=1))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _day(name: str) -> date:
    return datetime.strptime(name, "verdicts_%Y%m%d").replace(tzinfo=UTC).date()


def _name(day: date) -> str:
    return f"{PARTITIONS}.verdicts_{day:%Y%m%d}"
