"""The bytes of an answer: the same facts however they are cut, compressed or ended, and bounded whatever comes."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.answer import BODY_LIMIT, DRAIN_LIMIT, ERROR_LIMIT, Answer, Inflater, UnknownEncodingError, from_cache
from service.contracts.native_tools import TOOL
from service.demo.scenario import Framing, Reply, Values
from service.dialects import DIALECTS
from service.model import Body, End, Exchange, Refused
from service.seen import Seen, reason_of, see
from tests.exchanges import ASK, ROUTE
from tests.peer import load_corpus

CHAT = DIALECTS["openai-chat"]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
EVENT_STREAM = {"content-type": "text/event-stream"}
KIB = 1024
CHUNK = 64 * KIB


def taken(
    pieces: Iterable[bytes],
    *,
    status: int = 200,
    headers: Mapping[str, str] = EVENT_STREAM,
    end: End = End.COMPLETE,
) -> tuple[Answer, Exchange]:
    """Feed an answer as the transport does: until it has enough."""
    answer = Answer(CHAT, ROUTE, ASK, status, headers, NOW)
    for piece in pieces:
        answer.feed(piece)
        if answer.enough:
            end = End.ENOUGH
            break
    else:
        end = End.ENOUGH if answer.announced and end in (End.CLOSED, End.RESET) else end
    return answer, answer.finish(end)


def exchange_of(body: bytes, **kwargs: Any) -> Exchange:
    return taken([body], **kwargs)[1]


def cut(body: bytes, at: Iterable[int]) -> Iterator[bytes]:
    last = 0
    for position in [*sorted(at), len(body)]:
        yield body[last:position]
        last = max(last, position)


def facts(exchange: Exchange) -> dict[str, Any]:
    """All but how many bytes were read: that depends on where enough was seen."""
    read = {name: getattr(exchange, name) for name in ("status", "body", "refusal", "reading", "completion", "cached")}
    return {**read, "seen": see(exchange), "reason": reason_of(exchange)}


VALUES = Values(
    tools=(TOOL.name,), model="m", key="sk-test-Zq8Tr4vB1xN7m", id="x", base="http://a", other_origin="http://b"
)
ENDS = {"clean": End.COMPLETE, "cut": End.CLOSED, "reset": End.RESET, "hang": End.DEADLINE}


def replies() -> Iterator[Any]:
    for scenario in load_corpus(dialect="openai-chat", contract="native_tools"):
        for number, entry in enumerate(scenario.replies):
            if entry.reply.status and entry.reply.framing is not Framing.JSON:
                yield pytest.param(entry.reply, id=f"{scenario.id}-{number}")


REPLIES = list(replies())


def given_by(reply: Reply, most: int = BODY_LIMIT + CHUNK) -> tuple[bytes, dict[str, Any]]:
    """A reply's body, uncompressed and no longer than we could read, and how the answer came."""
    body = bytearray()
    for piece in reply.pieces(VALUES):
        body += piece
        if len(body) > most:
            break
    headers = {name.lower(): VALUES.fill(value) for name, value in reply.headers.items()}
    if reply.gzipped:
        del headers["content-encoding"]
    return bytes(body), {"status": reply.status, "headers": headers, "end": ENDS[reply.end]}


def in_chunks(body: bytes, seed: int = 0) -> list[bytes]:
    dice = random.Random(seed)
    return list(cut(body, dice.sample(range(len(body)), min(200, len(body)))))


@pytest.mark.parametrize("reply", REPLIES)
def test_where_the_bytes_are_cut_doesnt_matter(reply: Reply) -> None:
    body, how = given_by(reply)
    whole = facts(exchange_of(body, **how))
    step = 1 if len(body) <= 100 * KIB else 4099
    assert facts(taken((body[at : at + step] for at in range(0, len(body), step)), **how)[1]) == whole
    for seed in range(3):
        assert facts(taken(in_chunks(body, seed), **how)[1]) == whole


