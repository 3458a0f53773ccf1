"""A route's own message goes back as it came: every field under its own name, and nothing of it into the verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google import genai
from google.genai import types
from openai import AsyncOpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from service.answer import Answer
from service.contracts.ladder import TOOL
from service.contracts.replays import replay_reason, results
from service.demo.scenario import Scenario
from service.dialects import DIALECTS
from service.model import Ask, Choice, Credentials, End, Exchange, Message, Refusal, Replay, Role, Route, Secret
from service.probe import Moment, Prober
from service.transport import Transport
from tests.acceptance.test_corpus import KEY, route_for
from tests.exchanges import ROUTE
from tests.peer import playing
from tests.unit.test_openai_sdk import whole

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = TOOL.name
ARGUMENTS = '{"value": "ok"}'
ASK = Ask("auto", (Message(Role.USER, "Call it."),), (TOOL,), Choice.AUTO)

Chunk = dict[str, Any]


def events(*chunks: Chunk, done: bool) -> list[str]:
    blocks = [
        (f"event: {chunk['type']}\n" if "type" in chunk else "") + f"data: {json.dumps(chunk)}" for chunk in chunks
    ]
    return [*blocks, *(["data: [DONE]"] if done else [])]


def answered(dialect: str, chunks: list[Chunk], deep: int = 0) -> Exchange:
    """The exchange of an answer with these chunks; `"DEEP"` in them stands for lists nested so deep."""
    body = "".join(f"{one}\n\n" for one in events(*chunks, done=dialect == "openai-chat"))
    body = body.replace('"DEEP"', "[" * deep + "]" * deep)
    answer = Answer(DIALECTS[dialect], route(dialect), ASK, 200, {"content-type": "text/event-stream"}, NOW)
    answer.feed(body.encode())
    return answer.finish(End.COMPLETE, headers_s=0.1, first_event_s=0.1)


def replay_of(dialect: str, chunks: list[Chunk]) -> Replay:
    exchange = answered(dialect, chunks)
    assert exchange.replay is not None, exchange.reading
    return exchange.replay


def route(dialect: str) -> Route:
    return replace(ROUTE, dialect=dialect)


def next_turn(dialect: str, replay: Replay) -> dict[str, Any]:
    """The body of the request that replays it with its results."""
    messages = (*ASK.messages, Message(Role.ASSISTANT, replay=replay), *results(replay.calls))
    body: dict[str, Any] = json.loads(DIALECTS[dialect].encode(route(dialect), replace(ASK, messages=messages)).body)
    return body


# --- Chat Completions ---


def delta(finish: str | None = None, **fields: Any) -> Chunk:
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def fragment(index: int = 0, arguments: str = ARGUMENTS, call_id: str | None = "call_1", **fields: Any) -> Chunk:
    function = {"name": NAME, "arguments": arguments} if call_id else {"arguments": arguments}
    given = {"index": index, "id": call_id, "type": "function", "function": function, **fields}
    return {name: value for name, value in given.items() if value is not None}


CALL = delta(tool_calls=[fragment()])
FINISH = delta("tool_calls")
CALLED = [{"id": "call_1", "type": "function", "function": {"name": NAME, "arguments": ARGUMENTS}}]

# name: (chunks, fields of the message that goes back)
CHAT: dict[str, tuple[list[Chunk], dict[str, Any]]] = {
    "a bare call": ([CALL, FINISH], {"content": None, "tool_calls": CALLED}),
    "text beside it": ([delta(content=""), delta(content="I "), delta(content="call."), CALL, FINISH], {"content": "I call."}),
    "reasoning_content in pieces": ([delta(reasoning_content="I th"), delta(reasoning_content="ink."), CALL, FINISH], {"reasoning_content": "I think."}),
    "reasoning in pieces": ([delta(reasoning="I th"), delta(reasoning="ink."), CALL, FINISH], {"reasoning": "I think."}),
    "both at once": ([delta(reasoning="A", reasoning_content="A"), CALL, FINISH], {"reasoning": "A", "reasoning_content": "A"}),
    "null and empty fields": ([delta(reasoning=None, reasoning_content=""), CALL, FINISH], {"content": None, "tool_calls": CALLED}),
    "reasoning_details by index": (
        [
            delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "I th", "format": "f", "id": "r1"}]),
            delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "ink.", "format": "f"}]),
            delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": None, "signature": "s1"}]),
            delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "abc", "id": "r2"}]),
            delta(reasoning_details=[{"type": "reasoning.summary", "index": 2, "summary": "Sum"}]),
            delta(reasoning_details=[{"type": "reasoning.summary", "index": 2, "summary": "mary"}]),
            CALL,
            FINISH,
        ],
        {
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "I think.", "format": "f", "id": "r1", "signature": "s1"},
                {"type": "reasoning.encrypted", "index": 1, "data": "abc", "id": "r2"},
                {"type": "reasoning.summary", "index": 2, "summary": "Summary"},
            ]
        },
    ),
    "reasoning_details without an index stay apart": (
        [
            delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "a"}]),
            delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "b"}]),
            CALL,
            FINISH,
        ],
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "a"}, {"type": "reasoning.encrypted", "data": "b"}]},
    ),
    "thinking_blocks in pieces, each until it is signed": (
        [
            delta(thinking_blocks=[{"type": "thinking", "thinking": "I th"}]),
            delta(thinking_blocks=[{"type": "thinking", "thinking": "ink.", "signature": ""}]),
            delta(thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "s1"}]),
            delta(thinking_blocks=[{"type": "thinking", "thinking": "More."}]),
            delta(thinking_blocks=[{"type": "redacted_thinking", "data": "r"}]),
            CALL,
            FINISH,
        ],
        {
            "thinking_blocks": [
                {"type": "thinking", "thinking": "I think.", "signature": "s1"},
                {"type": "thinking", "thinking": "More."},
                {"type": "redacted_thinking", "data": "r"},
            ]
        },
    ),
    "a signature of the call": (
        [delta(tool_calls=[fragment(extra_content={"google": {"thought_signature": "s"}})]), FINISH],
        {"tool_calls": [{**CALLED[0], "extra_content": {"google": {"thought_signature": "s"}}}]},
    ),
    "a signature on a later fragment": (
        [CALL, delta(tool_calls=[fragment(arguments="", call_id=None, extra_content={"google": {"thought_signature": "s"}})]), FINISH],
        {"tool_calls": [{**CALLED[0], "extra_content": {"google": {"thought_signature": "s"}}}]},
    ),
    "fields of a gateway's provider": (
        [delta(provider_specific_fields={"thought_signatures": ["s"]}, tool_calls=[fragment(provider_specific_fields={"thought_signature": "s"})]), FINISH],
        {
            "provider_specific_fields": {"thought_signatures": ["s"]},
            "tool_calls": [{**CALLED[0], "provider_specific_fields": {"thought_signature": "s"}}],
        },
    ),
    "content in parts, with thoughts": (
        [
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "I th"}]}]),
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "ink."}]}]),
            delta(content=[{"type": "text", "text": "I "}]),
            delta(content="call."),
            CALL,
            FINISH,
        ],
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "I think."}]},
                {"type": "text", "text": "I call."},
            ]
        },
    ),
    "two calls in pieces, with odd ids": (
        [
            delta(tool_calls=[fragment(0, '{"value"', "functions.x:0"), fragment(1, "", "a|b/ü")]),
            delta(tool_calls=[fragment(1, ARGUMENTS, None)]),
            delta(tool_calls=[fragment(0, ': "ok"}', None)]),
            FINISH,
        ],
        {"tool_calls": [{**CALLED[0], "id": "functions.x:0"}, {**CALLED[0], "id": "a|b/ü"}]},
    ),
    "arguments byte for byte": (
        [delta(tool_calls=[fragment(arguments='{ "value" : "\\u00e9é",\n "n":1.0}')]), FINISH],
        {"tool_calls": [{**CALLED[0], "function": {"name": NAME, "arguments": '{ "value" : "\\u00e9é",\n "n":1.0}'}}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAT)
def test_a_chat_message(name: str) -> None:
    chunks, fields = CHAT[name]
    sent = next_turn("openai-chat", replay_of("openai-chat", chunks))["messages"]
    assert sent[1] == {"role": "assistant", "content": None, "tool_calls": CALLED, **fields}
    assert [one["tool_call_id"] for one in sent[2:]] == [call["id"] for call in sent[1]["tool_calls"]]


# --- Responses ---


def item(**fields: Any) -> Chunk:
    return {"type": "response.output_item.done", **fields}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "S"}], "encrypted_content": "enc"}  # fmt: skip
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "I call.", "annotations": []}]}  # fmt: skip
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": NAME, "arguments": ARGUMENTS, "status": "completed"}  # fmt: skip
OTHER = {**FUNCTION, "id": "fc_2", "call_id": "call:2/ü"}


def response(status: str, *output: Chunk) -> Chunk:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "m",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def completed(*output: Chunk) -> Chunk:
    return {"type": "response.completed", "sequence_number": 99, "response": response("completed", *output)}


def done(*items: Chunk) -> list[Chunk]:
    """The items as they are announced and finished."""
    created = {"type": "response.created", "sequence_number": 0, "response": response("in_progress")}
    streamed: list[Chunk] = [created]
    for at, one in enumerate(items):
        begun = {"arguments": ""} if one["type"] == "function_call" else {"content": []} if one is SAID else {}
        place = {"output_index": at, "sequence_number": 2 * at + 1}
        streamed.append({"type": "response.output_item.added", "item": {**one, **begun}, **place})
        if one["type"] == "function_call":
            piece = {"item_id": one["id"], "delta": one["arguments"], **place}
            streamed.append({"type": "response.function_call_arguments.delta", **piece})
        streamed.append({"type": "response.output_item.done", "item": one, **place})
    return streamed


# name: (events, items that go back)
RESPONSES: dict[str, tuple[list[Chunk], list[Chunk]]] = {
    "a bare call": ([*done(FUNCTION), completed(FUNCTION)], [FUNCTION]),
    "reasoning, a text and two calls": ([*done(REASONING, SAID, FUNCTION, OTHER), completed(REASONING, SAID, FUNCTION, OTHER)], [REASONING, SAID, FUNCTION, OTHER]),
    "only the final response": ([completed(REASONING, FUNCTION)], [REASONING, FUNCTION]),
    "a final response without output": ([*done(REASONING, FUNCTION), completed()], [REASONING, FUNCTION]),
    "a call whose item never came whole": (
        [
            *done(REASONING),
            {"type": "response.output_item.added", "output_index": 1, "item": {**FUNCTION, "arguments": ""}},
            {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": ARGUMENTS},
            completed(),
        ],
        [REASONING, {"type": "function_call", "call_id": "call_1", "name": NAME, "arguments": ARGUMENTS}],
    ),
    "an item that forgot its call_id": (
        [
            {"type": "response.output_item.added", "output_index": 0, "item": {**FUNCTION, "arguments": ""}},
            item(output_index=0, item={name: value for name, value in FUNCTION.items() if name != "call_id"}),
            completed(),
        ],
        [{"type": "function_call", "call_id": "call_1", "name": NAME, "arguments": ARGUMENTS}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESPONSES)
def test_a_responses_turn(name: str) -> None:
    chunks, items = RESPONSES[name]
    sent = next_turn("openai-responses", replay_of("openai-responses", chunks))["input"]
    assert sent[1 : 1 + len(items)] == items
    calls = [one["call_id"] for one in items if one["type"] == "function_call"]
    assert [(one["type"], one["call_id"]) for one in sent[1 + len(items) :]] == [
        ("function_call_output", call) for call in calls
    ]


# --- Anthropic Messages ---


def begun(at: int, **block: Any) -> Chunk:
    return {"type": "content_block_start", "index": at, "content_block": block}


def grown(at: int, kind: str, **fields: Any) -> Chunk:
    return {"type": "content_block_delta", "index": at, "delta": {"type": kind, **fields}}


def closed(at: int) -> Chunk:
    return {"type": "content_block_stop", "index": at}


def thinking(at: int, *pieces: str, signature: str = "sig/+=") -> list[Chunk]:
    return [
        begun(at, type="thinking", thinking="", signature=""),
        *(grown(at, "thinking_delta", thinking=piece) for piece in pieces),
        grown(at, "signature_delta", signature=signature),
        closed(at),
    ]


def use(at: int, call_id: str = "toolu_1") -> list[Chunk]:
    return [
        begun(at, type="tool_use", id=call_id, name=NAME, input={}),
        *(grown(at, "input_json_delta", partial_json=piece) for piece in ("", '{"val', 'ue": "ok"}')),
        closed(at),
    ]


STARTED = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}
STOPPED = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]  # fmt: skip
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB="}
USE = {"type": "tool_use", "id": "toolu_1", "name": NAME, "input": {"value": "ok"}}
THOUGHT = {"type": "thinking", "thinking": "I think.", "signature": "sig/+="}
TEXT = {"type": "text", "text": "I call."}

MESSAGES: dict[str, tuple[list[Chunk], list[Chunk]]] = {
    "a bare call": (use(0), [USE]),
    "thinking, redacted thinking, text and two calls": (
        [
            *thinking(0, "I th", "ink."),
            begun(1, **REDACTED),
            closed(1),
            begun(2, type="text", text=""),
            grown(2, "text_delta", text="I "),
            grown(2, "text_delta", text="call."),
            closed(2),
            *use(3),
            *use(4, "toolu:ü"),
        ],
        [THOUGHT, REDACTED, TEXT, USE, {**USE, "id": "toolu:ü"}],
    ),
    "a thought of which only the signature is told": (
        [*thinking(0), *use(1)],
        [{**THOUGHT, "thinking": ""}, USE],
    ),
    "fields that a call carries": (
        [begun(0, type="tool_use", id="toolu_1", name=NAME, input={}, caller={"type": "direct"}), grown(0, "input_json_delta", partial_json=ARGUMENTS), closed(0)],
        [{**USE, "caller": {"type": "direct"}}],
    ),
}  # fmt: skip

# What the official client can't read, or would send back as it stands: an empty text, which the API refuses.
MESSAGES_OF_GATEWAYS: dict[str, tuple[list[Chunk], list[Chunk]]] = {
    "an empty text": ([begun(0, type="text", text=""), closed(0), *use(1)], [USE]),
    "an input that the block begins with": (
        [begun(0, type="tool_use", id="toolu_1", name=NAME, input={"value": "ok"}), closed(0)],
        [USE],
    ),
    "a text that the block begins with": (
        [begun(0, type="text", text="I "), grown(0, "text_delta", text="call."), closed(0), *use(1)],
        [TEXT, USE],
    ),
    "two calls under one index": ([*use(0), *use(0, "toolu_2")], [USE, {**USE, "id": "toolu_2"}]),
    "a thought and a call under one index": ([*thinking(0, "I think."), *use(0)], [THOUGHT, USE]),
    "the same block announced twice": ([use(0)[0], *use(0)], [USE]),
    "blocks from the third place on": ([*thinking(2, "I think."), *use(5)], [THOUGHT, USE]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MESSAGES, *MESSAGES_OF_GATEWAYS])
def test_an_anthropic_message(name: str) -> None:
    chunks, blocks = {**MESSAGES, **MESSAGES_OF_GATEWAYS}[name]
    sent = next_turn("anthropic-messages", replay_of("anthropic-messages", [STARTED, *chunks, *STOPPED]))["messages"]
    assert sent[1] == {"role": "assistant", "content": blocks}
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    [answers] = sent[2:]
    assert [(one["type"], one["tool_use_id"]) for one in answers["content"]] == [("tool_result", one) for one in uses]


# --- Gemini ---


def parts(*given: Chunk, finish: str | None = None) -> Chunk:
    candidate: Chunk = {"content": {"role": "model", "parts": list(given)}, "index": 0}
    return {"candidates": [{**candidate, "finishReason": finish} if finish else candidate]}


def function(**fields: Any) -> Chunk:
    return {"functionCall": {"name": NAME, "args": {"value": "ok"}, **fields}}


# name: (chunks, parts that go back, ids of the results)
GEMINI: dict[str, tuple[list[Chunk], list[Chunk], list[str | None]]] = {
    "a bare call": ([parts(function(), finish="STOP")], [function()], [None]),
    "a call with an id": ([parts(function(id="fc:1"), finish="STOP")], [function(id="fc:1")], ["fc:1"]),
    "a thought, a text, and a signed call": (
        [
            parts({"text": "I think.", "thought": True}),
            parts({"text": "I "}),
            parts({"text": "call.", "thoughtSignature": "c2ln"}),
            parts({**function(id="a"), "thoughtSignature": "c2lnMg=="}),
            parts(function(id="b"), finish="STOP"),
        ],
        [
            {"text": "I think.", "thought": True},
            {"text": "I "},
            {"text": "call.", "thoughtSignature": "c2ln"},
            {**function(id="a"), "thoughtSignature": "c2lnMg=="},
            function(id="b"),
        ],
        ["a", "b"],
    ),
    "an empty text that carries the signature": (
        [parts(function()), parts({"text": "", "thoughtSignature": "c2ln"}, finish="STOP")],
        [function(), {"text": "", "thoughtSignature": "c2ln"}],
        [None],
    ),
    "an empty text": ([parts(function()), parts({"text": ""}, finish="STOP")], [function()], [None]),
    "a call in pieces": (
        [
            parts({"functionCall": {"name": NAME, "id": "a", "willContinue": True}, "thoughtSignature": "c2ln"}),
            parts({"functionCall": {"partialArgs": [{"jsonPath": "$.value", "stringValue": "o"}], "willContinue": True}}),
            parts({"functionCall": {"partialArgs": [{"jsonPath": "$.value", "stringValue": "k"}]}}, finish="STOP"),
        ],
        [{**function(id="a"), "thoughtSignature": "c2ln"}],
        ["a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GEMINI)
def test_a_gemini_content(name: str) -> None:
    chunks, wanted, ids = GEMINI[name]
    sent = next_turn("gemini", replay_of("gemini", chunks))["contents"]
    assert sent[1] == {"role": "model", "parts": wanted}
    [answers] = sent[2:]
    assert [part["functionResponse"].get("id") for part in answers["parts"]] == ids
    assert all(part["functionResponse"]["name"] == NAME for part in answers["parts"])


# --- beside the official clients ---


def scenario(dialect: str, chunks: list[Chunk]) -> Scenario:
    body = events(*chunks, done=dialect == "openai-chat")
    reply = {"status": 200, "headers": {"content-type": "text/event-stream"}, "framing": "events", "body": body}
    return Scenario.parse({"id": "made", "dialect": dialect, "replies": [{"when": "any", "reply": reply}]})


async def chat_message(base: str) -> dict[str, Any]:
    async with (
        AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "Call it."}]) as stream,
    ):
        message = (await stream.get_final_completion()).choices[0].message.to_dict()
    calls = message.pop("tool_calls")
    assert isinstance(calls, list)
    for call in calls:
        del call["index"]
        call["function"].pop("parsed_arguments", None)
    return {name: value for name, value in message.items() if value is not None} | {"tool_calls": calls}


async def response_items(base: str) -> Any:
    async with (
        AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input="Call it.") as stream,
    ):
        items: list[Any] = [one.to_dict() for one in (await stream.get_final_response()).output]
    for one in items:
        one.pop("parsed_arguments", None)
        for part in one.get("content") or []:
            part.pop("parsed", None)
    return items


async def message_blocks(base: str) -> Any:
    async with (
        AsyncAnthropic(base_url=base, api_key="k", max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=99, messages=[{"role": "user", "content": "Call it."}]) as stream,
    ):
        return [one.to_dict() for one in (await stream.get_final_message()).content]


async def content_parts(base: str) -> Any:
    options = types.HttpOptions(base_url=base.removesuffix("/v1beta"), api_version="v1beta")
    client = genai.Client(api_key="k", http_options=options)
    stream = await client.aio.models.generate_content_stream(model="m", contents="Call it.")
    contents = [one.candidates[0].content async for one in stream if one.candidates]
    await client.aio.aclose()
    client.close()
    return [
        part.model_dump(mode="json", by_alias=True, exclude_none=True)
        for content in contents
        for part in (content.parts or [] if content else [])
    ]


# The official client joins texts and lists that have an index; what it leaves undone is no measure.
NOT_JOINED_BY_THE_CLIENT = {
    "reasoning_details by index",  # it doubles `format` and stumbles over null
    "reasoning_details without an index stay apart",
    "thinking_blocks in pieces, each until it is signed",
    "content in parts, with thoughts",
    "null and empty fields",  # it keeps them, and an upstream reads an empty one as none
}


@pytest.mark.parametrize("name", sorted(CHAT.keys() - NOT_JOINED_BY_THE_CLIENT))
async def test_a_chat_message_is_what_the_official_client_holds(name: str) -> None:
    chunks, _ = CHAT[name]
    async with playing([scenario("openai-chat", [delta(role="assistant"), *chunks])]) as peer:
        theirs = await chat_message(peer.url("made"))
    ours = replay_of("openai-chat", chunks).wire
    assert {key: value for key, value in ours.items() if value is not None} == theirs


@pytest.mark.parametrize("name", ["a bare call", "reasoning, a text and two calls"])
async def test_items_are_what_the_official_client_holds(name: str) -> None:
    chunks, _ = RESPONSES[name]
    async with playing([scenario("openai-responses", chunks)]) as peer:
        assert replay_of("openai-responses", chunks).wire == await response_items(peer.url("made"))


@pytest.mark.parametrize("name", MESSAGES)
async def test_blocks_are_what_the_official_client_holds(name: str) -> None:
    chunks = [STARTED, *MESSAGES[name][0], *STOPPED]
    async with playing([scenario("anthropic-messages", chunks)]) as peer:
        assert replay_of("anthropic-messages", chunks).wire["content"] == await message_blocks(peer.url("made"))


@pytest.mark.parametrize("name", sorted(GEMINI.keys() - {"an empty text", "a call in pieces"}))
async def test_parts_are_what_googles_client_holds(name: str) -> None:
    chunks, _, _ = GEMINI[name]
    async with playing([scenario("gemini", chunks)]) as peer:
        assert replay_of("gemini", chunks).wire["parts"] == await content_parts(peer.url("made"))


TYPES: Mapping[str, TypeAdapter[Any]] = {
    "openai-chat": TypeAdapter(CompletionCreateParamsStreaming),
    "openai-responses": TypeAdapter(ResponseCreateParamsStreaming),
    "anthropic-messages": TypeAdapter(MessageCreateParamsStreaming),
}


@pytest.mark.parametrize(
    ("dialect", "chunks"),
    [
        ("openai-chat", CHAT["two calls in pieces, with odd ids"][0]),
        ("openai-responses", RESPONSES["reasoning, a text and two calls"][0]),
        ("anthropic-messages", [STARTED, *MESSAGES["thinking, redacted thinking, text and two calls"][0], *STOPPED]),
    ],
)
def test_the_next_turn_is_a_request_of_the_official_types(dialect: str, chunks: list[Chunk]) -> None:
    body = next_turn(dialect, replay_of(dialect, chunks))
    assert whole(TYPES[dialect].validate_python(body)) == body


# --- when there is nothing to replay ---


@pytest.mark.parametrize(
    ("what", "chunks"),
    [
        ("a text", [delta(content="No."), delta("stop")]),
        ("a broken call", [delta(tool_calls=[fragment(arguments="{")]), FINISH]),
        ("a call without an id", [delta(tool_calls=[fragment(call_id="")]), FINISH]),
        ("one of two calls is broken", [CALL, delta(tool_calls=[fragment(1, "{", "call_2")]), FINISH]),
        ("an error behind the call", [CALL, {"error": {"message": "Sorry."}}]),
        ("a text too long to be kept whole", [delta(content="x" * 400_000), CALL, FINISH]),
        ("reasoning too long to be kept whole", [delta(reasoning="x" * 400_000), CALL, FINISH]),
        ("too many details", [delta(reasoning_details=[{"data": "x" * 400_000}]), CALL, FINISH]),
        ("an argument too long", [delta(tool_calls=[fragment(arguments=f'{{"value": "{"x" * 400_000}"}}')]), FINISH]),
    ],
)
def test_only_whole_calls_are_replayed(what: str, chunks: list[Chunk]) -> None:
    assert answered("openai-chat", chunks).replay is None, what


@pytest.mark.parametrize(
    ("field", "whole"), [("content", "a" * 9000), ("reasoning", "a" * 9000), ("reasoning_details", [{"text": "a" * 9000, "index": 0}])]
)  # fmt: skip
def test_thousands_of_small_pieces_are_no_long_message(field: str, whole: Any) -> None:
    piece = "a" if isinstance(whole, str) else [{"text": "a", "index": 0}]
    assert replay_of("openai-chat", [*[delta(**{field: piece})] * 9000, CALL, FINISH]).wire[field] == whole


def test_a_long_text_is_replayed_whole_or_not_at_all() -> None:
    words = "".join(f"{number:07d} " for number in range(45_000))
    chunks = [*(delta(content=words[at : at + 5000]) for at in range(0, len(words), 5000)), CALL, FINISH]
    assert replay_of("openai-chat", chunks).wire["content"] == words


@pytest.mark.parametrize(
    ("dialect", "chunks"),
    [
        ("openai-responses", lambda text: [*done({**SAID, "content": [{"type": "output_text", "text": text}]}, FUNCTION), completed()]),
        ("anthropic-messages", lambda text: [STARTED, begun(0, type="text", text=""), grown(0, "text_delta", text=text), *use(1), *STOPPED]),
        ("anthropic-messages", lambda text: [STARTED, *thinking(0, text), *use(1), *STOPPED]),
        ("gemini", lambda text: [parts({"text": text}), parts(function(), finish="STOP")]),
        ("gemini", lambda text: [parts({**function(), "thoughtSignature": text}, finish="STOP")]),
    ],
)  # fmt: skip
def test_what_is_too_long_is_not_replayed_in_any_dialect(dialect: str, chunks: Callable[[str], list[Chunk]]) -> None:
    assert answered(dialect, chunks("x" * 100_000)).replay is not None
    exchange = answered(dialect, chunks("x" * 400_000))
    assert exchange.reading is not None
    assert exchange.reading.calls
    assert exchange.replay is None


def deeper(frames: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call it from so many frames further down, as another caller may."""
    return deeper(frames - 1, function, *args) if frames else function(*args)


