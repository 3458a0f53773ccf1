"""The transport over real sockets: what each way of failing is called, and that nothing outlasts its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

from service import probe
from service.answer import DRAIN_LIMIT
from service.contracts.native_tools import TOOL
from service.demo.listener import Listener
from service.demo.scenario import Scenario
from service.model import Auth, Body, Credentials, End, Exchange, Route, Secret, Status
from service.probe import Moment, Prober
from service.seen import Seen, reason_of, refusal_of, see
from service.transport import DRAIN_S, OWN_LAG_S, LoopLag, Transport
from tests.exchanges import ASK, ROUTE
from tests.lived import lived
from tests.peer import playing

KEY = "sk-test-Zq8Tr4vB1xN7m"
CREDENTIALS = Credentials(key=Secret(KEY))
DEADLINE = 2.0
ON_TIME = DEADLINE + 1.0  # of the time that the loop lives through

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
OPEN = HEAD + b"connection: close\r\n\r\n"  # the body ends with the connection
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CALL = event(
    {
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
)
TEXT = event({"choices": [{"delta": {"content": "thinking of it "}}]})
FINISH = event({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
DONE = event(b"[DONE]")


@contextlib.asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None, read: bool = True) -> AsyncIterator[int]:
    """A server on a port of its own; its handler is called once a request's head is there, and is cancelled at the
    end."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if read:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                await reader.readexactly(length)
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone, which is its right
        finally:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    listener = Listener(handle, "127.0.0.1", context=context)
    try:
        yield listener.port
    finally:
        await listener.close()


def answering(*pieces: bytes, pause: float = 0.0, then: str = "close") -> Handler:
    """Writes the pieces, and then closes, resets or hangs."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if then == "hang":
            await asyncio.sleep(60)
        if then == "reset":
            await asyncio.sleep(0.05)  # what was written must be taken before a reset throws it away
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        else:
            writer.close()
            await writer.wait_closed()

    return handler


def telling(asked: asyncio.Event, *pieces: bytes) -> Handler:
    """Writes the pieces, says so, and then hangs."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(pieces)
        await writer.drain()
        asked.set()
        await asyncio.sleep(60)

    return handler


def endlessly(head: bytes, piece: bytes, pause: float = 0.0) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return handler


def route_to(base_url: str, **fields: Any) -> Route:
    return replace(ROUTE, base_url=base_url, deadline=timedelta(seconds=DEADLINE), **fields)


async def sent(base_url: str, **fields: Any) -> Exchange:
    """One ask sent, and held to its deadline."""
    async with lived() as time, Transport() as transport:
        exchange = await transport.send(route_to(base_url, **fields), ASK, CREDENTIALS)
    assert time.seconds < ON_TIME
    return exchange


async def answered(handler: Handler, **fields: Any) -> Exchange:
    async with serving(handler) as port:
        return await sent(f"http://127.0.0.1:{port}/v1", **fields)


# --- no HTTP answer -----------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it meanwhile
        yield taken.getsockname()[1]


async def test_refused(closed_port: int) -> None:
    exchange = await sent(f"http://127.0.0.1:{closed_port}/v1")
    assert (exchange.end, exchange.fault, see(exchange)) == (End.NO_ANSWER, "refused", Seen.NO_HTTP)


async def test_a_name_that_doesnt_resolve() -> None:
    exchange = await sent("http://no-such-host.invalid/v1")
    assert (exchange.end, exchange.fault) == (End.NO_ANSWER, "dns")


async def test_tls_against_a_plain_port() -> None:
    async with serving(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), read=False) as port:
        exchange = await sent(f"https://127.0.0.1:{port}/v1")
    assert (exchange.end, exchange.fault) == (End.NO_ANSWER, "tls_handshake")


async def test_a_connection_closed_in_the_tls_handshake() -> None:
    async with serving(answering(), read=False) as port:
        exchange = await sent(f"https://127.0.0.1:{port}/v1")
    assert exchange.end is End.NO_ANSWER
    assert exchange.fault in ("tls_handshake", "reset")


async def test_silence_in_the_tls_handshake() -> None:
    async with serving(answering(then="hang"), read=False) as port:
        exchange = await sent(f"https://127.0.0.1:{port}/v1")
        gc.collect()  # a socket that was left open would warn here
    assert (exchange.end, see(exchange), reason_of(exchange)) == (End.DEADLINE, Seen.TIMEOUT, "no_headers")


