"""The state of a route over its contracts and locations."""

from __future__ import annotations

import pytest

from service.derive import RouteState, Shown, route_states
from service.model import CellRow, Status
from tests.samples import MINUTE, NOW, row, standing

WORKS = standing()
BROKEN = standing(Status.STREAM_EARLY_EOF)
REFUSED = standing(Status.ENDPOINT_AUTH_FAILED)
DOWN = standing(Status.UNREACHABLE)
EXPIRED = standing(ago=31 * MINUTE)
STALE = standing(ago=16 * MINUTE)


def state(*rows: CellRow) -> RouteState:
    (only,) = route_states(rows, NOW)
    return only


@pytest.mark.parametrize(
    ("standings", "shown", "proven_in", "silent_in"),
    [
        ((WORKS,), Shown.PROVEN, ("a",), ()),
        ((WORKS, WORKS), Shown.PROVEN, ("a", "b"), ()),
        ((WORKS, BROKEN), Shown.IN_PART, ("a",), ()),
        ((WORKS, WORKS, DOWN), Shown.IN_PART, ("a", "b"), ()),
        ((WORKS, EXPIRED), Shown.PROVEN, ("a",), ("b",)),
        ((WORKS, None), Shown.PROVEN, ("a",), ("b",)),
        ((WORKS, DOWN, EXPIRED), Shown.IN_PART, ("a",), ("c",)),
        ((DOWN, REFUSED), Shown.BLOCKED, (), ()),
        ((DOWN, REFUSED, BROKEN), Shown.VIOLATED, (), ()),
        ((DOWN, EXPIRED), Shown.UNAVAILABLE, (), ("b",)),
        ((EXPIRED, None), Shown.UNKNOWN, (), ("a", "b")),
        ((STALE,), Shown.PROVEN, ("a",), ()),
    ],
)
def test_a_contract_over_locations(
    standings: tuple, shown: Shown, proven_in: tuple[str, ...], silent_in: tuple[str, ...]
) -> None:
    route = state(*(row(state=s, location=place) for s, place in zip(standings, "abc", strict=False)))
    (contract,) = route.contracts
    assert (contract.shown, contract.proven_in, contract.silent_in) == (shown, proven_in, silent_in)
    assert route.shown is shown


@pytest.mark.parametrize(
    ("tools", "turn", "turn_required", "shown", "deciding"),
    [
        (WORKS, WORKS, True, Shown.PROVEN, "agent_turn"),
        (WORKS, BROKEN, True, Shown.VIOLATED, "agent_turn"),
        (WORKS, BROKEN, False, Shown.PROVEN, "native_tools"),
        (DOWN, None, True, Shown.UNAVAILABLE, "native_tools"),
        (WORKS, None, True, Shown.UNKNOWN, "agent_turn"),
        (STALE, WORKS, True, Shown.PROVEN, "native_tools"),
    ],
)
def test_a_route_is_the_worst_of_its_required_contracts(tools, turn, turn_required, shown, deciding) -> None:  # type: ignore[no-untyped-def]
    route = state(
        row(state=tools, contract="native_tools"), row(state=turn, contract="agent_turn", required=turn_required)
    )
    assert route.shown is shown
    assert route.deciding is not None
    assert route.deciding.contract == deciding


def test_a_route_that_requires_nothing_is_unknown() -> None:
    route = state(row(state=WORKS, required=False))
    assert route.shown is Shown.UNKNOWN
    assert route.deciding is None


def test_a_stale_contract_is_marked_and_an_expired_one_is_not_stale() -> None:
    assert state(row(state=STALE)).contracts[0].stale
    assert not state(row(state=WORKS)).contracts[0].stale
    assert not state(row(state=EXPIRED)).contracts[0].stale


def test_routes_come_worst_first_then_by_name() -> None:
    rows = (
        row("fine", state=WORKS),
        row("unknown"),
        row("z-down", state=DOWN),
        row("a-down", state=DOWN),
        row("broken", state=BROKEN),
        row("blocked", state=REFUSED),
    )
    assert [s.route.id for s in route_states(rows, NOW)] == [
        "broken",
        "blocked",
        "a-down",
        "z-down",
        "unknown",
        "fine",
    ]
