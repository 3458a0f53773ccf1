"""The ladder of the history contracts and their table of rules, with hand-made answers and no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from service.contracts import CONTRACTS
from service.contracts.history import RULES, HistoryContract
from service.contracts.ladder import TOOL
from service.model import Ask, Choice, Exchange, Outcome, Refused, Role, Route, Status
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

SHAPES: dict[str, HistoryContract] = {
    name: contract for name, contract in CONTRACTS.items() if isinstance(contract, HistoryContract)
}
FLATTENING = "undeclared_tool_history"
PLAIN = "missing_tool_results"

LETTERS = {
    "shape": "s",
    "control": "c",
    "own_call": "o",
    "own_call_auto": "a",
    "own_shape": "S",
    "own_control": "C",
    "flattened": "f",
}

THOUGHTS = refused(400, text="The `reasoning_content` in the thinking mode must be passed back to the API.")
SIGNATURE = refused(400, text="Invalid `signature` in `thinking` block")
OPTIONS = refused(400, names_stream_options=True)
CAP = replace(refused(400, Refused.TOKEN_CAP), other_cap_field="max_completion_tokens")
PATH, MODEL = refused(404, hint=Refused.PATH), refused(404, hint=Refused.MODEL)

BOTH: Script = {"shape": R4, "control": R4}
OWN: Script = {**BOTH, "own_call": called()}
OUTAGE: Script = {"shape": R5, "control": R5, "own_call": R5, "own_call_auto": R5}

Case = tuple[Script, str, str | None, str, str]

# What holds for every history contract. name: (script, status, reason, rungs asked, rule)
CASES: dict[str, Case] = {
    # the shape is taken
    "answered with text": ({"shape": text()}, "history_accepted", None, "s", "history.accepted"),
    "answered with a call": ({"shape": call()}, "history_accepted", None, "s", "history.accepted"),
    "answered with a call in text": ({"shape": leak()}, "history_accepted", None, "s", "history.accepted"),
    "answered, cut behind some text": ({"shape": cut(has_text=True)}, "history_accepted", None, "s", "history.accepted"),
    "taken and empty": ({"shape": silent()}, "turn_unfinished", "empty", "s", "history.empty"),
    "taken and cut before any text": ({"shape": cut()}, "turn_unfinished", "token_cap", "s", "history.cut_by_our_cap"),
    # the shape is refused
    "refused, the control answered": ({"shape": R4, "control": text()}, "history_rejected", "http_400", "sc", "history.rejected"),
    "refused, the control answered with a call": ({"shape": R4, "control": call()}, "history_rejected", "http_400", "sc", "history.rejected"),
    "refused, the control cut behind some text": ({"shape": R4, "control": cut(has_text=True)}, "history_rejected", "http_400", "sc", "history.rejected"),
    "refused for want of reasoning": ({"shape": THOUGHTS, "control": text()}, "history_rejected", "reasoning_replay_required", "sc", "history.rejected"),
    "refused, the control empty": ({"shape": R4, "control": silent()}, "turn_unfinished", "control_empty", "sc", "history.control_empty"),
    "refused, the control cut before any text": ({"shape": R4, "control": cut()}, "turn_unfinished", "control_cut", "sc", "history.control_cut"),
    "failed, the control answered, failed again": ({"shape": R5, "control": text()}, "history_rejected", "http_500", "scs", "history.rejected"),
    "failed once, the control answered": ({"shape": [R5, text()], "control": text()}, "history_accepted", None, "scs", "history.accepted"),
    "failed once, then empty": ({"shape": [R5, silent()], "control": text()}, "turn_unfinished", "empty", "scs", "history.empty"),
    "failed, the control answered with a broken call, failed again": ({"shape": R5, "control": bad_call()}, "history_rejected", "http_500", "scs", "history.rejected"),
    "failed, then refused": ({"shape": [R5, R4], "control": text()}, "history_rejected", "http_400", "scs", "history.rejected"),
    "failed, the control empty, failed again": ({"shape": R5, "control": silent()}, "turn_unfinished", "control_empty", "scs", "history.control_empty"),
    "failed, the control answered, then no answer": ({"shape": [R5, no_answer()], "control": text()}, "unreachable", "refused", "scss", "gate.unreachable"),
    "failed behind no answer": ({"shape": [no_answer(), R5, text()], "control": text()}, "history_accepted", None, "sscs", "history.accepted"),
    # both are refused: the route's own call
    "own shape answered": ({**OWN, "own_shape": text()}, "history_accepted", None, "scoS", "history.accepted"),
    "own shape answered with a call": ({**OWN, "own_shape": call()}, "history_accepted", None, "scoS", "history.accepted"),
    "own shape empty": ({**OWN, "own_shape": silent()}, "turn_unfinished", "empty", "scoS", "history.empty"),
    "own shape cut": ({**OWN, "own_shape": cut()}, "turn_unfinished", "token_cap", "scoS", "history.cut_by_our_cap"),
    "forcing refused, own shape answered": ({**BOTH, "own_call": R4, "own_call_auto": called(), "own_shape": text()}, "history_accepted", None, "scoaS", "history.accepted"),
    "the shape's want of reasoning is met by the own call": ({"shape": THOUGHTS, "control": THOUGHTS, "own_call": called(), "own_shape": text()}, "history_accepted", None, "scoS", "history.accepted"),
    # what every contract shares
    "no answer": ({"shape": no_answer()}, "unreachable", "refused", "ss", "gate.unreachable"),
    "no answer once": ({"shape": [no_answer(), text()]}, "history_accepted", None, "ss", "history.accepted"),
    "no answer to the control once": ({"shape": R4, "control": [no_answer(), text()]}, "history_rejected", "http_400", "scc", "history.rejected"),
    "no headers": ({"shape": timed_out()}, "timeout", "no_headers", "s", "gate.timeout"),
    "the control hangs": ({"shape": R4, "control": timed_out()}, "timeout", "no_headers", "sc", "gate.timeout"),
    "still flowing": ({"shape": timed_out(status=200, flowing=True)}, "probe_cap_reached", "deadline", "s", "gate.own_cap"),
    "our own lag": ({"shape": timed_out(own_lag=True)}, "prober_overloaded", "event_loop_lag", "s", "gate.own_load"),
    "from a cache": ({"shape": replace(text(), cached=True)}, "answered_from_cache", None, "s", "gate.cached"),
    "the control from a cache": ({"shape": R4, "control": replace(text(), cached=True)}, "answered_from_cache", None, "sc", "gate.cached"),
    "a page": ({"shape": html()}, "endpoint_not_found", "html_page", "s", "gate.html"),
    "an early end": ({"shape": early_end()}, "stream_early_eof", "closed_after_event", "s", "gate.early_end"),
    "an early end of the control": ({"shape": R4, "control": early_end()}, "stream_early_eof", "closed_after_event", "sc", "gate.early_end"),
    "an early end of the own shape": ({**OWN, "own_shape": early_end()}, "stream_early_eof", "closed_after_event", "scoS", "gate.early_end"),
    "a broken stream": ({"shape": broken()}, "malformed_stream", "data_not_json", "s", "gate.malformed_stream"),
    "one JSON body": ({"shape": json_body()}, "stream_ignored", "json_completion", "s", "gate.stream_ignored"),
    "one JSON body for the control": ({"shape": R4, "control": json_body()}, "stream_ignored", "json_completion", "sc", "gate.stream_ignored"),
    "a broken call": ({"shape": bad_call()}, "malformed_tool_call", "arguments_truncated", "s", "gate.bad_call"),
    "declared malformed": ({"shape": declared_malformed()}, "malformed_tool_call", "provider_declared_malformed", "s", "gate.declared_malformed"),
    "an error behind a part of the answer": ({"shape": late_error()}, "provider_error", "http_502", "s", "gate.error_in_stream"),
    "a filter inside": ({"shape": filtered()}, "content_filtered", None, "s", "gate.filter"),
    # refusals that are settled stop the ladder on every rung
    "a credential": ({"shape": refused(401, Refused.CREDENTIAL)}, "endpoint_auth_failed", "http_401", "s", "gate.credential"),
    "credit on the control": ({"shape": R4, "control": refused(402, Refused.CREDIT)}, "quota_or_routing_failed", "http_402", "sc", "gate.credit"),
    "no channel": ({"shape": refused(503, Refused.NO_CHANNEL)}, "quota_or_routing_failed", "http_503", "s", "gate.no_channel"),
    "rate on the control": ({"shape": R4, "control": refused(429, Refused.RATE)}, "rate_limited", "http_429", "sc", "gate.rate"),
    "rate on the own call": ({**BOTH, "own_call": refused(429, Refused.RATE)}, "rate_limited", "http_429", "sco", "gate.rate"),
    "rate on the own call under auto": ({**BOTH, "own_call": R4, "own_call_auto": refused(429, Refused.RATE)}, "rate_limited", "http_429", "scoa", "gate.rate"),
    "capacity on the own shape": ({**OWN, "own_shape": refused(529, Refused.OVERLOAD)}, "overloaded", "http_529", "scoS", "gate.overload"),
    "a missing model": ({"shape": refused(404, Refused.MODEL)}, "model_unavailable", "http_404", "s", "gate.model"),
    "a place": ({"shape": refused(403, Refused.PLACE)}, "region_blocked", "http_403", "s", "gate.place"),
    "a path": ({"shape": refused(405, Refused.PATH)}, "endpoint_not_found", "http_405", "s", "gate.path"),
    "a broken call by code": ({"shape": refused(400, Refused.BROKEN_CALL)}, "malformed_tool_call", "http_400", "s", "gate.broken_call"),
    "both cap fields": ({"shape": CAP}, "token_cap_rejected", "http_400", "ss", "gate.token_cap"),
    "the first cap field": ({"shape/max_tokens": CAP, "shape": text()}, "history_accepted", None, "ss", "history.accepted"),
    "the first cap field, and the shape": ({"shape/max_tokens": CAP, "shape": R4, "control": text()}, "history_rejected", "http_400", "ssc", "history.rejected"),
    "the shape, then the first cap field": ({"shape": R4, "control/max_tokens": CAP, "control": text()}, "history_rejected", "http_400", "sccs", "history.rejected"),
    "the first cap field, which the shape hid": ({"shape/max_completion_tokens": text(), "shape": R4, "control/max_tokens": CAP, "control": text()}, "history_accepted", None, "sccs", "history.accepted"),
    "stream_options": ({"shape/no_options": text(), "shape": OPTIONS}, "history_accepted", None, "ss", "history.accepted"),
    "the shape, then stream_options": ({"shape": R4, "control/no_options": text(), "control": OPTIONS}, "history_rejected", "http_400", "sccs", "history.rejected"),
    "stream_options named in vain": ({"shape": OPTIONS, "control": text()}, "history_rejected", "http_400", "ssc", "history.rejected"),
}  # fmt: skip

# Where there is nothing to flatten.
WITHOUT_FLATTENED: dict[str, Case] = {
    "a broken call of its own": ({**BOTH, "own_call": bad_call()}, "malformed_tool_call", "arguments_truncated", "sco", "gate.bad_call"),
    "own shape refused, own control answered": ({**OWN, "own_shape": R4, "own_control": text()}, "history_rejected", "http_400", "scoSC", "history.own_rejected"),
    "own shape refused for its signature": ({**OWN, "own_shape": SIGNATURE, "own_control": text()}, "history_rejected", "reasoning_replay_invalid", "scoSC", "history.own_rejected"),
    "own shape refused, own control empty": ({**OWN, "own_shape": R4, "own_control": silent()}, "turn_unfinished", "control_empty", "scoSC", "history.control_empty"),
    "own shape refused, own control cut": ({**OWN, "own_shape": R4, "own_control": cut()}, "turn_unfinished", "control_cut", "scoSC", "history.control_cut"),
    "own shape fails, own control answered, fails again": ({**OWN, "own_shape": R5, "own_control": text()}, "history_rejected", "http_500", "scoSCS", "history.own_rejected"),
    "own shape fails once": ({**OWN, "own_shape": [R5, text()], "own_control": text()}, "history_accepted", None, "scoSCS", "history.accepted"),
    "everything is refused but the call": ({**OWN, "own_shape": R4, "own_control": R4}, "provider_error", "http_400", "scoSC", "history.refused_in_every_form"),
    "everything fails but the call": ({"shape": R503, "control": R503, "own_call": called(), "own_shape": R503, "own_control": R503}, "provider_error", "http_503", "scoSC", "history.refused_in_every_form"),
    "histories meet a bare 404 and the call doesn't": ({"shape": PATH, "control": PATH, "own_call": called(), "own_shape": PATH, "own_control": PATH}, "provider_error", "http_404", "scoSC", "history.refused_in_every_form"),
    "no call of its own": ({**BOTH, "own_call": text()}, "provider_error", "http_400", "sco", "history.refused_in_every_form"),
    "an own call too long to be replayed": ({**BOTH, "own_call": call()}, "provider_error", "http_400", "sco", "history.refused_in_every_form"),
    "an outage": (OUTAGE, "provider_error", "http_500", "scoa", "history.refused_in_every_form"),
    "an outage with 503": (dict.fromkeys(OUTAGE, R503), "overloaded", "http_503", "scoa", "history.shared_503"),
    "a bare 404 to everything": (dict.fromkeys(OUTAGE, PATH), "endpoint_not_found", "http_404", "scoa", "history.shared_404_path"),
    "a 404 about the model to everything": (dict.fromkeys(OUTAGE, MODEL), "model_unavailable", "http_404", "scoa", "history.shared_404_model"),
    "client errors of two kinds": ({"shape": refused(422), "control": R4, "own_call": R4, "own_call_auto": R4}, "provider_error", "http_4xx", "scoa", "history.refused_in_every_form"),
    "our requests are spent": ({"shape": [no_answer(), R4], "control": [no_answer(), R4], "own_call": [no_answer(), called()], "own_shape": [no_answer(), R4], "own_control": text()}, "probe_cap_reached", "requests", "ssccooSS", "history.spent"),
}  # fmt: skip

# Where the history can be flattened to text.
WITH_FLATTENED: dict[str, Case] = {
    "own shape refused, flattened answered": ({**OWN, "own_shape": R4, "flattened": text()}, "history_rejected", "http_400", "scoSf", "history.own_rejected"),
    "own shape fails, flattened answered, fails again": ({**OWN, "own_shape": R5, "flattened": text()}, "history_rejected", "http_500", "scoSfS", "history.own_rejected"),
    "own shape fails once, flattened answered": ({**OWN, "own_shape": [R5, text()], "flattened": text()}, "history_accepted", None, "scoSfS", "history.accepted"),
    "own shape and flattened refused, own control answered": ({**OWN, "own_shape": R4, "flattened": R4, "own_control": text()}, "history_rejected", "http_400", "scoSfC", "history.own_rejected"),
    "own shape refused, flattened empty, own control answered": ({**OWN, "own_shape": R4, "flattened": silent(), "own_control": text()}, "history_rejected", "http_400", "scoSfC", "history.own_rejected"),
    "own shape fails, flattened refused, own control answered": ({**OWN, "own_shape": R5, "flattened": R4, "own_control": text()}, "history_rejected", "http_500", "scoSfCS", "history.own_rejected"),
    "everything is refused but the call": ({**OWN, "own_shape": R4, "flattened": R4, "own_control": R4}, "provider_error", "http_400", "scoSfC", "history.refused_in_every_form"),
    "no call of its own, flattened answered": ({**BOTH, "own_call": text(), "flattened": text()}, "history_rejected", "http_400", "scof", "history.only_flattened"),
    "a broken call of its own, flattened answered": ({**BOTH, "own_call": bad_call(), "flattened": text()}, "history_rejected", "http_400", "scof", "history.only_flattened"),
    "no call is accepted, flattened answered": ({**BOTH, "own_call": R4, "own_call_auto": R4, "flattened": text()}, "history_rejected", "http_400", "scoaf", "history.only_flattened"),
    "everything fails, flattened answered, the shape fails again": ({**OUTAGE, "flattened": text()}, "history_rejected", "http_500", "scoafs", "history.only_flattened"),
    "an outage that ends": ({**OUTAGE, "shape": [R5, text()], "flattened": text()}, "history_accepted", None, "scoafs", "history.accepted"),
    "no call is accepted, flattened empty": ({**BOTH, "own_call": R4, "own_call_auto": R4, "flattened": silent()}, "provider_error", "http_400", "scoaf", "history.refused_in_every_form"),
    "an outage": ({**OUTAGE, "flattened": R5}, "provider_error", "http_500", "scoaf", "history.refused_in_every_form"),
    "rate on the flattened": ({**BOTH, "own_call": R4, "own_call_auto": R4, "flattened": refused(429, Refused.RATE)}, "rate_limited", "http_429", "scoaf", "gate.rate"),
    "an early end of the flattened": ({**OWN, "own_shape": R4, "flattened": early_end()}, "stream_early_eof", "closed_after_event", "scoSf", "gate.early_end"),
}  # fmt: skip


def check(contract: HistoryContract, case: Case) -> None:
    script, status, reason, rungs, rule = case
    exchanges = climb(contract, script)
    conclusion, _ = contract.conclude(ROUTE, exchanges, Circumstances())
    asked = "".join(LETTERS[exchange.ask.rung] for exchange in exchanges)
    assert (conclusion.status, conclusion.reason, asked, conclusion.rule_id) == (status, reason, rungs, rule)


@pytest.mark.parametrize("name", CASES)
def test_ladder(name: str) -> None:
    for contract in SHAPES.values():
        check(contract, CASES[name])


@pytest.mark.parametrize("name", WITHOUT_FLATTENED)
def test_ladder_without_a_flattened_form(name: str) -> None:
    for shape in SHAPES.keys() - {FLATTENING}:
        check(SHAPES[shape], WITHOUT_FLATTENED[name])


@pytest.mark.parametrize("name", WITH_FLATTENED)
def test_ladder_with_a_flattened_form(name: str) -> None:
    check(SHAPES[FLATTENING], WITH_FLATTENED[name])


def test_every_rule_is_fired_by_a_case() -> None:
    elsewhere = {"gate.not_sent", "gate.cancelled", "gate.own_network", "history.undecided"}
    fired = {case[4] for cases in (CASES, WITHOUT_FLATTENED, WITH_FLATTENED) for case in cases.values()}
    assert fired | elsewhere == {rule.id for rule in RULES}
    assert not fired & elsewhere


@pytest.mark.parametrize(
    ("shape", "script", "sent", "status", "rule"),
    [
        (PLAIN, {"shape": R4, "control": text()}, 1, "probe_cap_reached", "history.spent"),
        (PLAIN, {"shape": R4, "control": text()}, 2, "history_rejected", "history.rejected"),
        (PLAIN, {"shape": R5, "control": text()}, 2, "probe_cap_reached", "history.spent"),
        (PLAIN, dict.fromkeys(OUTAGE, R503), 2, "probe_cap_reached", "history.spent"),
        (PLAIN, {**OWN, "own_shape": R5, "own_control": text()}, 5, "probe_cap_reached", "history.spent"),
        (FLATTENING, {**OUTAGE, "flattened": text()}, 5, "probe_cap_reached", "history.spent"),
        (FLATTENING, {**OWN, "own_shape": R5, "flattened": text()}, 5, "probe_cap_reached", "history.spent"),
        (PLAIN, {"shape": text()}, 1, "history_accepted", "history.accepted"),
    ],
)
def test_time_that_runs_out_decides_nothing_that_was_still_open(
    shape: str, script: Script, sent: int, status: str, rule: str
) -> None:
    exchanges = climb(SHAPES[shape], script)[:sent]
    conclusion, _ = SHAPES[shape].conclude(ROUTE, exchanges, Circumstances(out_of_time=True))
    assert (conclusion.status, conclusion.rule_id) == (status, rule)


def test_nothing_sent_and_our_own_network() -> None:
    contract = SHAPES[PLAIN]
    conclusion, _ = contract.conclude(ROUTE, [], Circumstances(unsent="not_in_dialect"))
    assert (conclusion.status, conclusion.reason) == ("not_sent", "not_in_dialect")
    exchanges = climb(contract, {"shape": no_answer()})
    conclusion, _ = contract.conclude(ROUTE, exchanges, Circumstances(egress_up=False))
    assert (conclusion.status, conclusion.rule_id) == ("own_network", "gate.own_network")


# --- what is asked ---


def asks(shape: str, script: Script, route: Route = ROUTE) -> dict[str, Ask]:
    return {exchange.ask.rung: exchange.ask for exchange in climb(SHAPES[shape], script, route)}


def roles(ask: Ask) -> str:
    """u: user, C: assistant with calls, a: assistant without, r: result, m: result with a user's text in one message."""
    letters = []
    for message in ask.messages:
        called_or_replayed = message.calls or message.replay
        letters.append(
            {
                Role.USER: "u",
                Role.ASSISTANT: "C" if called_or_replayed else "a",
                Role.RESULT: "m" if message.beside else "r",
            }[message.role]
        )
    return "".join(letters)


