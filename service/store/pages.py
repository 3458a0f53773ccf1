"""What the page of a route reads of the past. Sums are made by the database: a year of hours is too many to send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Row, TextClause, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import LATENCY_BOUNDS_S, Outcome, Span, StoredVerdict
from service.store.rollup import DAY, HOUR, added, day_of
from service.store.rows import stored_verdict
from service.store.tables import OUTCOMES, verdicts


async def verdicts_at(connection: AsyncConnection, keys: Sequence[tuple[datetime, UUID]]) -> list[StoredVerdict]:
    """Those of the verdicts with these times and ids that history still holds. The times tell which days to look in."""
    if not keys:
        return []
    found = await connection.execute(
        select(verdicts).where(
            verdicts.c.observed_at.in_([at for at, _ in keys]), verdicts.c.id.in_([id for _, id in keys])
        )
    )
    return [stored_verdict(row) for row in found]


async def spans(
    connection: AsyncConnection, route_id: str, contract: str, since: datetime, until: datetime, width: timedelta
) -> list[Span]:
    """The verdicts of one contract of a route from `since` until `until`, over all locations, by spans of `width` that
    begin at `since`; spans without any are left out.

    Whole hours are read from the sums, those of days where spans are of whole days, and reach back as far as these;
    anything else from the verdicts.
    """
    asked = {"route": route_id, "contract": contract, "since": since, "until": until, "width": width}
    if width % DAY == timedelta(0) and since == day_of(since.astimezone(UTC)):
        return [_of_sums(row._mapping) for row in await connection.execute(_FROM_DAYS, asked)]
    if width % HOUR == timedelta(0):
        return [_of_sums(row._mapping) for row in await connection.execute(_FROM_HOURS, asked)]
    return _of_verdicts((await connection.execute(_FROM_VERDICTS, asked)).all())


def _of_sums(row: Mapping[Any, Any]) -> Span:
    return Span(
        start=row["start"],
        counts={outcome: row[outcome.value] for outcome in Outcome},
        first_token=tuple(row["first_token"]),
        duration=tuple(row["duration"]),
    )


def _of_verdicts(rows: Sequence[Row[Any]]) -> list[Span]:
    """Each row says how many verdicts of a span have this outcome and these two buckets; buckets count from the last,
    and None wasn't measured."""
    found = []
    for start, group in groupby(rows, key=lambda row: row.start):
        counts: Counter[Outcome] = Counter()
        buckets = [0] * _BUCKETS, [0] * _BUCKETS
        for row in group:
            counts[Outcome(row.outcome)] += row.n
            for counted, bucket in zip(buckets, (row.first_token, row.duration), strict=True):
                if bucket is not None:
                    counted[len(LATENCY_BOUNDS_S) - bucket] += row.n
        found.append(Span(start, counts, *map(tuple, buckets)))
    return found


_BUCKETS = len(LATENCY_BOUNDS_S) + 1


def _bucket(column: str) -> str:
    """How many bounds a time doesn't exceed. Negated, since a bucket has its upper bound and not its lower one."""
    return f"width_bucket(-{column}, ARRAY[{', '.join(f'-{bound}' for bound in reversed(LATENCY_BOUNDS_S))}]::float8[])"


# Cell by cell, so that the index is used, and with the times named, so that only the days in question are looked into.
_FROM_VERDICTS = text(
    f"""
    SELECT date_bin(:width, observed_at, :since) AS start, outcome, {_bucket("time_to_first_token_s")} AS first_token,
           {_bucket("duration_s")} AS duration, count(*) AS n
    FROM cells c CROSS JOIN LATERAL (
      SELECT observed_at, outcome, time_to_first_token_s, duration_s FROM verdicts v
      WHERE v.cell_id = c.id AND v.observed_at >= :since AND v.observed_at < :until
      OFFSET 0
    ) seen
    WHERE c.route_id = :route AND c.contract = :contract
    GROUP BY 1, 2, 3, 4 ORDER BY 1
    """  # noqa: S608 - of our own words
)
_SUMMED = ", ".join((*OUTCOMES, "first_token", "duration"))


def _from_sums(sums: str) -> TextClause:
    return text(
        f"""
        SELECT date_bin(:width, at, :since) AS start, {", ".join(f"sum({name})::int AS {name}" for name in OUTCOMES)},
               {added("first_token")} AS first_token, {added("duration")} AS duration
        FROM cells c CROSS JOIN LATERAL ({sums} OFFSET 0) summed
        WHERE c.route_id = :route AND c.contract = :contract
        GROUP BY 1 ORDER BY 1
        """  # noqa: S608 - of our own words
    )


_FROM_HOURS = _from_sums(
    f"""
    SELECT hour AS at, {_SUMMED} FROM hourly h WHERE h.cell_id = c.id AND h.hour >= :since AND h.hour < :until
    """  # noqa: S608 - of our own words
)
# Days are summed up one after the other: those after the last one are read by the hour.
_FROM_DAYS = _from_sums(
    f"""
    SELECT day AS at, {_SUMMED} FROM daily d WHERE d.cell_id = c.id AND d.day >= :since AND d.day < :until
    UNION ALL
    SELECT hour, {_SUMMED} FROM hourly h WHERE h.cell_id = c.id AND h.hour < :until
      AND h.hour >= greatest(:since, (SELECT max(day) + interval '24 hours' FROM daily))
    """  # noqa: S608 - of our own words
)
