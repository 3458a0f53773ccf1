"""What people do from the pages, in a real browser without scripts, over a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from service.database import open_database
from service.metrics import ProcessMetrics
from service.model import Pause, PauseScope, Secret
from service.store import Board
from service.web.access import Access
from service.web.app import create_app
from tests.browser import IN_A_BROWSER, browser, hold_time, opened, running, served
from tests.integration.test_store import World, cell, verdict
from tests.samples import MINUTE, MIXED, NOW, View
from tests.web import OPERATE, READ

__all__ = ["browser"]

pytestmark = IN_A_BROWSER

LOCKED = Access(Secret(READ), Secret(OPERATE), True, "http://127.0.0.1")
PAGE = "/routes/alpha"
PAUSE = Pause(UUID(int=7), PauseScope.PROVIDER, "openrouter", NOW, NOW + 48 * MINUTE, False, "announced works", "Ada")
PAUSED = View(replace(MIXED, pauses=(PAUSE,)), age_s=2)
QWEN = "/routes/qwen3-235b-a22b-instruct-2507"


@asynccontextmanager
async def probed(database_url: str) -> AsyncIterator[tuple[World, str]]:
    """A route with one cell, and the address of its pages."""
    async with open_database(database_url, Path()) as database:
        world = World(database.engine)
        await world.store.ensure_partitions()
        await world.sync(cell())
        app = create_app(
            Board(world.store),
            world.store,
            ProcessMetrics("here", "0"),
            access=lambda: LOCKED,
            because={},
            faults=list,
        )
        async with running(app) as url:
            yield world, url


async def log_in(page: Page, token: str = OPERATE) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Log in").click()


async def told(page: Page) -> str:
    return await page.get_by_role("status").inner_text()


async def test_a_route_is_asked_now_and_never_twice_at_once(browser: Browser, database_url: str) -> None:
    async with probed(database_url) as (world, url), opened(browser, url, script=False) as (page, _):
        await world.ask()
        await world.sql("UPDATE latest SET last_observed_at = now() - interval '70 seconds'")
        assert await world.store.claim("here", "0123456789abcdef", 10) == []
        await page.goto(PAGE)
        await log_in(page)
        assert page.url == f"{url}{PAGE}"
        await page.get_by_role("button", name="Ask now").click()
        assert await told(page) == "Asked now: native_tools."
        (claim,) = await world.store.claim("here", "0123456789abcdef", 10)
        await page.get_by_role("button", name="Ask now").click()
        assert await told(page) == "Being asked already: native_tools."
        assert await world.store.claim("here", "0123456789abcdef", 10) == []
        assert await world.store.save([(claim, verdict(claim))])
        await page.get_by_role("button", name="Ask now").click()
        assert "Asked less than a minute ago, so not again yet: native_tools." in await told(page)
        assert await world.store.claim("here", "0123456789abcdef", 10) == []
        await page.goto(PAGE)
        await expect(page.get_by_role("status")).to_have_count(0)


async def test_a_pause_is_set_shown_and_ended_and_a_session_too(browser: Browser, database_url: str) -> None:
    async with probed(database_url) as (world, url), opened(browser, url, 390, script=False) as (page, _):
        await page.goto(PAGE)
        await log_in(page)
        await page.get_by_role("link", name="Pause…").click()
        await page.get_by_label("All routes of acme").check()
        await page.get_by_label("For how long").select_option("Other")
        await page.get_by_label("Hours, if other").fill("2.5")
        await page.get_by_label("Why").fill("new <disks>")
        await page.get_by_label("Your name").fill("Ada")
        await page.get_by_role("button", name="Pause").click()
        (pause,) = await world.store.pauses()
        assert (pause.target, pause.until - pause.since, pause.stops) == ("acme", 150 * MINUTE, False)
        sentence = "Provider acme is muted until"
        assert sentence in await page.get_by_role("list", name="Pauses").inner_text()
        await page.goto("/?q=alpha")
        assert "muted until" in await page.get_by_role("row", name="acme/alpha").inner_text()
        head = page.get_by_role("banner")
        assert sentence in await head.inner_text()
        assert "new <disks> (by Ada)." in await head.inner_text()
        await head.get_by_role("button", name="End the pause of provider acme").click()
        assert page.url == f"{url}/?q=alpha"
        assert "muted" not in await page.locator("body").inner_text()
        assert await world.store.pauses() == []
        await page.get_by_role("button", name="Log out").click()
        await page.goto(PAGE)
        assert await page.get_by_role("heading", level=1).inner_text() == "Log in"


async def test_a_page_that_renews_itself_leaves_the_buttons_where_they_are(browser: Browser) -> None:
    async with served(PAUSED, LOCKED) as server, opened(browser, server.url) as (page, complaints):
        await hold_time(page)
        await page.goto(f"{QWEN}?at={int(NOW.timestamp())}&due=native_tools%40default")
        await log_in(page)
        complaints.clear()  # of the login: that one was needed
        assert await told(page) == "Asked now: native_tools."
        button = page.get_by_role("button", name="Ask now")
        await page.wait_for_load_state()  # its scripts count the time from when they run
        server.board.shown = replace(PAUSED, age_s=62)
        await page.clock.run_for(15_000)
        await expect(page.get_by_role("status")).to_have_count(0)
        await button.focus()
        server.board.shown = replace(PAUSED, age_s=77)
        await page.clock.run_for(15_000)
        await expect(page.get_by_text("data 1 min old")).to_be_visible()
        assert await button.evaluate("e => e === document.activeElement")
        assert complaints == []


async def test_axe_finds_no_violation_in_the_forms(browser: Browser) -> None:
    asked = f"{QWEN}?at={int(NOW.timestamp())}&due=native_tools%40default"
    for width, scheme, paths in ((320, "light", ("/login", "/", asked, f"{QWEN}/pause")), (1280, "dark", (asked,))):
        async with served(PAUSED, LOCKED) as server, opened(browser, server.url, width, scheme) as (page, _):
            await page.goto("/login")
            await log_in(page)
            for path in paths:
                await page.goto(path)
                found = await Axe().run(page)
                assert found.violations_count == 0, f"{path}: {found.generate_report()}"
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
