"""A route that breaks for good: how long it takes until the metric that alerts rest on says so."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.reliability.breaking import confirmed_after
from tests.acceptance.reliability.stage import Server

INTERVAL = 3


async def test_a_hard_failure_is_confirmed_by_the_second_asking(server: Server, folder: Path) -> None:
    """These intervals are shorter than the wait of a quick re-probe, so that the next point of the grid confirms."""
    found = await confirmed_after(server, folder, INTERVAL)
    print(f"confirmed after {found.waited_s:.1f} s")  # how fast it is, the script `reliability_breaking` asserts
    assert found.failed == 2
