"""The other side of many probes at once, with a log of its own: who asked for what, from when until when.

Plainer and faster than the scripted provider: every route answers one whole tool call, or fails as told. A replica is
told from another by the key that it sends, which the configuration names and each process has a value of its own for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

from service.demo.listener import Listener

_TARGET = re.compile(rb"POST /s/([a-z0-9.-]+)/v1/chat/completions ")
_KEY = re.compile(rb"\r\nauthorization: Bearer ([^\r]+)\r\n", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_REFUSED = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: 38\r\n"
    b"connection: close\r\n\r\n" + b'{"error": {"message": "out of order"}}'
)


@dataclass
class Asked:
    """One request. Times are readings of the peer's monotonic clock, `told_at` is the time of the day at which the answer
    was sent; `answered` says that the whole of it was taken. `probe` is what all requests of one probe have in common,
    `model` the name of the model that answered, which no other answer has."""

    route: str
    key: str
    began: float
    probe: str = ""
    model: str = ""
    ended: float | None = None
    told_at: float = 0.0
    answered: bool = False


@dataclass
class Peer:
    """Answers while it is entered. `delay_s` lies before each answer; routes in `broken` answer 500, routes in
    `hanging` nothing until `resume`. `close` and `open` take it off the network and put it back, on the same port."""

    host: str = "127.0.0.1"
    port: int = 0
    delay_s: float = 0.0
    broken: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    log: list[Asked] = field(default_factory=list)
    _listener: Listener | None = None
    _holds: set[asyncio.Timeout] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        self._listener = Listener(self._serve, self.host, self.port)
        self.port = self._listener.port

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    @property
    def holding(self) -> int:
        """How many requests hang."""
        return len(self._holds)

    def resume(self) -> None:
        """Answer what hangs, and let nothing hang any more."""
        self.hanging.clear()
        while self._holds:
            self._holds.pop().reschedule(asyncio.get_running_loop().time())

    def url(self, route: str) -> str:
        return f"http://{self.host}:{self.port}/s/{route}/v1"

    def of(self, route: str) -> list[Asked]:
        return [asked for asked in self.log if asked.route == route]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            target, key, length = _TARGET.match(head), _KEY.search(head), _LENGTH.search(head)
            if target is None or length is None:  # a check of the network, which wants no more than an answer
                writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
                return
            asked = Asked(target[1].decode(), key[1].decode() if key else "", time.monotonic())
            self.log.append(asked)
            body = json.loads(await reader.readexactly(int(length[1])))
            asked.probe = str(body["messages"][0]["content"])  # holds a word that no other probe has
            await self._hold(asked, reader)
            asked.told_at, asked.model = time.time(), f"{body['model']}-{next(self._numbers)}"
            writer.write(_REFUSED if asked.route in self.broken else _whole_call(body, asked.model))
            await writer.drain()
            asked.answered = not await reader.read(1) or True
        except (asyncio.IncompleteReadError, ConnectionError, _GoneError):
            pass  # killed: what it was told, it can't tell any more
        finally:
            if asked is not None:
                asked.ended = time.monotonic()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _hold(self, asked: Asked, reader: asyncio.StreamReader) -> None:
        """Wait before the answer. Raises `_GoneError` as soon as nobody waits for it any more."""
        hangs = asked.route in self.hanging
        if not (hangs or self.delay_s):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if hangs else self.delay_s) as hold:
                if hangs:
                    self._holds.add(hold)
                try:
                    await reader.read(1)
                finally:
                    self._holds.discard(hold)
                raise _GoneError


class _GoneError(Exception):
    """The client closed before it was answered."""


def _whole_call(body: dict[str, object], model: str) -> bytes:
    tools = body.get("tools")
    name = tools[0]["function"]["name"] if isinstance(tools, list) else "none"
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"value":"ok"}'}}
    events = [
        _event(model, {"role": "assistant", "content": None, "tool_calls": [call]}, None),
        _event(model, {}, "tool_calls"),
        "[DONE]",
    ]
    text = "".join(f"data: {event}\n\n" for event in events).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % len(text) + text


def _event(model: str, delta: object, finish: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]})
