"""PostgreSQL stopped under load and started again: nothing is lost, nothing is told twice, nothing looks better than
it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.reliability.outage import Size, Way, direct, hang, outage
from tests.acceptance.reliability.stage import Server, pgbouncer, shorter

SIZE = Size(cells=20, interval=2, away_s=6)
NO_PGBOUNCER = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer isn't installed")


def soon_taken_over(folder: Path) -> dict[str, str]:
    """Variables under which cells that a killed process left claimed are asked again after 10 s."""
    return shorter(folder, service__store__claims__LEASE_MARGIN_S=-20)


@pytest.mark.parametrize(
    ("way", "kill"),
    [
        pytest.param(direct, False, id="running on"),
        pytest.param(direct, True, id="killed meanwhile"),
        pytest.param(pgbouncer, False, id="through pgbouncer", marks=NO_PGBOUNCER),
    ],
)
async def test_every_finished_verdict_is_there_once_in_its_place_in_time(
    server: Server, folder: Path, way: Way, kill: bool
) -> None:
    found = await outage(server, folder, SIZE, way=way, kill=kill, env=soon_taken_over(folder))
    print(found)  # for those who look at a failure
    assert found.in_flight > 0
    assert found.spooled > 0
    assert found.stored.exact


async def test_a_kill_while_the_database_hangs_loses_nothing_that_is_on_disk(server: Server, folder: Path) -> None:
    found = await hang(server, folder, soon_taken_over(folder))
    print(found)
    assert found.in_flight > 0
    assert found.spooled >= found.in_flight
    assert found.stored.exact
