"""What the scripted provider puts on the wire, read from raw sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.demo import provider as provider_module
from service.demo.provider import HANG_S, Provider
from service.demo.request import Request
from service.demo.scenario import UNDECLARED_TOOL, Scenario, Values
from tests.peer import load_corpus, playing

KEY = "sk-test-0123456789"
EVENT_STREAM = {"content-type": "text/event-stream"}
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOOL = {"type": "function", "function": {"name": "report_value", "parameters": {"type": "object"}}}
TOOL2 = {"type": "function", "function": {"name": "second_value", "parameters": {"type": "object"}}}


def reply(framing: str, body: Any, status: int = 200, **more: Any) -> dict[str, Any]:
    headers = EVENT_STREAM if framing in ("events", "raw", "segments") else {"content-type": "text/plain"}
    return {"status": status, "headers": headers, "framing": framing, "body": body, **more}


def scenario(*replies: dict[str, Any], dialect: str = "openai-chat") -> Scenario:
    """Entries are given whole (`when`, `reply`) or as a reply to anything."""
    entries = [one if "when" in one else {"when": "any", "reply": one} for one in replies]
    return Scenario.parse({"id": "x", "dialect": dialect, "replies": entries})


PATIENCE_S = 60


class Client:
    """One connection, read byte by byte as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, base: str) -> None:
        self.reader, self.writer = reader, writer
        self._path = urlsplit(base).path

    async def send(
        self, body: Any = None, path: str = "/chat/completions", method: str = "POST", **headers: str
    ) -> None:
        data = (
            b"" if method == "GET" else json.dumps({"model": "m-1", "messages": []} if body is None else body).encode()
        )
        lines = [f"{method} {self._path}{path} HTTP/1.1", "Host: test", f"Content-Length: {len(data)}"]
        lines += [
            f"{name.replace('_', '-')}: {value}"
            for name, value in ({"authorization": f"Bearer {KEY}"} | headers).items()
        ]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await self.writer.drain()

    async def read(self, size: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)

    async def read_answer(self) -> tuple[bytes, bytes]:
        """Head and body of an answer with a content-length or chunks; the connection goes on."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        if length := re.search(rb"content-length: (\d+)", head):
            return head, await self.read(int(length[1]))
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.read(size + 2))[:-2]
        await self.read(2)
        return head, body

    async def ending(self, patience_s: float = PATIENCE_S) -> str:
        """How the connection stands after what was read: `fin`, `rst`, `more` when bytes follow, or `open` when
        nothing has come of it within the patience."""
        try:
            return "more" if await asyncio.wait_for(self.reader.read(1), patience_s) else "fin"
        except ConnectionResetError:
            return "rst"
        except TimeoutError:
            return "open"


@asynccontextmanager
async def connected(origin_or_base: str) -> AsyncIterator[Client]:
    url = urlsplit(origin_or_base)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        yield Client(reader, writer, origin_or_base)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def talking(*replies: dict[str, Any]) -> AsyncIterator[Client]:
    async with playing([scenario(*replies)]) as provider, connected(provider.url("x")) as client:
        yield client


# --- bytes and ends ---------------------------------------------------------------------------------------

TEXT_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
EVENTS = ["data: 1", "event: e\ndata: 2"]
PLAIN_EVENTS = b"data: 1\n\nevent: e\ndata: 2\n\n"
TWO_CHUNKS = b"9\r\ndata: 1\n\n\r\n12\r\nevent: e\ndata: 2\n\n\r\n"
LAST = b"0\r\n\r\n"


def chunked(*chunks: bytes) -> bytes:
    """A whole stream of these chunks, each shorter than ten bytes."""
    return CHUNKED + b"".join(b"%d\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + LAST


def sized(length: int, body: bytes, head: bytes = TEXT_HEAD) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % length + body


def until_closed(body: bytes, head: bytes = TEXT_HEAD) -> bytes:
    return head + b"connection: close\r\n\r\n" + body


@pytest.mark.parametrize(
    ("given", "wire", "ending"),
    [
        (reply("json", {"a": ["ö", None]}), sized(17, '{"a":["ö",null]}'.encode()), "open"),
        (reply("text", "ö"), sized(2, "ö".encode()), "open"),
        (reply("text", ""), sized(0, b""), "open"),
        (reply("text", "a", 404), sized(1, b"a", TEXT_HEAD.replace(b"200 OK", b"404 Not Found")), "open"),
        (reply("text", "a", 529), sized(1, b"a", TEXT_HEAD.replace(b"200 OK", b"529 ")), "open"),
        (reply("text", "a", close_after=True), sized(1, b"a"), "fin"),
        (
            reply("text", "ab", transfer="chunked"),
            TEXT_HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n" + LAST,
            "open",
        ),
        (reply("text", "ab", transfer="close"), until_closed(b"ab"), "fin"),
        (reply("events", EVENTS), CHUNKED + TWO_CHUNKS + LAST, "open"),
        (reply("events", []), chunked(), "open"),
        (reply("events", [{"repeat": 3, "event": ":"}]), chunked(b":\n\n", b":\n\n", b":\n\n"), "open"),
        (reply("events", EVENTS, close_after=True), CHUNKED + TWO_CHUNKS + LAST, "fin"),
        (reply("events", EVENTS, transfer="length"), sized(27, PLAIN_EVENTS, STREAM_HEAD), "open"),
        (reply("events", EVENTS, transfer="close"), until_closed(PLAIN_EVENTS, STREAM_HEAD), "fin"),
        (reply("raw", "a: 1\r\rx"), chunked(b"a: 1\r\rx"), "open"),
        (reply("raw", "\ufeffx"), chunked(b"\xef\xbb\xbfx"), "open"),
        (reply("raw", ""), chunked(), "open"),
        (reply("segments", ["a", {"hex": "c3"}, "", {"hex": "a9"}]), chunked(b"a", b"\xc3", b"\xa9"), "open"),
        (reply("segments", ["a", {"hex": "ff"}], transfer="length"), sized(2, b"a\xff", STREAM_HEAD), "open"),
        (reply("raw", "abcdefgh", segment_bytes=3), chunked(b"abc", b"def", b"gh"), "open"),
        (reply("events", ["a", "bcd"], segment_bytes=2), chunked(b"a\n", b"\nb", b"cd", b"\n\n"), "open"),
        # unclean ends: no last chunk, or a length that is 64 bytes too long
        (reply("events", EVENTS, end="cut"), CHUNKED + TWO_CHUNKS, "fin"),
        (reply("events", EVENTS, end="reset"), CHUNKED + TWO_CHUNKS, "rst"),
        (reply("events", EVENTS, end="hang"), CHUNKED + TWO_CHUNKS, "open"),
        (reply("events", [], end="reset"), CHUNKED, "rst"),
        (reply("text", "ab", end="cut"), sized(66, b"ab"), "fin"),
        (reply("text", "ab", end="reset"), sized(66, b"ab"), "rst"),
        (reply("json", 1, end="hang"), sized(65, b"1"), "open"),
        (reply("text", "ab", end="reset", transfer="close"), until_closed(b"ab"), "rst"),
        # no HTTP at all
        (reply("text", "SSH-2.0\r\n", 0, end="cut"), b"SSH-2.0\r\n", "fin"),
        (reply("text", "SSH-2.0\r\n", 0), b"SSH-2.0\r\n", "fin"),
        (reply("text", "", 0, end="cut"), b"", "fin"),
        (reply("text", "", 0, end="reset"), b"", "rst"),
        (reply("events", ["a"], 0, end="hang"), b"a\n\n", "open"),
    ],
)
async def test_an_answer_is_exactly_these_bytes_and_this_end(given: dict[str, Any], wire: bytes, ending: str) -> None:
    async with talking(given) as client:
        await client.send()
        assert await client.read(len(wire)) == wire
        assert await client.ending(0.1 if ending == "open" else 5) == ending


async def test_a_kept_connection_takes_the_next_request_and_close_is_heeded() -> None:
    async with talking(reply("events", ["data: {{MODEL}}"])) as client:
        for model in ("m-1", "m-2"):
            await client.send({"model": model})
            assert await client.read_answer() == (CHUNKED, f"data: {model}\n\n".encode())
        await client.send(connection="close")
        head, _ = await client.read_answer()
        assert head.endswith(b"connection: close\r\n\r\n")
        assert await client.ending() == "fin"


async def test_a_hang_ends_by_itself_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert provider_module.HANG_S == 60
    monkeypatch.setattr(provider_module, "HANG_S", 0.02)
    async with talking(reply("events", ["a"], end="hang")) as client:
        await client.send()
        await client.read(len(CHUNKED) + 8)
        assert await client.ending() == "fin"


# --- time -------------------------------------------------------------------------------------------------


class Pauses:
    """The sleeps of a provider: each lasts until it is told to end."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._ends: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._ends.get()

    def end(self) -> None:
        self._ends.put_nowait(None)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    made = Pauses()
    monkeypatch.setattr(provider_module, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": made.sleep}))
    return made


async def come_one_by_one(client: Client, pauses: Pauses, *pieces: bytes) -> None:
    """Each of the pieces comes when the pause before it ends and no sooner, and the end right after the last."""
    await client.send()
    await client.reader.readuntil(b"\r\n\r\n")
    for piece in pieces[:-1]:
        assert await client.read(len(piece)) == piece
        assert await client.ending(0.05) == "open"
        pauses.end()
    assert await client.read(len(pieces[-1])) == pieces[-1]
    assert await client.ending() == "fin"


async def test_segments_come_apart_and_each_as_a_write_of_its_own(pauses: Pauses) -> None:
    pieces = ["one", {"hex": "c3"}, "two"]
    async with talking(reply("segments", pieces, transfer="close")) as client:
        await come_one_by_one(client, pauses, b"one", b"\xc3", b"two")
    assert len(pauses.asked) == 2
    assert min(pauses.asked) > 0.01


async def test_the_delay_lies_between_writes_only(pauses: Pauses) -> None:
    async with talking(reply("events", ["a", "b", "c"], delay_s=0.15, transfer="close")) as client:
        await come_one_by_one(client, pauses, b"a\n\n", b"b\n\n", b"c\n\n")
    assert pauses.asked == [0.15, 0.15]


async def test_the_first_byte_waits_and_the_head_with_it(pauses: Pauses) -> None:
    async with talking(reply("events", ["a"], first_byte_delay_s=0.1)) as client:
        await client.send()
        assert await client.ending(0.05) == "open"
        pauses.end()
        assert await client.read(1) == b"H"
    assert pauses.asked == [0.1]


# --- compression ------------------------------------------------------------------------------------------

GZIP = {**EVENT_STREAM, "content-encoding": "gzip"}


async def read_chunks(client: Client) -> list[bytes]:
    await client.reader.readuntil(b"\r\n\r\n")
    chunks = []
    while size := int(await client.reader.readuntil(b"\r\n"), 16):
        chunks.append((await client.read(size + 2))[:-2])
    return chunks


async def test_gzip_is_flushed_so_that_each_event_can_be_read_at_once() -> None:
    async with talking({**reply("events", ["data: 1", "data: 2"]), "headers": GZIP}) as client:
        await client.send()
        chunks = await read_chunks(client)
    assert gzip.decompress(b"".join(chunks)) == b"data: 1\n\ndata: 2\n\n"
    decoder = zlib.decompressobj(wbits=31)
    assert [decoder.decompress(chunk) for chunk in chunks[:2]] == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_gzip_has_its_true_length_and_no_trailer_when_cut() -> None:
    async with talking({**reply("json", {"a": 1}), "headers": GZIP}) as client:
        await client.send()
        _, body = await client.read_answer()
        assert gzip.decompress(body) == b'{"a":1}'
    async with talking({**reply("events", ["data: 1"], end="cut"), "headers": GZIP}) as client:
        await client.send()
        wire = await asyncio.wait_for(client.reader.read(), PATIENCE_S)
    decoder = zlib.decompressobj(wbits=31)
    assert decoder.decompress(wire.split(b"\r\n\r\n", 1)[1].split(b"\r\n", 1)[1]).startswith(b"data: 1\n\n")
    assert not decoder.eof


async def test_gzip_may_be_a_mere_label() -> None:
    async with talking({**reply("events", ["data: 1"], gzip=False), "headers": GZIP}) as client:
        await client.send()
        head, body = await client.read_answer()
    assert b"content-encoding: gzip\r\n" in head
    assert body == b"data: 1\n\n"


# --- size -------------------------------------------------------------------------------------------------


async def test_a_huge_repeated_body_is_never_held_as_a_whole() -> None:
    big = {"repeat": 640, "event": "data: {{PAD:65000}}"}
    async with talking(reply("events", [big], transfer="close")) as client:
        await client.send()
        tracemalloc.start()
        size = 0
        while data := await client.reader.read(1 << 16):
            size += len(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert size > 640 * 65000
    assert peak < 4_000_000


async def test_a_client_that_leaves_in_the_middle_is_no_error() -> None:
    big = reply("text", "{{PAD:20000000}}")
    async with playing([scenario(big)]) as provider:
        async with connected(provider.url("x")) as client:
            await client.send()
            await client.read(1000)
        async with connected(provider.url("x")) as client:
            await client.send()
            head, body = await client.read_answer()
    assert b"content-length: 20000000" in head
    assert body == b"x" * 20_000_000


# --- which entry answers ----------------------------------------------------------------------------------

A, B = reply("text", "a"), reply("text", "b")


async def ask(provider: Provider, body: Any = None, origin: str | None = None, **more: Any) -> tuple[bytes, bytes]:
    base = provider.url("x")
    async with connected(base.replace(provider.origin, origin) if origin else base) as client:
        await client.send(body, **more)
        return await client.read_answer()


async def test_the_first_entry_that_fits_and_is_not_used_up_answers() -> None:
    one = scenario(
        {"when": "auto", "times": 2, "reply": A}, {"when": ["not:get", "cap:tools"], "reply": B}, reply("text", "c")
    )
    tools = {"model": "m", "tools": [TOOL]}
    async with playing([one]) as provider:
        bodies = [(await ask(provider, body))[1] for body in (tools, {}, tools, tools, tools)]
        assert bodies == [b"a", b"c", b"a", b"b", b"b"]
        assert [request.entry for request in provider.requests] == [0, 2, 0, 1, 1]
        assert provider.count("x") == 5
        provider.reset("x")
        assert provider.count("x") == 0
        assert (await ask(provider, tools))[1] == b"a"
        assert provider.count("x") == 1
    async with playing([one]) as provider:
        assert (await ask(provider, tools))[1] == b"a"


async def test_a_route_can_break_and_heal() -> None:
    good, bad = scenario(A), scenario(reply("text", "{{ID}}", 500))
    async with playing([good]) as provider, connected(provider.url("x")) as client:
        answers = []
        for now in (good, bad, good):
            provider.replace("x", now)
            await client.send()
            answers.append(await client.read_answer())
    assert [body for _, body in answers] == [b"a", b"x", b"a"]
    assert answers[1][0].startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ({"model": "m"}, {}),  # no entry's condition holds
        ({"tools": [TOOL]}, {"path": "/chat/completion"}),
        ({"tools": [TOOL]}, {"path": "/v1/messages"}),
        ([], {}),  # not an object
        (None, {"method": "GET"}),
    ],
)
async def test_a_request_that_no_entry_answers_is_kept_and_gets_599(body: Any, more: dict[str, Any]) -> None:
    async with Provider([scenario({"when": "auto", "reply": A})]) as provider:
        head, _ = await ask(provider, body, **more)
        assert head.startswith(b"HTTP/1.1 599 ")
        assert [request.entry for request in provider.unanswered] == [None]


