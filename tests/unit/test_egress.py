"""When silence may be our own network's: what was heard of the hosts, and who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from service.config import host_of
from service.egress import FIRST_OTHERS, FRESH_S, MOST_OTHERS, Distance, Egress, Heard, Way, distance, network_up
from service.model import End, Exchange, Route
from service.transport import Transport
from tests.exchanges import ASK, ROUTE, call, early_end, no_answer, refused, timed_out

NOW = 1000.0
INTERVAL = 300.0

UP, DOWN, OPEN = True, False, None
NEVER = Heard()
JUST_REACHED = Heard(reached=NOW - FRESH_S)
ONCE_REACHED = Heard(reached=NOW - FRESH_S - 1)
LONG_REACHED = Heard(reached=NOW - INTERVAL - 1)
SILENT = Heard(silent=NOW - INTERVAL)
WAS_SILENT = Heard(silent=NOW - INTERVAL - 1)
FELL_SILENT = Heard(reached=NOW - 60, silent=NOW - 30)
CAME_BACK = Heard(reached=NOW - 30, silent=NOW - 60)

DIRECT: dict[str, tuple[list[Heard], bool | None]] = {
    "three silent": ([SILENT, SILENT, SILENT], DOWN),
    "three that fell silent": ([FELL_SILENT, FELL_SILENT, FELL_SILENT], DOWN),
    "two silent, no other known": ([SILENT, SILENT], OPEN),
    "one reached of two": ([SILENT, JUST_REACHED], OPEN),
    "two silent, one never heard of": ([SILENT, SILENT, NEVER], OPEN),
    "two silent, one silent too long ago": ([SILENT, SILENT, WAS_SILENT], OPEN),
    "two silent, one that came back since": ([SILENT, SILENT, CAME_BACK], OPEN),
    "one just reached": ([SILENT, SILENT, SILENT, JUST_REACHED], UP),
    "one silent that was just reached": ([SILENT, SILENT, replace(JUST_REACHED, silent=NOW)], UP),
    "one reached before, and not asked since": ([SILENT, SILENT, SILENT, ONCE_REACHED], DOWN),
    "nothing": ([], OPEN),
}


@pytest.mark.parametrize(("heard", "up"), DIRECT.values(), ids=DIRECT)
def test_what_was_heard_of_the_hosts_decides(heard: list[Heard], up: bool | None) -> None:
    assert network_up(name("0"), {name(str(n)): one for n, one in enumerate(heard)}, (), NOW, INTERVAL) is up


@pytest.mark.parametrize(("quiet", "up"), [(ONCE_REACHED, UP), (LONG_REACHED, DOWN), (NEVER, DOWN)])
def test_an_answer_of_one_that_cant_be_asked_counts_for_the_whole_interval(quiet: Heard, up: bool | None) -> None:
    heard = {name("a"): SILENT, name("b"): SILENT, name("c"): SILENT, name("quiet"): quiet}
    assert network_up(name("a"), heard, {name("quiet")}, NOW, INTERVAL) is up


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", Distance.LOOPBACK),
        ("::1", Distance.LOOPBACK),
        ("localhost", Distance.LOOPBACK),
        ("vllm.localhost", Distance.LOOPBACK),
        ("192.168.1.7", Distance.PRIVATE),
        ("fd00::7", Distance.PRIVATE),
        ("8.8.8.8", Distance.PUBLIC),
        ("2606:4700::1", Distance.PUBLIC),
        ("api.example", Distance.NAMED),
        ("localhost.example", Distance.NAMED),
    ],
)
def test_how_much_of_a_network_a_host_takes_is_seen_by_its_name(host: str, known: Distance) -> None:
    assert distance(host) is known


@pytest.mark.parametrize("answers", list(Distance)[:-1])
def test_what_needs_less_of_a_network_doesnt_speak_for_what_needs_more(answers: Distance) -> None:
    heard = {name("a"): SILENT, name("b"): SILENT, name("c"): SILENT, Way("near", answers): JUST_REACHED}
    assert network_up(name("a"), heard, (), NOW, INTERVAL) is DOWN
    assert network_up(Way("x", answers), heard, (), NOW, INTERVAL) is UP


def test_an_answer_by_a_proxy_doesnt_speak_for_the_direct_way_nor_the_other_way_round() -> None:
    direct, proxied = [name(host) for host in "abc"], [Way(host, Distance.NAMED, "http://p") for host in "def"]
    for silent, reached in ((direct, proxied), (proxied, direct)):
        heard = dict.fromkeys(silent, SILENT) | dict.fromkeys(reached, JUST_REACHED)
        assert network_up(silent[0], heard, (), NOW, INTERVAL) is DOWN
        assert network_up(reached[0], heard, (), NOW, INTERVAL) is UP


def test_all_that_is_silent_counts_whatever_way_leads_there() -> None:
    heard = {name("a"): SILENT, Way("8.8.8.8:443", Distance.PUBLIC): SILENT, Way("c", Distance.NAMED, "p"): SILENT}
    assert [network_up(way, heard, (), NOW, INTERVAL) for way in heard] == [DOWN, DOWN, DOWN]


def test_silence_on_our_own_machine_and_out_there_have_no_cause_in_common() -> None:
    local = [Way(f"127.0.0.1:{port}", Distance.LOOPBACK) for port in (1, 2)]
    heard = dict.fromkeys([*local, name("a"), name("b")], SILENT)
    assert [network_up(way, heard, (), NOW, INTERVAL) for way in heard] == [OPEN] * 4


def name(host: str) -> Way:
    return Way(host, Distance.NAMED)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Network:
    """Stands for the transport: `reachable` hosts and URLs can be reached; `asked` are those that were tried."""

    def __init__(self, reachable: Iterable[str] = ()) -> None:
        self.reachable = set(reachable)
        self.asked: list[str] = []
        self.ways: set[tuple[str | None, str | None]] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    async def connects(self, route: Route) -> bool:
        return await self._try(host_of(route))

    async def reaches(self, url: str, *, proxy: str | None, ca_file: str | None) -> bool:
        self.ways.add((proxy, ca_file))
        return await self._try(url)

    async def _try(self, what: str) -> bool:
        self.asked.append(what)
        await asyncio.sleep(0)
        self.meanwhile()
        return what in self.reachable


def route_at(host: str, **fields: str) -> Route:
    return replace(ROUTE, id=host, base_url=f"https://{host}/v1", **fields)


A, B, C = ROUTES = tuple(map(route_at, ("a", "b", "c")))
QUIET = [replace(route, proxy="http://p", base_url=route.base_url.replace("https", "http")) for route in ROUTES]
"""Not encrypted, behind a proxy: they can't be asked."""
MANY = tuple(route_at(f"h{number:02}") for number in range(20))


