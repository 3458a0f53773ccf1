"""The page of a route and the list of changes in a real browser: what a reader finds, with and without scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from service.model import (
    ChangeKind,
    Confirmed,
    Mark,
    Outcome,
    Pause,
    PauseScope,
    Route,
    Rung,
    SecretRef,
    Span,
    Spend,
    Status,
    Transition,
)
from service.web.views.past import WINDOWS
from tests.browser import IN_A_BROWSER, OPEN, browser, opened, served
from tests.samples import MINUTE, NOW, SECOND, History, View, row, snapshot, standing, stored

__all__ = ["browser"]

pytestmark = IN_A_BROWSER

ID = "gpt-4o-mini"
PATH = f"/routes/{ID}"
BAD = replace(
    standing(
        Status.PROVIDER_ERROR,
        MINUTE,
        reason="http_503",
        rule_id="native_tools.auto_failed",
        detail='{"error":{"message":"The server had an error while processing your request. Sorry about that!"}}',
    ),
    id=UUID(int=22),
)
GOOD = replace(standing(ago=9 * MINUTE), id=UUID(int=21))
FORCED = Rung("forced", "tools, choice forced", "read as far as needed", "call", 200, "", 1.4, 0.3, 0.4)
REFUSED = Rung("forced", "tools, choice forced", "the body ended", "refused (http_503)", 503, BAD.detail, 0.9, 0.8)
CONTROL = Rung("control", "no tools", "the body ended", "refused (http_503)", 503, BAD.detail, 0.7, 0.6)


def mark(verdict: Any, **changes: Any) -> Mark:
    known = Mark(
        verdict.id,
        verdict.status,
        verdict.outcome,
        verdict.reason,
        verdict.observed_at,
        "gpt-4o-mini-2024-07-18",
        "f1",
        7,
        "1.0",
    )
    return replace(known, **changes)


BROKEN = Confirmed(
    proven=False,
    since=NOW - 4 * MINUTE,
    regressed_since=NOW - 4 * MINUTE,
    last_good=mark(GOOD),
    last_bad=mark(BAD),
    first_bad=mark(BAD, served_model="gpt-4o-mini-2025-02-11"),
    askings_left=9,
)


def cells() -> list[Any]:
    """Fifteen routes of one provider, of which fourteen fail alike."""
    found = []
    for number in range(15):
        works = number == 14
        made = row(
            ID if number == 0 else f"model-{number}",
            provider="openai",
            state=standing() if works else BAD,
            state_since=NOW - 4 * MINUTE,
            last_proven_at=NOW - 9 * MINUTE,
            next_due_at=NOW + 40 * SECOND,
            counts={Outcome.PROVEN: 8120, Outcome.UNAVAILABLE: 3},
            tags=("prod",),
        )
        cell = replace(
            made.cell,
            host="api.openai.com:443",
            credential="env:OTHER_KEY" if works else "env:OPENAI_API_KEY",
            route_interval=MINUTE,
        )
        priced = replace(
            made.route,
            status_url="https://status.openai.com/",
            tokens_per_day=200_000,
            input_per_million=0.15,
            output_per_million=0.6,
            currency="USD",
        )
        found.append(replace(made, cell=cell, route=priced, confirmed=BROKEN if not works else Confirmed()))
    turn = row(ID, provider="openai", contract="agent_turn", state=standing(ago=2 * MINUTE, quirks=("usage_missing",)))
    shape = row(
        ID,
        provider="openai",
        contract="displaced_tool_results",
        required=False,
        state=standing(Status.HISTORY_REJECTED, reason="http_400"),
    )
    same = {"route": found[0].route}
    shared = {"host": "api.openai.com:443", "credential": "env:OPENAI_API_KEY"}
    return [*found, *(replace(each, cell=replace(each.cell, **shared), **same) for each in (turn, shape))]


PAUSE = Pause(UUID(int=9), PauseScope.ROUTE, ID, NOW - MINUTE, NOW + 48 * MINUTE, False, "moving house", "ops")
VIEW = View(
    snapshot(*cells(), pauses=(PAUSE,), spends={ID: Spend(1000, 234, 37, estimated=True)}),
    age_s=2,
)


def spans(window: str) -> list[Span]:
    """A window with a hole, a bad hour and a slow one."""
    chosen, made = WINDOWS[window], []
    since, _ = chosen.bounds(VIEW.now)
    for place in range(90):
        if 20 <= place < 26:
            continue
        bad = place >= 86 or place in (40, 41)
        slow = 50 <= place < 60
        made.append(
            Span(
                since + place * chosen.width,
                {Outcome.UNAVAILABLE: 3, Outcome.PROVEN: 1} if bad else {Outcome.PROVEN: 4},
                (0, 1, 2, 3 if slow else 1, 2 if slow else 0, *[0] * 7),
                (0, 0, 0, 3, 1 if slow else 0, 4 if slow else 0, *[0] * 6),
            )
        )
    return made


def change(number: int, kind: str, before: str | None, after: str, **more: Any) -> Transition:
    return Transition(
        at=NOW - timedelta(minutes=3 + 97 * number),
        route_id=ID,
        contract="native_tools" if kind != "informational" else "displaced_tool_results",
        location="default",
        kind=kind,
        from_status=before,
        from_reason=None,
        to_status=after,
        to_reason=more.pop("reason", None),
        changed=more.pop("changed", {}),
        id=100 - number,
    )


CHANGES = [
    change(
        0,
        ChangeKind.REGRESSION,
        "tools_supported",
        "provider_error",
        reason="http_503",
        changed={"served_model": {"from": "gpt-4o-mini-2024-07-18", "to": "gpt-4o-mini-2025-02-11"}},
    ),
    change(1, "informational", "history_accepted", "history_rejected", reason="http_400"),
    change(2, ChangeKind.RECOVERY, "rate_limited", "tools_supported"),
    change(3, ChangeKind.FIRST, None, "rate_limited", reason="http_429"),
]
HISTORY = History(
    {ID: [stored(BAD, rungs=(REFUSED, REFUSED, CONTROL)), stored(GOOD, rungs=(FORCED,))]},
    {ID: CHANGES},
    past={(ID, "native_tools"): [*spans("24h"), *spans("7d")]},
)
ROUTES = {
    ID: Route(
        ID,
        f"openai/{ID}",
        "openai",
        "openai-chat",
        "https://api.openai.com/v1",
        "gpt-4o-mini",
        key=SecretRef(env="OPENAI_API_KEY"),
        headers={"X-Title": "probe"},
    )
}


@asynccontextmanager
async def at(browser: Browser, path: str, *looks: Any, view: View = VIEW) -> AsyncIterator[tuple[Page, list[str]]]:
    async with (
        served(view, OPEN, history=HISTORY, routes=ROUTES) as server,
        opened(browser, server.url, *looks) as (page, complaints),
    ):
        await page.goto(path)
        yield page, complaints


async def fits(page: Page, width: int) -> None:
    """Nothing is wider than the screen, and no cell of a table is cut."""
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    cut = await page.evaluate(
        "[...document.querySelectorAll('main td, main th')].filter(e => {"
        " if (!e.offsetParent) return false;"
        " const table = e.closest('table').getBoundingClientRect(), cell = e.getBoundingClientRect();"
        " return e.scrollWidth > e.clientWidth + 1 || cell.right > table.right + 1; }).map(e => e.innerText)"
    )
    assert cut == []


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (390, "light"), (800, "dark"), (1280, "light")])
async def test_pages_fit_keep_their_policy_and_have_no_barrier(browser: Browser, width: int, scheme: str) -> None:
    for path in (PATH, "/transitions"):
        async with at(browser, path, width, scheme) as (page, complaints):
            await page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
            await fits(page, width)
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            assert complaints == []


async def test_the_page_says_at_once_what_is_broken_how_sure_and_how_far(browser: Browser) -> None:
    async with at(browser, PATH, 1280, "light", False) as (page, _):
        state = await page.get_by_role("region", name="State").inner_text()
        for words in (
            "Unavailable: provider error",
            "for 4 min, since 03:08:07 UTC",
            "Confirmed broken since 03:08:07 UTC, failing now.",
            "Muted until 04:00:07 UTC by ops: moving house.",
            "14 of 15 routes of openai fail alike since 03:08:07 UTC; all of them use the key env:OPENAI_API_KEY, and "
            "the other key works.",
            "Ask it now: routeproof check",
        ):
            assert words in state
        link = page.get_by_role("link", name="Status page of openai")
        assert await link.get_attribute("href") == "https://status.openai.com/"
        assert "noopener" in (await link.get_attribute("rel") or "")
        await page.get_by_text("By hand, with curl").click()
        assert "Bearer $OPENAI_API_KEY" in await page.locator("#by-hand pre").inner_text()


async def test_another_window_and_another_contract_are_a_link_away_without_scripts(browser: Browser) -> None:
    async with at(browser, PATH, 1280, "light", False) as (page, _):
        past = page.locator("#history")
        strip = past.get_by_role("img", name="History").first
        assert "violated" not in (await strip.locator("desc").text_content() or "")
        assert await past.locator(".strip .slot").count() == 90
        assert "without data" in await past.locator(".strip .legend").inner_text()
        await past.get_by_role("link", name="7 days").click()
        await expect(page.get_by_role("heading", name="History native_tools, 7 days")).to_be_visible()
        assert page.url.endswith(f"{PATH}?window=7d&contract=native_tools#history")
        await page.get_by_role("navigation", name="Contract", exact=True).get_by_role("link", name="agent_turn").click()
        await expect(page.get_by_role("heading", name="History agent_turn, 7 days")).to_be_visible()
        assert await page.get_by_text("No verdict of this contract in this window.").is_visible()
        await page.get_by_role("link", name="24 hours").click()
        await page.get_by_role("navigation", name="Contract", exact=True).get_by_role("link", name="native").click()
        await expect(page.get_by_role("heading", name="History native_tools, 24 hours")).to_be_visible()
        assert await past.locator(".strip .slot").count() == 90
        await past.get_by_text("The same in words").click()
        assert "4 proven" in await past.locator("#history-table").inner_text()


async def test_the_last_good_stands_beside_the_first_bad(browser: Browser) -> None:
    async with at(browser, PATH) as (page, _):
        table = page.get_by_role("table", name="Each request of the last good verdict beside that of the first bad one")
        rows = await table.get_by_role("row").all_inner_texts()
        assert [text.split("\n")[0].split("\t")[0] for text in rows[1:]] == ["forced", "forced, asked again", "control"]
        first = table.get_by_role("row", name="forced tools").first
        assert "200: call" in await first.inner_text()
        assert "503: refused (http_503)" in await first.inner_text()
        said = await page.locator("section.panel", has=table).inner_text()
        assert "served model gpt-4o-mini-2024-07-18 → gpt-4o-mini-2025-02-11" in said


async def test_changes_lead_from_the_page_to_the_list_and_back_to_the_contract(browser: Browser) -> None:
    async with at(browser, PATH, 1280, "light", False) as (page, _):
        await page.get_by_role("link", name="All changes of this route").click()
        assert page.url.endswith(f"/transitions?route={ID}")
        shown = page.get_by_role("table", name="Changes of state, the newest first")
        assert await shown.get_by_role("row").count() == 1 + len(CHANGES)
        await page.get_by_label("What").select_option("recovery")
        await page.get_by_role("button", name="Show").click()
        assert await shown.get_by_role("row").count() == 2
        assert "Works again" in await shown.inner_text()
        await shown.get_by_role("link", name=ID).click()
        assert page.url.endswith(f"{PATH}#native_tools")


async def test_a_lost_database_leaves_the_state_and_says_what_cannot_be_read(browser: Browser) -> None:
    lost = replace(VIEW, age_s=400, database_up=False)
    async with at(browser, PATH, 390, view=lost) as (page, complaints):
        assert await page.get_by_text("History can’t be read while the database can’t be reached.").count() == 3
        assert await page.get_by_text("Unavailable: provider error").is_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert complaints == []
