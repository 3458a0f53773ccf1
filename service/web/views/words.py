"""What all pages say of a state: its words, times, marks and remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from service import metrics
from service.derive import CellState, ContractState, Freshness, RouteState, Shown
from service.model import CellRow, Outcome, Pause, Standing, Status
from service.remedies import in_words, remedy

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


_AT_MOST = 4
"""So many names stand in one line."""


_NOT_SENT: Mapping[str, str] = {
    "budget_spent": "not asked, its budget is spent",
    "paused": "not asked, a pause stops it",
    "credential_missing": "not asked, its key is missing",
}


class View(metrics.View, Protocol):
    """What the board holds at one moment, and how old the data is, in seconds."""

    @property
    def age_s(self) -> float: ...


def nothing_read(view: View) -> bool:
    """Whether no data has been read yet, which is something else than no routes."""
    return not view.database_up and not view.snapshot.cells


@dataclass(frozen=True)
class Moment:
    """A time for people: `clock` is short, `iso` whole, `ago` how long it has been."""

    iso: str
    clock: str
    ago: str


@dataclass(frozen=True)
class Mark:
    """One contract of a route in a few words. `kind` picks the colour and the shape, `words` say the same."""

    contract: str
    kind: str
    stale: bool
    words: str
    notes: tuple[str, ...]


def cell_remedy(state: CellState, read_at: datetime) -> str:
    """What to do about a cell. A silent prober is the first suspect when nothing new has come for too long, and nobody
    meant it so.

    Silence is measured when the data was read: what the prober wrote since isn't known while the database is down.
    """
    row, standing, last = state.row, state.row.standing, state.row.last
    if state.shown is not Shown.UNKNOWN and standing is not None and standing.outcome is not Outcome.PROVEN:
        return remedy_of(standing, row)
    silent = last is not None and read_at - last.observed_at > row.cell.fresh_for and not _is_meant(row, read_at)
    overdue = row.next_due_at is not None and read_at - row.next_due_at > row.cell.interval
    if silent or (last is None and overdue):
        since = f"Its last verdict is {duration(read_at - last.observed_at)} old" if last else "It has never been asked"
        return f"Check that the prober in {row.cell.location} runs. {since}, and nothing newer came."
    if state.newer_unproven is not None and (state.shown is Shown.UNKNOWN or state.freshness is Freshness.STALE):
        return remedy_of(state.newer_unproven, row)
    if standing is not None and state.shown is not Shown.UNKNOWN:
        return remedy_of(standing, row)
    return "Wait for the next probe. Nothing newer is known."


def _is_meant(row: CellRow, read_at: datetime) -> bool:
    """Whether the next probe is planned for later: a budget stretches intervals up to the edge of expiry, and a spent
    one, or a pause, may hold back all probes for days."""
    if row.next_due_at is None or row.next_due_at <= read_at or row.last is None:
        return False
    return row.last.status == Status.NOT_SENT or read_at - row.last.observed_at <= row.cell.expires_after


def remedy_of(verdict: Standing, row: CellRow) -> str:
    return remedy(verdict.status, verdict.reason, verdict.outcome, row.cell.contract)


def route_remedy(state: RouteState, read_at: datetime) -> str:
    """What to do about a route: only what it requires may ask for something."""
    if state.deciding is None:
        return "List a contract in the route's required. Until then nothing decides its state."
    return cell_remedy(leading_cell(state), read_at)


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


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""


def cell_words(state: CellState) -> str:
    standing = state.row.standing
    if state.shown is not Shown.UNKNOWN and standing is not None:
        return in_words(standing.status) + (", stale" if state.freshness is Freshness.STALE else "")
    if is_absent(state):
        return "Not in this dialect"
    if state.newer_unproven is not None:
        return f"Unknown: {unproven_words(state.newer_unproven)}"
    if state.freshness is Freshness.EXPIRED and standing is not None:
        return f"Unknown: {'proof' if standing.outcome is Outcome.PROVEN else 'verdict'} expired"
    return "Unknown: not asked yet"


def unproven_words(verdict: Standing) -> str:
    """What a verdict that proves nothing says: of what wasn't sent, why."""
    return _NOT_SENT.get(verdict.reason or "") or lower(in_words(verdict.status))


