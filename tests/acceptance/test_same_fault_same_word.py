"""One fault, one word: whatever the dialect, the same thing gone wrong gets the same status and reason."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from service.demo.scenario import Scenario
from service.dialects import DIALECTS
from service.model import Credentials, Secret
from service.probe import Moment, Prober
from service.transport import Transport
from tests.acceptance.test_corpus import KEY, route_for
from tests.peer import playing

OK = {"value": "ok"}
LEAKED = '<tool_call>{"name": "{{TOOL}}", "arguments": {"value": "ok"}}</tool_call>'
PAGE = "<!doctype html><html><head><title>Welcome</title></head><body>Welcome</body></html>"

Events = list[str]
Reply = dict[str, Any]


def block(data: Any, *, named: bool = False) -> str:
    line = f"data: {json.dumps(data, separators=(',', ':'))}"
    return f"event: {data['type']}\n{line}" if named else line


class Wire(ABC):
    """How one dialect says the things that a fault is made of. `refusals` are statuses and bodies by what they mean."""

    refusals: ClassVar[Mapping[str, tuple[int, Any]]]

    @abstractmethod
    def start(self) -> Events: ...

    @abstractmethod
    def call(self, arguments: dict[str, Any], name: str = "{{TOOL}}") -> Events: ...

    @abstractmethod
    def text(self, text: str) -> Events: ...

    @abstractmethod
    def end(self, why: str) -> Events:
        """The announced end after a `call` or a `text`, by a `filter`, or because our `cap` was met."""

    @abstractmethod
    def error(self, kind: str) -> Events:
        """An error inside the stream that says nothing (`server`) or that capacity lacks (`overload`)."""

    @abstractmethod
    def whole(self) -> Any:
        """A completion with a call as one JSON body."""

    def foreign(self) -> Events:
        """Events of another dialect."""
        return Chat().start() + Chat().call(OK) + Chat().end("call")


class Chat(Wire):
    refusals: ClassVar = {
        "auth": (401, {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}),
        "quota": (429, {"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}}),
        "rate": (429, {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}}),
        "overload": (503, {"error": {"message": "Busy.", "type": "server_error"}}),
        "model": (404, {"error": {"message": "The model `{{MODEL}}` does not exist.", "code": "model_not_found"}}),
        "tools": (400, {"error": {"message": "Tools are not supported here.", "type": "invalid_request_error"}}),
        "server": (500, {"error": {"message": "Something went wrong.", "type": "server_error"}}),
    }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return block({"object": "chat.completion.chunk", "model": "{{MODEL}}", "choices": [choice]})

    def start(self) -> Events:
        return [self._chunk({"role": "assistant", "content": ""})]

    def call(self, arguments: dict[str, Any], name: str = "{{TOOL}}") -> Events:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return [self._chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})]

    def text(self, text: str) -> Events:
        return [self._chunk({"content": text})]

    def end(self, why: str) -> Events:
        finish = {"call": "tool_calls", "text": "stop", "filter": "content_filter", "cap": "length"}[why]
        return [self._chunk({}, finish), "data: [DONE]"]

    def error(self, kind: str) -> Events:
        code = {"server": None, "overload": "server_overloaded"}[kind]
        return [block({"error": {"message": "Something went wrong.", "code": code}})]

    def whole(self) -> Any:
        function = {"name": "{{TOOL}}", "arguments": json.dumps(OK)}
        message = {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
        return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "tool_calls"}]}

    def foreign(self) -> Events:
        return Responses().start() + Responses().call(OK) + Responses().end("call")


class Responses(Wire):
    refusals = Chat.refusals

    def _event(self, kind: str, **fields: Any) -> str:
        return block({"type": f"response.{kind}", **fields}, named=True)

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {"id": "resp_1", "object": "response", "status": status, "model": "{{MODEL}}", "output": [], **fields}

    def _item(self, arguments: str, name: str = "{{TOOL}}") -> dict[str, Any]:
        return {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments}

    def start(self) -> Events:
        return [self._event("created", response=self._response("in_progress"))]

    def call(self, arguments: dict[str, Any], name: str = "{{TOOL}}") -> Events:
        whole = json.dumps(arguments)
        place = {"output_index": 0, "item_id": "fc_1"}
        return [
            self._event("output_item.added", output_index=0, item=self._item("", name)),
            self._event("function_call_arguments.delta", **place, delta=whole),
            self._event("function_call_arguments.done", **place, arguments=whole),
            self._event("output_item.done", output_index=0, item=self._item(whole, name)),
        ]

    def text(self, text: str) -> Events:
        return [self._event("output_text.delta", output_index=0, item_id="msg_1", content_index=0, delta=text)]

    def end(self, why: str) -> Events:
        if why in ("call", "text"):
            return [self._event("completed", response=self._response("completed"))]
        reason = {"filter": "content_filter", "cap": "max_output_tokens"}[why]
        response = self._response("incomplete", incomplete_details={"reason": reason})
        return [self._event("incomplete", response=response)]

    def error(self, kind: str) -> Events:
        code = {"server": "server_error", "overload": "server_overloaded"}[kind]
        error = {"code": code, "message": "Something went wrong."}
        return [self._event("failed", response=self._response("failed", error=error))]

    def whole(self) -> Any:
        return self._response("completed") | {"output": [self._item(json.dumps(OK))]}


class Messages(Wire):
    refusals: ClassVar = {
        name: (status, {"type": "error", "error": {"type": kind, "message": message}})
        for name, (status, kind, message) in {
            "auth": (401, "authentication_error", "invalid x-api-key"),
            "quota": (400, "invalid_request_error", "Your credit balance is too low to access the API."),
            "rate": (429, "rate_limit_error", "Slow down."),
            "overload": (529, "overloaded_error", "Overloaded"),
            "model": (404, "not_found_error", "model: {{MODEL}}"),
            "tools": (400, "invalid_request_error", "tools: Extra inputs are not permitted"),
            "server": (500, "api_error", "Internal server error"),
        }.items()
    }

    def _event(self, kind: str, **fields: Any) -> str:
        return block({"type": kind, **fields}, named=True)

    def _message(self, content: list[Any], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "{{MODEL}}",
            "content": content,
            "stop_reason": stop_reason,
            "usage": {"input_tokens": 62, "output_tokens": 1},
        }

    def _block(self, opening: dict[str, Any], delta: dict[str, Any]) -> Events:
        return [
            self._event("content_block_start", index=0, content_block=opening),
            self._event("content_block_delta", index=0, delta=delta),
            self._event("content_block_stop", index=0),
        ]

    def start(self) -> Events:
        return [self._event("message_start", message=self._message([], None))]

    def call(self, arguments: dict[str, Any], name: str = "{{TOOL}}") -> Events:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        return self._block({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}, delta)

    def text(self, text: str) -> Events:
        return self._block({"type": "text", "text": ""}, {"type": "text_delta", "text": text})

    def end(self, why: str) -> Events:
        reason = {"call": "tool_use", "text": "end_turn", "filter": "refusal", "cap": "max_tokens"}[why]
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [self._event("message_delta", delta=delta, usage={"output_tokens": 18}), self._event("message_stop")]

    def error(self, kind: str) -> Events:
        name = {"server": "api_error", "overload": "overloaded_error"}[kind]
        return [self._event("error", error={"type": name, "message": "Something went wrong."})]

    def whole(self) -> Any:
        return self._message([{"type": "tool_use", "id": "toolu_1", "name": "{{TOOL}}", "input": OK}], "tool_use")


class Gemini(Wire):
    refusals: ClassVar = {
        name: (code, {"error": {"code": code, "message": message, "status": status}})
        for name, (code, status, message) in {
            "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
            "quota": (400, "FAILED_PRECONDITION", "Billing is not enabled: billing not enabled for this project."),
            "rate": (429, "RESOURCE_EXHAUSTED", "Slow down."),
            "overload": (503, "UNAVAILABLE", "The model is overloaded."),
            "model": (404, "NOT_FOUND", "models/{{MODEL}} is not found for API version v1beta."),
            "tools": (400, "INVALID_ARGUMENT", "Function calling is not enabled for models/{{MODEL}}"),
            "server": (500, "INTERNAL", "An internal error has occurred."),
        }.items()
    }

    def _chunk(self, part: dict[str, Any] | None, finish: str | None = None) -> str:
        content = {"role": "model", "parts": [part]} if part is not None else {}
        candidate = {"content": content, "index": 0, **({"finishReason": finish} if finish else {})}
        return block({"candidates": [candidate], "modelVersion": "{{MODEL}}"})

    def start(self) -> Events:
        return [self._chunk({"text": ""})]

    def call(self, arguments: dict[str, Any], name: str = "{{TOOL}}") -> Events:
        return [self._chunk({"functionCall": {"name": name, "args": arguments}})]

    def text(self, text: str) -> Events:
        return [self._chunk({"text": text})]

    def end(self, why: str) -> Events:
        finish = {"call": "STOP", "text": "STOP", "filter": "SAFETY", "cap": "MAX_TOKENS"}[why]
        return [self._chunk(None, finish)]

    def error(self, kind: str) -> Events:
        code, status = {"server": (500, "INTERNAL"), "overload": (503, "OVERLOADED")}[kind]
        return [block({"error": {"code": code, "message": "Something went wrong.", "status": status}})]

    def whole(self) -> Any:
        content = {"role": "model", "parts": [{"functionCall": {"name": "{{TOOL}}", "args": OK}}]}
        return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}


WIRES: Mapping[str, Wire] = {
    "openai-chat": Chat(),
    "openai-responses": Responses(),
    "anthropic-messages": Messages(),
    "gemini": Gemini(),
}


def stream(*parts: Events, end: str = "clean") -> Reply:
    headers = {"content-type": "text/event-stream"}
    body = [event for part in parts for event in part]
    return {"status": 200, "headers": headers, "framing": "events", "body": body, "end": end}


def data(status: int, body: Any) -> Reply:
    return {"status": status, "headers": {"content-type": "application/json"}, "framing": "json", "body": body}


def healthy(wire: Wire) -> Reply:
    return stream(wire.start(), wire.call(OK), wire.end("call"))


def answer(wire: Wire) -> Reply:
    return stream(wire.start(), wire.text("Everything is in place."), wire.end("text"))


def refusal(kind: str) -> Callable[[Wire], Reply]:
    return lambda wire: data(*wire.refusals[kind])


@dataclass(frozen=True)
class Fault:
    """What goes wrong, by the kind of request; the first kind that fits answers. `any` stands for the requests with
    tools, whose control is answered, and `all` for every request."""

    what: str
    status: str
    reason: str | None
    replies: Mapping[str, Callable[[Wire], Reply]]
    deadline_s: float = 20

    def scenario(self, dialect: str) -> Scenario:
        wire = WIRES[dialect]
        whens = {"any": "not:no_tools", "all": "any"}
        replies = [{"when": whens.get(when, when), "reply": reply(wire)} for when, reply in self.replies.items()]
        if "all" not in self.replies:
            replies.append({"when": "no_tools", "reply": answer(wire)})
        route = {"deadline_s": self.deadline_s}
        return Scenario.parse({"id": "fault", "dialect": dialect, "replies": replies, "route": route})


def every(what: str, status: str, reason: str | None, reply: Callable[[Wire], Reply], **fields: Any) -> Fault:
    """Every request fares alike."""
    return Fault(what, status, reason, {"all": reply}, **fields)


def tools(what: str, status: str, reason: str | None, reply: Callable[[Wire], Reply]) -> Fault:
    """The requests with tools fare so, the control is answered."""
    return Fault(what, status, reason, {"any": reply})


def bad_call(arguments: dict[str, Any], name: str = "{{TOOL}}") -> Callable[[Wire], Reply]:
    return lambda wire: stream(wire.start(), wire.call(arguments, name), wire.end("call"))


def page(status: int) -> Callable[[Wire], Reply]:
    reply = {"status": status, "headers": {"content-type": "text/html"}, "framing": "text", "body": PAGE}
    return lambda wire: reply


FAULTS = [
    tools("none", "tools_supported", None, healthy),
    tools("early end after a whole call", "stream_early_eof", "closed_after_event", lambda wire: stream(wire.start(), wire.call(OK))),
    tools("early end before any event", "stream_early_eof", "closed_before_event", lambda wire: stream()),
    tools("reset in mid-answer", "stream_early_eof", "reset_after_event", lambda wire: stream(wire.start(), wire.text("W"), end="reset")),
    every("error event before anything", "provider_error", None, lambda wire: stream(wire.error("server"))),
    every("overload event before anything", "overloaded", None, lambda wire: stream(wire.error("overload"))),
    tools("error event behind a whole call", "provider_error", None, lambda wire: stream(wire.start(), wire.call(OK), wire.error("server"))),
    tools("overload event behind a whole call", "overloaded", None, lambda wire: stream(wire.start(), wire.call(OK), wire.error("overload"))),
    tools("tools refused by an event, control answered", "tools_payload_rejected", None, lambda wire: stream(wire.error("server"))),
    tools("arguments without what is required", "malformed_tool_call", "arguments_missing_required", bad_call({"other": "ok"})),
    tools("arguments of another type", "malformed_tool_call", "arguments_schema_violation", bad_call({"value": 1})),
    tools("call markup in an argument", "malformed_tool_call", "arguments_polluted", bad_call({"value": "ok</parameter>"})),
    tools("a call by another name", "malformed_tool_call", "name_not_declared", bad_call(OK, "shell")),
    tools("a call leaked as text", "tool_call_leaked_as_text", "hermes", lambda wire: stream(wire.start(), wire.text(LEAKED), wire.end("text"))),
    tools("forced choice ignored, nothing under auto", "forced_tool_choice_ignored", None, answer),
    Fault("forced choice ignored, a call under auto", "tools_supported", None, {"forced": answer, "auto": healthy}),
    Fault("forced choice refused, a call under auto", "forced_tool_choice_rejected", "http_400", {"forced": refusal("tools"), "auto": healthy}),
    Fault("forced choice ignored, auto refused", "auto_tool_choice_rejected", "http_400", {"forced": answer, "auto": refusal("tools")}),
    Fault("forced choice refused, text under auto", "inconclusive_no_tool_call", "text_under_auto", {"forced": refusal("tools"), "auto": answer}),
    tools("tools refused", "tools_payload_rejected", "http_400", refusal("tools")),
    tools("tools refused with a server fault", "tools_payload_rejected", "http_500", refusal("server")),
    every("everything refused", "provider_error", "http_400", refusal("tools")),
    every("outage", "provider_error", "http_500", refusal("server")),
    every("credential", "endpoint_auth_failed", None, refusal("auth")),
    every("credit", "quota_or_routing_failed", None, refusal("quota")),
    every("rate", "rate_limited", "http_429", refusal("rate")),
    every("overload", "overloaded", None, refusal("overload")),
    every("model", "model_unavailable", "http_404", refusal("model")),
    every("a page in place of the API", "endpoint_not_found", None, page(200)),
    every("a firewall's page", "region_blocked", None, page(403)),
    tools("one JSON body in place of a stream", "stream_ignored", "json_completion", lambda wire: data(200, wire.whole())),
    tools("another dialect's events", "malformed_stream", "foreign_dialect", lambda wire: stream(wire.foreign())),
    tools("data that isn't JSON", "malformed_stream", "data_not_json", lambda wire: stream(wire.start(), ['data: {"oops'], wire.call(OK), wire.end("call"))),
    every("a filter", "content_filtered", None, lambda wire: stream(wire.start(), wire.end("filter"))),
    tools("cut by our cap before anything", "inconclusive_no_tool_call", "token_cap", lambda wire: stream(wire.start(), wire.end("cap"))),
    tools("cut by our cap in a text", "inconclusive_no_tool_call", "token_cap", lambda wire: stream(wire.start(), wire.text("Well"), wire.end("cap"))),
    every("silence behind the start", "timeout", "stalled", lambda wire: stream(wire.start(), end="hang"), deadline_s=3),
    tools("silence behind the announced end", "tools_supported", None, lambda wire: stream(wire.start(), wire.call(OK), wire.end("call")[:1], end="hang")),
]  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
async def test_the_word_is_the_same_in_every_dialect(fault: Fault, dialect: str) -> None:
    scenario = fault.scenario(dialect)
    async with playing([scenario]) as peer, Transport() as transport:
        route = route_for(scenario, peer.url(scenario.id))
        credentials = Credentials(key=Secret(KEY))
        probed = await Prober(transport, "here").probe(route, "native_tools", credentials, Moment.now())
    verdict = probed.verdict
    assert verdict.status == fault.status, str(verdict.rungs)
    assert fault.reason in (None, verdict.reason), str(verdict.rungs)


def test_every_dialect_has_its_wire() -> None:
    assert WIRES.keys() >= DIALECTS.keys()
