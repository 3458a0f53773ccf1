"""Whether our own network works. The question arises when a route is silent; then the silence may be ours.

A configured check asks its URLs. Where it is silent too, or where there is none, the routes' own hosts stand for it:
one that can be reached shows that our network works, three or more that can't that it doesn't. What a host said lately
counts; the others are asked whether a connection can be made, over which nothing is sent.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import cache
from ipaddress import ip_address
from urllib.parse import urlsplit

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


class Distance(IntEnum):
    """How much of our network it takes to reach a host, by how a URL names it."""

    LOOPBACK = 0
    PRIVATE = 1  # an address
    PUBLIC = 2  # an address
    NAMED = 3  # names have to be resolved first; where it leads to isn't known


@cache
def distance(host: str) -> Distance:
    """Of a host as a URL has it, without its port."""
    try:
        address = ip_address(host)
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
        return Distance.LOOPBACK if local else Distance.NAMED
    if address.is_loopback:
        return Distance.LOOPBACK
    return Distance.PRIVATE if address.is_private else Distance.PUBLIC


Kind = tuple[Distance, str | None]


@dataclass(frozen=True)
class Way:
    """How a host, with its port, is reached: `proxy` None is directly."""

    host: str
    distance: Distance
    proxy: str | None = None

    @classmethod
    def of(cls, route: Route) -> Way:
        if route.proxy is not None:
            return cls(host_of(route), Distance.NAMED, route.proxy)
        return cls(host_of(route), distance(urlsplit(route.base_url).hostname or ""))

    @property
    def kind(self) -> Kind:
        """Ways of a kind speak for one another."""
        return self.distance, self.proxy

    def speaks_for(self, other: Way) -> bool:
        """Whether an answer by this way shows that our network works by the other: it takes as much of it, or more."""
        return self.proxy == other.proxy and self.distance >= other.distance

    def is_silent_with(self, other: Way) -> bool:
        """Whether one fault of our network can keep both silent."""
        return (self.distance is Distance.LOOPBACK) is (other.distance is Distance.LOOPBACK)


@dataclass(frozen=True)
class Heard:
    """When a host was last reached and when it was last silent, as readings of a clock; None: never."""

    reached: float | None = None
    silent: float | None = None


def network_up(
    way: Way, heard: Mapping[Way, Heard], not_asked: Collection[Way], now: float, interval: float
) -> bool | None:
    """Whether our network works as far as `way` needs it, by what was heard of our hosts; None: that doesn't decide.

    One host that was just reached says that it does; three or more that were silent within the interval say that it
    doesn't. Those `not_asked` can't be asked at will, so that an answer of theirs counts for the whole interval.
    """
    if len(heard) < ENOUGH_HOSTS:
        return None
    speaking = {other: one for other, one in heard.items() if other.speaks_for(way)}
    if any(_within(one.reached, now, interval if other in not_asked else FRESH_S) for other, one in speaking.items()):
        return True
    sharing = [one for other, one in heard.items() if other.is_silent_with(way)]
    silent = [one for one in sharing if _silent_last(one) and _within(one.silent, now, interval)]
    return False if len(silent) >= ENOUGH_HOSTS else None


def _within(moment: float | None, now: float, span: float) -> bool:
    return moment is not None and now - moment <= span


def _silent_last(one: Heard) -> bool:
    return one.silent is not None and (one.reached is None or one.silent > one.reached)


@dataclass(frozen=True)
class Checked:
    """The last time when the question could be answered, and of which way it was put."""

    at: datetime
    reading: float
    up: bool
    way: Way


class Egress:
    """Answers the question for all probes of a process: one check of a kind at a time, and its result holds for ten
    seconds."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = suspended_clock) -> None:
        self._transport = transport
        self._clock = clock
        self._urls: tuple[str, ...] = ()
        self._proxy: str | None = None
        self._ca_file: str | None = None
        self._askable: dict[Way, Route] = {}
        self._heard: dict[Way, Heard] = {}
        self._urls_checking = asyncio.Lock()
        self._hosts_checking: defaultdict[Kind, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._urls_asked: float | None = None
        self._urls_answer = False
        self._hosts_asked: dict[Kind, float] = {}
        self.checked: Checked | None = None

    def watch(self, routes: Iterable[Route], urls: Iterable[str], proxy: str | None, ca_file: str | None) -> None:
        """What is configured now: the routes whose hosts count, and the check's URLs with the way to them. What was
        heard of other hosts is forgotten."""
        ways = {Way.of(route): route for route in routes}
        self._askable = {way: route for way, route in ways.items() if _can_be_asked(route)}
        self._heard = {way: self._heard.get(way, Heard()) for way in ways}
        self._urls, self._proxy, self._ca_file = tuple(urls), proxy, ca_file
        self._urls_asked = None
        self._hosts_asked = {}

    def note(self, route: Route, exchange: Exchange) -> None:
        """Take in what an exchange says of a route's host. Silence that may be our own says nothing."""
        way, now = Way.of(route), self._clock()
        if exchange.status is not None:
            stalled = exchange.end is End.DEADLINE and exchange.headers_s is not None
            self._reached(way, now - exchange.duration_s + (exchange.headers_s or 0.0) if stalled else now)
        elif see(exchange) in (Seen.NO_HTTP, Seen.TIMEOUT) and not (exchange.own_lag or exchange.own_queue):
            self._silent(way, now)

    async def up(self, route: Route) -> bool | None:
        """Whether our network works, asked while a route is silent; None when that can't be told."""
        way = Way.of(route)
        urls = [url for url in self._urls if _is_for(url, way)]
        if urls:
            return self._found(way, await self._do_urls_answer(urls) or await self._does_a_host_answer(way))
        if len(self._heard) >= ENOUGH_HOSTS and not self._judged(way, route):
            await self._ask_hosts(way)
        return self._found(way, self._judged(way, route))

    def _found(self, way: Way, up: bool | None) -> bool | None:
        known = self.checked
        if up is not None and (not up or known is None or known.up or way.speaks_for(known.way)):
            self.checked = Checked(datetime.now(UTC), self._clock(), up, way)
        return up

    def _judged(self, way: Way, route: Route) -> bool | None:
        not_asked = self._heard.keys() - self._askable.keys()
        return network_up(way, self._heard, not_asked, self._clock(), route.interval.total_seconds())

    async def _do_urls_answer(self, urls: Iterable[str]) -> bool:
        async with self._urls_checking:
            if not _within(self._urls_asked, self._clock(), FRESH_S):
                asked = (self._transport.reaches(url, proxy=self._proxy, ca_file=self._ca_file) for url in urls)
                answers = await asyncio.gather(*asked)
                self._urls_asked, self._urls_answer = self._clock(), any(answers)
            return self._urls_answer

    async def _does_a_host_answer(self, way: Way) -> bool:
        """The check's URLs are silent, which may be their own fault: any host that was reached since says so."""
        await self._ask_hosts(way)
        since = self._urls_asked
        return since is not None and any(
            other.speaks_for(way) and one.reached is not None and one.reached >= since
            for other, one in self._heard.items()
        )

    async def _ask_hosts(self, way: Way) -> None:
        """Ask for connections, unless those that speak for `way` were asked just now."""
        async with self._hosts_checking[way.kind]:
            if _within(self._hosts_asked.get(way.kind), self._clock(), FRESH_S):
                return
            ways = self._to_ask(way)
            for some in (ways[: 1 + FIRST_OTHERS], ways[1 + FIRST_OTHERS :]):
                answers = await asyncio.gather(*(self._transport.connects(self._askable[one]) for one in some))
                now = self._hosts_asked[way.kind] = self._clock()
                for one, connected in zip(some, answers, strict=True):
                    (self._reached if connected else self._silent)(one, now)
                if any(answers):
                    break

    def _to_ask(self, own: Way) -> list[Way]:
        """The silent route's own host, then those that were reached last: they tell most."""
        others = sorted(
            (way for way in self._askable if way != own and way.speaks_for(own)),
            key=lambda way: (-(self._heard[way].reached or 0.0), way.host),
        )
        return [way for way in (own,) if way in self._askable] + others[:MOST_OTHERS]

    def _reached(self, way: Way, at: float) -> None:
        if way in self._heard:
            self._heard[way] = replace(self._heard[way], reached=max(at, self._heard[way].reached or at))
        known = self.checked
        if known is not None and not known.up and at >= known.reading and way.speaks_for(known.way):
            self.checked = Checked(datetime.now(UTC), at, True, known.way)

    def _silent(self, way: Way, at: float) -> None:
        if way in self._heard:
            self._heard[way] = replace(self._heard[way], silent=at)


def _can_be_asked(route: Route) -> bool:
    """Whether a connection shows that the host is there: what isn't encrypted a proxy would take in its stead."""
    return route.proxy is None or urlsplit(route.base_url).scheme == "https"


def _is_for(url: str, way: Way) -> bool:
    """Whether a URL of the check can tell of this way: for what is on our own machine no network is needed."""
    return way.distance is not Distance.LOOPBACK or distance(urlsplit(url).hostname or "") is Distance.LOOPBACK
