"""The ladder of native_tools and its table of rules, with hand-made answers and no server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.contracts.native_tools import RULES, NativeTools
from service.model import Exchange, Outcome, Refused, Route, Status, TokenCap
from service.rules import Circumstances
from tests.exchanges import (
    ANSWERS,
    R4,
    R5,
    R503,
    ROUTE,
    Script,
    bad_call,
    broken,
    call,
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
from tests.exchanges import climb as climb_any

CONTRACT = NativeTools()


def climb(script: Script, route: Route = ROUTE) -> list[Exchange]:
    return climb_any(CONTRACT, script, route)


FLAGGED = replace(ROUTE, parallel_tool_calls=False)
COMPLETION_TOKENS = replace(ROUTE, token_cap=TokenCap("max_completion_tokens"))
OPTIONS = refused(400, names_stream_options=True)
CAP = replace(refused(400, Refused.TOKEN_CAP), other_cap_field="max_completion_tokens")

# name: (script, route, status, reason, rungs asked, rule, quirks that must be there)
CASES: dict[str, tuple[Script, Route, str, str | None, str, str, set[str]]] = {
    "healthy": ({"forced": call()}, ROUTE, "tools_supported", None, "f", "native_tools.forced_call", set()),
    "forced refused, auto calls": (
        {"forced": R4, "auto": call()}, ROUTE, "forced_tool_choice_rejected", "http_400", "fa", "native_tools.forced_rejected", set()),
    "forced fails, auto calls, forced fails again": (
        {"forced": R5, "auto": call()}, ROUTE, "forced_tool_choice_rejected", "http_500", "faf", "native_tools.forced_rejected", set()),
    "forced fails once": (
        {"forced": [R5, call()], "auto": call()}, ROUTE, "tools_supported", None, "faf", "native_tools.forced_call", {"flaky"}),
    "refused with tools, answered without": (
        {"forced": R4, "auto": R4, "control": text()}, ROUTE, "tools_payload_rejected", "http_400", "fac", "native_tools.payload_rejected", set()),
    "fails with tools, again and again": (
        {"forced": R5, "auto": R5, "control": text()}, ROUTE, "tools_payload_rejected", "http_500", "facaf", "native_tools.payload_rejected", set()),
    "a blip on both, then text": (
        {"forced": R503, "auto": [R503, text()], "control": text()}, ROUTE, "inconclusive_no_tool_call", "text_under_auto", "faca", "native_tools.text_under_auto", {"flaky"}),
    "a blip on both, then a call under auto, then on forced": (
        {"forced": [R5, call()], "auto": [R5, call()], "control": text()}, ROUTE, "tools_supported", None, "facaf", "native_tools.forced_call", {"flaky"}),
    "an outage of every form": ({"forced": R5, "auto": R5, "control": R5}, ROUTE, "provider_error", "http_500", "fac", "native_tools.shared_refusal", set()),
    "503 to every form": ({"forced": R503, "auto": R503, "control": R503}, ROUTE, "overloaded", "http_503", "fac", "native_tools.shared_503", set()),
    "503 to the control alone": ({"forced": R4, "auto": R4, "control": R503}, ROUTE, "provider_error", "http_503", "fac", "native_tools.shared_refusal", set()),
    "client errors of two kinds": ({"forced": refused(422), "auto": R4, "control": R4}, ROUTE, "provider_error", "http_4xx", "fac", "native_tools.shared_refusal", set()),
    "404 to every form": (
        {"forced": refused(404, hint=Refused.PATH), "auto": refused(404, hint=Refused.PATH), "control": refused(404, hint=Refused.PATH)},
        ROUTE, "endpoint_not_found", "http_404", "fac", "native_tools.shared_404_path", set()),
    "404 about the model": (
        {"forced": refused(404, hint=Refused.MODEL), "auto": refused(404, hint=Refused.MODEL), "control": refused(404, hint=Refused.MODEL)},
        ROUTE, "model_unavailable", "http_404", "fac", "native_tools.shared_404_model", set()),
    "404 with tools alone": (
        {"forced": refused(404, hint=Refused.MODEL), "auto": refused(404, hint=Refused.MODEL), "control": text()},
        ROUTE, "tools_payload_rejected", "http_404", "fac", "native_tools.payload_rejected", set()),
    "the control is silent": ({"forced": R4, "auto": R4, "control": silent()}, ROUTE, "provider_error", "control_empty", "fac", "native_tools.control_proves_nothing", set()),
    "the control ends early": ({"forced": R4, "auto": R4, "control": early_end()}, ROUTE, "provider_error", "closed_after_event", "fac", "native_tools.control_proves_nothing", set()),
    "the control is a page": ({"forced": R4, "auto": R4, "control": html()}, ROUTE, "provider_error", "html_page", "fac", "native_tools.control_proves_nothing", set()),
    "the control is cut before text": ({"forced": R4, "auto": R4, "control": cut()}, ROUTE, "inconclusive_no_tool_call", "control_cut", "fac", "native_tools.control_cut", set()),
    "the control is cut after text": ({"forced": R4, "auto": R4, "control": cut(has_text=True)}, ROUTE, "tools_payload_rejected", "http_400", "fac", "native_tools.payload_rejected", set()),
    "the control hangs": ({"forced": R4, "auto": R4, "control": timed_out()}, ROUTE, "timeout", "no_headers", "fac", "gate.timeout", set()),
    "ignored under both": ({"forced": text(), "auto": text()}, ROUTE, "forced_tool_choice_ignored", None, "fa", "native_tools.forced_ignored", set()),
    "ignored when forced only": ({"forced": silent(), "auto": call()}, ROUTE, "tools_supported", None, "fa", "native_tools.auto_call", {"forced_choice_ignored"}),
    "leaked when forced only": ({"forced": leak(), "auto": call()}, ROUTE, "tools_supported", None, "fa", "native_tools.auto_call", {"forced_call_leaked"}),
    "leaked under both": ({"forced": leak("kimi"), "auto": leak("hermes")}, ROUTE, "tool_call_leaked_as_text", "hermes", "fa", "native_tools.leaked", set()),
    "leaked when forced, text under auto": ({"forced": leak(), "auto": text()}, ROUTE, "tool_call_leaked_as_text", "kimi", "fa", "native_tools.leaked", set()),
    "auto refused after an ignored forcing": ({"forced": text(), "auto": R4}, ROUTE, "auto_tool_choice_rejected", "http_400", "fa", "native_tools.auto_rejected", set()),
    "auto refused after a leak": ({"forced": leak(), "auto": R4}, ROUTE, "auto_tool_choice_rejected", "http_400", "fa", "native_tools.auto_rejected", set()),
    "auto fails twice after an ignored forcing": ({"forced": text(), "auto": R5}, ROUTE, "provider_error", "http_500", "faa", "native_tools.auto_failed", set()),
    "auto fails behind no answer, after an ignored forcing": ({"forced": text(), "auto": [no_answer(), R5, call()]}, ROUTE, "tools_supported", None, "faaa", "native_tools.auto_call", {"flaky"}),
    "auto fails once after an ignored forcing": ({"forced": text(), "auto": [R5, call()]}, ROUTE, "tools_supported", None, "faa", "native_tools.auto_call", {"flaky"}),
    "auto refused, forcing works on the second try": (
        {"forced": [R5, call()], "auto": R4, "control": text()}, ROUTE, "auto_tool_choice_rejected", "http_400", "facf", "native_tools.auto_rejected", {"flaky"}),
    "forced is cut": ({"forced": cut()}, ROUTE, "inconclusive_no_tool_call", "token_cap", "f", "native_tools.cut_by_our_cap", set()),
    "auto is cut": ({"forced": R4, "auto": cut()}, ROUTE, "inconclusive_no_tool_call", "token_cap", "fa", "native_tools.cut_by_our_cap", set()),
    "a cut call": ({"forced": bad_call(capped=True)}, ROUTE, "inconclusive_no_tool_call", "token_cap", "f", "native_tools.cut_by_our_cap", set()),
    "a broken call": ({"forced": bad_call()}, ROUTE, "malformed_tool_call", "arguments_truncated", "f", "gate.bad_call", set()),
    "a broken stream": ({"forced": broken()}, ROUTE, "malformed_stream", "data_not_json", "f", "gate.malformed_stream", set()),
    "declared malformed": ({"forced": declared_malformed()}, ROUTE, "malformed_tool_call", "provider_declared_malformed", "f", "gate.declared_malformed", set()),
    "a filter inside": ({"forced": filtered()}, ROUTE, "content_filtered", None, "f", "gate.filter", set()),
    "an early end": ({"forced": early_end()}, ROUTE, "stream_early_eof", "closed_after_event", "f", "gate.early_end", set()),
    "an error after a delta": ({"forced": late_error()}, ROUTE, "provider_error", "http_502", "f", "gate.error_in_stream", set()),
    "a coded error after a delta": ({"forced": late_error(Refused.RATE)}, ROUTE, "rate_limited", "http_502", "f", "gate.rate", set()),
    "a page": ({"forced": html()}, ROUTE, "endpoint_not_found", "html_page", "f", "gate.html", set()),
    "one JSON body": ({"forced": json_body()}, ROUTE, "stream_ignored", "json_completion", "f", "gate.stream_ignored", set()),
    "no answer twice": ({"forced": no_answer()}, ROUTE, "unreachable", "refused", "ff", "gate.unreachable", set()),
    "no answer once": ({"forced": [no_answer(), call()]}, ROUTE, "tools_supported", None, "ff", "native_tools.forced_call", {"flaky"}),
    "no answer on two rungs": ({"forced": [no_answer(), R4], "auto": [no_answer(), call()]}, ROUTE, "forced_tool_choice_rejected", "http_400", "ffaa", "native_tools.forced_rejected", {"flaky"}),
    "no headers": ({"forced": timed_out()}, ROUTE, "timeout", "no_headers", "f", "gate.timeout", set()),
    "no event": ({"forced": timed_out(status=200, headers_s=0.1)}, ROUTE, "timeout", "no_event", "f", "gate.timeout", set()),
    "a stalled error body": ({"forced": timed_out(status=400, headers_s=0.1)}, ROUTE, "timeout", "stalled", "f", "gate.timeout", set()),
    "still flowing at the deadline": ({"forced": timed_out(status=200, flowing=True)}, ROUTE, "probe_cap_reached", "deadline", "f", "gate.own_cap", set()),
    "from a cache": ({"forced": call(cached=True)}, ROUTE, "answered_from_cache", None, "f", "gate.cached", set()),
    "silence while we lagged": ({"forced": timed_out(own_lag=True)}, ROUTE, "prober_overloaded", "event_loop_lag", "f", "gate.own_load", set()),
    "a call while we lagged": ({"forced": call(own_lag=True)}, ROUTE, "tools_supported", None, "f", "native_tools.forced_call", set()),
    "credential": ({"forced": refused(401, Refused.CREDENTIAL)}, ROUTE, "endpoint_auth_failed", "http_401", "f", "gate.credential", set()),
    "credit": ({"forced": refused(402, Refused.CREDIT)}, ROUTE, "quota_or_routing_failed", "http_402", "f", "gate.credit", set()),
    "no channel": ({"forced": refused(503, Refused.NO_CHANNEL)}, ROUTE, "quota_or_routing_failed", "http_503", "f", "gate.no_channel", set()),
    "rate": ({"forced": text(), "auto": refused(429, Refused.RATE)}, ROUTE, "rate_limited", "http_429", "fa", "gate.rate", set()),
    "overload": ({"forced": refused(529, Refused.OVERLOAD)}, ROUTE, "overloaded", "http_529", "f", "gate.overload", set()),
    "model": ({"forced": refused(404, Refused.MODEL)}, ROUTE, "model_unavailable", "http_404", "f", "gate.model", set()),
    "place": ({"forced": refused(403, Refused.PLACE)}, ROUTE, "region_blocked", "http_403", "f", "gate.place", set()),
    "path": ({"forced": refused(405, Refused.PATH)}, ROUTE, "endpoint_not_found", "http_405", "f", "gate.path", set()),
    "filter": ({"forced": refused(400, Refused.FILTER)}, ROUTE, "content_filtered", "http_400", "f", "gate.filter", set()),
    "failed generation": ({"forced": refused(400, Refused.BROKEN_CALL)}, ROUTE, "malformed_tool_call", "http_400", "f", "gate.broken_call", set()),
    "the control is rate limited": ({"forced": R4, "auto": R4, "control": refused(429, Refused.RATE)}, ROUTE, "rate_limited", "http_429", "fac", "gate.rate", set()),
    "a configured cap field refused": ({"forced": CAP}, COMPLETION_TOKENS, "token_cap_rejected", "http_400", "f", "gate.token_cap", set()),
    "max_tokens refused by name": (
        {"forced/max_tokens": CAP, "forced/max_completion_tokens": call()}, ROUTE, "tools_supported", None, "ff", "native_tools.forced_call", {"max_completion_tokens_wanted"}),
    "both cap fields refused": ({"forced": CAP}, ROUTE, "token_cap_rejected", "http_400", "ff", "gate.token_cap", set()),
    "max_tokens refused, tools refused": (
        {"forced/max_tokens": CAP, "forced": R4, "auto": R4, "control": text()}, ROUTE, "tools_payload_rejected", "http_400", "ffac", "native_tools.payload_rejected", {"max_completion_tokens_wanted"}),
    "stream_options refused": (
        {"forced": OPTIONS, "control/no_options": text(), "forced/no_options": call()}, ROUTE, "tools_supported", None, "fcf", "native_tools.forced_call", {"stream_options_rejected"}),
    "stream_options and tools refused": (
        {"forced": OPTIONS, "control/no_options": text(), "forced/no_options": R4, "auto/no_options": R4}, ROUTE, "tools_payload_rejected", "http_400", "fcfa", "native_tools.payload_rejected", {"stream_options_rejected"}),
    "stream_options named in vain": (
        {"forced": OPTIONS, "control": R4, "auto": R4}, ROUTE, "provider_error", "http_400", "fca", "native_tools.shared_refusal", set()),
    "only the parallel flag refused": (
        {"forced": R4, "auto": R4, "control": text(), "auto_without_parallel_flag": call()}, FLAGGED, "tools_payload_rejected", "parallel_flag_rejected", "facw", "native_tools.parallel_flag_rejected", set()),
    "refused without the flag too": (
        {"forced": R4, "auto": R4, "control": text(), "auto_without_parallel_flag": R4}, FLAGGED, "tools_payload_rejected", "http_400", "facw", "native_tools.payload_rejected", set()),
    "failing with and without the flag": (
        {"forced": R5, "auto": R5, "control": text(), "auto_without_parallel_flag": R5}, FLAGGED, "tools_payload_rejected", "http_500", "facwf", "native_tools.payload_rejected", set()),
    "our requests are spent": (
        {"forced/max_tokens": CAP, "forced": [no_answer(), R5], "auto": R5, "control": text()}, ROUTE, "probe_cap_reached", "requests", "fffac", "native_tools.spent", {"flaky"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ladder(name: str) -> None:
    script, route, status, reason, rungs, rule, quirks = CASES[name]
    exchanges = climb(script, route)
    conclusion, seen = CONTRACT.conclude(route, exchanges, Circumstances())
    asked = "".join("w" if e.ask.rung == "auto_without_parallel_flag" else e.ask.rung[0] for e in exchanges)
    assert (conclusion.status, conclusion.reason, asked, conclusion.rule_id) == (status, reason, rungs, rule)
    assert quirks <= seen
    assert ("flaky" in seen) == ("flaky" in quirks)


def test_every_rule_is_fired_by_a_case() -> None:
    elsewhere = {"gate.not_sent", "gate.cancelled", "gate.own_network", "native_tools.undecided"}
    fired = {case[5] for case in CASES.values()}
    assert fired | elsewhere == {rule.id for rule in RULES}
    assert not fired & elsewhere


@pytest.mark.parametrize(
    ("exchanges", "circumstances", "status", "reason", "rule"),
    [
        ([], Circumstances(unsent="credential_missing"), "not_sent", "credential_missing", "gate.not_sent"),
        ([no_answer(), no_answer()], Circumstances(egress_up=False), "own_network", "refused", "gate.own_network"),
        ([timed_out()], Circumstances(egress_up=False), "own_network", "no_headers", "gate.own_network"),
        ([no_answer(), no_answer()], Circumstances(egress_up=True), "unreachable", "refused", "gate.unreachable"),
        ([R4], Circumstances(out_of_time=True), "probe_cap_reached", "time", "native_tools.spent"),
        ([leak()], Circumstances(out_of_time=True), "probe_cap_reached", "time", "native_tools.spent"),
        ([text()], Circumstances(out_of_time=True), "probe_cap_reached", "time", "native_tools.spent"),
        (
            climb({"forced": text(), "auto": R5})[:2],
            Circumstances(out_of_time=True),
            "probe_cap_reached",
            "time",
            "native_tools.spent",
        ),
        (
            [call()],
            Circumstances(out_of_time=True, egress_up=False),
            "tools_supported",
            None,
            "native_tools.forced_call",
        ),
        ([R4], Circumstances(), "inconclusive_no_tool_call", "undecided", "native_tools.undecided"),
    ],
)
def test_circumstances(
    exchanges: list[Exchange], circumstances: Circumstances, status: str, reason: str | None, rule: str
) -> None:
    conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, circumstances)
    assert (conclusion.status, conclusion.reason, conclusion.rule_id) == (status, reason, rule)


def test_nothing_is_proven_without_a_whole_call() -> None:
    """All pairs and triples of answers on the three rungs: never proven unless a rung brought a whole call."""
    for forced in ANSWERS:
        for auto in ANSWERS:
            for control in ANSWERS:
                exchanges = climb({"forced": forced(), "auto": auto(), "control": control()})
                conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances())
                called = any(e.reading and e.reading.calls and not e.reading.calls[0].problem for e in exchanges)
                assert len(exchanges) <= CONTRACT.max_requests
                assert conclusion.rule_id != "native_tools.undecided"
                if conclusion.status.outcome is Outcome.PROVEN:
                    assert called
                if conclusion.status in (Status.TOOLS_PAYLOAD_REJECTED,):
                    assert not called
