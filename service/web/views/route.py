"""The page of one route: its state, the evidence for it, and its past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from urllib.parse import quote
from uuid import UUID

from service.derive import CellState, RouteState, route_states
from service.model import Pause, Route, Span, Spend, StoredVerdict, Transition
from service.remedies import in_words
from service.web import about
from service.web.views.certainty import certainty
from service.web.views.compare import wanted
from service.web.views.configuration import Lines, lines, route_facts
from service.web.views.head import Header, header
from service.web.views.panel import CellPanel, panel
from service.web.views.past import WINDOW, WINDOWS, Past, Window, past
from service.web.views.scope import scope
from service.web.views.spending import spending
from service.web.views.transitions import ChangeLine, change_line
from service.web.views.words import (
    Mark,
    Moment,
    View,
    is_stale,
    leading_cell,
    lower,
    mark_of,
    moment,
    muted_words,
    route_remedy,
    route_words,
    since_of,
    timing,
)

PLACES = 3
"""Of so many places a page shows what there is to say of a contract; the others are folded."""


@dataclass(frozen=True)
class Known:
    """What was read of a route's past: its newest verdicts and changes, newest first; verdicts that the page speaks of
    (see `spoken_of`); and the spans of one contract's window."""

    verdicts: Sequence[StoredVerdict] = ()
    changes: Sequence[Transition] = ()
    spoken_of: Sequence[StoredVerdict] = ()
    spans: Sequence[Span] = ()


@dataclass(frozen=True)
class VerdictLine:
    at: Moment
    contract: str
    location: str
    kind: str
    words: str
    reason: str | None
    rule_id: str
    first_token: str | None
    duration: str


@dataclass(frozen=True)
class RoutePage:
    """`history`, `changes` and `past` are None when they can't be read now, which is something else than empty.

    `sure` is what is confirmed, `scope` how far a failure reaches, `muted` the pause that holds.
    """

    header: Header
    id: str
    name: str
    kind: str
    stale: bool
    words: str
    since: Moment | None
    sure: str | None
    scope: str | None
    muted: str | None
    remedy: str
    status_url: str | None
    provider: str
    marks: tuple[Mark, ...]
    panels: tuple[CellPanel, ...]
    past: Past | None
    history: tuple[VerdictLine, ...] | None
    changes: tuple[ChangeLine, ...] | None
    places: bool
    facts: tuple[tuple[str, str], ...]
    spending: tuple[tuple[str, str], ...]
    lines: Lines

    @property
    def folded(self) -> Iterator[tuple[Sequence[CellPanel], Sequence[CellPanel], str]]:
        """The panels by contract: those of a few places, the worst first, the rest, and the rest in words."""
        for _, panels in groupby(self.panels, key=lambda panel: panel.mark.contract):
            few, more = (every := list(panels))[:PLACES], every[PLACES:]
            told = Counter(lower(panel.mark.words) for panel in more)
            yield few, more, "; ".join(f"{words}: {count}" for words, count in told.most_common())


def state_of(view: View, route_id: str) -> RouteState | None:
    """The state of one route now; None when no such route is configured."""
    rows = [row for row in view.snapshot.cells if row.route.id == route_id]
    return route_states(rows, view.now, view.snapshot.pauses)[0] if rows else None


def spoken_of(state: RouteState) -> list[tuple[datetime, UUID]]:
    """Times and ids of the verdicts that the page shows the requests of."""
    keys = set()
    for contract in state.contracts:
        for cell in contract.cells:
            keys |= {(each.observed_at, each.id) for each in (cell.row.last, cell.row.standing) if each is not None}
            keys |= {(mark.observed_at, mark.id) for mark in wanted(cell.row.confirmed)}
    return sorted(keys)


def contract_asked(state: RouteState, name: str) -> str:
    """The contract whose past is shown: that of this name, else the one that decides."""
    names = [contract.contract for contract in state.contracts]
    return name if name in names else names[0]


def route_page(
    view: View,
    state: RouteState,
    known: Known | None,
    because: Mapping[str, str],
    *,
    window: Window = WINDOWS[WINDOW],
    contract: str = "",
    route: Route | None = None,
) -> RoutePage:
    """Everything about one route. `known` is None when the past can't be read now, `route` when this process isn't
    configured with it."""
    now, read_at = view.now, view.snapshot.now
    rows = [cell.row for each in state.contracts for cell in each.cells]
    lead = leading_cell(state)
    contracts = sorted(state.contracts, key=lambda c: (not c.required, about.place(c.contract)))
    kept = {stored.standing.id: stored for stored in known.spoken_of} if known else {}
    names = [each.contract for each in contracts]
    places = {row.cell.location for row in rows}
    page = f"/routes/{quote(state.route.id, safe='')}"
    return RoutePage(
        header=header(view),
        id=state.route.id,
        name=state.route.name,
        kind=state.shown.value,
        stale=is_stale(state),
        words=route_words(state),
        since=since_of(lead, now),
        sure=_sure(lead, now, several=len(places) > 1),
        scope=scope(state, view.snapshot.cells, now),
        muted=_muted(state.pause, now),
        remedy=route_remedy(state, read_at),
        status_url=state.route.status_url,
        provider=state.route.provider,
        marks=tuple(mark_of(each) for each in contracts),
        panels=tuple(panel(cell, each, now, read_at, because, kept) for each in contracts for cell in each.cells),
        past=past(known.spans, window, now, contract_asked(state, contract), names, page) if known else None,
        history=tuple(_verdict_line(stored, now) for stored in known.verdicts) if known else None,
        changes=tuple(change_line(change, now, state.route.name) for change in known.changes) if known else None,
        places=len(places) > 1,
        facts=tuple(route_facts(state, rows, route)),
        spending=tuple(spending(state.route, view.snapshot.spends.get(state.route.id, Spend()))),
        lines=lines(state.route.id, route),
    )


def _sure(lead: CellState, now: datetime, *, several: bool) -> str | None:
    """What is confirmed of the cell that speaks for the route; of several places it is that of one."""
    said = certainty(lead, now)
    return f"From {lead.row.cell.location}: {lower(said)}" if said and several else said


def _muted(pause: Pause | None, now: datetime) -> str | None:
    if pause is None:
        return None
    by, why = f" by {pause.by}" if pause.by else "", f": {pause.reason}" if pause.reason else ""
    words = muted_words(pause, now)
    return f"{words[:1].upper()}{words[1:]}{by}{why}."


def _verdict_line(stored: StoredVerdict, now: datetime) -> VerdictLine:
    verdict = stored.standing
    return VerdictLine(
        at=moment(verdict.observed_at, now),
        contract=stored.contract,
        location=stored.location,
        kind=verdict.outcome.value,
        words=in_words(verdict.status),
        reason=verdict.reason,
        rule_id=verdict.rule_id,
        first_token=timing(verdict.time_to_first_token_s),
        duration=timing(verdict.duration_s) or "",
    )