async def test_an_unknown_scenario_and_a_spent_one_are_unanswered_too() -> None:
    async with Provider([scenario({"when": "any", "times": 1, "reply": A})]) as provider:
        assert (await ask(provider))[1] == b"a"
        assert (await ask(provider))[0].startswith(b"HTTP/1.1 599 ")
        async with connected(provider.origin + "/s/other/v1") as client:
            await client.send()
            assert (await client.read_answer())[0].startswith(b"HTTP/1.1 599 ")
        assert [request.id for request in provider.unanswered] == ["x", "other"]


async def test_the_helper_fails_on_an_unanswered_request_and_on_a_followed_redirect() -> None:
    with pytest.raises(AssertionError, match="no entry of the scenario answers: POST /s/x/v1/chat/completions"):
        async with playing([scenario({"when": "get", "reply": A})]) as provider:
            await ask(provider)
    with pytest.raises(AssertionError, match="a redirect was followed: /s/x/v1/chat/completions"):
        async with playing([scenario(A)]) as provider:
            await ask(provider, origin=provider.other_origin)


async def test_the_other_origin_plays_the_same_scenarios_and_tells_that_it_did() -> None:
    async with Provider([scenario(A)]) as provider:
        assert (await ask(provider))[1] == b"a"
        assert provider.strayed == []
        assert (await ask(provider, origin=provider.other_origin))[1] == b"a"
        assert [request.id for request in provider.strayed] == ["x"]
        assert provider.count("x") == 2


