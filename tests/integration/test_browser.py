"""Pages in a real browser: they fit a phone, work without scripts, and show state by more than colour."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.async_api import Browser

from service.model import Status
from tests.browser import IN_A_BROWSER, browser, browsing
from tests.samples import MIXED, View, row, snapshot, standing

__all__ = ["browser"]

pytestmark = IN_A_BROWSER

QWEN = "/routes/qwen3-235b-a22b-instruct-2507"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_pages_fit_the_screen_and_break_no_rule_of_their_policy(
    browser: Browser, width: int, scheme: str
) -> None:
    async with browsing(browser, width, scheme) as (page, complaints):
        for path in ("/", QWEN, "/routes/mistral"):
            await page.goto(path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            loaded = await page.evaluate("document.styleSheets.length && document.styleSheets[0].cssRules.length")
            assert loaded > 50
        assert complaints == []


CAPABLE = View(
    snapshot(
        *(row(name, state=standing()) for name in ("strict", "tolerant")),
        *(
            row(name, contract=contract, required=False, state=state, last=last)
            for name, state in (
                ("strict", standing(Status.HISTORY_REJECTED, reason="http_400")),
                ("tolerant", standing(Status.HISTORY_ACCEPTED)),
            )
            for contract, last in (
                ("undeclared_tool_history", None),
                ("displaced_tool_results", None),
                ("tool_choice_none_history", None),
            )
        ),
        row(
            "strict",
            contract="mixed_result_carrier",
            required=False,
            last=standing(Status.NOT_SENT, reason="not_in_dialect"),
        ),
    )
)


@pytest.mark.parametrize("width", [320, 390, 700, 1280])
async def test_the_matrix_is_read_by_roles_at_any_width_and_leads_to_the_contract(browser: Browser, width: int) -> None:
    async with browsing(browser, width, view=CAPABLE) as (page, complaints):
        await page.goto("/")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        table = page.get_by_role("table", name="Informational contracts by route")
        strict = table.get_by_role("row", name="acme/strict")
        assert await strict.get_by_role("rowheader").inner_text() == "acme/strict"
        cells = [text.split() for text in await strict.get_by_role("cell").all_inner_texts()]
        assert cells == [["refused"], ["refused"], ["refused"], ["not", "in", "this", "dialect"]]
        whole = "e => e.scrollWidth <= e.clientWidth + 1"
        for cell in await table.get_by_role("cell").all():
            assert await cell.evaluate(whole)
        await strict.get_by_role("link", name="refused").nth(1).click()
        assert page.url.endswith("/routes/strict#displaced_tool_results")
        assert await page.get_by_text("Hoist the results").is_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert complaints == []


@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_no_cell_of_a_table_is_cut_off(browser: Browser, width: int) -> None:
    async with browsing(browser, width) as (page, _):
        for path in ("/", QWEN):
            await page.goto(path)
            cut = await page.evaluate(
                "[...document.querySelectorAll('main td, main th')].filter(e => {"
                " const table = e.closest('table').getBoundingClientRect(), cell = e.getBoundingClientRect();"
                " return e.scrollWidth > e.clientWidth + 1 || cell.right > table.right + 1; }).map(e => e.innerText)"
            )
            assert cut == []


async def test_what_a_reader_opened_stays_open_over_a_refresh_and_works_without_scripts(browser: Browser) -> None:
    for script in (True, False):
        async with browsing(browser, view=CAPABLE, script=script) as (page, _):
            await page.goto("/routes/strict")
            told = page.get_by_text("It happens when a user steers an agent")
            assert not await told.is_visible()
            await page.locator("#displaced_tool_results summary").first.click()
            assert await told.is_visible()
            await page.reload()
            assert await told.is_visible() is script


async def test_dark_and_light_differ(browser: Browser) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        async with browsing(browser, scheme=scheme) as (page, _):
            await page.goto("/")
            colours.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


async def test_an_operator_finds_what_is_broken_without_scripts_by_roles_alone(browser: Browser) -> None:
    async with browsing(browser, script=False) as (page, _):
        await page.goto("/")
        assert (await page.get_by_role("heading", level=1).inner_text()).startswith("2 of 7 routes cannot carry a turn")
        broken = page.get_by_role("row", name="openrouter/qwen3-235b-a22b-instruct-2507")
        for words in ("Broken", "Stream ends early", "4 min", "Fail over"):
            assert words in await broken.inner_text()
        await broken.get_by_role("link").click()
        assert await page.get_by_role("heading", level=2, name="What to do").is_visible()
        assert await page.get_by_role("heading", level=2, name="Recent verdicts").is_visible()


async def test_stale_and_unknown_differ_from_healthy_in_shape_and_words(browser: Browser) -> None:
    async with browsing(browser) as (page, _):
        await page.goto("/")
        seen = {}
        for name in ("openai/gpt-4o-mini", "openrouter/deepseek-v3", "openrouter/kimi-k2"):
            state = page.get_by_role("row", name=name).locator(".state")
            seen[(await state.inner_text()).strip()] = await state.locator("use").get_attribute("href")
        assert seen == {"Works": "#i-proven", "Works, stale": "#i-stale", "Unknown": "#i-unknown"}


async def test_every_shape_that_pages_use_is_drawn(browser: Browser) -> None:
    async with browsing(browser) as (page, _):
        for path in ("/", QWEN, "/routes/claude"):
            await page.goto(path)
            missing = await page.evaluate(
                "[...document.querySelectorAll('use')].map(u => u.getAttribute('href'))"
                ".filter(h => !document.querySelector(h))"
            )
            assert missing == []


async def test_the_keyboard_reaches_the_routes_and_shows_where_it_is(browser: Browser) -> None:
    async with browsing(browser) as (page, _):
        await page.goto("/")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
        await page.keyboard.press("Enter")
        reached = []
        for _ in range(6):
            await page.keyboard.press("Tab")
            reached.append(await page.evaluate("document.activeElement.name || document.activeElement.textContent"))
        assert reached == ["q", "provider", "outcome", "tag", "Show", "openrouter/qwen3-235b-a22b-instruct-2507"]
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


async def test_a_lost_database_is_an_alert_on_top(browser: Browser) -> None:
    async with browsing(browser, 390, view=View(MIXED, age_s=400, database_up=False)) as (page, _):
        await page.goto("/")
        assert "This is what was known 6 min ago" in await page.get_by_role("alert").inner_text()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_an_endless_word_does_not_widen_a_phone(browser: Browser) -> None:
    word = "x" * 400
    state = replace(
        standing(Status.PROVIDER_ERROR, reason=word, detail=word, quirks=(word,), rule_id=word), served_model=word
    )
    endless = row(
        "endless", state=state, name=word, provider=word, contract=word, location=word, url=word, tags=(word,)
    )
    async with browsing(browser, 390, view=View(snapshot(endless))) as (page, _):
        for path in ("/", "/routes/endless"):
            await page.goto(path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390