@pytest.fixture(scope="session")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    what = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=probed.invalid"
    name = "subjectAltName=IP:127.0.0.1"
    command = [openssl, *what.split(), "-addext", name, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def tls(own_certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*own_certificate)
    return context


async def test_an_untrusted_certificate(tls: ssl.SSLContext) -> None:
    async with serving(answering(OPEN, CALL, FINISH, DONE), tls) as port:
        exchange = await sent(f"https://127.0.0.1:{port}/v1")
    assert (exchange.end, exchange.fault) == (End.NO_ANSWER, "tls_certificate")


async def test_a_certificate_that_the_route_trusts(tls: ssl.SSLContext, own_certificate: tuple[Path, Path]) -> None:
    async with serving(answering(OPEN, CALL, FINISH, DONE), tls) as port:
        exchange = await sent(f"https://127.0.0.1:{port}/v1", ca_file=str(own_certificate[0]))
    assert see(exchange) is Seen.CALL


async def test_a_certificate_for_another_name(tls: ssl.SSLContext, own_certificate: tuple[Path, Path]) -> None:
    async with serving(answering(OPEN, CALL, FINISH, DONE), tls) as port:
        exchange = await sent(f"https://localhost:{port}/v1", ca_file=str(own_certificate[0]))
    assert (exchange.end, exchange.fault) == (End.NO_ANSWER, "tls_certificate")


@pytest.mark.parametrize(
    ("handler", "faults"),
    [
        (answering(b"SSH-2.0-OpenSSH_9.2\r\n"), {"closed"}),
        (answering(b"220 mail ESMTP\r\n\r\n", then="hang"), {"not_http"}),
        (answering(b"HTTP/1.1 abc\r\n\r\n"), {"not_http"}),
        (answering(), {"closed"}),
        (answering(b"HTTP/1.1 200 OK\r\ncontent-ty"), {"closed"}),
        (answering(then="reset"), {"reset"}),
        (answering(b"HTTP/1.1 200 OK\r\ncontent-ty", then="reset"), {"reset"}),
        (endlessly(b"HTTP/1.1 200 OK\r\n", b"x-more: " + b"x" * 1000 + b"\r\n"), {"not_http"}),
        (endlessly(b"HTTP/1.1 200 OK\r\nx-more: ", b"x" * 1000), {"not_http"}),
    ],
    ids=[
        "ssh",
        "smtp",
        "no status",
        "closed",
        "closed in headers",
        "reset",
        "reset in headers",
        "endless headers",
        "endless header",
    ],
)
async def test_no_http_answer(handler: Handler, faults: set[str]) -> None:
    exchange = await answered(handler)
    assert (exchange.end, see(exchange)) == (End.NO_ANSWER, Seen.NO_HTTP)
    assert exchange.fault in faults


@pytest.mark.parametrize(
    "handler",
    [
        answering(then="hang"),
        answering(b"HTTP/1.1 200 OK\r\n", then="hang"),
        answering(b"220 mail ESMTP\r\n", then="hang"),
        endlessly(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", pause=0.05),
        endlessly(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", pause=0.05),
    ],
    ids=["silence", "half a head", "another protocol", "dripping headers", "endless early hints"],
)
async def test_a_hang_before_the_headers(handler: Handler) -> None:
    exchange = await answered(handler)
    assert (exchange.end, see(exchange), reason_of(exchange)) == (End.DEADLINE, Seen.TIMEOUT, "no_headers")


# --- ends of a stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "end", "reason"),
    [
        (answering(CHUNKED), End.CLOSED, "closed_before_event"),
        (answering(CHUNKED, chunk(CALL)), End.CLOSED, "closed_after_event"),
        (answering(CHUNKED, chunk(CALL), b"0\r\n\r\n"), End.COMPLETE, "closed_after_event"),
        (answering(CHUNKED, b"0\r\n\r\n"), End.COMPLETE, "closed_before_event"),
        (answering(OPEN), End.COMPLETE, "closed_before_event"),
        (answering(OPEN, CALL), End.COMPLETE, "closed_after_event"),
        (answering(HEAD + b"content-length: 5000\r\n\r\n", CALL), End.CLOSED, "closed_after_event"),
        (answering(CHUNKED, then="reset"), End.RESET, "reset_before_event"),
        (answering(CHUNKED, chunk(CALL), then="reset"), End.RESET, "reset_after_event"),
        (answering(OPEN, b": comment\n\n", then="reset"), End.RESET, "reset_before_event"),
        (answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), End.COMPLETE, "empty"),
        (answering(b"HTTP/1.1 204 No Content\r\n\r\n"), End.COMPLETE, "empty"),
    ],
)
async def test_an_end_that_isnt_announced(handler: Handler, end: End, reason: str) -> None:
    exchange = await answered(handler)
    assert (exchange.end, see(exchange), reason_of(exchange)) == (end, Seen.EARLY_END, reason)


@pytest.mark.parametrize(
    "handler",
    [
        answering(CHUNKED, chunk(CALL + FINISH + DONE), b"0\r\n\r\n"),
        answering(CHUNKED, chunk(CALL + FINISH + DONE), then="hang"),
        answering(CHUNKED, chunk(CALL + FINISH), then="reset"),
        answering(CHUNKED, chunk(CALL + FINISH)),
        answering(OPEN, CALL, FINISH, pause=0.1),
        answering(CHUNKED, *(chunk(bytes([byte])) for byte in CALL + FINISH + DONE)),
    ],
    ids=["clean", "then silence", "then a reset", "then a close", "slow", "byte by byte"],
)
async def test_an_announced_end_fixes_the_verdict(handler: Handler) -> None:
    exchange = await answered(handler)
    assert see(exchange) is Seen.CALL
    assert exchange.first_event_s is not None
    assert exchange.headers_s is not None
    assert exchange.first_token_s is not None
    assert 0 < exchange.headers_s <= exchange.first_event_s <= exchange.first_token_s <= exchange.duration_s


async def test_silence_behind_an_announced_end_is_waited_for_one_second() -> None:
    async with lived() as time:
        exchange = await answered(answering(CHUNKED, chunk(CALL + FINISH), then="hang"))
    assert (exchange.end, see(exchange)) == (End.ENOUGH, Seen.CALL)
    assert exchange.duration_s >= DRAIN_S
    assert time.seconds < (DRAIN_S + DEADLINE) / 2


async def test_traffic_behind_an_announced_end_doesnt_prolong_the_wait() -> None:
    async with lived() as time:
        exchange = await answered(endlessly(OPEN + CALL + FINISH, b": ping\n\n", pause=0.05))
    assert (exchange.end, see(exchange)) == (End.ENOUGH, Seen.CALL)
    assert time.seconds < (DRAIN_S + DEADLINE) / 2


async def test_an_endless_stream_behind_an_announced_end_stops_at_64_kib() -> None:
    exchange = await answered(endlessly(OPEN + CALL + FINISH, b": " + b"x" * 4000 + b"\n\n"))
    assert (exchange.end, see(exchange)) == (End.ENOUGH, Seen.CALL)
    assert exchange.bytes_read < DRAIN_LIMIT + 3 * 64 * 1024  # up to one read on either side of the limit


# --- the deadline -------------------------------------------------------------------------------------------


async def test_deltas_that_still_flow_at_the_deadline() -> None:
    exchange = await answered(endlessly(OPEN, TEXT, pause=0.1))
    assert exchange.flowing
    assert (see(exchange), reason_of(exchange)) == (Seen.OWN_CAP, "deadline")


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (answering(OPEN, then="hang"), "no_event"),
        (endlessly(OPEN, b": keep-alive\n\n", pause=0.1), "no_event"),
        (endlessly(OPEN, b"data: : keep-alive\n\n", pause=0.1), "no_event"),
        (endlessly(OPEN, b"\n", pause=0.1), "no_event"),
        (endlessly(OPEN, b"x", pause=0.1), "no_event"),
        (answering(OPEN, TEXT, then="hang"), "stalled"),
        (endlessly(OPEN + TEXT, b": keep-alive\n\n", pause=0.1), "stalled"),
        (endlessly(OPEN + TEXT, event({"choices": []}), pause=0.1), "stalled"),
        (answering(OPEN, CALL, then="hang"), "stalled"),
    ],
)
async def test_silence_until_the_deadline(handler: Handler, reason: str) -> None:
    exchange = await answered(handler)
    assert exchange.end is End.DEADLINE
    assert (see(exchange), reason_of(exchange)) == (Seen.TIMEOUT, reason)