@pytest.mark.parametrize(
    ("dialect", "prefix", "endpoint"),
    [
        ("openai-chat", "/v1", "/chat/completions"),
        ("openai-responses", "/v1", "/responses"),
        ("anthropic-messages", "", "/v1/messages"),
        ("gemini", "/v1beta", "/models/m-1:streamGenerateContent?alt=sse"),
    ],
)
async def test_each_dialect_has_its_base_url_and_its_endpoint(dialect: str, prefix: str, endpoint: str) -> None:
    when = "query:alt=sse" if dialect == "gemini" else "any"
    one = scenario({"when": when, "reply": reply("text", "{{MODEL}}")}, dialect=dialect)
    async with playing([one]) as provider:
        assert provider.url("x") == f"{provider.origin}/s/x{prefix}"
        assert (await ask(provider, path=endpoint))[1] == b"m-1"


async def test_the_log_holds_what_was_sent_but_the_credential() -> None:
    async with playing([scenario(A)]) as provider:
        began = time.monotonic()
        await ask(provider, {"model": "m"}, path=f"/chat/completions?key={KEY}&a=1", X_Echo=f"<{KEY}>")
        (request,) = provider.requests
    assert (request.id, request.entry, request.method, request.body) == ("x", 0, "POST", {"model": "m"})
    assert request.path == "/s/x/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer ***"
    assert request.headers["x-echo"] == "<***>"
    assert request.query == (("key", "***"), ("a", "1"))
    assert KEY not in repr(request)
    assert began <= request.at <= time.monotonic()


