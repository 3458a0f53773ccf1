"""View models: what a page says, decided here as plain text, so that templates only lay it out.

Pure functions of the board's view. Every text that comes from a provider stays text; the templates escape it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Protocol

from service import metrics
from service.derive import CellState, ContractState, Freshness, RouteState, Shown, route_states
from service.model import CellRow, Outcome, Rung, Standing, Status, StoredVerdict, Transition
from service.quirks import explain
from service.remedies import first_step, in_words, remedy
from service.web import about

STATE_WORDS: Mapping[Shown, str] = {
    Shown.PROVEN: "Works",
    Shown.IN_PART: "Works in part",
    Shown.VIOLATED: "Broken",
    Shown.BLOCKED: "Blocked",
    Shown.UNAVAILABLE: "Unavailable",
    Shown.UNKNOWN: "Unknown",
}
BROKEN = frozenset({Shown.VIOLATED, Shown.BLOCKED, Shown.UNAVAILABLE})
NOTHING = "Nothing to do."
ABSENT = "absent"
"""The kind of a mark where the dialect hasn't what the contract is about: nothing is asked and nothing is missing."""


class View(metrics.View, Protocol):
    """What the board holds at one moment, and how old the data is, in seconds."""

    @property
    def age_s(self) -> float: ...


def nothing_read(view: View) -> bool:
    """Whether no data has been read yet, which is something else than no routes."""
    return not view.database_up and not view.snapshot.cells


# --- pieces -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A time for people: `clock` is short, `iso` whole, `ago` how long it has been."""

    iso: str
    clock: str
    ago: str


@dataclass(frozen=True)
class Header:
    """`banner` is what every page says first when the database can't be reached."""

    as_of: Moment
    data_age: str
    database_up: bool
    banner: str | None


@dataclass(frozen=True)
class Mark:
    """One contract of a route in a few words. `kind` picks the colour and the shape, `words` say the same."""

    contract: str
    kind: str
    stale: bool
    words: str
    notes: tuple[str, ...]


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


@dataclass(frozen=True)
class Ladder:
    at: Moment
    words: str
    rungs: tuple[Rung, ...]


@dataclass(frozen=True)
class CellPanel:
    """One contract from one location, with all that is known of it. `undecided` is a newer unproven verdict.

    `claim` and `more` say what is asked, once for each contract; `use` says whether it is required and how often it
    is asked. `example` is a history that the route takes in place of one that it refused. `open` says that the evidence
    is shown at once.
    """

    mark: Mark
    location: str
    use: str
    claim: str
    more: tuple[str, ...]
    example: str
    status: str | None
    outcome: str | None
    reason: str | None
    rule_id: str | None
    because: str | None
    since: Moment | None
    remedy: str | None
    quirks: tuple[tuple[str, str], ...]
    detail: str
    undecided: str | None
    undecided_detail: str
    facts: tuple[tuple[str, str], ...]
    ladder: Ladder | None
    open: bool


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
class ChangeLine:
    """A change of what a contract that isn't required was found to be. `beside` is what else is known to differ."""

    at: Moment
    contract: str
    location: str
    before: str
    after: str
    kind: str
    beside: str


@dataclass(frozen=True)
class RoutePage:
    """`history` is None when it can't be read now, which is something else than empty."""

    header: Header
    id: str
    name: str
    kind: str
    stale: bool
    words: str
    since: Moment | None
    remedy: str
    marks: tuple[Mark, ...]
    panels: tuple[CellPanel, ...]
    history: tuple[VerdictLine, ...] | None
    changes: tuple[ChangeLine, ...]
    places: bool
    facts: tuple[tuple[str, str], ...]
    check: str


# --- pages ------------------------------------------------------------------------------------------------


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


