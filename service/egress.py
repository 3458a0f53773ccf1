"""Whether our own network works. The question arises when a route is silent; then the silence may be ours.

A configured check asks its URLs. Without one the routes' own hosts stand for it: where three or more are known and none
of them can be reached, our network is at fault. What a host said lately counts; the others are asked whether a
connection can be made, over which nothing is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from service.clock import suspended_clock
from service.config import host_of
from service.model import End, Exchange, Route
from service.seen import Seen, see
from service.transport import Transport

FRESH_S = 10.0
"""How long a host's answer proves that our network works, and how long a check's result holds."""
ENOUGH_HOSTS = 3
FIRST_OTHERS = 5
"""How many hosts are asked beside the silent one at first; one that can be reached is enough."""
MOST_OTHERS = 50
"""How many are asked before all are held to be out of reach."""


@dataclass(frozen=True)
class Heard:
    """When a host was last reached and when it was last silent, as readings of a clock; None: never."""

    reached: float | None = None
    silent: float | None = None


def network_up(heard: Mapping[str, Heard], proxied: Collection[str], now: float, interval: float) -> bool | None:
    """Whether our network works by what was heard of our hosts, None when that doesn't decide.

    One host that was just reached says that it does; three or more that were silent within the interval say that it
    doesn't. `proxied` hosts can't be asked at will, so that an answer of theirs counts for the whole interval.
    """
    if len(heard) < ENOUGH_HOSTS:
        return None
    if any(_within(one.reached, now, interval if host in proxied else FRESH_S) for host, one in heard.items()):
        return True
    silent = [one for one in heard.values() if _silent_last(one) and _within(one.silent, now, interval)]
    return False if len(silent) >= ENOUGH_HOSTS else None


def _within(moment: float | None, now: float, span: float) -> bool:
    return moment is not None and now - moment <= span


def _silent_last(one: Heard) -> bool:
    return one.silent is not None and (one.reached is None or one.silent > one.reached)


@dataclass(frozen=True)
class Checked:
    """The last time when the question could be answered."""

    at: datetime
    reading: float
    up: bool


class Egress:
    """Answers the question for all probes of a process: one check at a time, and its result holds for ten seconds."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = suspended_clock) -> None:
        self._transport = transport
        self._clock = clock
        self._urls: tuple[str, ...] = ()
        self._proxy: str | None = None
        self._ca_file: str | None = None
        self._direct: dict[str, Route] = {}
        self._heard: dict[str, Heard] = {}
        self._checking = asyncio.Lock()
        self._asked: float | None = None
        self.checked: Checked | None = None

    def watch(self, routes: Iterable[Route], urls: Iterable[str], proxy: str | None, ca_file: str | None) -> None:
        """What is configured now: the routes whose hosts count, and the check's URLs with the way to them. What was
        heard of other hosts is forgotten."""
        routes = tuple(routes)
        self._direct = {host_of(route): route for route in routes if route.proxy is None}
        self._heard = {host: self._heard.get(host, Heard()) for host in map(host_of, routes)}
        self._urls, self._proxy, self._ca_file = tuple(urls), proxy, ca_file
        self._asked = None

    def note(self, route: Route, exchange: Exchange) -> None:
        """Take in what an exchange says of a route's host. Silence that may be our own says nothing."""
        host, now = host_of(route), self._clock()
        if exchange.status is not None:
            stalled = exchange.end is End.DEADLINE and exchange.headers_s is not None
            self._reached(host, now - exchange.duration_s + (exchange.headers_s or 0.0) if stalled else now)
        elif see(exchange) in (Seen.NO_HTTP, Seen.TIMEOUT) and not (exchange.own_lag or exchange.own_queue):
            self._silent(host, now)

    async def up(self, route: Route) -> bool | None:
        """Whether our network works, asked while a route is silent; None when that can't be told."""
        async with self._checking:
            due = self._asked is None or self._clock() - self._asked > FRESH_S
            if self._urls:
                if due:
                    self._found(await self._ask_urls())
                return self.checked is not None and self.checked.up
            if due and len(self._heard) >= ENOUGH_HOSTS and not self._judged(route):
                await self._ask_hosts(route)
            return self._found(self._judged(route))

    def _found(self, up: bool | None) -> bool | None:
        if up is not None:
            self.checked = Checked(datetime.now(UTC), self._clock(), up)
        return up

    def _judged(self, route: Route) -> bool | None:
        proxied = self._heard.keys() - self._direct.keys()
        return network_up(self._heard, proxied, self._clock(), route.interval.total_seconds())

    async def _ask_urls(self) -> bool:
        asked = (self._transport.reaches(url, proxy=self._proxy, ca_file=self._ca_file) for url in self._urls)
        answers = await asyncio.gather(*asked)
        self._asked = self._clock()
        return any(answers)

    async def _ask_hosts(self, route: Route) -> None:
        hosts = self._to_ask(host_of(route))
        for some in (hosts[: 1 + FIRST_OTHERS], hosts[1 + FIRST_OTHERS :]):
            answers = await asyncio.gather(*(self._transport.connects(self._direct[host]) for host in some))
            self._asked = self._clock()
            for host, connected in zip(some, answers, strict=True):
                (self._reached if connected else self._silent)(host, self._asked)
            if any(answers):
                break

    def _to_ask(self, own: str) -> list[str]:
        """The silent route's own host, then those that were reached last: they tell most."""
        others = sorted(self._direct.keys() - {own}, key=lambda host: (-(self._heard[host].reached or 0.0), host))
        return [host for host in (own,) if host in self._direct] + others[:MOST_OTHERS]

    def _reached(self, host: str, at: float) -> None:
        if host in self._heard:
            self._heard[host] = replace(self._heard[host], reached=max(at, self._heard[host].reached or at))
        if self.checked is not None and not self.checked.up and at >= self.checked.reading:
            self.checked = Checked(datetime.now(UTC), at, True)

    def _silent(self, host: str, at: float) -> None:
        if host in self._heard:
            self._heard[host] = replace(self._heard[host], silent=at)
