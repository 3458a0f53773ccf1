"""A provider that plays scenarios byte for byte, on sockets of its own.

Every scenario has a URL of its own below `/s/<id>`. What it does on the wire is decided here and nowhere else,
which is why no HTTP library is used: cuts, resets, silence and false lengths are the point.

- A body is a row of pieces (one event, one segment, one text). Compression works piece by piece and is flushed
  after each, so that every piece can be read as soon as it is there.
- With chunked encoding every write is one chunk; a clean end adds the last chunk, any other end leaves it out.
- With content-length and an end that isn't clean, the length that is told is 64 bytes more than what is sent.
- Each write is handed to the kernel whole before the next begins (TCP_NODELAY), so delays lie between writes and
  a body of any size is never held as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from service.demo import predicates
from service.demo.listener import Listener
from service.demo.request import Request
from service.demo.scenario import End, Entry, Framing, Reply, Scenario, Transfer, Values

HANG_S = 60.0
UNANSWERED_STATUS = 599

_PREFIX = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic-messages": "", "gemini": "/v1beta"}
_ENDPOINTS: dict[str, tuple[str, ...]] = {
    "openai-chat": ("/chat/completions",),
    "openai-responses": ("/responses",),
    "anthropic-messages": ("/messages",),
    "gemini": (":streamGenerateContent", ":generateContent"),
}
_LENGTH_TOO_LONG_BY = 64
_WRITE_BYTES = 64 * 1024
# A reset throws away what the peer's kernel hasn't taken yet; this is time enough for the bytes before it.
_BEFORE_RESET_S = 0.05
_HIDDEN = "***"


@dataclass(frozen=True)
class Received:
    """A request as it was received. `entry` is the position of the entry that answered, None when none did;
    `at` is on the monotonic clock, in seconds. The credential's value is hidden wherever it stood."""

    id: str
    entry: int | None
    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    at: float
    other_origin: bool = False


@dataclass
class _Played:
    scenario: Scenario
    used: Counter[int] = field(default_factory=Counter)

    def choose(self, request: Request, values: Values) -> int | None:
        for number, entry in enumerate(self.scenario.replies):
            if self._is_left(number, entry) and predicates.holds([values.fill(w) for w in entry.when], request):
                self.used[number] += 1
                return number
        return None

    def _is_left(self, number: int, entry: Entry) -> bool:
        return entry.times is None or self.used[number] < entry.times


