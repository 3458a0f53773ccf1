"""The only place that constructs: database, store, prober, clockwork and web server; it owns start, drain and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any

import structlog
import uvicorn
import uvloop

from service.config import Config, cells, route_rows
from service.contracts import CONTRACTS
from service.database import open_database, upgrade
from service.metrics import ProcessMetrics
from service.probe import Prober
from service.schedule import Schedule
from service.store import Board, Store
from service.store.errors import DATABASE_ERRORS
from service.transport import LoopLag, Transport
from service.web.app import create_app

DRAIN_S = 20.0
"""How long probes under way may take to end when the service stops."""
_SLOW_READER_S = 3

log = structlog.get_logger("routeproof")


class CannotListen(Exception):  # noqa: N818 - a state of the world, not a mistake
    """The address that the pages are to be served on can't be had."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def serve(
    config: Config,
    *,
    probes: bool,
    web: bool,
    ready: Callable[[], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the service until SIGTERM, SIGINT or `stop`, then drain. `ready` is called once everything is up.

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
            store = Store(database.engine)
            board = Board(store)
            stack.push_async_callback(board.close)
            metrics = ProcessMetrics(settings.location, version("routeproof"))
            metrics.config_loaded(config.hash)
            schedule = await _start_probing(stack, config, store, metrics) if probes else None
            if listener is not None:
                app = create_app(
                    board,
                    store,
                    metrics,
                    external_url=settings.external_url,
                    because=because_by_rule(),
                    faults=schedule.faults if schedule else list,
                    unavailable=DATABASE_ERRORS,
                )
                await _start_web(stack, app, listener)
            log.info(
                "running",
                action="started",
                location=settings.location,
                routes=len(config.routes),
                url=f"http://{settings.host}:{settings.port}" if web else None,
            )
            if ready is not None:
                ready()
            await stop.wait()
            log.info("stopping", action="stopping")


async def _start_probing(stack: AsyncExitStack, config: Config, store: Store, metrics: ProcessMetrics) -> Schedule:
    settings = config.service
    await store.ensure_partitions()
    await store.sync(settings.location, route_rows(config), cells(config))
    lag = await stack.enter_async_context(LoopLag())
    transport = await stack.enter_async_context(Transport(lag))
    prober = Prober(transport, settings.location)
    prober.watch(config.routes, settings.egress_check, proxy=settings.proxy, ca_file=settings.ca_file)
    schedule = Schedule(store, prober, {route.id: route for route in config.routes}, settings.location, metrics)
    schedule.start()
    stack.push_async_callback(schedule.drain, DRAIN_S)
    return schedule


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
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


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
