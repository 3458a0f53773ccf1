"""OpenAI Responses, streamed: `POST /responses` and its typed events.

Announced end: `response.completed`, `.incomplete`, `.failed` or an error; `[DONE]` alone is none. An output item is the
call: clients dispatch what `output_item.done` or the final response holds, and others what the deltas add up to. So
deltas that stop short of the whole are an oddity, and a whole that says something else than they do is a broken call.
Call identity: `call_id` is what a result answers to; events point at their item by `item_id`, else by `output_index`,
else they belong to the item that is open (corpus: dia-responses-llamacpp-missing-fields).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from service.dialects.base import Reader, bearer_or_header, cap_field
from service.dialects.calls import Draft, arguments_problem
from service.dialects.wire import as_count, as_text, json_schema, post, with_path
from service.model import Ask, Auth, Call, Choice, Credentials, Message, Reading, Route, Tool, WireRequest
from service.refusal import is_error_object
from service.sse import Event

_PATH = "/responses"
_MOST_CALLS = 256

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_FAILED = frozenset({"failed", "cancelled"})
# Beside the dialect's own words those that gateways pass on from other dialects.
_CAPPED = frozenset({"max_output_tokens", "max_tokens", "length"})
_FILTERS = frozenset({"content_filter", "safety", "refusal"})
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_WHOLE_TEXTS = frozenset({"response.output_text.done", "response.refusal.done"})
_FOREIGN_TYPES = ("message_", "content_block_")
_FOREIGN_KEYS = ("choices", "candidates")


_Identities = tuple[str, str, int | None]
"""call_id, item id and output_index, as far as an event names them."""


class _Call(Draft):
    """A function_call item. `fragments` are its deltas until `settle` puts there what counts."""

    __slots__ = ("closed", "conflict", "item_id", "opening", "slot", "wholes")

    def __init__(self, call_id: str, item_id: str, slot: int | None) -> None:
        super().__init__(call_id)
        self.item_id = item_id
        self.slot = slot
        self.opening: str | None = None
        self.wholes: list[str] = []
        self.closed = False
        self.conflict: str | None = None

    def likeness(self, call_id: str, item_id: str, slot: int | None) -> int:
        """How sure it is that these identities are this call's; 0 when none of them is."""
        same_call, same_item = call_id and call_id == self.id, item_id and item_id == self.item_id
        return 4 * bool(same_call) + 2 * bool(same_item) + (slot is not None and slot == self.slot)

    def could_be(self, call_id: str, item_id: str, slot: int | None) -> bool:
        """Whether none of these identities speaks against this call."""
        pairs = ((call_id, self.id), (item_id, self.item_id), (slot, self.slot))
        return all(given in (None, "") or own in (None, "") or given == own for given, own in pairs)

    def identify(self, call_id: str, item_id: str, slot: int | None, name: Any) -> None:
        """Take what an item says of itself. Another call_id or name than before makes the call undispatchable."""
        name = name if isinstance(name, str) else ""
        if (self.id and call_id and call_id != self.id) or (self.name and name and name != self.name):
            self.conflict = "call_identity_unstable"
        self.id = self.id or call_id
        self.name = self.name or name
        self.item_id = self.item_id or item_id
        self.slot = slot if self.slot is None else self.slot

    def add_whole(self, arguments: Any) -> None:
        """Take what claims to be all of the arguments."""
        if isinstance(arguments, str):
            self.wholes.append(arguments)
        elif arguments is not None:
            self.not_string = True

    def settle(self, tools: Sequence[Tool]) -> str | None:
        """Leave in `fragments` what counts: all that was said of the arguments if it is one and the same, else the
        first of it that can't be dispatched. Returns the quirk that this is, if any."""
        streamed = self.fragments or ([self.opening] if self.opening else [])
        text = "".join(streamed)
        said = [[whole] for whole in self.wholes]
        stopped_short = bool(said) and said[-1][0].startswith(text) and not _is_json(text)
        if not stopped_short:
            said.insert(0, streamed)
        self.fragments = said[0]
        if any(not _same(said[0], other) for other in said[1:]):
            tool = next((tool for tool in tools if tool.name == self.name), None)
            broken = [pieces for pieces in said if tool and arguments_problem(pieces, tool)]
            self.fragments = broken[0] if broken else said[0]
            self.conflict = self.conflict or "arguments_contradicted"
        return "deltas_incomplete" if stopped_short and text not in ("", said[-1][0]) else None


