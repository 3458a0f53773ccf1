"""The page of a route: what it says of its state, its evidence and its past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from service.contracts import CONTRACTS
from service.derive import derive
from service.model import (
    CellRow,
    ChangeKind,
    Confirmed,
    Mark,
    Outcome,
    Pause,
    PauseScope,
    Span,
    Spend,
    Standing,
    Status,
    StoredVerdict,
    Transition,
)
from service.web import about, views
from service.web.views.certainty import certainty
from service.web.views.compare import comparison
from service.web.views.past import SLOTS, WINDOWS, past
from service.web.views.scope import scope
from service.web.views.spending import money, number, spent
from service.web.views.transitions import KINDS, change_line, entries
from tests.samples import (
    BECAUSE,
    CUT,
    LADDER,
    MINUTE,
    MIXED,
    NOW,
    SECOND,
    STORIES,
    View,
    row,
    snapshot,
    standing,
    stored,
)

QWEN = "qwen3-235b-a22b-instruct-2507"
WORKS = standing()
DOWN = standing(Status.UNREACHABLE)
REFUSED = standing(Status.HISTORY_REJECTED, reason="http_400")
ACCEPTED = standing(Status.HISTORY_ACCEPTED)
ABSENT = standing(Status.NOT_SENT, reason="not_in_dialect")


def informational(state: Standing | None = None, contract: str = "displaced_tool_results", **more: Any) -> CellRow:
    return row(state=state, contract=contract, required=False, **more)


def route(
    route_id: str,
    view: View | None = None,
    history: Sequence[StoredVerdict] | None = (),
    spoken_of: Sequence[StoredVerdict] = (),
    **more: Any,
) -> views.RoutePage:
    view = view or View(MIXED)
    state = views.state_of(view, route_id)
    assert state is not None
    known = None if history is None else views.Known(verdicts=history, spoken_of=spoken_of)
    return views.route_page(view, state, known, BECAUSE, **more)


def test_a_route_that_is_not_configured_has_no_page() -> None:
    assert views.state_of(View(MIXED), "nobody") is None
    assert views.state_of(View(snapshot()), QWEN) is None


def test_a_route_that_requires_nothing_asks_for_a_contract() -> None:
    only = route("alpha", View(snapshot(informational(REFUSED))))
    assert only.words == "Unknown: no contract is required of it"
    assert only.remedy.startswith("List a contract in the route's required.")


def test_a_route_page_says_what_is_broken_since_when_and_what_to_do() -> None:
    shown = route(QWEN, history=STORIES[QWEN])
    assert shown.words == "Broken: stream ends early"
    assert shown.since is not None
    assert shown.since.clock == "03:08:07 UTC"
    assert shown.remedy.startswith("Fail over, and check time limits")
    assert shown.lines.check == f"routeproof check -c routeproof.yaml --route {QWEN} --explain"
    (panel,) = shown.panels
    assert (panel.status, panel.outcome, panel.reason) == ("stream_early_eof", "violated", "closed_after_event")
    assert (panel.rule_id, panel.because) == ("stream.early_eof", BECAUSE["stream.early_eof"])
    assert [quirk for quirk, _ in panel.quirks] == ["flaky", "usage_missing"]
    assert panel.detail == CUT.detail
    facts = dict(panel.facts)
    assert facts["Valid until"] == "03:38:07 UTC"
    assert facts["Last proof"] == "03:03:07 UTC, 9 min ago"
    assert facts["Verdicts so far"] == "8120 proven, 3 violated"
    assert dict(shown.facts)["URL"] == "https://api.example/v1"
    assert dict(shown.facts)["Tags"] == "prod, eu"


def test_the_last_ladder_is_that_of_the_newest_verdict_of_the_cell_whatever_it_decides() -> None:
    undecided = replace(standing(Status.CANCELLED, SECOND), id=UUID(int=2))
    view = View(snapshot(row(state=CUT, last=undecided)))
    kept = [stored(CUT, rungs=LADDER), stored(undecided, rungs=LADDER * 2)]
    (panel,) = route("alpha", view, spoken_of=kept).panels
    assert panel.ladder is not None
    assert len(panel.ladder.rungs) == 2
    assert panel.ladder.words == "Probe cancelled"
    (panel,) = route("alpha", view, spoken_of=kept[:1]).panels
    assert panel.ladder is None


def test_the_page_reads_the_verdicts_that_stand_and_those_that_it_compares() -> None:
    state = views.state_of(View(MIXED), QWEN)
    assert state is not None
    assert views.spoken_of(state) == [(CUT.observed_at, CUT.id)]
    good, bad = mark(ago=9 * MINUTE, id=5), mark(Status.TIMEOUT, id=6)
    shown = snapshot(replace(row(state=CUT), confirmed=Confirmed(last_good=good, first_bad=bad, last_bad=bad)))
    state = views.state_of(View(shown), "alpha")
    assert state is not None
    assert {id.int for _, id in views.spoken_of(state)} == {1, 5, 6}


def test_history_that_cannot_be_read_is_something_else_than_none_yet() -> None:
    lost, empty = route(QWEN, history=None), route(QWEN, history=())
    assert (lost.history, lost.changes, lost.past) == (None, None, None)
    assert (empty.history, empty.changes) == ((), ())
    assert empty.past is not None
    assert not empty.past.counted


def test_recent_verdicts_keep_their_outcome_even_when_unproven() -> None:
    shown = route(QWEN, history=STORIES[QWEN]).history
    assert shown is not None
    assert [(v.kind, v.words) for v in shown] == [
        ("violated", "Stream ends early"),
        ("proven", "Works"),
        ("blocked", "Rate limited"),
        ("unproven", "No tool call made"),
    ]


def test_an_undecided_probe_of_a_route_is_told_with_its_reason() -> None:
    (panel,) = route("claude").panels
    assert panel.undecided == "The newest probe, 1 min ago, decides nothing: not asked (credential_missing)."
    assert panel.remedy is not None
    assert panel.remedy.startswith("Set the key's variable or file for this route.")
    assert panel.status is None


def test_a_route_in_several_places_has_a_panel_for_each_the_worst_first() -> None:
    shown = route("mistral")
    assert shown.places
    assert shown.words == "Works in part: timed out in us"
    assert [(panel.location, panel.mark.words) for panel in shown.panels] == [("us", "Timed out"), ("eu", "Works")]


def test_a_status_of_a_newer_version_is_shown_with_the_remedy_of_its_outcome() -> None:
    odd = replace(WORKS, status="word_of_tomorrow", outcome=Outcome.VIOLATED)
    assert route("alpha", View(snapshot(row(state=odd)))).marks[0].words == "Word of tomorrow"
    assert views.cell_remedy(derive(row(state=odd), NOW), NOW).startswith("Change the route")


def test_each_contract_says_what_it_asks_whether_it_counts_and_how_often() -> None:
    shown = route("alpha", View(snapshot(row(state=WORKS), informational(REFUSED, location="default"))))
    tools, displaced = shown.panels
    assert [mark.contract for mark in shown.marks] == ["native_tools", "displaced_tool_results"]
    assert (tools.use, displaced.use) == ("required, asked every 5 min", "informational, asked every 5 min")
    assert displaced.claim == CONTRACTS["displaced_tool_results"].claim
    assert displaced.more[0].startswith("It happens when a user steers an agent while a tool still runs.")
    assert "\n" not in displaced.more[0]


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_contract_has_a_docstring_for_its_page(name: str) -> None:
    claim, *more = about.paragraphs(name)
    assert claim.endswith(".")
    assert more


def test_a_contract_that_this_version_does_not_know_has_nothing_to_say() -> None:
    shown = route("alpha", View(snapshot(row(state=WORKS, contract="contract_of_tomorrow"))))
    assert [(panel.claim, panel.more, panel.example) for panel in shown.panels] == [("", (), "")]


def test_what_a_contract_asks_is_told_once_for_all_places() -> None:
    assert [bool(panel.claim) for panel in route("mistral").panels] == [True, False]


def test_a_refused_history_comes_with_what_to_send_in_its_place() -> None:
    def panel(cell: CellRow) -> views.CellPanel:
        return route("alpha", View(snapshot(row(state=WORKS), cell))).panels[1]

    refused = panel(informational(REFUSED))
    assert refused.remedy is not None
    assert refused.remedy.startswith("Hoist the results")
    assert refused.example == CONTRACTS["displaced_tool_results"].example
    assert panel(informational(ACCEPTED)).example == ""
    assert panel(informational(standing(Status.HISTORY_REJECTED, 31 * MINUTE))).example == ""
    assert panel(informational(DOWN)).example == ""


def test_a_contract_that_the_dialect_does_not_have_is_no_open_question() -> None:
    shown = route("alpha", View(snapshot(row(state=WORKS), informational(last=ABSENT)))).panels[1]
    assert (shown.mark.kind, shown.mark.words, shown.undecided) == ("absent", "Not in this dialect", None)


def test_what_the_provider_said_is_that_of_the_refused_request_when_the_last_one_was_taken() -> None:
    refused, taken = replace(LADDER[0], rung="shape", detail="a call has no result"), replace(LADDER[0], rung="control")
    view = View(snapshot(informational(REFUSED)))

    def said(verdict: Standing) -> str:
        kept = stored(verdict, contract="displaced_tool_results", rungs=(refused, taken))
        return route("alpha", view, spoken_of=[kept]).panels[0].detail

    assert said(REFUSED) == "a call has no result"
    assert said(replace(REFUSED, id=UUID(int=2))) == ""
    works = stored(WORKS, rungs=(refused, taken))
    assert route("alpha", View(snapshot(row(state=WORKS))), spoken_of=[works]).panels[0].detail == ""


def test_evidence_is_open_where_a_required_contract_is_not_proven() -> None:
    shown = route(
        "alpha", View(snapshot(row(state=CUT), row(state=WORKS, contract="agent_turn"), informational(REFUSED)))
    )
    assert [panel.open for panel in shown.panels] == [True, False, False]


# --- how sure ----------------------------------------------------------------------------------------------


def mark(status: Status = Status.TOOLS_SUPPORTED, ago: timedelta = MINUTE, id: int = 1, **changes: Any) -> Mark:
    known = Mark(UUID(int=id), status, status.outcome, None, NOW - ago, "model-1", "f1", 1, "1.0")
    return replace(known, **changes)


GOOD, BAD = mark(), mark(Status.UNREACHABLE)
SINCE = NOW - 64 * MINUTE  # 02:08:07


@pytest.mark.parametrize(
    ("state", "confirmed", "words"),
    [
        (WORKS, Confirmed(), None),
        (WORKS, Confirmed(last_good=GOOD), "Nothing is confirmed yet."),
        (DOWN, Confirmed(last_bad=BAD, run=1), "Nothing is confirmed yet: failed once, being asked again."),
        (WORKS, Confirmed(proven=True, since=SINCE, last_good=GOOD), "Confirmed to work since 02:08:07 UTC."),
        (
            DOWN,
            Confirmed(proven=True, since=SINCE, last_bad=BAD, run=1),
            "Confirmed to work since 02:08:07 UTC; failed once, being asked again.",
        ),
        (
            DOWN,
            Confirmed(proven=True, since=SINCE, last_bad=BAD, run=2),
            "Confirmed to work since 02:08:07 UTC; failed 2 times, being asked again.",
        ),
        (
            standing(Status.RATE_LIMITED),
            Confirmed(proven=True, since=SINCE, last_good=mark(ago=2 * MINUTE), run=300),
            "Confirmed to work since 02:08:07 UTC; what was found last doesn't count against it.",
        ),
        (standing(Status.RATE_LIMITED), Confirmed(last_good=GOOD, run=1), "Nothing is confirmed yet."),
        (DOWN, Confirmed(proven=False, since=SINCE, last_bad=BAD), "Confirmed broken since 02:08:07 UTC, failing now."),
        (
            WORKS,
            Confirmed(proven=False, since=SINCE, last_good=GOOD),
            "Confirmed broken since 02:08:07 UTC; proven again, not confirmed yet.",
        ),
        (
            standing(Status.TIMEOUT, 31 * MINUTE),
            Confirmed(proven=False, since=SINCE, last_bad=BAD),
            "Confirmed broken since 02:08:07 UTC; nothing current is known.",
        ),
        (
            standing(ago=31 * MINUTE),
            Confirmed(proven=True, since=SINCE, last_good=GOOD),
            "Confirmed to work since 02:08:07 UTC; nothing current is known.",
        ),
        (
            WORKS,
            Confirmed(proven=False, since=SINCE, last_good=GOOD, flapping=True),
            "Flapping since 02:08:07 UTC: it broke a second time within a day, works now.",
        ),
        (
            DOWN,
            Confirmed(proven=False, since=SINCE, last_bad=BAD, broken=True),
            "Confirmed broken since 02:08:07 UTC: it was flapping and fails again and again, failing now.",
        ),
    ],
)
def test_what_is_confirmed_is_told_beside_what_was_found_last(
    state: Standing, confirmed: Confirmed, words: str | None
) -> None:
    cell = replace(row(state=state), confirmed=confirmed)
    assert certainty(derive(cell, NOW), NOW) == words
    assert route("alpha", View(snapshot(cell))).sure == words


def test_of_many_places_the_worst_are_shown_and_the_others_counted() -> None:
    rows = [row(state=DOWN if number in (3, 11) else WORKS, location=f"p{number:02}") for number in range(30)]
    shown = route("alpha", View(snapshot(*rows)))
    ((few, more, told),) = shown.folded
    assert [panel.location for panel in few] == ["p03", "p11", "p00"]
    assert (len(more), told) == (27, "works: 27")
    assert shown.words == "Works in part: unreachable in p03, p11"


def test_a_line_names_a_few_places_and_how_many_more() -> None:
    rows = [row(state=WORKS if number == 7 else DOWN, location=f"p{number}") for number in range(9)]
    assert route("alpha", View(snapshot(*rows))).words == "Works in part: unreachable in p0, p1, p2 and 5 more"


def test_what_is_confirmed_of_one_place_is_not_told_of_all() -> None:
    bad = replace(row(state=DOWN, location="us"), confirmed=Confirmed(proven=False, since=SINCE, last_bad=BAD))
    shown = route("alpha", View(snapshot(row(state=WORKS, location="eu"), bad)))
    assert shown.sure == "From us: confirmed broken since 02:08:07 UTC, failing now."


def test_nothing_is_ever_confirmed_of_a_contract_that_is_not_required() -> None:
    cell = replace(informational(REFUSED), confirmed=Confirmed(proven=True, since=SINCE, last_bad=BAD))
    assert certainty(derive(cell, NOW), NOW) is None


# --- how far it reaches ------------------------------------------------------------------------------------


def peer(name: str, state: Standing | None = DOWN, *, key: str = "env:A", host: str = "h:443", **more: Any) -> CellRow:
    made = row(name, state=state, **{"provider": "openai", **more})
    return replace(made, cell=replace(made.cell, credential=key, host=host))


def reach(*rows: CellRow) -> str | None:
    state = views.state_of(View(snapshot(*rows)), "r0")
    assert state is not None
    return scope(state, rows, NOW)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([peer("r0")], None),
        ([peer("r0", WORKS), peer("r1")], None),
        ([peer("r0", standing(Status.UNREACHABLE, 31 * MINUTE)), peer("r1")], None),
        ([peer("r0"), peer("r1", provider="other", host="x:443")], None),
        ([peer("r0"), peer("r1", WORKS)], "The other route of openai works."),
        ([peer("r0"), peer("r1", CUT)], "The other route of openai does not fail alike."),
        (
            [peer("r0"), peer("r1", WORKS), peer("r2", CUT)],
            "None of the other 2 routes of openai fails alike; 1 of them works.",
        ),
        (
            [peer("r0"), peer("r1", state_since=NOW - 4 * MINUTE)],
            "Both routes of openai fail alike since 03:08:07 UTC; they share the key env:A and the host h:443.",
        ),
        (
            [*(peer(f"r{n}") for n in range(14)), peer("r14", WORKS, key="env:B")],
            "14 of 15 routes of openai fail alike since 03:11:07 UTC; all of them use the key env:A, and the other key "
            "works.",
        ),
        (
            [peer("r0"), peer("r1"), peer("r2", WORKS, host="b:443"), peer("r3", WORKS, host="c:443")],
            "2 of 4 routes of openai fail alike since 03:11:07 UTC; all of them use the host h:443, and the other hosts "
            "work.",
        ),
        ([peer("r0"), peer("r1"), peer("r2", WORKS)], "2 of 3 routes of openai fail alike since 03:11:07 UTC."),
        (
            [
                peer("r0"),
                peer("r1", key="env:B"),
                peer("r2", key="env:C", host="i:443"),
                peer("r3", WORKS, key="env:D"),
            ],
            "3 of 4 routes of openai fail alike since 03:11:07 UTC.",
        ),
        (
            [peer("r0"), peer("r1", provider="also", key=""), peer("r2", provider="also", key="")],
            "All 3 routes at h:443 fail alike since 03:11:07 UTC; they share the host h:443.",
        ),
        ([peer("r0"), peer("r1", required=False), peer("r2", WORKS)], "The other route of openai works."),
    ],
)
def test_the_scope_says_which_routes_fail_alike_and_what_they_share(rows: list[CellRow], words: str | None) -> None:
    assert reach(*rows) == words


# --- the past ----------------------------------------------------------------------------------------------


def span(start: datetime, **counts: int) -> Span:
    return Span(start, {Outcome(name): n for name, n in counts.items()}, (1,) + (0,) * 11, (0,) * 11 + (1,))


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_a_window_has_ninety_slots_on_a_grid_and_the_last_one_holds_the_present(window: Any) -> None:
    since, until = window.bounds(NOW)
    assert until - window.width <= NOW < until
    assert until - since == SLOTS * window.width
    assert window.bounds(until - timedelta(microseconds=1)) == (since, until)
    assert window.bounds(until)[0] == since + window.width
    shown = past([span(since, proven=2), span(until - window.width, violated=1)], window, NOW, "a", ["a", "b"], "/r")
    assert len(shown.slots) == len(shown.points) == SLOTS
    assert [shown.slots[place].words for place in (0, 1, -1)] == ["2 proven", "no data", "1 violated"]
    assert [sum(point.first_token) for point in shown.points].count(1) == 2
    assert shown.counted
    assert shown.measured


def test_a_page_can_be_turned_to_another_window_and_another_contract() -> None:
    shown = past([], WINDOWS["7d"], NOW, "agent_turn", ["native_tools", "agent_turn"], "/routes/a%2Fb")
    assert [choice.words for choice in shown.windows if choice.chosen] == ["7 days"]
    assert shown.windows[0].link == "/routes/a%2Fb?window=6h&contract=agent_turn#history"
    assert [(choice.words, choice.chosen) for choice in shown.contracts] == [
        ("native_tools", False),
        ("agent_turn", True),
    ]
    assert shown.contracts[0].link == "/routes/a%2Fb?window=7d&contract=native_tools#history"
    assert not shown.counted
    assert not shown.measured


def test_the_past_is_that_of_the_contract_which_decides_unless_another_is_asked_for() -> None:
    view = View(snapshot(row(state=WORKS), row(state=DOWN, contract="agent_turn")))
    state = views.state_of(view, "alpha")
    assert state is not None
    assert views.contract_asked(state, "") == "agent_turn"
    assert views.contract_asked(state, "native_tools") == "native_tools"
    assert views.contract_asked(state, "nobody_knows") == "agent_turn"


# --- last good beside first bad ----------------------------------------------------------------------------


def compared(good: Mark | None, bad: Mark | None, *kept: StoredVerdict) -> Any:
    known = {one.standing.id: one for one in kept}
    return comparison(Confirmed(last_good=good, first_bad=bad), known, NOW)


def test_only_what_was_good_before_it_turned_bad_is_compared() -> None:
    good, bad = mark(ago=9 * MINUTE), mark(Status.TIMEOUT)
    assert compared(None, bad) is None
    assert compared(good, None) is None
    assert compared(mark(ago=SECOND), bad) is None
    assert compared(good, bad) is not None


def test_each_rung_stands_beside_itself_and_a_repetition_beside_the_same_repetition() -> None:
    good, bad = mark(ago=9 * MINUTE, id=1), mark(Status.TIMEOUT, id=2)
    forced, auto = LADDER[0], replace(LADDER[0], rung="auto")
    slow = replace(forced, status=504, read="refused")
    then = stored(replace(WORKS, id=UUID(int=1)), rungs=(forced,))
    now = stored(replace(CUT, id=UUID(int=2)), rungs=(slow, auto, forced))
    shown = compared(good, bad, then, now)
    assert [(pair.rung, pair.good, pair.bad, pair.differs) for pair in shown.pairs] == [
        ("forced", forced, slow, True),
        ("auto", None, auto, True),
        ("forced, asked again", None, forced, True),
    ]
    assert (shown.good.kept, shown.bad.kept) == (True, True)
    same = compared(good, bad, then, stored(replace(CUT, id=UUID(int=2)), rungs=(replace(forced, duration_s=9.0),)))
    assert [pair.differs for pair in same.pairs] == [False]


def test_what_history_no_longer_holds_is_said_and_the_rest_is_shown() -> None:
    good, bad = mark(ago=9 * MINUTE, id=1), mark(Status.TIMEOUT, id=2)
    shown = compared(good, bad, stored(replace(CUT, id=UUID(int=2)), rungs=LADDER))
    assert (shown.good.kept, shown.bad.kept) == (False, True)
    assert [(pair.good, pair.bad) for pair in shown.pairs] == [(None, LADDER[0])]


def test_what_is_known_to_have_changed_is_named_and_what_is_not_known_is_not() -> None:
    good = mark(ago=9 * MINUTE, version=None, served_model="model-1")
    bad = mark(Status.TIMEOUT, served_model="model-2", fingerprint="f2", ruleset=7)
    assert compared(good, bad).changed == (
        ("served model", "model-1", "model-2"),
        ("configuration", "f1", "f2"),
        ("rules", "1", "7"),
    )
    assert compared(good, mark(Status.TIMEOUT, served_model=None)).changed == ()


# --- budget, schedule, pauses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1234, "1.2k"),
        (9999, "9.9k"),
        (45_678, "45k"),
        (200_000, "200k"),
        (999_999, "999k"),
        (1_000_000, "1M"),
        (3_450_000, "3.4M"),
    ],
)
def test_large_numbers_are_short_and_never_rounded_up(value: int, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0.00"),
        (0.000612, "0.0006"),
        (0.00002, "0.0001 or less"),
        (0.0049, "0.005"),
        (0.0123, "0.01"),
        (1234.5, "1,234.50"),
    ],
)
def test_money_keeps_one_digit_of_less_than_a_cent(value: float, words: str) -> None:
    assert money(value) == words


PRICED = replace(row().route, tokens_per_day=200_000, input_per_million=0.15, output_per_million=0.6, currency="USD")


@pytest.mark.parametrize(
    ("route_row", "spend", "words"),
    [
        (row().route, Spend(), "0 tokens, 0 requests today"),
        (
            PRICED,
            Spend(tokens_in=1000, tokens_out=234, requests=37, estimated=True),
            "1.2k of 200k tokens, 37 requests, about 0.0003 USD today; estimated",
        ),
        (
            replace(row().route, requests_per_day=400),
            Spend(requests=320),
            "0 tokens, 320 of 400 requests today. Nearly spent",
        ),
        (
            PRICED,
            Spend(tokens_in=200_000),
            "200k of 200k tokens, 0 requests, about 0.03 USD today. Spent: nothing is asked until the next UTC day",
        ),
    ],
)
def test_what_is_spent_is_told_with_its_limit_and_its_money(route_row: Any, spend: Spend, words: str) -> None:
    assert spent(route_row, spend) == words


def test_the_page_tells_the_budget_the_pause_and_where_the_provider_says_how_it_is() -> None:
    cell = row(state=WORKS, tags=("prod",))
    cell = replace(cell, route=replace(cell.route, requests_per_day=400, status_url="https://status.example/"))
    pause = Pause(UUID(int=9), PauseScope.TAG, "prod", NOW - MINUTE, NOW + 48 * MINUTE, False, "moving house", "ops")
    shown = route("alpha", View(snapshot(cell, pauses=(pause,), spends={"alpha": Spend(requests=3)})))
    assert dict(shown.spending) == {
        "Budget": "400 requests a UTC day",
        "Spent today": "0 tokens, 3 of 400 requests today",
    }
    assert shown.muted == "Muted until 04:00:07 UTC by ops: moving house."
    assert shown.status_url == "https://status.example/"


@pytest.mark.parametrize(
    ("left", "required", "words"),
    [
        (0, True, "1 h"),
        (7, True, "5 min 7 times more, since it broke; then 1 h"),
        (7, False, "1 h"),
        (1, True, "5 min once more, since it broke; then 1 h"),
    ],
)
def test_a_cell_that_broke_is_asked_more_often_for_a_while(left: int, required: bool, words: str) -> None:
    cell = row(state=DOWN, required=required, next_due_at=NOW + MINUTE)
    cell = replace(
        cell,
        cell=replace(cell.cell, interval=60 * MINUTE, route_interval=5 * MINUTE),
        confirmed=Confirmed(proven=False, last_bad=BAD, since=SINCE, askings_left=left),
    )
    facts = dict(route("alpha", View(snapshot(cell))).panels[0].facts)
    assert facts["Asked every"] == words
    assert facts["Next probe due"] == "03:13:07 UTC"
    assert facts["Last asked"] == "03:11:07 UTC, 1 min ago"


def test_a_wait_that_the_provider_asked_for_is_told() -> None:
    waits = replace(standing(Status.RATE_LIMITED), retry_after_s=90.0)
    facts = dict(route("alpha", View(snapshot(row(state=waits)))).panels[0].facts)
    assert facts["The provider asked to wait"] == "90.0 s"


# --- changes -----------------------------------------------------------------------------------------------

CHANGE = Transition(
    at=NOW - MINUTE,
    route_id="alpha",
    contract="native_tools",
    location="default",
    kind=ChangeKind.REGRESSION,
    from_status="tools_supported",
    from_reason=None,
    to_status="timeout",
    to_reason="stalled",
    changed={"served_model": {"from": "m1", "to": "m2"}, "ruleset": {"from": 1, "to": 2}},
)


@pytest.mark.parametrize("kind", [*ChangeKind, "informational"])
def test_every_kind_of_change_has_words(kind: str) -> None:
    assert change_line(replace(CHANGE, kind=kind), NOW, "acme/alpha").what == KINDS[kind]


def test_a_change_says_what_was_what_is_and_what_else_changed() -> None:
    shown = change_line(CHANGE, NOW, "acme/alpha")
    assert (shown.before, shown.after, shown.reason, shown.kind) == ("Works", "Timed out", "stalled", "unavailable")
    assert shown.beside == "rules 1 → 2, served model m1 → m2"
    odd = replace(CHANGE, kind="of_tomorrow", to_status="word_of_tomorrow", from_status=None, changed={})
    shown = change_line(odd, NOW, "acme/alpha")
    assert (shown.what, shown.before, shown.after, shown.kind) == ("Of tomorrow", None, "Word of tomorrow", "unknown")


def test_the_feed_tells_a_change_with_what_to_do() -> None:
    (entry,) = entries([CHANGE], {"alpha": "acme/alpha"})
    assert entry.title == "acme/alpha: native_tools from default: broke (timed out)"
    assert entry.summary.startswith(
        "Works, then timed out (stalled). Also changed: rules 1 → 2, served model m1 → m2. "
    )
    assert entry.summary.endswith(".")
    assert (entry.route_id, entry.kind, entry.updated) == ("alpha", "regression", CHANGE.at)
    assert entries([CHANGE], {})[0].title.startswith("alpha: ")