async def test_a_body_without_a_length_is_not_taken() -> None:
    async with Provider([scenario(A)]) as provider, connected(provider.url("x")) as client:
        head = b"POST /s/x/v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        client.writer.write(head + b"2\r\n{}\r\n0\r\n\r\n")
        assert (await client.read_answer())[0].startswith(b"HTTP/1.1 599 ")
        assert await client.ending() in ("fin", "rst")


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\r\n\r\n", b"hello\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"GET /"]
)
async def test_what_is_not_http_gets_no_answer(sent: bytes) -> None:
    async with playing([scenario(A)]) as provider, connected(provider.origin) as client:
        client.writer.write(sent)
        client.writer.write_eof()
        assert await client.ending() == "fin"
        assert provider.requests == []


# --- placeholders -----------------------------------------------------------------------------------------

HARD_KEY = 'sk-"q\\u/+ä'


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{TOOL}}|{{TOOL2}}|{{MODEL}}", "report_value|second_value|m-1"),
        ("{{TOOL:0:4}}|{{TOOL:-2:}}|{{TOOL:0:-2}}|{{TOOL:7:}}", "repo|ue|report_val|value"),
        ("{{TOOL2:3:6}}|{{TOOL:40:50}}|{{MODEL::1}}", "ond||m"),
        ("{{KEY}}|{{KEY:0:4}}", 'sk-"q\\u/+ä|sk-"'),
        ("{{KEY:b64}}|{{KEY:url}}", "c2stInFcdS8rw6Q=|sk-%22q%5Cu%2F%2B%C3%A4"),
        ("{{PAD:5}}{{PAD:0}}", "xxxxx"),
        ("{{ID}} {{BASE}} {{OTHER_ORIGIN}}", "x http://base http://other"),
        ("{{ messages }} {x} {{}} {{a}}", "{{ messages }} {x} {{}} {{a}}"),
    ],
)  # fmt: skip
def test_placeholders(template: str, expected: str) -> None:
    values = Values(("report_value", "second_value"), "m-1", HARD_KEY, "x", "http://base", "http://other")
    assert values.fill(template) == expected
    assert json.loads('"' + values.fill(template, in_json=True) + '"') == expected


