"""Configurations that change under running services: which one is followed, what is kept, what is void."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

from tests.acceptance.processes import until
from tests.acceptance.reliability.peer import Peer
from tests.acceptance.reliability.stage import Replica, Server, configure, replicas, routes_to, shorter


async def test_the_configuration_loaded_last_is_followed_and_the_other_replica_says_so(
    server: Server, folder: Path
) -> None:
    homes = [folder / "old", folder / "new"]
    for home in homes:
        home.mkdir()
    async with Peer() as peer:
        old = configure(homes[0], routes_to(peer, ["both", "only-old"]), "2s")
        new = configure(homes[1], routes_to(peer, ["both", "only-new"]), "2s")
        env = {"ROUTEPROOF_DATABASE_URL": server.address, **shorter(folder, service__bootstrap__POLL_S=0.3)}
        with replicas(old, ["early"], env, folder) as (early,):
            await early.ready()
            await until(lambda: peer.of("only-old"))
            with replicas(new, ["late"], env, folder) as (late,):
                await late.ready()
                await until(lambda: early.said("superseded"))
                await until(lambda: shows(early, "routeproof_probes_in_flight", 0))  # what it claimed before has ended
                asked = len(peer.log)
                await until(lambda: {a.route for a in peer.log[asked:]} == {"both", "only-new"})
                await until(lambda: len(peer.log) > asked + 6)
                assert {(a.key, a.route) for a in peer.log[asked:]} <= {
                    ("key-of-late", "both"),
                    ("key-of-late", "only-new"),
                }
                await until(lambda: page_says(early, "/", "which isn&#39;t the active one"))
                assert await hash_of(early) != await hash_of(late)
                shutil.copy(new, old)
                await until(lambda: early.said("config_reloaded"))
                await until(lambda: same_configuration(early, late))
                await until(lambda: "key-of-early" in {a.key for a in peer.log[asked:]})
                await until(lambda: says_nothing_of_others(early))


async def test_what_a_changed_configuration_keeps_and_what_it_voids(server: Server, folder: Path) -> None:
    """With intervals of an hour: what is asked within this test is asked because of a change."""
    key = folder / "key"
    key.write_text("key-number-one")
    async with Peer() as peer:
        kept, gone = routes_to(peer, ["kept", "gone"])
        kept |= {"id": "kept", "api_key_file": str(key)}
        del kept["api_key_env"]
        config = configure(folder, [kept, gone], "1h")
        env = {
            "ROUTEPROOF_DATABASE_URL": server.address,
            **shorter(folder, service__bootstrap__POLL_S=0.3, service__schedule__LONGEST_SLEEP_S=0.5),
        }
        with replicas(config, ["one"], env, folder) as (one,):
            await one.ready()
            await until(lambda: shows(one, "routeproof_contract_proven", 2))
            loaded = await hash_of(one)
            (cell,) = server.sql("SELECT id FROM cells WHERE route_id = 'kept'")

            # A bad file changes nothing, and shows.
            good = config.read_text()
            config.write_text(good.replace("dialect:", "dialekt:"))
            one.running.send(signal.SIGHUP)
            await until(lambda: shows(one, "routeproof_config_last_reload_successful", 0))
            assert await hash_of(one) == loaded
            assert await one.metric("routeproof_contract_proven") == 2
            assert "dialekt" in one.running.err

            # SIGHUP takes the same file up once more.
            config.write_text(good)
            one.running.send(signal.SIGHUP)
            await until(lambda: shows(one, "routeproof_config_last_reload_successful", 1))
            assert len(peer.log) == 2, "asked, although nothing had changed"

            # A rename keeps the history, and asks nothing.
            configure(folder, [{**kept, "name": "renamed"}, gone], "1h")
            await until(lambda: reloaded(one, loaded))
            await until(lambda: page_says(one, "/routes/kept", "renamed"))
            assert server.sql("SELECT id FROM cells WHERE route_id = 'kept'") == [cell]
            assert await one.metric("routeproof_contract_proven") == 2
            assert len(peer.log) == 2

            # Another key: asked at once, and proven all along.
            for number in ("two", "three", "four"):
                await until(lambda: one.metric("routeproof_contract_verdicts_total", route="kept"))
                key.write_text(f"key-number-{number}")
                await until(lambda: peer.of("kept")[-1].key == f"key-number-{number}")  # noqa: B023
                assert await one.metric("routeproof_contract_proven", route="kept") == 1
            assert len(peer.of("gone")) == 1

            # Another model: what was proven speaks of another route, but nothing is announced.
            asked = len(peer.of("kept"))
            peer.hanging.add("kept")
            configure(folder, [{**kept, "name": "renamed", "model": "other"}, gone], "1h", "20s")
            await until(lambda: len(peer.of("kept")) > asked)
            await until(lambda: is_void(one, "kept"))  # a page's snapshot is up to a second old
            assert await one.metric("routeproof_contract_regressed", route="kept") == 0
            assert server.sql("SELECT confirmed->>'proven' FROM latest WHERE cell_id = %s", cell[0]) == [("true",)]
            peer.resume()

            # A route that is gone leaves no series.
            configure(folder, [{**kept, "name": "renamed", "model": "other"}], "1h", "20s")
            await until(lambda: no_series_of(one, "gone"))
            assert await one.running.stop() == 0
        assert server.sql("SELECT kind FROM transitions WHERE kind <> 'first'") == []


async def shows(one: Replica, name: str, value: float) -> bool:
    return await one.metric(name) == value


async def page_says(one: Replica, path: str, text: str) -> bool:
    return text in (await one.page(path)).text


async def is_void(one: Replica, route: str) -> bool:
    return await one.metric("routeproof_contract_proven", route=route) is None


async def says_nothing_of_others(one: Replica) -> bool:
    return "which isn&#39;t the active one" not in (await one.page()).text


async def hash_of(one: Replica) -> str:
    (series,) = [series for series in await one.metrics() if series.startswith("routeproof_config_info{")]
    return series


async def same_configuration(one: Replica, other: Replica) -> bool:
    return await hash_of(one) == await hash_of(other)


async def reloaded(one: Replica, before: str) -> bool:
    return await hash_of(one) != before


async def no_series_of(one: Replica, route: str) -> Any:
    return not [series for series in await one.metrics() if f'route="{route}"' in series]
