"""The page of one route: its state, the evidence for it, and its past."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from service.derive import CellState, ContractState, Freshness, RouteState, Shown, route_states
from service.model import CellRow, Outcome, Rung, Standing, Status, StoredVerdict, Transition
from service.quirks import explain
from service.remedies import in_words
from service.web import about
from service.web.views.head import Header, header
from service.web.views.words import (
    NOTHING,
    Mark,
    Moment,
    View,
    cell_remedy,
    cell_words,
    duration,
    is_absent,
    is_stale,
    kind_of,
    leading_cell,
    lower,
    mark_of,
    moment,
    route_remedy,
    route_words,
    since_of,
    timing,
)


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
    lead = leading_cell(state)
    contracts = sorted(state.contracts, key=lambda c: (not c.required, about.place(c.contract)))
    ladders: dict[tuple[str, str], StoredVerdict] = {}
    for stored in history or ():
        ladders.setdefault((stored.contract, stored.location), stored)
    return RoutePage(
        header=header(view),
        id=state.route.id,
        name=state.route.name,
        kind=state.shown.value,
        stale=is_stale(state),
        words=route_words(state),
        since=since_of(lead, view.now),
        remedy=route_remedy(state, read_at),
        marks=tuple(mark_of(contract) for contract in contracts),
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
            kind=kind_of(state),
            stale=state.freshness is Freshness.STALE,
            words=cell_words(state),
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
        since=since_of(state, now),
        remedy=None if todo == NOTHING else todo,
        quirks=tuple((quirk, explain(quirk)) for quirk in standing.quirks) if standing else (),
        detail=_detail(standing, stored) if standing else "",
        undecided=_undecided(newer, now) if newer and not is_absent(state) else None,
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
        f"{lower(in_words(newer.status))}{reason}."
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
