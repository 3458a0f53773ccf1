"""A route that breaks for good."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.processes import PATIENCE_S, until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import LASTING, Replica, Server, configure, replicas, routes_to


@dataclass(frozen=True)
class Found:
    """The seconds until the metric showed it, and how many failed probes it took."""

    waited_s: float
    failed: int


FAILED = """
    SELECT count(*) FROM verdicts WHERE route_id = 'breaks' AND status <> 'tools_supported'
    AND observed_at <= (SELECT at FROM transitions WHERE kind = 'regression')
"""


async def confirmed_after(server: Server, folder: Path, interval: int) -> Found:
    """Break a proven route right after it was asked, the worst moment, and wait until the metric shows it."""
    async with Peer() as peer:
        config = configure(folder, routes_to(peer, ["well", "breaks"]), f"{interval}s", defaults=LASTING)
        with replicas(config, ["one"], {"ROUTEPROOF_DATABASE_URL": server.address}, folder) as (one,):
            await one.ready()
            await until(lambda: shows(one, "routeproof_contract_proven", 2), PATIENCE_S + interval)
            asked = len(peer.of("breaks"))
            await until(lambda: len(peer.of("breaks")) > asked, PATIENCE_S + 2 * interval)
            await until(lambda: peer.of("breaks")[-1].ended is not None)
            peer.broken.add("breaks")
            broke = time.monotonic()
            await until(lambda: shows(one, "routeproof_contract_regressed", 1), PATIENCE_S + 3 * interval)
            waited = time.monotonic() - broke
            assert await one.metric("routeproof_contract_regressed", route="well") == 0
            assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == [("regression",)]
            ((failed,),) = server.sql(FAILED)
    return Found(waited, failed)


async def shows(one: Replica, name: str, value: float) -> bool:
    return await one.metric(name) == value