@pytest.mark.parametrize(
    ("dialect", "chunks"),
    [
        ("openai-chat", [delta(reasoning_details=["DEEP"]), CALL, FINISH]),
        ("openai-chat", [delta(content=[{"type": "thinking", "thinking": "DEEP"}]), CALL, FINISH]),
        ("openai-chat", [delta(tool_calls=[fragment(extra_content="DEEP")]), FINISH]),
        ("openai-responses", [*done({**REASONING, "x": "DEEP"}, FUNCTION), completed()]),
        ("openai-responses", [completed({**REASONING, "x": "DEEP"}, FUNCTION)]),
        ("anthropic-messages", [STARTED, begun(0, type="x", x="DEEP"), *use(1), *STOPPED]),
        ("anthropic-messages", [STARTED, begun(0, type="tool_use", id="a", name=NAME, input={"value": "ok", "x": "DEEP"}), *STOPPED]),
        ("gemini", [parts({"x": "DEEP"}), parts(function(), finish="STOP")]),
        ("gemini", [parts(function(args={"value": "ok", "x": "DEEP"}), finish="STOP")]),
    ],
)  # fmt: skip
def test_values_nested_as_deep_as_can_be_read_are_sent_back_or_not_replayed(dialect: str, chunks: list[Chunk]) -> None:
    replayed = []
    for deep in (1, 100, *range(800, 1020)):  # the parser gives up at some of the latter
        exchange = answered(dialect, chunks, deep)
        if exchange.replay is not None:
            deeper(40, next_turn, dialect, exchange.replay)
            replayed.append(deep)
    assert {1, 100} <= set(replayed)