# shape: (shape, control, own shape of one call, of two, own control of one call, of two)
ROLES: dict[str, tuple[str, str, str, str, str, str]] = {
    "undeclared_tool_history": ("uCr", "uCr", "uCr", "uCrr", "uCr", "uCrr"),
    "displaced_tool_results": ("uCrur", "uCrr", "uCur", "uCrur", "uCr", "uCrr"),
    "missing_tool_results": ("uCu", "uCr", "uCu", "uCu", "uCr", "uCrr"),
    "orphaned_tool_results": ("uar", "uau", "uar", "uar", "uau", "uau"),
    "duplicate_tool_results": ("uCrr", "uCr", "uCrr", "uCrrr", "uCr", "uCrr"),
    "tool_choice_none_history": ("uCr", "uCr", "uCr", "uCrr", "uCr", "uCrr"),
    "mixed_result_carrier": ("uCm", "uCr", "uCm", "uCrm", "uCr", "uCrr"),
}
EVERYTHING: Script = {**OWN, "own_shape": R4, "own_control": R4, "flattened": R4}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_and_their_controls(shape: str) -> None:
    one, two = asks(shape, EVERYTHING), asks(shape, {**EVERYTHING, "own_call": called(2)})
    assert ROLES[shape] == tuple(
        roles(ask)
        for ask in (
            one["shape"], one["control"], one["own_shape"], two["own_shape"], one["own_control"], two["own_control"]
        )
    )  # fmt: skip


