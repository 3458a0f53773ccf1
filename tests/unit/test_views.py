"""What pages say, as sentences: the headline, the marks, the next step, and the age of everything."""

from __future__ import annotations

from datetime import timedelta

import pytest

from service.model import CellRow, Standing, Status
from service.web import views
from tests.samples import (
    CUT,
    MINUTE,
    MIXED,
    NOW,
    SECOND,
    View,
    row,
    snapshot,
    standing,
)

WORKS = standing()
DOWN = standing(Status.UNREACHABLE)
STALE = standing(ago=16 * MINUTE)
EXPIRED = standing(ago=31 * MINUTE)
NOT_SENT = standing(Status.NOT_SENT, SECOND, reason="credential_missing")
SPENT = standing(Status.NOT_SENT, 29 * MINUTE, reason="budget_spent")
HELD = standing(Status.NOT_SENT, 29 * MINUTE, reason="paused")


def page(*rows: CellRow) -> views.Overview:
    return views.overview(View(snapshot(*rows)))


def line(*rows: CellRow) -> views.RouteLine:
    ((_, (only,)),) = page(*rows).groups
    return only


def named(*states: object) -> list[CellRow]:
    return [row(f"r{number}", state=state) for number, state in enumerate(states)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "No routes are configured."),
        (named(WORKS), "1 of 1 route can carry a turn."),
        (named(WORKS, WORKS), "All 2 routes can carry a turn."),
        (named(WORKS, STALE), "All 2 routes can carry a turn; 1 proof is stale."),
        (named(WORKS, DOWN, CUT), "2 of 3 routes cannot carry a turn."),
        (named(DOWN, EXPIRED, WORKS), "1 of 3 routes cannot carry a turn; 1 proof expired."),
        (named(EXPIRED, EXPIRED), "0 of 2 routes can carry a turn; 2 proofs expired."),
        (named(None, WORKS), "1 of 2 routes can carry a turn; 1 not asked yet."),
        (
            [row("a", last=standing(Status.NOT_SENT)), row("b", last=standing(Status.TURN_UNFINISHED)), row("c")],
            "0 of 3 routes can carry a turn; 1 undecided; 2 not asked yet.",
        ),
        (
            [row(state=EXPIRED, last=standing(Status.TURN_UNFINISHED))],
            "0 of 1 route can carry a turn; 1 proof expired.",
        ),
        (named(standing(Status.TIMEOUT, 31 * MINUTE), WORKS), "1 of 2 routes can carry a turn; 1 verdict expired."),
        (
            [row(state=WORKS, location="eu"), row(state=DOWN, location="us")],
            "0 of 1 route can carry a turn; 1 works in some places only.",
        ),
        (
            [row(state=WORKS), row(state=DOWN, contract="parallel_tool_calls", required=False)],
            "1 of 1 route can carry a turn.",
        ),
    ],
)
def test_the_headline_is_one_sentence_about_all_routes(rows: list[CellRow], sentence: str) -> None:
    assert str(page(*rows).headline) == sentence


def test_before_the_first_snapshot_the_page_says_that_nothing_is_known() -> None:
    shown = views.overview(View(snapshot(), database_up=False))
    assert str(shown.headline) == "Nothing is known yet."
    assert shown.header.banner == "The database can't be reached, and no data has been read yet."
    assert shown.header.data_age is None
    assert shown.groups == ()


def test_providers_and_routes_come_worst_first() -> None:
    groups = views.overview(View(MIXED)).groups
    assert [provider for provider, _ in groups] == [
        "openrouter",
        "self-hosted",
        "anthropic",
        "mistral",
        "openai",
    ]
    assert [route.name for route in groups[0][1]] == [
        "openrouter/qwen3-235b-a22b-instruct-2507",
        "openrouter/kimi-k2",
        "openrouter/deepseek-v3",
    ]


@pytest.mark.parametrize(
    ("cell", "kind", "words"),
    [
        (row(state=WORKS), "proven", "Works"),
        (row(state=STALE), "proven", "Works, stale"),
        (row(state=EXPIRED), "unknown", "Unknown: proof expired"),
        (row(state=standing(Status.TIMEOUT, 31 * MINUTE)), "unknown", "Unknown: verdict expired"),
        (row(), "unknown", "Unknown: not asked yet"),
        (row(last=NOT_SENT), "unknown", "Unknown: not asked, its key is missing"),
        (row(state=EXPIRED, last=SPENT), "unknown", "Unknown: not asked, its budget is spent"),
        (row(state=EXPIRED, last=HELD), "unknown", "Unknown: not asked, a pause stops it"),
        (row(state=EXPIRED, last=standing(Status.OWN_NETWORK)), "unknown", "Unknown: own network down"),
        (row(state=CUT), "violated", "Stream ends early"),
        (row(state=standing(Status.UNREACHABLE, 16 * MINUTE)), "unavailable", "Unreachable, stale"),
        (row(state=standing(Status.ENDPOINT_AUTH_FAILED)), "blocked", "Credential refused"),
    ],
)
def test_a_mark_says_in_words_what_its_colour_says(cell: CellRow, kind: str, words: str) -> None:
    (mark,) = line(cell).marks
    assert (mark.kind, mark.words) == (kind, words)