# --- the words about replayed reasoning only fill in a reason ---


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The `reasoning_content` in the thinking mode must be passed back to the API.", "reasoning_replay_required"),
        ("Missing `reasoning_content` field in the assistant message at message index 2.", "reasoning_replay_required"),
        ("Item 'fc_2' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.", "reasoning_replay_required"),
        ("Function call is missing a thought_signature in functionCall parts.", "reasoning_replay_required"),
        ("Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block", "reasoning_replay_required"),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", "reasoning_replay_invalid"),
        ("Corrupted thought signature.", "reasoning_replay_invalid"),
        ("The encrypted content could not be verified.", "http_400"),
        ("Invalid tool_call_id.", "http_400"),
        ("", "http_400"),
    ],
)  # fmt: skip
def test_the_reason_of_a_refused_replay(text: str, reason: str) -> None:
    assert replay_reason(Refusal(status=400, reason="http_400", text=text)) == reason


# --- nothing of it is stored ---

MARKER = "wq7Zx3Marker"
REPEATED = ("item.added", "arguments.delta")
"""What is said once more when it is whole."""

# What a model says, thinks and signs, with the marker in all of it.
MARKED: Mapping[str, list[Chunk]] = {
    "openai-chat": [
        delta(role="assistant", content=f"{MARKER} I call."),
        delta(reasoning=f"{MARKER} I think.", reasoning_content=f"{MARKER} I think."),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 0, "data": MARKER, "id": MARKER}]),
        delta(tool_calls=[fragment(call_id=f"call_{MARKER}", extra_content={"google": {"thought_signature": MARKER}}, arguments=f'{{"value": "{MARKER}"}}')]),
        FINISH,
    ],
    "openai-responses": [
        *done(
            {**REASONING, "id": MARKER, "encrypted_content": MARKER, "summary": [{"type": "summary_text", "text": MARKER}]},
            {**SAID, "content": [{"type": "output_text", "text": MARKER, "annotations": []}]},
            {**FUNCTION, "call_id": MARKER, "arguments": f'{{"value": "{MARKER}"}}'},
        ),
        completed(),
    ],
    "anthropic-messages": [
        STARTED,
        *thinking(0, MARKER, signature=MARKER),
        begun(1, type="redacted_thinking", data=MARKER),
        begun(2, type="text", text=""),
        grown(2, "text_delta", text=MARKER),
        begun(3, type="tool_use", id=MARKER, name=NAME, input={}),
        grown(3, "input_json_delta", partial_json=f'{{"value": "{MARKER}"}}'),
        *STOPPED,
    ],
    "gemini": [
        parts({"text": MARKER, "thought": True}),
        parts({"text": MARKER, "thoughtSignature": MARKER}),
        parts({"functionCall": {"name": NAME, "id": MARKER, "args": {"value": MARKER}}, "thoughtSignature": MARKER}, finish="STOP"),
    ],
}  # fmt: skip
ANSWERS: Mapping[str, list[Chunk]] = {
    "openai-chat": [delta(content=f"{MARKER} done.", reasoning=MARKER), delta("stop")],
    "openai-responses": [*done({**SAID, "content": [{"type": "output_text", "text": MARKER, "annotations": []}]}), completed()],
    "anthropic-messages": [
        STARTED,
        *thinking(0, MARKER, signature=MARKER),
        begun(1, type="text", text=""),
        grown(1, "text_delta", text=MARKER),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ],
    "gemini": [parts({"text": MARKER, "thoughtSignature": MARKER}, finish="STOP")],
}  # fmt: skip


