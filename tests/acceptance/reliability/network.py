"""Our own network gone and come back, as the routes of three hosts and their egress check see it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.acceptance.processes import PATIENCE_S, free_port, until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import LASTING, Replica, Server, configure, replicas, routes_to


async def away(
    server: Server, folder: Path, *, guarded: bool, interval: int, cells: int, rounds: int, env: dict[str, str]
) -> dict[str, int]:
    """Take every host off the network until each cell was found wanting `rounds` times, and put them back. Returns how
    often each status was found. What is shown, and that nothing is announced, is asserted here."""
    async with AsyncExitStack() as stack:
        peers = [Peer(host=f"127.0.0.{n}", port=free_port()) for n in (1, 2, 3, 4)]
        *hosts, guard = [await stack.enter_async_context(peer) for peer in peers]
        ids = [[f"cell-{host.host[-1]}-{n}" for n in range(cells)] for host in hosts]
        routes = [
            route
            for host, of_host in zip(hosts, ids, strict=True)
            for route in routes_to(host, of_host, provider=f"p{host.host[-1]}")
        ]
        service = {"egress_check": [f"http://{guard.host}:{guard.port}/"]} if guarded else {}
        config = configure(folder, routes, f"{interval}s", service=service, defaults=LASTING)
        env = {"ROUTEPROOF_DATABASE_URL": server.address, **env}
        (one,) = stack.enter_context(replicas(config, ["one"], env, folder))
        await one.ready()
        await until(lambda: shows(one, "routeproof_contract_proven", 3 * cells), PATIENCE_S + interval)
        off = server.sql("SELECT now()")[0][0]
        await asyncio.gather(*(peer.close() for peer in (guard, *hosts)))  # at once: one that is left says all is well
        found = (
            "SELECT count(*) FROM (SELECT FROM verdicts WHERE status = 'own_network' GROUP BY cell_id "
            "HAVING count(*) >= %s) AS enough"
        )
        await until(lambda: server.sql(found, rounds) == [(3 * cells,)], PATIENCE_S + 2 * rounds * interval)
        assert await one.metric("routeproof_egress_up") == 0
        assert await one.metric("routeproof_contract_regressed") == 0
        await until(lambda: page_says(one, "egress down in default"))
        assert await page_says(
            one, "The network of the prober in default is down: what it finds is held against no route."
        )
        back = server.sql("SELECT now()")[0][0]
        for peer in hosts:
            await peer.open()
        again = "SELECT count(DISTINCT cell_id) FROM verdicts WHERE status = 'tools_supported' AND started_at > %s"
        await until(lambda: server.sql(again, back) == [(3 * cells,)], PATIENCE_S + 2 * interval)
        await until(lambda: shows(one, "routeproof_egress_up", 1))
        await guard.open()
        assert await one.metric("routeproof_contract_regressed") == 0
        assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == []
        statuses = "SELECT status, count(*) FROM verdicts WHERE observed_at > %s GROUP BY status"
        return dict(server.sql(statuses, off))


async def page_says(one: Replica, text: str) -> bool:
    return text in (await one.page()).text


async def shows(one: Replica, name: str, value: float) -> bool:
    return await one.metric(name) == value
