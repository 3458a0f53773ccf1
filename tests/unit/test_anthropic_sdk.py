"""The official Anthropic client as a referee: our requests are of its types, healthy streams give it the same call, and
it stumbles over what we call its oddities."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

from service.contracts.native_tools import NativeTools
from service.demo.scenario import Scenario
from service.dialects import DIALECTS
from service.model import Ask, Choice, Credentials, Route, Secret
from service.transport import Transport
from tests.acceptance.test_corpus import route_for
from tests.peer import load_corpus, playing
from tests.unit.test_anthropic_messages import CALL, END, FORCED, ROUTE, piece, said, started, tool
from tests.unit.test_openai_sdk import our_calls, whole

DIALECT = DIALECTS["anthropic-messages"]
TYPE: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)

ASKS = {
    "forced": FORCED,
    "auto": replace(FORCED, choice=Choice.AUTO),
    "one call at most": replace(FORCED, parallel=False),
    "parallel calls": replace(FORCED, choice=Choice.AUTO, parallel=True),
    "control": replace(FORCED, tools=(), choice=Choice.NONE),
}

STUMBLES = {
    "x-anthropic-open-socket-after-stop-reason": "the socket is read to its end",
    "dia-anthropic-end_turn-with-tool_use": "a message_delta is expected to hold usage",
}
HEALTHY = [
    scenario
    for scenario in load_corpus(dialect=DIALECT.name, contract="native_tools")
    if scenario.expect["status"] == "tools_supported"
    and scenario.expect.get("requests") == 1
    and not scenario.expect.get("quirks")
    and scenario.id not in STUMBLES
]


def sent(route: Route, ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(DIALECT.encode(route, ask).body)
    return body


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_a_request_is_what_the_official_types_say(ask: Ask) -> None:
    body = sent(ROUTE, ask)
    assert whole(TYPE.validate_python(body)) == body


def test_the_types_would_tell() -> None:
    body = sent(ROUTE, FORCED)
    assert whole(TYPE.validate_python({**body, "unheard_of": 1})) == body
    for name in ("max_tokens", "messages", "model", "stream"):
        with pytest.raises(ValidationError):
            TYPE.validate_python({key: value for key, value in body.items() if key != name})
    with pytest.raises(ValidationError):
        whole(TYPE.validate_python({**body, "tool_choice": {"type": "tool"}}))


async def their_calls(scenario: Scenario) -> list[tuple[str, str, Any]]:
    """The calls as the official client puts them together, from an answer to our own forced question."""
    async with (
        playing([scenario]) as peer,
        AsyncAnthropic(base_url=peer.url(scenario.id), api_key="k", max_retries=0, timeout=10) as client,
    ):
        route = route_for(scenario, peer.url(scenario.id))
        ask = NativeTools().next_ask(route, "bcdfgh", [])
        assert ask is not None
        body = sent(route, ask)
        del body["stream"]
        async with client.messages.stream(**body) as stream:
            message = await stream.get_final_message()
    return [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.id)
async def test_a_healthy_stream_gives_the_official_client_the_call_that_we_read(scenario: Scenario) -> None:
    calls = await their_calls(scenario)
    assert calls
    assert calls == our_calls(scenario)


def test_no_exception_is_stale() -> None:
    assert len(HEALTHY) >= 5
    assert set(STUMBLES) <= {scenario.id for scenario in load_corpus(dialect=DIALECT.name)}


def streaming(*events: dict[str, Any], named: bool = True) -> Scenario:
    blocks = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}" for event in events]
    reply = {
        "status": 200,
        "headers": {"content-type": "text/event-stream"},
        "framing": "events",
        "body": blocks,
    }
    return Scenario.parse(
        {"id": "made", "dialect": DIALECT.name, "replies": [{"when": "any", "reply": reply}]},
    )


async def test_a_stream_of_our_own_tables_is_whole_to_the_official_client() -> None:
    scenario = streaming(started(), *CALL, *END)
    assert await their_calls(scenario) == our_calls(scenario)


@pytest.mark.parametrize(
    ("quirk", "events", "named"),
    [
        ("message_start_missing", [*CALL, *END], True),
        ("event_name_missing", [started(), *CALL, *END], False),
        ("block_start_missing", [started(), said("Well."), *CALL, *END], True),
        ("block_index_gap", [started(), tool(2), piece('{"value":"ok"}', 2), *END], True),
        ("index_reused", [started(), tool(0), *CALL, *END], True),
        ("usage_missing", [started(), *CALL, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}], True),
    ],
)
async def test_what_we_call_an_oddity_trips_the_official_client(
    quirk: str, events: list[dict[str, Any]], named: bool
) -> None:
    scenario = streaming(*events, named=named)
    ours = our_calls(scenario)
    assert len(ours) == 1
    try:
        theirs = await their_calls(scenario)
    except (RuntimeError, IndexError, AttributeError, AssertionError):
        return
    assert theirs != ours, quirk


async def test_the_official_client_asks_the_same_at_the_same_place() -> None:
    scenario = streaming(started(), *CALL, *END)
    async with playing([scenario]) as peer, Transport() as transport:
        route = route_for(scenario, peer.url(scenario.id))
        await transport.send(route, FORCED, Credentials(key=Secret("sk-1")))
        async with AsyncAnthropic(base_url=route.base_url, api_key="sk-1", max_retries=0) as client:
            body = sent(route, FORCED)
            del body["stream"]
            async with client.messages.stream(**body) as stream:
                await stream.get_final_message()
        ours, theirs = peer.requests
    assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert {"anthropic-version"} <= ours.headers.keys() & theirs.headers.keys()
