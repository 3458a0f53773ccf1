"""How sure a state is: the confirmed state, which alerts rest on, beside what was found last."""

from __future__ import annotations

from datetime import datetime

from service.derive import CellState, Shown
from service.model import Outcome
from service.web.views.words import moment

FAILED_ONCE = "failed once, being asked again"


def doubt(state: CellState) -> str | None:
    """What the confirmed state of a cell adds to what was found last; None where both say the same, and where nothing
    is ever confirmed: of a contract that isn't required."""
    confirmed = state.row.confirmed
    if not state.row.cell.required:
        return None
    if confirmed.broken:
        return "was flapping, fails again and again"
    if confirmed.flapping:
        return "flapping"
    if confirmed.last is None or state.shown is Shown.UNKNOWN:
        return None
    counted, works = confirmed.last.outcome is Outcome.PROVEN, state.shown is Shown.PROVEN
    if counted is not works:  # what was found last doesn't count, like a rate limit
        return None
    if confirmed.proven is False:
        return "proven again, not confirmed yet" if works else None
    if works:
        return None
    return FAILED_ONCE if confirmed.run < 2 else f"failed {confirmed.run} times, being asked again"


def certainty(state: CellState, now: datetime) -> str | None:
    """The same in a sentence: `Confirmed broken since 03:08:07 UTC, failing now.` None also of a cell without a
    verdict."""
    confirmed = state.row.confirmed
    if not state.row.cell.required or confirmed.last is None:
        return None
    since = moment(confirmed.since, now).clock if confirmed.since else ""
    if confirmed.broken:
        return f"Confirmed broken since {since}: it was flapping and fails again and again{_now(state)}."
    if confirmed.flapping:
        return f"Flapping since {since}: it broke a second time within a day{_now(state)}."
    doubted = doubt(state)
    if confirmed.proven is None:
        return f"Nothing is confirmed yet: {doubted}." if doubted else "Nothing is confirmed yet."
    if confirmed.proven:
        agreed = _now(state, works="", fails="; what was found last doesn't count against it")
        return f"Confirmed to work since {since}{f'; {doubted}' if doubted else agreed}."
    return f"Confirmed broken since {since}{f'; {doubted}' if doubted else _now(state)}."


def _now(state: CellState, works: str = ", works now", fails: str = ", failing now") -> str:
    if state.shown is Shown.UNKNOWN:
        return "; nothing current is known"
    return works if state.shown is Shown.PROVEN else fails