def refusing(status: int) -> Handler:
    head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
    return answering(head.encode(), b'{"error": {"mess', then="hang")


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_an_error_body_that_stalls(status: int) -> None:
    exchange = await answered(refusing(status))
    assert (see(exchange), reason_of(exchange), exchange.status) == (Seen.TIMEOUT, "stalled", status)


@pytest.mark.parametrize("status", [401, 402, 429, 529])
async def test_an_error_body_that_stalls_under_a_status_that_decides(status: int) -> None:
    exchange = await answered(refusing(status))
    assert see(exchange) is Seen.REFUSED
    refusal = refusal_of(exchange)
    assert refusal is not None
    assert refusal.kind is not None


async def test_an_endless_error_body_stops_at_its_cap() -> None:
    exchange = await answered(endlessly(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n", b"x" * 8192))
    assert see(exchange) is Seen.REFUSED
    assert exchange.end is End.CAP
    assert exchange.bytes_read <= 64 * 1024 + 1


async def test_a_dripping_error_body_ends_at_the_deadline() -> None:
    exchange = await answered(endlessly(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n", b"x", pause=0.05))
    assert (see(exchange), reason_of(exchange)) == (Seen.TIMEOUT, "stalled")


# --- what travels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_isnt_followed_and_the_key_stays(status: int) -> None:
    headers = {"location": "{{OTHER_ORIGIN}}/s/away/v1/chat/completions"}
    reply = {"status": status, "framing": "text", "body": "", "headers": headers}
    away = Scenario.parse({"id": "away", "dialect": "openai-chat", "replies": [{"when": "any", "reply": reply}]})
    async with playing([away]) as peer:  # which fails when anything reaches the other origin
        exchange = await sent(peer.url("away"))
        assert peer.count("away") == 1
    assert (see(exchange), reason_of(exchange)) == (Seen.REFUSED, "redirect")


async def heads_of(base: str, transport: Transport, route: Route, times: int) -> list[bytes]:
    heads: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        head = HEAD + b"set-cookie: sticky=yes; Path=/\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + chunk(CALL + FINISH + DONE) + b"0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(60)

    async with serving(handler, read=False) as port:
        for _ in range(times):
            await transport.send(replace(route, base_url=base.format(port=port)), ASK, CREDENTIALS)
    return heads


async def test_headers_on_the_wire() -> None:
    route = route_to("", headers={"X-Title": "probe"})
    async with Transport() as transport:
        (head,) = await heads_of("http://127.0.0.1:{port}/v1", transport, route, 1)
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "post /v1/chat/completions http/1.1"
    assert f"authorization: bearer {KEY}".lower() in lines
    assert {"user-agent: routeproof", "accept: text/event-stream", "cache-control: no-cache", "x-title: probe"} <= set(
        lines
    )
    assert not [line for line in lines if line.startswith(("cookie:", "transfer-encoding:"))]


async def test_nothing_of_one_request_is_kept_for_the_next() -> None:
    """Neither a connection (each head came first on its own) nor a cookie."""
    async with Transport() as transport:
        heads = await heads_of("http://127.0.0.1:{port}/v1", transport, route_to(""), 3)
    assert len(heads) == 3
    assert not [head for head in heads if b"cookie" in head.lower()]


@pytest.mark.parametrize(
    ("auth", "wanted"), [(None, f"authorization: bearer {KEY}"), (Auth.NONE, "authorization: basic dXNlcjpwYXNz")]
)
async def test_a_user_in_the_url_takes_the_place_of_no_credential_of_the_route(auth: Auth | None, wanted: str) -> None:
    async with Transport() as transport:
        (head,) = await heads_of("http://user:pass@127.0.0.1:{port}/v1", transport, route_to("", auth=auth), 1)
    lines = [line for line in head.decode().lower().split("\r\n") if line.startswith("authorization:")]
    assert lines == [wanted.lower()]


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    exchange = await answered(answering(OPEN, CALL, FINISH, DONE))
    assert see(exchange) is Seen.CALL


async def test_the_routes_own_proxy_is_used(closed_port: int) -> None:
    exchange = await sent("http://no-such-host.invalid/v1", proxy=f"http://127.0.0.1:{closed_port}")
    assert (exchange.end, exchange.fault) == (End.NO_ANSWER, "refused")


async def test_a_secret_header_is_sent() -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OPEN + CALL + FINISH + DONE)
        await writer.drain()

    credentials = Credentials(key=Secret(KEY), headers={"X-Tenant": Secret("tenant-secret")})
    async with serving(handler, read=False) as port, Transport() as transport:
        await transport.send(route_to(f"http://127.0.0.1:{port}/v1"), ASK, credentials)
    assert b"x-tenant: tenant-secret" in seen[0].lower()


# --- ourselves ----------------------------------------------------------------------------------------------


async def test_a_cancelled_probe_has_the_verdict_cancelled() -> None:
    asked = asyncio.Event()
    async with serving(telling(asked, OPEN, TEXT)) as port, Transport() as transport:
        route = replace(route_to(f"http://127.0.0.1:{port}/v1"), deadline=timedelta(seconds=30))
        task = asyncio.create_task(Prober(transport, "here").probe(route, "native_tools", CREDENTIALS, Moment.now()))
        await asked.wait()
        task.cancel()
        verdict = (await task).verdict
    assert (verdict.status, verdict.requests) == (Status.CANCELLED, 1)


async def test_a_cancelled_send_lets_the_cancellation_pass() -> None:
    asked = asyncio.Event()
    async with serving(telling(asked, OPEN)) as port, Transport() as transport:
        route = replace(route_to(f"http://127.0.0.1:{port}/v1"), deadline=timedelta(seconds=30))
        task = asyncio.create_task(transport.send(route, ASK, CREDENTIALS))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_blocked_loop_is_seen() -> None:
    async with LoopLag() as lag:
        start = lag.clock()
        assert lag.worst_since(start) < OWN_LAG_S  # before its first beat
        await asyncio.sleep(0)
        time.sleep(OWN_LAG_S + 0.5)
        assert lag.worst_since(start) > OWN_LAG_S  # though the loop hasn't turned since
        await asyncio.sleep(0.01)
        assert lag.worst_since(start) > OWN_LAG_S
        assert lag.worst_since(lag.clock()) < OWN_LAG_S


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_small_lateness_before_hides_no_great_one_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopLag, "_TICK", 0.01)
    clock = Clock()
    async with LoopLag(clock) as lag:
        clock.now += 0.8  # before the first beat
        while lag.worst_since(clock.now + 1):  # until it came
            await asyncio.sleep(0.001)
        assert 0.6 < lag.worst_since(1000.0) < OWN_LAG_S
        clock.now += 2
        assert lag.worst_since(1000.0) > OWN_LAG_S


async def test_silence_while_our_loop_was_blocked_may_be_ours() -> None:
    asked = asyncio.Event()
    async with serving(telling(asked)) as port, LoopLag() as lag, Transport(lag) as transport:
        sending = asyncio.create_task(transport.send(route_to(f"http://127.0.0.1:{port}/v1"), ASK, CREDENTIALS))
        await asked.wait()
        time.sleep(OWN_LAG_S + 0.5)
        exchange = await sending
    assert exchange.own_lag
    assert exchange.end is End.DEADLINE


def stopping(clock: Clock, handler: Handler) -> Handler:
    """Answers after our process was stopped for a minute."""

    async def stopped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock.now += 60
        await handler(reader, writer)

    return stopped


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        (answering(then="hang"), Status.TIMEOUT),
        (answering(OPEN, then="hang"), Status.TIMEOUT),
        (answering(OPEN, TEXT), Status.STREAM_EARLY_EOF),
        (answering(CHUNKED, chunk(CALL), then="reset"), Status.STREAM_EARLY_EOF),
        (answering(then="reset"), Status.UNREACHABLE),
        (answering(), Status.UNREACHABLE),
    ],
    ids=["silence", "silence in the stream", "an early end", "a reset in the stream", "a reset", "a close"],
)
async def test_silence_is_held_against_a_route_unless_our_process_was_stopped_meanwhile(
    handler: Handler, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_PAUSE_S", (0.0, 0.0))
    clock = Clock()
    verdicts = []
    async with LoopLag(clock) as lag, Transport(lag) as transport:
        for one in (handler, stopping(clock, handler)):
            async with serving(one) as port:
                route = replace(route_to(f"http://127.0.0.1:{port}/v1"), deadline=timedelta(seconds=0.3))
                probed = await Prober(transport, "here").probe(route, "native_tools", CREDENTIALS, Moment.now())
                verdicts.append(probed.verdict)
    assert verdicts[0].status is status
    assert (verdicts[1].status, verdicts[1].reason) == (Status.PROBER_OVERLOADED, "event_loop_lag")


async def test_a_whole_call_proves_the_claim_though_our_process_was_stopped_meanwhile() -> None:
    clock = Clock()
    handler = stopping(clock, answering(OPEN, CALL, FINISH, DONE))
    async with serving(handler) as port, LoopLag(clock) as lag, Transport(lag) as transport:
        route = route_to(f"http://127.0.0.1:{port}/v1")
        probed = await Prober(transport, "here").probe(route, "native_tools", CREDENTIALS, Moment.now())
    assert probed.verdict.status is Status.TOOLS_SUPPORTED


@contextlib.asynccontextmanager
async def resolver_stuck() -> AsyncIterator[None]:
    """No thread is free to resolve a name."""
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    stuck = loop.run_in_executor(None, release.wait)
    try:
        yield
    finally:
        release.set()
        await stuck


@pytest.mark.parametrize(
    ("host", "seconds", "ours"),
    [("localhost", 1.4, True), ("localhost", 0.6, False), ("127.0.0.1", 1.4, False)],
    ids=["long", "a little", "a host that needs none"],
)
async def test_a_name_that_waited_for_a_thread_of_ours_is_held_against_no_route(
    host: str, seconds: float, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopLag, "_TICK", 0.0)
    clock = Clock()
    async with (
        serving(answering(then="hang")) as port,
        resolver_stuck(),
        LoopLag(clock) as lag,
        Transport(lag) as transport,
    ):
        route = replace(route_to(f"http://{host}:{port}/v1"), deadline=timedelta(seconds=0.3))
        sending = asyncio.create_task(transport.send(route, ASK, CREDENTIALS))
        await asyncio.sleep(0.05)
        for _ in range(round(seconds / 0.2)):  # the loop keeps pace
            clock.now += 0.2
            await asyncio.sleep(0.001)
        exchange = await sending
    assert (exchange.end, exchange.own_queue, exchange.own_lag) == (End.DEADLINE, ours, False)


async def test_a_queue_that_moves_again_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopLag, "_TICK", 0.0)
    clock = Clock()
    async with LoopLag(clock) as lag:
        async with resolver_stuck():
            await asyncio.sleep(0.001)
            clock.now += 2
            assert lag.worst_wait_since(clock.now) == 2  # it still waits
        async with asyncio.timeout(60):
            while lag.worst_wait_since(clock.now + 1):
                await asyncio.sleep(0.001)
        assert lag.worst_wait_since(1000.0) == 2