def test_every_shape_is_in_the_table() -> None:
    assert ROLES.keys() == SHAPES.keys()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_and_its_control_differ_in_the_shape_alone(shape: str) -> None:
    sent = asks(shape, EVERYTHING)
    same = {"messages", "rung", "mixed"} | {
        FLATTENING: {"tools", "choice"},
        "tool_choice_none_history": {"choice"},
    }.get(shape, set())
    for one, other in (("shape", "control"), ("own_shape", "own_control")):
        differing = {name for name in vars(sent[one]) if getattr(sent[one], name) != getattr(sent[other], name)}
        assert differing <= same
        assert differing & (same - {"rung", "mixed"})
        assert (sent[other].tools, sent[other].choice) == ((TOOL,), Choice.AUTO)


def test_only_the_history_without_tools_declares_none() -> None:
    for shape in SHAPES:
        sent = asks(shape, EVERYTHING, replace(ROUTE, parallel_tool_calls=False))
        undeclared = {rung for rung, ask in sent.items() if not ask.tools}
        assert undeclared == ({"shape", "own_shape", "flattened"} if shape == FLATTENING else set())
        assert all(sent[rung].choice is Choice.NONE and sent[rung].parallel is None for rung in undeclared)
        assert all(ask.parallel is False for rung, ask in sent.items() if rung not in undeclared)


