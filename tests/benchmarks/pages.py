"""How long pages take: python -m tests.benchmarks.pages [--cells 10000] [--verdicts 1000000] [--rounds 9]

The overview is asked for as a browser does, over the whole application, with a new snapshot and new sums of the last day
each time (`new`) and with those that were shown before (`known`). The page of a route is asked for over a database that
holds so many raw verdicts over thirty days, of as many routes as that takes at a minute's interval, and 400 days of sums;
they lie in it in the order of time, as they come. `--plans` prints how the database finds them. Ten million verdicts take
20 GB for a while. A busy machine makes all but the CPU time worse: run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import uvloop
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.database import open_database
from service.metrics import ProcessMetrics
from service.model import Cell, CellRow, RouteRow, Status
from service.store import Board as StoreBoard
from service.store import Store
from service.web.access import Access
from service.web.app import create_app
from service.web.last_day import Day
from service.web.views.past import WINDOWS
from tests import postgres
from tests.integration.test_store import verdict
from tests.samples import MINUTE, Board, History, View, row, snapshot, standing

CONTRACTS = ("native_tools", "agent_turn", "undeclared_tool_history", "displaced_tool_results")
STATES = (
    *[standing()] * 95,
    standing(Status.STREAM_EARLY_EOF, detail="x" * 300),
    standing(Status.UNREACHABLE),
    standing(Status.ENDPOINT_AUTH_FAILED),
    standing(ago=20 * MINUTE),
    standing(ago=45 * MINUTE),
)


def fleet(number: int) -> list[CellRow]:
    """So many cells, four a route, of thirty providers."""
    chance = random.Random(1)
    cells = []
    for place in range(number):
        at = place // len(CONTRACTS)
        provider, contract = f"provider-{at % 30:02}", CONTRACTS[place % len(CONTRACTS)]
        name = f"{provider}/model-{at:05}"
        required = contract in CONTRACTS[:2]
        state = chance.choice(STATES)
        cell = row(
            name.replace("/", "-"), provider=provider, name=name, contract=contract, required=required, state=state
        )
        cells.append(replace(cell, cell_id=place))
    return cells


def last_day(names: Iterable[str], turn: int) -> Day:
    """Each route has its own first tokens, and others at each turn."""
    lines = {name: tuple((turn + at + n) % 997 / 500 for n in range(24)) for at, name in enumerate(names)}
    return Day(dict.fromkeys(names, (281, 287)), lines)


class Sample(NamedTuple):
    """Milliseconds of one answer: by the clock, of CPU, and of the event loop's worst delay meanwhile."""

    took: float
    cpu: float
    stall: float
    size: int


async def worst_delay(late: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - begun - 0.001)


async def timed(ask: Callable[[], Awaitable[httpx.Response]]) -> Sample:
    late: list[float] = []
    beat = asyncio.create_task(worst_delay(late))
    await asyncio.sleep(0)
    begun, used = time.perf_counter(), time.process_time()
    answer = await ask()
    took, cpu = time.perf_counter() - begun, time.process_time() - used
    await asyncio.sleep(0.005)
    beat.cancel()
    assert answer.status_code == 200, answer
    return Sample(took * 1000, cpu * 1000, max(late) * 1000, len(answer.content))


