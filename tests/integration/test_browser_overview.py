"""The overview in a real browser: filters, how it renews itself, what a reader with a screen reader or a phone gets."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from service.model import Pause, PauseScope, Secret, Status
from service.web.access import Access
from service.web.last_day import Day
from tests.browser import IN_A_BROWSER, OPEN, browser, browsing, hold_time, opened, served
from tests.samples import MINUTE, MIXED, NOW, View, prober, row, snapshot, standing

__all__ = ["browser"]

pytestmark = IN_A_BROWSER

QWEN = "openrouter/qwen3-235b-a22b-instruct-2507"
LOCKED = Access(Secret("read-0123456789"), Secret("operate-0123456789"), True, "http://127.0.0.1")
DAY = Day({"gpt-4o-mini": (281, 287)}, {"gpt-4o-mini": (*[0.2 + n / 40 for n in range(22)], None, 0.5)})
PAUSE = Pause(UUID(int=1), PauseScope.ROUTE, "llama-local", NOW - MINUTE, NOW + 48 * MINUTE, False, "new disks", "ops")
TROUBLED = View(
    snapshot(
        *MIXED.cells,
        row("gpt-4o-mini", provider="openai", contract="displaced_tool_results", required=False, state=standing()),
        pauses=(PAUSE,),
        probers=(prober("default"), prober("us", egress_up=False), prober("us", superseded=True, spooled=3)),
    ),
    age_s=2,
)
FLEET = View(
    snapshot(
        *(
            row(
                f"r{n:03}",
                provider=f"p{n % 20}",
                tags=("prod",),
                state=standing(Status.TIMEOUT if n % 50 == 1 else Status.TOOLS_SUPPORTED),
            )
            for n in range(260)
        )
    )
)


async def routes(page: Page) -> list[str]:
    return await page.locator(".routes tbody th[scope=row] a").all_inner_texts()


PAGES = {
    "overview": (TROUBLED, OPEN, "/"),
    "route": (TROUBLED, OPEN, "/routes/qwen3-235b-a22b-instruct-2507"),
    "away": (View(MIXED, age_s=400, database_up=False), OPEN, "/"),
    "login": (TROUBLED, LOCKED, "/login"),
    "changes": (TROUBLED, OPEN, "/transitions"),
    "nothing found": (TROUBLED, OPEN, "/?q=nothing&outcome=splendid"),
    "many": (FLEET, OPEN, "/?size=25"),
    "public": (TROUBLED, LOCKED, "/"),
    "fault": (TROUBLED, OPEN, "/nowhere"),
}


@pytest.mark.parametrize(("width", "scheme", "pages"), [(320, "light", list(PAGES)), (1280, "dark", list(PAGES)[:5])])
async def test_axe_finds_no_violation(browser: Browser, width: int, scheme: str, pages: list[str]) -> None:
    for name in pages:
        view, access, path = PAGES[name]
        async with served(view, access, DAY) as server, opened(browser, server.url, width, scheme) as (page, _):
            await page.goto(path)
            found = await Axe().run(page)
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, name


async def test_filters_work_without_scripts_and_stand_in_the_url(browser: Browser) -> None:
    async with browsing(browser, script=False, view=TROUBLED) as (page, _):
        await page.goto("/")
        await page.get_by_label("Name, id or model").fill("OPENROUTER")
        await page.get_by_label("State").select_option("Broken")
        await page.get_by_role("button", name="Show").click()
        assert page.url.endswith("/?q=OPENROUTER&provider=&outcome=violated&tag=")
        assert await routes(page) == [QWEN]
        assert await page.get_by_label("Name, id or model").input_value() == "OPENROUTER"
        await page.get_by_label("Tag").select_option("eu")
        await page.get_by_label("State").select_option("Works")
        await page.get_by_role("button", name="Show").click()
        assert await page.get_by_text("No route matches.").is_visible()
        await page.get_by_role("link", name="Show all routes").click()
        assert len(await routes(page)) == 7


async def test_providers_of_many_routes_open_by_a_link_and_pages_lead_on(browser: Browser) -> None:
    async with browsing(browser, 390, script=False, view=FLEET) as (page, _):
        await page.goto("/?tag=prod")
        assert (await routes(page))[:3] == ["p1/r001", "p1/r101", "p1/r201"]
        await page.get_by_role("link", name="Next").click()
        await page.get_by_role("link", name="Next").click()
        assert page.url.endswith("/?tag=prod&page=3")
        assert await page.get_by_text("routes 201 to 260 of 260").is_visible()
        await page.get_by_text("8 more providers").click()
        await page.get_by_role("link", name="p19", exact=True).click()
        assert page.url.endswith("/?provider=p19&tag=prod")
        assert len(await routes(page)) == 13


async def test_a_page_renews_itself_in_place_and_keeps_what_is_typed(browser: Browser) -> None:
    async with served(View(MIXED, age_s=2)) as server, opened(browser, server.url) as (page, complaints):
        await hold_time(page)
        await page.goto("/?outcome=violated")
        assert await routes(page) == [QWEN]
        field = page.get_by_label("Name, id or model")
        await field.fill("half a wo")
        server.board.shown = View(
            snapshot(
                *(
                    replace(
                        row("new", state=standing(Status.STREAM_EARLY_EOF)),
                    ),
                )
            ),
            age_s=3,
        )
        await page.clock.run_for(15_000)
        await expect(page.get_by_role("link", name="acme/new")).to_be_visible()
        assert await field.input_value() == "half a wo"
        assert await field.evaluate("e => e === document.activeElement")
        assert "1 of 1 broken" in await page.title()
        assert page.url.endswith("/?outcome=violated")
        assert complaints == []


async def test_the_keyboard_stays_where_it_was_over_a_renewal(browser: Browser) -> None:
    async with served(View(MIXED, age_s=2)) as server, opened(browser, server.url) as (page, _):
        await hold_time(page)
        await page.goto("/")
        await page.get_by_role("link", name="openai/gpt-4o-mini").focus()
        server.board.shown = View(MIXED, age_s=62)
        await page.clock.run_for(15_000)
        await expect(page.get_by_text("data 1 min old")).to_be_visible()
        assert await page.evaluate("document.activeElement.textContent") == "openai/gpt-4o-mini"


async def test_a_page_whose_server_died_stays_and_greys_itself_and_comes_back(browser: Browser) -> None:
    async with served(View(MIXED, age_s=2)) as server, opened(browser, server.url) as (page, _):
        await page.emulate_media(reduced_motion="reduce")
        await hold_time(page)
        await page.goto("/")
        notice = page.get_by_text("This page has stopped refreshing.")
        await page.route("**", lambda route: route.abort())
        await page.clock.run_for(44_000)
        await expect(notice).to_be_hidden()
        await page.clock.run_for(3_000)
        await expect(notice).to_be_visible()
        assert await page.locator("main").evaluate("e => getComputedStyle(e).filter") == "grayscale(1)"
        assert len(await routes(page)) == 7
        await page.unroute("**")
        await page.clock.run_for(15_000)
        await expect(notice).to_be_hidden()


async def test_without_scripts_the_browser_loads_the_page_again(browser: Browser) -> None:
    for script in (True, False):
        async with browsing(browser, script=script) as (page, _):
            await page.goto("/?tag=eu")
            assert await page.locator("noscript meta[http-equiv=refresh]").count() == (0 if script else 1)


async def test_the_head_says_what_is_not_well_and_what_is_muted(browser: Browser) -> None:
    async with browsing(browser, 390, script=False, view=TROUBLED) as (page, _):
        await page.goto("/")
        head = await page.get_by_role("banner").inner_text()
        assert (
            "as of 03:12:09 UTC, data 2 s old, 2 probers, none in eu, database ok, egress down in us"
            in head.replace("\n", " ")
        )
        ill = await page.locator(".asof .ill").all_inner_texts()
        assert ill == ["2 probers, none in eu", "egress down in us"]
        told = await page.locator(".notices").inner_text()
        for words in (
            "No prober of eu",
            "3 verdicts wait",
            "Route llama-local is muted until 04:00:07 UTC: new disks (by ops).",
        ):
            assert words in told
        assert "1 more is muted and not well" in await page.get_by_role("heading", level=1).inner_text()
        muted = page.get_by_role("row", name="self-hosted/llama-local")
        assert "muted until 04:00:07 UTC" in await muted.inner_text()
        assert await muted.locator("use[href='#i-muted']").count() == 1


async def test_the_public_page_has_names_and_states_and_nothing_else(browser: Browser) -> None:
    async with served(TROUBLED, LOCKED, DAY) as server, opened(browser, server.url, 390) as (page, complaints):
        await page.goto("/?tag=eu&q=qwen")
        said = await page.locator("body").inner_text()
        for words in (QWEN, "Broken", "mistral/mistral", "Works in part", "Log in"):
            assert words in said
        for words in ("native_tools", "Stream ends early", "97.9", "new disks", "prober", "us", "model-1"):
            assert f" {words} " not in f" {said} "
        assert await page.locator("main a[href^='/routes']").count() == 0
        assert complaints == []


async def test_the_line_of_first_tokens_and_the_share_have_their_words(browser: Browser) -> None:
    async with served(TROUBLED, OPEN, DAY) as server, opened(browser, server.url) as (page, _):
        await page.goto("/")
        line = await page.get_by_role("row", name="openai/gpt-4o-mini").first.inner_text()
        assert "500 ms" in line
        assert "97.9 %" in line
        assert "281 of 287" in line
        title = page.get_by_role("img").first.locator("title")
        assert "Time to first token: last 500 ms" in str(await title.text_content())


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
async def test_nothing_moves_for_who_wants_no_motion(browser: Browser, motion: str) -> None:
    async with browsing(browser) as (page, _):
        await page.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]
        await page.goto("/")
        moved = await page.evaluate(
            "document.documentElement.classList.add('old'),"
            "getComputedStyle(document.querySelector('main')).transitionDuration"
        )
        assert moved == ("0s" if motion == "reduce" else "0.3s, 0.3s")