def is_absent(state: CellState) -> bool:
    """Whether the route's dialect hasn't what the contract is about."""
    newer = state.newer_unproven
    return state.shown is Shown.UNKNOWN and newer is not None and newer.reason == "not_in_dialect"


def kind_of(state: CellState) -> str:
    return ABSENT if is_absent(state) else state.shown.value


def lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def route_words(state: RouteState) -> str:
    if state.deciding is None:
        return "Unknown: no contract is required of it"
    if state.shown is Shown.IN_PART:
        return f"{STATE_WORDS[state.shown]}: {lower(cell_words(leading_cell(state)))} in {failing(state.deciding)}"
    if state.shown is Shown.PROVEN:
        return STATE_WORDS[state.shown] + (", stale" if is_stale(state) else "")
    if state.shown is Shown.UNKNOWN:
        return cell_words(leading_cell(state))
    return f"{STATE_WORDS[state.shown]}: {lower(cell_words(leading_cell(state)))}"


def failing(contract: ContractState) -> str:
    return some_places([place for place in contract.live_in if place not in contract.proven_in])


def some_places(names: Sequence[str]) -> str:
    """`a, b`; of many the first ones and how many more."""
    few = names if len(names) <= _AT_MOST else names[: _AT_MOST - 1]
    rest = len(names) - len(few)
    return ", ".join(few) + (f" and {rest} more" if rest else "")


def leading_cell(state: RouteState) -> CellState:
    """The cell that speaks for a route: the worst of the contract that its state rests on."""
    return worst_cell(state.deciding or state.contracts[0])


def worst_cell(contract: ContractState) -> CellState:
    """The worst live cell; a silent location speaks only when all of them are silent."""
    return next((cell for cell in contract.cells if cell.shown is not Shown.UNKNOWN), contract.cells[0])


def muted_words(pause: Pause, now: datetime) -> str:
    """`muted until 04:00:00 UTC`: nobody is alerted; `not asked` where probing stops too."""
    return f"muted{' and not asked' if pause.stops else ''} until {moment(pause.until, now).clock}"


def is_stale(state: RouteState) -> bool:
    return any(contract.stale for contract in state.contracts if contract.required)


def since_of(state: CellState, now: datetime) -> Moment | None:
    if state.shown is not Shown.UNKNOWN and state.row.state_since is not None:
        return moment(state.row.state_since, now)
    if state.freshness is Freshness.EXPIRED and state.valid_until is not None and state.valid_until <= now:
        return moment(state.valid_until, now)
    return None


def proof_of(contract: ContractState) -> datetime | None:
    """When it was last proven: by the place that is furthest behind while all prove it, else by any of them."""
    times = [cell.row.last_proven_at for cell in contract.cells if cell.row.last_proven_at]
    if contract.shown is Shown.PROVEN:
        live = [cell.row.last_proven_at for cell in contract.cells if cell.shown is Shown.PROVEN]
        return min((at for at in live if at), default=None)
    return max(times, default=None)


def mark_of(contract: ContractState) -> Mark:
    lead = worst_cell(contract)
    words = cell_words(lead)
    notes = []
    if contract.shown is Shown.IN_PART:
        words = f"{words} in {failing(contract)}"
        notes.append(f"works in {len(contract.proven_in)} of {len(contract.live_in)} places")
    if contract.live_in and contract.silent_in:
        notes.append(f"nothing live from {some_places(contract.silent_in)}")
    if lead.newer_unproven is not None and lead.shown is not Shown.UNKNOWN:
        notes.append(f"newest probe: {unproven_words(lead.newer_unproven)}")
    if lead.shown is Shown.PROVEN and lead.row.standing is not None and lead.row.standing.quirks:
        notes.append(counted(len(lead.row.standing.quirks), "quirk", "quirks"))
    return Mark(
        contract=contract.contract,
        kind=ABSENT if is_absent(lead) else contract.shown.value,
        stale=contract.stale,
        words=words,
        notes=tuple(notes),
    )
