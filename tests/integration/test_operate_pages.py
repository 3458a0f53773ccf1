"""What people do from the pages, over HTTP: ask a route now, pause it, end a pause; and who may not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import UUID

import httpx
import pytest

from service.model import AskedNow, Pause, PauseScope, Secret
from service.web.access import SESSION_S, Access
from tests.integration.test_access import HERE, client, form_token, log_in
from tests.samples import MINUTE, MIXED, NOW, Board, View
from tests.web import OPERATE, READ, Clock, Store, send, web_app

PAGE = "/routes/mistral"
ID = UUID(int=7)
PAUSE = Pause(ID, PauseScope.PROVIDER, "mistral", NOW - MINUTE, NOW + 48 * MINUTE, True, "new <keys>", "Ada")
PAUSED = View(replace(MIXED, pauses=(PAUSE,)), age_s=2)
CHANGES = (f"{PAGE}/probe", f"{PAGE}/pause", f"/pauses/{ID}/end")
FORM = {"what": "route", "length": "4", "stops": "no", "reason": "new disks", "by": "Ada"}


@asynccontextmanager
async def operator(
    store: Store, view: View | None = None, clock: Clock | None = None, token: str = OPERATE
) -> AsyncIterator[tuple[httpx.AsyncClient, dict[str, str]]]:
    """Somebody who is logged in, and what goes into each of their forms."""
    async with client(web_app(view, store, clock=clock)) as browser:
        await log_in(browser, token)
        yield browser, {"form_token": await form_token(browser)}


async def post(browser: httpx.AsyncClient, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
    return await browser.post(path, data=fields, headers={**HERE, **headers})


def words(answer: httpx.Response) -> str:
    """The text of a page."""
    return " ".join(unescape(re.sub("<[^>]+>", " ", answer.text)).split())


def changed(store: Store) -> list[Any]:
    return [call for call in store.calls if call[0] in ("ask_now", "pause", "end_pause")]


@pytest.mark.parametrize("path", CHANGES)
async def test_a_form_changes_something_only_for_its_own_session_from_our_own_page(path: str) -> None:
    store = Store(paused={ID: PAUSE})
    async with operator(store) as (browser, secret), operator(store) as (_, theirs):
        for fields, headers in (
            (FORM, {}),
            ({**FORM, "form_token": ""}, {}),
            ({**FORM, **theirs}, {}),
            ({**FORM, **secret}, {"origin": "https://evil.example"}),
            ({**FORM, **secret}, {"origin": "null"}),
            ({**FORM, **secret}, {"sec-fetch-site": "cross-site"}),
        ):
            assert (await post(browser, path, fields, **headers)).status_code == 403
        assert changed(store) == []
        assert (await post(browser, path, {**FORM, **secret})).status_code == 303
    assert len(changed(store)) == 1


@pytest.mark.parametrize("path", CHANGES)
async def test_who_may_not_operate_changes_nothing(path: str) -> None:
    store = Store(paused={ID: PAUSE})
    app = web_app(store=store)
    assert (await send(app, "POST", path, data=FORM, headers=HERE)).status_code == 401
    async with operator(store, token=READ) as (browser, secret):
        assert (await post(browser, path, {**FORM, **secret})).status_code == 403
    answer = await send(web_app(store=store, access=Access(Secret(READ))), "POST", path, data=FORM, headers=HERE)
    assert answer.status_code == 403
    assert "set service.operate_token_env" in answer.text
    assert changed(store) == []


async def test_asking_now_leads_back_to_the_page_which_says_what_became_of_each_cell() -> None:
    store = Store(asked=AskedNow(due=[("native_tools", "eu")], too_soon=[("native_tools", "us", 41.2)]))
    async with operator(store) as (browser, secret):
        answer = await post(browser, f"{PAGE}/probe", secret)
        assert answer.status_code == 303
        there = answer.headers["location"]
        assert there.startswith(f"{PAGE}?at=")
        assert there.endswith("#operate")
        said = words(await browser.get(there))
    assert "Asked now: native_tools from eu." in said
    assert "Asked less than a minute ago, so not again yet: native_tools from us." in said
    assert "The next can be asked from 03:12:51 UTC on." in said
    assert changed(store) == [("ask_now", ("mistral", None, 60.0))]


async def test_what_a_pause_stops_is_never_said_to_be_asked() -> None:
    store = Store(asked=AskedNow(due=[("native_tools", "eu")]))
    async with operator(store, PAUSED) as (browser, secret):
        page = await browser.get((await post(browser, f"{PAGE}/probe", secret)).headers["location"])
    assert "Not asked while a pause stops it: end that to ask now." in words(page)
    assert "Asked now" not in words(page)
    assert f'action="{PAGE}/probe"' not in page.text


async def test_what_is_under_way_or_must_wait_is_said_as_well() -> None:
    store = Store(asked=AskedNow(under_way=[("native_tools", "us")], waiting=[("native_tools", "eu", 600.0)]))
    async with operator(store) as (browser, secret):
        said = words(await browser.get((await post(browser, f"{PAGE}/probe", secret)).headers["location"]))
    assert "Being asked already: native_tools from us." in said
    assert "The provider wants us to wait: native_tools from eu." in said
    assert "The next can be asked from 03:22:10 UTC on." in said


AT = int(NOW.timestamp())
ADDRESSES: tuple[tuple[dict[str, object], bool], ...] = (
    ({"at": AT, "due": "native_tools@eu"}, True),
    ({"at": AT, "due": "Call 555-0100 <b>now</b>"}, False),
    ({"at": AT, "why": "native_tools@eu"}, False),
    ({"at": AT - 60, "due": "native_tools@eu"}, False),
    ({"at": AT + 65, "due": "native_tools@eu"}, False),
    ({"at": "9" * 400, "due": "native_tools@eu"}, False),
    ({"at": "9" * 11, "due": "native_tools@eu"}, False),
    ({"at": "\u0663", "due": "native_tools@eu"}, False),
    ({"due": "native_tools@eu"}, False),
)


async def test_an_address_can_neither_speak_freely_nor_for_longer_than_a_minute() -> None:
    app = web_app()
    for query, told in ADDRESSES:
        answer = await send(app, "GET", PAGE, params=query, token=OPERATE)
        assert answer.status_code == 200
        assert ('class="told"' in answer.text) is told, query
        assert ("Asked now: native_tools from eu." in answer.text) is told
        assert "555-0100" not in answer.text


async def test_the_state_is_read_anew_after_each_change() -> None:
    store, board = Store(paused={ID: PAUSE}), Board(View(MIXED))
    app = web_app(store=store, board=board)
    for number, path in enumerate(CHANGES, 1):
        assert (await send(app, "POST", path, data=FORM, token=OPERATE)).status_code == 303
        assert board.renewed == number


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, (PauseScope.ROUTE, "mistral", 4 * 3600.0, False, "new disks", "Ada")),
        (
            {"what": "provider", "stops": "yes", "length": "24", "reason": "", "by": ""},
            (PauseScope.PROVIDER, "mistral", 86400.0, True, "", "operate session"),
        ),
        (
            {"length": "other", "hours": "2.5", "reason": " new disks "},
            (PauseScope.ROUTE, "mistral", 9000.0, False, "new disks", "Ada"),
        ),
    ],
)
async def test_a_pause_is_set_as_the_form_says(changes: dict[str, str], wanted: tuple[Any, ...]) -> None:
    store = Store()
    async with operator(store) as (browser, secret):
        assert (await browser.get(f"{PAGE}/pause")).status_code == 200
        answer = await post(browser, f"{PAGE}/pause", {**FORM, **secret, **changes})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}#operate")
    assert changed(store) == [("pause", wanted)]


MISTAKES: tuple[tuple[dict[str, str], str], ...] = (
    ({"what": "everything"}, "Choose what to pause."),
    ({"what": "tag:of-another-route"}, "Choose what to pause."),
    ({"what": ""}, "Choose what to pause."),
    ({"length": "other", "hours": ""}, "Say for how many hours"),
    ({"length": "other", "hours": "0"}, "Say for how many hours"),
    ({"length": "other", "hours": "745"}, "Say for how many hours"),
    ({"length": "other", "hours": "nan"}, "Say for how many hours"),
    ({"length": "other", "hours": "1e999"}, "Say for how many hours"),
    ({"length": "for ever"}, "Say for how many hours"),
    ({"reason": "a\nb"}, "The reason is one line"),
    ({"reason": "x" * 301}, "The reason is one line"),
    ({"by": "\u202eadA"}, "The name is one line"),
)


async def test_a_form_that_is_filled_in_wrongly_comes_back_with_what_was_typed() -> None:
    store = Store()
    async with operator(store) as (browser, secret):
        for changes, mistake in MISTAKES:
            answer = await post(browser, f"{PAGE}/pause", {**FORM, "by": "Bea <b>", **secret, **changes})
            assert answer.status_code == 400
            assert mistake in words(answer)
            assert ('value="Bea &lt;b&gt;"' in answer.text) is ("by" not in changes)
    assert changed(store) == []


async def test_only_a_route_its_own_provider_and_its_own_tags_are_paused_from_its_page() -> None:
    store = Store()
    async with operator(store) as (browser, secret):
        await post(browser, f"{PAGE}/pause", {**FORM, **secret, "scope": "tag", "target": "claude"})
    assert [what[:2] for _, what in changed(store)] == [(PauseScope.ROUTE, "mistral")]


async def test_a_tag_is_paused_from_the_page_of_a_route_and_the_form_says_how_many_a_pause_covers() -> None:
    store, page = Store(), "/routes/qwen3-235b-a22b-instruct-2507/pause"
    async with operator(store) as (browser, secret):
        said = words(await browser.get(page))
        assert (await post(browser, page, {**FORM, **secret, "what": "tag:eu"})).status_code == 303
    assert changed(store) == [("pause", (PauseScope.TAG, "eu", 4 * 3600.0, False, "new disks", "Ada"))]
    assert "This route All routes of openrouter: 3 of them" in said
    assert "All routes with the tag prod: none but this one" in said


async def test_a_pause_is_shown_with_its_end_where_it_holds() -> None:
    store = Store(paused={ID: PAUSE})
    sentence = "Provider mistral is muted and not asked until 04:00:07 UTC: new <keys> (by Ada)."
    async with operator(store, PAUSED) as (browser, secret):
        overview, page, other = [await browser.get(path) for path in ("/", PAGE, "/routes/claude")]
        for shown in (overview, page, other):
            assert sentence in words(shown)
        assert [shown.text.count(f'action="/pauses/{ID}/end"') for shown in (overview, page, other)] == [1, 2, 1]
        ended = await post(browser, f"/pauses/{ID}/end", secret, referer="http://127.0.0.1:8080/?tag=eu")
        assert (ended.status_code, ended.headers["location"]) == (303, "/?tag=eu")
        again = await post(browser, f"/pauses/{ID}/end", secret)
        assert (again.status_code, "No pause with this id goes on." in words(again)) == (404, True)
    assert changed(store) == [("end_pause", ID)] * 2


@pytest.mark.parametrize(
    ("referer", "there"),
    [
        ("http://127.0.0.1:8080/routes/mistral?window=24h", "/routes/mistral?window=24h"),
        ("https://evil.example//evil.example/", "/"),
        ("http://127.0.0.1:8080/login?back=/", "/"),
        ("http://[", "/"),
        ("", "/"),
    ],
)
async def test_a_login_in_the_middle_leads_back_to_the_page_that_the_form_was_on(referer: str, there: str) -> None:
    store, clock = Store(), Clock()
    async with operator(store, clock=clock) as (browser, secret):
        clock.now += SESSION_S
        answer = await post(browser, f"{PAGE}/probe", secret, referer=referer)
        assert answer.status_code == 401
        assert f'name="back" value="{there}"' in answer.text
        assert f'name="back" value="{there}"' in (await browser.get("/login", headers={"referer": referer})).text
    assert changed(store) == []


@pytest.mark.parametrize(
    ("access", "token", "hint"),
    [
        (Access(), None, "set service.operate_token_env and log in"),
        (Access(Secret(READ)), READ, "set service.operate_token_env and log in"),
        (Access(operate_token=Secret(OPERATE)), None, "log in with the operate token"),
        (Access(Secret(READ), Secret(OPERATE)), READ, "log in with the operate token"),
    ],
)
async def test_who_may_not_operate_is_told_how_and_gets_no_form(access: Access, token: str | None, hint: str) -> None:
    app = web_app(PAUSED, access=access)
    async with client(app) as browser:
        if token:
            await log_in(browser, token)
        for path in ("/", PAGE, f"{PAGE}/pause"):
            page = await browser.get(path)
            assert page.status_code == 200
            assert re.findall('action="/(?:routes|pauses)', page.text) == []
            assert (hint in words(page)) is (path != "/")
            assert ('action="/logout"' in page.text) is (token is not None)


async def test_the_form_of_a_pause_never_loads_itself_again_while_somebody_types() -> None:
    async with operator(Store()) as (browser, _):
        page = (await browser.get(f"{PAGE}/pause")).text
    assert "data-refresh" not in page
    assert "http-equiv" not in page


@pytest.mark.parametrize(("path", "status"), [("/routes/nowhere/probe", 404), ("/routes/nowhere/pause", 404)])
async def test_what_is_not_configured_cannot_be_operated(path: str, status: int) -> None:
    store = Store()
    async with operator(store) as (browser, secret):
        assert (await post(browser, path, {**FORM, **secret})).status_code == status
        assert (await post(browser, "/pauses/not-an-id/end", secret)).status_code == 400
    assert changed(store) == []


@pytest.mark.parametrize("path", CHANGES)
async def test_while_the_database_is_away_a_change_is_refused_in_words(path: str) -> None:
    class Away(Store):
        def _call(self, name: str, what: object = None) -> None:
            super()._call(name, what)
            raise ConnectionError

    async with operator(Away()) as (browser, secret):
        answer = await post(browser, path, {**FORM, **secret})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "The database can't be reached." in words(answer)


async def test_a_pause_with_an_end_in_ten_hours_is_told_on_the_page_of_its_route_alone_when_many_hold() -> None:
    many = tuple(
        Pause(UUID(int=n), PauseScope.ROUTE, f"r{n}", NOW, NOW + timedelta(hours=n), False, "", "") for n in range(1, 9)
    )
    late = replace(PAUSE, until=NOW + timedelta(hours=20))
    view = View(replace(MIXED, pauses=(*many, late)), age_s=2)
    async with operator(Store(), view) as (browser, _):
        overview, page = [(await browser.get(path)).text for path in ("/", PAGE)]
    assert "4 more." in overview
    assert [text.count(f'action="/pauses/{ID}/end"') for text in (overview, page)] == [0, 1]
