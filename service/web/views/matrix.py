"""What routes take beyond what is required of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.derive import ContractState, Freshness, RouteState, Shown
from service.remedies import in_words
from service.web import about
from service.web.views.words import (
    ABSENT,
    Mark,
    failing,
    is_absent,
    lower,
    unproven_words,
    worst_cell,
)


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


def _capability(contract: ContractState) -> Mark:
    """A cell of the matrix: one or two words, and the rest small."""
    lead = worst_cell(contract)
    standing, newer = lead.row.standing, lead.newer_unproven
    notes = ["stale"] if contract.stale else []
    if contract.shown is Shown.UNKNOWN or standing is None:
        words = "not in this dialect" if is_absent(lead) else "unknown"
        if newer is not None and not is_absent(lead):
            notes.append(unproven_words(newer))
        elif not is_absent(lead):
            notes.append("expired" if lead.freshness is Freshness.EXPIRED else "not asked yet")
    else:
        words = _CAPABILITY_WORDS.get(standing.status) or lower(in_words(standing.status))
        if contract.shown is Shown.IN_PART:
            notes.append(f"in {failing(contract)}")
    kind = ABSENT if is_absent(lead) else contract.shown.value
    return Mark(contract.contract, kind, contract.stale, words, tuple(notes))


_CAPABILITY_WORDS: Mapping[str, str] = {
    "history_accepted": "accepted",
    "history_rejected": "refused",
    "parallel_calls_supported": "accepted",
}
