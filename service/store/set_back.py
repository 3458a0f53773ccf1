"""What a database whose clock was set back would wait with until it is that time again. What lies further ahead than
anything is ever put is brought near; verdicts that lie ahead are replaced by the next ones (see `verdicts`)."""

from __future__ import annotations

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.derive import FUTURE_TOLERANCE
from service.pacing import LONGEST_WAIT
from service.store.tables import cells, debits, latest, schedule, waits

_now = func.statement_timestamp()
_ahead = _now + FUTURE_TOLERANCE
_interval = func.make_interval(0, 0, 0, 0, 0, 0, cells.c.interval_s)


async def bring_near(connection: AsyncConnection) -> int:
    """Have cells asked within their interval whose last verdict lies ahead, or that have none; end waits within the
    longest, and count as ended now what ended later. How many cells. It changes nothing while the clock goes on."""
    await connection.execute(
        update(waits).where(waits.c.until > _ahead + LONGEST_WAIT).values(until=_now + LONGEST_WAIT)
    )
    await connection.execute(update(debits).where(debits.c.settled_at > _ahead).values(settled_at=_now))
    far = (
        select(schedule.c.cell_id)
        .join_from(schedule, cells, cells.c.id == schedule.c.cell_id)
        .join(latest, latest.c.cell_id == cells.c.id)
        .where(or_(latest.c.last_observed_at.is_(None), latest.c.last_observed_at > _ahead))
        .where(schedule.c.next_due_at > _ahead + _interval)
        .order_by(schedule.c.cell_id)
        .with_for_update(of=schedule, skip_locked=True)
    )
    found = (await connection.scalars(far)).all()
    await connection.execute(
        update(schedule)
        .where(schedule.c.cell_id == cells.c.id, cells.c.id.in_(found))
        .values(next_due_at=_now + _interval * func.random(), quick=False)
    )
    return len(found)