@pytest.mark.parametrize("reply", REPLIES)
def test_compression_doesnt_matter(reply: Reply) -> None:
    body, how = given_by(reply)
    if "content-encoding" in how["headers"]:
        return  # a label that lies, which is a case of its own below
    whole = facts(exchange_of(body, **how))
    how["headers"] = {**how["headers"], "content-encoding": "gzip"}
    packed = gzip.compress(body, 1)
    assert facts(exchange_of(packed, **how)) == whole
    assert facts(taken(in_chunks(packed), **how)[1]) == whole


@pytest.mark.parametrize("reply", [param for param in REPLIES if param.values[0].framing is Framing.EVENTS])
def test_line_ends_and_a_bom_dont_matter(reply: Reply) -> None:
    body, how = given_by(reply)
    whole = facts(exchange_of(body, **how))
    assert facts(exchange_of(b"\xef\xbb\xbf" + body, **how)) == whole
    assert facts(taken(in_chunks(b"\xef\xbb\xbf" + body), **how)[1]) == whole
    if len(body) > BODY_LIMIT // 2 or b"\r" in body:
        return
    for line_end in (b"\r\n", b"\r"):
        changed = body.replace(b"\n", line_end)
        assert facts(exchange_of(changed, **how)) == whole
        assert facts(taken(in_chunks(changed), **how)[1]) == whole


SMALL = [reply for (reply,) in (param.values for param in REPLIES) if len(given_by(reply, 20 * KIB)[0]) <= 20 * KIB]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(st.sampled_from(SMALL), st.lists(st.integers(0, 20 * KIB), max_size=12))
def test_any_cuts(reply: Reply, cuts: list[int]) -> None:
    body, how = given_by(reply)
    assert facts(taken(cut(body, [at % (len(body) + 1) for at in cuts]), **how)[1]) == facts(exchange_of(body, **how))


# --- kinds of bodies ----------------------------------------------------------------------------------------

