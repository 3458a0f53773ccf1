"""What the tests of this folder and the long scripts share: a database that can be taken away, configurations, replicas
of the service, and what is read off the peer's log."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from sqlalchemy import URL

from service.database import Database, open_database
from service.demo.listener import Listener
from tests.acceptance.processes import ROOT, Process, free_port, get, routeproof, servers_below, write
from tests.acceptance.reliability.peer import Asked, Peer

KEY = "REPLICA_KEY"
LASTING = {"fresh_for": "10m", "expires_after": "20m"}
"""Of a configuration in whose test no verdict is to grow old, however slow the machine is."""

_SHORTER = """
import sys
sys.path.insert(0, {root!r})
{lines}
"""


def shorter(folder: Path, **constants: float) -> dict[str, str]:
    """Variables under which constants of the service are others, so that a test needn't wait for half a minute. They
    are named as `service__store__claims__LEASE_MARGIN_S`."""
    lines = []
    for name, value in constants.items():
        module, _, constant = name.replace("__", ".").rpartition(".")
        lines += [f"import {module}", f"assert hasattr({module}, {constant!r})", f"{module}.{constant} = {value!r}"]
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "sitecustomize.py").write_text(_SHORTER.format(root=str(ROOT), lines="\n".join(lines)))
    return {"PYTHONPATH": str(home)}


_SHIFTED = """
import datetime, pathlib, time
real, now, clock = datetime.datetime, time.time, pathlib.Path({clock!r})

class Alike(type):
    def __instancecheck__(cls, one):
        return isinstance(one, real)

class Shifted(real, metaclass=Alike):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=float(clock.read_text()))

time.time = lambda: now() + float(clock.read_text())
import sys
sys.path.insert(0, {root!r})
import service.bootstrap, service.cli, apscheduler.triggers.date, apscheduler.triggers.interval
for name, module in list(sys.modules.items()):
    if name.startswith(("service", "apscheduler")) and getattr(module, "datetime", None) is real:
        module.datetime = Shifted
"""


def shifted(folder: Path, clock: Path) -> dict[str, str]:
    """Variables under which the service and its scheduler take the time of the day to be so many seconds later as the
    file `clock` says, anew each time; clocks that measure spans go on as they are."""
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "sitecustomize.py").write_text(_SHIFTED.format(root=str(ROOT), clock=str(clock)))
    return {"PYTHONPATH": str(home)}


@dataclass(frozen=True)
class Server:
    """A PostgreSQL of the tests' own, that can be stopped and started. `name` is a database on it."""

    folder: Path
    database: Database
    name: str = "postgres"

    @property
    def url(self) -> URL:
        return self.database.url.set(database=self.name)

    @property
    def address(self) -> str:
        return self.url.render_as_string(hide_password=False)

    async def stop(self) -> None:
        """All at once, as in a crash: what isn't committed is gone, and nobody waits for a checkpoint."""
        for pid in servers_below(self.folder):
            os.kill(pid, signal.SIGQUIT)
        await self.database.stop()

    async def start(self) -> None:
        await self.database.start()

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            found = connection.execute(statement, values)
            return found.fetchall() if found.description else []

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        plain = self.url.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(plain, autocommit=True)

    def fresh(self) -> Server:
        """A new, empty database of it."""
        other = replace(self, name=f"routeproof_{uuid4().hex[:8]}")
        self.sql(f"CREATE DATABASE {other.name}")
        return other


@contextmanager
def postgresql() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="routeproof-server-"))
    folder.chmod(0o755)
    server = Server(folder, open_database(None, folder))
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())
        shutil.rmtree(folder, ignore_errors=True)


def routes_to(peer: Peer, ids: Iterable[str], **keys: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": id,
            "provider": "p",
            "dialect": "openai-chat",
            "base_url": peer.url(id),
            "model": "m",
            "api_key_env": KEY,
            **keys,
        }
        for id in ids
    ]