def route_page(
    view: View,
    route_id: str,
    history: Sequence[StoredVerdict] | None,
    because: Mapping[str, str],
    changes: Sequence[Transition] = (),
) -> RoutePage | None:
    """Everything about one route; None when no such route is configured. `history` and `changes` are newest first."""
    read_at = view.snapshot.now
    rows = [row for row in view.snapshot.cells if row.route.id == route_id]
    if not rows:
        return None
    (state,) = route_states(rows, view.now)
    lead = _lead(state)
    contracts = sorted(state.contracts, key=lambda c: (not c.required, about.place(c.contract)))
    ladders: dict[tuple[str, str], StoredVerdict] = {}
    for stored in history or ():
        ladders.setdefault((stored.contract, stored.location), stored)
    return RoutePage(
        header=header(view),
        id=state.route.id,
        name=state.route.name,
        kind=state.shown.value,
        stale=_stale(state),
        words=_route_words(state),
        since=_since(lead, view.now),
        remedy=_route_remedy(state, read_at),
        marks=tuple(_mark(contract) for contract in contracts),
        panels=tuple(
            _panel(cell, contract, view.now, read_at, because, ladders.get((contract.contract, cell.row.cell.location)))
            for contract in contracts
            for cell in contract.cells
        ),
        history=None if history is None else tuple(_verdict_line(stored, view.now) for stored in history),
        changes=tuple(_change_line(change, view.now) for change in changes),
        places=len({row.cell.location for row in rows}) > 1,
        facts=_route_facts(state, rows),
        check=f"routeproof check -c routeproof.yaml --route {shlex.quote(state.route.id)} --explain",
    )


def header(view: View) -> Header:
    data_age = duration(view.age_s)
    if view.database_up:
        banner = None
    elif nothing_read(view):
        banner = "The database can't be reached, and no data has been read yet."
    else:
        banner = f"The database can't be reached. This is what was known {data_age} ago; it ages and expires meanwhile."
    return Header(moment(view.now, view.now), data_age, view.database_up, banner)


def headline(states: Sequence[RouteState]) -> Headline:
    """The state of all routes in one sentence."""
    total = len(states)
    if not total:
        return Headline("No routes are configured")
    shown = Counter(state.shown for state in states)
    unknown = [_lead(state) for state in states if state.shown is Shown.UNKNOWN]
    expired = [s for cell in unknown if cell.freshness is Freshness.EXPIRED and (s := cell.row.standing)]
    proofs = sum(standing.outcome is Outcome.PROVEN for standing in expired)
    stale = sum(_stale(state) for state in states if state.shown is Shown.PROVEN)
    doubts = (
        _count(shown[Shown.IN_PART], "works in some places only", "work in some places only"),
        _count(proofs, "proof expired", "proofs expired"),
        _count(len(expired) - proofs, "verdict expired", "verdicts expired"),
        _count(len(unknown) - len(expired), "not judged yet", "not judged yet"),
        _count(stale, "proof is stale", "proofs are stale"),
    )
    broken = sum(shown[state] for state in BROKEN)
    routes = _count(total, "route", "routes")
    if broken:
        verdict = f"{broken} of {routes} cannot carry a turn"
    elif shown[Shown.PROVEN] == total > 1:
        verdict = f"All {routes} can carry a turn"
    else:
        verdict = f"{shown[Shown.PROVEN]} of {routes} can carry a turn"
    return Headline(verdict, tuple(doubt for doubt in doubts if doubt))


def cell_remedy(state: CellState, read_at: datetime) -> str:
    """What to do about a cell. A silent prober is the first suspect when nothing new has come for too long.

    Silence is measured when the data was read: what the prober wrote since isn't known while the database is down.
    """
    row, standing, last = state.row, state.row.standing, state.row.last
    if state.shown is not Shown.UNKNOWN and standing is not None and standing.outcome is not Outcome.PROVEN:
        return _remedy(standing, row)
    silent = last is not None and read_at - last.observed_at > row.cell.fresh_for
    overdue = row.next_due_at is not None and read_at - row.next_due_at > row.cell.interval
    if silent or (last is None and overdue):
        since = f"Its last verdict is {duration(read_at - last.observed_at)} old" if last else "It has never been asked"
        return f"Check that the prober in {row.cell.location} runs. {since}, and nothing newer came."
    if state.newer_unproven is not None and (state.shown is Shown.UNKNOWN or state.freshness is Freshness.STALE):
        return _remedy(state.newer_unproven, row)
    if standing is not None and state.shown is not Shown.UNKNOWN:
        return _remedy(standing, row)
    return "Wait for the next probe. Nothing newer is known."


