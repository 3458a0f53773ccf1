"""PostgreSQL stopped under load and started again: nothing is lost, nothing is told twice, nothing looks better than
it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.reliability.outage import Size, Way, direct, outage
from tests.acceptance.reliability.stage import Server, pgbouncer

SIZE = Size(cells=20, interval=2, away_s=6)
NO_PGBOUNCER = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer isn't installed")


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
    found = await outage(server, folder, SIZE, way=way, kill=kill)
    print(found)  # for those who look at a failure
    assert found.in_flight > 0
    assert found.spooled > 0
    assert found.stored.exact
