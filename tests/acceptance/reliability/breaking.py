"""A route that breaks for good."""

from __future__ import annotations

import time
from pathlib import Path

from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Replica, Server, configure, replicas, routes_to


async def confirmed_after(server: Server, folder: Path, interval: int) -> float:
    """Break a proven route right after it was asked, the worst moment; the seconds until the metric shows it."""
    async with Peer() as peer:
        config = configure(folder, routes_to(peer, ["well", "breaks"]), f"{interval}s", "2s")
        with replicas(config, ["one"], {"ROUTEPROOF_DATABASE_URL": server.address}, folder) as (one,):
            await one.ready()
            await until(lambda: shows(one, "routeproof_contract_proven", 2), within=30 + interval)
            asked = len(peer.of("breaks"))
            await until(lambda: len(peer.of("breaks")) > asked, within=30 + 2 * interval)
            await until(lambda: peer.of("breaks")[-1].ended is not None)
            peer.broken.add("breaks")
            broke = time.monotonic()
            await until(lambda: shows(one, "routeproof_contract_regressed", 1), within=60 + 3 * interval)
            waited = time.monotonic() - broke
            assert await one.metric("routeproof_contract_regressed", route="well") == 0
            assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == [("regression",)]
    return waited


async def shows(one: Replica, name: str, value: float) -> bool:
    return await one.metric(name) == value
