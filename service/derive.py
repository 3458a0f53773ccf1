"""From stored history to state: pure functions of history, policy and now. Nothing derived is ever stored.

A dead prober shows as stale and then as unknown by itself, because age is measured when somebody looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.model import CellRow, Outcome, Standing

FUTURE_TOLERANCE = timedelta(seconds=5)


class Freshness(StrEnum):
    NEVER = "never"
    FRESH = "fresh"
    STALE = "stale"
    EXPIRED = "expired"


class Shown(StrEnum):
    """What a page or a metric may say of a cell now: an outcome while it is alive, else unknown."""

    PROVEN = "proven"
    VIOLATED = "violated"
    BLOCKED = "blocked"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


WORST_FIRST: tuple[Shown, ...] = (
    Shown.VIOLATED,
    Shown.BLOCKED,
    Shown.UNAVAILABLE,
    Shown.UNKNOWN,
    Shown.PROVEN,
)


@dataclass(frozen=True)
class CellState:
    """The state of one cell at one moment. `newer_unproven` is a later verdict that decides nothing."""

    row: CellRow
    freshness: Freshness
    shown: Shown
    age: timedelta | None
    valid_until: datetime | None
    newer_unproven: Standing | None


def freshness(observed_at: datetime | None, fresh_for: timedelta, expires_after: timedelta, now: datetime) -> Freshness:
    """The freshness of a verdict by its age. One that lies over 5 s in the future counts as expired."""
    if observed_at is None:
        return Freshness.NEVER
    age = now - observed_at
    if age > expires_after or age < -FUTURE_TOLERANCE:
        return Freshness.EXPIRED
    return Freshness.FRESH if age <= fresh_for else Freshness.STALE


def derive(row: CellRow, now: datetime) -> CellState:
    """The state of a cell at `now` (the database's clock)."""
    standing, cell = row.standing, row.cell
    fresh = freshness(standing.observed_at if standing else None, cell.fresh_for, cell.expires_after, now)
    alive = fresh in (Freshness.FRESH, Freshness.STALE)
    last = row.last
    newer = (
        last
        if last is not None
        and last.outcome is Outcome.UNPROVEN
        and (standing is None or last.observed_at > standing.observed_at)
        else None
    )
    return CellState(
        row=row,
        freshness=fresh,
        shown=Shown(standing.outcome.value) if standing and alive else Shown.UNKNOWN,
        age=now - standing.observed_at if standing else None,
        valid_until=standing.observed_at + cell.expires_after if standing else None,
        newer_unproven=newer,
    )


def worst(shown: list[Shown]) -> Shown:
    """The worst of several; a route is the worst of its required contracts. Nothing at all is unknown."""
    return min(shown, key=WORST_FIRST.index, default=Shown.UNKNOWN)
