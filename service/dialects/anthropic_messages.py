"""Anthropic Messages, streamed: `POST /v1/messages` and its typed events.

Announced end: `message_delta` with a `stop_reason`, or `message_stop`; a `[DONE]` that gateways add is neither an end
nor a fault. A call is a `tool_use` block, and blocks are told apart by their index, never by their order. Deltas say
what the input is; the one that a block opens with counts only where none follow (as clients hold it).

What can still be judged is judged: a missing `message_start`, index gaps and unclosed blocks are oddities. Pieces of an
input that belong to no call are a broken stream, because the call's name is lost with its block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from service.dialects.base import Reader, bearer_or_header, cap_field, grouped
from service.dialects.calls import Draft
from service.dialects.wire import as_count, as_slot, as_text, json_schema, post
from service.model import Ask, Auth, Choice, Credentials, Message, Reading, Role, Route, Tool, WireRequest
from service.refusal import is_error_object
from service.sse import Event

_VERSION = "2023-06-01"
_MOST_BLOCKS = 256

_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
_FOREIGN_TYPES = ("response.", "completion")
_FOREIGN_KEYS = ("choices", "candidates")
_OF_TEXT = frozenset({"text", "thinking", "redacted_thinking"})
# Beside the dialect's own words those that gateways pass on from other dialects.
_CAPPED = frozenset({"max_tokens", "length"})
_FILTERS = frozenset({"refusal", "content_filter", "safety", "sensitive"})
_QUIET_ERRORS = frozenset({"error", "network_error", "insufficient_system_resource"})
_NOT_FOR_CALLS = frozenset({"end_turn", "stop_sequence", "stop"})
_INPUT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _ToolUse(Draft):
    """A tool_use block. `opening` is the input that it began with, if any."""

    __slots__ = ("opening",)

    def __init__(self, call_id: str, opening: str) -> None:
        super().__init__(call_id)
        self.opening = opening

    def settle(self) -> None:
        """Leave in `fragments` what counts, once nothing more comes."""
        if not self.arguments and self.opening:
            self.fragments = [self.opening]


class _Block:
    """A block of the message. `given` is what it began with, `pieces` what its deltas added, by field."""

    __slots__ = ("call", "closed", "given", "kind", "pieces")

    def __init__(self, kind: str, call: _ToolUse | None, given: dict[str, Any]) -> None:
        self.kind = kind
        self.call = call
        self.closed = False
        self.given = given
        self.pieces: dict[str, list[str]] = {}

    def keep(self, delta: dict[str, Any]) -> None:
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                self.pieces.setdefault(name, []).append(delta[name])

    def wire(self) -> dict[str, Any]:
        """The block as it goes back."""
        if self.call is not None:
            return {**self.given, "input": json.loads(self.call.arguments or "{}")}
        return {**self.given, **{name: as_text(self.given.get(name)) + "".join(p) for name, p in self.pieces.items()}}


class MessagesReader(Reader):
    """Reads the typed events of a message."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._started = False
        self._blocks: dict[int, _Block] = {}
        self._message: list[_Block] = []  # two blocks can come under one index
        self._open: _Block | None = None
        self._stop_reason: str | None = None
        self._input_tokens: dict[str, int] = {}

    def _read(self, event: Event, data: str) -> None:
        if data == "[DONE]":
            return
        chunk = self.object_in(event, data)
        if chunk is None:
            return
        kind = as_text(chunk.get("type"))
        if kind:
            if kind in _EVENTS and event.name == "message":
                self.quirks.add("event_name_missing")
            self._typed(kind, chunk)
        elif event.name in _EVENTS:
            self._typed(event.name, chunk)
        elif chunk.get("error") or is_error_object(chunk):
            self.fail(chunk)
        else:
            self._foreign(chunk)

    def close_quirks(self) -> set[str]:
        quirks = super().close_quirks()
        if self.announced is None:
            return quirks
        if not self.complete:
            quirks.add("message_stop_missing")
        if self._stop_reason is None:
            quirks.add("finish_reason_missing")
        elif self._stop_reason in _NOT_FOR_CALLS and self.drafts:
            quirks.add("finish_reason_stop")
        if any(block.call and not block.closed for block in self._blocks.values()):
            quirks.add("block_stop_missing")
        return quirks

    def result(self) -> Reading:
        for draft in self.drafts:
            if isinstance(draft, _ToolUse):
                draft.settle()
        return super().result()

    def _typed(self, kind: str, chunk: dict[str, Any]) -> None:
        if kind == "message_delta":
            self._usage(chunk.get("usage"), whole=True)
        if kind == "message_stop":
            self._message_stop()
        elif kind == "content_block_stop":
            self._block_stop(chunk.get("index"))
        elif self.done:
            return
        elif chunk.get("error") or kind.endswith("error"):
            self.fail(chunk)
        elif kind == "message_start":
            self._message_start(_dict(chunk.get("message")))
        elif kind in _EVENTS:
            if not self._started:
                self.quirks.add("message_start_missing")
            if kind == "content_block_start":
                self._block_start(chunk.get("index"), _dict(chunk.get("content_block")))
            elif kind == "content_block_delta":
                self._block_delta(chunk.get("index"), _dict(chunk.get("delta")))
            else:
                self._end(as_text(_dict(chunk.get("delta")).get("stop_reason")).strip())
        elif kind == "message":
            self.mark_broken("message_not_delta")
        else:
            self._foreign(chunk)

    def _foreign(self, chunk: dict[str, Any]) -> None:
        if as_text(chunk.get("type")).startswith(_FOREIGN_TYPES) or any(key in chunk for key in _FOREIGN_KEYS):
            self.mark_broken("foreign_dialect")

    def _wire(self) -> dict[str, Any]:
        blocks = [block.wire() for block in self._message]
        return {"role": "assistant", "content": [block for block in blocks if block.get("text") != ""]}

    # --- the message ---

    def _message_start(self, message: dict[str, Any]) -> None:
        self._started = True
        if self.served_model is None:
            self.served_model = as_text(message.get("model"))[:200] or None
        self._usage(message.get("usage"), whole=False)

    def _message_stop(self) -> None:
        self.complete = True
        if self.error is None:
            self.announced = self.announced or "message_stop"

    def _end(self, reason: str) -> None:
        word = reason.lower()
        if word in _QUIET_ERRORS:
            self.fail({"code": word, "message": f"the stream ended with stop_reason {word}"})
        elif word:
            self.announced = self._stop_reason = reason[:60]
            self.capped = word in _CAPPED
            self.filtered = word in _FILTERS
            self.declared_malformed = word == "malformed_function_call"

    def _usage(self, usage: Any, *, whole: bool) -> None:
        """Counts are totals so far: none is added to another of its name, and a later zero (relays send one beside the
        output's count) takes nothing back. The output that a message starts with is a placeholder."""
        usage = _dict(usage)
        for name in _INPUT_TOKENS:
            count = as_count(usage.get(name))
            if count is not None:
                self._input_tokens[name] = max(count, self._input_tokens.get(name, 0))
                self.tokens_in = sum(self._input_tokens.values())
        count = as_count(usage.get("output_tokens")) if whole else None
        if count is not None:
            self.tokens_out = max(count, self.tokens_out or 0)

    # --- its blocks ---

    def _block_start(self, at: Any, content: dict[str, Any]) -> None:
        kind = as_text(content.get("type"))
        slot = self._slot(at)
        if slot is None:
            slot = max(self._blocks, default=-1) + 1
        elif slot in self._blocks:
            self.quirks.add("index_reused")
        elif slot > len(self._blocks):
            self.quirks.add("block_index_gap")
        known = self._blocks.get(slot)
        if known is not None and known.call and kind == "tool_use" and known.call.id == _id(content):
            return
        if len(self._message) >= _MOST_BLOCKS:
            self.mark_broken("too_many_blocks")
            return
        self.keep_value(content)
        call = self._begin(content) if kind == "tool_use" else None
        self._blocks[slot] = self._open = _Block(kind, call, content)
        self._message.append(self._open)
        self.add_text(content.get("text"))
        self.add_reasoning(content.get("thinking"))
        if kind == "redacted_thinking":
            self.deltas += 1

    def _begin(self, content: dict[str, Any]) -> _ToolUse:
        given = content.get("input")
        try:
            opening = "" if given in (None, "", {}) else json.dumps(given)
        except RecursionError:  # as deep as the parser goes, and a little deeper than the encoder does
            opening = ""
            self.mark_broken("data_not_json")
        call = _ToolUse(_id(content), opening)
        call.add_name(as_text(content.get("name")), self.declared)
        self.deltas += 1
        self.drafts.append(call)
        return call

    def _block_delta(self, at: Any, delta: dict[str, Any]) -> None:
        slot = self._slot(at)
        block = self._open if slot is None else self._blocks.get(slot)
        if delta.get("type") == "input_json_delta":
            self._input(block, delta.get("partial_json"))
            return
        if block is None:
            self.quirks.add("block_start_missing")
        elif self.keep(len(as_text(delta.get("thinking"))) + len(as_text(delta.get("signature")))):
            block.keep(delta)
        self.add_text(delta.get("text"))
        self.add_reasoning(delta.get("thinking"))
        if delta.get("signature"):
            self.deltas += 1

    def _input(self, block: _Block | None, piece: Any) -> None:
        if piece is None or piece == "":
            return
        self.deltas += 1
        self.keep(len(as_text(piece)))
        if block is None:
            self.mark_broken("delta_without_start")
        elif block.call is not None:
            block.call.add_arguments(piece)
        elif block.kind in _OF_TEXT:
            self.mark_broken("delta_of_other_block")

    def _block_stop(self, at: Any) -> None:
        slot = self._slot(at)
        block = self._open if slot is None else self._blocks.get(slot)
        if block is not None:
            block.closed = True

    def _slot(self, index: Any) -> int | None:
        """A block's index as a number; a string of digits names it all the same."""
        slot = as_slot(index)
        if slot is None:
            self.quirks.add("index_missing")
        return slot


