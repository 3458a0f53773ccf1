"""`serve` as an operator meets it: killed, stopped, held up, started wrongly, and in each of its roles."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from service import bootstrap
from service.config import Config, ServiceSettings
from service.database import open_database
from service.demo.provider import Provider
from service.demo.scenario import End, Scenario
from service.model import ContractUse, Route, Secret
from tests.acceptance.processes import (
    PATIENCE_S,
    free_port,
    get,
    open_folder,
    routeproof,
    run,
    servers_below,
    until,
    write,
)
from tests.acceptance.reliability.peer import Peer
from tests.peer import load_corpus, playing

HEALTHY = load_corpus(("baseline-chat-native-tools",))[0]


def healthy(id: str) -> Scenario:
    return replace(HEALTHY, id=id)


def changed(id: str, **reply: Any) -> Scenario:
    """The healthy route, but its replies are as given."""
    replies = tuple(replace(entry, reply=replace(entry.reply, **reply)) for entry in HEALTHY.replies)
    return replace(HEALTHY, id=id, replies=replies)


def hanging(id: str) -> Scenario:
    """Headers, and then nothing."""
    return changed(id, body=[], end=End.HANG)


@dataclass(frozen=True)
class Place:
    """Where a service keeps its data, and how a test looks into it."""

    data_dir: Path
    database_url: str | None

    @property
    def env(self) -> dict[str, str]:
        url = {"ROUTEPROOF_DATABASE_URL": self.database_url} if self.database_url else {}
        return {"ROUTEPROOF_DATA_DIR": str(self.data_dir), **url}

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        url = make_url(self.database_url) if self.database_url else open_database(None, self.data_dir).url
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def elsewhere(folder: Path, database_url: str) -> Place:
    """A database at an address."""
    return Place(folder / "data", database_url)


@pytest.fixture(params=["embedded", "address"])
def place(request: pytest.FixtureRequest, folder: Path) -> Place:
    if request.param == "embedded":
        return Place(folder / "data", None)
    return Place(folder / "data", request.getfixturevalue("database_url"))


def configure(folder: Path, provider: Provider | Peer, ids: Sequence[str], port: int, **defaults: str) -> Path:
    routes = [
        {"name": id, "provider": "p", "dialect": "openai-chat", "base_url": provider.url(id), "model": "demo-model"}
        for id in ids
    ]
    return write(
        folder / f"{port}.yaml",
        service={"listen": f"127.0.0.1:{port}"},
        defaults={"interval": "1h", "deadline": "60s", "contracts": ["native_tools"], **defaults},
        routes=routes,
    )


async def metrics(port: int) -> dict[str, str]:
    """Each series of the exposition with its value."""
    lines = (await get(port, "/metrics")).text.splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def of(name: str, route: str) -> str:
    return f'{name}{{route="{route}",provider="p",contract="native_tools",location="default"}}'


# --- killed -----------------------------------------------------------------------------------------------


async def test_a_kill_in_mid_probe_loses_nothing_and_another_process_shows_the_truth_ageing(
    folder: Path, place: Place
) -> None:
    port, web_port = free_port(), free_port()
    proven, fresh = of("routeproof_contract_proven", "well"), of("routeproof_contract_fresh", "well")
    async with playing([healthy("well"), hanging("slow")]) as provider:
        config = configure(folder, provider, ["well", "slow"], port)
        web_config = configure(folder, provider, ["well", "slow"], web_port)

        with routeproof("serve", "-c", config, env=place.env) as victim:
            await victim.ready(port)

            async def in_mid_probe() -> bool:
                return provider.count("slow") > 0 and (await metrics(port)).get(proven) == "1"

            await until(in_mid_probe)
            victim.send(signal.SIGKILL)
            assert await victim.ended() == -signal.SIGKILL
        stored = place.sql("SELECT id, status FROM verdicts") if place.database_url else None
        provider.replace("slow", healthy("slow"))

        with routeproof("serve", "-c", web_config, "--role", "web", env=place.env) as web:
            await web.ready(web_port)
            stored = stored or place.sql("SELECT id, status FROM verdicts")
            assert [status for _, status in stored] == ["tools_supported"]
            place.sql("UPDATE schedule SET next_due_at = now() - interval '1 minute'")
            asked = provider.count("well")
            assert (await metrics(web_port))[fresh] == "1"

            grow_older(place, hours=4)  # fresh for three intervals
            await until(lambda: shows(web_port, fresh, "0"))
            assert (await metrics(web_port))[proven] == "1"
            assert "Works, stale" in (await get(web_port, "/")).text

            grow_older(place, hours=7)  # expired after six
            await until(lambda: shows(web_port, proven, None))
            page = re.sub(r"<form.*?</form>", "", (await get(web_port, "/")).text, flags=re.DOTALL)
            assert "Works" not in page
            assert "Unknown" in page
            assert (provider.count("well"), provider.count("slow")) == (asked, 0), "the web role asked"

            with routeproof("serve", "-c", config, env=place.env) as heir:
                await heir.ready(port)
                await until(lambda: provider.count("well") > asked)
                await until(lambda: len(place.sql("SELECT id FROM verdicts")) == 2)
                assert provider.count("slow") == 0, "asked under a dead process' lease"
                place.sql("UPDATE schedule SET leased_until = now() - interval '1 second' WHERE lease_id IS NOT NULL")
                await until(lambda: len(place.sql("SELECT id FROM verdicts")) == 3)
                assert (await metrics(port))['routeproof_leases_expired_total{location="default"}'] == "1.0"
                assert "lease_expired" in heir.err
                assert await heir.stop() == 0
            assert set(stored) < set(place.sql("SELECT id, status FROM verdicts"))
            assert await web.stop() == 0
        assert not servers_below(folder)


def grow_older(place: Place, *, hours: int) -> None:
    place.sql(
        "UPDATE latest SET standing = jsonb_set(standing, '{observed_at}', to_jsonb(now() - make_interval(hours => %s)))",
        hours,
    )


async def shows(port: int, series: str, value: str | None) -> bool:
    return (await metrics(port)).get(series) == value


# --- stopped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_signal_lets_the_probe_under_way_end_and_keeps_its_verdict(
    folder: Path, number: signal.Signals
) -> None:
    port, place = free_port(), Place(folder / "data", None)
    async with Peer(hanging={"slow"}) as peer:
        config = configure(folder, peer, ["slow"], port)
        with routeproof("serve", "-c", config, env=place.env) as process:
            await until(lambda: peer.holding)
            assert servers_below(folder)
            process.send(number)
            await until(lambda: '"drain"' in process.err)
            peer.resume()
            assert await process.ended() == 0
            assert not servers_below(folder)
            assert process.out == ""
            assert "Traceback" not in process.err, process.err
            lines = [json.loads(line) for line in process.err.splitlines()]
            said = [line["action"] for line in lines if line["action"] != "housekeeping"]
            assert said == ["started", "stopping", "drain", "probed"]
        assert len(peer.log) == 1
    async with open_database(None, place.data_dir):
        assert place.sql("SELECT status FROM verdicts") == [("tools_supported",)]
        assert place.sql("SELECT lease_id, leased_until FROM schedule") == [(None, None)]


async def test_a_second_signal_changes_nothing_and_a_probe_that_hangs_ends_at_its_deadline(
    folder: Path, elsewhere: Place
) -> None:
    port = free_port()
    async with playing([hanging("slow")]) as provider:
        config = configure(folder, provider, ["slow"], port, deadline="4s")
        with routeproof("serve", "-c", config, env=elsewhere.env) as process:
            await until(lambda: provider.count("slow"))
            process.send(signal.SIGTERM)
            await until(lambda: '"drain"' in process.err)
            assert await process.stop() == 0
        assert elsewhere.sql("SELECT status, reason FROM verdicts") == [("timeout", "no_event")]


async def test_after_the_bound_probes_are_cancelled_and_their_leases_given_back(
    folder: Path, elsewhere: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "DRAIN_S", 0.3)
    stop = asyncio.Event()
    async with playing([hanging("slow")]) as provider:
        route = Route(
            id="slow",
            name="slow",
            provider="slow",
            dialect="openai-chat",
            base_url=provider.url("slow"),
            model="demo-model",
            deadline=timedelta(seconds=30),
            contracts=(ContractUse("native_tools"),),
        )
        settings = ServiceSettings(data_dir=elsewhere.data_dir, database_url=Secret(elsewhere.database_url or ""))
        config = Config(service=settings, routes=(route,), warnings=(), hash="0")
        serving = asyncio.create_task(bootstrap.serve(config, probes=True, web=False, stop=stop))
        await until(lambda: provider.count("slow"))
        assert elsewhere.sql("SELECT lease_id IS NULL FROM schedule") == [(False,)]
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await serving
    assert elsewhere.sql("SELECT lease_id, leased_until, next_due_at <= now() FROM schedule") == [(None, None, True)]
    assert elsewhere.sql("SELECT status FROM verdicts") == []


async def can_send_no_more(port: int, reader: socket.socket) -> bool:
    """Whether the service, which has something for this reader, can't hand over any more of it while it goes on serving
    others."""
    waiting = in_the_kernel(port, reader)
    for _ in range(5):
        await get(port, "/livez")
    return 0 < waiting == in_the_kernel(port, reader)


def in_the_kernel(port: int, reader: socket.socket) -> int:
    """The bytes that were written to this reader and that it hasn't got yet."""
    ends = f":{port:04X}", f":{reader.getsockname()[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    (queues,) = [row[4] for row in rows if row[1].endswith(ends[0]) and row[2].endswith(ends[1])]
    return int(queues.partition(":")[0], 16)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells what waits in its kernel")
