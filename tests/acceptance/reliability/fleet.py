"""Replicas that share many cells while one after the other is killed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import (
    Server,
    configure,
    longest_gap,
    most_at_once,
    most_within,
    overlaps,
    probes,
    replicas,
    routes_to,
    shares,
    shorter,
)

NAMES = ("one", "two", "three")


@dataclass(frozen=True)
class Size:
    """How many cells are asked how often, with which deadline (seconds); how long three replicas run undisturbed, and
    for how long one is killed every so often; and by how much a lease is longer than three deadlines."""

    cells: int
    interval: int
    steady_s: float
    storm_s: float
    kill_every_s: float
    deadline: int
    margin: float = 30.0
    limited: int = 20
    max_concurrency: int = 4
    max_requests_per_minute: int = 60

    @property
    def lease_s(self) -> float:
        return 3 * self.deadline + self.margin


@dataclass(frozen=True)
class Found:
    probes: int
    kills: int
    overlapping: int
    latest_s: float
    """How long after its due time a cell was asked at worst; due is at most 1.2 intervals after the last asking."""
    shares: dict[str, float]
    """Of the undisturbed time, as parts of an even share."""
    taken_over: float
    most_at_once: int
    most_in_a_minute: int

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {share:.2f}" for name, share in sorted(self.shares.items()))
        return (
            f"{self.probes} probes, {self.kills} kills, {self.overlapping} overlapping; a cell was asked "
            f"{self.latest_s:.1f} s after its due time at worst; shares {parts}; {self.taken_over:.0f} leases taken over; "
            f"limited provider: at most {self.most_at_once} at once, {self.most_in_a_minute} in a minute"
        )


def busy(peer: Peer, key: str) -> bool:
    """Whether a request with this key waits for its answer."""
    return any(asked.key == key and asked.ended is None for asked in peer.log[-1000:])


async def storm(server: Server, folder: Path, size: Size) -> Found:
    ids = [f"cell-{n}" for n in range(size.cells)]
    few = [f"few-{n}" for n in range(size.limited)]
    limits = {"max_concurrency": size.max_concurrency, "max_requests_per_minute": size.max_requests_per_minute}
    async with Peer(delay_s=0.3) as peer, Peer(delay_s=0.3, host="127.0.0.2") as limited:
        routes = routes_to(peer, ids) + routes_to(limited, few, provider="limited")
        config = configure(folder, routes, f"{size.interval}s", f"{size.deadline}s", providers={"limited": limits})
        env = {"ROUTEPROOF_DATABASE_URL": server.address, "ROUTEPROOF_LOG_LEVEL": "warning"}
        env |= shorter(folder, service__store__claims__LEASE_MARGIN_S=size.margin)
        with replicas(config, NAMES, env, folder) as fleet:
            for one in fleet:
                await one.ready()
            await until(lambda: {asked.route for asked in peer.log} == set(ids), within=60 + size.interval)
            steady_from = time.monotonic()
            await asyncio.sleep(size.steady_s)
            storm_from, kills = time.monotonic(), 0
            for victim in cycle(fleet):
                if time.monotonic() > storm_from + size.storm_s:
                    break
                await until(lambda key=f"key-of-{victim.name}": busy(peer, key))  # else there is nothing to take over
                victim.kill()
                kills += 1
                victim.start()
                await asyncio.sleep(size.kill_every_s)
                await victim.ready()  # a cell whose heir is killed as well waits for two leases
            await asyncio.sleep(size.lease_s + 2)
            for one in fleet:
                await one.ready()
            taken_over = sum([await one.metric("routeproof_leases_expired_total") or 0.0 for one in fleet])
            now = time.monotonic()
        spans, of_limited = probes(peer.log, now), probes(limited.log, now)
        steady = shares(span for span in spans if steady_from <= span.began < storm_from)
        return Found(
            probes=len(spans) + len(of_limited),
            kills=kills,
            overlapping=len(overlaps(spans)) + len(overlaps(of_limited)),
            latest_s=longest_gap(spans, ids, now) - 1.2 * size.interval,
            shares={name: steady[f"key-of-{name}"] / (sum(steady.values()) / len(NAMES)) for name in NAMES},
            taken_over=taken_over,
            most_at_once=most_at_once(of_limited),
            most_in_a_minute=most_within(limited.log, 60),
        )