class Provider:
    """Plays scenarios while it is entered (`async with`). Counters of `times` begin anew with each provider.

    A request that no entry answers gets status 599 and stands in `unanswered`; so does one to a path that isn't
    an endpoint of the scenario's dialect, and one that can't be read.
    """

    def __init__(self, scenarios: Iterable[Scenario], host: str = "127.0.0.1", port: int = 0) -> None:
        self._played = {scenario.id: _Played(scenario) for scenario in scenarios}
        self._host, self._port = host, port
        self._listeners: list[Listener] = []
        self._origins: tuple[str, str] | None = None
        self._counts: Counter[str] = Counter()
        self.requests: list[Received] = []

    async def __aenter__(self) -> Self:
        for port, other_origin in ((self._port, False), (0, True)):
            try:
                self._listeners.append(Listener(partial(self._serve, other_origin), self._host, port))
            except BaseException:
                await self._close()
                raise
        ports = [listener.port for listener in self._listeners]
        self._origins = (f"http://{self._host}:{ports[0]}", f"http://{self._host}:{ports[1]}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        while self._listeners:
            await self._listeners.pop().close()

    @property
    def origin(self) -> str:
        """Scheme, host and port; only while entered."""
        return self._both_origins[0]

    @property
    def other_origin(self) -> str:
        """A second origin that plays the same scenarios, so that a redirect that is followed is seen."""
        return self._both_origins[1]

    @property
    def _both_origins(self) -> tuple[str, str]:
        if self._origins is None:
            raise RuntimeError("the provider isn't running")
        return self._origins

    def url(self, id: str) -> str:
        """The base URL that a route to this scenario is configured with. Raises KeyError for an unknown id."""
        return f"{self.origin}/s/{id}{_PREFIX[self._played[id].scenario.dialect]}"

    @property
    def unanswered(self) -> list[Received]:
        return [request for request in self.requests if request.entry is None]

    @property
    def strayed(self) -> list[Received]:
        """The requests that came to the other origin."""
        return [request for request in self.requests if request.other_origin]

    def count(self, id: str) -> int:
        """How many requests a scenario has had, at either origin, since it was last reset or replaced."""
        return self._counts[id]

    def reset(self, id: str) -> None:
        """The scenario's counters begin anew; its requests stay in the log. Raises KeyError for an unknown id."""
        self.replace(id, self._played[id].scenario)

    def replace(self, id: str, scenario: Scenario) -> None:
        """From the next request on the route `id` behaves as this scenario, from its beginning."""
        self._played[id] = _Played(scenario)
        del self._counts[id]

    async def _serve(self, other_origin: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        try:
            while (head := await connection.read_request()) is not None:
                reply, values = self._answer(head, other_origin)
                if not await connection.play(reply, values, close=head.wants_close):
                    break
        except ConnectionError:
            pass  # the client went away, which is its right
        finally:
            await connection.abort()

    def _answer(self, raw: _RawRequest, other_origin: bool) -> tuple[Reply, Values]:
        parts = urlsplit(raw.target)
        first, _, id = unquote(parts.path).lstrip("/").partition("/")
        id = id.partition("/")[0] if first == "s" else ""
        played = self._played.get(id)
        dialect = played.scenario.dialect if played else ""
        body = _json_object(raw.body)
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        request = Request(dialect, raw.method, unquote(parts.path), raw.headers, query, body or {})
        values = Values.of(request, id, self.origin, self.other_origin)
        entry = None
        if played and raw.readable and body is not None and _is_endpoint(request):
            entry = played.choose(request, values)
        self._counts[id] += 1
        self.requests.append(_received(id, entry, request, other_origin))
        if played is None or entry is None:
            return _unanswered(request, known=played is not None), values
        return played.scenario.replies[entry].reply, values


def _is_endpoint(request: Request) -> bool:
    return request.method == "GET" or request.path.endswith(_ENDPOINTS[request.dialect])


def _json_object(body: bytes) -> dict[str, Any] | None:
    """The body's object; empty for an empty body, None when the body is anything else."""
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _received(id: str, entry: int | None, request: Request, other_origin: bool) -> Received:
    def hidden(value: str) -> str:
        return value.replace(request.key, _HIDDEN) if request.key else value

    return Received(
        id,
        entry,
        request.method,
        request.path,
        tuple((name, hidden(value)) for name, value in request.query),
        {name: hidden(value) for name, value in request.headers.items()},
        request.body,
        time.monotonic(),
        other_origin,
    )


def _unanswered(request: Request, *, known: bool) -> Reply:
    why = "no entry answers this request" if known else "no such scenario"
    text = f"{request.method} {request.path}: {why}"
    return Reply(UNANSWERED_STATUS, Framing.TEXT, text, {"content-type": "text/plain"}, transfer=Transfer.LENGTH)


@dataclass(frozen=True)
class _RawRequest:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    readable: bool  # a body without a content-length isn't read, and the connection ends with the answer
    wants_close: bool


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        # Nothing is left to the transport's buffer: a write is done when the kernel has it.
        writer.transport.set_write_buffer_limits(high=0)
        self._set_option(socket.IPPROTO_TCP, socket.TCP_NODELAY, struct.pack("i", 1))

    def _set_option(self, level: int, option: int, value: bytes) -> None:
        self._writer.get_extra_info("socket").setsockopt(level, option, value)

    async def read_request(self) -> _RawRequest | None:
        """The next request; None when the client has closed the connection or doesn't speak HTTP."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return None
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        target, _, version = rest.rpartition(" ")
        if not version.startswith("HTTP/1."):
            return None
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        readable = "transfer-encoding" not in headers
        wants_close = not readable or version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
        try:
            body = await self._reader.readexactly(int(headers.get("content-length", "0"))) if readable else b""
        except (asyncio.IncompleteReadError, ValueError):
            return None
        return _RawRequest(method, target, headers, body, readable, wants_close)

    async def play(self, reply: Reply, values: Values, *, close: bool) -> bool:
        """Writes the answer and ends it as the reply says; whether the connection can take another request."""
        if reply.first_byte_delay_s:
            await asyncio.sleep(reply.first_byte_delay_s)
        close = close or reply.transfer is Transfer.CLOSE
        pieces = _body(reply, values)
        if reply.status and reply.transfer is Transfer.LENGTH:
            whole = list(pieces)
            length = sum(map(len, whole)) + (0 if reply.end is End.CLEAN else _LENGTH_TOO_LONG_BY)
            await self._write(_head(reply, values, f"content-length: {length}", close))
            pieces = iter(whole)
        elif reply.status:
            kind = "transfer-encoding: chunked" if reply.transfer is Transfer.CHUNKED else ""
            await self._write(_head(reply, values, kind, close))
        chunked = bool(reply.status) and reply.transfer is Transfer.CHUNKED
        await self._write_body(pieces, reply.delay_s, chunked=chunked)
        match reply.end:
            case End.HANG:
                await self._hang()
            case End.RESET:
                await self._prepare_reset()
            case End.CUT:
                await self._finish()
            case End.CLEAN:
                if chunked:
                    await self._write(b"0\r\n\r\n")
                if reply.status and not close and not reply.close_after:
                    return True
                await self._finish()
        return False

    async def _write_body(self, pieces: Iterator[bytes], delay_s: float, *, chunked: bool) -> None:
        first = True
        for piece in pieces:
            if not first:
                # Even without a delay others get their turn: drain doesn't always give it.
                await asyncio.sleep(delay_s)
            first = False
            if chunked:
                await self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
            else:
                await self._write(piece)

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _WRITE_BYTES):
            self._writer.write(view[start : start + _WRITE_BYTES])
            await self._writer.drain()

    async def _hang(self) -> None:
        """Silence, until the client goes or time is up."""
        try:
            async with asyncio.timeout(HANG_S):
                while await self._reader.read(_WRITE_BYTES):
                    pass
        except TimeoutError:
            await self._finish()

    async def _prepare_reset(self) -> None:
        """Makes the close to come a reset: a linger time of zero drops the connection without a FIN."""
        await asyncio.sleep(_BEFORE_RESET_S)
        self._set_option(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _finish(self) -> None:
        """Closes with a FIN. Everything is with the kernel already."""
        self._writer.close()
        await self._writer.wait_closed()

    async def abort(self) -> None:
        """Closes at once; does nothing when closed already."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def _head(reply: Reply, values: Values, framing: str, close: bool) -> bytes:
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = ""
    lines = [f"HTTP/1.1 {reply.status} {phrase}"]
    lines += [f"{name}: {values.fill(value)}" for name, value in reply.headers.items()]
    lines += [framing] if framing else []
    lines += ["connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _body(reply: Reply, values: Values) -> Iterator[bytes]:
    """The body as the writes that it is to be sent in; none of them is empty."""
    pieces = reply.pieces(values)
    if reply.gzipped:
        pieces = _gzipped(pieces, ended=reply.end is End.CLEAN)
    if reply.segment_bytes:
        pieces = _cut(pieces, reply.segment_bytes)
    return filter(None, pieces)


def _gzipped(pieces: Iterator[bytes], *, ended: bool) -> Iterator[bytes]:
    compress = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    for piece in pieces:
        yield compress.compress(piece) + compress.flush(zlib.Z_SYNC_FLUSH)
    if ended:
        yield compress.flush()


def _cut(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) - len(data) % size
        yield from (data[start : start + size] for start in range(0, whole, size))
        rest = data[whole:]
    yield rest