def _remedy(verdict: Standing, row: CellRow) -> str:
    return remedy(verdict.status, verdict.reason, verdict.outcome, row.cell.contract)


def _route_remedy(state: RouteState, read_at: datetime) -> str:
    """What to do about a route: only what it requires may ask for something."""
    if state.deciding is None:
        return "List a contract in the route's required. Until then nothing decides its state."
    return cell_remedy(_lead(state), read_at)


# --- words ------------------------------------------------------------------------------------------------


def duration(length: timedelta | float) -> str:
    """A length of time in one or two units: `2 s`, `4 min`, `3 h 12 min`, `5 days`."""
    seconds = int(length.total_seconds() if isinstance(length, timedelta) else length)
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours = seconds // 60, seconds // 3600
    if hours < 1:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{hours // 24} days"


def moment(at: datetime, now: datetime) -> Moment:
    """`at` in UTC, with the date only when it isn't today's."""
    clock = at.strftime("%H:%M:%S UTC") if at.date() == now.date() else at.strftime("%-d %b %Y, %H:%M UTC")
    return Moment(at.isoformat(timespec="seconds"), clock, duration(now - at))


def timing(seconds: float | None) -> str | None:
    """A measured time: milliseconds below one second."""
    if seconds is None:
        return None
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""


def _cell_words(state: CellState) -> str:
    standing = state.row.standing
    if state.shown is not Shown.UNKNOWN and standing is not None:
        return in_words(standing.status) + (", stale" if state.freshness is Freshness.STALE else "")
    if _absent(state):
        return "Not in this dialect"
    if state.newer_unproven is not None:
        return f"Unknown: {_lower(in_words(state.newer_unproven.status))}"
    if state.freshness is Freshness.EXPIRED and standing is not None:
        return f"Unknown: {'proof' if standing.outcome is Outcome.PROVEN else 'verdict'} expired"
    return "Unknown: not asked yet"


def _absent(state: CellState) -> bool:
    """Whether the route's dialect hasn't what the contract is about."""
    newer = state.newer_unproven
    return state.shown is Shown.UNKNOWN and newer is not None and newer.reason == "not_in_dialect"


def _kind(state: CellState) -> str:
    return ABSENT if _absent(state) else state.shown.value


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _route_words(state: RouteState) -> str:
    if state.deciding is None:
        return "Unknown: no contract is required of it"
    if state.shown is Shown.IN_PART:
        return f"{STATE_WORDS[state.shown]}: {_lower(_cell_words(_lead(state)))} in {_failing(state.deciding)}"
    if state.shown is Shown.PROVEN:
        return STATE_WORDS[state.shown] + (", stale" if _stale(state) else "")
    if state.shown is Shown.UNKNOWN:
        return _cell_words(_lead(state))
    return f"{STATE_WORDS[state.shown]}: {_lower(_cell_words(_lead(state)))}"


def _failing(contract: ContractState) -> str:
    return ", ".join(place for place in contract.live_in if place not in contract.proven_in)


def _lead(state: RouteState) -> CellState:
    """The cell that speaks for a route: the worst of the contract that its state rests on."""
    return _worst_cell(state.deciding or state.contracts[0])


def _worst_cell(contract: ContractState) -> CellState:
    """The worst live cell; a silent location speaks only when all of them are silent."""
    return next((cell for cell in contract.cells if cell.shown is not Shown.UNKNOWN), contract.cells[0])


def _stale(state: RouteState) -> bool:
    return any(contract.stale for contract in state.contracts if contract.required)


def _since(state: CellState, now: datetime) -> Moment | None:
    if state.shown is not Shown.UNKNOWN and state.row.state_since is not None:
        return moment(state.row.state_since, now)
    if state.freshness is Freshness.EXPIRED and state.valid_until is not None and state.valid_until <= now:
        return moment(state.valid_until, now)
    return None


def _proven_at(contract: ContractState) -> datetime | None:
    """When it was last proven: by the place that is furthest behind while all prove it, else by any of them."""
    times = [cell.row.last_proven_at for cell in contract.cells if cell.row.last_proven_at]
    if contract.shown is Shown.PROVEN:
        live = [cell.row.last_proven_at for cell in contract.cells if cell.shown is Shown.PROVEN]
        return min((at for at in live if at), default=None)
    return max(times, default=None)


def _mark(contract: ContractState) -> Mark:
    lead = _worst_cell(contract)
    words = _cell_words(lead)
    notes = []
    if contract.shown is Shown.IN_PART:
        words = f"{words} in {_failing(contract)}"
        notes.append(f"works in {len(contract.proven_in)} of {len(contract.live_in)} places")
    if contract.live_in and contract.silent_in:
        notes.append(f"nothing live from {', '.join(contract.silent_in)}")
    if lead.newer_unproven is not None and lead.shown is not Shown.UNKNOWN:
        notes.append(f"newest probe: {_lower(in_words(lead.newer_unproven.status))}")
    if lead.shown is Shown.PROVEN and lead.row.standing is not None and lead.row.standing.quirks:
        notes.append(_count(len(lead.row.standing.quirks), "quirk", "quirks"))
    return Mark(
        contract=contract.contract,
        kind=ABSENT if _absent(lead) else contract.shown.value,
        stale=contract.stale,
        words=words,
        notes=tuple(notes),
    )


def _capability(contract: ContractState) -> Mark:
    """A cell of the matrix: one or two words, and the rest small."""
    lead = _worst_cell(contract)
    standing, newer = lead.row.standing, lead.newer_unproven
    notes = ["stale"] if contract.stale else []
    if contract.shown is Shown.UNKNOWN or standing is None:
        words = "not in this dialect" if _absent(lead) else "unknown"
        if newer is not None and not _absent(lead):
            notes.append(_lower(in_words(newer.status)))
        elif not _absent(lead):
            notes.append("expired" if lead.freshness is Freshness.EXPIRED else "not asked yet")
    else:
        words = _CAPABILITY_WORDS.get(standing.status) or _lower(in_words(standing.status))
        if contract.shown is Shown.IN_PART:
            notes.append(f"in {_failing(contract)}")
    kind = ABSENT if _absent(lead) else contract.shown.value
    return Mark(contract.contract, kind, contract.stale, words, tuple(notes))


def _line(state: RouteState, now: datetime, read_at: datetime) -> RouteLine:
    lead = _lead(state)
    standing = lead.row.standing
    todo = _route_remedy(state, read_at)
    proven_at = _proven_at(state.deciding or state.contracts[0])
    return RouteLine(
        id=state.route.id,
        name=state.route.name,
        model=state.route.model,
        kind=state.shown.value,
        stale=_stale(state),
        words=STATE_WORDS[state.shown],
        marks=tuple(_mark(c) for c in sorted(state.contracts, key=lambda c: about.place(c.contract)) if c.required),
        since=_since(lead, now),
        proof=moment(proven_at, now) if proven_at else None,
        first_token=timing(standing.time_to_first_token_s) if standing and lead.shown is not Shown.UNKNOWN else None,
        step=None if todo == NOTHING else first_step(todo),
    )


_CAPABILITY_WORDS: Mapping[str, str] = {
    "history_accepted": "accepted",
    "history_rejected": "refused",
    "parallel_calls_supported": "accepted",
}


def _panel(
    state: CellState,
    contract: ContractState,
    now: datetime,
    read_at: datetime,
    because: Mapping[str, str],
    stored: StoredVerdict | None,
) -> CellPanel:
    row, standing, newer = state.row, state.row.standing, state.newer_unproven
    todo = cell_remedy(state, read_at)
    told = about.paragraphs(contract.contract) if state is contract.cells[0] else ()
    refused = standing is not None and standing.status == "history_rejected" and state.shown is not Shown.UNKNOWN
    return CellPanel(
        mark=Mark(
            contract=contract.contract,
            kind=_kind(state),
            stale=state.freshness is Freshness.STALE,
            words=_cell_words(state),
            notes=(),
        ),
        location=row.cell.location,
        use=f"{'required' if contract.required else 'informational'}, asked every {duration(row.cell.interval)}",
        claim=told[0] if told else "",
        more=told[1:],
        example=about.example(contract.contract) if refused else "",
        status=standing.status if standing else None,
        outcome=standing.outcome.value if standing else None,
        reason=standing.reason if standing else None,
        rule_id=standing.rule_id if standing else None,
        because=because.get(standing.rule_id) if standing else None,
        since=_since(state, now),
        remedy=None if todo == NOTHING else todo,
        quirks=tuple((quirk, explain(quirk)) for quirk in standing.quirks) if standing else (),
        detail=_detail(standing, stored) if standing else "",
        undecided=_undecided(newer, now) if newer and not _absent(state) else None,
        undecided_detail=newer.detail if newer else "",
        facts=_cell_facts(state, now),
        ladder=_ladder(stored, now) if stored and stored.rungs else None,
        open=contract.required and state.shown is not Shown.PROVEN,
    )


def _detail(standing: Standing, stored: StoredVerdict | None) -> str:
    """What the provider said to the last request, else to the first one that it refused: a verdict that rests on a
    refusal often ends with a control that was taken."""
    if standing.detail or standing.outcome is Outcome.PROVEN or stored is None or stored.standing.id != standing.id:
        return standing.detail
    return next((rung.detail for rung in stored.rungs if rung.detail), "")


def _undecided(newer: Standing, now: datetime) -> str:
    reason = f" ({newer.reason})" if newer.reason else ""
    return (
        f"The newest probe, {duration(now - newer.observed_at)} ago, decides nothing: "
        f"{_lower(in_words(newer.status))}{reason}."
    )


def _cell_facts(state: CellState, now: datetime) -> tuple[tuple[str, str], ...]:
    row, cell, standing = state.row, state.row.cell, state.row.standing
    facts: list[tuple[str, str | None]] = [("Asked every", duration(cell.interval))]
    facts.append(("Fresh for, expires after", f"{duration(cell.fresh_for)}, {duration(cell.expires_after)}"))
    if standing is not None:
        observed = moment(standing.observed_at, now)
        facts.append(("Observed", f"{observed.clock}, {observed.ago} ago"))
        facts.append(("Valid until", moment(state.valid_until, now).clock if state.valid_until else None))
    proven_at = row.last_proven_at
    facts.append(
        ("Last proof", f"{moment(proven_at, now).clock}, {duration(now - proven_at)} ago" if proven_at else "never")
    )
    facts.append(("Next probe due", moment(row.next_due_at, now).clock if row.next_due_at else None))
    if standing is not None:
        facts.append(("Time to first token", timing(standing.time_to_first_token_s)))
        facts.append(("Duration, requests", f"{timing(standing.duration_s)}, {standing.requests}"))
        facts.append(("Retry after", timing(standing.retry_after_s)))
        facts.append(("Served model", standing.served_model))
        if standing.tokens_in is not None and standing.tokens_out is not None:
            facts.append(("Tokens in, out", f"{standing.tokens_in}, {standing.tokens_out}"))
    facts.append(("Verdicts so far", ", ".join(f"{n} {o.value}" for o in Outcome if (n := row.counts.get(o))) or None))
    return tuple((label, value) for label, value in facts if value)


def _ladder(stored: StoredVerdict, now: datetime) -> Ladder:
    return Ladder(moment(stored.standing.observed_at, now), in_words(stored.standing.status), tuple(stored.rungs))


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


def _change_line(change: Transition, now: datetime) -> ChangeLine:
    differs = (f"{what.replace('_', ' ')} {was['from']} → {was['to']}" for what, was in sorted(change.changed.items()))
    return ChangeLine(
        at=moment(change.at, now),
        contract=change.contract,
        location=change.location,
        before=in_words(change.from_status),
        after=in_words(change.to_status),
        kind=Status(change.to_status).outcome.value if change.to_status in set(Status) else Shown.UNKNOWN.value,
        beside=", ".join(differs),
    )


def _route_facts(state: RouteState, rows: Sequence[CellRow]) -> tuple[tuple[str, str], ...]:
    route = state.route
    required = [contract.contract for contract in state.contracts if contract.required]
    return (
        ("Route id", route.id),
        ("Provider", route.provider),
        ("Dialect", route.dialect),
        ("Model", route.model),
        ("URL", route.url),
        ("Tags", ", ".join(route.tags) or "none"),
        ("Required contracts", ", ".join(required) or "none"),
        ("Locations", ", ".join(sorted({row.cell.location for row in rows}))),
    )
