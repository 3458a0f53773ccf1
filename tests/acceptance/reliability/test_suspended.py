"""A process that is stopped in mid-probe for longer than its lease, and then goes on."""

from __future__ import annotations

import signal
from pathlib import Path

from service.pacing import DEADLINES_A_PROBE
from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Server, configure, replicas, routes_to, shorter

DEADLINE_S, LEASE_S = 5, 7  # both are slept over, and nobody else needs as long


async def test_a_process_that_slept_over_its_lease_overwrites_nothing_and_blames_no_route(
    server: Server, folder: Path
) -> None:
    ids = [f"cell-{n}" for n in range(10)]
    async with Peer(delay_s=0.5) as peer:
        config = configure(folder, routes_to(peer, ids), "2s", f"{DEADLINE_S}s")
        margin = LEASE_S - DEADLINES_A_PROBE * DEADLINE_S
        env = {
            "ROUTEPROOF_DATABASE_URL": server.address,
            **shorter(folder, service__store__claims__LEASE_MARGIN_S=margin),
        }
        with replicas(config, ["sleeper", "other"], env, folder) as (sleeper, other):
            await sleeper.ready()
            await other.ready()
            await until(lambda: server.sql("SELECT count(DISTINCT cell_id) FROM verdicts") == [(10,)])
            await until(lambda: under_way(peer, "key-of-sleeper"))
            sleeper.running.send(signal.SIGSTOP)
            slept_from = server.sql("SELECT now()")[0][0]
            taken = under_way(peer, "key-of-sleeper")
            later = "SELECT DISTINCT route_id FROM verdicts WHERE observed_at > %s"
            await until(lambda: taken <= {route for (route,) in server.sql(later, slept_from)})
            sleeper.running.send(signal.SIGCONT)
            awake = len(peer.log)
            await until(lambda: [a for a in peer.log[awake:] if a.key == "key-of-sleeper" and a.answered])
            await until(lambda: sleeper.said("lease_lost"))
            await until(lambda: {a.route for a in peer.log[awake:]} >= set(ids))
            assert await sleeper.running.stop() == 0
            assert await other.running.stop() == 0
    others = "SELECT * FROM verdicts WHERE status NOT IN ('tools_supported', 'prober_overloaded')"
    assert server.sql(others) == []
    assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == []
    assert server.sql("SELECT count(*) FROM latest WHERE standing->>'outcome' <> 'proven'") == [(0,)]


def under_way(peer: Peer, key: str) -> set[str]:
    return {asked.route for asked in peer.log if asked.ended is None and asked.key == key}
