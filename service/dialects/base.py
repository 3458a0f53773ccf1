"""What every dialect is made of: an encoder of asks and a reader of streams.

Dialects know nothing of contracts. A reader takes decoded events and keeps facts; it concludes nothing but what the
dialect's own grammar says (whether an end was announced, whether the events are this dialect's).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, ClassVar, Protocol

from service.dialects.calls import Draft, judge_calls
from service.dialects.leaks import find_leak
from service.dialects.wire import json_or_text
from service.model import Ask, Auth, Credentials, Message, PastCall, Reading, Refusal, Replay, Role, Route, WireRequest
from service.refusal import is_error_object, read_stream_error
from service.sse import Event

_HEAD, _TAIL = 128 * 1024, 256 * 1024
_MOST_KEPT = _HEAD + _TAIL  # of a longer text the middle is gone
_DEEPER_WHEN_SENT = 50


class Text:
    """Text that arrives in pieces; of a very long one the head and the tail are kept."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self.blank = True

    def add(self, piece: str) -> None:
        if self.blank and piece.strip():
            self.blank = False
        if self._head_size < _HEAD:
            self._head.append(piece)
            self._head_size += len(piece)
            return
        self._tail.append(piece)
        self._tail_size += len(piece)
        while self._tail_size - len(self._tail[0]) > _TAIL:
            self._tail_size -= len(self._tail.popleft())

    def __str__(self) -> str:
        return "".join(self._head) + "".join(self._tail)


