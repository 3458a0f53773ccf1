"""Processes whose clocks are wrong by an hour, and jump."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import (
    LASTING,
    Replica,
    Server,
    compare,
    configure,
    longest_gap,
    overlaps,
    probes,
    routes_to,
    shifted,
)

AHEAD, BEHIND = 3600, -3600
NOTHING_OF_AN_HOUR_S = 600
"""What a machine may be late by, and a clock's hour isn't."""


async def test_clocks_an_hour_apart_that_jump_by_two_change_nothing(server: Server, folder: Path) -> None:
    ids = [f"cell-{n}" for n in range(20)]
    async with Peer(delay_s=0.2) as peer:
        config = configure(folder, routes_to(peer, ids), "2s", defaults=LASTING)
        fleet = [
            Replica(name, config, environment(server, folder, name, by)) for name, by in (("a", AHEAD), ("b", BEHIND))
        ]
        try:
            for one in fleet:
                one.start()
            for one in fleet:
                await one.ready()
            await until(lambda: server.sql("SELECT count(DISTINCT cell_id) FROM verdicts") == [(20,)])
            await until(lambda: off_by(fleet, 1, -1))
            await shows_now(fleet, cells=20)
            for one, by in zip(fleet, (BEHIND, AHEAD), strict=True):
                set_clock(folder, one.name, by)
            jumped = len(peer.log)
            await until(lambda: off_by(fleet, -1, 1))
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
    assert longest_gap(spans, ids, now) < NOTHING_OF_AN_HOUR_S
    assert compare(server, peer.log).exact
    assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == []


def environment(server: Server, folder: Path, name: str, seconds: int) -> dict[str, str]:
    set_clock(folder, name, seconds)
    data = {"ROUTEPROOF_DATABASE_URL": server.address, "ROUTEPROOF_DATA_DIR": str(folder / name)}
    return data | shifted(folder, folder / f"{name}.clock")


def set_clock(folder: Path, name: str, seconds: int) -> None:
    """At once, so that nobody reads half a number."""
    beside = folder / f"{name}.next"
    beside.write_text(str(seconds))
    beside.replace(folder / f"{name}.clock")


async def off_by(fleet: list[Replica], *hours: int) -> bool:
    """Whether clocks are off by so much, by what they say of the last sign of life."""
    name = "routeproof_job_last_success_timestamp_seconds"
    told = [await one.metric(name, task="sign_of_life") or 0.0 for one in fleet]
    return [round((at - time.time()) / 3600) for at in told] == list(hours)


async def shows_now(fleet: list[Replica], cells: int) -> None:
    """Every process shows the database's time, and all cells as fresh."""
    for one in fleet:
        assert await one.metric("routeproof_contract_fresh") == cells
        shown = re.search(r'as of <time datetime="([^"]+)"', (await one.page()).text)
        assert shown is not None
        assert abs((datetime.fromisoformat(shown[1]) - datetime.now(UTC)).total_seconds()) < NOTHING_OF_AN_HOUR_S
