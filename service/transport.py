"""httpx and nothing but: one ask sent, one exchange back. Foreign exceptions end here.

Every request opens its own connection: at the pace of a monitor a kept one is stale more often than not, and a stale
one would have to be told apart from a route that hangs up. Cookies aren't kept either: each probe is like the first
request of a new client, not pinned to the backend that answered the last one. Redirects are never followed, since a
key must not travel to another host. One total deadline bounds a request from its sending to the last byte, error body
included: traffic doesn't move it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any

import httpx

from service.answer import Answer
from service.clock import suspended_clock
from service.dialects import DIALECTS
from service.model import Ask, Credentials, End, Exchange, Route

DRAIN_S = 1.0
"""How long a stream is read on after its announced end, for usage and end markers."""
OWN_LAG_S = 1.0
"""Lateness of our own event loop from which silence may be ours."""
_FLOWING_S = 10.0
_CONNECTING = 0.9  # of the deadline
_USER_AGENT = "routeproof"


class LoopLag:
    """Measures how late we are ourselves: the event loop, and the threads that names are resolved on, where a few dead
    names can keep all others waiting. A process that was stopped or starved shows as a late loop.

    `worst_since` and `worst_wait_since` give the worst lateness, in seconds, since a reading of `clock`.
    """

    _TICK = 0.1

    def __init__(self, clock: Callable[[], float] = suspended_clock) -> None:
        self.clock = clock
        self._loop = _Lateness()
        self._names = _Lateness()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._query: asyncio.Future[tuple[str, str]] | None = None

    async def __aenter__(self) -> LoopLag:
        self._loop.due = self.clock() + self._TICK
        self._tasks = (asyncio.create_task(self._beat()), asyncio.create_task(self._queue()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._query is not None:
            await asyncio.wait({self._query}, timeout=1.0)
        self._tasks, self._loop.due, self._names.due = (), None, None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._TICK)
            self._loop.note(self.clock())
            self._loop.due = self.clock() + self._TICK

    async def _queue(self) -> None:
        """Stand in the line that names are resolved in, with something that needs no resolving."""
        loop = asyncio.get_running_loop()
        while True:
            self._names.due = self.clock()
            query = loop.getnameinfo(("127.0.0.1", 0), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
            self._query = asyncio.ensure_future(query)
            await asyncio.shield(self._query)  # uvloop answers a query that was cancelled, and fails at it
            self._names.note(self.clock())
            self._names.due = None
            await asyncio.sleep(self._TICK)

    def worst_since(self, moment: float) -> float:
        return self._loop.worst_since(moment, self.clock())

    def worst_wait_since(self, moment: float) -> float:
        return self._names.worst_since(moment, self.clock())


class _Lateness:
    """How late something came that is waited for over and over. `due` None: nothing is waited for now."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=256)
        self.due: float | None = None

    def note(self, now: float) -> None:
        """It came; a small lateness is not kept."""
        if self.due is not None and now - self.due > OWN_LAG_S / 2:
            self._late.append((now, now - self.due))

    def worst_since(self, moment: float, now: float) -> float:
        pending = 0.0 if self.due is None else now - self.due
        return max(0.0, pending, *(late for at, late in self._late if at >= moment))


