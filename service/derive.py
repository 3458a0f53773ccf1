"""From stored history to state: pure functions of history, policy and now. Nothing derived is ever stored.

A dead prober shows as stale and then as unknown by itself, because age is measured when somebody looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.model import CellRow, Outcome, Pause, PauseScope, RouteRow, Standing

FUTURE_TOLERANCE = timedelta(seconds=5)


class Freshness(StrEnum):
    NEVER = "never"
    FRESH = "fresh"
    STALE = "stale"
    EXPIRED = "expired"


class Shown(StrEnum):
    """What a page or a metric may say now: an outcome while it is alive, else unknown.

    `in_part` is never said of one cell, only of a contract over several locations and of its route.
    """

    PROVEN = "proven"
    IN_PART = "in_part"
    VIOLATED = "violated"
    BLOCKED = "blocked"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


_SHOWN: dict[Outcome, Shown] = {outcome: Shown(outcome.value) for outcome in Outcome if outcome is not Outcome.UNPROVEN}
WORST_FIRST: tuple[Shown, ...] = (
    Shown.VIOLATED,
    Shown.BLOCKED,
    Shown.UNAVAILABLE,
    Shown.UNKNOWN,
    Shown.IN_PART,
    Shown.PROVEN,
)


@dataclass(frozen=True)
class CellState:
    """The state of one cell at one moment. `newer_unproven` is a later verdict that decides nothing; `pause` is the one
    that mutes the cell, the one to end last if there are several."""

    row: CellRow
    freshness: Freshness
    shown: Shown
    age: timedelta | None
    valid_until: datetime | None
    newer_unproven: Standing | None
    pause: Pause | None = None


def freshness(observed_at: datetime | None, fresh_for: timedelta, expires_after: timedelta, now: datetime) -> Freshness:
    """The freshness of a verdict by its age. One that lies over 5 s in the future counts as expired."""
    if observed_at is None:
        return Freshness.NEVER
    age = now - observed_at
    if age > expires_after or age < -FUTURE_TOLERANCE:
        return Freshness.EXPIRED
    return Freshness.FRESH if age <= fresh_for else Freshness.STALE


class Pauses:
    """The pauses that hold at one moment, by what they name."""

    def __init__(self, pauses: Iterable[Pause], now: datetime) -> None:
        self._by_target: dict[tuple[PauseScope, str], Pause] = {}
        for pause in sorted(pauses, key=lambda one: one.until):
            if pause.since <= now < pause.until:
                self._by_target[pause.scope, pause.target] = pause

    def of(self, route: RouteRow) -> Pause | None:
        """The pause that holds for a route, the last to end if there are several."""
        if not self._by_target:
            return None
        named = [(PauseScope.ROUTE, route.id), (PauseScope.PROVIDER, route.provider)]
        named += [(PauseScope.TAG, tag) for tag in route.tags]
        found = [pause for key in named if (pause := self._by_target.get(key)) is not None]
        return max(found, key=lambda pause: pause.until, default=None)


def derive(row: CellRow, now: datetime, pause: Pause | None = None) -> CellState:
    """The state of a cell at `now` (the database's clock), under the pause that holds for its route."""
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
        shown=_SHOWN[standing.outcome] if standing and alive else Shown.UNKNOWN,
        age=now - standing.observed_at if standing else None,
        valid_until=standing.observed_at + cell.expires_after if standing else None,
        newer_unproven=newer,
        pause=pause,
    )


def worst(shown: Iterable[Shown]) -> Shown:
    """The worst of several; a route is the worst of its required contracts. Nothing at all is unknown."""
    return min(shown, key=WORST_FIRST.index, default=Shown.UNKNOWN)


@dataclass(frozen=True)
class ContractState:
    """One contract of one route over all its locations. `cells` are sorted worst first.

    `proven_in` and `live_in` name the locations where it is proven and where there is a live state at all;
    `silent_in` names those that are left out because nothing there is alive. `stale` says that a live state rests on
    a verdict that is no longer fresh.
    """

    contract: str
    required: bool
    shown: Shown
    cells: tuple[CellState, ...]
    proven_in: tuple[str, ...]
    live_in: tuple[str, ...]
    silent_in: tuple[str, ...]
    stale: bool


@dataclass(frozen=True)
class RouteState:
    """A route at one moment: the worst of its required contracts. `contracts` are required first, worst first."""

    route: RouteRow
    shown: Shown
    contracts: tuple[ContractState, ...]

    @property
    def pause(self) -> Pause | None:
        """The pause that holds for the route."""
        return next((cell.pause for contract in self.contracts for cell in contract.cells), None)

    @property
    def deciding(self) -> ContractState | None:
        """The required contract that the state of the route rests on, None when it requires nothing."""
        return next((contract for contract in self.contracts if contract.required), None)


def contract_state(cells: Iterable[CellState]) -> ContractState:
    """The state of one contract of one route over its locations; at least one cell.

    Proven where every live location proves it, in part where some do, else the worst of the live ones. A location
    without a live state decides nothing while another one is alive.
    """
    ordered = tuple(sorted(cells, key=lambda c: (WORST_FIRST.index(c.shown), c.row.cell.location)))
    live = tuple(c for c in ordered if c.shown is not Shown.UNKNOWN)
    proven = tuple(c for c in live if c.shown is Shown.PROVEN)
    shown = Shown.IN_PART if proven and len(proven) < len(live) else worst(c.shown for c in live)
    return ContractState(
        contract=ordered[0].row.cell.contract,
        required=any(c.row.cell.required for c in ordered),
        shown=shown,
        cells=ordered,
        proven_in=tuple(c.row.cell.location for c in proven),
        live_in=tuple(c.row.cell.location for c in live),
        silent_in=tuple(c.row.cell.location for c in ordered if c.shown is Shown.UNKNOWN),
        stale=any(c.freshness is Freshness.STALE for c in live),
    )


def route_states(rows: Iterable[CellRow], now: datetime, pauses: Iterable[Pause] = ()) -> tuple[RouteState, ...]:
    """The state of every route among `rows` at `now` (the database's clock), worst first, then by name."""
    holding = Pauses(pauses, now)
    by_route: defaultdict[str, defaultdict[str, list[CellState]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_route[row.route.id][row.cell.contract].append(derive(row, now, holding.of(row.route)))
    states = [_route_state(map(contract_state, contracts.values())) for contracts in by_route.values()]
    return tuple(sorted(states, key=lambda s: (WORST_FIRST.index(s.shown), s.route.name, s.route.id)))


def _route_state(contracts: Iterable[ContractState]) -> RouteState:
    ordered = tuple(
        sorted(contracts, key=lambda c: (not c.required, WORST_FIRST.index(c.shown), not c.stale, c.contract))
    )
    return RouteState(
        route=ordered[0].cells[0].row.route,
        shown=worst(contract.shown for contract in ordered if contract.required),
        contracts=ordered,
    )
