"""How long pages take: python -m tests.benchmarks.pages [--cells 10000] [--rounds 9]

The overview is asked for as a browser does, over the whole application, with a new snapshot each time (`new`) and with
one whose states are derived already (`known`). A busy machine makes all but the CPU time worse: run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import httpx
import uvloop

from service.metrics import ProcessMetrics
from service.model import CellRow, Status
from service.web.access import Access
from service.web.app import create_app
from service.web.last_day import Day
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
    cells = fleet(number)
    names = {cell.route.id for cell in cells}
    day = Day(dict.fromkeys(names, (281, 287)), dict.fromkeys(names, tuple(0.2 + n / 50 for n in range(24))))
    board = Board(View(snapshot(*cells)))
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
        for path in ("/", "/?q=model-0001", "/?provider=provider-07&size=500"):
            results = {}
            for kind in ("new", "known"):
                found = []
                for _ in range(rounds):
                    if kind == "new":
                        board.shown = View(snapshot(*cells))
                    found.append(await timed(lambda path=path: client.get(path)))  # type: ignore[misc]
                results[kind] = found
            said = ", ".join(
                f"{kind} {median(one.took for one in found):.0f} ms (CPU {median(one.cpu for one in found):.0f}, "
                f"stall {median(one.stall for one in found):.0f}, at worst {max(one.stall for one in found):.0f})"
                for kind, found in results.items()
            )
            print(f"overview of {number} cells, {path}: {said}; {results['new'][0].size // 1024} KiB of HTML")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=9)
    given = arguments.parse_args()
    uvloop.run(overview(given.cells, given.rounds))


if __name__ == "__main__":
    main()
