"""The PostgreSQL that the tests run against: one server, a template migrated once, a clone for each test.

`TEST_DATABASE_URL` names a server to use (its user must be allowed to create databases). Without it a Docker engine
that answers within 2 s runs one in a container, and without that the embedded server is used.
`TEST_DATABASE=docker` or `embedded` asks for one of the two, and fails when it can't be had.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from service.database import open_database, upgrade
from service.store import Store

IMAGE = "postgres:17-alpine"
DOCKER_PATIENCE_S = 2


class Source(StrEnum):
    ADDRESS = "address"
    DOCKER = "docker"
    EMBEDDED = "embedded"


class NoDatabaseError(Exception):
    """What was asked for by name can't be had."""


def choose(environ: Mapping[str, str], docker_answers: Callable[[], bool]) -> Source:
    """Where the tests' PostgreSQL comes from. Docker is asked only where its answer matters."""
    if environ.get("TEST_DATABASE_URL"):
        return Source.ADDRESS
    wish = environ.get("TEST_DATABASE", "")
    if wish == "embedded":
        return Source.EMBEDDED
    if wish not in ("", "docker"):
        raise NoDatabaseError(f"TEST_DATABASE is {wish!r}: it may be `docker`, `embedded` or unset")
    if docker_answers():
        return Source.DOCKER
    if wish == "docker":
        raise NoDatabaseError("TEST_DATABASE asks for Docker, and no Docker engine answers")
    return Source.EMBEDDED


def docker_answers(environ: Mapping[str, str]) -> bool:
    """Whether a Docker engine answers. Its client is imported only where there may be one."""
    if not environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return False
    import docker

    try:
        client = docker.from_env(timeout=DOCKER_PATIENCE_S)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return False


@contextmanager
def server(environ: Mapping[str, str]) -> Iterator[str]:
    """A running server with nothing of ours in it yet; yields the URL of its maintenance database."""
    source = choose(environ, lambda: docker_answers(environ))
    if source is Source.ADDRESS:
        yield environ["TEST_DATABASE_URL"]
    elif source is Source.DOCKER:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library's own making
            from testcontainers.community.postgres import PostgresContainer

            with PostgresContainer(IMAGE, driver="psycopg") as container:
                yield container.get_connection_url()
    else:
        folder = Path(tempfile.mkdtemp(prefix="routeproof-tests-"))
        database = open_database(None, folder)
        asyncio.run(database.start())
        try:
            url = database.url.render_as_string(hide_password=False)
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):  # nothing here outlives a crash
                _administrate(url, sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
            _administrate(url, sql.SQL("SELECT pg_reload_conf()"))
            yield url
        finally:
            asyncio.run(database.stop())
            shutil.rmtree(folder)


@contextmanager
def template(server_url: str) -> Iterator[str]:
    """A migrated database to clone from; yields its URL."""
    with empty_database(server_url, f"routeproof_test_{uuid.uuid4().hex[:8]}") as url:
        asyncio.run(_migrate(url))
        yield url


@contextmanager
def template_on_server(environ: Mapping[str, str]) -> Iterator[str]:
    with server(environ) as server_url, template(server_url) as url:
        yield url


@contextmanager
def clone(template_url: str) -> Iterator[str]:
    """A database of one's own, made from the template; yields its URL."""
    name = make_url(template_url).database
    assert name is not None
    with empty_database(template_url, f"{name}_{uuid.uuid4().hex[:8]}", of=name) as url:
        yield url


@contextmanager
def empty_database(server_url: str, name: str, of: str = "template1") -> Iterator[str]:
    _administrate(
        server_url, sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(of))
    )
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        _administrate(server_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def _migrate(url: str) -> None:
    async with open_database(url, Path()) as database:
        await upgrade(database)
        await Store(database.engine).ensure_partitions()


def _administrate(server_url: str, statement: sql.Composable) -> None:
    url = make_url(server_url).set(drivername="postgresql", database="postgres")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(statement)
