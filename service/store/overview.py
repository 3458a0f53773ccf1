"""What the overview shows of the last day, of all routes at once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import LATENCY_BOUNDS_S
from service.store.rollup import HOUR, hour_of

HOURS = 24


async def first_tokens(connection: AsyncConnection, now: datetime) -> dict[str, tuple[float | None, ...]]:
    """Of each route the median time to first token in seconds, over its required contracts and all locations: one for
    each of the last 24 hours, oldest first, the last one the hour that runs; None where no token came.

    Estimated within its bucket as `histogram_quantile` does, and made by the database: ten thousand cells have a
    quarter of a million hours a day.
    """
    since = hour_of(now) - (HOURS - 1) * HOUR
    found = await connection.execute(_MEDIANS, {"since": since, "now": now})
    medians = {}
    for route_id, places, values in found:
        line: list[float | None] = [None] * HOURS
        for place, value in zip(places, values, strict=True):
            line[place] = value
        medians[route_id] = tuple(line)
    return medians


def _median() -> str:
    """The median of the buckets `n1` … in SQL."""
    cases, below, low = [], "0", 0.0
    for place, high in enumerate(LATENCY_BOUNDS_S, 1):
        upto = f"{below} + n{place}"
        inside = f"{low} + {high - low} * (total / 2.0 - ({below})) / n{place}"
        cases.append(f"WHEN n{place} > 0 AND {upto} >= total / 2.0 THEN {inside}")
        below, low = upto, high
    return f"CASE {' '.join(cases)} ELSE {low} END"


_BUCKETS = range(1, len(LATENCY_BOUNDS_S) + 2)
_MEDIANS = text(
    f"""
    WITH summed AS (
      SELECT c.route_id, h.hour, {", ".join(f"sum(h.first_token[{n}]) AS n{n}" for n in _BUCKETS)}
      FROM cells c JOIN hourly h ON h.cell_id = c.id
      WHERE c.active AND c.required AND h.hour >= :since AND h.hour <= :now
      GROUP BY c.route_id, h.hour
    ), totals AS (SELECT *, {" + ".join(f"n{n}" for n in _BUCKETS)} AS total FROM summed)
    SELECT route_id,
           array_agg((extract(epoch FROM hour - :since) / 3600)::int ORDER BY hour),
           array_agg(({_median()})::float8 ORDER BY hour)
    FROM totals WHERE total > 0 GROUP BY route_id
    """  # noqa: S608 - of our own words
)
