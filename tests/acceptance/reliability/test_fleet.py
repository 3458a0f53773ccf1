"""Three replicas on one database, one killed with -9 over and over: what the provider saw of it."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.reliability.fleet import NAMES, Size, storm
from tests.acceptance.reliability.stage import Server

SIZE = Size(cells=160, interval=4, deadline=2, margin=1, steady_s=8, storm_s=5, kill_every_s=3)


async def test_replicas_share_the_cells_and_none_is_asked_twice_or_forgotten_when_one_is_killed(
    server: Server, folder: Path
) -> None:
    found = await storm(server, folder, SIZE)
    print(found)  # for those who look at a failure
    assert found.overlapping == 0
    assert found.latest_s <= SIZE.lease_s + SIZE.interval
    assert found.taken_over > 0
    assert found.most_at_once <= SIZE.max_concurrency
    assert found.most_in_a_minute <= SIZE.max_requests_per_minute
    # Chance alone moves the shares of so few probes by a tenth or more: the long form asks for a quarter at most.
    assert all(0.6 <= found.shares[name] <= 1.4 for name in NAMES), found.shares