COMPLETION = {"object": "chat.completion", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
CALL = {
    "choices": [
        {
            "delta": {
                "tool_calls": [
                    {"index": 0, "id": "c1", "function": {"name": TOOL.name, "arguments": '{"value": "ok"}'}}
                ]
            }
        }
    ]
}
FINISH = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body>hello</body></html>"


def events(*data: Any) -> bytes:
    return b"".join(b"data: " + (d if isinstance(d, bytes) else json.dumps(d).encode()) + b"\n\n" for d in data)


STREAM = events(CALL, FINISH, b"[DONE]")
ERROR = b'{"error": {"message": "no", "code": "insufficient_quota"}}'

KINDS: dict[str, tuple[bytes, dict[str, Any], Body, Seen, str | None]] = {
    "a stream": (STREAM, {}, Body.EVENTS, Seen.CALL, None),
    "a stream labelled as json": (
        STREAM,
        {"headers": {"content-type": "application/json"}},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "a stream, no label": (STREAM, {"headers": {}}, Body.EVENTS, Seen.CALL, None),
    "a stream behind white space": (b"\n\n \n" + STREAM, {}, Body.EVENTS, Seen.CALL, None),
    "a stream behind a comment": (b": hi\n\n" + STREAM, {}, Body.EVENTS, Seen.CALL, None),
    "completion": (json.dumps(COMPLETION).encode(), {}, Body.JSON, Seen.JSON, "json_completion"),
    "completion behind a bom": (
        b"\xef\xbb\xbf" + json.dumps(COMPLETION).encode(),
        {},
        Body.JSON,
        Seen.JSON,
        "json_completion",
    ),
    "completion behind white space": (
        b" \n\n" + json.dumps(COMPLETION).encode(),
        {},
        Body.JSON,
        Seen.JSON,
        "json_completion",
    ),
    "completion, wrapped": (json.dumps({"data": COMPLETION}).encode(), {}, Body.JSON, Seen.JSON, "json_completion"),
    "completion and [DONE]": (
        json.dumps(COMPLETION).encode() + b"\ndata: [DONE]\n\n",
        {},
        Body.JSON,
        Seen.JSON,
        "json_completion",
    ),
    "completion, then a reset": (
        json.dumps(COMPLETION).encode(),
        {"end": End.RESET},
        Body.JSON,
        Seen.JSON,
        "json_completion",
    ),
    "ndjson": (
        b"\n".join([json.dumps(CALL).encode(), json.dumps(FINISH).encode(), b""]),
        {},
        Body.JSON,
        Seen.JSON,
        "json_completion",
    ),
    "array": (json.dumps([CALL, FINISH]).encode(), {}, Body.JSON, Seen.JSON, "json_body"),
    "another object": (b'{"ok": true}', {}, Body.JSON, Seen.JSON, "json_body"),
    "a json string": (b'"hello"', {}, Body.JSON, Seen.JSON, "json_body"),
    "a json null": (b"null\n", {}, Body.JSON, Seen.JSON, "json_body"),
    "text that begins like null": (b"null pointer", {}, Body.EVENTS, Seen.BROKEN, "not_an_event_stream"),
    "json cut off, closed as http says": (b'{"choices": [', {}, Body.JSON, Seen.JSON, "json_body"),
    "json cut off by a close": (
        b'{"choices": [',
        {"end": End.CLOSED},
        Body.JSON,
        Seen.EARLY_END,
        "closed_before_event",
    ),
    "json cut off by a reset": (b'{"choices": [', {"end": End.RESET}, Body.JSON, Seen.EARLY_END, "reset_before_event"),
    "json cut off by our deadline": (b'{"choices": [', {"end": End.DEADLINE}, Body.JSON, Seen.TIMEOUT, "no_headers"),
    "a json error": (ERROR, {}, Body.JSON, Seen.REFUSED, None),
    "a json error, then silence": (ERROR, {"end": End.DEADLINE}, Body.JSON, Seen.REFUSED, None),
    "a json error in a list": (b"[" + ERROR + b"]", {}, Body.JSON, Seen.REFUSED, None),
    "a page": (PAGE, {}, Body.HTML, Seen.HTML, "html_page"),
    "a page behind white space": (b"\n\n" + PAGE, {}, Body.HTML, Seen.HTML, "html_page"),
    "xml": (b'<?xml version="1.0"?><Error/>', {}, Body.HTML, Seen.HTML, "html_page"),
    "plain text": (b"Internal Server Error", {}, Body.EVENTS, Seen.BROKEN, "not_an_event_stream"),
    "plain text with a colon": (b"error: upstream went away\n", {}, Body.EVENTS, Seen.BROKEN, "not_an_event_stream"),
    "bytes": (bytes(range(128, 256)), {}, Body.EVENTS, Seen.BROKEN, "not_an_event_stream"),
    "nothing": (b"", {"headers": {}}, Body.NONE, Seen.EARLY_END, "empty"),
    "nothing, labelled as events": (b"", {}, Body.NONE, Seen.EARLY_END, "closed_before_event"),
    "nothing, then a reset": (b"", {"end": End.RESET}, Body.NONE, Seen.EARLY_END, "reset_before_event"),
    "nothing, then our deadline": (b"", {"end": End.DEADLINE}, Body.NONE, Seen.TIMEOUT, "no_headers"),
    "white space": (b"\n \n", {"headers": {}}, Body.NONE, Seen.EARLY_END, "closed_before_event"),
    "comments alone": (b": hi\n\n: ho\n\n", {}, Body.EVENTS, Seen.EARLY_END, "closed_before_event"),
    "fields without data": (b"event: ping\n\nid: 1\n\n", {}, Body.EVENTS, Seen.EARLY_END, "closed_before_event"),
    "no end": (events(CALL), {}, Body.EVENTS, Seen.EARLY_END, "closed_before_event"),
    "an event cut off": (events(CALL) + b'data: {"choices": [', {}, Body.EVENTS, Seen.EARLY_END, "closed_before_event"),
    "an end cut off": (
        events(CALL) + b"data: [DON",
        {"end": End.RESET},
        Body.EVENTS,
        Seen.EARLY_END,
        "reset_before_event",
    ),
    "an end without a line end": (events(CALL) + b"data: [DONE]", {}, Body.EVENTS, Seen.CALL, None),
    "an end without a line end, reset": (
        events(CALL) + b"data: [DONE]",
        {"end": End.RESET},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "garbage in mid-stream": (events(CALL, b"{nonsense", FINISH), {}, Body.EVENTS, Seen.BROKEN, "data_not_json"),
    "garbage behind the end": (events(CALL, FINISH, b"{nonsense"), {}, Body.EVENTS, Seen.CALL, None),
    "garbage behind [DONE]": (events(CALL, b"[DONE]", b"{nonsense", b"[DONE]"), {}, Body.EVENTS, Seen.CALL, None),
    "bad utf-8 in a text": (
        events(b'{"choices": [{"delta": {"content": "\xff"}}]}', CALL, FINISH),
        {},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "an unknown encoding": (
        STREAM,
        {"headers": {"content-encoding": "br"}},
        Body.UNREADABLE,
        Seen.BROKEN,
        "content_encoding",
    ),
    "gzip": (gzip.compress(STREAM), {"headers": {"content-encoding": "gzip"}}, Body.EVENTS, Seen.CALL, None),
    "x-gzip": (gzip.compress(STREAM), {"headers": {"content-encoding": " X-GZip "}}, Body.EVENTS, Seen.CALL, None),
    "deflate": (zlib.compress(STREAM), {"headers": {"content-encoding": "deflate"}}, Body.EVENTS, Seen.CALL, None),
    "raw deflate": (
        zlib.compress(STREAM, wbits=-zlib.MAX_WBITS),
        {"headers": {"content-encoding": "deflate"}},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "raw deflate, fixed codes": (
        zlib.compress(b": \n\n", wbits=-zlib.MAX_WBITS),
        {"headers": {"content-encoding": "deflate"}},
        Body.EVENTS,
        Seen.EARLY_END,
        "closed_before_event",
    ),
    "identity": (STREAM, {"headers": {"content-encoding": "identity"}}, Body.EVENTS, Seen.CALL, None),
    "two gzip members": (
        gzip.compress(STREAM[:50]) + gzip.compress(STREAM[50:]),
        {"headers": {"content-encoding": "gzip"}},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "garbage behind gzip": (
        gzip.compress(STREAM) + b"\0\0",
        {"headers": {"content-encoding": "gzip"}},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "garbage behind gzip, no end": (
        gzip.compress(events(CALL)) + b"\0\0",
        {"headers": {"content-encoding": "gzip"}},
        Body.EVENTS,
        Seen.EARLY_END,
        "closed_before_event",
    ),
    "gzip whose checksum is wrong, behind the end": (
        gzip.compress(STREAM)[:-8] + b"\0" * 8,
        {"headers": {"content-encoding": "gzip"}},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "gzip whose checksum is wrong, no end": (
        gzip.compress(events(CALL))[:-8] + b"\0" * 8,
        {"headers": {"content-encoding": "gzip"}},
        Body.UNREADABLE,
        Seen.BROKEN,
        "content_encoding",
    ),
    "gzip cut off": (
        gzip.compress(events(CALL))[:-20],
        {"headers": {"content-encoding": "gzip"}, "end": End.CLOSED},
        Body.EVENTS,
        Seen.EARLY_END,
        "closed_before_event",
    ),
    "a gzip label on a plain stream": (
        STREAM,
        {"headers": {"content-encoding": "gzip"}},
        Body.UNREADABLE,
        Seen.BROKEN,
        "content_encoding",
    ),
    "nested too deep": (b"[" * 100_000, {}, Body.JSON, Seen.JSON, "json_body"),
    "nested too deep in an event": (events(b"[" * 100_000), {}, Body.EVENTS, Seen.BROKEN, "data_not_json"),
    "huge numbers": (
        events(b'{"choices": [], "usage": {"completion_tokens": 1e999999}}', CALL, FINISH),
        {},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
    "nan": (
        events(b'{"choices": [], "usage": {"completion_tokens": NaN}}', CALL, FINISH),
        {},
        Body.EVENTS,
        Seen.CALL,
        None,
    ),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("step", [None, 1], ids=["whole", "byte by byte"])
def test_kinds(name: str, step: int | None) -> None:
    body, how, kind, seen, reason = KINDS[name]
    size = step or len(body) or 1
    exchange = taken((body[at : at + size] for at in range(0, len(body), size)), **how)[1]
    assert (exchange.body, see(exchange)) == (kind, seen)
    assert reason_of(exchange) == reason


REFUSALS: dict[str, tuple[int, bytes, dict[str, Any], Body, Refused | None]] = {
    "json": (400, ERROR, {}, Body.JSON, Refused.CREDIT),
    "json over 64 KiB": (401, b'{"message": "' + b"x" * 100_000, {}, Body.JSON, Refused.CREDENTIAL),
    "a page": (404, PAGE, {}, Body.HTML, None),
    "text": (500, b"oops", {}, Body.TEXT, None),
    "nothing": (429, b"", {}, Body.NONE, Refused.RATE),
    "a redirect": (302, b"", {"headers": {"location": "https://other/"}}, Body.NONE, Refused.PATH),
    "an event stream": (
        400,
        events({"error": {"message": "no", "code": "insufficient_quota"}}),
        {},
        Body.TEXT,
        Refused.CREDIT,
    ),
    "gzip": (400, gzip.compress(ERROR), {"headers": {"content-encoding": "gzip"}}, Body.JSON, Refused.CREDIT),
    "a gzip label on plain json": (
        402,
        ERROR,
        {"headers": {"content-encoding": "gzip"}},
        Body.UNREADABLE,
        Refused.CREDIT,
    ),
    "an unknown encoding": (401, ERROR, {"headers": {"content-encoding": "zstd"}}, Body.UNREADABLE, Refused.CREDENTIAL),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    status, body, how, kind, settled = REFUSALS[name]
    for pieces in ([body], (body[at : at + 7] for at in range(0, len(body), 7))):
        exchange = taken(pieces, status=status, **how)[1]
        assert (exchange.body, see(exchange)) == (kind, Seen.REFUSED)
        assert exchange.refusal is not None
        assert exchange.refusal.kind is settled


@pytest.mark.parametrize("status", [401, 402, 407, 429, 529])
def test_some_statuses_decide_though_the_body_never_ends(status: int) -> None:
    exchange = exchange_of(b'{"error": "x', status=status, end=End.DEADLINE)
    assert exchange.refusal is not None
    assert exchange.refusal.kind is not None


@pytest.mark.parametrize("status", [400, 404, 500, 503, 302])
def test_others_dont(status: int) -> None:
    exchange = exchange_of(b'{"error": "x', status=status, end=End.DEADLINE)
    assert (exchange.refusal, see(exchange)) == (None, Seen.TIMEOUT)


@pytest.mark.parametrize(
    ("name", "value", "hit"),
    [
        ("x-cache", "HIT", True),
        ("x-cache", "Hit from cloudfront", True),
        ("x-cache", "MISS, HIT", True),
        ("x-cache", "TCP_MEM_HIT from a1", True),
        ("x-cache-status", "hit", True),
        ("cf-cache-status", "HIT", True),
        ("cf-aig-cache-status", "HIT", True),
        ("x-portkey-cache-status", "SEMANTIC HIT", True),
        ("helicone-cache", "HIT", True),
        ("cache-status", "edge; hit; ttl=30", True),
        ("cache-status", "edge;hit", True),
        ("cache-status", "edge; fwd=miss", False),
        ("x-cache", "MISS", False),
        ("x-cache", "Miss from cloudfront", False),
        ("cf-cache-status", "DYNAMIC", False),
        ("x-cache-hits", "0", False),
        ("x-cache", "white", False),
        ("cache-control", "hit", False),
        ("x-served-by", "HIT", False),
        ("x-cache", "", False),
    ],
)
def test_cache_headers(name: str, value: str, hit: bool) -> None:
    assert from_cache({name: value}) is hit
    assert exchange_of(STREAM, headers={**EVENT_STREAM, name: value}).cached is hit


# --- bounds -------------------------------------------------------------------------------------------------


class Peak:
    """The most memory that was held while it is entered, in bytes."""

    def __enter__(self) -> Peak:
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def fed(pieces: Iterable[bytes], **how: Any) -> tuple[Answer, Exchange, int]:
    with Peak() as peak:
        answer, exchange = taken(pieces, **how)
    return answer, exchange, peak.bytes


MIB = KIB * KIB


def test_an_endless_stream_stops_at_its_cap() -> None:
    piece = events({"choices": [{"delta": {"reasoning_content": "x" * 1000}}]}) * 60
    answer, exchange, peak = fed(piece for _ in iter(int, 1))
    assert answer.over_limit
    assert BODY_LIMIT < exchange.bytes_read <= BODY_LIMIT + 1
    assert (exchange.end, see(exchange), reason_of(exchange)) == (End.CAP, Seen.OWN_CAP, "bytes")
    assert peak < 4 * MIB


def test_an_endless_line_stops_at_its_cap() -> None:
    _, exchange, peak = fed(b"data: " + b"x" * CHUNK for _ in iter(int, 1))
    assert (exchange.end, see(exchange)) == (End.CAP, Seen.OWN_CAP)
    assert peak < 40 * MIB


def test_an_endless_json_body_stops_at_its_cap() -> None:
    _, exchange, peak = fed(b"[" + b" " * CHUNK for _ in iter(int, 1))
    assert (exchange.end, see(exchange)) == (End.CAP, Seen.OWN_CAP)
    assert peak < 60 * MIB


def test_endless_white_space_stops_at_its_cap() -> None:
    _, exchange, peak = fed(b"\n" * CHUNK for _ in iter(int, 1))
    assert (exchange.end, see(exchange)) == (End.CAP, Seen.OWN_CAP)
    assert peak < 40 * MIB


def test_a_slow_start_of_white_space_is_looked_at_once() -> None:
    """Quadratic work on 400,000 single bytes would copy 160 gigabytes."""
    started = time.process_time()
    exchange = taken([*(b"\n" for _ in range(400_000)), STREAM])[1]
    assert see(exchange) is Seen.CALL
    assert time.process_time() - started < 5


def test_a_long_line_below_the_cap_is_read() -> None:
    text = {"choices": [{"delta": {"content": "x" * (7 * MIB)}}]}
    body = events(text, CALL, FINISH)
    exchange = taken(body[at : at + CHUNK] for at in range(0, len(body), CHUNK))[1]
    assert see(exchange) is Seen.CALL


def test_an_error_body_stops_at_its_own_cap() -> None:
    answer, exchange, peak = fed((b"x" * CHUNK for _ in iter(int, 1)), status=500)
    assert answer.over_limit
    assert ERROR_LIMIT < exchange.bytes_read <= ERROR_LIMIT + 1
    assert see(exchange) is Seen.REFUSED
    assert peak < MIB


@pytest.mark.parametrize(("status", "most"), [(200, 40 * MIB), (500, MIB)])
def test_a_compressed_bomb_stops_at_the_cap(status: int, most: int) -> None:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(b"data: " + b"x" * MIB) for _ in range(200)) + packer.flush()
    assert len(bomb) < MIB  # 200 MiB of it
    _, exchange, peak = fed([bomb], status=status, headers={"content-encoding": "gzip"})
    assert exchange.bytes_read <= (BODY_LIMIT if status == 200 else ERROR_LIMIT) + 1
    assert exchange.end is End.CAP
    assert peak < most


def test_a_bomb_of_empty_members_ends() -> None:
    inflater = Inflater("gzip")
    assert inflater.feed(gzip.compress(b"") * 5000, 1000) == b""
    assert inflater.feed(gzip.compress(b"x"), 1000) == b"x"


def test_an_inflater_never_gives_out_more_than_it_may() -> None:
    packed = gzip.compress(b"x" * 10_000)
    assert len(Inflater("gzip").feed(packed, 100)) == 100
    assert Inflater("gzip").feed(packed, 0) == b""
    assert len(Inflater("").feed(b"x" * 1000, 100)) == 100
    with pytest.raises(UnknownEncodingError):
        Inflater("br")


def test_tiny_events_cost_no_memory() -> None:
    body = b"data:{}\n\n" * 500
    _, exchange, peak = fed(body for _ in range(60))
    assert see(exchange) is Seen.EARLY_END
    assert exchange.reading is not None
    assert exchange.reading.events == 30_000
    assert peak < MIB  # kept, they would take four


def test_an_endless_answer_to_a_refusal_inside_the_stream_isnt_read_on() -> None:
    answer, exchange = taken([events({"error": {"message": "no"}}), *[STREAM] * 5])
    assert answer.enough
    assert exchange.bytes_read < 100


def test_behind_the_announced_end_only_64_kib_are_drained() -> None:
    ping = b": " + b"x" * 1000 + b"\n\n"
    answer, exchange = taken([events(CALL, FINISH), *[ping] * 10_000])
    assert answer.enough
    assert DRAIN_LIMIT < exchange.bytes_read < DRAIN_LIMIT + 3000
    assert (exchange.end, see(exchange)) == (End.ENOUGH, Seen.CALL)


def test_usage_and_done_are_waited_for_behind_the_announced_end() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    answer, exchange = taken([events(CALL, FINISH), events(usage), events(b"[DONE]"), STREAM])
    assert answer.enough
    assert exchange.reading is not None
    assert exchange.reading.tokens_out == 2
    assert "done_missing" not in exchange.reading.quirks


@pytest.mark.parametrize("seed", range(30))
def test_noise_raises_nothing(seed: int) -> None:
    dice = random.Random(seed)
    pieces = [
        b"data: ", b"\n\n", b"\r", b"{", b"}", b"[", b'"', b"\xff", b"\xef\xbb\xbf", b"\0", b"event: error\n", b"[DONE]",
        events(CALL), events(FINISH), b'{"choices": [{"delta": {"tool_calls": [{"index": null, "function": 1}]}}]}',
        b'{"choices": {}}', b'{"error": []}', b'{"usage": 1}', b'"\\ud800"', b"9" * 5000, b"NaN", b"<html>", b"1e400",
    ]  # fmt: skip
    for _ in range(100):
        body = b"".join(dice.choices(pieces, k=dice.randint(1, 30)))
        status = dice.choice([200, 200, 200, 400, 503])
        headers = {"content-encoding": dice.choice(["", "", "gzip", "deflate", "br"])}
        end = dice.choice([End.COMPLETE, End.CLOSED, End.RESET, End.DEADLINE])
        exchange = taken(in_chunks(body, seed), status=status, headers=headers, end=end)[1]
        assert re.fullmatch(r"[a-z_]+", see(exchange))
        reason_of(exchange)