def test_a_date_lies_so_many_seconds_ahead() -> None:
    date = Values().fill("{{HTTPDATE:+90}}")
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", date)
    assert timedelta(seconds=80) < parsedate_to_datetime(date) - datetime.now(UTC) <= timedelta(seconds=90)


def test_a_tool_is_taken_from_the_history_when_none_is_declared() -> None:
    call = {"id": "c1", "function": {"name": "from_history", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": "x", "tool_calls": [call, call]}]

    def filled(**body: Any) -> str:
        request = Request("openai-chat", body=body)
        return Values.of(request, "x", "", "").fill("{{TOOL}} {{TOOL2}}")

    assert filled(messages=messages) == f"from_history {UNDECLARED_TOOL}"
    assert filled(messages=messages, tools=[TOOL, TOOL2]) == "report_value second_value"
    assert filled() == f"{UNDECLARED_TOOL} {UNDECLARED_TOOL}"


@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ({"authorization": "Bearer k1"}, (), "k1"),
        ({"authorization": "bearer  k1"}, (), "k1"),
        ({"authorization": "k1"}, (), "k1"),
        ({"x-api-key": "k1"}, (), "k1"),
        ({"api-key": "k1"}, (), "k1"),
        ({"x-goog-api-key": "k1"}, (), "k1"),
        ({}, (("key", "k1"),), "k1"),
        ({}, (), ""),
    ],
)
def test_where_the_credential_stands(headers: dict[str, str], query: tuple[tuple[str, str], ...], key: str) -> None:
    assert Request("openai-chat", headers=headers, query=query).key == key


