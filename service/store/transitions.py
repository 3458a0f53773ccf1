"""Changes of a cell's state, one row each, written with the verdict that brought them.

A required cell's changes are those of its confirmed state. Of an informational cell a changed status counts by itself:
nobody is called for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import Row, Select, delete, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Change, Transition, Verdict
from service.store.tables import cells, routes, transitions

if TYPE_CHECKING:
    from service.store.verdicts import Step

INFORMATIONAL = "informational"
_CAUSES = {"served_model": "served_model", "configuration": "fingerprint", "rules": "ruleset"}


async def record(connection: AsyncConnection, steps: Iterable[Step]) -> None:
    """Write down what changed. Costs nothing when nothing did; done twice it changes nothing."""
    rows = [row for step in steps if (row := _row(step)) is not None]
    if rows:
        await connection.execute(insert(transitions).on_conflict_do_nothing(), rows)


def _row(step: Step) -> dict[str, Any] | None:
    if step.row.required:
        return _of_confirmed(step.claim.cell_id, step.verdict, step.change) if step.change else None
    old, new = step.replaced, step.verdict
    if not step.stands or old is None or old["status"] == new.status:
        return None
    return {
        "cell_id": step.claim.cell_id,
        "at": new.observed_at,
        "kind": INFORMATIONAL,
        "from_status": old["status"],
        "from_reason": old["reason"],
        "to_status": new.status.value,
        "to_reason": new.reason,
        "from_verdict": UUID(old["id"]),
        "to_verdict": new.id,
        "changed": _changed(old, new),
        "announced": False,
    }


def _of_confirmed(cell_id: int, verdict: Verdict, change: Change) -> dict[str, Any]:
    before, after = change.before, change.after
    return {
        "cell_id": cell_id,
        "at": change.at,
        "kind": change.kind.value,
        "from_status": before.status if before else None,
        "from_reason": before.reason if before else None,
        "to_status": after.status,
        "to_reason": after.reason,
        "from_verdict": before.id if before else None,
        "to_verdict": verdict.id,
        "changed": dict(change.changed),
        "announced": change.announced,
    }


_ALL = (
    select(transitions, cells.c.route_id, cells.c.contract, cells.c.location)
    .join_from(transitions, cells, cells.c.id == transitions.c.cell_id)
    .join(routes, routes.c.id == cells.c.route_id)
)
_NEWEST = (transitions.c.at.desc(), transitions.c.id.desc())


async def history(connection: AsyncConnection, route_id: str | None, limit: int) -> list[Transition]:
    """The newest transitions of a route, or of all, newest first."""
    wanted = {"route_id": route_id} if route_id is not None else {}
    return await page(connection, wanted=wanted, limit=limit)


async def page(
    connection: AsyncConnection,
    *,
    wanted: Mapping[str, str],
    provider: str | None = None,
    kinds: Sequence[str] | None = None,
    before: tuple[datetime, int] | None = None,
    limit: int = 100,
) -> list[Transition]:
    """Transitions newest first; `wanted` maps columns of a cell (route_id, contract, location) to their values.
    `before` is the time and the id of the last one of the page before."""
    found: Select[Any] = _ALL.order_by(*_NEWEST).limit(limit)
    for name, value in wanted.items():
        found = found.where(cells.c[name] == value)
    if provider is not None:
        found = found.where(routes.c.provider == provider)
    if kinds is not None:
        found = found.where(transitions.c.kind.in_(kinds))
    if before is not None:
        found = found.where(tuple_(transitions.c.at, transitions.c.id) < tuple_(*before))
    return [_transition(row) for row in await connection.execute(found)]


def _transition(row: Row[Any]) -> Transition:
    return Transition(
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
        id=row.id,
        announced=row.announced,
    )


async def forget(connection: AsyncConnection, before: datetime) -> int:
    """Delete those that are older; how many went."""
    gone = await connection.execute(delete(transitions).where(transitions.c.at < before))
    return gone.rowcount


def _changed(old: Mapping[str, Any], new: Verdict) -> dict[str, Any]:
    """What is known to differ. An old verdict may lack a cause: earlier releases didn't keep it, or the answer didn't
    say."""
    both = {name: (old.get(field), getattr(new, field)) for name, field in _CAUSES.items()}
    return {
        name: {"from": before, "to": after}
        for name, (before, after) in both.items()
        if before is not None and after is not None and before != after
    }
