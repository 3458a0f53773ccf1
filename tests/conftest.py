"""Fixtures that several test files share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.database import open_database
from service.store import Store
from tests import postgres

# Under xdist the one server belongs to the controlling process: workers end at different times.
_for_workers = ExitStack()
_template = pytest.StashKey[str]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    shared = node.config.stash.get(_template, None)
    if shared is None:
        shared = _for_workers.enter_context(postgres.template_on_server(os.environ))
        node.config.stash[_template] = shared
    node.workerinput["postgres_template"] = shared


def pytest_unconfigure() -> None:
    _for_workers.close()


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a migrated database to clone from; nothing may connect to it."""
    given = getattr(request.config, "workerinput", {}).get("postgres_template")
    if given is not None:
        yield given
        return
    with postgres.template_on_server(os.environ) as url:
        yield url


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """The URL of a migrated database of this test's own."""
    with postgres.clone(postgres_url) as url:
        yield url


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    async with open_database(database_url, Path()) as database:
        yield database.engine


@pytest.fixture
def store(engine: AsyncEngine) -> Store:
    return Store(engine)
