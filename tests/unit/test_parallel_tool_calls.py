"""The ladder of parallel_tool_calls and its table of rules, with hand-made answers and no server."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from service.contracts.ladder import TOOL
from service.contracts.parallel_tool_calls import OTHER_TOOL, RULES, ParallelToolCalls
from service.model import Call, Choice, Exchange, Outcome, Refused, Status
from service.rules import Circumstances
from service.seen import Seen, see
from tests.exchanges import (
    ANSWERS,
    R4,
    R5,
    R503,
    ROUTE,
    Script,
    bad_call,
    broken,
    called,
    climb,
    cut,
    declared_malformed,
    early_end,
    filtered,
    html,
    json_body,
    late_error,
    leak,
    no_answer,
    refused,
    silent,
    text,
    timed_out,
)

CONTRACT = ParallelToolCalls()
LETTERS = {"auto": "a", "auto_without_parallel_flag": "w"}
WITHOUT = "auto_without_parallel_flag"

OPTIONS = refused(400, names_stream_options=True)
CAP = replace(refused(400, Refused.TOKEN_CAP), other_cap_field="max_completion_tokens")
PATH, MODEL = refused(404, hint=Refused.PATH), refused(404, hint=Refused.MODEL)
HALF_BROKEN = bad_call("arguments_not_object", calls=(Call(), Call("arguments_not_object")))
HALF_CUT = bad_call(calls=(Call(), Call("arguments_truncated", cut=True)), capped=True)

# name: (script, status, reason, rungs asked, rule, quirks that must be there)
CASES: dict[str, tuple[Script, str, str | None, str, str, set[str]]] = {
    "two calls": ({"auto": called(2)}, "parallel_calls_supported", None, "a", "parallel_tool_calls.two_calls", set()),
    "three calls": ({"auto": called(3)}, "parallel_calls_supported", None, "a", "parallel_tool_calls.two_calls", set()),
    "one call": ({"auto": called(1)}, "parallel_calls_not_made", None, "a", "parallel_tool_calls.one_call", set()),
    "two calls, cut behind them": ({"auto": called(2, capped=True)}, "parallel_calls_supported", None, "a", "parallel_tool_calls.two_calls", set()),
    "one call, cut behind it": ({"auto": called(1, capped=True)}, "inconclusive_no_tool_call", "token_cap", "a", "parallel_tool_calls.cut_by_our_cap", set()),
    "cut in the second call": ({"auto": HALF_CUT}, "inconclusive_no_tool_call", "token_cap", "a", "parallel_tool_calls.cut_by_our_cap", set()),
    "cut before any call": ({"auto": cut()}, "inconclusive_no_tool_call", "token_cap", "a", "parallel_tool_calls.cut_by_our_cap", set()),
    "one whole call, one broken": ({"auto": HALF_BROKEN}, "malformed_tool_call", "arguments_not_object", "a", "gate.bad_call", set()),
    "text": ({"auto": text()}, "inconclusive_no_tool_call", "text_under_auto", "a", "parallel_tool_calls.text_under_auto", set()),
    "nothing": ({"auto": silent()}, "inconclusive_no_tool_call", "text_under_auto", "a", "parallel_tool_calls.text_under_auto", set()),
    "a leak": ({"auto": leak("hermes")}, "tool_call_leaked_as_text", "hermes", "a", "parallel_tool_calls.leaked", set()),
    # the flag is refused
    "refused, two calls without the flag": ({"auto": R4, WITHOUT: called(2)}, "parallel_calls_supported", None, "aw", "parallel_tool_calls.two_calls", {"parallel_flag_rejected"}),
    "refused, one call without the flag": ({"auto": R4, WITHOUT: called(1)}, "parallel_calls_not_made", None, "aw", "parallel_tool_calls.one_call", {"parallel_flag_rejected"}),
    "refused, text without the flag": ({"auto": R4, WITHOUT: text()}, "inconclusive_no_tool_call", "text_under_auto", "aw", "parallel_tool_calls.text_under_auto", {"parallel_flag_rejected"}),
    "failed once, two calls without the flag": ({"auto": R5, WITHOUT: called(2)}, "parallel_calls_supported", None, "aw", "parallel_tool_calls.two_calls", set()),
    "refused with and without": ({"auto": R4, WITHOUT: R4}, "provider_error", "http_400", "aw", "parallel_tool_calls.refused", set()),
    "refused in two ways": ({"auto": refused(422), WITHOUT: R4}, "provider_error", "http_4xx", "aw", "parallel_tool_calls.refused", set()),
    "an outage": ({"auto": R5, WITHOUT: R5}, "provider_error", "http_500", "aw", "parallel_tool_calls.refused", set()),
    "an outage with 503": ({"auto": R503, WITHOUT: R503}, "overloaded", "http_503", "aw", "parallel_tool_calls.shared_503", set()),
    "a bare 404": ({"auto": PATH, WITHOUT: PATH}, "endpoint_not_found", "http_404", "aw", "parallel_tool_calls.shared_404_path", set()),
    "a 404 about the model": ({"auto": MODEL, WITHOUT: MODEL}, "model_unavailable", "http_404", "aw", "parallel_tool_calls.shared_404_model", set()),
    "an early end without the flag": ({"auto": R4, WITHOUT: early_end()}, "stream_early_eof", "closed_after_event", "aw", "gate.early_end", set()),
    "a rate without the flag": ({"auto": R4, WITHOUT: refused(429, Refused.RATE)}, "rate_limited", "http_429", "aw", "gate.rate", set()),
    # what every contract shares
    "an early end behind two calls": ({"auto": early_end()}, "stream_early_eof", "closed_after_event", "a", "gate.early_end", set()),
    "no answer": ({"auto": no_answer()}, "unreachable", "refused", "aa", "gate.unreachable", set()),
    "no answer once": ({"auto": [no_answer(), called(2)]}, "parallel_calls_supported", None, "aa", "parallel_tool_calls.two_calls", {"flaky"}),
    "no answer once, then refused": ({"auto": [no_answer(), R4], WITHOUT: [no_answer(), called(2)]}, "parallel_calls_supported", None, "aaww", "parallel_tool_calls.two_calls", {"parallel_flag_rejected", "flaky"}),
    "no headers": ({"auto": timed_out()}, "timeout", "no_headers", "a", "gate.timeout", set()),
    "still flowing": ({"auto": timed_out(status=200, flowing=True)}, "probe_cap_reached", "deadline", "a", "gate.own_cap", set()),
    "our own lag": ({"auto": timed_out(own_lag=True)}, "prober_overloaded", "event_loop_lag", "a", "gate.own_load", set()),
    "from a cache": ({"auto": replace(called(2), cached=True)}, "answered_from_cache", None, "a", "gate.cached", set()),
    "a page": ({"auto": html()}, "endpoint_not_found", "html_page", "a", "gate.html", set()),
    "one JSON body": ({"auto": json_body()}, "stream_ignored", "json_completion", "a", "gate.stream_ignored", set()),
    "a broken stream": ({"auto": broken()}, "malformed_stream", "data_not_json", "a", "gate.malformed_stream", set()),
    "declared malformed": ({"auto": declared_malformed()}, "malformed_tool_call", "provider_declared_malformed", "a", "gate.declared_malformed", set()),
    "an error behind a part of the answer": ({"auto": late_error()}, "provider_error", "http_502", "a", "gate.error_in_stream", set()),
    "a filter": ({"auto": filtered()}, "content_filtered", None, "a", "gate.filter", set()),
    "a credential": ({"auto": refused(401, Refused.CREDENTIAL)}, "endpoint_auth_failed", "http_401", "a", "gate.credential", set()),
    "credit": ({"auto": refused(402, Refused.CREDIT)}, "quota_or_routing_failed", "http_402", "a", "gate.credit", set()),
    "no channel": ({"auto": refused(503, Refused.NO_CHANNEL)}, "quota_or_routing_failed", "http_503", "a", "gate.no_channel", set()),
    "capacity": ({"auto": refused(529, Refused.OVERLOAD)}, "overloaded", "http_529", "a", "gate.overload", set()),
    "a missing model": ({"auto": refused(404, Refused.MODEL)}, "model_unavailable", "http_404", "a", "gate.model", set()),
    "a place": ({"auto": refused(403, Refused.PLACE)}, "region_blocked", "http_403", "a", "gate.place", set()),
    "a path": ({"auto": refused(405, Refused.PATH)}, "endpoint_not_found", "http_405", "a", "gate.path", set()),
    "a broken call by code": ({"auto": refused(400, Refused.BROKEN_CALL)}, "malformed_tool_call", "http_400", "a", "gate.broken_call", set()),
    "both cap fields": ({"auto": CAP}, "token_cap_rejected", "http_400", "aa", "gate.token_cap", set()),
    "the first cap field": ({"auto/max_tokens": CAP, "auto": called(2)}, "parallel_calls_supported", None, "aa", "parallel_tool_calls.two_calls", {"max_completion_tokens_wanted"}),
    "stream_options": ({"auto/no_options": called(2), "auto": OPTIONS}, "parallel_calls_supported", None, "aa", "parallel_tool_calls.two_calls", {"stream_options_rejected"}),
    "our requests are spent": ({"auto/max_tokens": [no_answer(), CAP], "auto/no_options": [no_answer(), R4], "auto": OPTIONS, WITHOUT: called(2)}, "probe_cap_reached", "requests", "aaaaa", "parallel_tool_calls.spent", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ladder(name: str) -> None:
    script, status, reason, rungs, rule, quirks = CASES[name]
    exchanges = climb(CONTRACT, script)
    conclusion, seen = CONTRACT.conclude(ROUTE, exchanges, Circumstances())
    asked = "".join(LETTERS[exchange.ask.rung] for exchange in exchanges)
    assert (conclusion.status, conclusion.reason, asked, conclusion.rule_id) == (status, reason, rungs, rule)
    assert quirks <= seen
    assert ("parallel_flag_rejected" in seen) == ("parallel_flag_rejected" in quirks)


def test_every_rule_is_fired_by_a_case() -> None:
    elsewhere = {"gate.not_sent", "gate.cancelled", "gate.own_network", "parallel_tool_calls.undecided"}
    fired = {case[4] for case in CASES.values()}
    assert fired | elsewhere == {rule.id for rule in RULES}
    assert not fired & elsewhere


def test_time_that_runs_out_decides_nothing_that_was_still_open() -> None:
    exchanges = climb(CONTRACT, {"auto": R4, WITHOUT: called(2)})[:1]
    conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances(out_of_time=True))
    assert (conclusion.status, conclusion.reason) == ("probe_cap_reached", "time")


@pytest.mark.parametrize("flag", [None, True, False])
def test_both_functions_are_asked_for_with_the_flag_whatever_the_route_sends(flag: bool | None) -> None:
    route = replace(ROUTE, parallel_tool_calls=flag)
    with_flag, without = (one.ask for one in climb(CONTRACT, {"auto": R4, WITHOUT: called(2)}, route))
    assert (with_flag.parallel, with_flag.choice, with_flag.tools) == (True, Choice.AUTO, (TOOL, OTHER_TOOL))
    assert without == replace(with_flag, rung=WITHOUT, parallel=None)
    [message] = with_flag.messages
    assert all(tool.name in message.text for tool in with_flag.tools)
    assert '"ok"' in message.text
    assert "bcdfgh" in message.text


def test_the_functions_are_told_apart_by_their_names() -> None:
    """Neither name begins with the other: a streamed name is taken for whole as soon as it is one that is declared."""
    assert not TOOL.name.startswith(OTHER_TOOL.name)
    assert not OTHER_TOOL.name.startswith(TOOL.name)
    assert all(25 <= len(tool.name) <= 64 for tool in (TOOL, OTHER_TOOL))


def test_nothing_is_proven_without_two_whole_calls() -> None:
    answers: list[Exchange] = [*(answer() for answer in ANSWERS), called(2), HALF_BROKEN, HALF_CUT, CAP, OPTIONS]
    for first, second, third in product(answers, answers, answers):
        exchanges = climb(CONTRACT, {"auto": [first, second], WITHOUT: third})
        conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances())
        assert len(exchanges) <= CONTRACT.max_requests
        assert conclusion.rule_id != "parallel_tool_calls.undecided"
        if conclusion.status.outcome is Outcome.PROVEN:
            assert conclusion.status is Status.PARALLEL_CALLS_SUPPORTED
            last = exchanges[-1]
            assert see(last) is Seen.CALL
            assert last.reading is not None
            assert len(last.reading.calls) >= 2
