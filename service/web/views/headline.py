"""The sentence on top of the overview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from service.derive import CellState, Freshness, RouteState, Shown
from service.model import Outcome, Status
from service.web.views.certainty import FAILED_ONCE, doubt
from service.web.views.words import (
    BROKEN,
    counted,
    is_stale,
    leading_cell,
)


@dataclass(frozen=True)
class Headline:
    """One sentence for 3 a.m.: what can't carry a turn, then what isn't sure."""

    verdict: str
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join((self.verdict, *self.doubts)) + "."


def headline(states: Sequence[RouteState]) -> Headline:
    """The state of all routes in one sentence. What is muted is no alarm: it is told last."""
    total = len(states)
    if not total:
        return Headline("No routes are configured")
    loud = [state for state in states if state.pause is None]
    shown = Counter(state.shown for state in loud)
    unknown = [leading_cell(state) for state in loud if state.shown is Shown.UNKNOWN]
    expired = [s for cell in unknown if cell.freshness is Freshness.EXPIRED and (s := cell.row.standing)]
    proofs = sum(standing.outcome is Outcome.PROVEN for standing in expired)
    undecided = sum(map(_undecided, unknown))
    stale = sum(is_stale(state) for state in loud if state.shown is Shown.PROVEN)
    unconfirmed = sum(doubt(leading_cell(state)) == FAILED_ONCE for state in loud if state.shown in BROKEN)
    muted = sum(state.shown is not Shown.PROVEN for state in states if state.pause is not None)
    doubts = (
        counted(
            unconfirmed, "of them failed once and is being asked again", "of them failed once and are being asked again"
        ),
        counted(shown[Shown.IN_PART], "works in some places only", "work in some places only"),
        counted(proofs, "proof expired", "proofs expired"),
        counted(len(expired) - proofs, "verdict expired", "verdicts expired"),
        counted(undecided, "undecided", "undecided"),
        counted(len(unknown) - len(expired) - undecided, "not asked yet", "not asked yet"),
        counted(stale, "proof is stale", "proofs are stale"),
        counted(muted, "more is muted and not well", "more are muted and not well"),
    )
    broken = sum(shown[state] for state in BROKEN)
    proven = sum(state.shown is Shown.PROVEN for state in states)
    routes = counted(total, "route", "routes")
    if broken:
        verdict = f"{broken} of {routes} cannot carry a turn"
    elif proven == total > 1:
        verdict = f"All {routes} can carry a turn"
    else:
        verdict = f"{proven} of {routes} can carry a turn"
    return Headline(verdict, tuple(doubt for doubt in doubts if doubt))


def _undecided(cell: CellState) -> bool:
    """Whether it was asked, and what came of it proves nothing, where nothing else was ever found."""
    newer = cell.newer_unproven
    return cell.freshness is not Freshness.EXPIRED and newer is not None and newer.status != Status.NOT_SENT