async def test_a_credential_is_escaped_inside_json_and_only_there() -> None:
    key = 'k"1\\2'
    entries = [
        {"when": "cap:json", "reply": reply("json", {"{{KEY}}": ["{{KEY}}"]})},
        {"when": "cap:events", "reply": reply("events", ['data: {"k":"{{KEY}}"}'])},
        {
            "when": "cap:text",
            "reply": {**reply("text", '{"k":"{{KEY}}"}'), "headers": {"Content-Type": "application/json"}},
        },
        {"when": "any", "reply": {**reply("text", "{{KEY}}"), "headers": {"x-key": "{{KEY}}"}}},
    ]
    async with playing([scenario(*entries)]) as provider:
        sent = {"authorization": f"Bearer {key}"}
        assert json.loads((await ask(provider, {"json": 1}, **sent))[1]) == {key: [key]}
        assert json.loads((await ask(provider, {"events": 1}, **sent))[1].removeprefix(b"data: ")) == {"k": key}
        assert json.loads((await ask(provider, {"text": 1}, **sent))[1]) == {"k": key}
        head, body = await ask(provider, **sent)
        assert body == key.encode()
        assert f"x-key: {key}\r\n".encode() in head


async def test_a_condition_may_name_the_tool() -> None:
    one = scenario({"when": "call_id:functions.{{TOOL}}:0", "reply": A}, B)

    def body(id: str) -> dict[str, Any]:
        call = {"id": id, "function": {"name": "report_value", "arguments": "{}"}}
        return {"tools": [TOOL], "messages": [{"role": "assistant", "content": "x", "tool_calls": [call]}]}

    async with playing([one]) as provider:
        assert (await ask(provider, body("functions.report_value:0")))[1] == b"a"
        assert (await ask(provider, body("functions.report_value:1")))[1] == b"b"


