"""The ladder of agent_turn and its table of rules, with hand-made answers and no server."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from service.contracts.agent_turn import RULES, AgentTurn
from service.contracts.ladder import TOOL
from service.model import Ask, Choice, Exchange, Outcome, Refused, Role, Route, Status, TokenCap
from service.rules import Circumstances
from service.seen import ACCEPTED, Seen, see
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

CONTRACT = AgentTurn()
LETTERS = {"auto": "a", "forced": "f", "replay": "r"}

THOUGHTS = refused(400, text="The `reasoning_content` in the thinking mode must be passed back to the API.")
SIGNATURE = refused(400, text="messages.1.content.0: Invalid `signature` in `thinking` block")
OPTIONS = refused(400, names_stream_options=True)
CAP = replace(refused(400, Refused.TOKEN_CAP), other_cap_field="max_completion_tokens")
PATH = refused(404, hint=Refused.PATH)

# name: (script, status, reason, rungs asked, rule)
CASES: dict[str, tuple[Script, str, str | None, str, str]] = {
    # the turn
    "whole": ({"auto": called(), "replay": text()}, "turn_completed", None, "ar", "agent_turn.completed"),
    "the answer is cut behind some text": ({"auto": called(), "replay": cut(has_text=True)}, "turn_completed", None, "ar", "agent_turn.completed"),
    "the answer is cut before any text": ({"auto": called(), "replay": cut()}, "turn_unfinished", "token_cap", "ar", "agent_turn.answer_cut_by_our_cap"),
    "no answer to the replay": ({"auto": called(), "replay": silent()}, "turn_unfinished", "empty", "ar", "agent_turn.empty_answer"),
    "another call to the replay": ({"auto": called(), "replay": call()}, "turn_unfinished", "another_call", "ar", "agent_turn.another_call"),
    "a leak to the replay": ({"auto": called(), "replay": leak("hermes")}, "tool_call_leaked_as_text", "hermes", "ar", "agent_turn.leaked"),
    "an early end of the answer": ({"auto": called(), "replay": early_end()}, "stream_early_eof", "closed_after_event", "ar", "gate.early_end"),
    "a broken answer": ({"auto": called(), "replay": broken()}, "malformed_stream", "data_not_json", "ar", "gate.malformed_stream"),
    "an answer in one body": ({"auto": called(), "replay": json_body()}, "stream_ignored", "json_completion", "ar", "gate.stream_ignored"),
    "a broken call to the replay": ({"auto": called(), "replay": bad_call()}, "malformed_tool_call", "arguments_truncated", "ar", "gate.bad_call"),
    "an answer that a filter ended": ({"auto": called(), "replay": filtered()}, "content_filtered", None, "ar", "gate.filter"),
    "no HTTP answer to the replay, twice": ({"auto": called(), "replay": no_answer()}, "unreachable", "refused", "arr", "gate.unreachable"),
    "no HTTP answer to the replay, once": ({"auto": called(), "replay": [no_answer(), text()]}, "turn_completed", None, "arr", "agent_turn.completed"),
    # the replay is refused
    "the replay is refused": ({"auto": called(), "replay": R4}, "history_rejected", "http_400", "ar", "agent_turn.replay_rejected"),
    "... for want of its reasoning": ({"auto": called(), "replay": THOUGHTS}, "history_rejected", "reasoning_replay_required", "ar", "agent_turn.replay_rejected"),
    "... for its signature": ({"auto": called(), "replay": SIGNATURE}, "history_rejected", "reasoning_replay_invalid", "ar", "agent_turn.replay_rejected"),
    "... with a 404": ({"auto": called(), "replay": PATH}, "history_rejected", "http_404", "ar", "agent_turn.replay_rejected"),
    "... with a fault, again and again": ({"auto": called(), "replay": R5}, "history_rejected", "http_500", "arar", "agent_turn.replay_rejected"),
    "... with a 503, again and again": ({"auto": called(), "replay": R503}, "history_rejected", "http_503", "arar", "agent_turn.replay_rejected"),
    "... with a fault once": ({"auto": called(), "replay": [R5, text()]}, "turn_completed", None, "arar", "agent_turn.completed"),
    "... with a fault once, then refused": ({"auto": called(), "replay": [R5, R4]}, "history_rejected", "http_400", "arar", "agent_turn.replay_rejected"),
    "... with a fault behind no answer": ({"auto": called(), "replay": [no_answer(), R5]}, "history_rejected", "http_500", "arrar", "agent_turn.replay_rejected"),
    "... with a fault that passes, behind no answer": ({"auto": called(), "replay": [no_answer(), R5, text()]}, "turn_completed", None, "arrar", "agent_turn.completed"),
    "... with a fault, and the turn fails too": ({"auto": [called(), R5], "forced": R5, "replay": R5}, "provider_error", "http_500", "araf", "agent_turn.refused"),
    "... with a fault, and the turn is an outage": ({"auto": [called(), R503], "forced": R503, "replay": R503}, "overloaded", "http_503", "araf", "agent_turn.shared_503"),
    "... with a fault, and the turn is silent": ({"auto": [called(), no_answer()], "replay": R5}, "unreachable", "refused", "araa", "gate.unreachable"),
    "... with a fault, and no call is made again": ({"auto": [called(), text()], "replay": R5}, "inconclusive_no_tool_call", "text_under_auto", "ara", "agent_turn.text_under_auto"),
    "... with a fault, and forcing shows it again": ({"auto": [called(), R5], "forced": called(), "replay": R5}, "history_rejected", "http_500", "arafr", "agent_turn.replay_rejected"),
    "... with a fault once, and auto fails": ({"auto": [called(), R5], "forced": called(), "replay": [R5, text()]}, "probe_cap_reached", "requests", "arafr", "agent_turn.spent"),
    # settled refusals of the replay
    "credential on the replay": ({"auto": called(), "replay": refused(401, Refused.CREDENTIAL)}, "endpoint_auth_failed", "http_401", "ar", "gate.credential"),
    "credit on the replay": ({"auto": called(), "replay": refused(402, Refused.CREDIT)}, "quota_or_routing_failed", "http_402", "ar", "gate.credit"),
    "no channel on the replay": ({"auto": called(), "replay": refused(503, Refused.NO_CHANNEL)}, "quota_or_routing_failed", "http_503", "ar", "gate.no_channel"),
    "rate on the replay": ({"auto": called(), "replay": refused(429, Refused.RATE)}, "rate_limited", "http_429", "ar", "gate.rate"),
    "place on the replay": ({"auto": called(), "replay": refused(403, Refused.PLACE)}, "region_blocked", "http_403", "ar", "gate.place"),
    "capacity on the replay": ({"auto": called(), "replay": refused(529, Refused.OVERLOAD)}, "overloaded", "http_529", "ar", "gate.overload"),
    "a filter on the replay": ({"auto": called(), "replay": refused(400, Refused.FILTER)}, "content_filtered", "http_400", "ar", "gate.filter"),
    "a missing model on the replay": ({"auto": called(), "replay": refused(404, Refused.MODEL)}, "history_rejected", "http_404", "ar", "agent_turn.replay_refused_by_code"),
    "a path on the replay": ({"auto": called(), "replay": refused(405, Refused.PATH)}, "history_rejected", "http_405", "ar", "agent_turn.replay_refused_by_code"),
    "a broken call on the replay": ({"auto": called(), "replay": refused(400, Refused.BROKEN_CALL)}, "history_rejected", "http_400", "ar", "agent_turn.replay_refused_by_code"),
    "a configured cap field on the replay": ({"auto": called(), "replay": refused(400, Refused.TOKEN_CAP)}, "history_rejected", "http_400", "ar", "agent_turn.replay_refused_by_code"),
    "an error behind a part of the answer": ({"auto": called(), "replay": late_error()}, "provider_error", "http_502", "ar", "gate.error_in_stream"),
    # auto is refused
    "auto refused, the forced turn goes through": ({"auto": R4, "forced": called(), "replay": text()}, "auto_tool_choice_rejected", "http_400", "afr", "agent_turn.auto_rejected"),
    "auto refused, the forced turn is refused too": ({"auto": R4, "forced": called(), "replay": R4}, "auto_tool_choice_rejected", "http_400", "afr", "agent_turn.auto_rejected"),
    "auto refused, forcing taken without a call": ({"auto": R4, "forced": text()}, "auto_tool_choice_rejected", "http_400", "af", "agent_turn.auto_rejected"),
    "auto refused, forcing leaks": ({"auto": R4, "forced": leak()}, "auto_tool_choice_rejected", "http_400", "af", "agent_turn.auto_rejected"),
    "auto refused, forcing is cut": ({"auto": R4, "forced": cut()}, "auto_tool_choice_rejected", "http_400", "af", "agent_turn.auto_rejected"),
    "both refused": ({"auto": R4, "forced": R4}, "provider_error", "http_400", "af", "agent_turn.refused"),
    "both refused in two ways": ({"auto": refused(422), "forced": R4}, "provider_error", "http_4xx", "af", "agent_turn.refused"),
    "a bare 404 to both": ({"auto": PATH, "forced": PATH}, "endpoint_not_found", "http_404", "af", "agent_turn.shared_404_path"),
    "a 404 about the model to both": ({"auto": refused(404, hint=Refused.MODEL), "forced": refused(404, hint=Refused.MODEL)}, "model_unavailable", "http_404", "af", "agent_turn.shared_404_model"),
    "an outage": ({"auto": R5, "forced": R5}, "provider_error", "http_500", "af", "agent_turn.refused"),
    "an outage with 503": ({"auto": R503, "forced": R503}, "overloaded", "http_503", "af", "agent_turn.shared_503"),
    "auto fails, the forced turn goes through, auto fails again": ({"auto": R5, "forced": called(), "replay": text()}, "provider_error", "http_500", "afra", "agent_turn.auto_failed"),
    "auto fails once, then calls": ({"auto": [R5, called()], "forced": called(), "replay": text()}, "turn_completed", None, "afra", "agent_turn.completed"),
    "auto fails once, then says something": ({"auto": [R5, text()], "forced": called(), "replay": text()}, "inconclusive_no_tool_call", "text_under_auto", "afra", "agent_turn.text_under_auto"),
    "auto fails, then is refused": ({"auto": [R5, R4], "forced": called(), "replay": text()}, "auto_tool_choice_rejected", "http_400", "afra", "agent_turn.auto_rejected"),
    "auto fails behind no answer": ({"auto": [no_answer(), R5, called()], "forced": called(), "replay": text()}, "turn_completed", None, "aafra", "agent_turn.completed"),
    "auto fails, forcing is taken without a call, auto fails again": ({"auto": R5, "forced": text()}, "provider_error", "http_500", "afa", "agent_turn.auto_failed"),
    "auto fails once, forcing is taken without a call, then the turn": ({"auto": [R5, called()], "forced": text(), "replay": text()}, "turn_completed", None, "afar", "agent_turn.completed"),
    "auto fails once, forcing leaks, then the turn": ({"auto": [R5, called()], "forced": leak(), "replay": text()}, "turn_completed", None, "afar", "agent_turn.completed"),
    "auto fails once, forcing leaks, then text": ({"auto": [R5, text()], "forced": leak("kimi")}, "tool_call_leaked_as_text", "kimi", "afa", "agent_turn.leaked"),
    "auto fails, the forced replay is refused": ({"auto": R5, "forced": called(), "replay": R4}, "history_rejected", "http_400", "afr", "agent_turn.replay_rejected"),
    "auto fails, the forced replay fails": ({"auto": R5, "forced": called(), "replay": R5}, "history_rejected", "http_500", "afrfr", "agent_turn.replay_rejected"),
    "auto fails, the forced replay fails once": ({"auto": R5, "forced": called(), "replay": [R5, text()]}, "probe_cap_reached", "requests", "afrfr", "agent_turn.spent"),
    "auto fails, forcing breaks off": ({"auto": R5, "forced": early_end()}, "stream_early_eof", "closed_after_event", "af", "gate.early_end"),
    # no call under auto
    "text under auto": ({"auto": text()}, "inconclusive_no_tool_call", "text_under_auto", "a", "agent_turn.text_under_auto"),
    "silence under auto": ({"auto": silent()}, "inconclusive_no_tool_call", "text_under_auto", "a", "agent_turn.text_under_auto"),
    "a leak under auto": ({"auto": leak("kimi")}, "tool_call_leaked_as_text", "kimi", "a", "agent_turn.leaked"),
    "cut under auto": ({"auto": cut()}, "inconclusive_no_tool_call", "token_cap", "a", "agent_turn.cut_by_our_cap"),
    "a call too long to be replayed": ({"auto": call()}, "probe_cap_reached", "bytes", "a", "agent_turn.too_long_to_replay"),
    # what is common to all contracts
    "no answer": ({"auto": no_answer()}, "unreachable", "refused", "aa", "gate.unreachable"),
    "no answer once": ({"auto": [no_answer(), called()], "replay": text()}, "turn_completed", None, "aar", "agent_turn.completed"),
    "no headers": ({"auto": timed_out()}, "timeout", "no_headers", "a", "gate.timeout"),
    "still flowing": ({"auto": timed_out(status=200, flowing=True)}, "probe_cap_reached", "deadline", "a", "gate.own_cap"),
    "our own lag": ({"auto": timed_out(own_lag=True)}, "prober_overloaded", "event_loop_lag", "a", "gate.own_load"),
    "from a cache": ({"auto": replace(called(), cached=True)}, "answered_from_cache", None, "a", "gate.cached"),
    "an answer from a cache": ({"auto": called(), "replay": replace(text(), cached=True)}, "answered_from_cache", None, "ar", "gate.cached"),
    "a page": ({"auto": html()}, "endpoint_not_found", "html_page", "a", "gate.html"),
    "declared malformed": ({"auto": declared_malformed()}, "malformed_tool_call", "provider_declared_malformed", "a", "gate.declared_malformed"),
    "a missing model": ({"auto": refused(404, Refused.MODEL)}, "model_unavailable", "http_404", "a", "gate.model"),
    "a path": ({"auto": refused(405, Refused.PATH)}, "endpoint_not_found", "http_405", "a", "gate.path"),
    "a broken call by code": ({"auto": refused(400, Refused.BROKEN_CALL)}, "malformed_tool_call", "http_400", "a", "gate.broken_call"),
    "a credential on forcing": ({"auto": R4, "forced": refused(401, Refused.CREDENTIAL)}, "endpoint_auth_failed", "http_401", "af", "gate.credential"),
    "both cap fields refused": ({"auto": CAP}, "token_cap_rejected", "http_400", "aa", "gate.token_cap"),
    "the first cap field refused": ({"auto/max_tokens": CAP, "auto": called(), "replay": text()}, "turn_completed", None, "aar", "agent_turn.completed"),
    "the first cap field refused to the replay alone": ({"auto": called(), "replay/max_tokens": CAP, "replay": text()}, "turn_completed", None, "arra", "agent_turn.completed"),
    "stream_options refused": ({"auto/no_options": called(), "auto": OPTIONS, "replay": text()}, "turn_completed", None, "aar", "agent_turn.completed"),
    "stream_options refused to the replay alone": ({"auto": called(), "replay/no_options": text(), "replay": OPTIONS}, "turn_completed", None, "arra", "agent_turn.completed"),
    "stream_options named in vain": ({"auto": called(), "replay": OPTIONS}, "history_rejected", "http_400", "arr", "agent_turn.replay_rejected"),
    "stream_options named in vain by a fault": ({"auto": called(), "replay": refused(500, names_stream_options=True)}, "history_rejected", "http_500", "arrar", "agent_turn.replay_rejected"),
    "our requests are spent": ({"auto": [no_answer(), R5], "forced": [no_answer(), called()], "replay": [no_answer(), text()]}, "unreachable", "refused", "aaffr", "gate.unreachable"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ladder(name: str) -> None:
    script, status, reason, rungs, rule = CASES[name]
    exchanges = climb(CONTRACT, script)
    conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances())
    asked = "".join(LETTERS[exchange.ask.rung] for exchange in exchanges)
    assert (conclusion.status, conclusion.reason, asked, conclusion.rule_id) == (status, reason, rungs, rule)


def test_every_rule_is_fired_by_a_case() -> None:
    elsewhere = {"gate.not_sent", "gate.cancelled", "gate.own_network", "agent_turn.undecided"}
    fired = {case[4] for case in CASES.values()}
    assert fired | elsewhere == {rule.id for rule in RULES}
    assert not fired & elsewhere


@pytest.mark.parametrize(
    ("script", "sent", "status", "rule"),
    [
        ({"auto": called(), "replay": R5}, 1, "probe_cap_reached", "agent_turn.spent"),
        ({"auto": called(), "replay": R5}, 2, "probe_cap_reached", "agent_turn.spent"),
        ({"auto": called(), "replay": R5}, 3, "probe_cap_reached", "agent_turn.spent"),
        ({"auto": called(), "replay": R4}, 2, "history_rejected", "agent_turn.replay_rejected"),
        ({"auto": called(), "replay": text()}, 2, "turn_completed", "agent_turn.completed"),
        ({"auto": R4, "forced": called(), "replay": text()}, 1, "probe_cap_reached", "agent_turn.spent"),
        (
            {"auto": R4, "forced": called(), "replay": text()},
            2,
            "auto_tool_choice_rejected",
            "agent_turn.auto_rejected",
        ),
        ({"auto": R5, "forced": called(), "replay": text()}, 3, "probe_cap_reached", "agent_turn.spent"),
        ({"auto": R5, "forced": leak()}, 2, "probe_cap_reached", "agent_turn.spent"),
        ({"auto": text()}, 1, "inconclusive_no_tool_call", "agent_turn.text_under_auto"),
    ],
)
def test_time_that_runs_out_decides_nothing_that_was_still_open(
    script: Script, sent: int, status: str, rule: str
) -> None:
    exchanges = climb(CONTRACT, script)[:sent]
    conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances(out_of_time=True))
    assert (conclusion.status, conclusion.rule_id) == (status, rule)
    assert conclusion.reason != "requests"


def test_nothing_sent_and_our_own_network() -> None:
    conclusion, _ = CONTRACT.conclude(ROUTE, [], Circumstances(unsent="credential_missing"))
    assert (conclusion.status, conclusion.reason) == ("not_sent", "credential_missing")
    exchanges = climb(CONTRACT, {"auto": called(), "replay": no_answer()})
    conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances(egress_up=False))
    assert (conclusion.status, conclusion.rule_id) == ("own_network", "gate.own_network")


def asks(script: Script, route: Route = ROUTE) -> list[Ask]:
    return [exchange.ask for exchange in climb(CONTRACT, script, route)]


def test_the_turn_is_asked_as_an_agent_asks_it() -> None:
    first, second = asks({"auto": called(2), "replay": text()}, replace(ROUTE, parallel_tool_calls=True))
    assert (first.choice, first.tools, first.parallel) == (Choice.AUTO, (TOOL,), True)
    assert (second.choice, second.tools, second.parallel) == (Choice.AUTO, (TOOL,), True)
    [question] = first.messages
    assert question.role is Role.USER
    assert TOOL.name in question.text
    assert "bcdfgh" in question.text
    assert second.messages[0] == question
    assert [message.role for message in second.messages] == ["user", "assistant", "result", "result"]


def test_the_replay_is_the_routes_own_message_with_a_result_for_each_of_its_calls() -> None:
    answer = called(2)
    assert answer.replay is not None
    _, second = asks({"auto": answer, "replay": text()})
    assert second.messages[1].replay is answer.replay
    assert [message.answers for message in second.messages[2:]] == list(answer.replay.calls)
    assert all(message.text for message in second.messages[2:])


def test_a_forced_call_is_replayed_under_auto() -> None:
    auto, forced, replay = asks({"auto": R4, "forced": called(), "replay": text()})
    assert forced == replace(auto, rung="forced", choice=Choice.FORCED)
    assert replay.choice is Choice.AUTO


def test_the_replay_that_is_asked_again_is_of_the_newer_call() -> None:
    older, newer = called(1), called(3)
    sent = asks({"auto": [older, newer], "replay": R5})
    assert [ask.messages[1].replay for ask in sent if ask.rung == "replay"] == [older.replay, newer.replay]


@pytest.mark.parametrize(
    ("route", "script", "fields"),
    [
        (ROUTE, {"auto/max_tokens": CAP, "auto": called(), "replay": text()}, [None, *["max_completion_tokens"] * 2]),
        (replace(ROUTE, token_cap=TokenCap("max_tokens")), {"auto": called(), "replay": text()}, ["max_tokens"] * 2),
    ],
)
def test_the_replay_has_the_cap_field_that_was_taken(route: Route, script: Script, fields: list[str | None]) -> None:
    assert [ask.tokens_field for ask in asks(script, route)] == fields


def test_the_replay_has_the_stream_options_that_were_taken() -> None:
    script: Script = {"auto/no_options": called(), "auto": OPTIONS, "replay": text()}
    assert [ask.include_usage for ask in asks(script)] == [True, False, False]
    assert [ask.include_usage for ask in asks(script, replace(ROUTE, include_usage=False))] == [False, False]


def violated_by_one_fault(exchanges: list[Exchange]) -> bool:
    """Whether every refusal among the exchanges came once and could pass."""
    refusals = [exchange for exchange in exchanges if see(exchange) is Seen.REFUSED]
    once = {exchange.ask.rung for exchange in refusals}
    could_pass = all(exchange.refusal and exchange.refusal.could_pass for exchange in refusals)
    return could_pass and len(once) == len(refusals)


FIRST = [*(answer() for answer in ANSWERS), call(), CAP]


@pytest.mark.parametrize("auto", FIRST, ids=lambda exchange: f"{see(exchange)}")
def test_nothing_is_concluded_that_was_not_seen(auto: Exchange) -> None:
    """All answers to `auto`, twice, to the forced choice and to the replay, twice."""
    few = [called(), text(), R4, R5]
    for again, forced, replay, replayed in product(few, [*few, leak(), cut(), no_answer(), early_end()], FIRST, few):
        exchanges = climb(CONTRACT, {"auto": [auto, again], "forced": forced, "replay": [replay, replayed]})
        conclusion, _ = CONTRACT.conclude(ROUTE, exchanges, Circumstances())
        seen = [(exchange.ask.rung, see(exchange)) for exchange in exchanges]
        assert len(exchanges) <= CONTRACT.max_requests
        assert conclusion.rule_id != "agent_turn.undecided", seen
        if conclusion.status.outcome is Outcome.PROVEN:
            assert ("auto", Seen.CALL) in seen
            assert ("replay", Seen.TEXT) in seen or ("replay", Seen.CUT) in seen
        if conclusion.status is Status.HISTORY_REJECTED:
            assert ("replay", Seen.REFUSED) in seen
            assert {("auto", Seen.CALL), ("forced", Seen.CALL)} & set(seen)
            assert not violated_by_one_fault(exchanges), seen
        if conclusion.status is Status.AUTO_TOOL_CHOICE_REJECTED:
            assert ("auto", Seen.REFUSED) in seen
            assert any(rung == "forced" and word in ACCEPTED for rung, word in seen)
            assert not violated_by_one_fault(exchanges), seen
