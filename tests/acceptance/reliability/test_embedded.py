"""Several services on one embedded data directory, across deaths and containers: one server, never two."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.processes import servers_below, until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Replica, configure, routes_to

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_unshare(), reason="no pid namespace can be made here")
async def test_a_service_in_another_pid_namespace_uses_the_server_and_outlives_its_owner(folder: Path) -> None:
    async with Peer() as peer:
        config = configure(folder, routes_to(peer, ["well"]), "2s")
        env = {"ROUTEPROOF_DATA_DIR": str(folder / "data")}
        owner = Replica("owner", config, env)
        inside = Replica("inside", config, env, within=CONTAINER)
        heir = Replica("heir", config, env)
        try:
            owner.start()
            await owner.ready()
            (server,) = servers_below(folder)
            inside.start()
            await inside.ready()
            assert servers_below(folder) == [server]

            owner.kill()
            os.kill(server, 0)  # it outlives the service that started it
            await until(lambda: {a.key for a in peer.log[-3:]} == {"key-of-inside"})
            assert servers_below(folder) == [server]

            heir.start()
            await heir.ready()
            assert servers_below(folder) == [server]
            assert await heir.running.stop() == 0
            assert not servers_below(folder), "a server left behind is stopped by who took it over"

            heir.kill()
            heir.start()
            await heir.ready()
            (second,) = servers_below(folder)
            seen = len(peer.log)
            await until(lambda: {a.key for a in peer.log[seen:]} >= {"key-of-inside", "key-of-heir"})
            assert servers_below(folder) == [second]
            inside.running.send(signal.SIGKILL)
            assert await heir.running.stop() == 0
            assert not servers_below(folder)
        finally:
            for one in (owner, inside, heir):
                one.kill()
