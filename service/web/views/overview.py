"""The overview: a sentence, one row a route, and what routes take beyond what is required of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from service.derive import ContractState, Freshness, RouteState, Shown, route_states
from service.model import Outcome
from service.remedies import first_step, in_words
from service.web import about
from service.web.views.head import Header, header
from service.web.views.words import (
    ABSENT,
    BROKEN,
    NOTHING,
    STATE_WORDS,
    Mark,
    Moment,
    View,
    counted,
    failing,
    is_absent,
    is_stale,
    leading_cell,
    lower,
    mark_of,
    moment,
    nothing_read,
    proof_of,
    route_remedy,
    since_of,
    timing,
    worst_cell,
)


@dataclass(frozen=True)
class RouteLine:
    """One route; `marks` are its required contracts."""

    id: str
    name: str
    model: str
    kind: str
    stale: bool
    words: str
    marks: tuple[Mark, ...]
    since: Moment | None
    proof: Moment | None
    first_token: str | None
    step: str | None


@dataclass(frozen=True)
class Headline:
    """One sentence for 3 a.m.: what can't carry a turn, then what isn't sure."""

    verdict: str
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join((self.verdict, *self.doubts)) + "."


@dataclass(frozen=True)
class MatrixLine:
    """What one route takes, contract by contract; None where it isn't asked."""

    id: str
    name: str
    cells: tuple[Mark | None, ...]


@dataclass(frozen=True)
class Matrix:
    """Routes by the contracts that are informational for any of them."""

    contracts: tuple[str, ...]
    lines: tuple[MatrixLine, ...]


@dataclass(frozen=True)
class Overview:
    """`kind` is the worst state of any route, for the headline's colour."""

    header: Header
    headline: Headline
    title: str
    kind: str
    groups: tuple[tuple[str, tuple[RouteLine, ...]], ...]
    matrix: Matrix


def overview(view: View) -> Overview:
    """All routes, grouped by provider, the worst first in both."""
    states = route_states(view.snapshot.cells, view.now)
    first_seen = {state.route.provider: place for place, state in reversed([*enumerate(states)])}
    by_provider = groupby(
        sorted(states, key=lambda s: first_seen[s.route.provider]),  # stable: worst first within a provider too
        key=lambda s: s.route.provider,
    )
    broken = sum(state.shown in BROKEN for state in states)
    return Overview(
        header=header(view),
        headline=Headline("Nothing is known yet") if nothing_read(view) else headline(states),
        title=f"{broken} of {len(states)} broken" if broken else "Routes",
        kind=states[0].shown.value if states else Shown.UNKNOWN.value,
        groups=tuple(
            (provider, tuple(_line(s, view.now, view.snapshot.now) for s in group)) for provider, group in by_provider
        ),
        matrix=matrix(states),
    )


def matrix(states: Sequence[RouteState]) -> Matrix:
    """What every route takes beyond what is required of it, by name: nothing here makes a route broken.

    A contract that is informational for one route is shown for all that are asked it.
    """
    names = sorted({c.contract for s in states for c in s.contracts if not c.required}, key=about.place)
    lines = []
    for state in sorted(states, key=lambda s: (s.route.name, s.route.id)):
        asked = {contract.contract: _capability(contract) for contract in state.contracts}
        if any(not contract.required for contract in state.contracts):
            lines.append(MatrixLine(state.route.id, state.route.name, tuple(asked.get(name) for name in names)))
    return Matrix(tuple(names), tuple(lines))


def headline(states: Sequence[RouteState]) -> Headline:
    """The state of all routes in one sentence."""
    total = len(states)
    if not total:
        return Headline("No routes are configured")
    shown = Counter(state.shown for state in states)
    unknown = [leading_cell(state) for state in states if state.shown is Shown.UNKNOWN]
    expired = [s for cell in unknown if cell.freshness is Freshness.EXPIRED and (s := cell.row.standing)]
    proofs = sum(standing.outcome is Outcome.PROVEN for standing in expired)
    stale = sum(is_stale(state) for state in states if state.shown is Shown.PROVEN)
    doubts = (
        counted(shown[Shown.IN_PART], "works in some places only", "work in some places only"),
        counted(proofs, "proof expired", "proofs expired"),
        counted(len(expired) - proofs, "verdict expired", "verdicts expired"),
        counted(len(unknown) - len(expired), "not judged yet", "not judged yet"),
        counted(stale, "proof is stale", "proofs are stale"),
    )
    broken = sum(shown[state] for state in BROKEN)
    routes = counted(total, "route", "routes")
    if broken:
        verdict = f"{broken} of {routes} cannot carry a turn"
    elif shown[Shown.PROVEN] == total > 1:
        verdict = f"All {routes} can carry a turn"
    else:
        verdict = f"{shown[Shown.PROVEN]} of {routes} can carry a turn"
    return Headline(verdict, tuple(doubt for doubt in doubts if doubt))


def _capability(contract: ContractState) -> Mark:
    """A cell of the matrix: one or two words, and the rest small."""
    lead = worst_cell(contract)
    standing, newer = lead.row.standing, lead.newer_unproven
    notes = ["stale"] if contract.stale else []
    if contract.shown is Shown.UNKNOWN or standing is None:
        words = "not in this dialect" if is_absent(lead) else "unknown"
        if newer is not None and not is_absent(lead):
            notes.append(lower(in_words(newer.status)))
        elif not is_absent(lead):
            notes.append("expired" if lead.freshness is Freshness.EXPIRED else "not asked yet")
    else:
        words = _CAPABILITY_WORDS.get(standing.status) or lower(in_words(standing.status))
        if contract.shown is Shown.IN_PART:
            notes.append(f"in {failing(contract)}")
    kind = ABSENT if is_absent(lead) else contract.shown.value
    return Mark(contract.contract, kind, contract.stale, words, tuple(notes))


def _line(state: RouteState, now: datetime, read_at: datetime) -> RouteLine:
    lead = leading_cell(state)
    standing = lead.row.standing
    todo = route_remedy(state, read_at)
    proven_at = proof_of(state.deciding or state.contracts[0])
    return RouteLine(
        id=state.route.id,
        name=state.route.name,
        model=state.route.model,
        kind=state.shown.value,
        stale=is_stale(state),
        words=STATE_WORDS[state.shown],
        marks=tuple(mark_of(c) for c in sorted(state.contracts, key=lambda c: about.place(c.contract)) if c.required),
        since=since_of(lead, now),
        proof=moment(proven_at, now) if proven_at else None,
        first_token=timing(standing.time_to_first_token_s) if standing and lead.shown is not Shown.UNKNOWN else None,
        step=None if todo == NOTHING else first_step(todo),
    )


_CAPABILITY_WORDS: Mapping[str, str] = {
    "history_accepted": "accepted",
    "history_rejected": "refused",
    "parallel_calls_supported": "accepted",
}
