"""One contract from one location on the page of a route: its state, the evidence for it, its times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from service.derive import CellState, ContractState, Freshness, Shown
from service.model import CellRow, Outcome, Rung, Standing, StoredVerdict
from service.quirks import explain
from service.remedies import in_words
from service.web import about
from service.web.views.certainty import certainty
from service.web.views.compare import Comparison, comparison
from service.web.views.words import (
    NOTHING,
    Mark,
    Moment,
    cell_remedy,
    cell_words,
    duration,
    is_absent,
    kind_of,
    lower,
    moment,
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
    is asked. `sure` is what is confirmed of it. `example` is a history that the route takes in place of one that it
    refused. `open` says that the evidence is shown at once.
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
    sure: str | None
    remedy: str | None
    quirks: tuple[tuple[str, str], ...]
    detail: str
    undecided: str | None
    undecided_detail: str
    facts: tuple[tuple[str, str], ...]
    ladder: Ladder | None
    comparison: Comparison | None
    open: bool


def panel(
    state: CellState,
    contract: ContractState,
    now: datetime,
    read_at: datetime,
    because: Mapping[str, str],
    kept: Mapping[UUID, StoredVerdict],
) -> CellPanel:
    """The panel of a cell; `kept` are verdicts of history by id."""
    row, standing, newer = state.row, state.row.standing, state.newer_unproven
    todo = cell_remedy(state, read_at)
    told = about.paragraphs(contract.contract) if state is contract.cells[0] else ()
    refused = standing is not None and standing.status == "history_rejected" and state.shown is not Shown.UNKNOWN
    last = kept.get(row.last.id) if row.last else None
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
        sure=certainty(state, now),
        remedy=None if todo == NOTHING else todo,
        quirks=tuple((quirk, explain(quirk)) for quirk in standing.quirks) if standing else (),
        detail=_detail(standing, kept.get(standing.id)) if standing else "",
        undecided=_undecided(newer, now) if newer and not is_absent(state) else None,
        undecided_detail=newer.detail if newer else "",
        facts=tuple((label, value) for label, value in _facts(state, now) if value),
        ladder=_ladder(last, now) if last and last.rungs else None,
        comparison=comparison(row.confirmed, kept, now),
        open=contract.required and state.shown is not Shown.PROVEN,
    )


def _detail(standing: Standing, stored: StoredVerdict | None) -> str:
    """What the provider said to the last request, else to the first one that it refused: a verdict that rests on a
    refusal often ends with a control that was taken."""
    if standing.detail or standing.outcome is Outcome.PROVEN or stored is None:
        return standing.detail
    return next((rung.detail for rung in stored.rungs if rung.detail), "")


def _undecided(newer: Standing, now: datetime) -> str:
    reason = f" ({newer.reason})" if newer.reason else ""
    return (
        f"The newest probe, {duration(now - newer.observed_at)} ago, decides nothing: "
        f"{lower(in_words(newer.status))}{reason}."
    )


def _facts(state: CellState, now: datetime) -> Iterator[tuple[str, str | None]]:
    row, cell, standing = state.row, state.row.cell, state.row.standing
    yield "Asked every", _rhythm(row)
    yield "Last asked", _clock_and_ago(row.last.observed_at if row.last else None, now)
    yield "Next probe due", moment(row.next_due_at, now).clock if row.next_due_at else None
    yield "Fresh for, expires after", f"{duration(cell.fresh_for)}, {duration(cell.expires_after)}"
    if standing is not None:
        yield "Observed", _clock_and_ago(standing.observed_at, now)
        yield "Valid until", moment(state.valid_until, now).clock if state.valid_until else None
    yield "Last proof", _clock_and_ago(row.last_proven_at, now) or "never"
    if standing is not None:
        yield "Time to first token", timing(standing.time_to_first_token_s)
        yield "Duration, requests", f"{timing(standing.duration_s)}, {standing.requests}"
        yield "Served model", standing.served_model
        if standing.tokens_in is not None and standing.tokens_out is not None:
            yield "Tokens in, out", f"{standing.tokens_in}, {standing.tokens_out}"
    if row.last is not None and row.last.retry_after_s is not None:
        yield "The provider asked to wait", timing(row.last.retry_after_s)
    yield "Verdicts so far", ", ".join(f"{n} {o.value}" for o in Outcome if (n := row.counts.get(o))) or None


def _rhythm(row: CellRow) -> str:
    cell, left = row.cell, row.confirmed.askings_left
    often = cell.required and left > 0 and cell.route_interval and cell.route_interval < cell.interval
    if not often:
        return duration(cell.interval)
    times = "once more" if left == 1 else f"{left} times more"
    return f"{duration(cell.route_interval)} {times}, since it broke; then {duration(cell.interval)}"


def _clock_and_ago(at: datetime | None, now: datetime) -> str | None:
    return f"{moment(at, now).clock}, {duration(now - at)} ago" if at else None


def _ladder(stored: StoredVerdict, now: datetime) -> Ladder:
    return Ladder(moment(stored.standing.observed_at, now), in_words(stored.standing.status), stored.rungs)