async def test_a_reader_that_takes_nothing_does_not_hold_up_the_end(folder: Path, elsewhere: Place) -> None:
    port = free_port()
    async with playing([healthy("well")]) as provider:
        config = configure(folder, provider, ["well"], port)
        with routeproof("serve", "-c", config, env=elsewhere.env) as process, socket.socket() as reader:
            await process.ready(port)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            reader.connect(("127.0.0.1", port))
            reader.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    reader.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000)
            await until(lambda: can_send_no_more(port, reader))
            assert await process.stop() == 0
            assert "timeout graceful shutdown exceeded" in process.err  # it was held up until then, and no longer


# --- started wrongly --------------------------------------------------------------------------------------

TEN_MISTAKES = """\
service:
  listen: 8080
  external_ulr: https://probe.example.com
defaults:
  interval: 300
  include_usage: yes
routes:
  - name: one
    dialect: openai-chatt
    base_url: https://api.example.com/v1
    model: m
    api_key: sk-proj-0123456789abcdef
  - name: two
    dialect: openai-chat
    base_url: api.example.com/v1
    fresh_for: 10s
    interval: 1m
  - name: One
    dialect: openai-chat
    base_url: https://api.example.com/v1
    model: m
"""
PLACES = [
    "2: service.listen: ",
    "3: service.external_ulr: ",
    "5: defaults.interval: ",
    "6: defaults.include_usage: ",
    "9: routes[0].dialect: ",
    "12: routes[0].api_key: ",
    "13: routes[1].model: ",
    "15: routes[1].base_url: ",
    "16: routes[1].fresh_for: ",
    "18: routes[2].name: ",
]


