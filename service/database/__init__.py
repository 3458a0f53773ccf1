"""Where PostgreSQL comes from: an address that is configured, or an embedded server of our own.

`open_database` decides, `Database` starts and stops, `upgrade` brings the tables up to date. Whatever keeps the
database from being used is a `DatabaseUnavailable` whose message says what to do.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

if TYPE_CHECKING:
    from service.database.embedded import EmbeddedServer

MINIMUM_MAJOR = 15
CONNECT_TIMEOUT_S = 5
PATIENCE_S = 5.0

_BOUNDS = (
    "SELECT set_config('statement_timeout', '5s', true), set_config('idle_in_transaction_session_timeout', '10s', true)"
)


class DatabaseUnavailable(Exception):  # noqa: N818 - a state of the world, not a mistake
    """The database can't be had. The message is for the operator and says what to do; no secret is in it."""


class Database:
    """A PostgreSQL that can be used between `start` and `stop`; an async context manager of the two.

    Raises `DatabaseUnavailable` at the start.
    """

    def __init__(self, url: URL, server: EmbeddedServer | None = None) -> None:
        self.url = url
        self._server = server
        self._engine: AsyncEngine | None = None

    @property
    def engine(self) -> AsyncEngine:
        if self._engine is None:
            raise RuntimeError("the database was not started")
        return self._engine

    @property
    def owned(self) -> bool:
        """Whether `stop` stops the server: an embedded one that this process started, or found left behind."""
        return self._server is not None and self._server.owned

    async def start(self) -> None:
        try:
            if self._server is not None:
                await _to_the_end(self._server.start)
            self._engine = make_engine(self.url)
            await self._reach(self._engine)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the pool and, when it is owned, stop the server. Doing it twice does no harm."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()
        if self._server is not None:
            await _to_the_end(self._server.stop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _reach(self, engine: AsyncEngine) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                async with engine.connect() as connection:
                    version = int(await connection.scalar(text("SELECT current_setting('server_version_num')")) or 0)
                break
            except (SQLAlchemyError, OSError) as error:
                if time.monotonic() >= give_up_at:
                    raise DatabaseUnavailable(
                        f"The database {self._name} can't be reached: {self._reason(error)}. "
                        "Check ROUTEPROOF_DATABASE_URL (or database_url), or unset it to use the embedded server."
                    ) from None
            await asyncio.sleep(0.2)
        if version < MINIMUM_MAJOR * 10_000:
            raise DatabaseUnavailable(
                f"The database {self._name} is PostgreSQL {version // 10_000}: {MINIMUM_MAJOR} or newer is needed."
            )

    @property
    def _name(self) -> str:
        """The address without user, password and parameters."""
        host = self.url.host or self.url.query.get("host") or "the local socket"
        port = f":{self.url.port}" if self.url.port else ""
        return f"{self.url.database or ''} on {host}{port}".strip()

    def _reason(self, error: Exception) -> str:
        words = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
        line = words.splitlines()[0]
        hidden = [self.url.password, self.url.query.get("password")]
        for secret in hidden:
            if isinstance(secret, str) and secret:
                line = line.replace(secret, "***")
        return line


def open_database(database_url: str | None, data_dir: Path) -> Database:
    """The database at `database_url`, or without one the embedded server that lives under `data_dir`.

    Nothing is started or connected yet. Raises `DatabaseUnavailable` for an address that isn't PostgreSQL's.
    """
    if database_url is not None:
        return Database(_parse(database_url))
    try:
        from service.database.embedded import EmbeddedServer
    except ImportError:  # no fcntl, no pwd
        raise DatabaseUnavailable(
            "The embedded PostgreSQL needs Linux or macOS: set ROUTEPROOF_DATABASE_URL to a PostgreSQL server."
        ) from None
    server = EmbeddedServer(data_dir)
    return Database(server.url, server)


def make_engine(url: URL) -> AsyncEngine:
    """A pool of 4 + 2 connections that a transaction-pooling pgbouncer may stand in front of.

    Hence no prepared statements, no startup options and no session settings: the time limits of a statement (5 s)
    and of an idle transaction (10 s) are set inside each transaction, because a plain SET would stay behind on a
    server connection that serves others next.
    """
    engine = create_async_engine(
        url,
        pool_size=4,
        max_overflow=2,
        pool_timeout=CONNECT_TIMEOUT_S,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"prepare_threshold": None, "connect_timeout": CONNECT_TIMEOUT_S, "tcp_user_timeout": 10_000},
    )
    event.listen(engine.sync_engine, "begin", _bound)
    return engine


async def upgrade(database: Database) -> None:
    """Bring the tables to this release's revision. Several processes may do so at once.

    Raises `DatabaseUnavailable` when another upgrade doesn't end, or when the tables are of a much newer release.
    """
    from service.database import migrate  # Alembic takes a while to import

    await _to_the_end(lambda: migrate.upgrade(database.url))


def _bound(connection: Connection) -> None:
    connection.exec_driver_sql(_BOUNDS)


def _parse(database_url: str) -> URL:
    advice = "Write it as postgresql://user:password@host:5432/database, with special characters percent-encoded."
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):
        raise DatabaseUnavailable(f"The database address can't be read. {advice}") from None
    if url.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise DatabaseUnavailable(f"The database address isn't one of PostgreSQL. {advice}")
    return url.set(drivername="postgresql+psycopg")


async def _to_the_end(work: Any) -> None:
    """Run blocking work in a thread and, when cancelled meanwhile, wait for its end before saying so."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        running.exception()
        raise
