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
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_TARGET = re.compile(rb"POST /s/([a-z0-9.-]+)/v1/chat/completions ")
_KEY = re.compile(rb"\r\nauthorization: Bearer ([^\r]+)\r\n", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_REFUSED = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: 38\r\n"
    b"connection: close\r\n\r\n" + b'{"error": {"message": "out of order"}}'
)


@dataclass
class Asked:
    """One request. Times are readings of the peer's monotonic clock, `at` is the time of the day when it ended;
    `answered` says that the whole answer was taken. `probe` is what all requests of one probe have in common."""

    route: str
    key: str
    began: float
    probe: str = ""
    ended: float | None = None
    at: float = 0.0
    answered: bool = False


@dataclass
class Peer:
    """Answers while it is entered. `delay_s` lies before each answer; routes in `broken` answer 500, routes in
    `hanging` nothing. `close` and `open` take it off the network and put it back, on the same port."""

    host: str = "127.0.0.1"
    port: int = 0
    delay_s: float = 0.0
    broken: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    log: list[Asked] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._server = await asyncio.start_server(accept, self.host, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

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
            writer.write(_REFUSED if asked.route in self.broken else _whole_call(body))
            await writer.drain()
            asked.answered = not await reader.read(1) or True
        except (asyncio.IncompleteReadError, ConnectionError, _GoneError):
            pass  # killed: what it was told, it can't tell any more
        finally:
            if asked is not None:
                asked.ended, asked.at = time.monotonic(), time.time()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _hold(self, asked: Asked, reader: asyncio.StreamReader) -> None:
        """Wait before the answer. Raises `_GoneError` as soon as nobody waits for it any more."""
        delay = 3600.0 if asked.route in self.hanging else self.delay_s
        if delay:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await reader.read(1)
                    raise _GoneError


class _GoneError(Exception):
    """The client closed before it was answered."""


def _whole_call(body: dict[str, object]) -> bytes:
    tools = body.get("tools")
    name = tools[0]["function"]["name"] if isinstance(tools, list) else "none"
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"value":"ok"}'}}
    events = [
        _event(body, {"role": "assistant", "content": None, "tool_calls": [call]}, None),
        _event(body, {}, "tool_calls"),
        "[DONE]",
    ]
    text = "".join(f"data: {event}\n\n" for event in events).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % len(text) + text


def _event(body: dict[str, object], delta: object, finish: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps(
        {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": body["model"], "choices": [choice]}
    )