# --- reading scenarios ------------------------------------------------------------------------------------

ENTRY = {"when": "any", "reply": reply("text", "a")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dialect": "chat"}, "unknown dialect 'chat'"),
        ({"replies": [{"reply": ENTRY["reply"]}]}, "'when' is missing"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"replies": [{**ENTRY, "time": 1}]}, "unknown field 'time'"),
        ({"replies": [{**ENTRY, "when": "alway"}]}, "unknown predicate 'alway'"),
        ({"replies": [{**ENTRY, "reply": reply("text", "a", delay=1)}]}, "unknown field 'delay'"),
        ({"replies": [{**ENTRY, "reply": reply("text", "a", end="crash")}]}, "'crash' is not a valid End"),
        ({"replies": [{**ENTRY, "reply": reply("events", "a")}]}, "the body of events must be a list"),
        ({"replies": [{**ENTRY, "reply": reply("raw", ["a"])}]}, "the body of raw must be a text"),
        ({"replies": [{**ENTRY, "reply": reply("json", [{"a": "{{TOOLS}}"}])}]}, "unknown placeholder {{TOOLS}}"),
        (
            {"replies": [{**ENTRY, "reply": reply("events", [{"repeat": 1, "event": "{{TOOL:x}}"}])}]},
            "unknown placeholder {{TOOL:x}}",
        ),
        ({"replies": [{**ENTRY, "reply": reply("text", "{{PAD}}")}]}, "unknown placeholder {{PAD}}"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_scenario_is_named_when_it_is_read(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"scenario 'x': {message}")):
        Scenario.parse({"id": "x", "dialect": "openai-chat", "replies": [ENTRY], **change})


# --- as a whole -------------------------------------------------------------------------------------------


async def test_every_reply_of_the_corpus_can_be_written() -> None:
    written = 0
    values = Values(("report_value", "second_value"), "m-1", KEY, "x", "http://base", "http://other")
    for one in load_corpus():
        for entry in one.replies:
            for piece in entry.reply.pieces(values):
                assert not re.search(rb"\{\{(TOOL|KEY|MODEL|PAD|ID|BASE|OTHER_ORIGIN)", piece)
                written += 1
    assert written > 4000


def test_the_corpus_can_be_chosen_from() -> None:
    assert len(load_corpus(dialect="openai-chat", contract="native_tools")) == 241
    assert {one.id[:4] for one in load_corpus(["sse-", "dia-"])} == {"sse-", "dia-"}


async def test_many_connections_at_once_each_get_their_own_answer() -> None:
    one = scenario(reply("events", ["data: {{MODEL}}"], delay_s=0.01))
    async with playing([one]) as provider:

        async def client(number: int) -> bytes:
            return (await ask(provider, {"model": str(number)}))[1]

        answers = await asyncio.gather(*(client(number) for number in range(200)))
        assert answers == [b"data: %d\n\n" % number for number in range(200)]
        assert provider.count("x") == 200


async def test_closing_ends_what_still_hangs() -> None:
    async with playing([scenario(reply("events", ["a"], end="hang"))]) as provider:
        async with connected(provider.url("x")) as client, connected(provider.url("x")) as idle:
            await client.send()
            await client.read(len(CHUNKED) + 8)
            async with asyncio.timeout(HANG_S / 2):
                await provider.__aexit__(None, None, None)
            assert [await client.ending(), await idle.ending()] == ["fin", "fin"]
        with pytest.raises(ConnectionRefusedError):
            await ask(provider)