async def overview(number: int, rounds: int) -> None:
    gc.freeze()  # as the service does when it is up
    names = {cell.route.id for cell in fleet(number)}
    board, day = Board(View(snapshot())), Day()
    app = create_app(
        board,
        History(),
        ProcessMetrics("here", "0"),
        access=lambda: Access(external_url="http://127.0.0.1"),
        because={},
        faults=list,
        last_day=lambda: day,
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        for path in ("/", "/?size=500", "/?q=model-0001", "/?provider=provider-07&size=500"):
            results = {}
            for kind in ("new", "known"):
                found = []
                for turn in range(rounds):
                    if kind == "new":
                        board.shown, day = View(snapshot(*fleet(number))), last_day(names, turn * len(names))
                    found.append(await timed(lambda path=path: client.get(path)))  # type: ignore[misc]
                results[kind] = found
            said = ", ".join(
                f"{kind} {median(one.took for one in found):.0f} ms (CPU {median(one.cpu for one in found):.0f}, "
                f"stall {median(one.stall for one in found):.0f}, at worst {max(one.stall for one in found):.0f})"
                for kind, found in results.items()
            )
            print(f"overview of {number} cells, {path}: {said}; {results['new'][0].size // 1024} KiB of HTML")


DAYS_OF_VERDICTS, DAYS_OF_SUMS = 30, 400
VERDICTS_OF_A_DAY = """
    INSERT INTO verdicts (id, cell_id, route_id, contract, location, status, outcome, rule_id, quirks, served_model,
                          detail, requests, started_at, observed_at, duration_s, time_to_first_token_s, tokens_in,
                          tokens_out, rungs, facts, fingerprint, ruleset)
    SELECT gen_random_uuid(), c.id, c.route_id, c.contract, c.location, k.status, k.outcome, 'rule', '{done_missing}',
           'model-1', 'a detail of the usual length, which a provider gives', 1, at, at, 1.5, 0.3 + (n % 7) / 5.0, 40, 12,
           jsonb_build_array(jsonb_build_object('rung', 'forced', 'shape', 'tools, choice forced', 'ended', 'complete',
             'read', 'call', 'status', 200, 'detail', '', 'duration_s', 1.4)),
           jsonb_build_object('exchanges', jsonb_build_array(jsonb_build_object('ask', repeat('fact ', 200)))), 'f1', 7
    FROM (
      SELECT c.*, at, (extract(epoch FROM at) / 60)::int AS n
      FROM cells c CROSS JOIN generate_series(CAST(:day AS timestamptz), :day + interval '86399 s', '1 minute') at
      WHERE at < now() ORDER BY at, c.id
    ) c
    CROSS JOIN LATERAL (SELECT CASE WHEN n % 50 = 0 THEN 'timeout' ELSE 'tools_supported' END AS status,
                               CASE WHEN n % 50 = 0 THEN 'unavailable' ELSE 'proven' END AS outcome) k
"""
SUMS = """
    INSERT INTO hourly (cell_id, hour, proven, violated, blocked, unavailable, unproven, statuses, requests, tokens_in,
                        tokens_out, first_token, duration)
    SELECT c.id, hour, 58, 0, 0, 2, 0, '{"tools_supported": 58}', 60, 2400, 720,
           ARRAY[0, 20, 30, 10, 0, 0, 0, 0, 0, 0, 0, 0], ARRAY[0, 0, 0, 30, 30, 0, 0, 0, 0, 0, 0, 0]
    FROM cells c CROSS JOIN hours ORDER BY hour, c.id
"""
HOURS = """
    INSERT INTO hours (hour, rolled_at)
    SELECT date_trunc('hour', now()) - n * interval '1 hour', now() FROM generate_series(1, :days * 24) n
"""
CHANGES = """
    INSERT INTO transitions (cell_id, at, kind, from_status, to_status, to_verdict, changed)
    SELECT c.id, now() - n * interval '1 hour', 'recovery', 'timeout', 'tools_supported', gen_random_uuid(), '{}'
    FROM cells c CROSS JOIN generate_series(1, 2000) n ORDER BY n DESC, c.id
"""
LOCATIONS = ("eu", "us")
BENCHED = tuple(
    Cell("alpha", contract, location, contract in CONTRACTS[:2], "f1", MINUTE, 3 * MINUTE, 6 * MINUTE, MINUTE)
    for contract in (*CONTRACTS, "missing_tool_results")
    for location in LOCATIONS
)


async def fill(store: Store, engine: AsyncEngine, number: int) -> None:
    """Routes in two places, with five contracts, and their past; each cell of the first one has just broken."""
    day = timedelta(days=1)
    others = round(number / (len(BENCHED) * DAYS_OF_VERDICTS * day / MINUTE)) - 1
    names = ["alpha", *(f"other-{place}" for place in range(others))]
    shown = [RouteRow(n, f"acme/{n}", "acme", "openai-chat", "model-1", "https://api.example/v1", ()) for n in names]
    for location in LOCATIONS:
        wanted = [replace(c, route_id=n) for n in names for c in BENCHED if c.location == location]
        await store.sync(location, "0123456789abcdef", shown, wanted)
    await store.ensure_partitions(days_back=DAYS_OF_VERDICTS + 1)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for ago in range(DAYS_OF_VERDICTS, -1, -1):
        await run(engine, VERDICTS_OF_A_DAY, day=today - ago * day)
    await run(engine, HOURS, days=DAYS_OF_SUMS)
    await run(engine, SUMS)
    await run(engine, CHANGES)
    for location in LOCATIONS:
        for claim in await store.claim(location, "0123456789abcdef", len(names) * len(BENCHED)):
            if claim.route_id != "alpha":
                continue
            course = (Status.TOOLS_SUPPORTED,) * 3 + (Status.TIMEOUT,) * 3
            made = [verdict(claim, status, id=uuid4()) for status in course]
            times = [claim.claimed_at + n * timedelta(milliseconds=1) for n in range(len(made))]
            await store.save([(claim, replace(v, observed_at=at)) for v, at in zip(made, times, strict=True)])
    begun = time.perf_counter()
    await store.roll_up()
    print(f"{len(names)} routes; sums brought up to date in {time.perf_counter() - begun:.1f} s", flush=True)
    async with engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))