def test_a_contract_that_works_in_part_names_the_places() -> None:
    shown = line(row(state=WORKS, location="eu"), row(state=DOWN, location="us"), row(state=EXPIRED, location="asia"))
    (mark,) = shown.marks
    assert (shown.kind, shown.words) == ("in_part", "Works in part")
    assert mark.words == "Unreachable in us"
    assert mark.notes == ("works in 1 of 2 places", "nothing live from asia")


def test_a_newer_undecided_probe_is_shown_beside_the_standing_verdict() -> None:
    (mark,) = line(row(state=WORKS, last=standing(Status.OWN_NETWORK, SECOND))).marks
    assert mark.words == "Works"
    assert mark.notes == ("newest probe: own network down",)


def test_required_contracts_are_marks_in_one_order_on_every_row() -> None:
    turn, tools = row(state=CUT, contract="agent_turn"), row(state=WORKS)
    assert [mark.contract for mark in line(turn, tools).marks] == ["native_tools", "agent_turn"]


REFUSED = standing(Status.HISTORY_REJECTED, reason="http_400")
ACCEPTED = standing(Status.HISTORY_ACCEPTED)
ABSENT = standing(Status.NOT_SENT, reason="not_in_dialect")


def informational(state: Standing | None = None, contract: str = "displaced_tool_results", **more: object) -> CellRow:
    return row(state=state, contract=contract, required=False, **more)  # type: ignore[arg-type]


def test_a_contract_that_is_not_required_never_makes_a_route_broken() -> None:
    for state in (REFUSED, DOWN, CUT, standing(Status.ENDPOINT_AUTH_FAILED), None):
        shown = page(row(state=WORKS), informational(state))
        ((_, (route_line,)),) = shown.groups
        assert (route_line.words, route_line.kind, route_line.step) == ("Works", "proven", None)
        assert [mark.contract for mark in route_line.marks] == ["native_tools"]
        assert str(shown.headline) == "1 of 1 route can carry a turn."
        assert (shown.title, shown.kind) == ("Routes", "proven")


def test_a_route_that_requires_nothing_asks_for_a_contract_and_not_for_more() -> None:
    shown = line(informational(REFUSED))
    assert (shown.kind, shown.marks) == ("unknown", ())
    assert shown.step == "List a contract in the route's required."


def matrix(*rows: CellRow) -> list[tuple[str, str, bool, tuple[str, ...]]]:
    ((mark,),) = [shown.cells for shown in page(row(state=WORKS), *rows).matrix.lines]
    assert mark is not None
    return [(mark.kind, mark.words, mark.stale, mark.notes)]


@pytest.mark.parametrize(
    ("cell", "kind", "words", "stale", "notes"),
    [
        (informational(ACCEPTED), "proven", "accepted", False, ()),
        (informational(REFUSED), "violated", "refused", False, ()),
        (informational(standing(Status.HISTORY_ACCEPTED, 16 * MINUTE)), "proven", "accepted", True, ("stale",)),
        (informational(standing(Status.HISTORY_REJECTED, 16 * MINUTE)), "violated", "refused", True, ("stale",)),
        (informational(standing(Status.HISTORY_ACCEPTED, 31 * MINUTE)), "unknown", "unknown", False, ("expired",)),
        (informational(), "unknown", "unknown", False, ("not asked yet",)),
        (informational(last=ABSENT), "absent", "not in this dialect", False, ()),
        (informational(last=NOT_SENT), "unknown", "unknown", False, ("not asked, its key is missing",)),
        (informational(standing(Status.RATE_LIMITED)), "blocked", "rate limited", False, ()),
        (informational(DOWN), "unavailable", "unreachable", False, ()),
        (
            informational(last=standing(Status.PARALLEL_CALLS_NOT_MADE), contract="parallel_tool_calls"),
            "unknown",
            "unknown",
            False,
            ("one call instead of two",),
        ),
        (
            informational(standing(Status.PARALLEL_CALLS_SUPPORTED), contract="parallel_tool_calls"),
            "proven",
            "accepted",
            False,
            (),
        ),
    ],
)
def test_a_cell_of_the_matrix_says_what_the_route_takes(
    cell: CellRow, kind: str, words: str, stale: bool, notes: tuple[str, ...]
) -> None:
    assert matrix(cell) == [(kind, words, stale, notes)]


def test_a_capability_that_differs_between_places_names_them() -> None:
    eu, us = informational(ACCEPTED, location="eu"), informational(REFUSED, location="us")
    assert matrix(eu, us) == [("in_part", "refused", False, ("in us",))]