def guard(network: Network, routes: Iterable[Route] = ROUTES, urls: Iterable[str] = ()) -> tuple[Egress, Clock]:
    clock = Clock()
    egress = Egress(cast(Transport, network), clock)
    egress.watch(routes, urls, None, None)
    return egress, clock


async def test_the_first_silence_of_all_is_settled_by_asking_the_other_hosts() -> None:
    network = Network()
    egress, _ = guard(network)
    egress.note(A, no_answer())
    assert await egress.up(A) is False
    assert network.asked == ["a:443", "b:443", "c:443"]


async def test_one_host_that_can_be_reached_speaks_for_our_network() -> None:
    network = Network({"c:443"})
    egress, _ = guard(network)
    egress.note(A, no_answer())
    assert await egress.up(A) is True


async def test_a_host_that_hangs_but_takes_connections_speaks_for_our_network() -> None:
    network = Network({"a:443"})
    egress, _ = guard(network)
    for route in ROUTES:
        egress.note(route, timed_out())
    assert await egress.up(A) is True


async def test_with_two_hosts_nothing_is_asked_and_nothing_known() -> None:
    network = Network()
    egress, _ = guard(network, (A, B, replace(B, id="b2")))
    egress.note(A, no_answer())
    assert (await egress.up(A), network.asked, egress.checked) == (None, [], None)