async def run(engine: AsyncEngine, statement: str, **values: Any) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("SET LOCAL statement_timeout = 0"))
        await connection.execute(text(statement), values)


async def route_page(url: str, number: int, rounds: int, plans: bool) -> None:
    async with open_database(url, Path()) as database:
        store, statements = Store(database.engine), Statements(database.engine)
        await fill(store, database.engine, number)
        board = StoreBoard(store)
        app = create_app(
            board,
            store,
            ProcessMetrics("eu", "0"),
            access=lambda: Access(external_url="http://127.0.0.1"),
            because={},
            faults=list,
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for window in WINDOWS:
                path = f"/routes/alpha?window={window}"
                await client.get(path)
                asked, found = [], []
                for _ in range(rounds):
                    statements.seconds = 0.0
                    found.append(await timed(lambda path=path: client.get(path)))  # type: ignore[misc]
                    asked.append(statements.seconds * 1000)
                print(
                    f"route page over {number} verdicts, {window}: queries {median(asked):.1f} ms ({min(asked):.1f} … "
                    f"{max(asked):.1f}), in all {median(one.took for one in found):.0f} ms (CPU "
                    f"{median(one.cpu for one in found):.0f}, stall at worst {max(one.stall for one in found):.0f}); "
                    f"{found[0].size // 1024} KiB of HTML"
                )
        await board.close()
        if plans:
            await statements.explain()
        statements.close()


class Statements:
    """Listens to what is asked of a database: how long all of it took, and each of the reading statements once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.seconds = 0.0
        self._engine = engine
        self._seen: dict[str, object] = {}
        event.listen(engine.sync_engine, "before_cursor_execute", self._before)
        event.listen(engine.sync_engine, "after_cursor_execute", self._after)

    def _before(self, connection: Any, cursor: Any, statement: str, values: Any, *_: object) -> None:
        self._begun = time.perf_counter()
        if any(table in statement for table in ("verdicts", "hourly", "transitions")) and "SELECT" in statement[:20]:
            self._seen[statement] = values

    def _after(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun

    async def explain(self) -> None:
        async with self._engine.connect() as connection:
            for statement, values in list(self._seen.items()):
                found = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", values)
                print("", " ".join(statement.split())[:150], *(row[0] for row in found), sep="\n")

    def close(self) -> None:
        event.remove(self._engine.sync_engine, "before_cursor_execute", self._before)
        event.remove(self._engine.sync_engine, "after_cursor_execute", self._after)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=10_000)
    arguments.add_argument("--verdicts", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--plans", action="store_true")
    given = arguments.parse_args()
    if given.cells:
        uvloop.run(overview(given.cells, given.rounds))
    if given.verdicts:
        with postgres.template_on_server({"TEST_DATABASE": "embedded", **os.environ}) as url:
            asyncio.run(route_page(url, given.verdicts, given.rounds, given.plans))


if __name__ == "__main__":
    main()
