"""The overview, put together: a sentence, one row a route, and what routes take beyond what is required of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from service.derive import RouteState, Shown, route_states
from service.model import Snapshot
from service.remedies import first_step
from service.web import about
from service.web.charts import percent
from service.web.last_day import Day
from service.web.views.asked import Asked
from service.web.views.certainty import doubt
from service.web.views.head import Header, header
from service.web.views.headline import Headline, headline
from service.web.views.listing import (
    FOLDED_FROM,
    PROVIDERS,
    Filters,
    Pages,
    ProviderLine,
    filters_of,
    page_of,
    providers_of,
    rank,
    select,
    worst_of,
)
from service.web.views.matrix import Matrix, matrix
from service.web.views.words import (
    BROKEN,
    NOTHING,
    STATE_WORDS,
    Mark,
    Moment,
    View,
    is_stale,
    leading_cell,
    mark_of,
    moment,
    muted_words,
    nothing_read,
    proof_of,
    route_remedy,
    since_of,
    timing,
)


@dataclass(frozen=True)
class Share:
    """How many of the last day's verdicts that count were proven: `97.9 %`, `281 of 287`."""

    percent: str
    numbers: str


@dataclass(frozen=True)
class RouteLine:
    """One route; `marks` are its required contracts. `sure` is what its confirmed state adds, `muted` the pause that
    holds. `first_tokens` are the last day's medians in seconds, oldest first."""

    id: str
    name: str
    provider: str
    model: str
    kind: str
    stale: bool
    words: str
    sure: str | None
    muted: str | None
    marks: tuple[Mark, ...]
    since: Moment | None
    proof: Moment | None
    first_token: str | None
    first_tokens: tuple[float | None, ...]
    share: Share | None
    step: str | None


@dataclass(frozen=True)
class Overview:
    """`kind` is the worst state of any route that isn't muted, for the headline's colour. `providers` are there when
    they are folded, and then the only group has no name. `filters` is None where there is nothing to choose from."""

    header: Header
    headline: Headline
    title: str
    kind: str
    groups: tuple[tuple[str, tuple[RouteLine, ...]], ...]
    matrix: Matrix
    providers: tuple[ProviderLine, ...] = ()
    more_providers: int = 0
    filters: Filters | None = None
    pages: Pages | None = None
    found: int = 0


def overview(
    view: View,
    asked: Asked = Asked(),  # noqa: B008 - frozen
    day: Day = Day(),  # noqa: B008 - frozen
    states: Sequence[RouteState] | None = None,
    *,
    reads: bool = True,
) -> Overview:
    """The routes that are asked for, by provider, the worst first in both. The sentence is about all routes.

    `states` are `deciding_states` where they are at hand. Without `reads` the head says less.
    """
    if states is None:
        states = deciding_states(view.snapshot, view.now)
    found = select(sorted(states, key=rank), asked)
    folded = len(found) > FOLDED_FROM and not asked.provider
    if not folded:
        first_seen = {s.route.provider: place for place, s in reversed([*enumerate(found)])}
        found.sort(key=lambda s: first_seen[s.route.provider])  # stable: worst first within a provider too
    start, pages = page_of(len(found), asked)
    shown = found[start : start + asked.size]
    lines = [(s, _line(s, view.now, view.snapshot.now, day)) for s in shown]
    by_provider = groupby(lines, key=lambda pair: "" if folded else pair[0].route.provider)
    broken = sum(state.shown in BROKEN for state in states if state.pause is None)
    providers = providers_of(found, asked) if folded else []
    return Overview(
        header=header(view, reads=reads),
        headline=Headline("Nothing is known yet") if nothing_read(view) else headline(states),
        title=f"{broken} of {len(states)} broken" if broken else "Routes",
        kind=worst_of(states).value,
        groups=tuple((provider, tuple(line for _, line in pairs)) for provider, pairs in by_provider),
        matrix=matrix(_whole(shown, view)),
        providers=tuple(providers[:PROVIDERS]),
        more_providers=max(0, len(providers) - PROVIDERS),
        filters=filters_of(states, asked) if states else None,
        pages=pages,
        found=len(found),
    )


def deciding_states(snapshot: Snapshot, now: datetime) -> tuple[RouteState, ...]:
    """The state of all routes, worst first, by the contracts that decide it: those required, or where none is, all.

    What is informational is derived only of the routes that a page shows: it can be most of ten thousand cells.
    """
    decided = {row.route.id for row in snapshot.cells if row.cell.required}
    rows = (row for row in snapshot.cells if row.cell.required or row.route.id not in decided)
    return route_states(rows, now, snapshot.pauses)


def _whole(shown: Sequence[RouteState], view: View) -> Sequence[RouteState]:
    wanted = {state.route.id for state in shown}
    rows = (row for row in view.snapshot.cells if row.route.id in wanted)
    return route_states(rows, view.now, view.snapshot.pauses)


def _line(state: RouteState, now: datetime, read_at: datetime, day: Day) -> RouteLine:
    lead = leading_cell(state)
    standing = lead.row.standing
    todo = route_remedy(state, read_at)
    proven_at = proof_of(state.deciding or state.contracts[0])
    return RouteLine(
        id=state.route.id,
        name=state.route.name,
        provider=state.route.provider,
        model=state.route.model,
        kind=state.shown.value,
        stale=is_stale(state),
        words=STATE_WORDS[state.shown],
        sure=doubt(lead),
        muted=muted_words(state.pause, now) if state.pause else None,
        marks=tuple(mark_of(c) for c in sorted(state.contracts, key=lambda c: about.place(c.contract)) if c.required),
        since=since_of(lead, now),
        proof=moment(proven_at, now) if proven_at else None,
        first_token=timing(standing.time_to_first_token_s) if standing and lead.shown is not Shown.UNKNOWN else None,
        first_tokens=_a_line(day.first_tokens.get(state.route.id, ())),
        share=_share(day.shares.get(state.route.id, (0, 0))),
        step=None if todo == NOTHING else first_step(todo),
    )


def _a_line(medians: Sequence[float | None]) -> tuple[float | None, ...]:
    """Nothing of a single hour: one point is no line, and the newest time says as much."""
    return tuple(medians) if len(medians) - medians.count(None) > 1 else ()


def _share(counts: tuple[int, int]) -> Share | None:
    proven, judged = counts
    written = percent(proven, judged)
    return Share(written, f"{proven} of {judged}") if written else None