@pytest.mark.parametrize(
    "answer",
    [call(), refused(500), early_end(), timed_out(status=200, headers_s=1.0, duration_s=5.0)],
    ids=["a call", "a refusal", "a stream that broke", "a stall"],
)
async def test_any_http_answer_of_late_saves_the_asking(answer: Exchange) -> None:
    network = Network()
    egress, _ = guard(network)
    egress.note(B, answer)
    egress.note(A, no_answer())
    assert (await egress.up(A), network.asked) == (True, [])


@pytest.mark.parametrize(
    "answer", [call(), timed_out(status=200, headers_s=1.0, duration_s=60.0)], ids=["old", "stall"]
)
async def test_an_answer_that_came_a_while_ago_doesnt(answer: Exchange) -> None:
    network = Network()
    egress, clock = guard(network)
    egress.note(B, answer)
    if answer.end is not End.DEADLINE:
        clock.now += FRESH_S + 1
    egress.note(A, no_answer())
    assert await egress.up(A) is False
    assert len(network.asked) == 3


async def test_another_route_of_the_same_host_that_answers_speaks_for_our_network() -> None:
    egress, _ = guard(Network())
    egress.note(replace(A, id="a2"), call())
    egress.note(A, timed_out())
    assert await egress.up(A) is True


@pytest.mark.parametrize("silence", [no_answer(), timed_out()], ids=["no answer", "time-out"])
@pytest.mark.parametrize("fault", ["own_lag", "own_queue"])
async def test_silence_that_may_be_our_own_loads_is_not_held_against_a_host(silence: Exchange, fault: str) -> None:
    egress, _ = guard(Network(), QUIET)
    for route in QUIET:
        egress.note(route, replace(silence, **{fault: True}))
    assert await egress.up(QUIET[0]) is None


async def test_a_cancelled_request_says_nothing() -> None:
    egress, _ = guard(Network(), QUIET)
    for route in QUIET:
        egress.note(route, Exchange(ask=ASK, end=End.CANCELLED))
    assert await egress.up(QUIET[0]) is None


async def test_hosts_that_a_proxy_stands_before_are_asked_by_way_of_it() -> None:
    network = Network({"c:443"})
    proxied = [replace(route, proxy="http://p") for route in ROUTES]
    egress, _ = guard(network, proxied)
    egress.note(proxied[0], no_answer())
    assert await egress.up(proxied[0]) is True
    network.reachable.clear()
    egress, _ = guard(network, proxied)
    assert await egress.up(proxied[0]) is False


async def test_those_that_it_would_answer_for_count_by_their_results_alone() -> None:
    network, proxied = Network(), QUIET
    egress, clock = guard(network, proxied)
    egress.note(proxied[0], no_answer())
    assert await egress.up(proxied[0]) is None
    egress.note(proxied[1], timed_out())
    assert await egress.up(proxied[1]) is None
    egress.note(proxied[2], no_answer())
    assert await egress.up(proxied[2]) is False
    clock.now += 60
    egress.note(proxied[1], call())
    clock.now += 60
    assert await egress.up(proxied[2]) is True
    assert network.asked == []


async def test_a_host_with_one_direct_route_can_be_asked() -> None:
    network = Network()
    egress, _ = guard(network, (A, B, C, replace(C, id="c2", proxy="http://p")))
    await egress.up(A)
    assert "c:443" in network.asked


