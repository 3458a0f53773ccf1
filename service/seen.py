"""How one exchange reads, in one word. The order of the questions is the law: what is said first is said.

An error before the announced end outranks everything in the stream; our own deadline and caps outrank the body;
broken framing outranks a missing end; a missing end outranks a call that looks whole.
"""

from __future__ import annotations

from enum import StrEnum

from service.model import Body, End, Exchange, Refusal


class Seen(StrEnum):
    NO_HTTP = "no_http"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    LATE_ERROR = "late_error"  # an error after text, reasoning or a call had come
    TIMEOUT = "timeout"
    OWN_CAP = "own_cap"
    HTML = "html"
    JSON = "json"
    EARLY_END = "early_end"
    BROKEN = "broken"
    DECLARED_MALFORMED = "declared_malformed"
    FILTERED = "filtered"
    CALL = "call"
    BAD_CALL = "bad_call"
    CUT = "cut"  # by the token cap that we sent
    LEAK = "leak"
    TEXT = "text"
    SILENT = "silent"


ACCEPTED = frozenset({Seen.CALL, Seen.BAD_CALL, Seen.CUT, Seen.LEAK, Seen.TEXT, Seen.SILENT})
"""The request was taken and the answer announced its end."""

NO_CALL = frozenset({Seen.TEXT, Seen.SILENT, Seen.LEAK})
"""... and no native call was in it."""


def see(exchange: Exchange) -> Seen:
    """The word for an exchange."""
    if exchange.end is End.NO_ANSWER:
        return Seen.NO_HTTP
    if exchange.end is End.CANCELLED:
        return Seen.CANCELLED
    if exchange.refusal is not None:
        return Seen.REFUSED
    reading = exchange.reading
    if reading is not None and reading.error is not None:
        return Seen.LATE_ERROR if reading.error_after_delta else Seen.REFUSED
    if reading is None or reading.announced is None:
        if exchange.end is End.DEADLINE:
            return Seen.OWN_CAP if exchange.flowing else Seen.TIMEOUT
        if exchange.end is End.CAP:
            return Seen.OWN_CAP
    if exchange.body is Body.HTML:
        return Seen.HTML
    if exchange.body is Body.JSON:
        whole = exchange.completion or exchange.end in (End.COMPLETE, End.ENOUGH)
        return Seen.JSON if whole else Seen.EARLY_END
    if exchange.body is Body.UNREADABLE or (reading is not None and reading.broken is not None):
        return Seen.BROKEN
    if reading is None or reading.announced is None:
        return Seen.EARLY_END
    if reading.declared_malformed:
        return Seen.DECLARED_MALFORMED
    if reading.filtered and all(call.problem and call.cut for call in reading.calls):
        return Seen.FILTERED
    if reading.calls:
        problems = [call for call in reading.calls if call.problem]
        if not problems:
            return Seen.CALL
        return Seen.CUT if reading.capped and all(call.cut for call in problems) else Seen.BAD_CALL
    if reading.leak is not None:
        return Seen.LEAK
    if reading.capped:
        return Seen.CUT
    return Seen.TEXT if reading.has_text else Seen.SILENT


def refusal_of(exchange: Exchange) -> Refusal | None:
    """The refusal, before or inside the stream."""
    return exchange.refusal or (exchange.reading.error if exchange.reading else None)


def reason_of(exchange: Exchange) -> str | None:
    """The finer word beside what was seen."""
    reading, seen = exchange.reading, see(exchange)
    refusal = refusal_of(exchange)
    if refusal is not None:
        return refusal.reason
    if seen is Seen.NO_HTTP:
        return exchange.fault
    if seen is Seen.TIMEOUT:
        if exchange.headers_s is None:
            return "no_headers"
        return "stalled" if exchange.first_event_s is not None or (exchange.status or 0) >= 300 else "no_event"
    if seen is Seen.OWN_CAP:
        return "deadline" if exchange.end is End.DEADLINE else "bytes"
    if seen is Seen.EARLY_END:
        return _early_end(exchange)
    if seen is Seen.BROKEN:
        return (reading.broken if reading else None) or "content_encoding"
    if seen is Seen.HTML:
        return "html_page"
    if seen is Seen.JSON:
        return "json_completion" if exchange.completion else "json_body"
    if seen is Seen.DECLARED_MALFORMED:
        return "provider_declared_malformed"
    if seen is Seen.BAD_CALL and reading is not None:
        return next(
            (call.problem for call in reading.calls if call.problem and not (reading.capped and call.cut)), None
        )
    if seen is Seen.LEAK and reading is not None:
        return reading.leak
    if seen is Seen.CUT:
        return "token_cap"
    return None


def _early_end(exchange: Exchange) -> str:
    if exchange.body is Body.NONE and exchange.end is End.COMPLETE and exchange.bytes_read == 0:
        return "closed_before_event" if exchange.labelled_events else "empty"
    how = "reset" if exchange.end is End.RESET else "closed"
    return f"{how}_after_event" if exchange.first_event_s is not None else f"{how}_before_event"
