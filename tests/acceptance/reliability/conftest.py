"""One server for all tests of this folder, a database for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import open_folder
from tests.acceptance.reliability.stage import Server, postgresql


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with postgresql() as server:
        yield server


@pytest.fixture
def server(one_server: Server) -> Server:
    return one_server.fresh()


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path