async def test_of_many_hosts_those_are_asked_first_that_answered_last() -> None:
    network = Network(["h07:443"])
    egress, clock = guard(network, MANY)
    for route in (MANY[7], MANY[3], MANY[12]):
        egress.note(route, call())
        clock.now += 1
    clock.now += FRESH_S
    egress.note(MANY[0], no_answer())
    assert await egress.up(MANY[0]) is True
    assert network.asked[:4] == ["h00:443", "h12:443", "h03:443", "h07:443"]
    assert len(network.asked) == 1 + FIRST_OTHERS


async def test_many_hosts_that_are_out_of_reach_dont_speak_for_one_that_isnt() -> None:
    network = Network([host_of(MANY[-1])])
    egress, _ = guard(network, MANY)
    assert await egress.up(MANY[0]) is True
    assert sorted(network.asked) == [host_of(route) for route in MANY]


async def test_of_very_many_hosts_some_speak_for_all() -> None:
    network = Network()
    hosts = [replace(ROUTE, id=f"h{n:02}", base_url=f"https://h{n:02}/v1") for n in range(2 * MOST_OTHERS)]
    egress, _ = guard(network, hosts)
    assert await egress.up(hosts[0]) is False
    assert len(network.asked) == 1 + MOST_OTHERS


async def test_probes_that_are_silent_at_once_share_one_check() -> None:
    network = Network()
    egress, _ = guard(network)
    for route in ROUTES:
        egress.note(route, no_answer())
    assert await asyncio.gather(*(egress.up(route) for route in ROUTES for _ in range(5))) == [False] * 15
    assert len(network.asked) == 3


async def test_a_check_holds_for_ten_seconds() -> None:
    network = Network()
    egress, clock = guard(network)
    assert await egress.up(A) is False
    network.reachable = {"b:443"}
    clock.now += FRESH_S
    assert await egress.up(A) is False
    clock.now += 1
    assert await egress.up(A) is True
    assert len(network.asked) == 6


async def test_an_answer_ends_what_a_check_found() -> None:
    egress, _ = guard(Network())
    egress.note(A, no_answer())
    assert await egress.up(A) is False
    egress.note(B, call())
    assert egress.checked is not None
    assert egress.checked.up
    assert await egress.up(A) is True


async def test_an_answer_from_before_the_check_doesnt() -> None:
    egress, clock = guard(Network(), urls=["http://check"])
    clock.now += 30
    await egress.up(A)
    egress.note(B, timed_out(status=200, headers_s=1.0, duration_s=60.0))
    assert egress.checked is not None
    assert not egress.checked.up


async def test_an_answer_ends_what_a_configured_check_found() -> None:
    network = Network()
    egress, _ = guard(network, urls=["http://check"])
    assert await egress.up(A) is False
    egress.note(B, call())
    assert (await egress.up(A), network.asked) == (True, ["http://check", "a:443", "b:443", "c:443"])


async def test_an_answer_that_comes_while_we_ask_counts() -> None:
    network = Network()
    egress, _ = guard(network)
    network.meanwhile = lambda: egress.note(B, call())
    assert await egress.up(A) is True


async def test_before_any_question_nothing_is_known() -> None:
    egress, _ = guard(Network())
    egress.note(A, call())
    assert egress.checked is None


async def test_the_time_of_the_last_finding_is_told() -> None:
    egress, _ = guard(Network())
    before = datetime.now(UTC)
    await egress.up(A)
    assert egress.checked is not None
    assert before <= egress.checked.at <= datetime.now(UTC)


# --- a configured check -------------------------------------------------------------------------------------


async def test_a_configured_check_that_answers_is_enough() -> None:
    network = Network({"http://two"})
    egress, _ = guard(network, urls=["http://one", "http://two"])
    assert await egress.up(A) is True
    assert network.asked == ["http://one", "http://two"]


@pytest.mark.parametrize(("reachable", "up"), [(set(), False), ({"b:443"}, True), ({"a:443"}, True)])
async def test_one_that_is_silent_may_be_at_fault_itself_so_the_hosts_are_asked(reachable: set[str], up: bool) -> None:
    network = Network(reachable)
    egress, clock = guard(network, (A, B), urls=["http://one"])
    assert await egress.up(A) is up
    assert network.asked == ["http://one", "a:443", "b:443"]
    clock.now += FRESH_S
    assert await egress.up(A) is up
    assert len(network.asked) == 3


