"""The history contracts over real sockets: upstreams that differ in one demand differ in exactly the contracts that
tell of it, and gateways that fail everything are told apart from those that fail a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from service.contracts import CONTRACTS
from service.contracts.history import HistoryContract
from service.demo.scenario import Scenario
from service.dialects import DIALECTS
from service.model import Credentials, Outcome, Secret, Verdict
from service.probe import Moment, Prober
from service.transport import Transport
from tests.acceptance.test_corpus import KEY, route_for
from tests.acceptance.test_same_fault_same_word import OK, WIRES, Reply, Wire, answer, data, healthy, refusal, stream
from tests.peer import playing

Entry = tuple[str | Sequence[str], Callable[[Wire], Reply]]
"""When, and what is answered then."""

SHAPES = [name for name, contract in CONTRACTS.items() if isinstance(contract, HistoryContract)]


def two_calls(wire: Wire) -> Reply:
    """Two whole calls, each of another identity."""
    return stream(wire.start(), *second_call(wire), wire.end("call"))


def second_call(wire: Wire) -> list[list[str]]:
    first = wire.call(OK)
    other = [
        event.replace("{{TOOL}}", "{{TOOL2}}")
        .replace("call_1", "call_2")
        .replace("fc_1", "fc_2")
        .replace("toolu_1", "toolu_2")
        .replace('"output_index":0', '"output_index":1')
        for event in first
    ]
    if wire is WIRES["openai-chat"]:
        other = [event.replace('"tool_calls":[{"index":0', '"tool_calls":[{"index":1') for event in other]
    if wire is WIRES["anthropic-messages"]:
        other = [event.replace('"index":0', '"index":1') for event in other]
    return [first, other]


def in_stream(wire: Wire) -> Reply:
    """A refusal inside an accepted stream that says nothing."""
    return stream(wire.error("server"))


def says(status: int, message: str) -> Callable[[Wire], Reply]:
    return lambda wire: data(status, {"error": {"message": message, "type": "invalid_request_error"}})


# A model that answers: text to a history, else the calls that are asked for.
MODEL: list[Entry] = [("has_tool_history", answer), ("flattened_history", answer), ("no_tools", answer)]


def upstream(dialect: str, *demands: Entry, calls: Callable[[Wire], Reply] = healthy) -> Scenario:
    """An upstream with these demands, the first that holds answers, in front of a model that calls and answers."""
    wire = WIRES[dialect]
    entries = [*demands, *MODEL, ("any", calls)]
    replies = [{"when": when, "reply": reply(wire)} for when, reply in entries]
    return Scenario.parse({"id": "up", "dialect": dialect, "replies": replies})


async def verdict_of(scenario: Scenario, contract: str) -> Verdict:
    async with playing([scenario]) as peer, Transport() as transport:
        route = route_for(scenario, peer.url(scenario.id))
        probed = await Prober(transport, "here").probe(route, contract, Credentials(key=Secret(KEY)), Moment.now())
        assert peer.count(scenario.id) == probed.verdict.requests
    return probed.verdict


async def verdicts(scenario: Scenario, contracts: Sequence[str] = tuple(CONTRACTS)) -> dict[str, str]:
    return {name: str((await verdict_of(scenario, name)).status) for name in contracts}


PROVEN = {
    "native_tools": "tools_supported",
    "agent_turn": "turn_completed",
    **dict.fromkeys(SHAPES, "history_accepted"),
    "parallel_tool_calls": "parallel_calls_not_made",
}


def proven(dialect: str, **but: str) -> dict[str, str]:
    """What a tolerant upstream gets whose model makes one call at a time."""
    mixed = {} if DIALECTS[dialect].mixes_results else {"mixed_result_carrier": "not_sent"}
    return {**PROVEN, **mixed, **but}


# --- a strict and a tolerant upstream ---

REFUSED = "history_rejected"

# demand: the contracts that tell of it, and what they say
DEMANDS: Mapping[str, tuple[Entry, dict[str, str]]] = {
    "declared tools": (("undeclared_history", refusal("tools")), {"undeclared_tool_history": REFUSED}),
    "declared tools, said with a 500": (("undeclared_history", refusal("server")), {"undeclared_tool_history": REFUSED}),
    "declared tools, said in the stream": (("undeclared_history", in_stream), {"undeclared_tool_history": REFUSED}),
    "results in place": (("displaced", refusal("tools")), {"displaced_tool_results": REFUSED}),
    "results for all calls": (("missing_result", refusal("tools")), {"missing_tool_results": REFUSED}),
    "calls for all results": (("orphaned_result", refusal("tools")), {"orphaned_tool_results": REFUSED}),
    "one result for each call": (("duplicate_result", refusal("tools")), {"duplicate_tool_results": REFUSED}),
    "no user behind a result": (("user_after_tool", refusal("tools")), {"displaced_tool_results": REFUSED}),
    "no choice beside a history": ((["has_tool_history", "not:auto", "not:no_tools"], refusal("tools")), {"tool_choice_none_history": REFUSED}),
    "no forced choice": (("forced", refusal("tools")), {"native_tools": "forced_tool_choice_rejected"}),
    "its own ids": ((["has_tool_history", "not:call_id:call_1"], refusal("tools")), {"orphaned_tool_results": REFUSED}),
}  # fmt: skip


@pytest.mark.parametrize("demand", DEMANDS)
async def test_a_chat_upstream_with_one_demand_differs_in_the_contracts_that_tell_of_it(demand: str) -> None:
    entry, but = DEMANDS[demand]
    assert await verdicts(upstream("openai-chat", entry)) == proven("openai-chat", **but)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tolerant_upstream_keeps_every_contract(dialect: str) -> None:
    assert await verdicts(upstream(dialect)) == proven(dialect)
    both = await verdict_of(upstream(dialect, calls=two_calls), "parallel_tool_calls")
    assert both.status == "parallel_calls_supported", both.rungs


STRICT: list[Entry] = [
    (fault, refusal("tools"))
    for fault in ("undeclared_history", "displaced", "missing_result", "orphaned_result", "duplicate_result")
]
SHAPE_FAULTS = {
    "undeclared_tool_history",
    "displaced_tool_results",
    "missing_tool_results",
    "orphaned_tool_results",
    "duplicate_tool_results",
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_strict_upstream_differs_in_the_shapes_alone(dialect: str) -> None:
    strict = upstream(dialect, *STRICT)
    assert await verdicts(strict) == proven(dialect, **dict.fromkeys(SHAPE_FAULTS, REFUSED))


async def test_a_refused_shape_costs_two_requests_and_an_accepted_one_a_single_one() -> None:
    for shape in SHAPE_FAULTS:
        assert (await verdict_of(upstream("openai-chat", *STRICT), shape)).requests == 2
        assert (await verdict_of(upstream("openai-chat"), shape)).requests == 1


@pytest.mark.parametrize("dialect", [name for name, of in DIALECTS.items() if of.mixes_results])
async def test_a_result_and_a_text_in_one_message(dialect: str) -> None:
    mixed = upstream(dialect, ("user_after_tool", refusal("tools")))
    assert (await verdict_of(mixed, "mixed_result_carrier")).status == REFUSED


# --- the shapes of public reports, told apart from what looks like them ---

GENERIC = "Could not get a response from the agent. Please try again later."

UNDECLARED, DISPLACED = "undeclared_tool_history", "displaced_tool_results"

# what the gateway is: (its demands, what the two shapes say, what native_tools says)
GATEWAYS: Mapping[str, tuple[list[Entry], tuple[str, str], str]] = {
    "refuses an undeclared history, with a sentence that says nothing": (
        [("undeclared_history", says(500, GENERIC))], (REFUSED, "history_accepted"), "tools_supported"),
    "refuses displaced results, with a sentence that says nothing": (
        [("displaced", says(500, GENERIC))], ("history_accepted", REFUSED), "tools_supported"),
    "refuses both": (
        [("undeclared_history", says(400, GENERIC)), ("displaced", says(400, GENERIC))], (REFUSED, REFUSED), "tools_supported"),
    "refuses every history with calls": (
        [("has_tool_history", says(400, GENERIC))], (REFUSED, "provider_error"), "tools_supported"),
    "fails every history with calls": (
        [("has_tool_history", says(500, GENERIC))], (REFUSED, "provider_error"), "tools_supported"),
    "refuses every history": (
        [("has_tool_history", says(400, GENERIC)), ("flattened_history", says(400, GENERIC))], ("provider_error", "provider_error"), "tools_supported"),
    "fails everything": ([("any", says(500, GENERIC))], ("provider_error", "provider_error"), "provider_error"),
    "fails everything inside the stream": ([("any", in_stream)], ("provider_error", "provider_error"), "provider_error"),
    "is out of capacity for everything": ([("any", refusal("overload"))], ("overloaded", "overloaded"), "overloaded"),
    "refuses the key": ([("any", refusal("auth"))], ("endpoint_auth_failed", "endpoint_auth_failed"), "endpoint_auth_failed"),
    "limits the rate of histories": ([("has_tool_history", refusal("rate"))], ("rate_limited", "rate_limited"), "tools_supported"),
    "needs its reasoning back": (
        [("reasoning_missing", says(400, "The `reasoning_content` in the thinking mode must be passed back to the API."))],
        ("history_accepted", "history_accepted"), "tools_supported"),
    "needs its reasoning back and declared tools": (
        [("reasoning_missing", says(400, GENERIC)), ("undeclared_history", says(400, GENERIC))], (REFUSED, "history_accepted"), "tools_supported"),
    "needs its reasoning back and results in place": (
        [("reasoning_missing", says(400, GENERIC)), ("displaced", says(400, GENERIC))], ("history_accepted", REFUSED), "tools_supported"),
    "answers an undeclared history with nothing": (
        [("undeclared_history", lambda wire: stream(wire.start(), wire.end("text")))], ("turn_unfinished", "history_accepted"), "tools_supported"),
    "breaks off at an undeclared history": (
        [("undeclared_history", lambda wire: stream(wire.start(), wire.text("E")))], ("stream_early_eof", "history_accepted"), "tools_supported"),
    "ignores streaming with an undeclared history": (
        [("undeclared_history", lambda wire: data(200, wire.whole()))], ("stream_ignored", "history_accepted"), "tools_supported"),
}  # fmt: skip


def thinking_calls(wire: Wire) -> Reply:
    """A chat call behind a thought."""
    events = wire.call(OK)
    thought = events[0].replace('"tool_calls":[', '"reasoning_content":"I think.","tool_calls":[')
    return stream(wire.start(), [thought], wire.end("call"))


@pytest.mark.parametrize("gateway", GATEWAYS)
async def test_a_refused_shape_is_told_apart_from_what_looks_like_it(gateway: str) -> None:
    demands, shapes, tools = GATEWAYS[gateway]
    scenario = upstream("openai-chat", *demands, calls=thinking_calls)
    said = await verdicts(scenario, (UNDECLARED, DISPLACED, "native_tools"))
    assert said == {UNDECLARED: shapes[0], DISPLACED: shapes[1], "native_tools": tools}


async def test_a_gateway_that_loses_its_reasoning_refuses_its_own_history() -> None:
    """What it streams lacks the field that it wants back."""
    lost = upstream("openai-chat", ("reasoning_missing", says(400, "Missing `reasoning_content` field.")))
    turn = await verdict_of(lost, "agent_turn")
    assert (turn.status, turn.reason) == (REFUSED, "reasoning_replay_required")
    assert (await verdict_of(lost, DISPLACED)).status == "provider_error"


async def test_the_displaced_shape_has_two_calls_and_one_where_the_route_makes_one() -> None:
    """The first form is refused for its hand-made ids, the own one for its displacement."""
    own_ids: Entry = (["has_tool_history", "not:call_id:call_1"], refusal("tools"))
    scenario = upstream("openai-chat", own_ids, ("displaced", refusal("tools")))
    async with playing([scenario]) as peer, Transport() as transport:
        probed = await Prober(transport, "here").probe(
            route_for(scenario, peer.url("up")), DISPLACED, Credentials(key=Secret(KEY)), Moment.now()
        )
        roles = [[message["role"] for message in received.body["messages"]] for received in peer.requests]
    assert (probed.verdict.status, probed.verdict.rule_id) == (REFUSED, "history.own_rejected")
    assert roles == [
        ["user", "assistant", "tool", "user", "tool"],
        ["user", "assistant", "tool", "tool"],
        ["user"],
        ["user", "assistant", "user", "tool"],
        ["user", "assistant", "tool"],
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_blip_is_no_refusal_of_a_shape(dialect: str) -> None:
    """A server fault that doesn't come again, on the first request of each contract."""
    wire = WIRES[dialect]
    entries = [("any", refusal("server")), *MODEL, ("any", healthy)]
    replies: list[dict[str, Any]] = [{"when": when, "reply": reply(wire)} for when, reply in entries]
    replies[0]["times"] = 1
    for contract in ("agent_turn", *SHAPES):
        if contract == "mixed_result_carrier" and not DIALECTS[dialect].mixes_results:
            continue
        verdict = await verdict_of(Scenario.parse({"id": "up", "dialect": dialect, "replies": replies}), contract)
        assert verdict.status.outcome is Outcome.PROVEN, (contract, verdict.rungs)
        assert "flaky" in verdict.quirks