class ResponsesReader(Reader):
    """Reads the typed events of a response."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: list[_Call] = []
        self._by_item: dict[str, _Call] = {}
        self._by_slot: dict[int, _Call] = {}
        self._open: _Call | None = None
        self._items: list[dict[str, Any]] = []

    def _read(self, event: Event, data: str) -> None:
        if self.done or data == "[DONE]":
            return
        chunk = self.object_in(event, data)
        if chunk is None:
            return
        kind = chunk.get("type")
        if isinstance(kind, str) and kind:
            self._typed(kind, chunk)
        else:
            self._untyped(event, chunk)

    def result(self) -> Reading:
        quirks = {call.settle(self.ask.tools) for call in self._calls}
        reading = super().result()
        calls = tuple(
            Call(draft.conflict) if draft.conflict and call.problem is None else call
            for draft, call in zip(self._calls, reading.calls, strict=True)
        )
        return replace(reading, calls=calls, quirks=reading.quirks | {quirk for quirk in quirks if quirk})

    def _wire(self) -> list[dict[str, Any]]:
        """The items as they came; calls whose item never came whole are put together."""
        items = [item for item in self._items if item.get("type") != "function_call" or _ids(item)[0]]
        known = {_ids(item)[0] for item in items}
        return [
            *items,
            *(
                {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
                for call in self._calls
                if call.id not in known
            ),
        ]

    def _untyped(self, event: Event, chunk: dict[str, Any]) -> None:
        """No client of this dialect reads an event without its type; errors are none of its events."""
        if chunk.get("error") or is_error_object(chunk):
            self.fail(chunk)
        elif any(key in chunk for key in _FOREIGN_KEYS):
            self.mark_broken("foreign_dialect")
        elif event.name.startswith("response.") or chunk.get("object") == "response" or "response" in chunk:
            self.mark_broken("event_type_missing")

    def _typed(self, kind: str, chunk: dict[str, Any]) -> None:
        response = chunk.get("response")
        response = response if isinstance(response, dict) else {}
        model = response.get("model")
        if self.served_model is None and isinstance(model, str) and model:
            self.served_model = model[:200]
        if kind in _ENDS:
            self._end(kind, chunk, response)
        elif chunk.get("error") or kind.endswith("error"):
            self.fail(chunk)
        elif kind.startswith(_FOREIGN_TYPES):
            self.mark_broken("foreign_dialect")
        elif kind in _TEXTS:
            self.add_text(chunk.get("delta"))
        elif kind in _WHOLE_TEXTS:
            self._whole_text(chunk.get("text") or chunk.get("refusal"))
        elif kind.startswith("response.reasoning"):
            self.add_reasoning(chunk.get("delta"))
        elif kind in ("response.function_call_arguments.delta", "response.function_call_arguments.done"):
            self._arguments(kind, chunk)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(kind, chunk)

    def _end(self, kind: str, chunk: dict[str, Any], response: dict[str, Any]) -> None:
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.tokens_in = as_count(usage.get("input_tokens"))
            self.tokens_out = as_count(usage.get("output_tokens"))
        error = response.get("error")
        if error or kind == "response.failed" or as_text(response.get("status")) in _FAILED:
            self.fail(error or chunk)
            return
        output = response.get("output")
        if not self._items and isinstance(output, list):
            self._items = [item for item in output if isinstance(item, dict) and self.keep_value(item)]
        self._final([item for item in output if isinstance(item, dict)] if isinstance(output, list) else [])
        details = response.get("incomplete_details")
        reason = as_text(details.get("reason")).lower() if isinstance(details, dict) else ""
        self.capped = reason in _CAPPED
        self.filtered = reason in _FILTERS
        self.announced = kind
        self.complete = True

    # --- items ---

    def _item(self, kind: str, chunk: dict[str, Any]) -> None:
        item, added = chunk.get("item"), kind.endswith(".added")
        if not isinstance(item, dict):
            return
        if not added and self.keep_value(item):
            self._items.append(item)
        if item.get("type") != "function_call":
            self._whole_message(item)
            return
        identities = (*_ids(item), self._slot(chunk))
        call = self._pending(identities, unnamed=added) or self._begin(identities)
        if call is None:
            return
        self._identify(call, identities, item)
        if added:
            self._open = call
            call.opening = item["arguments"] if isinstance(item.get("arguments"), str) else None
        else:
            self._open = None
            call.closed = True
            call.add_whole(item.get("arguments"))

    def _arguments(self, kind: str, chunk: dict[str, Any]) -> None:
        item_id, slot = as_text(chunk.get("item_id")), self._slot(chunk)
        call = self._by_item.get(item_id) or (self._by_slot.get(slot) if slot is not None else None)
        if call is None and self._open is not None and self._open.could_be("", item_id, slot):
            call = self._open
        if call is None:
            call = self._open = self._begin(("", item_id, slot))
        if call is None:
            return
        if kind.endswith(".delta"):
            self.deltas += 1
            call.add_arguments(chunk.get("delta"))
        else:
            call.identify("", item_id, slot, chunk.get("name"))
            call.add_whole(chunk.get("arguments"))

    def _final(self, output: list[dict[str, Any]]) -> None:
        """What the final response holds: it adds to the calls that were streamed, and stands for them if none was.
        Where servers put it together anew, under ids that were never streamed, it is left aside."""
        streamed = list(self._calls)
        for item in output:
            if item.get("type") != "function_call":
                self._whole_message(item)
                continue
            identities = (*_ids(item), None)
            call = self._closest(streamed, identities) if streamed else self._begin(identities)
            if call is not None:
                self._identify(call, identities, item)
                call.add_whole(item.get("arguments"))

    def _pending(self, identities: _Identities, *, unnamed: bool) -> _Call | None:
        """The call that waits for an item with these identities; one that just begins can only have had deltas."""
        waiting = [call for call in self._calls if not call.closed and not (unnamed and call.name)]
        return self._closest(waiting, identities)

    def _closest(self, calls: Sequence[_Call], identities: _Identities) -> _Call | None:
        """The call that these identities name, else the first unfinished one that nothing speaks against."""
        call = max(calls, key=lambda call: call.likeness(*identities), default=None)
        if call is not None and call.likeness(*identities):
            return call
        return next((call for call in calls if not call.closed and call.could_be(*identities)), None)

    def _begin(self, identities: _Identities) -> _Call | None:
        if len(self._calls) >= _MOST_CALLS:
            self.mark_broken("too_many_calls")
            return None
        if identities[2] in self._by_slot:
            self.quirks.add("index_reused")
        call = _Call(*identities)
        self.deltas += 1
        self._calls.append(call)
        self.drafts.append(call)
        self._point(call, identities)
        return call

    def _identify(self, call: _Call, identities: _Identities, item: dict[str, Any]) -> None:
        call.identify(*identities, item.get("name"))
        self._point(call, identities)

    def _point(self, call: _Call, identities: _Identities) -> None:
        call_id, item_id, slot = identities
        if call_id:
            self._by_item.setdefault(call_id, call)  # some servers point at an item by its call_id
        if item_id:
            self._by_item[item_id] = call
        if slot is not None:
            self._by_slot[slot] = call

    def _slot(self, chunk: dict[str, Any]) -> int | None:
        slot = chunk.get("output_index")
        if isinstance(slot, int):
            return slot
        self.quirks.add("output_index_missing")
        return None

    # --- texts that came whole, without deltas ---

    def _whole_message(self, item: dict[str, Any]) -> None:
        parts = item.get("content")
        parts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        text = "".join(as_text(part.get("text")) or as_text(part.get("refusal")) for part in parts)
        if item.get("type") == "message":
            self._whole_text(text)
        elif item.get("type") == "reasoning" and self.reasoning.blank:
            self.add_reasoning(text)

    def _whole_text(self, text: Any) -> None:
        if self.text.blank:
            self.add_text(text)


class OpenAIResponses:
    """The dialect of `/responses`. Nothing of what is optional there is sent: `store` is left to its default because
    a reasoning model whose items aren't stored takes its own replayed item only with a field (`include`) that other
    models refuse."""

    name = "openai-responses"
    mixes_results = False
    cap_fields: tuple[str, ...] = ("max_output_tokens",)
    auth = Auth.BEARER

    def encode(self, route: Route, ask: Ask) -> WireRequest:
        body: dict[str, Any] = {
            "model": route.model,
            "input": [item for message in ask.messages for item in _items(message)],
            "stream": True,
            cap_field(self, ask): route.token_cap.value,
        }
        if route.temperature is not None:
            body["temperature"] = route.temperature
        if ask.tools:
            body["tools"] = [_declare(tool) for tool in ask.tools]
            body["tool_choice"] = (
                {"type": "function", "name": ask.tools[0].name} if ask.choice is Choice.FORCED else str(ask.choice)
            )
            if ask.parallel is not None:
                body["parallel_tool_calls"] = ask.parallel
        return post(with_path(route.base_url, _PATH), route, body)

    def authorize(self, route: Route, credentials: Credentials) -> Mapping[str, str]:
        return bearer_or_header(route, credentials, self.auth)

    def reader(self, route: Route, ask: Ask, headers: Mapping[str, str], now: datetime) -> Reader:
        return ResponsesReader(ask, cap=route.token_cap.value, cap_field=cap_field(self, ask), headers=headers, now=now)

    def is_completion(self, body: Any) -> bool:
        if not isinstance(body, dict):
            return False
        inner = body.get("data")
        return any(
            isinstance(one, dict) and (one.get("object") == "response" or isinstance(one.get("output"), list))
            for one in (body, inner)
        )


def _items(message: Message) -> list[dict[str, Any]]:
    """The input items of one message: a text, and an item of its own for each call or result."""
    if message.replay is not None:
        return list(message.replay.wire)
    if message.answers is not None:
        return [{"type": "function_call_output", "call_id": message.answers.id, "output": message.text}]
    return [
        {"role": message.role, "content": message.text},
        *(
            {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.calls
        ),
    ]


def _declare(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": json_schema(tool),
        "strict": False,  # left out, this dialect takes it for true
    }


def _ids(item: Mapping[str, Any]) -> tuple[str, str]:
    """An item's call_id and its own id."""
    return as_text(item.get("call_id")), as_text(item.get("id"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two texts of arguments are the same JSON value."""
    try:
        return bool(json.loads("".join(one)) == json.loads("".join(other)))
    except (ValueError, RecursionError):
        return False
