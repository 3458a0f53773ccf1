"""Chat Completions: what is sent, and what its chunks say. Each case is a row of events and the facts of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.contracts.native_tools import TOOL, NativeTools
from service.dialects import DIALECTS
from service.model import Ask, Auth, Call, Choice, Credentials, Reading, Refused, Route, Secret, TokenCap
from service.sse import Event
from tests.exchanges import ASK, ROUTE

CHAT = DIALECTS["openai-chat"]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAME = TOOL.name
OK = '{"value": "ok"}'
DONE = "[DONE]"
GOOD = Call()

Chunk = dict[str, Any] | str | Event


def read(*chunks: Chunk, ask: Ask = ASK, route: Route = ROUTE) -> Reading:
    reader = CHAT.reader(route, ask, {}, NOW)
    for chunk in chunks:
        if isinstance(chunk, dict):
            chunk = json.dumps(chunk)
        reader.read(Event(chunk) if isinstance(chunk, str) else chunk)
    return reader.result()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **fields}]}


def part(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A fragment of a call; `name` goes into its function, the rest stands beside it."""
    function = {} if arguments is None else {"arguments": arguments}
    if "name" in fields:
        function["name"] = fields.pop("name")
    return {**fields, "function": function}


def call(*parts: dict[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=list(parts))


def error(data: Any) -> Event:
    return Event(data if isinstance(data, str) else json.dumps(data), "error")


END = delta("tool_calls")
STOP = delta("stop")
USAGE = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
FIRST = part("", index=0, id="c1", name=NAME)
WHOLE = part(OK, index=0, id="c1", name=NAME)

CASES: dict[str, tuple[list[Chunk], dict[str, Any]]] = {
    # A whole call
    "whole": (
        [call(WHOLE), END, USAGE, DONE],
        {"calls": (GOOD,), "announced": "tool_calls", "quirks": set(), "tokens_in": 11, "tokens_out": 7, "deltas": 1},
    ),
    "in fragments": (
        [call(FIRST), call(part('{"value"', index=0)), call(part(': "ok"}', index=0)), END],
        {"calls": (GOOD,)},
    ),
    "call and end in one chunk": (
        [delta("tool_calls", tool_calls=[WHOLE])],
        {"calls": (GOOD,), "announced": "tool_calls"},
    ),
    "no events": ([], {"events": 0, "announced": None, "calls": (), "has_text": False}),
    "null and empty ids and names are no-ops": (
        [call(FIRST), call(part(OK, index=0, id=None, name=None)), call(part("", index=0, id="", name="")), END],
        {"calls": (GOOD,), "quirks": {"done_missing", "usage_missing"}},
    ),
    # Call identity
    "two calls by index": (
        [call(WHOLE), call(part(OK, index=1, id="c2", name=NAME)), END],
        {"calls": (GOOD, GOOD), "quirks": {"unrequested_parallel_calls", "done_missing", "usage_missing"}},
    ),
    "two calls, interleaved by index": (
        [
            call(FIRST, part("", index=1, id="c2", name=NAME)),
            call(part('{"value":', index=1)),
            call(part('{"value":', index=0)),
            call(part('"ok"}', index=1), part('"ok"}', index=0)),
            END,
        ],
        {"calls": (GOOD, GOOD)},
    ),
    "a new id on a used index opens a call": (
        [call(WHOLE), call(part('{"val', index=0, id="c2", name=NAME)), call(part('ue": "ok"}', index=0)), END],
        {"calls": (GOOD, GOOD), "has": {"index_reused"}},
    ),
    "an id seen before goes back to its call": (
        [
            call(part('{"value":', index=0, id="c1", name=NAME)),
            call(part(OK, index=0, id="c2", name=NAME)),
            call(part('"ok"}', index=0, id="c1")),
            END,
        ],
        {"calls": (GOOD, GOOD)},
    ),
    "the same id in every fragment": (
        [call(FIRST), call(part('{"value":', index=0, id="c1")), call(part('"ok"}', index=0, id="c1")), END],
        {"calls": (GOOD,), "hasn't": {"index_reused", "index_missing"}},
    ),
    "the id comes late": (
        [call(part("", index=0, name=NAME)), call(part(OK, index=0, id="c1")), END],
        {"calls": (GOOD,)},
    ),
    "an index as a string": (
        [call(part("", index="0", id="c1", name=NAME)), call(part(OK, index="0")), END],
        {"calls": (GOOD,), "hasn't": {"index_missing"}},
    ),
    "an index as a string and as a number": (
        [call(part("", index="1", id="c1", name=NAME)), call(part(OK, index=1)), END],
        {"calls": (GOOD,)},
    ),
    "indexes that begin at one": ([call(part(OK, index=1, id="c1", name=NAME)), END], {"calls": (GOOD,)}),
    "an id as a number": ([call(part(OK, index=0, id=17, name=NAME)), END], {"calls": (GOOD,)}),
    "no index, ids": (
        [call(part("", id="c1", name=NAME)), call(part(OK, id="c1")), call(part(OK, id="c2", name=NAME)), END],
        {"calls": (GOOD, GOOD), "has": {"index_missing"}},
    ),
    "no index, ids interleaved": (
        [
            call(part('{"value":', id="c1", name=NAME)),
            call(part('{"value":', id="c2", name=NAME)),
            call(part('"ok"}', id="c1")),
            call(part('"ok"}', id="c2")),
            END,
        ],
        {"calls": (GOOD, GOOD)},
    ),
    "no index, by position": (
        [
            call(part('{"value":', id="c1", name=NAME), part('{"value":', id="c2", name=NAME)),
            call(part('"ok"}'), part('"ok"}')),
            END,
        ],
        {"calls": (GOOD, GOOD), "has": {"index_missing"}},
    ),
    "no index, one call after the other": (
        [
            call(part('{"value":', id="c1", name=NAME)),
            call(part('"ok"}')),
            call(part('{"value":', id="c2", name=NAME)),
            call(part('"ok"}')),
            END,
        ],
        {"calls": (GOOD, GOOD)},
    ),
    "no index, at a new position: the call that is open": (
        [
            call(part('{"value":', id="c1", name=NAME)),
            delta(tool_calls=[None, part('"ok"}')]),
            END,
        ],
        {"calls": (GOOD,)},
    ),
    "no index, the id comes late": ([call(part("", name=NAME)), call(part(OK, id="c1")), END], {"calls": (GOOD,)}),
    "an index that is no index": (
        [call(part(OK, index=True, id="c1", name=NAME)), END],
        {"calls": (GOOD,), "has": {"index_missing"}},
    ),
    "the index on the first fragment alone": (
        [call(FIRST), call(part(OK)), END],
        {"calls": (GOOD,), "has": {"index_missing"}},
    ),
    "no id at all": ([call(part(OK, index=0, name=NAME)), END], {"calls": (Call("id_missing"),)}),
    "no id and no index": ([call(part(OK, name=NAME)), END], {"calls": (Call("id_missing"),)}),
    "empty ids": ([call(part(OK, index=0, id="", name=NAME)), END], {"calls": (Call("id_missing"),)}),
    "one id for two calls": (
        [call(WHOLE), call(part(OK, index=1, id="c1", name=NAME)), END],
        {"calls": (GOOD, Call("call_id_duplicated"))},
    ),
    "a new id for every fragment": (
        [call(part('{"value":', index=0, id="a", name=NAME)), call(part('"ok"}', index=0, id="b")), END],
        {"calls": (Call("call_identity_unstable"), GOOD)},
    ),
    "a new id and the name for every fragment": (
        [call(part('{"value":', index=0, id="a", name=NAME)), call(part('"ok"}', index=0, id="b", name=NAME)), END],
        {"calls": (Call("call_identity_unstable"), GOOD)},
    ),
    "a new id for every fragment, no index": (
        [call(part('{"value":', id="a", name=NAME)), call(part('"ok"}', id="b")), END],
        {"calls": (Call("call_identity_unstable"), GOOD)},
    ),
    "a new index for every fragment": (
        [call(part('{"value":', index=0, id="a", name=NAME)), call(part('"ok"}', index=1)), END],
        {"calls": (Call("call_identity_unstable"), GOOD)},
    ),
    # Names
    "the name in every fragment": (
        [call(FIRST), call(part(OK, index=0, name=NAME)), END],
        {"calls": (GOOD,), "has": {"name_repeated"}},
    ),
    "the name in pieces": (
        [
            call(part("", index=0, id="c1", name=NAME[:6])),
            call(part("", index=0, name=NAME[6:])),
            call(part(OK, index=0)),
            END,
        ],
        {"calls": (GOOD,), "has": {"name_fragmented"}},
    ),
    "half a name": ([call(part(OK, index=0, id="c1", name=NAME[:6])), END], {"calls": (Call("name_not_declared"),)}),
    "another name": ([call(part(OK, index=0, id="c1", name="other")), END], {"calls": (Call("name_not_declared"),)}),
    "a name behind a namespace": (
        [call(part(OK, index=0, id="c1", name=f"functions.{NAME}")), END],
        {"calls": (Call("name_not_declared"),)},
    ),
    "no name": ([call(part(OK, index=0, id="c1")), END], {"calls": (Call("name_missing", cut=True),)}),
    "a name that is no text": (
        [call(part(OK, index=0, id="c1", name={"x": 1})), END],
        {"calls": (Call("name_missing", cut=True),)},
    ),
    "no function": (
        [call({"index": 0, "id": "c1", "function": None}), END],
        {"calls": (Call("name_missing", cut=True),)},
    ),
    # Arguments
    "arguments as an object": (
        [call(part({"value": "ok"}, index=0, id="c1", name=NAME)), END],
        {"calls": (Call("arguments_not_string"),)},
    ),
    "arguments that stop": (
        [call(part('{"value":', index=0, id="c1", name=NAME)), END],
        {"calls": (Call("arguments_truncated", cut=True),)},
    ),
    "another value": (
        [call(part('{"value": "OK!"}', index=0, id="c1", name=NAME)), END],
        {"calls": (GOOD,), "has": {"value_differs"}},
    ),
    "a further property": (
        [call(part('{"value": "ok", "x": 1}', index=0, id="c1", name=NAME)), END],
        {"calls": (GOOD,)},
    ),
    "calls not in an array": (
        [delta(tool_calls=WHOLE), END],
        {"calls": (GOOD,), "has": {"tool_calls_not_array"}},
    ),
    # Ends
    "[DONE] alone": (
        [call(WHOLE), DONE],
        {"calls": (GOOD,), "announced": DONE, "has": {"finish_reason_missing"}, "hasn't": {"done_missing"}},
    ),
    "a finish reason alone": ([call(WHOLE), END], {"announced": "tool_calls", "has": {"done_missing"}}),
    "no end": ([call(WHOLE)], {"announced": None, "calls": (GOOD,), "quirks": set()}),
    "an empty finish reason": ([call(WHOLE), delta("")], {"announced": None}),
    "a null finish reason": ([call(WHOLE), delta(None)], {"announced": None}),
    "a finish reason that is no text": (
        [call(WHOLE), {"choices": [{"delta": {}, "finish_reason": 1}]}],
        {"announced": None},
    ),
    "stop with a call": ([call(WHOLE), STOP, DONE], {"calls": (GOOD,), "has": {"finish_reason_stop"}}),
    "stop with text": ([delta(content="hi"), STOP, DONE], {"has_text": True, "hasn't": {"finish_reason_stop"}}),
    "length": ([delta(content="hi"), delta("length")], {"capped": True, "announced": "length"}),
    "max_tokens, as a gateway passes it on": ([delta(content="hi"), delta("max_tokens")], {"capped": True}),
    "as many tokens as our cap": (
        [delta(content="hi"), STOP, {"choices": [], "usage": {"completion_tokens": 1024}}],
        {"capped": True, "announced": "stop"},
    ),
    "[DONE] cut off by the body's end": (
        [call(WHOLE), Event("[DON", unterminated=True)],
        {"announced": None, "broken": None},
    ),
    "[DONE] whole at the body's end": ([call(WHOLE), Event("[DONE]", unterminated=True)], {"announced": DONE}),
    "a chunk cut off by the body's end": (
        [call(WHOLE), Event('{"choices": [{', unterminated=True)],
        {"announced": None, "broken": None},
    ),
    "a whole chunk at the body's end": (
        [call(WHOLE), Event(json.dumps(END), unterminated=True)],
        {"announced": "tool_calls"},
    ),
    # After the announced end nothing but usage and end markers counts
    "text after the end": ([STOP, delta(content="hi")], {"has_text": False, "deltas": 0}),
    "a call after the end": ([STOP, call(WHOLE)], {"calls": (), "deltas": 0}),
    "an error after the end": (
        [call(WHOLE), END, {"error": {"message": "x", "code": 500}}],
        {"error": None, "calls": (GOOD,)},
    ),
    "an error event after the end": ([call(WHOLE), END, error("boom")], {"error": None}),
    "another finish reason after the end": ([END, delta("length")], {"announced": "tool_calls", "capped": False}),
    "garbage after the end": ([END, "{nonsense"], {"broken": None, "announced": "tool_calls"}),
    "no object after the end": ([END, "1"], {"broken": None}),
    "another dialect after the end": ([END, {"type": "response.completed"}], {"broken": None}),
    "a comment as data after the end": ([END, ": ping"], {"hasn't": {"comment_as_data"}}),
    "usage after the end": ([END, USAGE], {"tokens_out": 7, "hasn't": {"usage_missing"}}),
    # Filters
    "content_filter": ([delta("content_filter")], {"filtered": True}),
    "sensitive": ([delta("sensitive")], {"filtered": True}),
    "a filter of another dialect": ([delta("SAFETY")], {"filtered": True}),
    "a filter with its reason": ([delta("content_filter: PROHIBITED_CONTENT")], {"filtered": True}),
    "stop is no filter": ([STOP], {"filtered": False}),
    # Declared malformed
    "declared malformed, behind a prefix": (
        [delta("function_call_filter: MALFORMED_FUNCTION_CALL"), DONE],
        {
            "declared_malformed": True,
            "announced": "function_call_filter: MALFORMED_FUNCTION_CALL",
            "hasn't": {"finish_reason_missing"},
        },
    ),
    "declared malformed, natively": (
        [choice(delta={}, finish_reason="stop", native_finish_reason="MALFORMED_FUNCTION_CALL")],
        {"declared_malformed": True, "announced": "stop"},
    ),
    "declared malformed, natively, as an error": (
        [choice(delta={}, finish_reason="error", native_finish_reason="MALFORMED_FUNCTION_CALL")],
        {"declared_malformed": True, "error": None},
    ),
    "declared malformed, natively alone": (
        [choice(delta={}, finish_reason=None, native_finish_reason="MALFORMED_FUNCTION_CALL")],
        {"declared_malformed": True, "announced": "MALFORMED_FUNCTION_CALL"},
    ),
    "declared malformed with a whole call": (
        [call(WHOLE), delta("malformed_function_call")],
        {"declared_malformed": True},
    ),
    # Errors
    "an error object": (
        [{"error": {"message": "boom"}}],
        {"error": True, "kind": None, "error_after_delta": False, "announced": None},
    ),
    "an error object after text": (
        [delta(content="hi"), {"error": {"message": "boom"}}],
        {"error": True, "error_after_delta": True},
    ),
    "an error object after reasoning": (
        [delta(reasoning_content="hm"), {"error": {"message": "boom"}}],
        {"error": True, "error_after_delta": True},
    ),
    "an error object after a call": ([call(FIRST), {"error": "boom"}], {"error": True, "error_after_delta": True}),
    "an error object after a role": (
        [delta(role="assistant", content=""), {"error": "boom"}],
        {"error": True, "error_after_delta": False},
    ),
    "an error object, then [DONE]": ([{"error": {"message": "boom"}}, DONE], {"error": True, "announced": None}),
    "an error object, then a whole call": (
        [{"error": "boom"}, call(WHOLE), END, DONE],
        {"error": True, "announced": None, "calls": ()},
    ),
    "an error object in a list": (['[{"error": {"code": 503, "message": "x"}}]'], {"error": True, "broken": None}),
    "an error inside a choice": (
        [choice(delta={"content": ""}, finish_reason="error", error={"code": 429, "message": "slow down"})],
        {"error": True, "kind": Refused.RATE},
    ),
    "a code in the error": (
        [{"error": {"code": "insufficient_quota", "message": "x"}}],
        {"error": True, "kind": Refused.CREDIT},
    ),
    "null is no error": ([{"error": None, **call(WHOLE)}, END], {"error": None, "calls": (GOOD,)}),
    "an error event": ([error({"error": {"message": "boom"}})], {"error": True, "error_after_delta": False}),
    "an error event without an envelope": ([error({"message": "boom"})], {"error": True}),
    "an error event in plain words": ([error("upstream went away")], {"error": True, "broken": None}),
    "an error event without data": ([error(""), call(WHOLE), END, DONE], {"error": True, "announced": None}),
    "finish reason error": (
        [delta(content="hi"), delta("error")],
        {"error": True, "kind": None, "error_after_delta": True, "announced": None},
    ),
    "finish reason error at once": ([delta("error")], {"error": True, "error_after_delta": False}),
    "native network_error": (
        [call(WHOLE), choice(delta={}, finish_reason="stop", native_finish_reason="network_error")],
        {"error": True, "announced": None},
    ),
    "network_error": ([delta("network_error")], {"error": True}),
    "insufficient_system_resource": (
        [delta("insufficient_system_resource")],
        {"error": True, "kind": Refused.OVERLOAD},
    ),
    # Not this dialect, or not readable
    "unparsable": (["{nonsense", END], {"broken": "data_not_json"}),
    "plain words": (["upstream went away", END], {"broken": "data_not_json"}),
    "a number": (["1"], {"broken": "event_not_object"}),
    "a choice that is no object": ([{"choices": ["x"]}], {"broken": "choice_not_object"}),
    "Responses": ([{"type": "response.created", "response": {}}], {"broken": "foreign_dialect"}),
    "Anthropic": ([{"type": "message_start", "message": {"role": "assistant"}}], {"broken": "foreign_dialect"}),
    "Gemini": ([{"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}], {"broken": "foreign_dialect"}),
    "legacy completions": ([choice(text="hi", finish_reason=None)], {"broken": "foreign_dialect"}),
    "message in place of delta": (
        [choice(message={"role": "assistant", "content": "hi"}, finish_reason="stop")],
        {"broken": "message_not_delta"},
    ),
    "message beside delta": (
        [choice(delta={"content": "hi"}, message={"content": "hi"}), STOP],
        {"broken": None, "has_text": True},
    ),
    "nested too deep": (["[" * 100_000], {"broken": "data_not_json"}),
    "257 calls": (
        [call(*(part(OK, index=n, id=f"c{n}", name=NAME) for n in range(257))), END],
        {"broken": "too_many_calls"},
    ),
    # Not broken
    "empty data": (["", "  ", STOP], {"events": 1, "broken": None}),
    "an empty object": (["{}", STOP], {"broken": None}),
    "no choices": ([{"choices": []}, {"choices": None}, STOP], {"broken": None}),
    "a comment as data": ([": ping", STOP], {"broken": None, "events": 1, "has": {"comment_as_data"}}),
    "content filter results first": (
        [{"choices": [], "prompt_filter_results": []}, call(WHOLE), END],
        {"calls": (GOOD,)},
    ),
    "lone surrogates": (['{"choices": [{"delta": {"content": "\\ud800"}}]}', STOP], {"has_text": True, "broken": None}),
    # Text
    "text": ([delta(content="hi"), STOP], {"has_text": True, "deltas": 1, "leak": None}),
    "blank text": ([delta(content=" \n"), STOP], {"has_text": False, "deltas": 1}),
    "empty text": ([delta(content=""), STOP], {"has_text": False, "deltas": 0}),
    "reasoning is no text": (
        [delta(reasoning_content="hm"), delta(reasoning="hm"), STOP],
        {"has_text": False, "deltas": 2},
    ),
    "text in parts": ([delta(content=[{"type": "text", "text": "hi"}]), STOP], {"has_text": True, "deltas": 1}),
    "thinking in parts": (
        [delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), STOP],
        {"has_text": False, "deltas": 1},
    ),
    "a refusal in words": ([delta(refusal="I can't"), STOP], {"has_text": True, "filtered": False}),
    "content that is no text": ([delta(content=5), delta(content={"a": 1}), STOP], {"has_text": False, "broken": None}),
    # Leaks
    "a leak in text": (
        [delta(content=f"<tool_call>{NAME}\n"), delta(content="<arg_key>"), STOP],
        {"leak": "hermes", "calls": ()},
    ),
    "a leak cut between two chunks": (
        [delta(content="[TOOL_"), delta(content=f"CALLS]{NAME}[ARGS]{{"), STOP],
        {"leak": "mistral"},
    ),
    "a leak in reasoning": ([delta(reasoning_content=f'<function={NAME}>{{"value"'), STOP], {"leak": "llama"}),
    "a legacy function_call": (
        [delta(function_call={"name": NAME, "arguments": OK}), delta("function_call")],
        {"leak": "function_call"},
    ),
    "an empty function_call": ([delta(function_call={"name": "", "arguments": ""}), STOP], {"leak": None}),
    "markup beside a call": (
        [delta(content=f"<tool_call>{NAME}\n"), call(WHOLE), END],
        {"calls": (GOOD,), "has": {"tool_markup_in_content"}},
    ),
    # Usage, model
    "usage beside the end": (
        [{**END, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}],
        {"tokens_in": 1, "tokens_out": 2},
    ),
    "usage of groq": (
        [{**END, "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}}],
        {"tokens_in": 1, "tokens_out": 2},
    ),
    "usage in the choice": (
        [choice(delta={}, finish_reason="stop", usage={"prompt_tokens": 1, "completion_tokens": 2})],
        {"tokens_in": 1, "tokens_out": 2},
    ),
    "usage that is no number": (
        [{**END, "usage": {"prompt_tokens": True, "completion_tokens": "7"}}],
        {"tokens_in": None, "tokens_out": None, "has": {"usage_missing"}},
    ),
    "usage beyond reason": ([{**END, "usage": {"completion_tokens": 1 << 60}}], {"tokens_out": None}),
    "usage that grows": (
        [{**delta(content="a"), "usage": {"completion_tokens": 1}}, {**STOP, "usage": {"completion_tokens": 5}}],
        {"tokens_out": 5},
    ),
    "the served model": (
        [{"model": "", **delta()}, {"model": "m-2", **delta()}, {"model": "m-3", **STOP}],
        {"served_model": "m-2"},
    ),
    "an endless model name": ([{"model": "m" * 5000, **STOP}], {"served_model": "m" * 200}),
}


@pytest.mark.parametrize("name", CASES)
def test_facts(name: str) -> None:
    chunks, expected = CASES[name]
    reading = read(*chunks)
    wanted = dict(expected)
    assert wanted.pop("has", set()) <= reading.quirks
    assert not wanted.pop("hasn't", set()) & reading.quirks
    if wanted.pop("error", False):
        assert reading.error is not None
        assert reading.error.kind == wanted.pop("kind", reading.error.kind)
    elif "error" in expected:
        assert reading.error is None
    assert {key: getattr(reading, key) for key in wanted} == wanted


def test_the_order_in_which_things_come_decides_between_error_and_end() -> None:
    boom = {"error": {"message": "boom"}}
    assert read(call(WHOLE), boom, END).announced is None
    assert read(call(WHOLE), END, boom).error is None


def test_usage_is_missed_only_where_it_was_asked_for() -> None:
    assert "usage_missing" in read(call(WHOLE), END).quirks
    assert "usage_missing" not in read(call(WHOLE), END, ask=replace(ASK, include_usage=False)).quirks


def test_without_declared_tools_text_is_never_a_leak() -> None:
    asked = replace(ASK, tools=(), choice=Choice.NONE)
    assert read(delta(content=f"<tool_call>{NAME}\n"), STOP, ask=asked).leak is None


def test_a_name_may_grow_into_another_declared_one() -> None:
    longer = replace(TOOL, name=f"{NAME}_again")
    reading = read(
        call(part("", index=0, id="c1", name=NAME)),
        call(part(OK, index=0, name="_again")),
        END,
        ask=replace(ASK, tools=(TOOL, longer)),
    )
    assert reading.calls == (GOOD,)
    assert "name_fragmented" in reading.quirks


# --- what is sent -------------------------------------------------------------------------------------------


def asked(route: Route = ROUTE, exchanges: tuple[Any, ...] = ()) -> Ask:
    ask = NativeTools().next_ask(route, "bcdfgh", exchanges)
    assert ask is not None
    return ask


def body(route: Route = ROUTE, ask: Ask | None = None) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(CHAT.encode(route, ask or asked(route)).body)
    return decoded


def test_the_request() -> None:
    sent = body()
    assert set(sent) == {"model", "messages", "stream", "max_tokens", "stream_options", "tools", "tool_choice"}
    assert (sent["model"], sent["stream"], sent["max_tokens"]) == ("m", True, 1024)
    assert sent["stream_options"] == {"include_usage": True}
    (message,) = sent["messages"]
    assert message["role"] == "user"
    assert isinstance(message["content"], str)
    assert "bcdfgh" in message["content"]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": NAME}}
    (tool,) = sent["tools"]
    assert set(tool) == {"type", "function"}
    assert set(tool["function"]) == {"name", "description", "parameters"}  # no `strict`
    assert re.fullmatch(r"[a-z_]{25,64}", tool["function"]["name"])
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {"value": {"type": "string"}},
        "required": ["value"],
    }


def test_the_request_under_auto_and_without_tools() -> None:
    assert body(ask=replace(ASK, choice=Choice.AUTO))["tool_choice"] == "auto"
    control = body(ask=replace(ASK, tools=(), choice=Choice.NONE, parallel=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & control.keys()


@pytest.mark.parametrize(
    ("configured", "sent"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"parallel_tool_calls": True}, {"parallel_tool_calls": True}),
        ({"token_cap": TokenCap(value=2048)}, {"max_tokens": 2048}),
        ({"token_cap": TokenCap("max_completion_tokens", 4096)}, {"max_completion_tokens": 4096, "max_tokens": None}),
        ({"include_usage": False}, {"stream_options": None}),
        ({"body": {"seed": 7}}, {"seed": 7}),
        ({"body": {"stream_options": {"x": 1}}}, {"stream_options": {"include_usage": True, "x": 1}}),
        ({"body": {"provider": {"order": ["a"]}}}, {"provider": {"order": ["a"]}}),
        ({"body": {"max_tokens": 50}}, {"max_tokens": 50}),
        ({"body": {"stream_options": None}}, {"stream_options": None}),
        ({"body": {"user": "é\u2028"}}, {"user": "é\u2028"}),
    ],
)
def test_what_is_configured_is_sent(configured: dict[str, Any], sent: dict[str, Any]) -> None:
    made = body(replace(ROUTE, **configured))
    assert {key: made.get(key) for key in sent} == sent


def test_a_routes_own_body_isnt_changed_by_a_request() -> None:
    own = {"stream_options": {"x": 1}, "tools": []}
    route = replace(ROUTE, body=own)
    body(route)
    assert own == {"stream_options": {"x": 1}, "tools": []}
    assert body(route)["tools"] == []


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h", "https://h/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "https://h/v1/chat/completions"),
        (
            "https://h/openai/deployments/d?api-version=2024-10-21",
            "https://h/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        ("https://h/v1/chat/completions?api-version=1&x=%20", "https://h/v1/chat/completions?api-version=1&x=%20"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat/completions"),
        ("https://h/v1#part", "https://h/v1/chat/completions"),
    ],
)
def test_the_url(base: str, url: str) -> None:
    assert CHAT.encode(replace(ROUTE, base_url=base), ASK).url == url


def test_headers() -> None:
    wire = CHAT.encode(replace(ROUTE, headers={"X-Title": "probe", "Accept": "*/*"}), ASK)
    assert wire.headers == {
        "content-type": "application/json",
        "accept": "*/*",
        "cache-control": "no-cache",
        "x-title": "probe",
    }


KEY = "sk-test-Zq8Tr4vB1xN7m"


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        (None, {"authorization": f"Bearer {KEY}"}),
        (Auth.BEARER, {"authorization": f"Bearer {KEY}"}),
        (Auth.API_KEY, {"api-key": KEY}),
        (Auth.X_API_KEY, {"x-api-key": KEY}),
        (Auth.NONE, {}),
    ],
)
def test_the_credential_stands_where_the_route_wants_it(auth: Auth | None, headers: dict[str, str]) -> None:
    route = replace(ROUTE, auth=auth)
    assert CHAT.authorize(route, Credentials(key=Secret(KEY))) == headers
    assert CHAT.authorize(route, Credentials()) == {}


def test_no_credential_is_in_a_request_before_it_is_authorized() -> None:
    """Nor can one get there: an encoder isn't given any."""
    wire = CHAT.encode(replace(ROUTE, deadline=timedelta(seconds=1)), ASK)
    assert not {"authorization", "api-key", "x-api-key"} & wire.headers.keys()
    assert KEY not in wire.url + wire.body.decode() + str(wire.headers)


@pytest.mark.parametrize(
    ("value", "completion"),
    [
        ({"choices": []}, True),
        ({"data": {"choices": []}}, True),
        ({"data": []}, False),
        ({"message": "x"}, False),
        ([{"choices": []}], False),
        ("choices", False),
        (None, False),
    ],
)
def test_completions(value: Any, completion: bool) -> None:
    assert CHAT.is_completion(value) is completion