def test_only_the_mixed_shape_needs_a_message_that_not_every_dialect_has() -> None:
    mixed = {(shape, rung) for shape in SHAPES for rung, ask in asks(shape, EVERYTHING).items() if ask.mixed}
    assert mixed == {("mixed_result_carrier", "shape"), ("mixed_result_carrier", "own_shape")}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_own_call_is_fresh_and_replayed_with_every_field(shape: str) -> None:
    answer = called(2)
    sent = asks(shape, {**EVERYTHING, "own_call": answer})
    question = sent["own_call"].messages
    assert [message.role for message in question] == [Role.USER]
    assert (sent["own_call"].choice, sent["own_call"].tools) == (Choice.FORCED, (TOOL,))
    for rung in ("own_shape", "own_control"):
        assert sent[rung].messages[0] == question[0]
        replays = [message.replay for message in sent[rung].messages if message.replay]
        assert replays == ([] if shape == "orphaned_tool_results" else [answer.replay])
        assert answer.replay is not None
        answered = [message.answers for message in sent[rung].messages if message.answers]
        assert set(answered) <= set(answer.replay.calls)


def test_under_auto_the_own_call_is_asked_for_in_the_same_words() -> None:
    sent = asks(PLAIN, {**EVERYTHING, "own_call": R4, "own_call_auto": called()})
    assert sent["own_call_auto"] == replace(sent["own_call"], rung="own_call_auto", choice=Choice.AUTO)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hand_made_history_is_plain(shape: str) -> None:
    sent = asks(shape, EVERYTHING)
    for rung in ("shape", "control", "flattened"):
        messages = sent[rung].messages if rung in sent else ()
        calls = [one for message in messages for one in message.calls]
        ids = [one.id for one in calls]
        assert len(ids) == len(set(ids)) == (0 if "C" not in roles(sent["shape"]) or rung == "flattened" else len(ids))
        assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in ids)
        assert all(message.text.strip() for message in messages)
        assert all(len(message.text) <= 40 for message in messages if message.calls)
        assert "uu" not in roles(sent[rung]) if rung in sent else True


