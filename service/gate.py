"""May tool traffic go to a route now? A pure function of what is known of its cells, and when.

Allowed is only what every required contract proves, freshly, with the confirmed state agreeing. What isn't known is
refused unless the asker would rather send than not; what is known to be broken is refused always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from service.derive import CellState, Freshness, RouteState, Shown


class Reason(StrEnum):
    """Why a contract lets traffic pass or not. Words are a public contract.

    `not_proven`: the standing verdict says otherwise. `regressed`: it is proven again, but not yet confirmed to be.
    `unconfirmed`: nothing was ever confirmed. `nothing_required`: the route requires no contract, so that nothing
    proves it.
    """

    PROVEN = "proven"
    NOT_PROVEN = "not_proven"
    REGRESSED = "regressed"
    UNCONFIRMED = "unconfirmed"
    STALE = "stale"
    EXPIRED = "expired"
    NEVER = "never"
    NOTHING_REQUIRED = "nothing_required"


KNOWN_BAD = frozenset({Reason.NOT_PROVEN, Reason.REGRESSED})
_BY_AGE = {Freshness.STALE: Reason.STALE, Freshness.EXPIRED: Reason.EXPIRED, Freshness.NEVER: Reason.NEVER}


@dataclass(frozen=True)
class Ground:
    """What one required contract says from one location."""

    contract: str
    location: str
    reason: Reason
    allows: bool
    state: CellState


@dataclass(frozen=True)
class Decision:
    """The answer. `valid_until` is when it changes by age alone: the first proof that it rests on is fresh no longer
    then. None when it doesn't rest on one."""

    allowed: bool
    reasons: tuple[Reason, ...]
    grounds: tuple[Ground, ...]
    valid_until: datetime | None


def decide(route: RouteState, location: str | None = None, *, allow_unknown: bool = False) -> Decision:
    """Whether traffic may go to `route`, as proven from `location` or from everywhere.

    From everywhere, a location where nothing is alive decides nothing while another one is.
    """
    grounds = tuple(
        _ground(cell, allow_unknown)
        for contract in route.contracts
        if contract.required
        for cell in _asked(contract.cells, location)
    )
    if not grounds:
        return Decision(allow_unknown, (Reason.NOTHING_REQUIRED,), (), None)
    allowed = all(ground.allows for ground in grounds)
    deciding = [ground for ground in grounds if ground.allows is allowed]
    fresh = [ground.state for ground in grounds if ground.reason is Reason.PROVEN]
    return Decision(
        allowed=allowed,
        reasons=tuple(dict.fromkeys(ground.reason for ground in deciding)),
        grounds=grounds,
        valid_until=min((until for cell in fresh if (until := fresh_until(cell))), default=None) if allowed else None,
    )


def fresh_until(state: CellState) -> datetime | None:
    """When the standing verdict becomes stale; None without one."""
    standing = state.row.standing
    return standing.observed_at + state.row.cell.fresh_for if standing else None


def _asked(cells: Sequence[CellState], location: str | None) -> Sequence[CellState]:
    if location is not None:
        return [cell for cell in cells if cell.row.cell.location == location]
    return [cell for cell in cells if cell.shown is not Shown.UNKNOWN] or cells


def _ground(cell: CellState, allow_unknown: bool) -> Ground:
    reason = _reason(cell)
    allows = reason is Reason.PROVEN or (allow_unknown and reason not in KNOWN_BAD)
    return Ground(cell.row.cell.contract, cell.row.cell.location, reason, allows, cell)


def _reason(cell: CellState) -> Reason:
    if cell.shown not in (Shown.PROVEN, Shown.UNKNOWN):
        return Reason.NOT_PROVEN
    if cell.row.confirmed.proven is False:
        return Reason.REGRESSED
    if cell.freshness is not Freshness.FRESH:
        return _BY_AGE[cell.freshness]
    return Reason.PROVEN if cell.row.confirmed.proven else Reason.UNCONFIRMED
