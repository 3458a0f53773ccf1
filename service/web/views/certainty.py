"""How sure a state is: the confirmed state, which alerts rest on, beside what was found last."""

from __future__ import annotations

from datetime import datetime

from service.derive import CellState, Shown
from service.web.views.words import FAILED_ONCE, moment


def certainty(state: CellState, now: datetime) -> str | None:
    """`Confirmed broken since 03:08:07 UTC, failing now.` None where nothing is ever confirmed, or not yet in doubt: of
    a contract that isn't required, and of one without a verdict."""
    confirmed = state.row.confirmed
    if not state.row.cell.required or confirmed.last is None:
        return None
    since = moment(confirmed.since, now).clock if confirmed.since else ""
    works, unknown = state.shown is Shown.PROVEN, state.shown is Shown.UNKNOWN
    if confirmed.broken:
        return f"Confirmed broken since {since}: it was flapping and fails again and again{_now(state)}."
    if confirmed.flapping:
        return f"Flapping since {since}: it broke a second time within a day{_now(state)}."
    if confirmed.proven is None:
        return "Nothing is confirmed yet." if works or unknown else f"Nothing is confirmed yet: {_failed(state)}."
    if confirmed.proven:
        return f"Confirmed to work since {since}{_now(state) if unknown else '' if works else f'; {_failed(state)}'}."
    return f"Confirmed broken since {since}{'; proven again, not confirmed yet' if works else _now(state)}."


def _now(state: CellState) -> str:
    if state.shown is Shown.UNKNOWN:
        return "; nothing current is known"
    return ", works now" if state.shown is Shown.PROVEN else ", failing now"


def _failed(state: CellState) -> str:
    run = state.row.confirmed.run
    return FAILED_ONCE if run < 2 else f"failed {run} times, being asked again"
