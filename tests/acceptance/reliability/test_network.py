"""Every route unreachable at once: our own network's fault, which is announced to nobody as a route's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.reliability.network import away
from tests.acceptance.reliability.stage import Server, shorter


@pytest.mark.parametrize("guarded", [True, False], ids=["an egress check is configured", "none is"])
async def test_an_outage_of_our_own_network_announces_nothing(server: Server, folder: Path, guarded: bool) -> None:
    # What a host said counts for 10 s, which is more than these cells' interval.
    env = shorter(folder, service__egress__FRESH_S=0.5)
    found = await away(server, folder, guarded=guarded, interval=2, cells=3, rounds=2, env=env)
    assert found["own_network"] >= 18
    assert set(found) <= {"own_network", "tools_supported", "unreachable"}
    # The hosts go and come back one after the other: a cell may be asked right in between.
    assert not guarded or found.get("unreachable", 0) <= 9
