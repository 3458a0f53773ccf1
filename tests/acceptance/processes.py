"""The service as its users run it: a process of its own, its output kept in files, ended whatever a test does."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
"""How long what must come is waited for: it bounds a hang, and no test asserts by it how fast anything is."""


async def until(what: Callable[[], Any], within: float = PATIENCE_S, every: float = 0.03) -> None:
    """Wait until `what` gives something true; it may be a coroutine function. Fails when the time, in seconds, is up."""
    give_up_at = time.monotonic() + within
    while True:
        value = what()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return
        assert time.monotonic() < give_up_at, f"not within {within} s: {inspect.getsource(what).strip()} is {value!r}"
        await asyncio.sleep(every)


def free_port() -> int:
    """A port that nobody listens on, from below those that the kernel gives to outgoing connections: one of them could
    have it until a service that is just starting wants it."""
    while True:
        port = secrets.choice(range(10_000, 32_768))
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that is removed at the end. Not `tmp_path`: as root that is closed to the embedded server's user."""
    folder = Path(tempfile.mkdtemp(prefix="routeproof-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for pid in servers_below(folder):
            os.kill(pid, signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def servers_below(folder: Path) -> list[int]:
    """The pids of the PostgreSQL servers whose data lies below the folder."""
    said = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = (line.split(None, 1) for line in said.splitlines())
    return [int(pid) for pid, args in lines if f"-D {folder}/" in args]


@dataclass(frozen=True)
class Process:
    """`python -m service …` while it runs and after."""

    popen: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; SIGINT goes to the children as well, as Ctrl-C in a terminal does."""
        if number == signal.SIGINT:
            os.killpg(self.popen.pid, number)
        else:
            self.popen.send_signal(number)

    async def ended(self, within: float = PATIENCE_S) -> int:
        """The exit code."""
        await until(lambda: self.popen.poll() is not None, within)
        return self.popen.returncode

    async def stop(self, number: signal.Signals = signal.SIGTERM, within: float = PATIENCE_S) -> int:
        self.send(number)
        return await self.ended(within)

    async def ready(self, port: int, within: float = PATIENCE_S) -> None:
        """Wait until the pages can be served. Fails at once when the process has ended."""

        async def answers() -> bool:
            assert self.popen.poll() is None, f"exit {self.popen.returncode}: {self.err}"
            try:
                return (await get(port, "/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        await until(answers, within)


@contextmanager
def routeproof(
    *args: str | Path, env: Mapping[str, str] | None = None, within: Sequence[str] = ()
) -> Iterator[Process]:
    """Start the command, by way of another one when that is given. Its environment holds what is given, and of ours
    only what a program needs to start."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PG_BIN", "TMPDIR")}
    with tempfile.TemporaryDirectory(prefix="routeproof-process-") as name:
        folder = Path(name)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            popen = subprocess.Popen(
                [*within, sys.executable, "-m", "service", *map(str, args)],
                cwd=ROOT,
                env={**kept, "HOME": name, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                yield Process(popen, folder)
            finally:
                popen.kill()
                popen.wait()


async def run(
    *args: str | Path, env: Mapping[str, str] | None = None, within: float = PATIENCE_S
) -> tuple[int, str, str]:
    """Run the command to its end: exit code, stdout, stderr."""
    with routeproof(*args, env=env) as process:
        code = await process.ended(within)
        return code, process.out, process.err


async def get(port: int, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        return await client.get(f"http://127.0.0.1:{port}{path}")


def write(path: Path, **sections: object) -> Path:
    """A configuration file."""
    path.write_text(yaml.safe_dump(sections, sort_keys=False))
    return path


_FAULT = """
import httpx

stream = httpx.AsyncClient.stream

def broken(self, method, url, *, headers, **others):
    if "/s/{id}/" in str(url):
        raise ValueError({message})
    return stream(self, method, url, headers=headers, **others)

httpx.AsyncClient.stream = broken
"""


def faulty(folder: Path, id: str, message: str = '"this can\'t be sent"') -> dict[str, str]:
    """Variables under which no request to this scenario can be sent, by a fault of our own. `message` is an expression
    over the request's `method`, `url` and `headers`."""
    (folder / "sitecustomize.py").write_text(_FAULT.format(id=id, message=message))
    return {"PYTHONPATH": str(folder)}
