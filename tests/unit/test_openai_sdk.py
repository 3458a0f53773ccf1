"""The official OpenAI client as a referee: our requests are of its types, and healthy streams give it the same call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

from service.contracts.ladder import TOOL
from service.contracts.native_tools import NativeTools
from service.demo.scenario import Scenario, Values
from service.dialects import DIALECTS
from service.model import Ask, Choice, Message, Role
from service.sse import Decoder
from tests.acceptance.test_corpus import route_for
from tests.peer import load_corpus, playing
from tests.unit.test_openai_responses import NOW, ROUTE

TYPES: Mapping[str, TypeAdapter[Any]] = {
    "openai-chat": TypeAdapter(CompletionCreateParamsStreaming),
    "openai-responses": TypeAdapter(ResponseCreateParamsStreaming),
}

FORCED = Ask("forced", (Message(Role.USER, "Call it."),), (TOOL,), Choice.FORCED)
ASKS = {
    "forced": FORCED,
    "auto": replace(FORCED, choice=Choice.AUTO),
    "with a parallel flag": replace(FORCED, parallel=False),
    "without usage": replace(FORCED, include_usage=False),
    "control": replace(FORCED, tools=(), choice=Choice.NONE),
}

# What the client itself stumbles over, though the route keeps its claim.
STUMBLES = {
    "sse-comment-blank-line-dispatch": "an event without data is parsed as JSON",
    "sse-empty-data-line": "an event without data is parsed as JSON",
    "sse-utf8-split": "a tool call is expected to begin with a name",
    "x-bom-crlf": "the byte order mark hides the first event",
    "x-reset-after-end": "the socket is read to its end",
    "x-null-fields-everywhere": "null isn't taken for absent",
    "delta-named-forced-finish-stop": "arguments are parsed before they are whole",
    "seed-index-starts-at-1": "the index is taken for a position",
    "seed-length-complete-call": "a cap that was met is an exception",
    "dia-responses-no-item-added": "a delta is expected behind its item",
    "dia-responses-completed-empty-output": "a stream is expected to begin with response.created",
}


def has_oddities(scenario: Scenario) -> bool:
    return bool(scenario.expect.get("quirks")) or scenario.id in STUMBLES


HEALTHY = [
    scenario
    for dialect in TYPES
    for scenario in load_corpus(dialect=dialect, contract="native_tools")
    if scenario.expect["status"] == "tools_supported"
    and scenario.expect.get("requests") == 1
    and not has_oddities(scenario)
]


def request(dialect: str, ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(DIALECTS[dialect].encode(replace(ROUTE, dialect=dialect), ask).body)
    return body


def whole(value: Any) -> Any:
    """A validated value with its lazy parts validated too; what its type doesn't know is gone from it."""
    if isinstance(value, Mapping):
        return {name: whole(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [whole(one) for one in value]
    return value


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("dialect", TYPES)
def test_a_request_is_what_the_official_types_say(dialect: str, ask: Ask) -> None:
    body = request(dialect, ask)
    assert whole(TYPES[dialect].validate_python(body)) == body


@pytest.mark.parametrize("dialect", TYPES)
def test_the_types_would_tell(dialect: str) -> None:
    body = request(dialect, FORCED)
    assert whole(TYPES[dialect].validate_python({**body, "unheard_of": 1})) == body
    with pytest.raises(ValidationError):
        whole(TYPES[dialect].validate_python({**body, "tools": [{"type": "function"}]}))


def our_calls(scenario: Scenario) -> list[tuple[str, str, Any]]:
    """The calls as our reader puts them together, from the bytes of the scenario's answer to a forced choice."""
    route = route_for(scenario, "http://127.0.0.1:1")
    reader = DIALECTS[scenario.dialect].reader(route, FORCED, {}, NOW)
    entry = next(entry for entry in scenario.replies if entry.when[0] in ("any", "forced"))
    decoder = Decoder(1 << 20)
    for piece in entry.reply.pieces(Values(tools=(TOOL.name,), model=route.model, key="k")):
        for event in decoder.feed(piece):
            reader.read(event)
    for event in decoder.close():
        reader.read(event)
    assert not any(call.problem for call in reader.result().calls)
    return [(draft.id, draft.name, json.loads(draft.arguments)) for draft in reader.drafts]


async def their_calls(client: AsyncOpenAI, dialect: str, body: dict[str, Any]) -> list[tuple[str | None, str, Any]]:
    del body["stream"]
    if dialect == "openai-responses":
        async with client.responses.stream(**body) as responses:
            response = await responses.get_final_response()
        return [
            (item.call_id, item.name, json.loads(item.arguments))
            for item in response.output
            if item.type == "function_call"
        ]
    async with client.chat.completions.stream(**body) as chunks:
        completion = await chunks.get_final_completion()
    calls = completion.choices[0].message.tool_calls or []
    return [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.id)
async def test_a_healthy_stream_gives_the_official_client_the_call_that_we_read(scenario: Scenario) -> None:
    async with (
        playing([scenario]) as peer,
        AsyncOpenAI(base_url=peer.url(scenario.id), api_key="k", max_retries=0, timeout=10) as client,
    ):
        route = route_for(scenario, peer.url(scenario.id))
        ask = NativeTools().next_ask(route, "bcdfgh", [])
        assert ask is not None
        body = json.loads(DIALECTS[scenario.dialect].encode(route, ask).body)
        calls = await their_calls(client, scenario.dialect, body)
    assert calls
    assert calls == our_calls(scenario)


def test_every_dialect_has_healthy_streams_and_no_exception_is_stale() -> None:
    assert {scenario.dialect for scenario in HEALTHY} == set(TYPES)
    assert set(STUMBLES) <= {scenario.id for scenario in load_corpus(contract="native_tools")}
