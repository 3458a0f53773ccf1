"""The dialect `openai-responses`, event by event and field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from service.contracts.ladder import TOOL
from service.dialects import DIALECTS
from service.model import Ask, Auth, Choice, Credentials, Message, Reading, Refused, Role, Route, Secret, Tool
from service.sse import Event

DIALECT = DIALECTS["openai-responses"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUTE = Route(id="r", name="r", provider="p", dialect="openai-responses", base_url="http://127.0.0.1:1/v1", model="m-1")
OTHER = Tool("other_tool", "Another one.", {"value": "string"})
FORCED = Ask(rung="forced", messages=(Message(Role.USER, "Call it."),), tools=(TOOL, OTHER), choice=Choice.FORCED)
AUTO = replace(FORCED, choice=Choice.AUTO)
CONTROL = Ask(rung="control", messages=(Message(Role.USER, "Say it."),))

OK = '{"value":"ok"}'
USAGE = {"input_tokens": 62, "output_tokens": 18, "total_tokens": 80}


def item(arguments: Any = "", /, **fields: Any) -> dict[str, Any]:
    whole = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": TOOL.name, "arguments": arguments}
    return {name: value for name, value in {**whole, **fields}.items() if value is not None}


def second(arguments: Any = "", /, **fields: Any) -> dict[str, Any]:
    return item(arguments, **{"id": "fc_2", "call_id": "call_2", **fields})


def event(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **{name: value for name, value in fields.items() if value is not None}}


def added(one: Any, at: int | None = 0) -> dict[str, Any]:
    return event("output_item.added", output_index=at, item=one)


def delta(piece: Any, at: int | None = 0, of: str | None = "fc_1") -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=at, item_id=of, delta=piece)


def said(arguments: Any, at: int | None = 0, of: str | None = "fc_1", **fields: Any) -> dict[str, Any]:
    return event("function_call_arguments.done", output_index=at, item_id=of, arguments=arguments, **fields)


def finished(one: Any, at: int | None = 0) -> dict[str, Any]:
    return event("output_item.done", output_index=at, item=one)


def completed(*output: Any, **fields: Any) -> dict[str, Any]:
    response = {"object": "response", "status": "completed", "model": "m-1", "output": list(output), "usage": USAGE}
    return event("completed", response={**response, **fields})


def incomplete(reason: str | None) -> dict[str, Any]:
    return event("incomplete", response={"output": [], "incomplete_details": reason and {"reason": reason}})


def failed(error: Any) -> dict[str, Any]:
    return event("failed", response={"status": "failed", "error": error})


def text(piece: str) -> dict[str, Any]:
    return event("output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta=piece)


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": list(parts)}


def read(*events: Any, ask: Ask = FORCED, headers: Mapping[str, str] | None = None) -> Reading:
    reader = DIALECT.reader(ROUTE, ask, headers or {}, NOW)
    for one in events:
        reader.read(one if isinstance(one, Event) else Event(one if isinstance(one, str) else json.dumps(one)))
    return reader.result()


def problems(reading: Reading) -> list[str | None]:
    return [call.problem for call in reading.calls]


DOUBLED, SPACED, WRONG = OK + OK, '{ "value": "ok" }', '{"value":"no"}'
HEAD, TAIL = OK[:5], OK[5:]
IDENTITY, CONTRADICTED = "call_identity_unstable", "arguments_contradicted"


@pytest.mark.parametrize(
    ("what", "events", "expected", "quirks"),
    [
        ("deltas that every whole repeats", [added(item()), delta(HEAD), delta(TAIL), said(OK), finished(item(OK)), completed(item(OK))], [None], []),
        ("deltas alone", [added(item()), delta(HEAD), delta(TAIL), completed()], [None], []),
        ("an item that is done, alone", [finished(item(OK)), completed()], [None], []),
        ("arguments that are done, alone", [added(item()), said(OK), completed()], [None], []),
        ("the final response, alone", [completed(item(OK))], [None], []),
        ("two calls in the final response, alone", [completed(item(OK), second(OK))], [None, None], []),
        ("all of it in the item that is added", [added(item(OK)), completed()], [None], []),
        ("an added item that holds all, then deltas of the same", [added(item(OK)), delta(OK), finished(item(OK)), completed()], [None], []),
        ("deltas before any item, then one that is done", [delta(OK), finished(item(OK)), completed()], [None], []),
        ("deltas before an item that is added late", [delta(HEAD), added(item()), delta(TAIL), completed()], [None], []),
        ("deltas that stop short of the whole", [added(item()), delta(HEAD), finished(item(OK)), completed()], [None], ["deltas_incomplete"]),
        ("deltas that stop short, the rest in the final response", [added(item()), delta(HEAD), completed(item(OK))], [None], ["deltas_incomplete"]),
        ("a whole with other blanks", [added(item()), delta(OK), finished(item(SPACED)), completed()], [None], []),
        ("a name that comes with the item that is done", [added(item(name="")), delta(OK), finished(item(OK)), completed()], [None], []),
        ("a name that comes with the arguments that are done", [delta(OK), said(OK, name=TOOL.name), completed(item(OK, name=None))], [None], []),
        ("a call_id that comes late", [added(item(call_id=None)), delta(OK), finished(item(OK)), completed()], [None], []),
        ("no item ids and no indexes", [added(item(id=None), None), delta(OK, None, None), finished(item(OK, id=None), None), completed()], [None], ["output_index_missing"]),
        ("another item id in every event, and an index", [added(item()), delta(HEAD, of="x"), delta(TAIL, of="y"), finished(item(OK, id="z")), completed(item(OK, id="w"))], [None], []),
        ("deltas that point by call_id", [added(item(), None), added(second(), None), delta(OK, None, "call_1"), delta(OK, None, "call_2"), completed()], [None, None], ["output_index_missing"]),
        ("two calls whose deltas alternate", [added(item()), added(second(), 1), delta(HEAD), delta(HEAD, 1, "fc_2"), delta(TAIL), delta(TAIL, 1, "fc_2"), finished(second(OK), 1), finished(item(OK)), completed(item(OK), second(OK))], [None, None], []),
        ("two calls under one index", [added(item()), delta(OK), finished(item(OK)), added(second()), delta(OK, of="fc_2"), finished(second(OK)), completed()], [None, None], ["index_reused"]),
        ("two calls under one item id", [added(item()), delta(OK), finished(item(OK)), added(item(call_id="call_2"), 1), delta(OK, 1), finished(item(OK, call_id="call_2"), 1), completed()], [None, None], []),
        ("done items without any index or id of their own", [finished(item(OK, id=None), None), finished(second(OK, id=None), None), completed()], [None, None], ["output_index_missing"]),
        ("a final response put together anew, under new ids", [added(item()), delta(OK), finished(item(OK)), completed(item(OK, id="n", call_id="new"))], [None], []),
        ("a call that got its item's id late, then deltas of another", [delta(HEAD, None, None), added(item(), None), delta(TAIL, None), delta(OK, None, "fc_2"), finished(item(OK)), finished(second(OK), 1), completed()], [None, None], ["output_index_missing"]),
        ("a call that got its item's id late and goes on behind another", [delta(HEAD, None, None), added(item(), None), added(second(OK), None), delta(TAIL, None), completed()], [None, None], ["output_index_missing"]),
        ("a call that got its index late, then deltas of another", [delta(HEAD, None, None), added(item(id=None)), delta(TAIL, of=None), delta(OK, 1, None), finished(item(OK, id=None)), finished(second(OK, id=None), 1), completed()], [None, None], ["output_index_missing"]),
        ("deltas of two calls before any item, by id", [delta(HEAD, None), delta(HEAD, None, "fc_2"), delta(TAIL, None), delta(TAIL, None, "fc_2"), finished(item(OK)), finished(second(OK), 1), completed()], [None, None], ["output_index_missing"]),
        ("deltas of two calls before any item, by index", [delta(HEAD, of=None), delta(HEAD, 1, None), delta(TAIL, of=None), delta(TAIL, 1, None), finished(item(OK)), finished(second(OK), 1), completed()], [None, None], []),
        ("two calls by ids alone, alternating", [added(item(), None), added(second(), None), delta(HEAD, None), delta(HEAD, None, "fc_2"), delta(TAIL, None), delta(TAIL, None, "fc_2"), completed()], [None, None], ["output_index_missing"]),
        ("two calls, one after the other, that only call_ids name", [delta(OK, None, None), finished(item(OK, id=None), None), delta(OK, None, None), finished(second(OK, id=None), None), completed()], [None, None], ["output_index_missing"]),
        ("an item that is done without arguments", [added(item()), delta(OK), finished(item(None)), completed()], [None], []),
        ("an item in an event that isn't known", [event("vendor.item", item=item(OK)), completed()], [], []),
        ("items that are none", [added(None), finished("x"), finished(["x"]), completed("x", item(OK))], [None], []),
        ("reasoning and text around the call", [added({"type": "reasoning"}), finished({"type": "reasoning"}), added(item(), 1), delta(OK, 1), finished(item(OK), 1), completed()], [None], []),
        ("another tool's call", [finished(item(OK, name="other_tool")), completed()], [None], []),
        ("deltas that were cut", [added(item()), delta(HEAD), completed()], ["arguments_truncated"], []),
        ("deltas that nothing explains", [delta(OK), completed()], ["name_missing"], []),
        ("no arguments at all", [added(item()), finished(item()), completed()], ["arguments_missing_required"], []),
        ("doubled deltas, though the whole is right", [added(item()), delta(OK), delta(OK), finished(item(OK)), completed()], ["arguments_resent"], []),
        ("a doubled whole, though the deltas are right", [added(item()), delta(OK), finished(item(DOUBLED)), completed()], ["arguments_doubled"], []),
        ("an empty whole behind whole deltas", [added(item()), delta(OK), finished(item("")), completed()], ["arguments_missing_required"], []),
        ("a cut whole behind whole deltas", [added(item()), delta(OK), finished(item(HEAD)), completed()], ["arguments_truncated"], []),
        ("a whole that says something else", [added(item()), delta(OK), finished(item(WRONG)), completed()], [CONTRADICTED], []),
        ("a final response that says something else", [added(item()), delta(OK), finished(item(OK)), completed(item(WRONG))], [CONTRADICTED], []),
        ("two encodings, one upon the other", [finished(item(json.dumps(OK))), completed()], ["arguments_double_encoded"], []),
        ("an object in place of a string", [finished(item({"value": "ok"})), completed()], ["arguments_not_string"], []),
        ("an object in a delta", [added(item()), delta({"value": "ok"}), completed()], ["arguments_not_string"], []),
        ("another call_id when the item is done", [added(item()), delta(OK), finished(item(OK, call_id="call_9")), completed()], [IDENTITY], []),
        ("another name when the item is done", [added(item()), delta(OK), finished(item(OK, name="other_tool")), completed()], [IDENTITY], []),
        ("no call_id anywhere", [added(item(call_id=None)), delta(OK), finished(item(OK, call_id=None)), completed()], ["id_missing"], []),
        ("two calls under one call_id", [added(item()), delta(OK), finished(item(OK)), added(second(call_id="call_1"), 1), delta(OK, 1, "fc_2"), finished(second(OK, call_id="call_1"), 1), completed()], [None, "call_id_duplicated"], []),
        ("two done items under one call_id", [finished(item(OK)), finished(second(OK, call_id="call_1"), 1), completed()], [None, "call_id_duplicated"], []),
        ("an undeclared name", [finished(item(OK, name="shell")), completed()], ["name_not_declared"], []),
        ("a hosted tool's call", [finished({"type": "web_search_call", "id": "ws_1", "status": "completed"}), completed()], [], []),
    ],
)  # fmt: skip
def test_calls(what: str, events: list[Any], expected: list[str | None], quirks: list[str]) -> None:
    reading = read(*events)
    assert problems(reading) == expected, what
    assert reading.announced == "response.completed"
    assert reading.quirks - {"value_differs"} == set(quirks)


def test_a_value_that_wasnt_asked_for_is_noted_wherever_the_arguments_came_from() -> None:
    assert "value_differs" in read(completed(item(WRONG))).quirks


def test_calls_beyond_reason_break_the_stream() -> None:
    calls = [finished(item(OK, id=f"fc_{n}", call_id=f"call_{n}"), n) for n in range(300)]
    deltas = [delta(OK, n, f"fc_{n}") for n in range(300)]
    assert read(*calls, completed()).broken == "too_many_calls"
    assert read(*deltas, completed()).broken == "too_many_calls"


@pytest.mark.parametrize(
    ("last", "announced", "capped", "filtered"),
    [
        (completed(), "response.completed", False, False),
        (incomplete("max_output_tokens"), "response.incomplete", True, False),
        (incomplete("content_filter"), "response.incomplete", False, True),
        (incomplete("other"), "response.incomplete", False, False),
        (incomplete(None), "response.incomplete", False, False),
        ({"type": "response.completed"}, "response.completed", False, False),
        ("[DONE]", None, False, False),
        (event("in_progress", response={"status": "completed"}), None, False, False),
        ({}, None, False, False),
    ],
)
def test_only_a_terminal_event_announces_the_end(
    last: Any, announced: str | None, capped: bool, filtered: bool
) -> None:
    reading = read(event("created", response={"id": "resp_1"}), last)
    assert (reading.announced, reading.capped, reading.filtered) == (announced, capped, filtered)
    assert reading.broken is None


def test_nothing_behind_the_end_counts() -> None:
    reading = read(completed(), finished(item(OK)), failed({"code": "server_error"}), "no json", "[DONE]")
    assert (reading.calls, reading.error, reading.broken) == ((), None, None)


@pytest.mark.parametrize(
    ("what", "error", "kind"),
    [
        ("response.failed", failed({"code": "rate_limit_exceeded", "message": "x"}), Refused.RATE),
        ("... with a code that settles nothing", failed({"code": "server_error", "message": "x"}), None),
        ("... without an error", failed(None), None),
        ("... with an error that is a text", failed("invalid api key"), Refused.CREDENTIAL),
        ("a flat error event", {"type": "error", "code": "insufficient_quota", "message": "x"}, Refused.CREDIT),
        ("a nested one", {"type": "error", "error": {"code": "invalid_api_key"}}, Refused.CREDENTIAL),
        ("one under a name of its own", {"type": "response.error", "error": {"code": "overloaded"}}, Refused.OVERLOAD),
        ("an error object without a type", {"error": {"code": "model_not_found"}}, Refused.MODEL),
        ("a flat one without a type", {"code": "insufficient_quota", "message": "x"}, Refused.CREDIT),
        ("in a list", [{"error": {"code": "insufficient_quota"}}], Refused.CREDIT),
        ("an event named error", Event('{"code": "rate_limit_exceeded"}', "error"), Refused.RATE),
        ("... that is words", Event("insufficient balance", "error"), Refused.CREDIT),
        ("... that is empty", Event("", "error"), None),
        ("a completed response that holds an error", completed(item(OK), error={"code": "server_error"}), None),
        ("a completed response that failed", completed(item(OK), status="failed"), None),
    ],
)
def test_errors_are_refusals_until_something_came_and_late_afterwards(what: str, error: Any, kind: Any) -> None:
    start = event("created", response={"id": "resp_1"}), added(message())
    for before, late in ((), False), ([text("Well")], True), ([added(item())], True):
        reading = read(*start, *before, error)
        assert reading.error is not None, what
        assert reading.error.kind is kind
        assert reading.error_after_delta is late
        assert reading.announced is None


def test_a_wait_is_kept_from_an_error_inside_the_stream() -> None:
    reading = read(failed({"code": "rate_limit_exceeded", "message": "Please try again in 6s."}))
    assert reading.error is not None
    assert reading.error.retry_after_s == 6


@pytest.mark.parametrize(
    ("what", "broken", "events"),
    [
        ("chunks of Chat Completions", "foreign_dialect", [{"object": "chat.completion.chunk", "choices": [{"delta": {}}]}]),
        ("events of Anthropic Messages", "foreign_dialect", [{"type": "message_start", "message": {}}]),
        ("blocks of Anthropic Messages", "foreign_dialect", [{"type": "content_block_delta", "index": 0}]),
        ("chunks of Gemini", "foreign_dialect", [{"candidates": [{"content": {}}]}]),
        ("a response without its event", "event_type_missing", [{"id": "resp_1", "object": "response", "status": "completed"}]),
        ("an empty type", "event_type_missing", [{"type": "", "response": {}}]),
        ("an event without its type", "event_type_missing", [Event('{"delta": "x"}', "response.output_text.delta")]),
        ("no JSON", "data_not_json", ["{oops"]),
        ("no object", "event_not_object", ["[1]"]),
        ("unknown types", None, [{"type": "vendor.metrics", "x": 1}, {"type": "keepalive"}, {"type": "ping"}, {}, {"usage": {}}]),
        ("a comment in the data", None, [": keep-alive"]),
        ("an event that the body's end cut off", None, [Event("{oops", unterminated=True)]),
    ],
)  # fmt: skip
def test_what_breaks_the_stream(what: str, broken: str | None, events: list[Any]) -> None:
    reading = read(*events)
    assert (reading.broken, reading.error, reading.announced) == (broken, None, None), what


LEAKED = f'<tool_call>{{"name": "{TOOL.name}", "arguments": {OK}}}</tool_call>'


@pytest.mark.parametrize(
    ("what", "events", "has_text", "leak"),
    [
        ("deltas", [text("All "), text("good.")], True, None),
        ("deltas of a refusal", [event("refusal.delta", delta="I can't.")], True, None),
        ("a text that is done", [event("output_text.done", text="All good.")], True, None),
        ("a message that is done", [finished(message({"type": "output_text", "text": "All good."}))], True, None),
        ("a refusal that is done", [finished(message({"type": "refusal", "refusal": "I can't."}))], True, None),
        ("an empty message", [finished(message({"type": "output_text", "text": " "}))], False, None),
        ("reasoning", [event("reasoning_summary_text.delta", delta="Hm"), event("reasoning_text.delta", delta="!")], False, None),
        ("markup in deltas", [text(LEAKED[:20]), text(LEAKED[20:])], True, "hermes"),
        ("markup in a message that is done", [finished(message({"type": "output_text", "text": LEAKED}))], True, "hermes"),
        ("markup in reasoning", [event("reasoning_text.delta", delta=LEAKED)], False, "hermes"),
        ("markup in reasoning that is done", [finished({"type": "reasoning", "content": [{"type": "reasoning_text", "text": LEAKED}]})], False, "hermes"),
    ],
)  # fmt: skip
def test_texts(what: str, events: list[Any], has_text: bool, leak: str | None) -> None:
    reading = read(*events, completed())
    assert (reading.has_text, reading.leak) == (has_text, leak), what
    assert not reading.calls


def test_what_was_streamed_is_not_taken_again_from_what_is_done() -> None:
    whole = message({"type": "output_text", "text": "All good."})
    assert (
        read(text("All good."), event("output_text.done", text="All good."), finished(whole), completed()).deltas == 1
    )
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}
    assert read(event("reasoning_text.delta", delta="Hm"), finished(thought), completed()).deltas == 1
    assert read(added(item()), delta(HEAD), delta(TAIL), said(OK), finished(item(OK))).deltas == 3


def test_only_messages_and_reasoning_are_read_for_texts() -> None:
    found = {"type": "file_search_call", "content": [{"type": "output_text", "text": LEAKED}]}
    assert (read(finished(found), completed()).leak, read(finished(found)).deltas) == (None, 0)


def test_the_terminal_event_is_the_last_that_is_waited_for() -> None:
    reader = DIALECT.reader(ROUTE, FORCED, {}, NOW)
    assert not reader.complete
    reader.read(Event(json.dumps(completed())))
    assert reader.complete


def test_the_final_response_stands_for_a_text_that_wasnt_streamed() -> None:
    assert read(completed(message({"type": "output_text", "text": "All good."}))).has_text


def test_usage_and_the_served_model_come_from_the_response() -> None:
    reading = read(event("created", response={"model": "served-1"}), completed())
    assert (reading.served_model, reading.tokens_in, reading.tokens_out) == ("served-1", 62, 18)
    assert read(completed(usage={"output_tokens": -1})).quirks == {"usage_missing"}
    assert read(completed(usage={"output_tokens": 1024})).capped


# --- requests ---


def sent(ask: Ask = FORCED, route: Route = ROUTE) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(DIALECT.encode(route, ask).body)
    return body


def test_the_request_is_flat_and_holds_nothing_that_wasnt_asked_for() -> None:
    assert sent(replace(FORCED, tools=(TOOL,))) == {
        "model": "m-1",
        "input": [{"role": "user", "content": "Call it."}],
        "stream": True,
        "max_output_tokens": 1024,
        "tools": [
            {
                "type": "function",
                "name": TOOL.name,
                "description": TOOL.description,
                "parameters": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
                "strict": False,
            }
        ],
        "tool_choice": {"type": "function", "name": TOOL.name},
    }


def test_what_a_request_holds_when_it_is_asked_for() -> None:
    assert sent(AUTO)["tool_choice"] == "auto"
    assert sent(CONTROL).keys() == {"model", "input", "stream", "max_output_tokens"}
    assert sent(replace(AUTO, parallel=False))["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in sent(replace(CONTROL, parallel=True))
    assert sent(AUTO, replace(ROUTE, temperature=0.5))["temperature"] == 0.5
    assert sent(replace(AUTO, tokens_field="max_tokens")).get("max_output_tokens") is None
    assert sent(AUTO, replace(ROUTE, body={"store": False, "reasoning": {"effort": "low"}}))["store"] is False


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h/v1", "https://h/v1/responses"),
        ("https://h/v1/", "https://h/v1/responses"),
        ("https://h/v1/responses", "https://h/v1/responses"),
        ("https://h/v1/responses/", "https://h/v1/responses"),
        ("https://h/openai?api-version=preview", "https://h/openai/responses?api-version=preview"),
        ("https://h", "https://h/responses"),
    ],
)
def test_urls(base: str, url: str) -> None:
    assert DIALECT.encode(replace(ROUTE, base_url=base), FORCED).url == url


def test_headers_and_the_credential() -> None:
    request = DIALECT.encode(replace(ROUTE, headers={"X-Title": "t"}), FORCED)
    assert request.headers == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "cache-control": "no-cache",
        "x-title": "t",
    }
    credentials = Credentials(key=Secret("sk-1"))
    assert DIALECT.authorize(ROUTE, credentials) == {"authorization": "Bearer sk-1"}
    assert DIALECT.authorize(replace(ROUTE, auth=Auth.API_KEY), credentials) == {"api-key": "sk-1"}


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        ({"object": "response", "status": "completed"}, True),
        ({"id": "resp_1", "output": []}, True),
        ({"data": {"object": "response"}}, True),
        ({"object": "chat.completion", "choices": []}, False),
        ({"error": {"message": "x"}}, False),
        ({"object": "list", "data": []}, False),
        ([{"object": "response"}], False),
        ("response", False),
    ],
)
def test_whole_completions(body: Any, whole: bool) -> None:
    assert DIALECT.is_completion(body) is whole