def test_a_fresh_nonce_makes_a_fresh_history() -> None:
    one, other = (SHAPES[PLAIN].next_ask(ROUTE, nonce, []) for nonce in ("bcdfgh", "jklmnp"))
    assert one is not None
    assert other is not None
    assert one.messages[0].text != other.messages[0].text
    assert one.messages[1].calls[0].id != other.messages[1].calls[0].id


# --- over all kinds of answers ---


def by_one_fault(exchanges: Sequence[Exchange], rungs: set[str]) -> bool:
    """Whether each refusal on these rungs could pass and came once."""
    refusals = [one for one in exchanges if one.ask.rung in rungs and see(one) is Seen.REFUSED]
    could_pass = all(one.refusal and one.refusal.could_pass for one in refusals)
    return could_pass and len({one.ask.rung for one in refusals}) == len(refusals)


FIRST = [*(answer() for answer in ANSWERS), call(), CAP, OPTIONS]
FEW = [text(), silent(), R4, R5, no_answer(), early_end()]
TAKEN = {Seen.TEXT, Seen.CALL, Seen.BAD_CALL, Seen.LEAK, Seen.CUT}


@pytest.mark.parametrize("shape", [PLAIN, FLATTENING])
def test_nothing_is_concluded_that_was_not_seen(shape: str) -> None:
    contract = SHAPES[shape]
    scripts: list[Script] = [
        {"shape": [one, again], "control": control, "own_call": text(), "flattened": R4}
        for one, again, control in product(FIRST, FEW, FIRST)
        if see(control) is not Seen.REFUSED
    ]
    scripts += [
        {
            "shape": [refusal, again],
            "control": refusal,
            "own_call": own,
            "own_call_auto": under_auto,
            "own_shape": [own_shape, again],
            "own_control": own_control,
            "flattened": flattened,
        }
        for refusal, again, own, under_auto, own_shape, own_control, flattened in product(
            [R4, R5], [text(), R5], [called(), text(), R5, no_answer()], [called(), R4], FIRST, FEW[:4], FEW[:4]
        )
    ]
    for script in scripts:
        exchanges = climb(contract, script)
        conclusion, _ = contract.conclude(ROUTE, exchanges, Circumstances())
        seen = [(exchange.ask.rung, see(exchange)) for exchange in exchanges]
        assert len(exchanges) <= contract.max_requests
        assert conclusion.rule_id != "history.undecided", seen
        last = {rung: word for rung, word in seen if rung in ("shape", "own_shape")}
        if conclusion.status.outcome is Outcome.PROVEN:
            assert conclusion.status is Status.HISTORY_ACCEPTED
            assert set(last.values()) & TAKEN, seen
        if conclusion.status is Status.HISTORY_REJECTED:
            assert not set(last.values()) & TAKEN, seen
            put_right = {rung for rung, word in seen if word in TAKEN} & {"control", "own_control", "flattened"}
            assert put_right, seen
            assert not by_one_fault(exchanges, {"shape", "own_shape"}), seen
