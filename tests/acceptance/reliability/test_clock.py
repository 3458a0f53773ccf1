"""Processes whose clocks are wrong by an hour, and jump."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import (
    Replica,
    Server,
    compare,
    configure,
    longest_gap,
    overlaps,
    probes,
    routes_to,
)

FAKETIME = next(iter(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1")), None)
AHEAD, BEHIND = "+1h", "-1h"


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime isn't installed")
async def test_clocks_an_hour_apart_that_jump_by_two_change_nothing(server: Server, folder: Path) -> None:
    ids = [f"cell-{n}" for n in range(20)]
    async with Peer(delay_s=0.2) as peer:
        config = configure(folder, routes_to(peer, ids), "2s", "2s")
        fleet = [Replica(name, config, shifted(server, folder, name, by)) for name, by in (("a", AHEAD), ("b", BEHIND))]
        try:
            for one in fleet:
                one.start()
            for one in fleet:
                await one.ready()
            await until(lambda: server.sql("SELECT count(DISTINCT cell_id) FROM verdicts") == [(20,)], within=30)
            assert clock_of(fleet[0]) - clock_of(fleet[1]) == pytest.approx(7200, abs=60), "the clocks aren't shifted"
            await shows_now(fleet, cells=20)
            for one, by in zip(fleet, (BEHIND, AHEAD), strict=True):
                set_clock(folder, one.name, by)
            jumped = len(peer.log)
            await asyncio.sleep(5)
            await until(lambda: {a.key for a in peer.log[jumped:]} == {"key-of-a", "key-of-b"})
            await until(lambda: {a.route for a in peer.log[jumped:]} == set(ids))
            await shows_now(fleet, cells=20)
            now = time.monotonic()
            for one in fleet:
                assert await one.running.stop() == 0
        finally:
            for one in fleet:
                one.kill()
    spans = probes(peer.log, now)
    assert overlaps(spans) == []
    assert longest_gap(spans, ids, now) < 6
    assert compare(server, peer.log).exact
    assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == []


def shifted(server: Server, folder: Path, name: str, by: str) -> dict[str, str]:
    set_clock(folder, name, by)
    return {
        "ROUTEPROOF_DATABASE_URL": server.address,
        "ROUTEPROOF_DATA_DIR": str(folder / name),
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(folder / f"{name}.clock"),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def set_clock(folder: Path, name: str, by: str) -> None:
    (folder / f"{name}.clock").write_text(by)


def clock_of(one: Replica) -> float:
    """What a process says in its last log line that the time is, in seconds of the epoch."""
    said = re.findall(r'"timestamp": "([^"]+)"', one.running.err)
    return datetime.fromisoformat(said[-1]).timestamp()


async def shows_now(fleet: list[Replica], cells: int) -> None:
    """Every process shows the database's time, and all cells as fresh."""
    for one in fleet:
        assert await one.metric("routeproof_contract_fresh") == cells
        shown = re.search(r'as of <time datetime="([^"]+)"', (await one.page()).text)
        assert shown is not None
        assert abs((datetime.fromisoformat(shown[1]) - datetime.now(UTC)).total_seconds()) < 5