def test_the_matrix_holds_informational_contracts_only_of_the_routes_that_have_them() -> None:
    shown = page(
        row("plain", state=WORKS),
        row("b", state=WORKS),
        row("b", state=ACCEPTED, contract="orphaned_tool_results", required=False),
        row("a", state=WORKS),
        row("a", state=ACCEPTED, contract="contract_of_tomorrow", required=False),
        row("a", state=REFUSED, contract="undeclared_tool_history", required=False),
        row("a", state=REFUSED, contract="orphaned_tool_results"),
    ).matrix
    assert shown.contracts == ("undeclared_tool_history", "orphaned_tool_results", "contract_of_tomorrow")
    assert [(each.name, [mark and mark.words for mark in each.cells]) for each in shown.lines] == [
        ("acme/a", ["refused", "refused", "accepted"]),
        ("acme/b", [None, "accepted", None]),
    ]
    assert page(row(state=WORKS)).matrix == views.Matrix((), ())


@pytest.mark.parametrize(
    ("cell", "step"),
    [
        (row(state=WORKS), None),
        (row(state=CUT), "Fail over, and check time limits of gateways on the way."),
        (row(state=standing(Status.PROVIDER_ERROR, reason="http_400")), "Check the route's configuration: "),
        (row(last=NOT_SENT), "Set the key's variable or file for this route."),
        (row(state=STALE), "Check that the prober in default runs."),
        (row(state=EXPIRED), "Check that the prober in default runs."),
        (row(state=STALE, next_due_at=NOW + 5 * MINUTE), None),  # a budget stretches its intervals
        (row(state=EXPIRED, next_due_at=NOW + 5 * MINUTE), "Check that the prober in default runs."),
        (row(state=EXPIRED, last=SPENT, next_due_at=NOW + 300 * MINUTE), "Raise the route's budget, or wait"),
        (row(state=EXPIRED, last=SPENT, next_due_at=NOW - MINUTE), "Check that the prober in default runs."),
        (row(state=EXPIRED, last=HELD, next_due_at=NOW + 300 * MINUTE), "End the pause to have the route asked again."),
        (row(state=EXPIRED, last=standing(Status.OWN_NETWORK)), "Check the prober's own network."),
        (row(state=STALE, last=standing(Status.PROBER_OVERLOADED)), "Give the prober more CPU, or fewer routes."),
        (row(next_due_at=NOW + MINUTE), "Wait for the next probe."),
        (row(next_due_at=NOW - 4 * MINUTE), "Wait for the next probe."),
        (row(next_due_at=NOW - 6 * MINUTE), "Check that the prober in default runs."),
    ],
)
def test_the_next_step_fits_the_state(cell: CellRow, step: str | None) -> None:
    shown = line(cell).step
    assert shown is None if step is None else shown is not None and shown.startswith(step)


def test_while_the_database_is_down_no_prober_is_suspected_for_it() -> None:
    view = View(snapshot(row(state=WORKS)), age_s=20 * 60, database_up=False)
    ((_, (shown,)),) = views.overview(view).groups
    assert shown.words == "Works"
    assert shown.stale
    assert shown.step is None
    assert views.header(view).banner == (
        "The database can't be reached. This is what was known 20 min ago; it ages and expires meanwhile."
    )


def test_since_is_the_start_of_the_state_and_of_an_unknown_one_the_expiry() -> None:
    since = line(row(state=CUT, state_since=NOW - 65 * MINUTE)).since
    assert since is not None
    assert (since.clock, since.ago, since.iso) == ("02:07:07 UTC", "1 h 5 min", "2025-03-09T02:07:07+00:00")
    since = line(row(state=standing(ago=45 * MINUTE), state_since=NOW - timedelta(days=3))).since
    assert since is not None
    assert since.ago == "15 min"
    assert line(row()).since is None


def test_the_last_proof_is_that_of_the_place_furthest_behind_while_all_prove() -> None:
    proof = line(row(state=WORKS, location="eu"), row(state=standing(ago=9 * MINUTE), location="us")).proof
    assert proof is not None
    assert proof.ago == "9 min"
    proof = line(row(state=WORKS, location="eu"), row(state=DOWN, location="us")).proof
    assert proof is not None
    assert proof.ago == "1 min"
    assert line(row(state=DOWN)).proof is None


def test_a_time_to_first_token_is_not_shown_of_a_state_that_is_no_longer_known() -> None:
    assert line(row(state=STALE)).first_token == "420 ms"
    assert line(row(state=EXPIRED)).first_token is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (11520, "3 h 12 min"),
        (47 * 3600, "47 h"),
        (48 * 3600, "2 days"),
        (-90, "−1 min"),
    ],
)
def test_lengths_of_time_have_at_most_two_units(seconds: float, words: str) -> None:
    assert views.duration(seconds) == words
    assert views.duration(timedelta(seconds=seconds)) == words


def test_a_time_of_another_day_has_its_date() -> None:
    assert views.moment(NOW - timedelta(hours=4), NOW).clock == "8 Mar 2025, 23:12 UTC"


@pytest.mark.parametrize(("seconds", "words"), [(None, None), (0.0, "0 ms"), (0.42, "420 ms"), (1.25, "1.2 s")])
def test_measured_times(seconds: float | None, words: str | None) -> None:
    assert views.timing(seconds) == words
