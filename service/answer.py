"""The bytes of one answer, read as they come: which kind of body it is, its events or its refusal. No I/O.

The body is known by its content. An accepted body that begins like JSON or a page is collected whole; anything else is
an event stream. A refused one is collected up to its own, smaller cap.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from service.dialects import Dialect
from service.dialects.base import cap_field
from service.model import Ask, Body, End, Exchange, Reading, Refusal, Replay, Route
from service.refusal import DECIDED_BY_STATUS_LINE, is_error_object, looks_like_html, read_refusal
from service.sse import Decoder, OverlongError

BODY_LIMIT = 8 * 1024 * 1024
ERROR_LIMIT = 64 * 1024
DRAIN_LIMIT = 64 * 1024
_GZIP_MAGIC = 0x1F
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
# How a body begins that is a page or JSON; no line of an event stream begins so.
_COLLECTED = (b"<", b"{", b"[", b'"')
# Frameworks write it for no value; no line of an event stream begins so either.
_NULL_SO_FAR = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:n|nu|nul|null[ \t\r\n]*)")
# As a word (`MISS, HIT`), in a Cache-Status list (RFC 9211: `edge; hit`), or as a proxy's `TCP_MEM_HIT`.
_HIT = re.compile(r"(?:^|[\s,;_])hit(?:$|[\s,;])")
_HIT_HEADERS_NOT = frozenset({"cache-control"})


class UnknownEncodingError(Exception):
    """A content encoding that we didn't ask for and can't undo."""


class Inflater:
    """Undoes a content encoding piece by piece, never giving out more than it is allowed to.

    `broken` says that the bytes aren't what the encoding's name says; what came before the fault is given out, so that
    it doesn't matter where the network cut them. Bytes behind a whole gzip member that aren't another one are dropped.
    """

    def __init__(self, encoding: str) -> None:
        """Raises `UnknownEncodingError`."""
        self._encoding = encoding.strip().lower()
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise UnknownEncodingError(self._encoding)
        self._plain = self._encoding in ("", "identity")
        self._inflate: Any = None
        self._whole = False
        self._over = False
        self.broken = False

    def feed(self, chunk: bytes, limit: int) -> bytes:
        """The decoded bytes, at most `limit` of them."""
        if self._plain:
            return chunk[:limit]
        out = bytearray()
        while chunk and len(out) < limit and not (self.broken or self._over):
            if self._inflate is None:
                if self._whole and chunk[0] != _GZIP_MAGIC:
                    self._over = True
                    break
                self._inflate = self._fresh(chunk[0])
            before = self._inflate.copy()
            try:
                out += self._inflate.decompress(chunk, limit - len(out))
            except zlib.error:
                self.broken = True
                return bytes(out + _as_far_as_whole(before, chunk, limit - len(out)))
            chunk = self._inflate.unconsumed_tail
            if self._inflate.eof:
                chunk, self._inflate = self._inflate.unused_data, None
                self._whole = True
        return bytes(out)

    def _fresh(self, first: int) -> Any:
        if self._encoding != "deflate":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        # Servers send both forms under this name; a zlib header is told by its first byte (RFC 1950 §2.2).
        return zlib.decompressobj(zlib.MAX_WBITS if first & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS)


def _as_far_as_whole(inflate: Any, chunk: bytes, limit: int) -> bytes:
    """What can be decoded of a chunk before the fault in it."""
    out = bytearray()
    try:
        for at in range(len(chunk)):
            out += inflate.decompress(chunk[at : at + 1], limit - len(out))
            if len(out) >= limit:
                break
    except zlib.error:
        pass
    return bytes(out)


class Answer:
    """One answer while it comes in. `enough` says that nothing more is needed, `over_limit` that our cap was met."""

    def __init__(
        self, dialect: Dialect, route: Route, ask: Ask, status: int, headers: Mapping[str, str], now: datetime
    ) -> None:
        self._dialect = dialect
        self._ask = ask
        self._cap_field = cap_field(dialect, ask)
        self._other_cap_field = _other_cap_field(dialect, ask)
        self.status = status
        self._headers = headers
        self._now = now
        self.accepted = 200 <= status < 300
        self._limit = BODY_LIMIT if self.accepted else ERROR_LIMIT
        self._reader = dialect.reader(route, ask, headers, now)
        self._decoder = Decoder(BODY_LIMIT)
        self._head = bytearray()
        self._body: bytearray | None = None if self.accepted else bytearray()
        self._streaming = False
        self._unreadable = False
        self._inflater: Inflater | None = None
        self._drained = 0
        self.bytes_read = 0
        self.over_limit = False
        try:
            self._inflater = Inflater(headers.get("content-encoding", ""))
        except UnknownEncodingError:
            self._unreadable = True

    @property
    def enough(self) -> bool:
        return self._unreadable or self.over_limit or self._sated or self._drained > DRAIN_LIMIT

    @property
    def _sated(self) -> bool:
        """Whether nothing that could still come would be read."""
        return self._reader.error is not None or (self._reader.done and self._reader.complete)

    @property
    def announced(self) -> bool:
        return self._reader.announced is not None

    @property
    def events(self) -> int:
        return self._reader.events

    @property
    def deltas(self) -> int:
        return self._reader.deltas

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they came from the socket."""
        if self._inflater is None:
            return
        chunk = self._inflater.feed(chunk, self._limit - self.bytes_read + 1)
        self.bytes_read += len(chunk)
        if self.bytes_read > self._limit:
            self.over_limit = True
            chunk = chunk[: self._limit - self.bytes_read]
        if self._reader.done:
            self._drained += len(chunk)
        if self._streaming:
            self._events(chunk)
        elif self._body is not None:
            self._body += chunk
        else:
            self._head += chunk
            self._sniff(chunk)
        if self._inflater.broken and not self._reader.done:
            self._unreadable = True

    def _sniff(self, chunk: bytes) -> None:
        """Decide which kind of body this is, once there is more than white space, a part of a BOM, or a JSON null."""
        if _BOM.startswith(self._head) or not chunk.strip(_BLANK):
            return
        if _NULL_SO_FAR.fullmatch(self._head):
            return
        if bytes(self._head).removeprefix(_BOM).lstrip(_BLANK).startswith(_COLLECTED):
            self._body = self._head
        else:
            self._streaming = True
            self._events(bytes(self._head))

    def _events(self, chunk: bytes) -> None:
        try:
            for event in self._decoder.feed(chunk):
                if self._sated:
                    break
                self._reader.read(event)
        except OverlongError:
            self.over_limit = True

    def mark_broken(self, reason: str) -> None:
        """What carries the body can't be read on, for a reason that only the transport knows."""
        self._reader.mark_broken(reason)

    def finish(self, end: End, **times: Any) -> Exchange:
        """The exchange, once nothing more comes. `times` are the fields of `Exchange` that a clock fills."""
        if self._streaming and end in (End.COMPLETE, End.CLOSED, End.RESET):
            for event in self._decoder.close():
                self._reader.read(event)
        if not self._streaming and self._body is None and not self._head.isspace():
            self._body = self._head
        if self.over_limit:
            end = End.CAP
        body = self._kind()
        refusal, completion = self._refusal(end, body)
        reading = self._reading(body)
        return Exchange(
            ask=self._ask,
            end=end,
            status=self.status,
            body=body,
            refusal=refusal,
            reading=reading,
            labelled_events="event-stream" in self._headers.get("content-type", ""),
            completion=completion,
            cached=from_cache(self._headers),
            other_cap_field=self._other_cap_field,
            bytes_read=self.bytes_read,
            replay=self._replay(reading),
            **times,
        )

    def _reading(self, body: Body) -> Reading | None:
        if not self.accepted or body in (Body.JSON, Body.HTML):
            return None
        no_stream = self._streaming and not (self._decoder.fields or self._decoder.comments)
        if no_stream and self._reader.broken is None and self._reader.events == 0:
            self._reader.broken = "not_an_event_stream"
        return self._reader.result()

    def _replay(self, reading: Reading | None) -> Replay | None:
        """The route's own message, where every call in it is whole."""
        if reading is None or reading.announced is None or not reading.calls:
            return None
        return None if any(call.problem for call in reading.calls) else self._reader.replay()

    def _kind(self) -> Body:
        if self._unreadable:
            return Body.UNREADABLE
        if self._streaming:
            return Body.EVENTS
        text = bytes(self._body or b"").removeprefix(_BOM).lstrip(_BLANK)
        if not text:
            return Body.NONE
        if looks_like_html(text[:4096].decode("utf-8", "replace")):
            return Body.HTML
        if text[:1] in (b"{", b"["):
            return Body.JSON
        if not self.accepted:
            return Body.TEXT
        return Body.HTML if text[:1] == b"<" else Body.JSON

    def _refusal(self, end: End, body: Body) -> tuple[Refusal | None, bool]:
        """The refusal, and whether a JSON body is a completion."""
        collected = bytes(self._body or b"")
        if not self.accepted:
            if end is End.DEADLINE and self.status not in DECIDED_BY_STATUS_LINE:
                return None, False
            return self._read_refusal(b"" if self._unreadable else collected), False
        if body is not Body.JSON:
            return None, False
        value = _json(collected)
        if self._dialect.is_completion(value) and not is_error_object(value):
            return None, True
        return (self._read_refusal(collected), False) if is_error_object(value) else (None, False)

    def _read_refusal(self, body: bytes) -> Refusal:
        return read_refusal(
            self.status,
            self._headers,
            body,
            cap_field=self._cap_field,
            usage_field=self._reader.usage_field,
            now=self._now,
        )


def _other_cap_field(dialect: Dialect, ask: Ask) -> str | None:
    """Only where nothing is configured: a route that is, is held to its own field."""
    return dialect.cap_fields[1] if ask.tokens_field is None and len(dialect.cap_fields) > 1 else None


def from_cache(headers: Mapping[str, str]) -> bool:
    """Whether a cache header says HIT: the answer isn't the route's of today."""
    return any(
        "cache" in name and name not in _HIT_HEADERS_NOT and _HIT.search(value.lower())
        for name, value in headers.items()
    )


def _json(body: bytes) -> Any:
    """The first JSON value of a body; what is glued behind it doesn't matter here."""
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