async def test_the_egress_check_wants_any_http_answer(closed_port: int) -> None:
    endless = endlessly(b"HTTP/1.1 503 No\r\nconnection: close\r\n\r\n", b"x" * 65536)
    async with serving(endless, read=False) as port, Transport() as transport:
        assert await transport.reaches(
            f"http://127.0.0.1:{port}/", seconds=30
        )  # its body, which has no end, isn't read
        assert not await transport.reaches(f"http://127.0.0.1:{closed_port}/")
        assert not await transport.reaches("http://no-such-host.invalid/")


async def test_the_egress_check_gives_up() -> None:
    async with serving(answering(then="hang"), read=False) as port, Transport() as transport:
        assert not await transport.reaches(f"http://127.0.0.1:{port}/", seconds=0.2)


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n", chunk(CALL) + b"xyz\r\n"], ids=["at once", "behind a chunk"])
async def test_chunked_framing_that_cant_be_read(body: bytes) -> None:
    exchange = await answered(answering(CHUNKED, body, then="hang"))
    assert (see(exchange), reason_of(exchange)) == (Seen.BROKEN, "http_framing")


async def test_chunked_framing_that_breaks_behind_the_end_breaks_nothing() -> None:
    exchange = await answered(answering(CHUNKED, chunk(CALL + FINISH), b"xyz\r\n"))
    assert see(exchange) is Seen.CALL


async def test_a_gzip_label_on_a_plain_stream() -> None:
    exchange = await answered(answering(HEAD + b"content-encoding: gzip\r\nconnection: close\r\n\r\n", CALL, FINISH))
    assert (exchange.body, see(exchange)) == (Body.UNREADABLE, Seen.BROKEN)


async def test_another_configuration_forgets_the_clients_of_routes_that_may_be_gone() -> None:
    async with Transport() as transport:
        for number in range(3):
            await transport.connects(replace(ROUTE, id=f"r{number}", proxy="http://user:secret@127.0.0.1:1"), 0.2)
        assert len(transport._clients) == 3
        Prober(transport, "here").watch([ROUTE])
        assert (transport._clients, transport._contexts) == ({}, {})
        assert await transport.connects(ROUTE, 0.2) is False


def test_a_stop_in_the_middle_of_a_name_query_leaves_nothing_behind() -> None:
    faults: list[object] = []

    async def start_and_stop() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        for _ in range(200):
            async with LoopLag():
                await asyncio.sleep(0)
                await asyncio.sleep(0.0002)
        await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(start_and_stop())
    assert faults == []
