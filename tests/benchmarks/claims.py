"""How long a claim takes, with and without limits, and with a snapshot held open that keeps dead rows from going.

    python -m tests.benchmarks.claims --cells 10000 --limits 50 --rounds 60

All cells are due, which is the worst case, or one in sixty, as in a second of a 60 s interval. A round claims 256 cells
and saves a verdict for each. Times are medians in ms of the first and the last tenth of the rounds; the ratios are
those within one run. `TEST_DATABASE_URL` names a server to use, as for the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.database import open_database
from service.model import Limit
from tests import postgres
from tests.integration.test_store import HASH, HERE, World, cell, verdict

SLOTS = 256


async def all_due(world: World, one_in: int) -> None:
    await world.sql(
        "UPDATE schedule SET next_due_at = now() + CASE WHEN cell_id % :n = 0 THEN -1 ELSE 1 END * interval '1 minute' "
        "WHERE lease_id IS NULL",
        n=one_in,
    )


async def hold_snapshot(engine: AsyncEngine, stack: AsyncExitStack) -> None:
    reader = await stack.enter_async_context(engine.connect())
    reader = await reader.execution_options(isolation_level="REPEATABLE READ")
    await reader.execute(text("SET idle_in_transaction_session_timeout = 0"))
    await reader.execute(text("SELECT count(*) FROM schedule"))


async def measure(url: str, *, cells: int, limits: int, rounds: int, one_in: int, held: bool) -> tuple[float, float]:
    """The medians of the first and the last tenth of the rounds."""
    async with open_database(url, Path()) as database, AsyncExitStack() as stack:
        world = World(database.engine)
        providers = max(limits, 50)
        wanted = [
            cell(f"r{n}", provider=f"p{n % providers}", host=f"h{n % providers}", max_requests=5) for n in range(cells)
        ]
        wide = [Limit("provider", f"p{n}", 1_000, 100_000) for n in range(limits)]
        await world.sync(*wanted, limits=wide)
        await world.sql("ANALYZE")
        if held:
            await hold_snapshot(database.engine, stack)
        claiming, waking = [], []
        for _ in range(rounds):
            await all_due(world, one_in)
            begun = time.perf_counter()
            claims = await world.store.claim(HERE, HASH, SLOTS)
            claiming.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            await world.store.seconds_to_next_due(HERE, HASH)
            waking.append((time.perf_counter() - begun) * 1000)
            assert claims
            await world.store.save(
                [(claim, verdict(claim, observed_at=claim.claimed_at + timedelta(seconds=1))) for claim in claims]
            )
        tenth = max(3, rounds // 10)
        first, last = median(claiming[:tenth]), median(claiming[-tenth:])
        dead = await world.value(
            "SELECT pg_table_size('schedule') / 1024 || ' KiB, debits ' || pg_table_size('debits') / 1024 || ' KiB'"
        )
        print(
            f"{limits:3} limits, one in {one_in:2} due, snapshot {'held' if held else 'free'}: claim {first:6.1f} → {last:6.1f} ms "
            f"(× {last / first:.2f}), next due {median(waking):5.1f} ms; schedule {dead}"
        )
        return first, last


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=10_000)
    arguments.add_argument("--limits", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=60)
    given = arguments.parse_args()
    with postgres.template_on_server(os.environ) as template:
        lasts: dict[tuple[int, int, bool], float] = {}
        for one_in in (1, 60):
            for limits in (0, given.limits):
                for held in (False, True):
                    with postgres.clone(template) as url:
                        _, last = asyncio.run(
                            measure(
                                url, cells=given.cells, limits=limits, rounds=given.rounds, one_in=one_in, held=held
                            )
                        )
                    lasts[one_in, limits, held] = last
        for one_in in (1, 60):
            limited = lasts[one_in, given.limits, False] / lasts[one_in, 0, False]
            held_up = lasts[one_in, given.limits, True] / lasts[one_in, given.limits, False]
            print(f"one in {one_in:2} due: limits × {limited:.2f}, a held snapshot × {held_up:.2f}")


if __name__ == "__main__":
    main()
