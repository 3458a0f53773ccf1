"""What the page of a route reads of the past. Sums are made by the database: a year of hours is too many to send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Outcome, Span, StoredVerdict
from service.store.rollup import HOUR, SECONDS
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

    Whole hours are read from the hourly sums, and reach back as far as these; anything else from the verdicts.
    """
    statement = _FROM_HOURS if width % HOUR == timedelta(0) else _FROM_VERDICTS
    asked = {"route": route_id, "contract": contract, "since": since, "until": until, "width": width}
    return [_span(row, since, width) for row in (await connection.execute(statement, asked)).mappings()]


def _span(row: Mapping[Any, Any], since: datetime, width: timedelta) -> Span:
    return Span(
        start=since + row["place"] * width,
        counts={outcome: row[outcome.value] for outcome in Outcome},
        first_token=tuple(row["first_token"]),
        duration=tuple(row["duration"]),
    )


def _counted(column: str) -> str:
    """How many verdicts are in each bucket, as an array."""
    parts = []
    for low, high in pairwise((None, *SECONDS, None)):
        bounds = [f"{column} IS NOT NULL"]
        bounds += [f"{column} > {low}"] if low is not None else []
        bounds += [f"{column} <= {high}"] if high is not None else []
        parts.append(f"count(*) FILTER (WHERE {' AND '.join(bounds)})")
    return f"ARRAY[{', '.join(parts)}]"


def _added(column: str) -> str:
    return f"ARRAY[{', '.join(f'sum({column}[{n}])' for n in range(1, len(SECONDS) + 2))}]::bigint[]"


def _place(column: str) -> str:
    return f"floor(extract(epoch FROM {column} - :since) / extract(epoch FROM CAST(:width AS interval)))::int"


# One range of the index for each cell; the times are named so that only the days in question are looked into.
_CELLS = "(SELECT id FROM cells WHERE route_id = :route AND contract = :contract)"
_FROM_VERDICTS = text(
    f"""
    SELECT {_place("observed_at")} AS place,
           {", ".join(f"count(*) FILTER (WHERE outcome = '{name}') AS {name}" for name in OUTCOMES)},
           {_counted("time_to_first_token_s")} AS first_token, {_counted("duration_s")} AS duration
    FROM verdicts
    WHERE cell_id IN {_CELLS} AND observed_at >= :since AND observed_at < :until
    GROUP BY place ORDER BY place
    """  # noqa: S608 - of our own words
)
_FROM_HOURS = text(
    f"""
    SELECT {_place("hour")} AS place, {", ".join(f"sum({name})::bigint AS {name}" for name in OUTCOMES)},
           {_added("first_token")} AS first_token, {_added("duration")} AS duration
    FROM hourly
    WHERE cell_id IN {_CELLS} AND hour >= :since AND hour < :until
    GROUP BY place ORDER BY place
    """  # noqa: S608 - of our own words
)
