"""Twelve hours' worth of probes in fast time: 72 cells asked every second, or as often as the machine allows. About
eleven minutes, or as many seconds as are given. (A hundred routes asked every five minutes send 14,400 probes in twelve
hours.)

    python -m scripts.reliability_soak [SECONDS]

Half-way the database's days are shifted: every stored verdict is moved 31 days back, into partitions of that day, and
the service's own hourly housekeeping (every 20 s here) has to drop them. From then on a snapshot is held open.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.acceptance.processes import open_folder, until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Replica, Server, configure, postgresql, replicas, routes_to, shorter

CELLS = 72
SAMPLE_S = 5.0


@dataclass(frozen=True)
class Sample:
    at: float
    mib: float
    descriptors: int
    """Open files and sockets, those to the provider apart."""
    to_peer: int
    claim_ms: float
    probes: int


async def soak(server: Server, folder: Path, seconds: float) -> None:
    ids = [f"cell-{n}" for n in range(CELLS)]
    async with Peer() as peer:
        config = configure(folder, routes_to(peer, ids), "1s", "5s")
        env = {"ROUTEPROOF_DATABASE_URL": server.address, "ROUTEPROOF_LOG_LEVEL": "warning"}
        env |= shorter(folder, service__schedule__HOUSEKEEPING_S=20.0)
        with replicas(config, ["one"], env, folder) as (one,):
            await one.ready()
            await until(lambda: len({asked.route for asked in peer.log}) == CELLS, within=60)
            first = await _sampled(server, one, peer, seconds / 2)
            moved = _move_back(server, days=31)
            with server.connect() as holder:
                holder.autocommit = False
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM schedule")
                second = await _sampled(server, one, peer, seconds / 2)
                await until(lambda: _days(server) and min(_days(server)) > moved, within=60)
            errors = await one.metric("routeproof_database_errors_total")
            assert await one.running.stop(within=30) == 0
    _report("first half", first)
    _report("second half, a snapshot held", second)
    print(f"{len(peer.log)} probes; the day {moved} was dropped; database errors {errors:.0f}", flush=True)
    settled = first[len(first) // 4 :]
    assert statistics.mean(s.mib for s in second[-6:]) < statistics.mean(s.mib for s in settled[:6]) + 30
    assert max(s.descriptors for s in second[-6:]) <= max(s.descriptors for s in settled) + 10
    assert statistics.median(s.claim_ms for s in second) < 5 * statistics.median(s.claim_ms for s in settled) + 5


async def _sampled(server: Server, one: Replica, peer: Peer, seconds: float) -> list[Sample]:
    process, samples, until_reading = psutil.Process(one.running.popen.pid), [], time.monotonic() + seconds
    while time.monotonic() < until_reading:
        await asyncio.sleep(SAMPLE_S)
        sockets = [c for c in process.net_connections("tcp") if c.raddr and c.raddr.port == peer.port]
        claim_ms = await asyncio.to_thread(_claim_ms, server)
        probes, mib = len(peer.log), process.memory_info().rss / 2**20
        samples.append(Sample(time.monotonic(), mib, process.num_fds() - len(sockets), len(sockets), claim_ms, probes))
    return samples


def _claim_ms(server: Server) -> float:
    """What finding and locking the due cells takes now, as the plan's execution time says; the median of three."""
    query = (
        "EXPLAIN (ANALYZE, FORMAT JSON) SELECT s.cell_id FROM schedule s JOIN cells c ON c.id = s.cell_id "
        "WHERE c.active AND s.next_due_at <= statement_timestamp() + interval '1 hour' "
        "ORDER BY s.next_due_at FOR UPDATE OF s SKIP LOCKED"
    )
    with server.connect() as connection:
        plans = [connection.execute(query).fetchone() for _ in range(3)]
    return statistics.median(float(plan[0][0]["Execution Time"]) for plan in plans if plan)


def _move_back(server: Server, days: int) -> str:
    """Move every stored verdict into the past, where its partition is past its time; the day that was made."""
    with server.connect() as connection:
        row = connection.execute("SELECT (now() AT TIME ZONE 'UTC')::date - %s", (days,)).fetchone()
        assert row is not None
        day = row[0]
        name = f"{_schema(server)}.verdicts_{day:%Y%m%d}"
        connection.execute(
            f"CREATE TABLE {name} PARTITION OF verdicts FOR VALUES FROM ('{day} 00:00+00') TO ('{day} 23:59:59.999+00')"
        )
        connection.execute(
            "UPDATE verdicts SET observed_at = observed_at - make_interval(days => %s) "
            "WHERE observed_at > now() - interval '1 day'",
            (days,),
        )
    return f"{day:%Y%m%d}"


def _schema(server: Server) -> str:
    found = server.sql(
        "SELECT relnamespace::regnamespace::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'verdicts'::regclass LIMIT 1"
    )
    return str(found[0][0])


def _days(server: Server) -> list[str]:
    names = server.sql(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'verdicts'::regclass"
    )
    return [str(name).removeprefix("verdicts_") for (name,) in names]


def _report(name: str, samples: list[Sample]) -> None:
    mib, claims = [s.mib for s in samples], [s.claim_ms for s in samples]
    rate = (samples[-1].probes - samples[0].probes) / (samples[-1].at - samples[0].at)
    print(
        f"{name}: {rate:.0f} probes/s; memory {mib[0]:.0f} MiB at first, {mib[-1]:.0f} at last, {max(mib):.0f} at most; "
        f"descriptors {samples[0].descriptors} and {samples[-1].descriptors}, at most {max(s.descriptors for s in samples)}; "
        f"sockets to the provider at last {samples[-1].to_peer}; claims {statistics.median(claims):.1f} ms in the median, "
        f"{max(claims):.1f} at most"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    with postgresql() as server, open_folder() as folder:
        asyncio.run(soak(server.fresh(), folder, seconds))


if __name__ == "__main__":
    main()
