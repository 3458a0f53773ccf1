"""Three replicas, 2,000 cells, one of the replicas killed with -9 every four seconds for two minutes; about six minutes.

python -m scripts.reliability_fleet
"""

from __future__ import annotations

import asyncio

from tests.acceptance.processes import open_folder
from tests.acceptance.reliability.fleet import NAMES, Size, storm
from tests.acceptance.reliability.stage import postgresql

SIZE = Size(cells=2000, interval=60, deadline=5, steady_s=60, storm_s=120, kill_every_s=4)


def main() -> None:
    with postgresql() as server, open_folder() as folder:
        found = asyncio.run(storm(server.fresh(), folder, SIZE))
    print(SIZE, found, sep="\n", flush=True)
    assert found.overlapping == 0
    assert found.latest_s <= SIZE.lease_s + SIZE.interval
    assert found.most_at_once <= SIZE.max_concurrency
    assert found.most_in_a_minute <= SIZE.max_requests_per_minute
    assert all(0.75 <= found.shares[name] <= 1.25 for name in NAMES)


if __name__ == "__main__":
    main()
