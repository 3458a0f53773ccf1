"""One process and very many cells: how late it asks them, what it weighs, and whether the pages keep up meanwhile.

    python -m tests.benchmarks.load --cells 10000 --interval 60 --minutes 3

The provider, plain and fast, runs in this process, PostgreSQL is the embedded one: all share the machine. Lateness is
what the service's own histogram counted after the first round, in which everything is asked for the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from pathlib import Path

import psutil
import uvloop

from tests.acceptance.processes import open_folder, until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Replica, Server, configure, postgresql, replicas, routes_to

LAG = "routeproof_schedule_lag_seconds"


async def lags(one: Replica) -> dict[float, float]:
    """How many were asked at most so late, by the bounds of the histogram."""
    found = await one.metrics()
    bucket = re.compile(rf'{LAG}_bucket{{.*le="([^"]+)"')
    return {float(match[1]): count for series, count in found.items() if (match := bucket.match(series))}


def quantile(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """The bound that so large a share stayed within."""
    counted = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    return next(bound for bound, count in counted.items() if count >= share * counted[float("inf")])


async def measure(server: Server, folder: Path, cells: int, interval: int, minutes: float) -> None:
    ids = [f"cell-{n}" for n in range(cells)]
    async with Peer(delay_s=0.2) as peer:
        config = configure(folder, routes_to(peer, ids), f"{interval}s", "20s")
        env = {"ROUTEPROOF_DATABASE_URL": server.address, "ROUTEPROOF_LOG_LEVEL": "warning"}
        with replicas(config, ["one"], env, folder) as (one,):
            began = time.monotonic()
            await one.ready()
            print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
            await until(lambda: len({asked.route for asked in peer.log}) == cells, within=interval + 120)
            process = psutil.Process(one.running.popen.pid)
            before, asked, cpu = await lags(one), len(peer.log), sum(process.cpu_times()[:2])
            began, pages = time.monotonic(), []
            while time.monotonic() < began + 60 * minutes:
                opened = time.monotonic()
                assert (await one.page("/")).status_code == 200
                pages.append(time.monotonic() - opened)
                await asyncio.sleep(5)
            took, after = time.monotonic() - began, await lags(one)
            used = (sum(process.cpu_times()[:2]) - cpu) / took
            stored = server.sql("SELECT count(*) FROM verdicts")[0][0]
            late = {share: quantile(before, after, share) for share in (0.5, 0.9, 0.99)}
            print(
                f"{(len(peer.log) - asked) / took:.0f} probes/s of {cells / interval:.0f} due; asked late by at most "
                f"{late[0.5]:g} s (half), {late[0.9]:g} s (nine in ten), {late[0.99]:g} s (99 of 100); "
                f"{process.memory_info().rss / 2**20:.0f} MiB; {used:.0%} of a core; overview {max(pages):.2f} s at worst, "
                f"{sorted(pages)[len(pages) // 2]:.2f} s in the middle; {stored} verdicts stored of {len(peer.log)} asked",
                flush=True,
            )
            print(one.running.err[-2000:])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=10_000)
    arguments.add_argument("--interval", type=int, default=60, help="seconds")
    arguments.add_argument("--minutes", type=float, default=3.0)
    given = arguments.parse_args()
    with postgresql() as server, open_folder() as folder:
        uvloop.run(measure(server.fresh(), folder, given.cells, given.interval, given.minutes))


if __name__ == "__main__":
    main()
