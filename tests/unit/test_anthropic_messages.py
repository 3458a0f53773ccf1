"""The dialect `anthropic-messages`, event by event and field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from service.answer import Answer
from service.contracts.native_tools import TOOL, NativeTools
from service.dialects import DIALECTS
from service.model import (
    Ask,
    Auth,
    Choice,
    Credentials,
    End,
    Exchange,
    Message,
    Reading,
    Refused,
    Route,
    Secret,
    TokenCap,
    Tool,
)
from service.seen import Seen, see
from service.sse import Event

DIALECT = DIALECTS["anthropic-messages"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUTE = Route(id="r", name="r", provider="p", dialect="anthropic-messages", base_url="http://127.0.0.1:1", model="m-1")
OTHER = Tool("other_tool", "Another one.", {"value": "string"})
FORCED = Ask(rung="forced", messages=(Message("user", "Call it."),), tools=(TOOL, OTHER), choice=Choice.FORCED)
AUTO = replace(FORCED, choice=Choice.AUTO)
CONTROL = Ask(rung="control", messages=(Message("user", "Say it."),))

OK = '{"value":"ok"}'
HEAD, TAIL = OK[:5], OK[5:]
INPUT = {"value": "ok"}


def typed(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def started(**fields: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "role": "assistant", "content": [], "model": "m-1", "stop_reason": None}
    return typed("message_start", message={**message, "usage": {"input_tokens": 62, "output_tokens": 1}, **fields})


def begun(at: Any, block: Any) -> dict[str, Any]:
    return typed("content_block_start", index=at, content_block=block)


def tool(at: Any = 0, /, **fields: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": TOOL.name, "input": {}, **fields}
    return begun(at, {name: value for name, value in block.items() if value is not None})


def second(at: Any = 1, /, **fields: Any) -> dict[str, Any]:
    return tool(at, **{"id": "toolu_2", **fields})


def delta(at: Any, kind: str, **fields: Any) -> dict[str, Any]:
    return typed("content_block_delta", index=at, delta={"type": kind, **fields})


def piece(json_piece: Any, at: Any = 0) -> dict[str, Any]:
    return delta(at, "input_json_delta", partial_json=json_piece)


def said(words: str, at: Any = 0) -> dict[str, Any]:
    return delta(at, "text_delta", text=words)


def thought(words: str, at: Any = 0) -> dict[str, Any]:
    return delta(at, "thinking_delta", thinking=words)


def closed(at: Any = 0) -> dict[str, Any]:
    return typed("content_block_stop", index=at)


def stopped(reason: Any = "tool_use", **usage: Any) -> dict[str, Any]:
    counts = usage or {"output_tokens": 18}
    return typed("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=counts)


STOP = typed("message_stop")
PING = typed("ping")
TEXT_BLOCK = begun(0, {"type": "text", "text": ""})
THINKING_BLOCK = begun(0, {"type": "thinking", "thinking": "", "signature": ""})
END = [stopped(), STOP]


def as_event(one: Any) -> Event:
    if isinstance(one, Event):
        return one
    if isinstance(one, str):
        return Event(one)
    return Event(json.dumps(one), one.get("type", "message") if isinstance(one, dict) else "message")


def read(*events: Any, ask: Ask = FORCED, headers: Mapping[str, str] | None = None) -> Reading:
    reader = DIALECT.reader(ROUTE, ask, headers or {}, NOW)
    for one in events:
        reader.read(as_event(one))
    return reader.result()


def problems(reading: Reading) -> list[str | None]:
    return [call.problem for call in reading.calls]


# --- calls and blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "events", "expected", "quirks"),
    [
        ("pieces", [tool(), piece(""), piece(HEAD), piece(TAIL), closed()], [None], []),
        ("empty and null pieces between", [tool(), piece(""), piece(HEAD), piece(None), piece(""), piece(TAIL), closed()], [None], []),
        ("pings between", [PING, tool(), PING, piece(HEAD), PING, piece(TAIL), closed(), PING], [None], []),
        ("the whole input in the block's start", [tool(input=INPUT), closed()], [None], []),
        ("... and an empty piece behind it", [tool(input=INPUT), piece(""), closed()], [None], []),
        ("... and the same again in pieces", [tool(input=INPUT), piece(HEAD), piece(TAIL), closed()], [None], []),
        ("... and something else in pieces, which count", [tool(input={"x": 1}), piece(OK), closed()], [None], []),
        ("... and cut pieces, which count", [tool(input=INPUT), piece(HEAD), closed()], ["arguments_truncated"], []),
        ("a start without an input", [tool(input=None), piece(OK), closed()], [None], []),
        ("an empty text for an input, then pieces", [tool(input=""), piece(OK), closed()], [None], []),
        ("an input that is JSON in a text", [tool(input=OK), closed()], ["arguments_double_encoded"], []),
        ("an input that is a list", [tool(input=[INPUT]), closed()], ["arguments_not_object"], []),
        ("no input at all", [tool(), closed()], ["arguments_missing_required"], []),
        ("an empty object in pieces", [tool(), piece("{}"), closed()], ["arguments_missing_required"], []),
        ("an empty object before the real one", [tool(), piece("{}"), piece(OK), closed()], ["arguments_concatenated"], []),
        ("a cut input", [tool(), piece(HEAD), closed()], ["arguments_truncated"], []),
        ("an input that is resent", [tool(), piece(OK), piece(OK), closed()], ["arguments_resent"], []),
        ("cumulative pieces", [tool(), piece(HEAD), piece(HEAD + TAIL), closed()], ["arguments_cumulative"], []),
        ("a piece that is an object", [tool(), piece(INPUT), closed()], ["arguments_not_string"], []),
        ("two encodings, one upon the other", [tool(), piece(json.dumps(OK)), closed()], ["arguments_double_encoded"], []),
        ("another tool's call", [tool(name="other_tool"), piece(OK), closed()], [None], []),
        ("an undeclared name", [tool(name="computer"), piece(OK), closed()], ["name_not_declared"], []),
        ("no name", [tool(name=None), piece(OK), closed()], ["name_missing"], []),
        ("a name that is no text", [tool(name={"n": 1}), piece(OK), closed()], ["name_missing"], []),
        ("no id", [tool(id=None), piece(OK), closed()], ["id_missing"], []),
        ("an empty id", [tool(id=""), piece(OK), closed()], ["id_missing"], []),
        ("an id that is a number", [tool(id=7), piece(OK), closed()], [None], []),
        ("a text before the call", [TEXT_BLOCK, said("Well."), closed(), tool(1), piece(OK, 1), closed(1)], [None], []),
        ("thinking before the call", [THINKING_BLOCK, thought("Hm."), delta(0, "signature_delta", signature="c2ln"), closed(), tool(1), piece(OK, 1), closed(1)], [None], []),
        ("two calls, one after the other", [tool(), piece(OK), closed(), second(), piece(OK, 1), closed(1)], [None, None], []),
        ("two calls whose pieces alternate", [tool(), second(), piece(HEAD), piece(HEAD, 1), piece(TAIL), piece(TAIL, 1), closed(), closed(1)], [None, None], []),
        ("two calls under one id", [tool(), piece(OK), closed(), second(id="toolu_1"), piece(OK, 1), closed(1)], [None, "call_id_duplicated"], []),
        ("a gap between indexes", [THINKING_BLOCK, thought("Hm."), closed(), tool(2), piece(OK, 2), closed(2)], [None], ["block_index_gap"]),
        ("a first index that isn't 0", [tool(1), piece(OK, 1), closed(1)], [None], ["block_index_gap"]),
        ("indexes out of order", [second(1), piece(OK, 1), closed(1), tool(0), piece(OK), closed()], [None, None], ["block_index_gap"]),
        ("one index for a text and a call", [TEXT_BLOCK, said("Well."), closed(), tool(0), piece(OK), closed()], [None], ["index_reused"]),
        ("one index for two calls", [tool(), piece(OK), closed(), second(0), piece(OK), closed()], [None, None], ["index_reused"]),
        ("a block that starts twice", [tool(), tool(), piece(OK), closed()], [None], ["index_reused"]),
        ("no index anywhere", [tool(None), piece(HEAD, None), piece(TAIL, None), closed(None)], [None], ["index_missing"]),
        ("two calls without any index", [tool(None), piece(OK, None), closed(None), second(None), piece(OK, None), closed(None)], [None, None], ["index_missing"]),
        ("indexes in texts", [tool("0"), piece(OK, "0"), closed("0"), second("1"), piece(OK, "1"), closed("1")], [None, None], []),
        ("an index that is left out of the second call", [tool(0), piece(OK), second(None), piece(OK, None), closed(None)], [None, None], ["index_missing", "block_stop_missing"]),
        ("true is no index", [tool(True), piece(OK, True), closed(True)], [None], ["index_missing"]),
        ("a block that isn't closed", [tool(), piece(OK)], [None], ["block_stop_missing"]),
        ("a text that isn't closed", [TEXT_BLOCK, said("Well."), tool(1), piece(OK, 1), closed(1)], [None], []),
        ("a text without a start", [said("Well."), tool(0), piece(OK), closed()], [None], ["block_start_missing"]),
        ("an end of a block that never began", [closed(5), tool(), piece(OK), closed()], [None], []),
        ("server tools beside the call", [begun(0, {"type": "server_tool_use", "id": "s_1", "name": "web_search", "input": {}}), piece('{"query":"x"}'), closed(), begun(1, {"type": "web_search_tool_result", "content": []}), closed(1), tool(2), piece(OK, 2), closed(2)], [None], []),
        ("a server tool alone", [begun(0, {"type": "server_tool_use", "id": "s_1", "name": TOOL.name, "input": {}}), piece(OK), closed()], [], []),
        ("a delta of tomorrow", [tool(), delta(0, "vendor_delta", x=1), piece(OK), closed()], [None], []),
        ("a block of tomorrow", [begun(0, {"type": "vendor_block"}), closed(), tool(1), piece(OK, 1), closed(1)], [None], []),
    ],
)  # fmt: skip
def test_calls(what: str, events: list[Any], expected: list[str | None], quirks: list[str]) -> None:
    reading = read(started(), *events, *END)
    assert problems(reading) == expected, what
    assert (reading.announced, reading.broken) == ("tool_use", None)
    assert reading.quirks - {"value_differs"} == set(quirks)


def test_a_value_that_wasnt_asked_for_is_noted_wherever_the_input_came_from() -> None:
    for events in [tool(input={"value": "no"}), closed()], [tool(), piece('{"value":"no"}'), closed()]:
        assert "value_differs" in read(started(), *events, *END).quirks


def test_blocks_beyond_reason_break_the_stream() -> None:
    apart = [event for n in range(300) for event in (tool(n, id=f"toolu_{n}"), piece(OK, n), closed(n))]
    assert read(started(), *apart, *END).broken == "too_many_blocks"
    on_one_index = [tool(0, id=f"toolu_{n}") for n in range(300)]
    assert read(started(), *on_one_index, *END).broken == "too_many_blocks"


# --- the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "events", "announced", "capped", "filtered"),
    [
        ("a stop_reason", [stopped("tool_use")], "tool_use", False, False),
        ("a stop_reason and message_stop", END, "tool_use", False, False),
        ("message_stop alone", [STOP], "message_stop", False, False),
        ("message_stop behind a null stop_reason", [stopped(None), STOP], "message_stop", False, False),
        ("our cap", [stopped("max_tokens")], "max_tokens", True, False),
        ("our cap in another dialect's word", [stopped("length")], "length", True, False),
        ("the model's context, which is no cap of ours", [stopped("model_context_window_exceeded")], "model_context_window_exceeded", False, False),
        ("a refusal", [stopped("refusal")], "refusal", False, True),
        ("a filter in another dialect's word", [stopped("content_filter")], "content_filter", False, True),
        ("... in one more", [stopped("sensitive")], "sensitive", False, True),
        ("... and in capitals", [stopped("SAFETY")], "SAFETY", False, True),
        ("a pause", [stopped("pause_turn")], "pause_turn", False, False),
        ("a null stop_reason", [stopped(None)], None, False, False),
        ("an empty stop_reason", [stopped("")], None, False, False),
        ("a stop_reason that is no text", [stopped(True)], None, False, False),
        ("a message_delta without its delta", [typed("message_delta", usage={"output_tokens": 3})], None, False, False),
        ("a stop_reason in message_start", [started(stop_reason="end_turn")], None, False, False),
        ("[DONE]", ["[DONE]"], None, False, False),
        ("an end of a block", [tool(), piece(OK), closed()], None, False, False),
    ],
)  # fmt: skip
def test_only_a_stop_reason_or_message_stop_announces_the_end(
    what: str, events: list[Any], announced: str | None, capped: bool, filtered: bool
) -> None:
    reading = read(started(), *events)
    assert (reading.announced, reading.capped, reading.filtered) == (announced, capped, filtered), what
    assert (reading.broken, reading.error, reading.declared_malformed) == (None, None, False)


def test_a_malformed_call_that_the_provider_declares() -> None:
    assert read(started(), stopped("MALFORMED_FUNCTION_CALL"), STOP).declared_malformed


CALL = [tool(), piece(OK), closed()]


@pytest.mark.parametrize(
    ("what", "end", "quirks"),
    [
        ("as it should be", END, set()),
        ("[DONE] behind it", [*END, "[DONE]"], set()),
        ("[DONE] before it", ["[DONE]", *END], set()),
        ("no message_stop", [stopped()], {"message_stop_missing"}),
        ("no stop_reason", [stopped(None), STOP], {"finish_reason_missing"}),
        ("end_turn though there is a call", [stopped("end_turn"), STOP], {"finish_reason_stop"}),
        ("another dialect's stop", [stopped("stop"), STOP], {"finish_reason_stop"}),
        ("usage behind the stop_reason", [typed("message_delta", delta={"stop_reason": "tool_use"}), stopped(None), STOP], set()),
        ("no usage", [typed("message_delta", delta={"stop_reason": "tool_use"}), STOP], {"usage_missing"}),
    ],
)  # fmt: skip
def test_oddities_of_the_end(what: str, end: list[Any], quirks: set[str]) -> None:
    reading = read(started(), *CALL, *end)
    assert reading.quirks == quirks, what
    assert problems(reading) == [None]


def test_a_text_that_ends_its_turn_is_no_oddity() -> None:
    assert read(started(), TEXT_BLOCK, said("Well."), closed(), stopped("end_turn"), STOP).quirks == set()


def test_a_block_may_be_closed_behind_the_stop_reason() -> None:
    assert read(started(), tool(), piece(OK), stopped(), closed(), STOP).quirks == set()


def test_nothing_behind_the_end_counts_but_usage() -> None:
    late = [TEXT_BLOCK, said("x"), *CALL, typed("error", error={"type": "api_error", "message": "x"}), "no json", "[1]"]
    reading = read(started(), stopped("end_turn"), *late, stopped("max_tokens", output_tokens=20), STOP)
    assert (reading.calls, reading.has_text, reading.error, reading.broken) == ((), False, None, None)
    assert (reading.announced, reading.capped, reading.tokens_out) == ("end_turn", False, 20)


def test_a_stream_without_an_end_has_no_oddities_of_the_end() -> None:
    assert read(started(), tool(), piece(OK)).quirks == set()


# --- order and framing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "broken", "events"),
    [
        ("a piece of a block that never began", "delta_without_start", [started(), piece(OK)]),
        ("a piece for another index than the call's", "delta_without_start", [started(), tool(1), piece(OK, 0)]),
        ("a piece for a text block", "delta_of_other_block", [started(), TEXT_BLOCK, tool(1), piece(OK, 0)]),
        ("a piece for a thinking block", "delta_of_other_block", [started(), THINKING_BLOCK, piece(OK)]),
        ("an empty piece of no block", None, [started(), piece("")]),
        ("an empty piece for a text block", None, [started(), TEXT_BLOCK, piece("")]),
        ("chunks of Chat Completions", "foreign_dialect", [{"object": "chat.completion.chunk", "choices": [{"delta": {}}]}]),
        ("... their last one", "foreign_dialect", [{"choices": [], "usage": {"total_tokens": 3}}]),
        ("events of Responses", "foreign_dialect", [typed("response.created", response={"id": "resp_1"})]),
        ("chunks of Gemini", "foreign_dialect", [{"candidates": [{"content": {}}]}]),
        ("the old text completions", "foreign_dialect", [typed("completion", completion=" Hi", stop_reason=None)]),
        ("chunks of Chat Completions behind our start", "foreign_dialect", [started(), {"choices": [{"delta": {}}]}]),
        ("a whole message in one event", "message_not_delta", [typed("message", role="assistant", content=[])]),
        ("no JSON", "data_not_json", [started(), "{oops"]),
        ("no object", "event_not_object", [started(), "[1]"]),
        ("events of tomorrow", None, [started(), typed("vendor_metrics", message="Fine."), typed("keepalive"), {}, {"x": 1}]),
        ("a comment in the data", None, [started(), ": keep-alive"]),
        ("an event that the body's end cut off", None, [started(), Event("{oops", "content_block_delta", unterminated=True)]),
        ("a second start", None, [started(), started()]),
        ("blocks and deltas that are no objects", None, [started(), begun(0, None), typed("content_block_delta", index=0, delta="x")]),
    ],
)  # fmt: skip
def test_what_breaks_the_stream(what: str, broken: str | None, events: list[Any]) -> None:
    reading = read(*events)
    assert (reading.broken, reading.error, reading.announced) == (broken, None, None), what


def test_a_missing_message_start_is_an_oddity() -> None:
    reading = read(*CALL, *END)
    assert (problems(reading), reading.quirks) == ([None], {"message_start_missing"})


def test_events_without_a_name_are_read_by_their_type_and_noted() -> None:
    reading = read(*(json.dumps(event) for event in (started(), *CALL, *END)))
    assert (problems(reading), reading.announced, reading.quirks) == ([None], "tool_use", {"event_name_missing"})


def test_events_without_a_type_are_read_by_their_name() -> None:
    events = [(event["type"], {k: v for k, v in event.items() if k != "type"}) for event in (started(), *CALL, *END)]
    reading = read(*(Event(json.dumps(body), name) for name, body in events))
    assert (problems(reading), reading.announced, reading.quirks) == ([None], "tool_use", set())


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "error", "kind"),
    [
        ("overloaded", typed("error", error={"type": "overloaded_error", "message": "Overloaded"}), Refused.OVERLOAD),
        ("a rate", typed("error", error={"type": "rate_limit_error", "message": "x"}), Refused.RATE),
        ("a credential", typed("error", error={"type": "authentication_error", "message": "x"}), Refused.CREDENTIAL),
        ("credit, in words", typed("error", error={"message": "Your credit balance is too low."}), Refused.CREDIT),
        ("what settles nothing", typed("error", error={"type": "api_error", "message": "x"}), None),
        ("an error without anything", typed("error"), None),
        ("under no name", json.dumps(typed("error", error={"type": "overloaded_error"})), Refused.OVERLOAD),
        ("under a name alone", Event('{"error": {"type": "overloaded_error"}}', "error"), Refused.OVERLOAD),
        ("a name and words", Event("insufficient balance", "error"), Refused.CREDIT),
        ("an error object", {"error": {"type": "overloaded_error"}}, Refused.OVERLOAD),
        ("a flat one", typed("overloaded_error", message="x"), Refused.OVERLOAD),
        ("one within another event", typed("ping", error={"type": "overloaded_error"}), Refused.OVERLOAD),
        ("in a list", [{"error": {"type": "rate_limit_error"}}], Refused.RATE),
        ("of another dialect", {"error": {"code": "insufficient_quota", "message": "x"}}, Refused.CREDIT),
        ("a quiet one", stopped("error"), None),
        ("a quiet one that is coded", stopped("insufficient_system_resource"), Refused.OVERLOAD),
        ("a quiet one of the network", stopped("network_error"), None),
    ],
)  # fmt: skip
def test_errors_are_refusals_until_something_came_and_late_afterwards(what: str, error: Any, kind: Any) -> None:
    before: list[tuple[list[Any], bool]] = [
        ([], False),
        ([started(), PING, TEXT_BLOCK, said("")], False),
        ([started(), TEXT_BLOCK, said("Well")], True),
        ([started(), begun(0, {"type": "text", "text": "Well"})], True),
        ([started(), THINKING_BLOCK, thought("Hm")], True),
        ([started(), THINKING_BLOCK, delta(0, "signature_delta", signature="c2ln")], True),
        ([started(), begun(0, {"type": "redacted_thinking", "data": "eA=="})], True),
        ([started(), tool()], True),
    ]
    for events, late in before:
        reading = read(*events, error, STOP)
        assert reading.error is not None, what
        assert (reading.error.kind, reading.error_after_delta) == (kind, late), (what, events)
        assert reading.announced is None


def test_a_wait_is_kept_from_an_error_inside_the_stream() -> None:
    error = typed("error", error={"type": "rate_limit_error", "message": "Please try again in 6s."})
    reading = read(started(), error)
    assert reading.error is not None
    assert reading.error.retry_after_s == 6


def answered(status: int, body: Any, ask: Ask) -> Exchange:
    answer = Answer(DIALECT, ROUTE, ask, status, {"content-type": "application/json"}, NOW)
    answer.feed(json.dumps(body).encode())
    return answer.finish(End.COMPLETE)


def test_a_refusal_that_names_stream_options_starts_no_experiment_as_none_were_sent() -> None:
    body = typed("error", error={"type": "invalid_request_error", "message": "stream_options: not supported"})
    contract, exchanges = NativeTools(), []
    while (ask := contract.next_ask(ROUTE, "bcdfgh", exchanges)) is not None:
        exchanges.append(answered(400, body, ask))
    assert [exchange.ask.rung for exchange in exchanges] == ["forced", "auto", "control"]
    assert not any(exchange.refusal.names_stream_options for exchange in exchanges if exchange.refusal)
    late = read(body, headers={})
    assert late.error is not None
    assert not late.error.names_stream_options


def test_max_tokens_is_required_so_no_other_field_is_tried() -> None:
    body = typed(
        "error", error={"type": "invalid_request_error", "message": "max_tokens: Extra inputs are not permitted"}
    )
    exchange = answered(400, body, FORCED)
    assert exchange.refusal is not None
    assert (exchange.refusal.kind, exchange.other_cap_field) == (Refused.TOKEN_CAP, None)


# --- texts, usage and the model ---------------------------------------------------------------------------

LEAKED = f'<invoke name="{TOOL.name}"><parameter name="value">ok</parameter></invoke>'


@pytest.mark.parametrize(
    ("what", "events", "has_text", "leak"),
    [
        ("deltas", [TEXT_BLOCK, said("All "), said("good."), closed()], True, None),
        ("a text in the block's start", [begun(0, {"type": "text", "text": "All good."}), closed()], True, None),
        ("blanks", [TEXT_BLOCK, said(" \n"), closed()], False, None),
        ("empty deltas", [TEXT_BLOCK, said(""), closed()], False, None),
        ("thinking", [THINKING_BLOCK, thought("Hm."), closed()], False, None),
        ("thinking in the block's start", [begun(0, {"type": "thinking", "thinking": LEAKED}), closed()], False, "xml_invoke"),
        ("markup in a text", [TEXT_BLOCK, said(LEAKED[:20]), said(LEAKED[20:]), closed()], True, "xml_invoke"),
        ("markup in thinking", [THINKING_BLOCK, thought(LEAKED), closed()], False, "xml_invoke"),
        ("a signature is no text", [THINKING_BLOCK, delta(0, "signature_delta", signature=LEAKED), closed()], False, None),
        ("citations are no text", [TEXT_BLOCK, delta(0, "citations_delta", citation={"cited_text": "x"}), closed()], False, None),
    ],
)  # fmt: skip
def test_texts(what: str, events: list[Any], has_text: bool, leak: str | None) -> None:
    reading = read(started(), *events, stopped("end_turn"), STOP)
    assert (reading.has_text, reading.leak) == (has_text, leak), what
    assert not reading.calls


def test_pings_starts_and_empty_pieces_are_no_deltas() -> None:
    assert read(started(), PING, TEXT_BLOCK, said(""), closed(), PING).deltas == 0
    assert read(started(), tool(), piece(""), piece(HEAD), piece(TAIL), closed()).deltas == 3


@pytest.mark.parametrize(
    ("what", "start", "ends", "tokens"),
    [
        ("as the API has it", {"input_tokens": 62, "output_tokens": 1}, [{"output_tokens": 18}], (62, 18)),
        ("cached input counts as input", {"input_tokens": 2, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 10}, [{"output_tokens": 18}], (62, 18)),
        ("totals again at the end", {"input_tokens": 62}, [{"input_tokens": 62, "output_tokens": 18}], (62, 18)),
        ("the input's count only at the end", {"input_tokens": 0, "output_tokens": 0}, [{"input_tokens": 60, "cache_read_input_tokens": 2, "output_tokens": 18}], (62, 18)),
        ("zeros and nulls take nothing back", {"input_tokens": 62}, [{"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 18}], (62, 18)),
        ("an output's count that a later zero doesn't take back", {"input_tokens": 62}, [{"output_tokens": 18}, {"output_tokens": 0}], (62, 18)),
        ("totals that grow", {"input_tokens": 62}, [{"output_tokens": 9}, {"output_tokens": 18}], (62, 18)),
        ("what a start holds of the output is a placeholder", {"input_tokens": 62, "output_tokens": 1}, [], (62, None)),
        ("no counts", {"input_tokens": "62", "output_tokens": 1}, [{"output_tokens": -1}, {"output_tokens": True}], (None, None)),
        ("no usage", None, [], (None, None)),
    ],
)  # fmt: skip
def test_usage(what: str, start: Any, ends: list[Any], tokens: tuple[int | None, int | None]) -> None:
    counted = [typed("message_delta", delta={"stop_reason": None}, usage=usage) for usage in ends]
    reading = read(
        started(usage=start), *CALL, *counted, typed("message_delta", delta={"stop_reason": "tool_use"}), STOP
    )
    assert (reading.tokens_in, reading.tokens_out) == tokens, what
    assert ("usage_missing" in reading.quirks) is (tokens[1] is None)


def test_an_output_as_long_as_our_cap_was_cut_whatever_the_stop_reason_says() -> None:
    assert read(started(), *CALL, stopped("end_turn", output_tokens=1024), STOP).capped


@pytest.mark.parametrize(("model", "served"), [("served-1", "served-1"), ("", None), (None, None), (7, None)])
def test_the_served_model_comes_from_message_start(model: Any, served: str | None) -> None:
    assert read(started(model=model), *CALL, *END).served_model == served


def test_a_cut_call_is_our_caps_doing_only_when_the_answer_says_so() -> None:
    reading = read(started(), tool(), piece(HEAD), stopped("max_tokens"), STOP)
    assert (reading.capped, [call.cut for call in reading.calls]) == (True, [True])
    assert see(Exchange(ask=FORCED, end=End.ENOUGH, status=200, reading=reading)) is Seen.CUT
    reading = read(started(), tool(), piece(HEAD), stopped("tool_use"), STOP)
    assert see(Exchange(ask=FORCED, end=End.ENOUGH, status=200, reading=reading)) is Seen.BAD_CALL


# --- requests ---------------------------------------------------------------------------------------------


def sent(ask: Ask = FORCED, route: Route = ROUTE) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(DIALECT.encode(route, ask).body)
    return body


def test_the_request_holds_nothing_that_wasnt_asked_for() -> None:
    assert sent(replace(FORCED, tools=(TOOL,))) == {
        "model": "m-1",
        "messages": [{"role": "user", "content": "Call it."}],
        "stream": True,
        "max_tokens": 1024,
        "tools": [
            {
                "name": TOOL.name,
                "description": TOOL.description,
                "input_schema": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
            }
        ],
        "tool_choice": {"type": "tool", "name": TOOL.name},
    }


@pytest.mark.parametrize(
    ("ask", "choice"),
    [
        (FORCED, {"type": "tool", "name": TOOL.name}),
        (AUTO, {"type": "auto"}),
        (replace(AUTO, parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
        (replace(AUTO, parallel=True), {"type": "auto", "disable_parallel_tool_use": False}),
        (replace(FORCED, parallel=False), {"type": "tool", "name": TOOL.name, "disable_parallel_tool_use": True}),
        (CONTROL, None),
        (replace(CONTROL, parallel=False), None),
    ],
)
def test_the_tool_choice(ask: Ask, choice: Any) -> None:
    body = sent(ask)
    assert body.get("tool_choice") == choice
    assert ("tools" in body) is (choice is not None)
    assert "parallel_tool_calls" not in body


def test_what_a_request_holds_when_it_is_asked_for() -> None:
    assert sent(CONTROL).keys() == {"model", "messages", "stream", "max_tokens"}
    assert sent(replace(FORCED, include_usage=False)) == sent(FORCED)
    assert "temperature" not in sent()
    assert sent(route=replace(ROUTE, temperature=0.0))["temperature"] == 0.0
    assert sent(route=replace(ROUTE, token_cap=TokenCap(None, 4096)))["max_tokens"] == 4096
    other_field = sent(replace(AUTO, tokens_field="max_output_tokens"))
    assert (other_field.get("max_tokens"), other_field["max_output_tokens"]) == (None, 1024)
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert sent(route=replace(ROUTE, body={"thinking": thinking}))["thinking"] == thinking


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h", "https://h/v1/messages"),
        ("https://h/", "https://h/v1/messages"),
        ("https://h/v1", "https://h/v1/messages"),
        ("https://h/v1/", "https://h/v1/messages"),
        ("https://h/v1/messages", "https://h/v1/messages"),
        ("https://h/v1/messages/", "https://h/v1/messages"),
        ("https://h/anthropic", "https://h/anthropic/v1/messages"),
        ("https://h/anthropic/v1", "https://h/anthropic/v1/messages"),
        ("https://h/api/messages", "https://h/api/messages"),
        ("https://h?beta=true", "https://h/v1/messages?beta=true"),
        ("https://h/v1/messages?beta=true", "https://h/v1/messages?beta=true"),
        ("https://h:8443/rev1", "https://h:8443/rev1/v1/messages"),
    ],
)
def test_urls(base: str, url: str) -> None:
    assert DIALECT.encode(replace(ROUTE, base_url=base), FORCED).url == url


def test_headers_name_the_version_and_a_route_may_name_another() -> None:
    headers = {"content-type": "application/json", "accept": "text/event-stream", "cache-control": "no-cache"}
    assert DIALECT.encode(ROUTE, FORCED).headers == {**headers, "anthropic-version": "2023-06-01"}
    own = {"Anthropic-Version": "2099-01-01", "Anthropic-Beta": "b-1"}
    assert DIALECT.encode(replace(ROUTE, headers=own), FORCED).headers == {
        **headers,
        "anthropic-version": "2099-01-01",
        "anthropic-beta": "b-1",
    }


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        (None, {"x-api-key": "sk-1"}),
        (Auth.X_API_KEY, {"x-api-key": "sk-1"}),
        (Auth.BEARER, {"authorization": "Bearer sk-1"}),
        (Auth.API_KEY, {"api-key": "sk-1"}),
        (Auth.NONE, {}),
    ],
)
def test_the_credential(auth: Auth | None, headers: dict[str, str]) -> None:
    assert DIALECT.authorize(replace(ROUTE, auth=auth), Credentials(key=Secret("sk-1"))) == headers
    assert DIALECT.authorize(replace(ROUTE, auth=auth), Credentials()) == {}


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (MESSAGE, True),
        ({"data": MESSAGE}, True),
        ({"role": "assistant", "content": [{"type": "text", "text": "x"}]}, True),
        ({"content": [], "stop_reason": "end_turn"}, True),
        ({"type": "error", "error": {"type": "api_error", "message": "x"}}, False),
        ({"object": "chat.completion", "choices": []}, False),
        ({"content": "words", "role": "assistant"}, False),
        ({"data": [MESSAGE]}, False),
        ([MESSAGE], False),
        ("message", False),
    ],
)
def test_whole_messages(body: Any, whole: bool) -> None:
    assert DIALECT.is_completion(body) is whole
