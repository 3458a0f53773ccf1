"""The only place that constructs: database, store, prober, clockwork and web server; it owns start, drain and stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
import uvicorn
import uvloop

from service.clock import suspended_clock
from service.clockwork import Clockwork, Job
from service.config import Config, cells, route_rows
from service.contracts import CONTRACTS
from service.database import DatabaseUnavailable, open_database, upgrade
from service.metrics import ProcessMetrics
from service.probe import Prober
from service.reload import POLL_S, Reload
from service.saver import Saver
from service.schedule import Schedule
from service.spool import Spool
from service.store import Board, Store
from service.store.errors import DATABASE_ERRORS
from service.transport import LoopLag, Transport
from service.web.access import Access
from service.web.app import create_app
from service.web.last_day import LastDay

DRAIN_S = 20.0
"""How long probes under way may take to end when the service stops."""
LAG_S = 10.0
STALLED_S = 10.0
"""Lateness of the event loop from which `/livez` says so, for a minute."""
START_PATIENCE_S = 60.0
VERSION = version("routeproof")
_SLOW_READER_S = 3

log = structlog.get_logger("routeproof")


class CannotListen(Exception):  # noqa: N818 - a state of the world, not a mistake
    """The address that the pages are to be served on can't be had."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop."""
    # libuv resolves names on half of its four threads: two dead names would keep all others waiting.
    os.environ.setdefault("UV_THREADPOOL_SIZE", "64")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def serve(
    config: Config,
    *,
    probes: bool,
    web: bool,
    path: Path | None = None,
    ready: Callable[[], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the service until SIGTERM, SIGINT or `stop`, then drain. `ready` is called once everything is up.

    `path` is where the configuration came from: it is taken up again when it changes, and on SIGHUP.

    Raises `DatabaseUnavailable` and `CannotListen` before anything is probed.
    """
    settings = config.service
    stop = stop or asyncio.Event()
    with _signals(stop):
        async with AsyncExitStack() as stack:
            listener = _listen(settings.host, settings.port) if web else None
            if listener is not None:
                stack.callback(listener.close)
            url = settings.database_url.reveal() if settings.database_url else None
            database = await stack.enter_async_context(open_database(url, settings.data_dir))
            await upgrade(database)
            service = _Service(config, Store(database.engine), ProcessMetrics(settings.location, VERSION))
            await service.start(stack, listener, probes=probes, path=path)
            log.info(
                "running",
                action="started",
                location=settings.location,
                routes=len(config.routes),
                url=f"http://{settings.host}:{settings.port}" if web else None,
            )
            if ready is not None:
                ready()
            gc.freeze()  # what is loaded stays: looking at it again in each collection holds up the loop for 70 ms
            await stop.wait()
            log.info("stopping", action="stopping")


class _Service:
    """The parts of a running service, and how they take up another configuration."""

    def __init__(self, config: Config, store: Store, metrics: ProcessMetrics) -> None:
        self._config = config
        self._store = store
        self._metrics = metrics
        self._prober: Prober | None = None
        self._schedule: Schedule | None = None
        self._clockwork: Clockwork | None = None

    async def start(
        self, stack: AsyncExitStack, listener: socket.socket | None, *, probes: bool, path: Path | None
    ) -> None:
        board = Board(self._store)
        stack.push_async_callback(board.close)
        lag = await stack.enter_async_context(LoopLag())
        jobs = [Job("loop_lag", LAG_S, partial(self._note_lag, lag))]
        if path is not None:
            reload = Reload(path, self._config, self._metrics, self._take_up, self._rotated if probes else None)
            stack.enter_context(_hangup(reload))
            jobs.append(Job("reload", POLL_S, reload.poll))
        if probes:
            await self._start_probing(stack, lag, tuple(jobs))
        else:
            self._clockwork = Clockwork(self._metrics, tuple(jobs))
            self._clockwork.start()
            stack.callback(self._clockwork.stop)
        await self._take_up_first(self._config)
        self._metrics.config_reloaded(successful=True)
        if self._schedule is not None:
            self._schedule.start()
            stack.push_async_callback(self._schedule.drain, DRAIN_S)
        if listener is not None:
            last_day = LastDay(self._store, DATABASE_ERRORS)
            stack.push_async_callback(last_day.close)
            await _start_web(stack, self._app(board, last_day, lag), listener)

    def _app(self, board: Board, last_day: LastDay, lag: LoopLag) -> Any:
        return create_app(
            board,
            self._store,
            self._metrics,
            access=lambda: Access.of(self._config.service),
            because=because_by_rule(),
            faults=partial(self._faults, lag),
            unavailable=DATABASE_ERRORS,
            last_day=last_day.get,
            routes=lambda: {route.id: route for route in self._config.routes},
        )

    async def _start_probing(self, stack: AsyncExitStack, lag: LoopLag, jobs: tuple[Job, ...]) -> None:
        settings = self._config.service
        await self._store.ensure_partitions()
        transport = await stack.enter_async_context(Transport(lag))
        self._prober = Prober(transport, settings.location)
        saver = Saver(self._store, Spool(settings.data_dir / "spool"), self._metrics)
        self._schedule = Schedule(
            self._store, self._prober, saver, settings.location, self._metrics, VERSION, extra=jobs
        )

    async def _take_up_first(self, config: Config) -> None:
        """Other replicas that start at the same moment come first: each waits for the one before it."""
        give_up_at = suspended_clock() + START_PATIENCE_S
        while True:
            try:
                return await self._take_up(config)
            except DATABASE_ERRORS as error:
                if suspended_clock() > give_up_at:
                    raise DatabaseUnavailable("The database doesn't take the configuration.") from error
                log.warning("could not store the configuration", action="start_delayed", error=type(error).__name__)
                await asyncio.sleep(1)

    async def _take_up(self, config: Config) -> None:
        """Store first, then change over: a database that is away changes nothing."""
        if self._schedule is not None and self._prober is not None:
            location = config.service.location
            await self._store.sync(location, config.hash, route_rows(config), cells(config), config.limits)
            service = config.service
            self._prober.watch(config.routes, service.egress_check, proxy=service.proxy, ca_file=service.ca_file)
            self._schedule.configure({route.id: route for route in config.routes}, config.hash)
            self._schedule.max_raw_bytes = service.max_raw_bytes
        self._metrics.config_loaded(config.hash)
        self._config = config

    async def _rotated(self, route_ids: Sequence[str]) -> None:
        # Also what was asked a moment ago: that may have been with the old key.
        await self._store.hurry(self._config.service.location, route_ids, timedelta(0))

    def _faults(self, lag: LoopLag) -> list[str]:
        """What keeps this process from its work, for `/livez`."""
        found = [fault for part in (self._schedule, self._clockwork) if part is not None for fault in part.faults()]
        if (late := lag.worst_since(suspended_clock() - 60.0)) > STALLED_S:
            found.append(f"the event loop was late by {late:.0f} s within the last minute")
        return found

    async def _note_lag(self, lag: LoopLag) -> None:
        self._metrics.loop_lag(lag.worst_since(suspended_clock() - 60.0))


async def _start_web(stack: AsyncExitStack, app: Any, listener: socket.socket) -> None:
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_SLOW_READER_S,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))

    async def end() -> None:
        server.should_exit = True
        await task

    stack.push_async_callback(end)
    while not server.started:
        if task.done():
            task.result()
        await asyncio.sleep(0.01)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours stop the prober as well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        why = str(error.strerror).partition(" (while ")[0]  # the library repeats the address there
        raise CannotListen(f"can't listen on {host}:{port}: {why}.") from None


@contextlib.contextmanager
def _hangup(reload: Reload) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload.force)
    try:
        yield
    finally:
        loop.add_signal_handler(signal.SIGHUP, _nothing)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _nothing)  # it would end us while we start and stop
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _nothing() -> None:
    """What a hangup does while there is nothing to take up."""


def because_by_rule() -> Mapping[str, str]:
    """The reason in words of every rule of every contract."""
    return {rule.id: rule.because for contract in CONTRACTS.values() for rule in contract.rules}


def set_up_logs(*, level: int = logging.INFO) -> None:
    """structlog to stderr: JSON for machines, columns for a terminal. HTTP libraries stay silent at every level: their
    lines would show headers and URLs before redaction."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    libraries = level if level <= logging.DEBUG else max(level, logging.WARNING)
    logging.basicConfig(level=libraries, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    for name in ("httpx", "httpcore", "hpack", "h11", "h2"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
