"""Verdicts written and read back: history, and what `latest` and `schedule` learn from each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, Integer, Text, and_, bindparam, case, cast, func, lateral, or_, select, true, update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Claim, Outcome, StoredVerdict, Verdict
from service.store import transitions
from service.store.claims import next_due, next_grid_point
from service.store.rows import standing_values, stored_verdict, verdict_values
from service.store.tables import Moment, cells, latest, schedule, verdicts


@dataclass(frozen=True)
class Applied:
    """The verdicts that were stored, and how many came from a lease that was no longer theirs."""

    ids: frozenset[UUID]
    leases_lost: int


async def apply(connection: AsyncConnection, finished: Sequence[tuple[Claim, Verdict]]) -> Applied:
    """Store verdicts whose lease still holds, and let state and schedule follow. Done twice it changes nothing."""
    held = await _lock_schedule(connection, [claim for claim, _ in finished])
    mine = [(claim, verdict) for claim, verdict in finished if claim.lease_id in held]
    lost = [verdict for claim, verdict in finished if claim.lease_id not in held]
    if not mine:
        return Applied(frozenset(), len(lost) - await _count_stored(connection, lost))
    rows = [verdict_values(verdict, claim.cell_id) for claim, verdict in mine]
    put = insert(verdicts).on_conflict_do_nothing().returning(verdicts.c.id)
    stored = frozenset((await connection.scalars(put, rows)).all())
    new = [(claim, verdict) for claim, verdict in mine if verdict.id in stored]
    if new:
        # Read after the lock and in a statement of its own: a reload that came in between is seen.
        ids = [claim.cell_id for claim, _ in new]
        current = (
            select(cells.c.id, cells.c.fingerprint, cells.c.interval_s, cells.c.required, latest.c.standing)
            .join_from(cells, latest, latest.c.cell_id == cells.c.id)
            .where(cells.c.id.in_(ids))
        )
        configured = {row.id: row for row in await connection.execute(current)}
        replaced = _replaced(new, configured)
        await connection.execute(
            _UPDATE_LATEST,
            [_latest_values(verdict, claim.cell_id, verdict.id in replaced) for claim, verdict in new],
        )
        informational = [
            (claim.cell_id, old, verdict)
            for claim, verdict in new
            if not configured[claim.cell_id].required and (old := replaced.get(verdict.id)) is not None
        ]
        await transitions.record(connection, transitions.INFORMATIONAL, informational)
        await connection.execute(
            _UPDATE_SCHEDULE,
            [
                _schedule_values(claim, verdict, held[claim.lease_id], configured[claim.cell_id])
                for claim, verdict in new
            ],
        )
    return Applied(stored, len(lost) - await _count_stored(connection, lost))


async def history(connection: AsyncConnection, route_id: str, limit: int) -> list[StoredVerdict]:
    """The newest verdicts of a route, newest first."""
    newest = lateral(
        select(verdicts).where(verdicts.c.cell_id == cells.c.id).order_by(verdicts.c.observed_at.desc()).limit(limit)
    )
    found = await connection.execute(
        select(newest)
        .join_from(cells, newest, true())
        .where(cells.c.route_id == route_id)
        .order_by(newest.c.observed_at.desc())
        .limit(limit)
    )
    return [stored_verdict(row) for row in found]


async def _lock_schedule(connection: AsyncConnection, claims: Sequence[Claim]) -> dict[UUID, Any]:
    """The schedule rows by the lease that holds each, locked in one order everywhere."""
    found = await connection.execute(
        select(schedule, func.statement_timestamp().label("now"))
        .where(schedule.c.cell_id.in_([claim.cell_id for claim in claims]))
        .order_by(schedule.c.cell_id)
        .with_for_update()
    )
    return {row.lease_id: row for row in found}


async def _count_stored(connection: AsyncConnection, candidates: Sequence[Verdict]) -> int:
    """How many are in the history already: the earlier commit of a repeated save, not a lease that was lost."""
    if not candidates:
        return 0
    times = [verdict.observed_at for verdict in candidates]
    stored = select(func.count()).select_from(verdicts).where(verdicts.c.id.in_([v.id for v in candidates]))
    return await connection.scalar(stored.where(verdicts.c.observed_at.in_(times))) or 0


def _replaced(
    new: Sequence[tuple[Claim, Verdict]], configured: Mapping[int, Any]
) -> dict[UUID, Mapping[str, Any] | None]:
    """The verdicts that become the standing one of their cell, each with the one that stood before it."""
    standing = {cell_id: row.standing for cell_id, row in configured.items()}
    replaced = {}
    for claim, verdict in new:
        old = standing[claim.cell_id]
        if (
            verdict.outcome is not Outcome.UNPROVEN
            and verdict.fingerprint == configured[claim.cell_id].fingerprint
            and (old is None or datetime.fromisoformat(old["observed_at"]) < verdict.observed_at)
        ):
            replaced[verdict.id] = old
            standing[claim.cell_id] = standing_values(verdict)
    return replaced


def _latest_values(verdict: Verdict, cell_id: int, stands: bool) -> dict[str, Any]:
    return {
        "cell": cell_id,
        "value": standing_values(verdict),
        "seen_at": verdict.observed_at,
        "result": verdict.outcome.value,
        "stands": stands,
    }


def _schedule_values(claim: Claim, verdict: Verdict, held: Any, configured: Any) -> dict[str, Any]:
    interval = timedelta(seconds=configured.interval_s)
    if verdict.fingerprint != configured.fingerprint:  # the configuration changed under the probe: ask again at once
        grid_at, due_at = held.grid_at, held.now
    else:
        grid_at = next_grid_point(held.grid_at, interval, held.now)
        due_at = next_due(grid_at, interval, held.now, verdict.retry_after_s)
    return {"cell": claim.cell_id, "lease": claim.lease_id, "grid_at": grid_at, "next_due_at": due_at}


def _build_update_latest() -> Any:
    seen_at, result = bindparam("seen_at", type_=Moment), bindparam("result", type_=Text)
    value = bindparam("value", type_=JSONB)
    newest = or_(latest.c.last_observed_at.is_(None), latest.c.last_observed_at < seen_at)
    stands = bindparam("stands", type_=Boolean)
    turned = and_(stands, latest.c.standing["outcome"].astext.is_distinct_from(result))
    proof = case((result == Outcome.PROVEN.value, seen_at))
    return (
        update(latest)
        .where(latest.c.cell_id == bindparam("cell"))
        .values(
            standing=case((stands, value), else_=latest.c.standing),
            standing_observed_at=case((stands, seen_at), else_=latest.c.standing_observed_at),
            state_since=case((turned, seen_at), else_=latest.c.state_since),
            last=case((newest, value), else_=latest.c.last),
            last_observed_at=func.greatest(latest.c.last_observed_at, seen_at),
            last_proven_at=func.greatest(latest.c.last_proven_at, proof),
            **{name.value: latest.c[name.value] + cast(result == name.value, Integer) for name in Outcome},
        )
    )


_UPDATE_LATEST = _build_update_latest()
_UPDATE_SCHEDULE = (
    update(schedule)
    .where(schedule.c.cell_id == bindparam("cell"), schedule.c.lease_id == bindparam("lease"))
    .values(lease_id=None, leased_until=None)
)
