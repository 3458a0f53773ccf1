"""How long a scrape of 10,000 cells takes, and how long the event loop stands still meanwhile.

    python -m tests.benchmarks.scrape --cells 10000 --scrapes 20

The application runs on uvloop in a process of its own, over a snapshot in memory, and is scraped as Prometheus does it:
on loopback, with gzip. Each scrape meets another snapshot, in which part of the cells have a newer verdict. A task on its
loop wakes every millisecond; the longest time between two wakes, less that millisecond, is the stall. The same is
measured while nobody scrapes: what the machine itself does.

Each is measured by the clock on the wall and by the process's own CPU, which stands still while others have the
machine. The bounds are held against the latter: a busy machine passes no judgment on the code. The ratio is to making as
many lines of text in a bare loop. Ends with 1 when a bound is passed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import http.client
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection

import uvicorn
import uvloop

from service.model import Outcome, Snapshot, Status
from tests.samples import MINUTE, NOW, Board, View, row, snapshot, standing
from tests.web import READ, web_app

SCRAPE_MS = 300.0
STALL_MS = 50.0


def many(cells: int, scrapes: int = 0) -> Snapshot:
    """Routes of two contracts each; every tenth cell is broken and every thirtieth has expired. With every scrape
    a quarter of the cells have one verdict more."""

    def asked(number: int) -> int:
        return (number + scrapes) // 4

    def state(number: int) -> Status:
        return Status.TOOLS_SUPPORTED if number % 10 else Status.STREAM_EARLY_EOF

    def ago(number: int) -> timedelta:
        return (40 if number % 30 == 7 else number % 15) * MINUTE + timedelta(microseconds=number - asked(number))

    return snapshot(
        *(
            row(
                f"route-{number // 2:05d}",
                provider=f"provider-{number // 2 % 40}",
                contract=("native_tools", "agent_turn")[number % 2],
                state=standing(state(number), ago(number)),
                tags=("prod", "eu"),
                counts={outcome: asked(number) % (7 + index) for index, outcome in enumerate(Outcome)},
                last_proven_at=NOW - ago(number),
                next_due_at=NOW + MINUTE,
            )
            for number in range(cells)
        )
    )


def serve(pipe: Connection, cells: int) -> None:
    """Answers each message with what was since the one before, in seconds: the longest stall, by the wall's clock and in
    CPU, and the CPU used. The snapshot is another one then."""
    worst, worst_cpu = 0.0, 0.0

    async def tick() -> None:
        nonlocal worst, worst_cpu
        before, cpu_before = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now, cpu_now = time.perf_counter(), time.process_time()
            worst, before = max(worst, now - before - 0.001), now
            worst_cpu, cpu_before = max(worst_cpu, cpu_now - cpu_before), cpu_now

    async def main() -> None:
        nonlocal worst, worst_cpu
        gc.freeze()  # as the service does when it is up
        listener = socket.create_server(("127.0.0.1", 0))
        board = Board(View(many(cells)))
        app = web_app(board=board)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        tasks = [asyncio.create_task(server.serve(sockets=[listener])), asyncio.create_task(tick())]
        pipe.send(listener.getsockname()[1])
        loop = asyncio.get_running_loop()
        cpu = time.process_time()
        scrapes = 0
        while await loop.run_in_executor(None, pipe.recv):
            since = worst, worst_cpu, time.process_time() - cpu
            board.shown = View(many(cells, scrapes := scrapes + 1))
            await asyncio.sleep(0.01)  # a tick that this held up isn't of what is measured next
            worst, worst_cpu, cpu = 0.0, 0.0, time.process_time()
            pipe.send(since)
        tasks[1].cancel()
        server.should_exit = True
        await tasks[0]

    uvloop.run(main())


def scrape(port: int) -> tuple[float, bytes]:
    """Seconds, and what was said."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics", headers={"accept-encoding": "gzip", "authorization": f"Bearer {READ}"})
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - began
    assert (answer.status, answer.getheader("content-encoding")) == (200, "gzip")
    connection.close()
    return took, body


def bare(lines: int) -> float:
    """CPU seconds for as many lines of that length, made and joined in a loop that looks at nothing."""
    labels = 'route="route-00000",provider="provider-00",contract="native_tools",location="default"'
    began = time.process_time()
    made = [f"routeproof_contract_verdicts_total{{{labels}}} {number}" for number in range(lines)]
    "\n".join(made).encode()
    return time.process_time() - began


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=10_000)
    arguments.add_argument("--scrapes", type=int, default=20)
    given = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    peer = context.Process(target=serve, args=(theirs, given.cells), daemon=True)
    peer.start()
    port = ours.recv()

    def since() -> list[float]:
        ours.send(True)
        return [seconds * 1000 for seconds in ours.recv()]

    _, body = scrape(port)  # the first one makes the texts that the others share
    text = gzip.decompress(body)
    lines = text.count(b"\n")
    print(f"{given.cells} cells: {lines} lines, {len(text) / 1e6:.1f} MB, {len(body) / 1e6:.1f} MB on the wire")
    walls, ratios, scraped, rested = [], [], [], []
    since()
    for _ in range(given.scrapes):
        wall, _ = scrape(port)
        walls.append(wall * 1000)
        scraped.append(since())
        ratios.append(scraped[-1][2] / (bare(lines) * 1000))
        since()
        time.sleep(wall)
        rested.append(since())
    ours.send(False)
    peer.join(10)
    stalls, stalls_cpu, cpus = zip(*scraped, strict=True)
    at_rest, at_rest_cpu, _ = zip(*rested, strict=True)
    say("scrape", walls)
    say("scrape, CPU", cpus)
    say("stall", stalls)
    say("stall, CPU", stalls_cpu)
    say("stall at rest", at_rest)
    say("stall at rest, CPU", at_rest_cpu)
    print(f"{statistics.median(ratios):.1f} times the CPU of bare lines")
    passed = [
        *([f"a scrape takes over {SCRAPE_MS:.0f} ms"] if statistics.median(cpus) > SCRAPE_MS else []),
        *([f"the event loop stands still for over {STALL_MS:.0f} ms"] if max(stalls_cpu) > STALL_MS else []),
    ]
    print("; ".join(passed) or "within both bounds")
    return 1 if passed else 0


def say(what: str, ms: Sequence[float]) -> None:
    print(f"{what:20} {statistics.median(ms):6.1f} ms in the median, {min(ms):.1f} to {max(ms):.1f}")


if __name__ == "__main__":
    sys.exit(main())
