"""Pages in a real browser: a server over hand-made parts, and a page that is pointed at it."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import pytest
import pytest_asyncio
import uvicorn
from fastapi import FastAPI
from playwright.async_api import Browser, Page, async_playwright, expect

from service.metrics import ProcessMetrics
from service.model import Route
from service.web.access import Access
from service.web.app import create_app
from service.web.last_day import Day
from tests.samples import BECAUSE, MIXED, NOW, SECOND, STORIES, Board, History, View

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
IN_A_BROWSER = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.asyncio(loop_scope="module"),
]
OPEN = Access(external_url="http://127.0.0.1")
PATIENCE_MS = 90_000
"""How long what must come is waited for: it bounds a hang, and says nothing of how fast a page is."""
expect.set_options(timeout=PATIENCE_MS)


class Running:
    """An application that a browser can reach, until it is stopped."""

    def __init__(self, app: FastAPI) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="off"))
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._running = asyncio.create_task(self._server.serve(sockets=[self._listening]))

    async def stop(self) -> None:
        self._server.should_exit = True
        await self._running
        self._listening.close()


class Served(Running):
    """The pages over a board whose view can be changed."""

    def __init__(self, view: View, access: Access, day: Day, history: History, routes: Mapping[str, Route]) -> None:
        self.board = Board(view)
        app = create_app(
            self.board,
            history,
            ProcessMetrics("default", "0"),
            access=lambda: access,
            because=BECAUSE,
            faults=list,
            last_day=lambda: day,
            routes=lambda: routes,
        )
        super().__init__(app)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[str]:
    """The address of an application."""
    server = Running(app)
    try:
        yield server.url
    finally:
        await server.stop()


@asynccontextmanager
async def served(
    view: View,
    access: Access = OPEN,
    day: Day = Day(),  # noqa: B008 - frozen
    history: History | None = None,
    routes: Mapping[str, Route] = MappingProxyType({}),
) -> AsyncIterator[Served]:
    server = Served(view, access, day, history or History(STORIES), routes)
    try:
        yield server
    finally:
        await server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        await launched.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, width: int = 1280, scheme: str = "light", script: bool = True
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page of a browser, and what its console complained of."""
    page = await browser.new_page(
        base_url=url,
        viewport={"width": width, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]
        java_script_enabled=script,
    )
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page, complaints
    await page.close()


async def hold_time(page: Page) -> None:
    """From now on time passes for the page only when `page.clock` has it pass."""
    await page.clock.install(time=NOW)
    await page.clock.pause_at(NOW + SECOND)


@asynccontextmanager
async def browsing(
    browser: Browser, width: int = 1280, scheme: str = "light", script: bool = True, view: View | None = None
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page of a browser pointed at the pages, and what its console complained of."""
    async with (
        served(view or View(MIXED, age_s=2)) as server,
        opened(browser, server.url, width, scheme, script) as page,
    ):
        yield page
