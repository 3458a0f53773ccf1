"""PostgreSQL taken away under load, and what the service shows and keeps meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Asked, Peer
from tests.acceptance.reliability.stage import Replica, Server, Stored, compare, configure, replicas, routes_to

Way = Callable[[Server, Path], AbstractAsyncContextManager[str]]


def direct(server: Server, _: Path) -> AbstractAsyncContextManager[str]:
    return nullcontext(server.address)


@dataclass(frozen=True)
class Size:
    """So many cells are asked so often (seconds); the database is away for so long. A verdict is fresh for half of that
    time and expires within it."""

    cells: int
    interval: int
    away_s: float
    probe_s: float = 1.5


@dataclass(frozen=True)
class Found:
    """`in_flight` are the probes that ended while the database was away, `spooled` those that were on disk then."""

    stored: Stored
    in_flight: int
    spooled: int

    def __str__(self) -> str:
        return f"{self.stored}; {self.in_flight} ended while the database was away, {self.spooled} were on disk"


async def outage(server: Server, folder: Path, size: Size, *, way: Way = direct, kill: bool = False) -> Found:
    """Take the database away for a while and compare; with `kill` the service dies in between. What is shown
    meanwhile is asserted here."""
    ids = [f"cell-{n}" for n in range(size.cells)]
    async with Peer(delay_s=size.probe_s) as peer:
        spans = {"fresh_for": f"{size.interval + size.away_s / 3:.0f}s", "expires_after": f"{size.away_s:.0f}s"}
        config = configure(
            folder, routes_to(peer, ids), f"{size.interval}s", "4s", defaults=spans if size.away_s > 5 else {}
        )
        async with way(server, folder) as url:
            env = {"ROUTEPROOF_DATABASE_URL": url, "ROUTEPROOF_LOG_LEVEL": "warning"}
            with replicas(config, ["one"], env, folder) as (one,):
                await one.ready()
                await until(lambda: proven(one, size.cells), within=60 + size.interval)
                await until(lambda: gate_allows(one, ids[0]))
                await until(lambda: just_begun(peer))
                await server.stop()
                stopped, away_from = time.monotonic(), time.time()
                await until(lambda: not [a for a in peer.log if a.ended is None])
                ended = len(peer.log)
                in_flight = sum(asked.at >= away_from for asked in peer.log)
                await until(lambda: spooled(one, in_flight))
                await until(lambda: idle(one))
                on_disk = int(await one.metric("routeproof_spool_verdicts") or 0)
                await shows_the_age(one)
                if kill:
                    one.kill()
                else:
                    await until(lambda: nothing_is_proven(one), within=size.away_s + size.interval + 5)
                    assert not await gate_allows(one, ids[0])
                    assert len(peer.log) == ended, "asked while nothing could be claimed"
                await asyncio.sleep(max(0.0, stopped + size.away_s - time.monotonic()))
                await server.start()
                if kill:
                    one.start()
                    await one.ready()
                await until(lambda: asked_again(peer, ids, ended), within=60 + 2 * size.interval)
                assert await one.running.stop(within=30) == 0
        return Found(compare(server, peer.log, size.interval / 2), in_flight, on_disk)


async def proven(one: Replica, cells: int) -> bool:
    return await one.metric("routeproof_contract_proven") == cells


async def spooled(one: Replica, least: int) -> bool:
    return (await one.metric("routeproof_spool_verdicts") or 0) >= least


async def idle(one: Replica) -> bool:
    return await one.metric("routeproof_probes_in_flight") == 0


async def nothing_is_proven(one: Replica) -> bool:
    """Freshness goes first, and then the state itself: nobody has looked for so long."""
    state = await one.metric("routeproof_contract_proven")
    if state is not None and await one.metric("routeproof_contract_fresh"):
        return False
    if state is None:
        assert await one.metric("routeproof_contract_fresh") == 0
    return state is None


async def gate_allows(one: Replica, route: str) -> bool:
    answer = (await one.page(f"/api/v1/gate/{route}")).json()
    return bool(answer["allowed"])


async def shows_the_age(one: Replica) -> None:
    assert await one.metric("routeproof_database_up") == 0
    page = await one.page()
    assert page.status_code == 200
    assert 'class="banner" role="alert"' in page.text, "no banner"
    assert "database can’t be reached" in page.text


def just_begun(peer: Peer) -> list[Asked]:
    return [asked for asked in peer.log if asked.ended is None and time.monotonic() - asked.began < 0.2]


def asked_again(peer: Peer, ids: Iterable[str], after: int) -> bool:
    return {asked.route for asked in peer.log[after:] if asked.answered} >= set(ids)
