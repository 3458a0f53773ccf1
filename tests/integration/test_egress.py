"""Whole probes without a configured check, over real sockets: when every host is silent, no route is blamed."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from service import probe
from service.model import Credentials, Route, Status, Verdict
from service.probe import Moment, Prober
from service.transport import Transport
from tests.integration.test_transport import (
    CALL,
    DONE,
    FINISH,
    OPEN,
    Handler,
    answering,
    own_certificate,
    route_to,
    serving,
    tls,
)

__all__ = ["own_certificate", "tls"]


@pytest.fixture
def closed_ports() -> Iterator[list[int]]:
    """Three ports that nobody else gets, and nobody listens on."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in taken]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before a host is asked again."""
    monkeypatch.setattr(probe, "_PAUSE_S", (0.0, 0.0))


@pytest.fixture
async def prober() -> AsyncIterator[Prober]:
    async with Transport() as transport:
        yield Prober(transport, "here")


def at(port: int) -> Route:
    return replace(route_to(f"http://127.0.0.1:{port}/v1"), id=str(port))


async def probed(prober: Prober, route: Route) -> Verdict:
    return (await prober.probe(route, "native_tools", Credentials(), Moment.now())).verdict


HEALTHY = answering(OPEN, CALL, FINISH, DONE)


async def test_with_three_silent_hosts_it_is_our_network_from_the_first_verdict_on(
    prober: Prober, closed_ports: list[int]
) -> None:
    routes = [at(port) for port in closed_ports]
    prober.watch(routes)
    verdicts = [await probed(prober, route) for route in routes + routes]
    assert {(verdict.status, verdict.reason) for verdict in verdicts} == {(Status.OWN_NETWORK, "refused")}
    assert prober.egress_up is False


async def test_with_one_host_that_answers_a_silent_one_is_unreachable(prober: Prober, closed_ports: list[int]) -> None:
    async with serving(HEALTHY) as port:
        routes = [at(one) for one in (*closed_ports[:2], port)]
        prober.watch(routes)
        verdicts = [await probed(prober, route) for route in routes]
    assert [verdict.status for verdict in verdicts] == [
        Status.UNREACHABLE,
        Status.UNREACHABLE,
        Status.TOOLS_SUPPORTED,
    ]
    assert [verdict.tokens_estimated for verdict in verdicts] == [False, False, True]
    assert prober.egress_up is True


async def test_two_silent_hosts_are_too_few_to_tell(prober: Prober, closed_ports: list[int]) -> None:
    routes = [at(port) for port in closed_ports[:2]]
    prober.watch(routes)
    assert {(await probed(prober, route)).status for route in routes} == {Status.UNREACHABLE}
    assert prober.egress_up is None
    assert prober.egress_checked_at is None


async def test_names_that_dont_resolve_are_silence_too(prober: Prober) -> None:
    routes = [replace(route_to(f"https://{name}.invalid/v1"), id=name) for name in ("one", "two", "three")]
    prober.watch(routes)
    verdict = await probed(prober, routes[0])
    assert (verdict.status, verdict.reason) == (Status.OWN_NETWORK, "dns")


async def test_the_first_answer_after_an_outage_ends_it(prober: Prober, closed_ports: list[int]) -> None:
    async with serving(HEALTHY) as port:
        outside = at(port)
        prober.watch([at(one) for one in closed_ports])
        assert (await probed(prober, at(closed_ports[0]))).status is Status.OWN_NETWORK
        down_at = prober.egress_checked_at
        assert down_at is not None
        prober.watch([*map(at, closed_ports), outside])
        assert prober.egress_up is False
        assert (await probed(prober, outside)).status is Status.TOOLS_SUPPORTED
        assert prober.egress_up is True
        assert prober.egress_checked_at is not None
        assert prober.egress_checked_at > down_at
        assert (await probed(prober, at(closed_ports[0]))).status is Status.UNREACHABLE


async def test_a_configured_check_that_answers_is_enough(prober: Prober, closed_ports: list[int]) -> None:
    routes = [at(port) for port in closed_ports]
    async with serving(answering(b"HTTP/1.1 204 No\r\n\r\n"), read=False) as port:
        prober.watch(routes, [f"http://127.0.0.1:{port}/"])
        assert (await probed(prober, routes[0])).status is Status.UNREACHABLE
    prober.watch(routes[:1], [f"http://127.0.0.1:{closed_ports[2]}/"])
    assert (await probed(prober, routes[0])).status is Status.OWN_NETWORK