class Reader(ABC):
    """Facts of one accepted stream. Subclasses read their dialect's events in `_read`.

    `done` says that nothing more is needed: the end was announced, or an error came before it. What follows an
    announced end is read for usage and end markers only.
    """

    usage_field: ClassVar[str | None] = None
    """The field of a request that asks for usage, where the API has one."""
    calls_need_ids: ClassVar[bool] = True
    """Whether a call's result is told apart by the call's id alone."""

    def __init__(self, ask: Ask, *, cap: int, cap_field: str, headers: Mapping[str, str], now: datetime) -> None:
        self.ask = ask
        self.declared = [tool.name for tool in ask.tools]
        self._cap = cap
        self._cap_field = cap_field
        self._headers = headers
        self._now = now
        self.text = Text()
        self.reasoning = Text()
        self.drafts: list[Draft] = []
        self.events = 0
        self.deltas = 0
        self.announced: str | None = None
        self.capped = False
        self.filtered = False
        self.declared_malformed = False
        self.legacy_call = False
        self.broken: str | None = None
        self.error: Refusal | None = None
        self.error_after_delta = False
        self.served_model: str | None = None
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.complete = False
        self.quirks: set[str] = set()
        self._kept_size = 0

    @property
    def done(self) -> bool:
        return self.announced is not None or self.error is not None

    def read(self, event: Event) -> None:
        """Take one event."""
        data = event.data.strip()
        if not data and event.name != "error":
            return
        if data.startswith(":"):
            if not self.done:
                self.quirks.add("comment_as_data")
            return
        self.events += 1
        self._read(event, data)

    @abstractmethod
    def _read(self, event: Event, data: str) -> None:
        """Take one event of the dialect whose data isn't empty."""

    def close_quirks(self) -> set[str]:
        """The oddities that show only when the stream is over; a dialect adds its own."""
        quirks = set(self.quirks)
        if self.announced is not None and self.ask.include_usage and self.tokens_out is None:
            quirks.add("usage_missing")
        return quirks

    def result(self) -> Reading:
        """The facts, once nothing more comes."""
        calls = judge_calls(self.drafts, self.ask.tools, need_ids=self.calls_need_ids)
        leak = "function_call" if self.legacy_call else None
        if leak is None and self.declared:
            leak = find_leak(str(self.text), self.declared) or find_leak(str(self.reasoning), self.declared)
        quirks = self.close_quirks()
        if calls and leak:
            quirks.add("tool_markup_in_content")
        if len(calls) > 1 and len(self.declared) == 1:
            quirks.add("unrequested_parallel_calls")
        asked = {tool.name: tool.asked for tool in self.ask.tools}
        if any(draft.differs_from(asked.get(draft.name, {})) for draft in self.drafts):
            quirks.add("value_differs")
        return Reading(
            events=self.events,
            deltas=self.deltas,
            has_text=not self.text.blank,
            calls=calls,
            announced=self.announced,
            capped=self.capped or (self.tokens_out is not None and self.tokens_out >= self._cap),
            filtered=self.filtered,
            declared_malformed=self.declared_malformed,
            leak=leak,
            broken=self.broken,
            error=self.error,
            error_after_delta=self.error_after_delta,
            quirks=frozenset(quirks),
            served_model=self.served_model,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
        )

    def mark_broken(self, reason: str) -> None:
        """The stream can't be read from here on. What follows the announced end can't break it any more."""
        if not self.done:
            self.broken = self.broken or reason

    def keep(self, size: int) -> bool:
        """Whether this much more may be kept for a replay; once it is too much, nothing is replayed."""
        self._kept_size += size
        return self._kept_size <= _MOST_KEPT

    def keep_value(self, value: Any) -> bool:
        """The same for a value of JSON. One that is nested as deep as the parser goes can't be sent back, since there
        it would lie deeper still."""
        if isinstance(value, str):
            return self.keep(len(value))
        deeper = value
        for _ in range(_DEEPER_WHEN_SENT):
            deeper = [deeper]
        try:
            return self.keep(len(json.dumps(deeper)) - 2 * _DEEPER_WHEN_SENT)
        except RecursionError:
            return self.keep(_MOST_KEPT + 1)

    def replay(self) -> Replay | None:
        """The assistant's message as it came, for an answer whose calls are whole; None when it is too long."""
        if self._kept_size > _MOST_KEPT:
            return None
        return Replay(tuple(PastCall(draft.id, draft.name, draft.arguments) for draft in self.drafts), self._wire())

    @abstractmethod
    def _wire(self) -> Any:
        """The message in the dialect's own form, with every field of reasoning, signature and identity."""

    def fail(self, error: Any) -> None:
        """An error came: the parsed object, or its text."""
        if self.done:
            return
        self.error = read_stream_error(
            error, self._headers, cap_field=self._cap_field, usage_field=self.usage_field, now=self._now
        )
        self.error_after_delta = self.deltas > 0

    def add_text(self, piece: Any) -> None:
        if isinstance(piece, str) and piece:
            self.deltas += 1
            self.keep(len(piece))
            self.text.add(piece)

    def add_reasoning(self, piece: Any) -> None:
        if isinstance(piece, str) and piece:
            self.deltas += 1
            self.reasoning.add(piece)

    def object_in(self, event: Event, data: str) -> dict[str, Any] | None:
        """The object that an event carries, or None: an error, which is noted, or nothing that can be read."""
        if event.name == "error":
            self.fail(json_or_text(data))
            return None
        chunk = self.parse(event, data)
        if isinstance(chunk, dict):
            return chunk
        if isinstance(chunk, list) and is_error_object(chunk):
            self.fail(chunk)
        elif chunk is not None:
            self.mark_broken("event_not_object")
        return None

    def parse(self, event: Event, data: str) -> Any:
        """The event's JSON, or None: cut off by the body's end (an early end), or broken in mid-stream."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            if not event.unterminated:
                self.mark_broken("data_not_json")
            return None


class Dialect(Protocol):
    """One API. `name` is the word in the configuration."""

    name: str
    cap_fields: tuple[str, ...]
    """The token-cap fields of the API, the usual one first."""
    mixes_results: bool
    """Whether one message can carry a result and a user's text."""
    auth: Auth
    """How the credential is sent where a route doesn't say."""

    def encode(self, route: Route, ask: Ask) -> WireRequest:
        """The request for an ask, without the credential. Pure."""
        ...

    def authorize(self, route: Route, credentials: Credentials) -> Mapping[str, str]:
        """The headers that carry the credential."""
        ...

    def reader(self, route: Route, ask: Ask, headers: Mapping[str, str], now: datetime) -> Reader:
        """A reader for the answer to an ask."""
        ...

    def is_completion(self, body: Any) -> bool:
        """Whether a JSON body is a whole answer of this dialect, wrapped or not."""
        ...


def cap_field(dialect: Dialect, ask: Ask) -> str:
    """The token-cap field that an ask is sent with."""
    return ask.tokens_field or dialect.cap_fields[0]


def grouped(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Messages with neighbouring results together, for dialects that carry results in one message."""
    for is_result, group in groupby(messages, key=lambda message: message.role is Role.RESULT):
        if is_result:
            yield list(group)
        else:
            yield from ([message] for message in group)


def bearer_or_header(route: Route, credentials: Credentials, usual: Auth = Auth.BEARER) -> dict[str, str]:
    """The credential where the route wants it, else where the dialect usually has it."""
    auth = route.auth or usual
    if credentials.key is None or auth is Auth.NONE:
        return {}
    key = credentials.key.reveal()
    return {"authorization": f"Bearer {key}"} if auth is Auth.BEARER else {str(auth): key}
