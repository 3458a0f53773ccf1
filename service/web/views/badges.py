"""What badges say of a route: names and states only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from service.derive import RouteState, Shown
from service.gate import fresh_until
from service.web.charts import percent
from service.web.views.words import STATE_WORDS, is_stale

LONGEST_S = 60
"""A badge may be shown unasked for so long."""


@dataclass(frozen=True)
class Badge:
    """Label, message, and the kind that picks its looks; for how many seconds it may be shown unasked."""

    label: str
    message: str
    kind: str
    holds_s: int = LONGEST_S


NO_SUCH_ROUTE = Badge("routeproof", "no such route", Shown.UNKNOWN.value)


def status_badge(state: RouteState, now: datetime) -> Badge:
    """The state of the route. It is asked for anew before age alone can change it."""
    stale = is_stale(state)
    message = STATE_WORDS[state.shown].lower() + (", stale" if stale else "")
    return Badge(
        label=state.route.name,
        message=message + (", muted" if state.pause else ""),
        kind="stale" if stale and state.shown is Shown.PROVEN else state.shown.value,
        holds_s=min((int((at - now).total_seconds()) for at in _turns(state, now)), default=LONGEST_S),
    )


def share_badge(state: RouteState, counts: tuple[int, int]) -> Badge:
    """How much of the last day was proven: of `counts`, the proven and all that count for or against."""
    proven, judged = counts
    if not judged:
        return Badge(f"{state.route.name}, 24 h", "no data", Shown.UNKNOWN.value)
    kind = Shown.PROVEN if proven == judged else Shown.IN_PART if proven else Shown.VIOLATED
    return Badge(f"{state.route.name}, 24 h", f"{percent(proven, judged)} proven", kind.value)


def _turns(state: RouteState, now: datetime) -> Iterator[datetime]:
    """When it may change by age alone, if that is soon."""
    for contract in state.contracts:
        for cell in contract.cells if contract.required else ():
            for at in (fresh_until(cell), cell.valid_until):
                if at is not None and now <= at and (at - now).total_seconds() < LONGEST_S:
                    yield at