async def test_a_check_that_is_gone_hides_no_outage_while_another_host_is_there(
    prober: Prober, closed_ports: list[int]
) -> None:
    dead_check = [f"http://127.0.0.1:{closed_ports[2]}/"]
    async with serving(HEALTHY) as port:
        prober.watch([at(closed_ports[0]), at(port)], dead_check)
        assert (await probed(prober, at(closed_ports[0]))).status is Status.UNREACHABLE
        assert prober.egress_up is True
    prober.watch([at(closed_ports[0]), at(port)], dead_check)
    assert (await probed(prober, at(closed_ports[0]))).status is Status.OWN_NETWORK


# --- asking a host ------------------------------------------------------------------------------------------


async def test_a_host_is_asked_for_a_connection_and_sent_nothing() -> None:
    said: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.append(await reader.read())

    async with Transport() as transport, serving(listen, read=False) as port:
        assert await transport.connects(route_to(f"http://user:pass@127.0.0.1:{port}/v1?key=secret"))
        while not said:
            await asyncio.sleep(0)
    assert said == [b""]


async def test_tls_must_be_agreed_on_as_for_a_request(tls: object, own_certificate: tuple[object, object]) -> None:
    trusted = str(own_certificate[0])
    async with Transport() as transport, serving(answering(then="hang"), tls, read=False) as port:  # type: ignore[arg-type]
        route = route_to(f"https://127.0.0.1:{port}/v1")
        assert await transport.connects(replace(route, id="trusting", ca_file=trusted))
        assert not await transport.connects(route)


async def test_behind_a_proxy_it_is_the_host_that_must_be_there(
    tls: object, own_certificate: tuple[object, object], closed_ports: list[int]
) -> None:
    said: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        said.append(request.split(b"\r\n")[0])
        try:
            there = await asyncio.open_connection("127.0.0.1", int(request.split()[1].rpartition(b":")[2]))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(passed_on(reader, there[1]), passed_on(there[0], writer))

    ca_file = str(own_certificate[0])
    async with Transport() as transport, serving(proxy, read=False) as way:
        proxied = {"ca_file": ca_file, "proxy": f"http://127.0.0.1:{way}"}
        async with serving(answering(then="hang"), tls, read=False) as port:  # type: ignore[arg-type]
            route = route_to(f"https://127.0.0.1:{port}/v1")
            assert await transport.connects(replace(route, **proxied))
        gone = replace(route_to(f"https://127.0.0.1:{closed_ports[0]}/v1"), id="gone", **proxied)
        assert not await transport.connects(gone)
        dead = replace(route, id="dead", ca_file=ca_file, proxy=f"http://127.0.0.1:{closed_ports[1]}")
        assert not await transport.connects(dead)
    assert said == [b"CONNECT 127.0.0.1:%d HTTP/1.1" % one for one in (port, closed_ports[0])]


async def test_a_proxy_that_says_nothing_is_given_up() -> None:
    async with Transport() as transport, serving(answering(then="hang"), read=False) as way:
        route = replace(route_to("https://127.0.0.1:1/v1"), proxy=f"http://127.0.0.1:{way}")
        async with asyncio.timeout(30):  # less than it hangs
            assert not await transport.connects(route, seconds=0.2)
        gc.collect()


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    "handler", [answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), answering(), answering(then="reset")]
)
async def test_what_speaks_no_tls_is_not_reached_by_it(handler: Handler) -> None:
    async with Transport() as transport, serving(handler, read=False) as port:
        assert not await transport.connects(route_to(f"https://127.0.0.1:{port}/v1"))


async def test_a_file_of_authorities_that_cant_be_read_hurts_no_other_route(
    prober: Prober, closed_ports: list[int]
) -> None:
    routes = [at(port) for port in closed_ports]
    prober.watch([*routes[:2], replace(routes[2], ca_file="/no/such/file")])
    assert (await probed(prober, routes[0])).status is Status.OWN_NETWORK


async def test_a_host_that_is_silent_in_the_handshake_is_given_up() -> None:
    async with Transport() as transport, serving(answering(then="hang"), read=False) as port:
        assert not await transport.connects(route_to(f"https://127.0.0.1:{port}/v1"), seconds=0.2)
        gc.collect()  # a socket that was left open would warn here