class AnthropicMessages:
    """The dialect of `/v1/messages`. `base_url` is the host, as SDKs take it; a path that is there already isn't
    appended twice."""

    name = "anthropic-messages"
    mixes_results = True
    cap_fields: tuple[str, ...] = ("max_tokens",)
    auth = Auth.X_API_KEY

    def encode(self, route: Route, ask: Ask) -> WireRequest:
        body: dict[str, Any] = {
            "model": route.model,
            "messages": [_message(group) for group in grouped(ask.messages)],
            "stream": True,
            cap_field(self, ask): route.token_cap.value,
        }
        if route.temperature is not None:
            body["temperature"] = route.temperature
        if ask.tools:
            body["tools"] = [_declare(tool) for tool in ask.tools]
            body["tool_choice"] = _choice(ask)
        return post(_url(route.base_url), route, body, anthropic_version=_VERSION)

    def authorize(self, route: Route, credentials: Credentials) -> Mapping[str, str]:
        return bearer_or_header(route, credentials, self.auth)

    def reader(self, route: Route, ask: Ask, headers: Mapping[str, str], now: datetime) -> Reader:
        return MessagesReader(ask, cap=route.token_cap.value, cap_field=cap_field(self, ask), headers=headers, now=now)

    def is_completion(self, body: Any) -> bool:
        if not isinstance(body, dict):
            return False
        return any(
            isinstance(one, dict) and isinstance(one.get("content"), list) and ("role" in one or "stop_reason" in one)
            for one in (body, body.get("data"))
        )


