"""The dialect `gemini`: its requests beside those of Google's own client, and every fact of its streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import types

from service.answer import Answer
from service.contracts.base import served_model_differs
from service.contracts.native_tools import TOOL
from service.demo.provider import Provider
from service.demo.scenario import Scenario
from service.dialects import DIALECTS
from service.dialects.gemini import Gemini
from service.model import (
    Ask,
    Auth,
    Call,
    Choice,
    Credentials,
    End,
    Exchange,
    Message,
    Outcome,
    Reading,
    Refused,
    Route,
    Secret,
    Status,
    TokenCap,
)
from service.seen import Seen, reason_of, see
from service.sse import Event
from tests.peer import load_corpus, playing

DIALECT = Gemini()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "AIza-not-a-real-key-0123456789"
NAME = TOOL.name


def route(**fields: Any) -> Route:
    given: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1beta", "model": "gemini-x", "dialect": "gemini"}
    return Route(id="r", name="r", provider="p", **{**given, **fields})


def ask(choice: Choice = Choice.FORCED, **fields: Any) -> Ask:
    tools = () if choice is Choice.NONE else (TOOL,)
    return Ask(rung=str(choice), messages=(Message("user", "Call it."),), tools=tools, choice=choice, **fields)


def body_of(asked: Ask, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(DIALECT.encode(route(**fields), asked).body)
    return made


# --- chunks ---


def chunk(*parts: dict[str, Any], finish: str | None = None, **rest: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **rest}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"text": words, **fields}


def call(args: Any = {"value": "ok"}, name: str | None = NAME, **fields: Any) -> dict[str, Any]:  # noqa: B006
    made = {"name": name, "args": args, **fields}
    return {"functionCall": {key: value for key, value in made.items() if value is not None}}


def read(*chunks: Any, asked: Ask | None = None, cap: int = 1024) -> Reading:
    """The facts of a stream; a chunk that is a text is sent as it stands."""
    asked = asked or ask()
    reader = DIALECT.reader(route(token_cap=TokenCap(value=cap)), asked, {}, NOW)
    for one in chunks:
        if isinstance(one, Event):
            reader.read(one)
        else:
            reader.read(Event(one if isinstance(one, str) else json.dumps(one)))
    return reader.result()


def answer(body: bytes, end: End = End.COMPLETE) -> Exchange:
    one = Answer(DIALECT, route(), ask(), 200, {}, NOW)
    one.feed(body)
    return one.finish(end, headers_s=0.1, first_event_s=0.1 if one.events else None)


STOP = chunk(text(""), finish="STOP")
WHOLE = (Call(),)


# --- requests ---


@pytest.mark.parametrize(
    ("base", "model", "url"),
    [
        ("http://h/v1beta", "gemini-x", "http://h/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("http://h/v1beta/", "gemini-x", "http://h/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("http://h/v1beta", "models/gemini-x", "http://h/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("http://h/v1beta/models", "models/m", "http://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("http://h/v1beta/models", "m", "http://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("http://h/v1beta", "tunedModels/t", "http://h/v1beta/tunedModels/t:streamGenerateContent?alt=sse"),
        ("http://h/v1beta", "vendor/m", "http://h/v1beta/models/vendor/m:streamGenerateContent?alt=sse"),
        (
            "http://h/v1/projects/p/locations/l",
            "publishers/google/models/m",
            "http://h/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent?alt=sse",
        ),
        (
            "http://h/v1",
            "projects/p/locations/l/endpoints/7",
            "http://h/v1/projects/p/locations/l/endpoints/7:streamGenerateContent?alt=sse",
        ),
        (
            "http://h/v1beta/models/m:streamGenerateContent",
            "m",
            "http://h/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        ("http://h/v1?tenant=a%2Fb", "m", "http://h/v1/models/m:streamGenerateContent?tenant=a%2Fb&alt=sse"),
        ("http://h/v1?alt=json&x=1", "m", "http://h/v1/models/m:streamGenerateContent?x=1&alt=sse"),
        ("http://h/v1", "m?key=1#f", "http://h/v1/models/m%3Fkey%3D1%23f:streamGenerateContent?alt=sse"),
        ("http://h/v1", "m@001", "http://h/v1/models/m@001:streamGenerateContent?alt=sse"),
    ],
)
def test_the_url(base: str, model: str, url: str) -> None:
    assert DIALECT.encode(route(base_url=base, model=model), ask()).url == url


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        (None, {"x-goog-api-key": KEY}),
        (Auth.X_GOOG_API_KEY, {"x-goog-api-key": KEY}),
        (Auth.BEARER, {"authorization": f"Bearer {KEY}"}),
        (Auth.API_KEY, {"api-key": KEY}),
        (Auth.NONE, {}),
    ],
)
def test_the_key_travels_in_a_header_alone(auth: Auth | None, headers: Mapping[str, str]) -> None:
    made = route(auth=auth)
    assert DIALECT.authorize(made, Credentials(key=Secret(KEY))) == headers
    sent = DIALECT.encode(made, ask())
    assert KEY not in sent.url + str(sent.headers) + sent.body.decode()


def test_without_a_key_no_header() -> None:
    assert DIALECT.authorize(route(), Credentials()) == {}


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (Choice.FORCED, {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [NAME]}}),
        (Choice.AUTO, {"functionCallingConfig": {"mode": "AUTO"}}),
        (Choice.NONE, None),
    ],
)
def test_tools_and_choice(choice: Choice, config: dict[str, Any] | None) -> None:
    body = body_of(ask(choice, parallel=True))
    assert body.get("toolConfig") == config
    assert ("tools" in body) is (config is not None)
    assert set(body) <= {"contents", "generationConfig", "tools", "toolConfig"}


@pytest.mark.parametrize(
    ("fields", "tokens_field", "generation"),
    [
        ({}, None, {"maxOutputTokens": 1024}),
        ({"token_cap": TokenCap(value=2048)}, None, {"maxOutputTokens": 2048}),
        ({}, "max_output_tokens", {"max_output_tokens": 1024}),
        ({"temperature": 0.0}, None, {"maxOutputTokens": 1024, "temperature": 0.0}),
        (
            {"body": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}},
            None,
            {"maxOutputTokens": 1024, "thinkingConfig": {"thinkingBudget": 0}},
        ),
    ],
)
def test_generation_config(fields: dict[str, Any], tokens_field: str | None, generation: dict[str, Any]) -> None:
    assert body_of(ask(tokens_field=tokens_field), **fields)["generationConfig"] == generation


def test_a_routes_own_body_reaches_into_the_choice() -> None:
    body = body_of(ask(), body={"toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}}})
    config = body["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "ANY", "allowedFunctionNames": [NAME], "streamFunctionCallArguments": True}


def test_an_assistants_message_is_the_models() -> None:
    asked = Ask(rung="x", messages=(Message("user", "a"), Message("assistant", "b")))
    assert [content["role"] for content in body_of(asked)["contents"]] == ["user", "model"]


def test_own_headers_are_sent() -> None:
    sent = DIALECT.encode(route(headers={"X-Team": "a"}), ask()).headers
    assert sent["x-team"] == "a"
    assert sent["accept"] == "text/event-stream"


# --- streams ---


@pytest.mark.parametrize(
    ("chunks", "facts"),
    [
        pytest.param([chunk(call()), STOP], {"calls": WHOLE, "announced": "STOP"}, id="whole call"),
        pytest.param([chunk(call(), finish="STOP")], {"calls": WHOLE, "announced": "STOP"}, id="call and end together"),
        pytest.param([chunk(call())], {"calls": WHOLE, "announced": None}, id="no announced end"),
        pytest.param([chunk(call(id="fc-1")), STOP], {"calls": WHOLE}, id="an id is optional"),
        pytest.param([chunk(call(id="")), STOP], {"calls": WHOLE}, id="an empty id is none"),
        pytest.param([chunk(call(id="a"), call(id="a")), STOP], {"calls": (Call(), Call("call_id_duplicated"))}, id="an id twice"),
        pytest.param([chunk(call(), call()), STOP], {"calls": (Call(), Call()), "quirks": {"unrequested_parallel_calls", "usage_missing"}}, id="two parts, two calls"),
        pytest.param([chunk(call()), chunk(call()), STOP], {"calls": (Call(), Call())}, id="two chunks, two calls"),
        pytest.param([chunk({**call(), "thoughtSignature": "c2ln"}), STOP], {"calls": WHOLE, "has_text": False}, id="a signature is no text"),
        pytest.param([chunk(text("Let me", thought=True), call()), STOP], {"calls": WHOLE, "has_text": False, "deltas": 2}, id="thought, then call"),
        pytest.param([chunk(text("Well. "), call()), STOP], {"calls": WHOLE, "has_text": True}, id="text, then call"),
        pytest.param([chunk(call(None)), STOP], {"calls": (Call("arguments_missing_required", cut=True),)}, id="no args"),
        pytest.param([chunk(call({})), STOP], {"calls": (Call("arguments_missing_required"),)}, id="empty args"),
        pytest.param([chunk(call({"value": 1})), STOP], {"calls": (Call("arguments_schema_violation"),)}, id="args of another type"),
        pytest.param([chunk(call({"value": "</tool_call>"})), STOP], {"calls": (Call("arguments_polluted"),)}, id="markup in a value"),
        pytest.param([chunk(call({"value": "ok", "more": [1]})), STOP], {"calls": WHOLE}, id="an undeclared property"),
        pytest.param([chunk(call({"value": "yes"})), STOP], {"calls": WHOLE, "quirks": {"value_differs", "usage_missing"}}, id="another value"),
        pytest.param([chunk(call('{"value":"ok"}')), STOP], {"calls": (Call("arguments_double_encoded"),)}, id="args as JSON in a string"),
        pytest.param([chunk(call("ok")), STOP], {"calls": (Call("arguments_not_object"),)}, id="args as a string"),
        pytest.param([chunk(call(["ok"])), STOP], {"calls": (Call("arguments_not_object"),)}, id="args as an array"),
        pytest.param([chunk(call(name=None)), STOP], {"calls": (Call("name_missing", cut=True),)}, id="no name"),
        pytest.param([chunk(call(name="")), STOP], {"calls": (Call("name_missing", cut=True),)}, id="empty name"),
        pytest.param([chunk(call(name="default_api:" + NAME)), STOP], {"calls": (Call("name_not_declared"),)}, id="another name"),
        pytest.param([chunk({"functionCall": {}}), STOP], {"calls": (Call("name_missing", cut=True),)}, id="an empty call"),
        pytest.param([chunk({"functionCall": None}), STOP], {"calls": (), "deltas": 0}, id="null is no call"),
        pytest.param([chunk({"executableCode": {"language": "PYTHON", "code": f"{NAME}(value='ok')"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "ok"}}), STOP], {"calls": (), "leak": None, "has_text": False}, id="code that the server runs is no call"),
        pytest.param([chunk(text("```tool_co")), chunk(text(f'de\nprint(default_api.{NAME}(value="ok"))\n```')), STOP], {"calls": (), "leak": "fenced"}, id="tool_code in text"),
        pytest.param([chunk(text(f'print(default_api.{NAME}(value="ok"))', thought=True)), STOP], {"leak": "pythonic", "has_text": False}, id="a leak in a thought"),
        pytest.param([chunk(text("ok")), STOP], {"calls": (), "has_text": True, "announced": "STOP"}, id="text"),
        pytest.param([chunk(text("  \n")), STOP], {"has_text": False}, id="blank text"),
        pytest.param([{"candidates": [{"finishReason": "STOP"}]}], {"announced": "STOP", "deltas": 0}, id="an end without content"),
        pytest.param([{"candidates": [{"content": {}, "finishReason": "STOP"}]}], {"announced": "STOP"}, id="an end with empty content"),
        pytest.param([{"candidates": [{"content": {"parts": None}, "finishReason": "STOP"}]}], {"announced": "STOP"}, id="null parts"),
        pytest.param([{"candidates": []}, {"candidates": None}, {"usageMetadata": {}}, {}], {"announced": None, "broken": None, "events": 4}, id="chunks without a candidate"),
        pytest.param([chunk(call(), finish="FINISH_REASON_UNSPECIFIED")], {"announced": None, "calls": WHOLE}, id="the unspecified reason is none"),
        pytest.param([chunk(call(), finish="")], {"announced": None}, id="the empty reason is none"),
        pytest.param([{"candidates": [{"finishReason": None}]}, {"candidates": [{"finishReason": 1}]}], {"announced": None}, id="a reason that is no word is none"),
        pytest.param([chunk(text("x"), finish="stop")], {"announced": "STOP"}, id="a reason in lower case"),
        pytest.param([chunk(text("x"), finish="SOMETHING_NEW")], {"announced": "SOMETHING_NEW", "capped": False, "filtered": False, "declared_malformed": False}, id="an unknown reason ends"),
        pytest.param([chunk(call(), finish="OTHER")], {"announced": "OTHER", "calls": WHOLE, "error": None}, id="OTHER behind a whole call"),
    ],
)  # fmt: skip
def test_the_facts_of_a_stream(chunks: list[Any], facts: dict[str, Any]) -> None:
    reading = read(*chunks)
    assert {name: getattr(reading, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("reasons", "flag"),
    [
        (("MAX_TOKENS", "CONTINUATION"), "capped"),
        (
            (
                "SAFETY",
                "RECITATION",
                "LANGUAGE",
                "BLOCKLIST",
                "PROHIBITED_CONTENT",
                "SPII",
                "MODEL_ARMOR",
                "ESCALATION",
                "IMAGE_SAFETY",
                "IMAGE_PROHIBITED_CONTENT",
                "IMAGE_RECITATION",
            ),
            "filtered",
        ),
        (
            ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"),
            "declared_malformed",
        ),
        (("STOP", "OTHER", "IMAGE_OTHER", "NO_IMAGE"), None),
    ],
)
def test_what_a_finish_reason_says(reasons: tuple[str, ...], flag: str | None) -> None:
    for reason in reasons:
        reading = read(chunk(call(), finish=reason))
        assert reading.announced == reason
        assert {name for name in ("capped", "filtered", "declared_malformed") if getattr(reading, name)} == {flag} - {
            None
        }


def test_every_finish_reason_of_googles_client_is_placed() -> None:
    for reason in types.FinishReason:
        reading = read(chunk(finish=reason.value))
        placed = reading.announced == reason.value or reading.error is not None
        assert placed is not reason.value.endswith("_UNSPECIFIED")


@pytest.mark.parametrize("reason", ["MISSING_THOUGHT_SIGNATURE", "PUP_LIMITED_DISABLED"])
def test_reasons_that_speak_of_the_request_are_errors(reason: str) -> None:
    reading = read(chunk(call(), finish=reason))
    assert reading.error is not None
    assert reading.announced is None
    assert reason in reading.error.text


@pytest.mark.parametrize(
    ("feedback", "announced", "filtered"),
    [
        ({"blockReason": "SAFETY"}, "SAFETY", True),
        ({"blockReason": "OTHER"}, "OTHER", True),
        ({"blockReason": "BLOCK_REASON_UNSPECIFIED"}, None, False),
        ({"safetyRatings": []}, None, False),
        (None, None, False),
    ],
)
def test_a_blocked_prompt_announces_the_end(feedback: Any, announced: str | None, filtered: bool) -> None:
    reading = read({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 4}})
    assert (reading.announced, reading.filtered) == (announced, filtered)


@pytest.mark.parametrize(
    ("chunks", "announced", "calls", "quirk"),
    [
        pytest.param([chunk(finish="STOP"), chunk(finish="STOP"), chunk(call()), STOP], "STOP", 1, True, id="empty ends ahead of the answer"),
        pytest.param([chunk(text("We"), finish="STOP"), chunk(call(), finish="STOP")], "STOP", 1, True, id="an end on every chunk"),
        pytest.param([chunk(call(), finish="STOP"), chunk(text("ok"), finish="STOP")], "STOP", 1, False, id="text behind a call's end"),
        pytest.param([chunk(call(), finish="STOP"), chunk(call(None), finish="STOP")], "STOP", 1, False, id="a bad call behind a call's end"),
        pytest.param([chunk(call()), STOP, STOP], "STOP", 1, False, id="the end twice"),
        pytest.param([chunk(text("x")), STOP, STOP], "STOP", 0, False, id="the end twice, without a call"),
    ],
)  # fmt: skip
def test_several_ends(chunks: list[Any], announced: str, calls: int, quirk: bool) -> None:
    reading = read(*chunks)
    assert (reading.announced, len(reading.calls)) == (announced, calls)
    assert not any(one.problem for one in reading.calls)
    assert ("content_after_end" in reading.quirks) is quirk


def test_the_end_of_a_call_isnt_taken_back() -> None:
    reading = read(chunk(call(), finish="STOP"), chunk(finish="MALFORMED_FUNCTION_CALL"), {"error": {"code": 503}})
    assert reading.calls == WHOLE
    assert not reading.declared_malformed
    assert reading.error is None


def test_a_later_end_without_a_call_doesnt_hide_what_the_first_one_said() -> None:
    assert read(chunk(text("x"), finish="MAX_TOKENS"), STOP).capped
    assert read(chunk(finish="STOP"), chunk(finish="SAFETY")).filtered


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        pytest.param(["{nonsense}"], "data_not_json", id="no JSON"),
        pytest.param(["[1]"], "event_not_object", id="an array"),
        pytest.param([[chunk(call(), finish="STOP")]], "event_not_object", id="an array of chunks in an event"),
        pytest.param([{"candidates": ["x"]}], "candidate_not_object", id="a candidate that is a text"),
        pytest.param([{"choices": [{"delta": {"content": "x"}}]}], "foreign_dialect", id="Chat Completions"),
        pytest.param([{"type": "response.created", "response": {"id": "x"}}], "foreign_dialect", id="Responses"),
        pytest.param([{"type": "message_start", "message": {}}], "foreign_dialect", id="Messages"),
        pytest.param([{"type": "content_block_start", "index": 0}], "foreign_dialect", id="Messages, later"),
        pytest.param([{"response": chunk(call(), finish="STOP")}], "foreign_dialect", id="an envelope"),
        pytest.param([chunk(*[call()] * 257)], "too_many_calls", id="calls without end"),
        pytest.param([{"type": "ping"}, {"object": "x"}], None, id="unknown events"),
        pytest.param([STOP, "{nonsense}"], None, id="behind the end"),
        pytest.param([": ping", ""], None, id="comments and nothing"),
        pytest.param([Event('{"candidates":[{"con', unterminated=True)], None, id="cut off by the body's end"),
    ],
)  # fmt: skip
def test_what_breaks_a_stream(chunks: list[Any], reason: str | None) -> None:
    assert read(*chunks).broken == reason


def test_args_nested_as_deep_as_can_be_read_are_judged_or_refused() -> None:
    for depth in (200, *range(700, 1000), 100_000):
        deep = '{"a":' * depth + "1" + "}" * depth
        reading = read(json.dumps(chunk(call("DEEP"))).replace('"DEEP"', deep))
        assert reading.broken == "data_not_json" or reading.calls == (Call("arguments_missing_required"),)


def test_the_done_of_another_api_announces_nothing() -> None:
    assert read(chunk(call()), "[DONE]").announced is None
    reading = read(chunk(call()), STOP, "[DONE]")
    assert (reading.announced, reading.broken) == ("STOP", None)
    assert "done_unexpected" in reading.quirks
    assert read(chunk(call()), "[DONE]", STOP).announced == "STOP"
    assert read(chunk(text("x")), STOP, "[DONE]", chunk(call())).calls == ()


@pytest.mark.parametrize(
    ("chunks", "kind", "after"),
    [
        pytest.param([{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}], None, False, id="before anything"),
        pytest.param([chunk(text("Well")), {"error": {"code": 503, "message": "busy"}}], None, True, id="behind text"),
        pytest.param([chunk(text("Hm", thought=True)), {"error": {"code": 503, "message": "busy"}}], None, True, id="behind a thought"),
        pytest.param([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota"}}], Refused.RATE, False, id="a rate"),
        pytest.param([[{"error": {"code": 400, "message": "x", "details": [{"reason": "API_KEY_INVALID"}]}}]], Refused.CREDENTIAL, False, id="in an array"),
        pytest.param([Event('{"say":"boom"}', name="error")], None, False, id="an error event"),
        pytest.param([Event("boom", name="error")], None, False, id="an error event of words"),
        pytest.param([Event("", name="error")], None, False, id="an error event of nothing"),
    ],
)  # fmt: skip
def test_errors_in_a_stream(chunks: list[Any], kind: Refused | None, after: bool) -> None:
    reading = read(*chunks, chunk(call()), STOP)
    assert reading.error is not None
    assert (reading.error.kind, reading.error_after_delta) == (kind, after)
    assert reading.announced is None


@pytest.mark.parametrize(
    ("usages", "tokens"),
    [
        ([{"promptTokenCount": 62, "candidatesTokenCount": 18, "totalTokenCount": 80}], (62, 18)),
        ([{"promptTokenCount": 62, "candidatesTokenCount": 18, "thoughtsTokenCount": 100}], (62, 118)),
        ([{"promptTokenCount": 62, "thoughtsTokenCount": 100}], (62, 100)),
        ([{"promptTokenCount": 62}], (62, None)),
        ([{"promptTokenCount": 62, "candidatesTokenCount": 1}, {"promptTokenCount": 62, "candidatesTokenCount": 9}], (62, 9)),
        ([{"promptTokenCount": 62, "candidatesTokenCount": 9}, {"trafficType": "ON_DEMAND"}], (62, 9)),
        ([{"promptTokenCount": "62", "candidatesTokenCount": -1}], (None, None)),
        ([None], (None, None)),
    ],
)  # fmt: skip
def test_usage(usages: list[Any], tokens: tuple[int | None, int | None]) -> None:
    reading = read(chunk(call(), finish="STOP"), *[{"usageMetadata": usage} for usage in usages])
    assert (reading.tokens_in, reading.tokens_out) == tokens
    assert ("usage_missing" in reading.quirks) is (tokens[1] is None)


def test_thoughts_that_reach_our_cap_are_our_caps_doing() -> None:
    assert read(chunk(finish="STOP", usageMetadata={"thoughtsTokenCount": 16}), cap=16).capped
    assert not read(chunk(finish="STOP", usageMetadata={"thoughtsTokenCount": 15}), cap=16).capped


@pytest.mark.parametrize(
    ("version", "served", "differs"),
    [
        ("gemini-x", "gemini-x", False),
        ("models/gemini-x", "gemini-x", False),
        ("gemini-x-001", "gemini-x-001", False),
        ("gemini-y", "gemini-y", True),
        ("", None, False),
        (7, None, False),
    ],
)
@pytest.mark.parametrize("asked", ["gemini-x", "models/gemini-x", "publishers/google/models/gemini-x"])
def test_the_served_model(asked: str, version: Any, served: str | None, differs: bool) -> None:
    reading = read(chunk(call(), finish="STOP", modelVersion=version))
    assert reading.served_model == served
    assert served_model_differs(route(model=asked), reading.served_model) is differs


def test_the_first_model_version_is_kept() -> None:
    assert read(chunk(text("x"), modelVersion="a"), chunk(modelVersion="b")).served_model == "a"


# --- arguments that are streamed value by value ---


def growing(*pieces: dict[str, Any], goes_on: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = {"willContinue": True} if goes_on else {}
    return {"functionCall": {**made, **({"partialArgs": list(pieces)} if pieces else {})}}


def piece(words: str, path: str = "$.value", **fields: Any) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": words, **fields}


BEGIN = {"functionCall": {"name": NAME, "willContinue": True}}
CLOSE: dict[str, Any] = {"functionCall": {}}


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        pytest.param([BEGIN, growing(piece("o", willContinue=True)), growing(piece("k")), CLOSE], WHOLE, id="a value in two pieces"),
        pytest.param([BEGIN, growing(piece("ok"), goes_on=False)], WHOLE, id="closed by its last piece"),
        pytest.param([BEGIN, growing(piece("ok", "$['value']")), CLOSE], WHOLE, id="a path in brackets"),
        pytest.param([{"functionCall": {"name": NAME, "partialArgs": [piece("ok")], "willContinue": True}}, CLOSE], WHOLE, id="a value with the name"),
        pytest.param([{"functionCall": {"name": NAME, "partialArgs": [piece("ok")]}}], WHOLE, id="all in one"),
        pytest.param([BEGIN, {"functionCall": {"args": {"value": "ok"}}}], WHOLE, id="args behind the name"),
        pytest.param([BEGIN, growing(piece("ok"), piece("x", "$.more.deep[0]")), CLOSE], WHOLE, id="an undeclared nested value"),
        pytest.param([BEGIN, growing(piece("ok"))], (Call("arguments_truncated", cut=True),), id="never closed"),
        pytest.param([BEGIN], (Call("arguments_truncated", cut=True),), id="begun and never closed"),
        pytest.param([BEGIN, CLOSE], (Call("arguments_missing_required"),), id="closed without a value"),
        pytest.param([BEGIN, growing({"jsonPath": "$.value", "numberValue": 5}), CLOSE], (Call("arguments_schema_violation"),), id="a number"),
        pytest.param([BEGIN, growing({"jsonPath": "$.value", "nullValue": "NULL_VALUE"}), CLOSE], (Call("arguments_schema_violation"),), id="null"),
        pytest.param([BEGIN, growing(piece("ok", "$.value.deep")), CLOSE], (Call("arguments_schema_violation"),), id="an object in its place"),
        pytest.param([BEGIN, growing(piece("ok", "value")), CLOSE], (Call("arguments_missing_required"),), id="no path"),
        pytest.param([BEGIN, growing("ok"), CLOSE], (Call("arguments_missing_required"),), id="no object"),  # type: ignore[arg-type]
        pytest.param([BEGIN, growing(piece("ok")), CLOSE, BEGIN, growing(piece("ok")), CLOSE], (Call(), Call()), id="two calls"),
        pytest.param([BEGIN, growing(piece("ok")), call()], (Call("arguments_truncated", cut=True), Call()), id="another call in between"),
        pytest.param([growing(piece("ok"), goes_on=False)], (Call("name_missing", cut=True),), id="no name"),
        pytest.param([{"functionCall": {"id": "a", **BEGIN["functionCall"]}}, {"functionCall": {"id": "a", "name": NAME, "partialArgs": [piece("ok")]}}], WHOLE, id="the name again under one id"),
    ],
)  # fmt: skip
def test_partial_arguments(parts: list[dict[str, Any]], calls: tuple[Call, ...]) -> None:
    assert read(*[chunk(part) for part in parts], STOP).calls == calls


# --- bodies that are no stream ---


@pytest.mark.parametrize(
    ("body", "seen", "reason"),
    [
        (chunk(call(), finish="STOP"), Seen.JSON, "json_completion"),
        ([chunk(call()), STOP], Seen.JSON, "json_completion"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, Seen.JSON, "json_completion"),
        ({"response": chunk(call(), finish="STOP")}, Seen.JSON, "json_completion"),
        ([], Seen.JSON, "json_body"),
        ({"choices": [{"message": {"content": "x"}}]}, Seen.JSON, "json_body"),
        ([{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}], Seen.REFUSED, "http_503"),
        ({"error": {"code": 400, "message": "API key not valid."}}, Seen.REFUSED, "http_400"),
    ],
)
def test_one_json_body(body: Any, seen: Seen, reason: str) -> None:
    exchange = answer(json.dumps(body).encode())
    assert (see(exchange), reason_of(exchange)) == (seen, reason)


@pytest.mark.parametrize(
    ("chunks", "seen"),
    [
        ([chunk(call()), STOP], Seen.CALL),
        ([chunk(call())], Seen.EARLY_END),
        ([chunk(finish="SAFETY")], Seen.FILTERED),
        ([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}], Seen.FILTERED),
        ([chunk(call(), finish="MALFORMED_FUNCTION_CALL")], Seen.DECLARED_MALFORMED),
        ([chunk(text("Hm", thought=True), finish="MAX_TOKENS")], Seen.CUT),
        ([chunk(call(None), finish="MAX_TOKENS")], Seen.CUT),
        ([chunk(call({}), finish="MAX_TOKENS")], Seen.BAD_CALL),
        ([chunk(finish="OTHER")], Seen.SILENT),
        ([{"error": {"code": 500, "message": "x"}}], Seen.REFUSED),
        ([chunk(text("x")), {"error": {"code": 500, "message": "x"}}], Seen.LATE_ERROR),
    ],
)
def test_how_a_stream_reads(chunks: list[Any], seen: Seen) -> None:
    body = b"".join(b"data: %b\r\n\r\n" % json.dumps(one).encode() for one in chunks)
    assert see(answer(body)) is seen


def test_it_is_a_dialect() -> None:
    assert isinstance(DIALECTS["gemini"], Gemini)


# --- beside Google's own client ---


HEALTHY = [
    scenario
    for scenario in load_corpus(dialect="gemini", contract="native_tools")
    if Status(scenario.expect["status"]).outcome is Outcome.PROVEN
]


def declared() -> types.Tool:
    parameters = types.Schema(
        type=types.Type.OBJECT,
        properties={name: types.Schema(type=types.Type(kind)) for name, kind in TOOL.properties.items()},
        required=list(TOOL.properties),
    )
    function = types.FunctionDeclaration(name=TOOL.name, description=TOOL.description, parameters=parameters)
    return types.Tool(function_declarations=[function])


def config(choice: Choice) -> types.GenerateContentConfig:
    calling = (
        types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=[TOOL.name])
        if choice is Choice.FORCED
        else types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.AUTO)
    )
    return types.GenerateContentConfig(
        max_output_tokens=1024,
        temperature=0.5,
        tools=[declared()],
        tool_config=types.ToolConfig(function_calling_config=calling),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )


def official(peer: Provider, scenario: Scenario, **fields: Any) -> genai.Client:
    options = types.HttpOptions(base_url=peer.url(scenario.id).removesuffix("/v1beta"), api_version="v1beta")
    return genai.Client(api_key=KEY, http_options=options, **fields)


async def their_calls(client: genai.Client, model: str, choice: Choice) -> list[tuple[Any, ...]]:
    stream = await client.aio.models.generate_content_stream(model=model, contents="Call it.", config=config(choice))
    calls = [one for answered in [part async for part in stream] for one in answered.function_calls or []]
    await client.aio.aclose()
    client.close()
    return [(one.id or "", one.name, one.args) for one in calls]


async def our_calls(peer: Provider, scenario: Scenario, choice: Choice) -> list[tuple[Any, ...]] | None:
    made = route(base_url=peer.url(scenario.id), temperature=0.5)
    sent = DIALECT.encode(made, ask(choice))
    headers = {**sent.headers, **DIALECT.authorize(made, Credentials(key=Secret(KEY)))}
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(sent.url, headers=headers, content=sent.body)
    if response.status_code != 200:
        return None
    reader = DIALECT.reader(made, ask(choice), {}, NOW)
    for event in events(response.text):
        reader.read(event)
    assert not any(one.problem for one in reader.result().calls)
    return [(draft.id, draft.name, json.loads(draft.arguments)) for draft in reader.drafts]


def events(body: str) -> Iterator[Event]:
    return (Event(block.removeprefix("data: ")) for block in body.split("\n\n") if block)


@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda scenario: scenario.id)
async def test_requests_and_calls_are_those_of_googles_client(scenario: Scenario) -> None:
    compared = 0
    async with playing([scenario]) as peer:
        for choice in (Choice.FORCED, Choice.AUTO):
            ours = await our_calls(peer, scenario, choice)
            if ours is None:  # refused, as the scenario has it
                continue
            theirs = await their_calls(official(peer, scenario), "gemini-x", choice)
            assert ours == theirs
            assert ours
            mine, other = peer.requests[-2:]
            assert (mine.path, mine.query, mine.body) == (other.path, other.query, other.body)
            assert mine.headers["x-goog-api-key"] == other.headers["x-goog-api-key"] == "***"
            compared += 1
    assert compared


async def test_vertex_resources_are_where_googles_client_has_them() -> None:
    scenario = HEALTHY[0]
    async with playing([scenario]) as peer:
        await their_calls(official(peer, scenario, vertexai=True), "gemini-x", Choice.AUTO)
        url = DIALECT.encode(
            route(base_url=peer.url(scenario.id), model="publishers/google/models/gemini-x"), ask()
        ).url
        assert url == f"{peer.origin}{peer.requests[-1].path}?alt=sse"


def test_the_healthy_scenarios_are_there() -> None:
    assert len(HEALTHY) >= 7
