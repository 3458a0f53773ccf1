"""Changes of a standing verdict, one row each.

So far those of informational cells, where a change of status counts by itself: nobody is called for it. A change of a
required cell has to be confirmed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Transition, Verdict
from service.store.tables import cells, transitions

INFORMATIONAL = "informational"
_CAUSES = ("served_model", "ruleset")


async def record(
    connection: AsyncConnection, kind: str, replaced: Sequence[tuple[int, Mapping[str, Any], Verdict]]
) -> None:
    """Write down each new standing verdict whose status isn't that of the one it replaced, `replaced` being cell,
    old and new. Costs nothing when there is none."""
    rows = [
        {
            "cell_id": cell_id,
            "at": new.observed_at,
            "kind": kind,
            "from_status": old["status"],
            "from_reason": old["reason"],
            "to_status": new.status.value,
            "to_reason": new.reason,
            "from_verdict": UUID(old["id"]),
            "to_verdict": new.id,
            "changed": _changed(old, new),
        }
        for cell_id, old, new in replaced
        if old["status"] != new.status
    ]
    if rows:
        await connection.execute(insert(transitions), rows)


async def history(connection: AsyncConnection, route_id: str | None, limit: int) -> list[Transition]:
    """The newest transitions of a route, or of all, newest first."""
    newest = (
        select(transitions, cells.c.route_id, cells.c.contract, cells.c.location)
        .join_from(transitions, cells, cells.c.id == transitions.c.cell_id)
        .order_by(transitions.c.at.desc(), transitions.c.id.desc())
        .limit(limit)
    )
    if route_id is not None:
        newest = newest.where(cells.c.route_id == route_id)
    return [
        Transition(
            at=row.at,
            route_id=row.route_id,
            contract=row.contract,
            location=row.location,
            kind=row.kind,
            from_status=row.from_status,
            from_reason=row.from_reason,
            to_status=row.to_status,
            to_reason=row.to_reason,
            changed=row.changed,
        )
        for row in await connection.execute(newest)
    ]


async def forget(connection: AsyncConnection, before: datetime) -> int:
    """Delete those that are older; how many went."""
    gone = await connection.execute(delete(transitions).where(transitions.c.at < before))
    return gone.rowcount


def _changed(old: Mapping[str, Any], new: Verdict) -> dict[str, Any]:
    """What is known to differ. An old verdict may lack a cause: earlier releases didn't keep it, or the answer didn't
    say."""
    before = {name: old.get(name) for name in _CAUSES}
    after = {name: getattr(new, name) for name in _CAUSES}
    return {
        name: {"from": before[name], "to": after[name]}
        for name in _CAUSES
        if before[name] is not None and after[name] is not None and before[name] != after[name]
    }