def _url(base: str) -> str:
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    if not path.endswith("/messages"):
        path += "/messages" if path.endswith("/v1") else "/v1/messages"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _message(group: list[Message]) -> dict[str, Any]:
    """One message, or neighbouring results in the one message that carries them."""
    message = group[0]
    if message.role is Role.RESULT:
        blocks: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": one.answers.id, "content": one.text} for one in group if one.answers
        ]
        blocks += [{"type": "text", "text": one.beside} for one in group if one.beside]
        return {"role": "user", "content": blocks}
    if message.replay is not None:
        return dict(message.replay.wire)
    if not message.calls:
        return {"role": message.role, "content": message.text}
    uses = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in message.calls
    ]
    return {"role": message.role, "content": [{"type": "text", "text": message.text}, *uses]}


def _declare(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": json_schema(tool),
    }


def _choice(ask: Ask) -> dict[str, Any]:
    choice: dict[str, Any] = (
        {"type": "tool", "name": ask.tools[0].name} if ask.choice is Choice.FORCED else {"type": str(ask.choice)}
    )
    if ask.parallel is not None and ask.choice is not Choice.NONE:
        choice["disable_parallel_tool_use"] = not ask.parallel
    return choice


def _id(content: Mapping[str, Any]) -> str:
    given = content.get("id")
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else as_text(given)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
