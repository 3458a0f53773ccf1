"""OpenAI Chat Completions, streamed: `POST /chat/completions` and its chunks.

Announced end: a non-empty `finish_reason` that isn't an error, or `[DONE]`. Call identity: an explicit `index` names
a slot, and a new `id` on a used slot opens a new call; without an index the id, else the call last touched at that
position of the delta's array, else the call that is open (corpus: delta-index-always-zero-dynamo,
x-unindexed-calls-one-after-the-other).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from service.dialects.base import Reader, bearer_or_header, cap_field
from service.dialects.calls import Draft
from service.dialects.wire import as_count, as_slot, json_schema, post, with_path
from service.model import Ask, Auth, Choice, Credentials, Message, Route, Tool, WireRequest
from service.refusal import is_error_object
from service.sse import Event

_PATH = "/chat/completions"
_MOST_CALLS = 256

# A chunk with choices is an error only if one of these is among its fields.
_OF_ERRORS = frozenset({"error", "errors", "fault", "errorMessage", "base_resp", "x_groq"})
_QUIET_ERRORS = frozenset({"error", "network_error", "insufficient_system_resource"})
# Beside the dialect's own words those that gateways pass on from other dialects.
_FILTERS = frozenset({"content_filter", "sensitive", "safety", "prohibited_content", "refusal"})
_CAPPED = frozenset({"length", "max_tokens"})
_REASONING = ("reasoning_content", "reasoning")
# Fields of a message and of its calls that go back with a replay, under their own names.
_REPLAYED = re.compile(r"reasoning|thinking|thought|signature|extra_content|provider_specific_fields")
_GROWING = frozenset({"text", "thinking", "summary", "data"})
_GROWING_TYPES = frozenset({"text", "thinking"})
_FOREIGN_TYPES = ("response.", "message_", "content_block_")


class ChatReader(Reader):
    """Reads chat.completion chunks."""

    usage_field = "stream_options"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._slots: dict[int, Draft] = {}
        self._by_id: dict[str, Draft] = {}
        self._by_position: dict[int, Draft] = {}
        self._open: Draft | None = None
        self._finish: str | None = None
        self._kept: dict[str, list[Any]] = {}
        self._contents: list[str | dict[str, Any]] = []

    def _read(self, event: Event, data: str) -> None:
        if data == "[DONE]":
            self.complete = True
            if self.error is None:
                self.announced = self.announced or "[DONE]"
            return
        chunk = self.object_in(event, data)
        if chunk is not None:
            self._chunk(chunk)

    def close_quirks(self) -> set[str]:
        quirks = super().close_quirks()
        if self.announced is None:
            return quirks
        if not self.complete:
            quirks.add("done_missing")
        if self._finish is None:
            quirks.add("finish_reason_missing")
        elif self._finish == "stop" and self.drafts:
            quirks.add("finish_reason_stop")
        return quirks

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self._usage(chunk)
        if self.done:
            return
        model = chunk.get("model")
        if self.served_model is None and isinstance(model, str) and model:
            self.served_model = model[:200]
        choices = chunk.get("choices")
        if (not choices or not _OF_ERRORS.isdisjoint(chunk)) and is_error_object(chunk):
            self.fail(chunk)
        elif isinstance(choices, list) and choices:
            if isinstance(choices[0], dict):
                self._choice(choices[0])
            else:
                self.mark_broken("choice_not_object")
        elif "choices" not in chunk and _is_foreign(chunk):
            self.mark_broken("foreign_dialect")

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._delta(delta)
        elif choice.get("message"):
            self.mark_broken("message_not_delta")
        elif isinstance(choice.get("text"), str):
            self.mark_broken("foreign_dialect")
        if choice.get("error"):
            self.fail({"error": choice["error"]})
        else:
            self._end(choice)

    def _end(self, choice: dict[str, Any]) -> None:
        finish, native = _word(choice.get("finish_reason")), _word(choice.get("native_finish_reason"))
        if "malformed_function_call" in finish.lower() or "malformed_function_call" in native.lower():
            self.declared_malformed = True
            self._finish = finish or None
            self.announced = finish or native
        elif finish in _QUIET_ERRORS or native in _QUIET_ERRORS:
            quiet = native if native in _QUIET_ERRORS else finish
            self.fail({"code": quiet, "message": f"the stream ended with finish_reason {quiet}"})
        elif finish:
            self.announced = self._finish = finish
            kind = finish.lower().partition(":")[0]
            self.filtered = kind in _FILTERS
            self.capped = kind in _CAPPED

    def _delta(self, delta: dict[str, Any]) -> None:
        self._content(delta.get("content"))
        for name in _REASONING:
            self.add_reasoning(delta.get(name))
        self.add_text(delta.get("refusal"))
        for name, value in delta.items():
            if value and _REPLAYED.search(name) and self.keep_value(value):
                self._kept.setdefault(name, []).append(value)
        legacy = delta.get("function_call")
        if isinstance(legacy, dict) and (legacy.get("name") or legacy.get("arguments")):
            self.deltas += 1
            self.legacy_call = True
        calls = delta.get("tool_calls")
        if isinstance(calls, dict):
            calls = [calls]
            self.quirks.add("tool_calls_not_array")
        if isinstance(calls, list):
            for position, fragment in enumerate(calls):
                if isinstance(fragment, dict):
                    self._fragment(position, fragment)

    def _content(self, content: Any) -> None:
        """A text, or the parts that some reasoning models' servers send in its place."""
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict):
                self.add_text(part.get("text"))
                thinking = part.get("thinking")
                for thought in thinking if isinstance(thinking, list) else [thinking]:
                    self.add_reasoning(thought.get("text") if isinstance(thought, dict) else thought)
                if self.keep_value(part):
                    self._contents.append(part)
            elif isinstance(part, str) and part:
                self.add_text(part)
                self._contents.append(part)

    def _fragment(self, position: int, fragment: dict[str, Any]) -> None:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        call_id = fragment.get("id")
        call_id = call_id if isinstance(call_id, str) else str(call_id) if isinstance(call_id, int) else ""
        name = function.get("name")
        draft = self._draft(position, as_slot(fragment.get("index")), call_id, bool(name))
        if draft is None:
            return
        self.deltas += 1
        self._by_position[position] = self._open = draft
        if isinstance(name, str) and name:
            quirk = draft.add_name(name, self.declared)
            if quirk:
                self.quirks.add(quirk)
        draft.add_arguments(function.get("arguments"))
        self.keep_value(function.get("arguments"))
        for key, value in fragment.items():
            if value and _REPLAYED.search(key) and self.keep_value(value):
                draft.extra[key] = value

    def _wire(self) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": _as_content(self._contents),
            **{name: _joined(pieces) for name, pieces in self._kept.items()},
            "tool_calls": [
                {
                    "id": draft.id,
                    "type": "function",
                    "function": {"name": draft.name, "arguments": draft.arguments},
                    **draft.extra,
                }
                for draft in self.drafts
            ],
        }

    def _draft(self, position: int, slot: int | None, call_id: str, named: bool) -> Draft | None:
        """The call that a fragment belongs to; None when there are too many."""
        if slot is not None:
            draft = self._slots.get(slot)
            if draft is not None and call_id and draft.id and call_id != draft.id:
                known = self._by_id.get(call_id)
                self.quirks.add("index_reused")
                draft = known
            if draft is None:
                draft = self._begin(call_id)
            if draft is not None:
                self._slots[slot] = draft
        else:
            self.quirks.add("index_missing")
            last = self._by_position.get(position) or self._open
            if not call_id:
                draft = last or self._begin("")
            elif call_id in self._by_id:
                draft = self._by_id[call_id]
            elif last is not None and not last.id and not (named and last.name):
                draft = last
            else:
                draft = self._begin(call_id)
        if draft is not None and call_id and not draft.id:
            draft.id = call_id
            self._by_id.setdefault(call_id, draft)
        return draft

    def _begin(self, call_id: str) -> Draft | None:
        if len(self.drafts) >= _MOST_CALLS:
            self.mark_broken("too_many_calls")
            return None
        draft = Draft(call_id)
        self.drafts.append(draft)
        if call_id:
            self._by_id.setdefault(call_id, draft)
        return draft

    def _usage(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        if not isinstance(usage, dict) and isinstance(chunk.get("x_groq"), dict):
            usage = chunk["x_groq"].get("usage")
        choices = chunk.get("choices")
        if not isinstance(usage, dict) and isinstance(choices, list) and choices and isinstance(choices[0], dict):
            usage = choices[0].get("usage")
        if isinstance(usage, dict):
            asked, answered = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
            self.tokens_in = self.tokens_in if asked is None else asked
            self.tokens_out = self.tokens_out if answered is None else answered


class OpenAIChat:
    """The dialect of `/chat/completions`, Azure OpenAI's deployments included (a path that is there isn't appended
    twice, and the base's query is kept)."""

    name = "openai-chat"
    mixes_results = False
    cap_fields: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    auth = Auth.BEARER

    def encode(self, route: Route, ask: Ask) -> WireRequest:
        body: dict[str, Any] = {
            "model": route.model,
            "messages": [_message(message) for message in ask.messages],
            "stream": True,
            cap_field(self, ask): route.token_cap.value,
        }
        if ask.include_usage:
            body["stream_options"] = {"include_usage": True}
        if route.temperature is not None:
            body["temperature"] = route.temperature
        if ask.tools:
            body["tools"] = [_declare(tool) for tool in ask.tools]
            body["tool_choice"] = (
                {"type": "function", "function": {"name": ask.tools[0].name}}
                if ask.choice is Choice.FORCED
                else str(ask.choice)
            )
            if ask.parallel is not None:
                body["parallel_tool_calls"] = ask.parallel
        return post(with_path(route.base_url, _PATH), route, body)

    def authorize(self, route: Route, credentials: Credentials) -> Mapping[str, str]:
        return bearer_or_header(route, credentials, self.auth)

    def reader(self, route: Route, ask: Ask, headers: Mapping[str, str], now: datetime) -> Reader:
        return ChatReader(ask, cap=route.token_cap.value, cap_field=cap_field(self, ask), headers=headers, now=now)

    def is_completion(self, body: Any) -> bool:
        if not isinstance(body, dict):
            return False
        inner = body.get("data")
        return "choices" in body or (isinstance(inner, dict) and "choices" in inner)


def _message(message: Message) -> dict[str, Any]:
    if message.replay is not None:
        return dict(message.replay.wire)
    if message.answers is not None:
        return {"role": "tool", "tool_call_id": message.answers.id, "content": message.text}
    shown: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        shown["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return shown


def _as_content(pieces: list[str | dict[str, Any]]) -> Any:
    """A message's content as it came: one text, or parts."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return "".join(texts) or None
    return _joined([[{"type": "text", "text": piece} if isinstance(piece, str) else piece] for piece in pieces])


def _joined(pieces: list[Any]) -> Any:
    """A field that came in pieces: texts are joined; entries of lists are, by index and type."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    if not all(isinstance(piece, list) for piece in pieces):
        return pieces[-1]
    entries: list[Any] = []
    for entry in chain.from_iterable(pieces):
        if entries and _continues(entries[-1], entry):
            _grow(entries[-1], entry)
        else:
            entries.append(dict(entry) if isinstance(entry, dict) else entry)
    return entries


def _grow(entry: dict[str, Any], piece: dict[str, Any]) -> None:
    for key, value in piece.items():
        if key in _GROWING and isinstance(entry.get(key), str) and isinstance(value, str):
            entry[key] += value
        elif key in _GROWING and isinstance(entry.get(key), list) and isinstance(value, list):
            entry[key] = _joined([entry[key], value])
        elif value is not None:
            entry[key] = value


def _continues(entry: Any, piece: Any) -> bool:
    """By the same index; without one, a text or a thought goes on until it is signed."""
    if not isinstance(entry, dict) or not isinstance(piece, dict):
        return False
    if piece.get("index") is None and (piece.get("type") not in _GROWING_TYPES or entry.get("signature")):
        return False
    return all(piece.get(key) in (None, entry.get(key)) for key in ("type", "index", "id"))


def _declare(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": json_schema(tool),
        },
    }


def _is_foreign(chunk: Mapping[str, Any]) -> bool:
    kind = chunk.get("type")
    return (isinstance(kind, str) and kind.startswith(_FOREIGN_TYPES)) or "candidates" in chunk


def _word(value: Any) -> str:
    return value.strip()[:60] if isinstance(value, str) else ""
