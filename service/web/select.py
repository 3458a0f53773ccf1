"""Which routes a page or a call is about: filters and orders, the same in both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.derive import WORST_FIRST, CellState, RouteState, Shown


class Order(StrEnum):
    """`worst`: the worst state first, then by name. `id`: by id, which stays the same while states change."""

    WORST = "worst"
    ID = "id"


@dataclass(frozen=True)
class Selection:
    """What routes are asked for; what isn't given matches all.

    `q` is a part of name, id or model, whatever its case. A route has all of `tags`, and one of `outcomes`: its own, or
    where `contract` or `location` is given that of a cell of these.
    """

    q: str = ""
    provider: str | None = None
    outcomes: frozenset[Shown] = frozenset()
    tags: frozenset[str] = frozenset()
    contract: str | None = None
    location: str | None = None

    def matches(self, state: RouteState) -> bool:
        route = state.route
        text = self.q.casefold()
        if text and not any(text in part.casefold() for part in (route.name, route.id, route.model)):
            return False
        if self.provider not in (None, route.provider) or not self.tags <= set(route.tags):
            return False
        if self.contract is None and self.location is None:
            return not self.outcomes or state.shown in self.outcomes
        return any(not self.outcomes or cell.shown in self.outcomes for cell in self._cells(state))

    def _cells(self, state: RouteState) -> Iterable[CellState]:
        for contract in state.contracts:
            for cell in contract.cells:
                here = self.location in (None, cell.row.cell.location)
                if here and self.contract in (None, contract.contract):
                    yield cell


def place(order: Order) -> Callable[[RouteState], tuple[int, str, str]]:
    """The key by which routes are put in this order: unique to a route."""
    if order is Order.ID:
        return lambda state: (0, "", state.route.id)
    return lambda state: (WORST_FIRST.index(state.shown), state.route.name, state.route.id)
