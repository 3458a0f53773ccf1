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


WORST_FIRST: tuple[Shown, ...] = (
    Shown.VIOLATED,
    Shown.BLOCKED,
    Shown.UNAVAILABLE,
    Shown.UNKNOWN,
    Shown.IN_PART,
    Shown.PROVEN,
)

# What is looked up for each of ten thousand cells: a member looked up in its class costs as much as the rest.
_FRESH, _STALE = Freshness.FRESH, Freshness.STALE
_PROVEN, _UNKNOWN, _UNPROVEN = Shown.PROVEN, Shown.UNKNOWN, Outcome.UNPROVEN
_SHOWN: dict[Outcome, Shown] = {outcome: Shown(outcome.value) for outcome in Outcome if outcome is not _UNPROVEN}
_PLACE: dict[Shown, int] = {shown: place for place, shown in enumerate(WORST_FIRST)}


@dataclass(frozen=True, slots=True)
class CellState:
    """The state of one cell at one moment. `newer_unproven` is a later verdict that decides nothing; `pause` is the one
    that mutes the cell, the one to end last if there are several."""

    row: CellRow
    freshness: Freshness
    shown: Shown
    newer_unproven: Standing | None
    pause: Pause | None = None

    @property
    def valid_until(self) -> datetime | None:
        """When the standing verdict expires or did expire; None without one."""
        standing = self.row.standing
        return standing.observed_at + self.row.cell.expires_after if standing else None


def freshness(observed_at: datetime | None, fresh_for: timedelta, expires_after: timedelta, now: datetime) -> Freshness:
    """The freshness of a verdict by its age. One that lies over 5 s in the future counts as expired."""
    if observed_at is None:
        return Freshness.NEVER
    age = now - observed_at
    if age > expires_after or age < -FUTURE_TOLERANCE:
        return Freshness.EXPIRED
    return _FRESH if age <= fresh_for else _STALE


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
    standing, last, cell = row.standing, row.last, row.cell
    fresh = freshness(standing.observed_at if standing else None, cell.fresh_for, cell.expires_after, now)
    shown = _SHOWN[standing.outcome] if standing and (fresh is _FRESH or fresh is _STALE) else _UNKNOWN
    newer = last if last and last.outcome is _UNPROVEN else None
    if newer and standing and newer.observed_at <= standing.observed_at:
        newer = None
    return CellState(row, fresh, shown, newer, pause)


@dataclass(frozen=True, slots=True)
class ContractState:
    """One contract of one route over all its locations. `cells` are sorted worst first. `stale` says that a live state
    rests on a verdict that is no longer fresh."""

    contract: str
    required: bool
    shown: Shown
    cells: tuple[CellState, ...]
    stale: bool

    @property
    def live_in(self) -> tuple[str, ...]:
        """The locations where there is a live state at all."""
        return tuple(state.row.cell.location for state in self.cells if state.shown is not _UNKNOWN)

    @property
    def proven_in(self) -> tuple[str, ...]:
        """Those of them where it is proven."""
        return tuple(state.row.cell.location for state in self.cells if state.shown is _PROVEN)

    @property
    def silent_in(self) -> tuple[str, ...]:
        """The locations that are left out because nothing there is alive."""
        return tuple(state.row.cell.location for state in self.cells if state.shown is _UNKNOWN)


@dataclass(frozen=True, slots=True)
class RouteState:
    """A route at one moment: the worst of its required contracts. `contracts` are required first, worst first; there
    is at least one."""

    route: RouteRow
    shown: Shown
    contracts: tuple[ContractState, ...]

    @property
    def pause(self) -> Pause | None:
        """The pause that holds for the route."""
        return self.contracts[0].cells[0].pause

    @property
    def deciding(self) -> ContractState | None:
        """The required contract that the state of the route rests on, None when it requires nothing."""
        first = self.contracts[0]
        return first if first.required else None


def contract_state(cells: Iterable[CellState]) -> ContractState:
    """The state of one contract of one route over its locations; at least one cell.

    Proven where every live location proves it, in part where some do, else the worst of the live ones. A location
    without a live state decides nothing while another one is alive.
    """
    ordered = tuple(sorted(cells, key=_worst_first))
    live = [state for state in ordered if state.shown is not _UNKNOWN] or ordered
    worst, best = live[0].shown, live[-1].shown
    required = stale = False
    for state in ordered:
        required = required or state.row.cell.required
        stale = stale or state.freshness is _STALE
    return ContractState(
        contract=ordered[0].row.cell.contract,
        required=required,
        shown=Shown.IN_PART if best is _PROVEN and worst is not _PROVEN else worst,
        cells=ordered,
        stale=stale,
    )


def _worst_first(state: CellState) -> tuple[int, str]:
    return _PLACE[state.shown], state.row.cell.location


def route_states(rows: Iterable[CellRow], now: datetime, pauses: Iterable[Pause] = ()) -> tuple[RouteState, ...]:
    """The state of every route among `rows` at `now` (the database's clock), worst first, then by name."""
    holding = Pauses(pauses, now)
    by_route: defaultdict[str, defaultdict[str, list[CellState]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_route[row.route.id][row.cell.contract].append(derive(row, now, holding.of(row.route)))
    states = [_route_state(map(contract_state, contracts.values())) for contracts in by_route.values()]
    return tuple(sorted(states, key=lambda s: (_PLACE[s.shown], s.route.name, s.route.id)))


def _route_state(contracts: Iterable[ContractState]) -> RouteState:
    ordered = tuple(sorted(contracts, key=lambda c: (not c.required, _PLACE[c.shown], not c.stale, c.contract)))
    first = ordered[0]
    return RouteState(first.cells[0].row.route, first.shown if first.required else _UNKNOWN, ordered)
