"""PostgreSQL taken away under load, and what the service shows and keeps meanwhile."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.acceptance.processes import PATIENCE_S, until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Replica, Server, Stored, compare, configure, relay, replicas, routes_to

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


async def outage(
    server: Server,
    folder: Path,
    size: Size,
    *,
    way: Way = direct,
    kill: bool = False,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Found:
    """Take the database away for a while and compare; with `kill` the service dies in between. What is shown
    meanwhile is asserted here."""
    ids = [f"cell-{n}" for n in range(size.cells)]
    async with Peer(delay_s=size.probe_s) as peer:
        spans = {"fresh_for": f"{size.interval + size.away_s / 3:.0f}s", "expires_after": f"{size.away_s:.0f}s"}
        config = configure(
            folder, routes_to(peer, ids), f"{size.interval}s", "10s", defaults=spans if size.away_s > 5 else {}
        )
        async with way(server, folder) as url:
            env = {"ROUTEPROOF_DATABASE_URL": url, "ROUTEPROOF_LOG_LEVEL": "warning", **env}
            with replicas(config, ["one"], env, folder) as (one,):
                await one.ready()
                await until(lambda: proven(one, size.cells), PATIENCE_S + size.interval)
                await until(lambda: gate_allows(one, ids[0]))
                peer.hanging |= set(ids)
                await until(lambda: peer.holding)
                await server.stop()
                stopped, in_flight = time.monotonic(), peer.holding
                peer.resume()
                await until(lambda: spooled(one, in_flight))
                await until(lambda: idle(one))
                ended = len(peer.log)
                spooled_then = int(await one.metric("routeproof_spool_verdicts") or 0)
                await shows_the_age(one)
                if kill:
                    one.kill()
                else:
                    await until(lambda: nothing_is_proven(one), PATIENCE_S + size.away_s + size.interval)
                    assert not await gate_allows(one, ids[0])
                    assert len(peer.log) == ended, "asked while nothing could be claimed"
                await asyncio.sleep(max(0.0, stopped + size.away_s - time.monotonic()))
                await server.start()
                if kill:
                    one.start()
                    await one.ready()
                await until(lambda: asked_again(peer, ids, ended), PATIENCE_S + 2 * size.interval)
                assert await one.running.stop() == 0
        return Found(compare(server, peer.log), in_flight, spooled_then)


async def hang(server: Server, folder: Path, env: Mapping[str, str], *, cells: int = 20, interval: int = 2) -> Found:
    """Have the database take everything and answer nothing, kill the service when all that was answered is on disk or was
    stored before, and compare after both are back."""
    ids = [f"cell-{n}" for n in range(cells)]
    flowing = asyncio.Event()
    flowing.set()
    async with Peer(delay_s=1) as peer, relay(server, flowing) as port:
        config = configure(folder, routes_to(peer, ids), f"{interval}s", "10s")
        url = f"postgresql://{server.url.username}@127.0.0.1:{port}/{server.url.database}"
        env = {"ROUTEPROOF_DATABASE_URL": url, "ROUTEPROOF_LOG_LEVEL": "warning", **env}
        with replicas(config, ["one"], env, folder) as (one,):
            await one.ready()
            await until(lambda: proven(one, cells))
            peer.hanging |= set(ids)
            await until(lambda: peer.holding)
            flowing.clear()
            in_flight = sum(asked.ended is None for asked in peer.log)
            peer.resume()
            stored = {model for (model,) in server.sql("SELECT served_model FROM verdicts")}
            await until(lambda: all(asked.ended and asked.model in stored | on_disk(folder) for asked in peer.log))
            ended = len(peer.log)
            one.kill()
            spooled_then = len(on_disk(folder))
            flowing.set()
            one.start()
            await one.ready()
            await until(lambda: asked_again(peer, ids, ended), PATIENCE_S + 2 * interval)
            assert await one.running.stop() == 0
    return Found(compare(server, peer.log), in_flight, spooled_then)


def on_disk(folder: Path) -> set[str]:
    """The models that verdicts on disk are of."""
    text = "".join(file.read_text() for file in folder.glob("one/spool/*.jsonl"))
    return set(re.findall(r'"served_model": ?"([^"]*)"', text))


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


def asked_again(peer: Peer, ids: Iterable[str], after: int) -> bool:
    return {asked.route for asked in peer.log[after:] if asked.answered} >= set(ids)
