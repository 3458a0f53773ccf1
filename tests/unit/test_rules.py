"""The rules that all contracts share: each speaks of the exchange that came last, in the order of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.model import End, Exchange, Refused, Status
from service.rules import GATE, Circumstances, Facts, Rule, judge
from tests.exchanges import (
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
from tests.unit.test_seen import streamed

REST = Rule[Facts]("rest", lambda _: True, Status.INCONCLUSIVE_NO_TOOL_CALL, "The contract's own rules are asked.")
TABLE = (*GATE, REST)


def facts(
    exchange: Exchange | None,
    *,
    control: bool = False,
    spent: bool = False,
    unsent: str | None = None,
    egress_up: bool | None = None,
) -> Facts:
    return Facts(Circumstances(unsent=unsent, egress_up=egress_up), exchange, control, spent)


CANCELLED = Exchange(ask=call().ask, end=End.CANCELLED)
FLOWING = timed_out(status=200, headers_s=0.1, flowing=True)

CASES: tuple[tuple[Facts, str, Status, str | None], ...] = (
    (facts(None, unsent="credential_missing"), "gate.not_sent", Status.NOT_SENT, "credential_missing"),
    (facts(None), "gate.not_sent", Status.NOT_SENT, None),
    (facts(CANCELLED), "gate.cancelled", Status.CANCELLED, None),
    (facts(replace(timed_out(), own_lag=True)), "gate.own_load", Status.PROBER_OVERLOADED, "event_loop_lag"),
    (facts(replace(no_answer(), own_lag=True)), "gate.own_load", Status.PROBER_OVERLOADED, "event_loop_lag"),
    (facts(replace(timed_out(), own_queue=True)), "gate.own_load", Status.PROBER_OVERLOADED, "resolver_queue"),
    (
        facts(replace(timed_out(), own_lag=True, own_queue=True)),
        "gate.own_load",
        Status.PROBER_OVERLOADED,
        "event_loop_lag",
    ),
    (facts(early_end(own_lag=True)), "gate.own_load", Status.PROBER_OVERLOADED, "event_loop_lag"),
    (facts(no_answer("dns"), egress_up=False), "gate.own_network", Status.OWN_NETWORK, "dns"),
    (facts(timed_out(), egress_up=False), "gate.own_network", Status.OWN_NETWORK, "no_headers"),
    (facts(no_answer("tls_certificate")), "gate.unreachable", Status.UNREACHABLE, "tls_certificate"),
    (facts(no_answer(), egress_up=True), "gate.unreachable", Status.UNREACHABLE, "refused"),
    (facts(no_answer(), control=True), "gate.unreachable", Status.UNREACHABLE, "refused"),
    (facts(timed_out()), "gate.timeout", Status.TIMEOUT, "no_headers"),
    (facts(timed_out(), control=True), "gate.timeout", Status.TIMEOUT, "no_headers"),
    (facts(timed_out(), egress_up=True), "gate.timeout", Status.TIMEOUT, "no_headers"),
    (facts(FLOWING), "gate.own_cap", Status.PROBE_CAP_REACHED, "deadline"),
    (facts(streamed(End.CAP)), "gate.own_cap", Status.PROBE_CAP_REACHED, "bytes"),
    (facts(call(cached=True)), "gate.cached", Status.ANSWERED_FROM_CACHE, None),
    (facts(early_end(cached=True)), "gate.cached", Status.ANSWERED_FROM_CACHE, None),
    (facts(replace(json_body(), cached=True)), "gate.cached", Status.ANSWERED_FROM_CACHE, None),
    (facts(refused(401, Refused.CREDENTIAL)), "gate.credential", Status.ENDPOINT_AUTH_FAILED, "http_401"),
    (
        facts(replace(refused(401, Refused.CREDENTIAL), cached=True)),
        "gate.credential",
        Status.ENDPOINT_AUTH_FAILED,
        "http_401",
    ),
    (facts(refused(402, Refused.CREDIT)), "gate.credit", Status.QUOTA_OR_ROUTING_FAILED, "http_402"),
    (facts(refused(503, Refused.NO_CHANNEL)), "gate.no_channel", Status.QUOTA_OR_ROUTING_FAILED, "http_503"),
    (facts(refused(429, Refused.RATE)), "gate.rate", Status.RATE_LIMITED, "http_429"),
    (facts(refused(429, Refused.RATE), control=True), "gate.rate", Status.RATE_LIMITED, "http_429"),
    (facts(refused(529, Refused.OVERLOAD)), "gate.overload", Status.OVERLOADED, "http_529"),
    (facts(refused(404, Refused.MODEL)), "gate.model", Status.MODEL_UNAVAILABLE, "http_404"),
    (facts(refused(403, Refused.PLACE)), "gate.place", Status.REGION_BLOCKED, "http_403"),
    (facts(refused(405, Refused.PATH)), "gate.path", Status.ENDPOINT_NOT_FOUND, "http_405"),
    (facts(refused(400, Refused.FILTER)), "gate.filter", Status.CONTENT_FILTERED, "http_400"),
    (facts(filtered()), "gate.filter", Status.CONTENT_FILTERED, None),
    (facts(refused(400, Refused.TOKEN_CAP)), "gate.token_cap", Status.TOKEN_CAP_REJECTED, "http_400"),
    (facts(refused(400, Refused.BROKEN_CALL)), "gate.broken_call", Status.MALFORMED_TOOL_CALL, "http_400"),
    (facts(late_error(Refused.RATE)), "gate.rate", Status.RATE_LIMITED, "http_502"),
    (facts(late_error()), "gate.error_in_stream", Status.PROVIDER_ERROR, "http_502"),
    (facts(html()), "gate.html", Status.ENDPOINT_NOT_FOUND, "html_page"),
    (facts(json_body()), "gate.stream_ignored", Status.STREAM_IGNORED, "json_completion"),
    (facts(broken()), "gate.malformed_stream", Status.MALFORMED_STREAM, "data_not_json"),
    (facts(early_end()), "gate.early_end", Status.STREAM_EARLY_EOF, "closed_after_event"),
    (facts(declared_malformed()), "gate.declared_malformed", Status.MALFORMED_TOOL_CALL, "provider_declared_malformed"),
    (facts(bad_call()), "gate.bad_call", Status.MALFORMED_TOOL_CALL, "arguments_truncated"),
)


@pytest.mark.parametrize(
    ("given", "rule_id", "status", "reason"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_rule_that_speaks(given: Facts, rule_id: str, status: Status, reason: str | None) -> None:
    conclusion = judge(TABLE, given)
    assert (conclusion.rule_id, conclusion.status, conclusion.reason) == (rule_id, status, reason)


def test_every_rule_of_the_gate_has_a_case() -> None:
    assert [rule.id for rule in GATE if rule.id not in {case[1] for case in CASES}] == []


@pytest.mark.parametrize(
    "exchange",
    [
        *(call(), text(), silent(), leak(), cut(), bad_call(capped=True), refused(400), refused(500)),
        *(refused(404, hint=Refused.PATH), refused(503, hint=Refused.OVERLOAD), call(own_lag=True)),
    ],
)
def test_what_the_gate_leaves_to_the_contract(exchange: Exchange) -> None:
    for given in (facts(exchange), facts(exchange, egress_up=False), facts(exchange, spent=True)):
        assert judge(TABLE, given).rule_id == "rest"


@pytest.mark.parametrize(
    "exchange", [late_error(), html(), json_body(), broken(), early_end(), declared_malformed(), bad_call()]
)
def test_a_controls_own_fault_proves_nothing_about_the_claim(exchange: Exchange) -> None:
    assert judge(TABLE, facts(exchange, control=True)).rule_id == "rest"


def test_a_hint_settles_nothing() -> None:
    for kind in Refused:
        assert judge(TABLE, facts(refused(404, hint=kind))).rule_id == "rest"


def test_every_kind_of_refusal_is_settled_by_the_gate() -> None:
    for kind in Refused:
        for exchange in (refused(400, kind), late_error(kind)):
            assert judge(TABLE, facts(exchange)).rule_id != "rest"


def test_nothing_of_the_gate_proves_the_claim() -> None:
    assert {rule.status.outcome for rule in GATE} == {"violated", "blocked", "unavailable", "unproven"}


def test_a_table_that_matches_nothing_is_a_fault_of_ours() -> None:
    with pytest.raises(StopIteration):
        judge(GATE, facts(call()))