class Transport:
    """Sends asks. One client a route, one TLS context for all routes that trust the same authorities."""

    def __init__(self, lag: LoopLag | None = None) -> None:
        self._clients: dict[tuple[str, str | None, str | None], httpx.AsyncClient] = {}
        self._contexts: dict[str | None, ssl.SSLContext] = {}
        self._lag = lag
        self._clock = lag.clock if lag else suspended_clock

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def begin_anew(self) -> None:
        """Another configuration holds: forget the clients of routes that may be gone, and what files of authorities
        held. Requests under way end as they began; no client keeps a connection."""
        self._clients.clear()
        self._contexts.clear()

    async def send(self, route: Route, ask: Ask, credentials: Credentials) -> Exchange:
        """Send one ask and read its answer. A route that fails is a result; `asyncio.CancelledError` passes."""
        dialect = DIALECTS[route.dialect]
        wire = dialect.encode(route, ask)
        headers = {
            "user-agent": _USER_AGENT,
            "accept-encoding": "gzip, deflate",
            **wire.headers,
            **{name.lower(): secret.reveal() for name, secret in credentials.headers.items()},
            **dialect.authorize(route, credentials),
        }
        client = self._client(route)
        # Cancelled in a TLS handshake, httpcore leaves the socket open; its own time-out closes it, so it comes first.
        connecting = httpx.Timeout(None, connect=_CONNECTING * route.deadline.total_seconds())
        watch = _Watch(self._clock)
        answer: Answer | None = None
        end, fault = End.COMPLETE, None
        try:
            async with (
                asyncio.timeout(route.deadline.total_seconds()) as deadline,
                client.stream(
                    "POST",
                    wire.url,
                    content=wire.body,
                    headers=headers,
                    auth=_auth(headers),
                    timeout=connecting,
                    extensions={"trace": watch.trace},
                ) as response,
            ):
                watch.headers()
                answer = Answer(dialect, route, ask, response.status_code, _plain(response.headers), datetime.now(UTC))
                end = await _read(response, answer, watch, deadline)
        except (TimeoutError, httpx.ConnectTimeout):
            end = End.ENOUGH if answer and answer.announced else End.DEADLINE
        except httpx.RemoteProtocolError as error:
            end, fault = (End.CLOSED, None) if answer else (End.NO_ANSWER, _protocol_fault(error))
            if answer and "closed" not in str(error):
                answer.mark_broken("http_framing")
        except (httpx.TransportError, OSError, ssl.SSLError) as error:
            end, fault = (End.RESET, None) if answer else (End.NO_ANSWER, _fault(error))
        own_lag = self._lag is not None and self._lag.worst_since(watch.start) > OWN_LAG_S
        times = watch.times()
        if answer is None:
            waited = self._lag is not None and self._lag.worst_wait_since(watch.start) > OWN_LAG_S
            own_queue = waited and end is End.DEADLINE and not watch.connected
            return Exchange(ask=ask, end=end, fault=fault, own_lag=own_lag, own_queue=own_queue, **times)
        return answer.finish(end, own_lag=own_lag, flowing=watch.flowing(route.deadline.total_seconds()), **times)

    async def reaches(
        self, url: str, seconds: float = 5.0, *, proxy: str | None = None, ca_file: str | None = None
    ) -> bool:
        """Whether anything answers at a URL by HTTP, for our own egress check."""
        try:
            async with asyncio.timeout(seconds):
                async with self._open(("", proxy, ca_file)).stream("GET", url):
                    pass
        except (TimeoutError, httpx.HTTPError, OSError):
            return False
        return True

    async def connects(self, route: Route, seconds: float = 3.0) -> bool:
        """Whether a request of a route would find a connection, TLS included. None is sent."""
        half = httpx.Timeout(seconds / 2)  # it holds for the connection, a proxy's answer, and again for TLS
        trace = {"trace": _stop_before_sending}
        try:
            async with self._client(route).stream("GET", route.base_url, timeout=half, extensions=trace):
                raise AssertionError("a request was sent that should not have been")
        except _ConnectedError:
            return True
        except (httpx.HTTPError, OSError):  # a file of authorities that can't be read is one too
            return False

    def _client(self, route: Route) -> httpx.AsyncClient:
        return self._open((route.id, route.proxy, route.ca_file))

    def _open(self, key: tuple[str, str | None, str | None]) -> httpx.AsyncClient:
        client = self._clients.get(key)
        if client is None:
            _, proxy, ca_file = key
            context = self._contexts.get(ca_file)
            if context is None:
                context = self._contexts[ca_file] = ssl.create_default_context(cafile=ca_file)
            client = self._clients[key] = httpx.AsyncClient(
                verify=context,
                trust_env=False,
                follow_redirects=False,
                proxy=proxy,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                timeout=None,  # noqa: S113 - one total deadline stands around every request
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
        return client


async def _read(response: httpx.Response, answer: Answer, watch: _Watch, deadline: asyncio.Timeout) -> End:
    """Read until the body ends or nothing more is needed. After an announced end only a short drain remains."""
    draining = False
    try:
        async for chunk in response.aiter_raw():
            events, deltas = answer.events, answer.deltas
            answer.feed(chunk)
            watch.progress(answer.events - events, answer.deltas - deltas)
            if answer.enough:
                return End.ENOUGH
            if answer.announced and not draining:
                draining = True
                drained_at = asyncio.get_running_loop().time() + DRAIN_S
                deadline.reschedule(min(deadline.when() or drained_at, drained_at))
    except httpx.TransportError:
        if answer.announced:
            return End.ENOUGH
        raise
    return End.COMPLETE


class _Watch:
    """When things happened in one exchange, in seconds from its sending."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.start = clock()
        self.connected = False
        self._headers: float | None = None
        self._first_event: float | None = None
        self._first_delta: float | None = None
        self._last_delta: float | None = None

    def _now(self) -> float:
        return self._clock() - self.start

    async def trace(self, event: str, _: Mapping[str, Any]) -> None:
        """httpcore tells here how far a request has come."""
        if event == "connection.connect_tcp.complete":
            self.connected = True

    def headers(self) -> None:
        self._headers = self._now()

    def progress(self, events: int, deltas: int) -> None:
        if events and self._first_event is None:
            self._first_event = self._now()
        if deltas:
            self._last_delta = self._now()
            if self._first_delta is None:
                self._first_delta = self._last_delta

    def flowing(self, deadline: float) -> bool:
        """Whether deltas still came near the deadline."""
        return self._last_delta is not None and self._now() - self._last_delta < min(_FLOWING_S, deadline / 3)

    def times(self) -> dict[str, Any]:
        return {
            "headers_s": self._headers,
            "first_event_s": self._first_event,
            "first_token_s": self._first_delta,
            "duration_s": self._now(),
        }


class _ConnectedError(Exception):
    """A connection is there; nothing has been sent over it."""


async def _stop_before_sending(event: str, info: Mapping[str, Any]) -> None:
    """A proxy is asked to connect, and that is all."""
    if event == "http11.send_request_headers.started" and info["request"].method != b"CONNECT":
        raise _ConnectedError


def _auth(headers: Mapping[str, str]) -> httpx.Auth | None:
    """None lets a user and password in the URL be sent as Basic, but not over a credential of the route's own."""
    return httpx.Auth() if "authorization" in headers else None


def _plain(headers: httpx.Headers) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _protocol_fault(error: httpx.RemoteProtocolError) -> str:
    return "closed" if "disconnected" in str(error) else "not_http"


def _fault(error: Exception) -> str:
    """The reason why there was no HTTP answer, most specific first."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "tls_certificate"
        if isinstance(cause, ssl.SSLError):
            return "tls_handshake"
        if isinstance(cause, socket.gaierror):
            return "dns"
        if isinstance(cause, ConnectionRefusedError):
            return "refused"
        if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return "no_path_to_host"
    if isinstance(error, httpx.ProxyError):
        return "proxy"
    return "connect" if isinstance(error, httpx.ConnectError) else "reset"


def _causes(error: BaseException) -> Iterator[BaseException]:
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            pending.extend(cause.exceptions)
        pending.extend((cause.__cause__, cause.__context__))