async def test_an_answer_from_before_the_check_fell_silent_doesnt_speak_against_it() -> None:
    egress, clock = guard(Network(), urls=["http://check"])
    egress.note(B, call())
    clock.now += 1
    assert await egress.up(A) is False


LOCAL = replace(ROUTE, id="local", base_url="http://127.0.0.1:8000/v1")


@pytest.mark.parametrize("urls", [(), ["http://check"]])
async def test_what_answers_on_our_own_machine_says_nothing_of_the_world_outside(urls: list[str]) -> None:
    network = Network({"127.0.0.1:8000"})
    egress, _ = guard(network, (*ROUTES, LOCAL), urls)
    egress.note(LOCAL, call())
    assert await egress.up(A) is False
    assert "127.0.0.1:8000" not in network.asked
    egress.note(LOCAL, call())
    assert await egress.up(A) is False
    assert egress.checked is not None
    assert not egress.checked.up
    egress.note(B, call())
    assert egress.checked.up


async def test_a_check_of_the_world_outside_says_nothing_of_our_own_machine() -> None:
    network = Network()
    egress, _ = guard(network, (*ROUTES, LOCAL), ["http://check"])
    assert await egress.up(A) is False
    assert await egress.up(LOCAL) is None
    assert egress.checked is not None
    assert not egress.checked.up


async def test_each_way_is_asked_for_itself() -> None:
    """Within ten seconds of another's check too."""
    network = Network({"8.8.8.8:443"})
    silent = route_at("9.9.9.9")
    egress, _ = guard(network, [*ROUTES, route_at("8.8.8.8"), silent])
    assert await egress.up(A) is False  # names don't resolve
    assert await egress.up(silent) is True
    assert egress.checked is not None
    assert not egress.checked.up  # of names nothing else is known yet


async def test_hosts_behind_one_proxy_are_alike_to_us_whatever_they_are_called() -> None:
    network = Network({"10.0.0.7:443"})
    proxied = [replace(route, proxy="http://p") for route in (A, route_at("10.0.0.7"))]
    egress, _ = guard(network, proxied, ["http://check"])
    assert await egress.up(proxied[0]) is True


# --- another configuration ----------------------------------------------------------------------------------


async def test_a_host_that_is_no_longer_configured_is_forgotten() -> None:
    egress, _ = guard(Network())
    egress.note(C, call())
    egress.watch((A, B, route_at("d")), (), None, None)
    egress.note(A, no_answer())
    assert await egress.up(A) is False
    egress.note(C, call())  # a probe that was under way
    egress.watch((A, B), (), None, None)
    assert await egress.up(A) is None


async def test_what_is_known_of_the_other_hosts_is_kept() -> None:
    network = Network()
    egress, _ = guard(network)
    egress.note(B, call())
    egress.watch(MANY + ROUTES, (), None, None)
    assert (await egress.up(A), network.asked) == (True, [])


async def test_a_check_that_is_configured_now_is_asked_at_once() -> None:
    network = Network({"http://check"})
    egress, _ = guard(network)
    assert await egress.up(A) is False
    egress.watch(ROUTES, ["http://check"], None, None)
    assert await egress.up(A) is True


async def test_the_interval_is_that_of_the_silent_route() -> None:
    proxied = [replace(route, interval=timedelta(minutes=1)) for route in QUIET]
    egress, clock = guard(Network(), proxied)
    egress.note(proxied[1], no_answer())
    egress.note(proxied[2], no_answer())
    clock.now += 61
    egress.note(proxied[0], no_answer())
    assert await egress.up(proxied[0]) is None
    clock.now += FRESH_S + 1
    assert await egress.up(replace(proxied[0], interval=timedelta(minutes=5))) is False
