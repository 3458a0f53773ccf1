"""Server-Sent Events, decoded without I/O: bytes in, events out, memory bounded.

The rules are those of the WHATWG HTML Standard, section "Interpreting an event stream":
lines end with CRLF, LF or CR and with nothing else (U+2028 and U+0085 are text); one leading BOM is dropped; a
line that begins with a colon is a comment; one space after a field's colon is dropped; several `data` lines join
with LF; a blank line dispatches the event if it has data.

Where a browser would drop evidence, this decoder keeps it: bytes that aren't UTF-8 are replaced and counted, and
what the body's end cut off comes out of `close` as an event marked `unterminated`.

Theory of operation. Bytes are collected in one buffer. A search for the next line end starts where the last one
stopped, so that a line that arrives byte by byte is looked at once. A CR ends its line at once; an LF that
follows it is skipped, also when it comes with the next bytes. A line longer than `limit` is an `OverlongError`
error: the caller's cap on a body is meant to be smaller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_FIELDS = frozenset({b"data", b"event", b"id", b"retry"})

DEFAULT_LIMIT = 8 * 1024 * 1024


class OverlongError(Exception):
    """An event is longer than the decoder's limit."""


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event. `name` is the `event` field, "message" when absent. `unterminated` events were cut off
    by the end of the body: their last line may be whole or not."""

    data: str
    name: str = "message"
    unterminated: bool = False


class Decoder:
    """Decodes one body. Feed it bytes as they come, then `close` it once.

    `bad_utf8` counts the field values that weren't UTF-8, `comments` the comment lines, `fields` the lines with a field
    of the standard: a body without any of the last two is no event stream.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skip_lf = False
        self._at_start = True
        self._data: list[str] = []
        self._held = 0
        self._name = ""
        self.bad_utf8 = 0
        self.comments = 0
        self.fields = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """Take bytes, return the events that they complete. Raises `OverlongError`."""
        buffer = self._buffer
        buffer += chunk
        if self._at_start and not self._drop_bom():
            return []
        events: list[Event] = []
        start = 0
        if self._skip_lf and buffer:
            self._skip_lf = False
            start = 1 if buffer[0] == _LF else 0
        search = max(start, self._scanned)
        while match := _LINE_END.search(buffer, search):
            end = match.start()
            self._line(bytes(buffer[start:end]), events)
            start = end + 1
            if buffer[end] != _LF:
                if start == len(buffer):
                    self._skip_lf = True
                elif buffer[start] == _LF:
                    start += 1
            search = start
        del buffer[:start]
        self._scanned = len(buffer)
        if len(buffer) + self._held > self._limit:
            raise OverlongError
        return events

    def close(self) -> list[Event]:
        """The body is over: return what was begun, marked `unterminated`. Nothing begun, nothing returned."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        if rest and not (self._at_start and _BOM.startswith(rest)):
            self._line(rest, [])
        if not self._data:
            return []
        event = Event("\n".join(self._data), self._name or "message", unterminated=True)
        self._reset()
        return [event]

    def _drop_bom(self) -> bool:
        """Whether enough has come to know if the body begins with a BOM; drops it."""
        if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
            return False
        if self._buffer.startswith(_BOM):
            del self._buffer[: len(_BOM)]
        self._at_start = False
        return True

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event("\n".join(self._data), self._name or "message"))
            self._reset()
            return
        if line.startswith(b":"):
            self.comments += 1
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field in _FIELDS:
            self.fields += 1
        if field == b"data":
            self._data.append(self._text(value))
            self._held += len(value)
        elif field == b"event":
            self._name = self._text(value)

    def _text(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.bad_utf8 += 1
            return value.decode(errors="replace")

    def _reset(self) -> None:
        self._data = []
        self._held = 0
        self._name = ""