def configure(
    folder: Path, routes: Sequence[Mapping[str, Any]], interval: str, deadline: str = "20s", **sections: Any
) -> Path:
    """A configuration file of cells of the contract `native_tools`."""
    defaults = {"interval": interval, "deadline": deadline, "contracts": ["native_tools"]}
    defaults |= sections.pop("defaults", {})
    return write(folder / "routeproof.yaml", defaults=defaults, **sections, routes=list(routes))


@dataclass
class Replica:
    """One `serve`, which may be killed and started again under its name and port; `within` another command if need
    be. It sends a key of its own."""

    name: str
    config: Path
    env: Mapping[str, str]
    port: int = field(default_factory=free_port)
    within: Sequence[str] = ()
    process: Process | None = None
    _running: Any = None

    @property
    def running(self) -> Process:
        assert self.process is not None, "it isn't running"
        return self.process

    def start(self) -> None:
        env = {**self.env, KEY: f"key-of-{self.name}", "ROUTEPROOF_LISTEN": f"127.0.0.1:{self.port}"}
        self._running = routeproof("serve", "-c", self.config, env=env, within=self.within)
        self.process = self._running.__enter__()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process is not None:
            self.process.popen.kill()
            self.process.popen.wait()
            print(self.name, self.process.err[-3000:], file=sys.stderr)  # for those who look at a failure
            self._running.__exit__(None, None, None)
            self.process = None

    async def ready(self) -> None:
        await self.running.ready(self.port)

    async def metrics(self) -> dict[str, float]:
        answer = await get(self.port, "/metrics")
        assert answer.status_code == 200, self.running.err
        lines = answer.text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    async def metric(self, name: str, **labels: str) -> float | None:
        """The sum of the series of a name with these labels among theirs; None when there is none."""
        found = [v for series, v in (await self.metrics()).items() if _fits(series, name, labels)]
        return sum(found) if found else None

    async def page(self, path: str = "/") -> httpx.Response:
        return await get(self.port, path)

    def said(self, action: str) -> bool:
        return f'"action": "{action}"' in self.running.err


def _fits(series: str, name: str, labels: Mapping[str, str]) -> bool:
    return re.split(r"[{ ]", series)[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items())


@contextmanager
def replicas(config: Path, names: Iterable[str], env: Mapping[str, str], folder: Path) -> Iterator[list[Replica]]:
    """So many of the service, all of one file; started, and ended at the end. Each keeps its data in its own folder."""
    made = [Replica(name, config, {**env, "ROUTEPROOF_DATA_DIR": str(folder / name)}) for name in names]
    try:
        for one in made:
            one.start()
        yield made
    finally:
        for one in made:
            one.kill()


# --- what the peer's log says -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """A probe as the peer saw it: from its first request to the end of its last."""

    route: str
    key: str
    began: float
    ended: float


def probes(log: Iterable[Asked], now: float) -> list[Span]:
    """The probes of a log, in the order of their beginnings."""
    found: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for asked in log:
        found[asked.route, asked.probe].append(asked)
    spans = [
        Span(route, one[0].key, min(a.began for a in one), max(now if a.ended is None else a.ended for a in one))
        for (route, _), one in found.items()
    ]
    return sorted(spans, key=lambda span: span.began)