def reply(dialect: str, chunks: list[Chunk]) -> dict[str, Any]:
    body = events(*chunks, done=dialect == "openai-chat")
    return {"status": 200, "headers": {"content-type": "text/event-stream"}, "framing": "events", "body": body}


@pytest.mark.parametrize("contract", ["agent_turn", "missing_tool_results"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_no_word_of_a_model_is_in_the_verdict(dialect: str, contract: str) -> None:
    """The second contract takes a refused history from the route itself."""
    refused = {"status": 400, "headers": {"content-type": "application/json"}, "framing": "json", "body": {"error": {"message": "No."}}}  # fmt: skip
    replies = [
        {"when": [f"call_id:{MARKER}" if dialect != "openai-chat" else f"call_id:call_{MARKER}"], "reply": reply(dialect, ANSWERS[dialect])},
        {"when": "has_tool_history", "reply": refused},
        {"when": "any", "reply": reply(dialect, MARKED[dialect])},
    ]  # fmt: skip
    made = Scenario.parse({"id": "made", "dialect": dialect, "replies": replies})
    async with playing([made]) as peer, Transport() as transport:
        probed = await Prober(transport, "here").probe(
            route_for(made, peer.url("made")), contract, Credentials(key=Secret(KEY)), Moment.now()
        )
        replayed = json.dumps(peer.requests[-1].body)
    assert (
        probed.verdict.status == {"agent_turn": "turn_completed", "missing_tool_results": "history_accepted"}[contract]
    )
    marks = json.dumps([one for one in MARKED[dialect] if not one.get("type", "").endswith(REPEATED)]).count(MARKER)
    assert replayed.count(MARKER) >= marks
    stored = json.dumps(dataclasses.asdict(probed.verdict), default=str)
    assert MARKER not in stored
    assert MARKER not in probed.because
    assert MARKER not in repr(probed)