@pytest.mark.parametrize("verb", [("serve",), ("check",), ("config", "check")], ids=" ".join)
async def test_ten_mistakes_are_all_reported_at_once_and_nothing_starts(folder: Path, verb: tuple[str, ...]) -> None:
    config, data_dir = folder / "routeproof.yaml", folder / "data"
    config.write_text(TEN_MISTAKES)
    code, out, err = await run(*verb, "-c", config, env={"ROUTEPROOF_DATA_DIR": str(data_dir)})
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == len(PLACES)
    for line, begins in zip(lines, PLACES, strict=True):
        assert line.startswith(f"{config}:{begins}")
    assert "0123456789abcdef" not in err
    assert not data_dir.exists()


async def test_a_port_in_use_is_said_before_anything_starts(folder: Path) -> None:
    data_dir = folder / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with playing([healthy("well")]) as provider:
            config = configure(folder, provider, ["well"], port)
            code, out, err = await run("serve", "-c", config, env={"ROUTEPROOF_DATA_DIR": str(data_dir)})
            assert provider.count("well") == 0
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"can't listen on 127.0.0.1:{port}: Address already in use. "
        "Set service.listen or ROUTEPROOF_LISTEN to a free address."
    ]
    assert not data_dir.exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://probe:hunter22hunter@db.example.com/routeproof", "postgresql://"),
        ("postgresql://probe:hunter22hunter@127.0.0.1:1/routeproof", "can't be reached"),
    ],
    ids=["not PostgreSQL", "nobody there"],
)
async def test_a_database_that_can_not_be_had_stops_the_start(folder: Path, url: str, says: str) -> None:
    port, data_dir = free_port(), folder / "data"
    async with playing([healthy("well")]) as provider:
        config = configure(folder, provider, ["well"], port)
        env = {"ROUTEPROOF_DATA_DIR": str(data_dir), "ROUTEPROOF_DATABASE_URL": url}
        code, out, err = await run("serve", "-c", config, env=env)
        assert provider.count("well") == 0
    assert (code, out) == (2, "")
    assert says in err
    assert "hunter22" not in err
    assert len(err.splitlines()) == 1
    assert not data_dir.exists()


# --- roles ------------------------------------------------------------------------------------------------


async def test_the_prober_role_probes_and_serves_no_port(folder: Path, elsewhere: Place) -> None:
    port = free_port()
    async with playing([healthy("well")]) as provider:
        config = configure(folder, provider, ["well"], port)
        with routeproof("serve", "-c", config, "--role", "prober", env=elsewhere.env) as process:
            await until(lambda: elsewhere.sql("SELECT status FROM verdicts") == [("tools_supported",)])
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
            assert await process.stop() == 0


async def test_an_unknown_role_is_a_usage_error(folder: Path) -> None:
    code, out, err = await run("serve", "-c", folder / "none.yaml", "--role", "boss")
    assert (code, out) == (2, "")
    assert "Invalid value for '--role'" in " ".join(err.replace("│", " ").split())