def overlaps(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """Pairs of probes of one route of which the second began while the first went on."""
    return [
        (one, other)
        for of_route in by_route(spans).values()
        for one, other in pairwise(of_route)
        if other.began < one.ended
    ]


def by_route(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        found[span.route].append(span)
    return found


def longest_gap(spans: Sequence[Span], ids: Iterable[str], until_reading: float) -> float:
    """The longest time in seconds in which a route wasn't asked anew, its first asking apart."""
    askings = by_route(spans)
    longest = 0.0
    for id in ids:
        began = [span.began for span in askings[id]]
        assert began, f"{id} was never asked"
        longest = max(longest, *(b - a for a, b in zip(began, [*began[1:], until_reading], strict=True)))
    return longest


def most_at_once(spans: Sequence[Span]) -> int:
    edges = [(span.began, 1) for span in spans] + [(span.ended, -1) for span in spans]
    most = at_once = 0
    for _, step in sorted(edges):
        at_once += step
        most = max(most, at_once)
    return most


def most_within(log: Iterable[Asked], seconds: float) -> int:
    """The most requests that began within any span of so many seconds."""
    began = sorted(asked.began for asked in log)
    first = most = 0
    for last, reading in enumerate(began):
        while reading - began[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def shares(spans: Iterable[Span]) -> Counter[str]:
    return Counter(span.key for span in spans)


@dataclass(frozen=True)
class Stored:
    """Probes that the peer answered beside the verdicts in the database: how many are missing there or stored twice,
    how many verdicts were made without an answer, and the worst distance in time between an answer and its verdict."""

    answered: int
    missing: int
    twice: int
    invented: int
    distance_s: float

    @property
    def exact(self) -> bool:
        return self.missing == self.twice == self.invented == 0

    def __str__(self) -> str:
        return (
            f"{self.answered} answered probes, {self.missing} verdicts missing, {self.twice} twice, {self.invented} "
            f"without an answer, at most {self.distance_s:.2f} s from it"
        )


def compare(server: Server, log: Iterable[Asked]) -> Stored:
    """What is stored against what was answered, each probe being one request: an answer's verdict has its model."""
    told = {asked.model: asked.told_at for asked in log if asked.answered}
    made = [
        (model, float(at))
        for model, at in server.sql("SELECT served_model, extract(epoch FROM observed_at) FROM verdicts")
    ]
    times = Counter(model for model, _ in made if model in told)
    return Stored(
        answered=len(told),
        missing=len(told) - len(times),
        twice=times.total() - len(times),
        invented=len(made) - times.total(),
        distance_s=max((abs(at - told[model]) for model, at in made if model in told), default=0.0),
    )


# --- pgbouncer --------------------------------------------------------------------------------------------


@asynccontextmanager
async def pgbouncer(server: Server, folder: Path) -> AsyncIterator[str]:
    """A pgbouncer in transaction mode before the server; yields its URL."""
    port, home = free_port(), folder / "pgbouncer"
    home.mkdir()
    home.chmod(0o777)
    user = server.url.username
    async with relay(server) as behind:
        lines = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": 4,
            "server_login_retry": 1,
            "logfile": home / "log",
            "pidfile": home / "pid",
        }
        file = home / "pgbouncer.ini"
        settings = "\n".join(f"{key} = {value}" for key, value in lines.items())
        file.write_text(f"[databases]\n* = host=127.0.0.1 port={behind} user={user}\n[pgbouncer]\n{settings}\n")
        popen = subprocess.Popen(
            ["pgbouncer", file],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user="nobody" if os.getuid() == 0 else None,
        )
        try:
            yield f"postgresql://{user}@127.0.0.1:{port}/{server.url.database}"
        finally:
            popen.terminate()
            popen.wait()


@asynccontextmanager
async def relay(server: Server, flowing: asyncio.Event | None = None) -> AsyncIterator[int]:
    """A port of this process that leads to the server's socket, which lets in its own user only; yields the port. While
    `flowing` isn't set it takes all and passes on nothing."""
    path = f"{server.url.query['host']}/.s.PGSQL.{server.url.query['port']}"

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if flowing is not None:
                    await flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = writer
        try:
            inner_reader, inner = await asyncio.open_unix_connection(path)
            await asyncio.gather(pump(reader, inner), pump(inner_reader, writer))
        except OSError:
            pass  # the server is away: so is what stands before it
        finally:
            for one in (inner, writer):
                one.close()
                with suppress(ConnectionError):
                    await one.wait_closed()

    listener = Listener(carry, "127.0.0.1")
    try:
        yield listener.port
    finally:
        await listener.close()
