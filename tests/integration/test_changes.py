"""Changes of state over HTTP: the list with its filters and pages, the feed, and badges."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

import httpx
import pytest
from fastapi import FastAPI

from service.metrics import ProcessMetrics
from service.model import Pause, PauseScope, Secret, Snapshot, Status, Transition
from service.web.access import Access
from service.web.app import create_app
from service.web.last_day import Day
from tests.samples import BECAUSE, MINUTE, NOW, SECOND, Board, History, View, row, snapshot, standing

ATOM = {"": "http://www.w3.org/2005/Atom"}
TOKEN = "a-token-that-may-read"
CELLS = snapshot(row("alpha", state=standing()), row("beta", state=standing(Status.TIMEOUT), name="acme/be ta"))


def change(number: int, route: str = "alpha", kind: str = "regression") -> Transition:
    return Transition(
        at=NOW - number * MINUTE,
        route_id=route,
        contract="native_tools",
        location="default",
        kind=kind,
        from_status="tools_supported",
        from_reason=None,
        to_status="timeout",
        to_reason=None,
        changed={},
        id=1000 - number,
    )


def served(
    history: History | None = None,
    shown: Snapshot = CELLS,
    *,
    now: timedelta = timedelta(0),
    day: Day = Day(),  # noqa: B008 - frozen
    up: bool = True,
    **access: Any,
) -> FastAPI:
    settings = Access(external_url="https://probe.example", **access)
    return create_app(
        Board(View(shown, age_s=now.total_seconds(), database_up=up)),
        history or History(changes={"alpha": [change(1), change(3, kind="recovery")], "beta": [change(2, "beta")]}),
        ProcessMetrics("default", "0"),
        access=lambda: settings,
        because=BECAUSE,
        faults=list,
        unavailable=(ConnectionError,),
        last_day=lambda: day,
    )


async def get(path: str, app: FastAPI | None = None, method: str = "GET", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app or served())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        return await client.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})


def lines(answer: httpx.Response) -> list[str]:
    """The rows of the list, without their times."""
    rows = re.findall(r'<tr role="row">\s*<th role="rowheader".*?</tr>', answer.text, re.DOTALL)
    return [" ".join(re.sub("<[^>]+>", " ", row.split("</th>", 1)[1]).split()) for row in rows]


async def test_the_list_has_all_changes_newest_first() -> None:
    answer = await get("/transitions")
    assert answer.status_code == 200
    assert lines(answer) == [
        "acme/ alpha native_tools, from default Broke Works → Timed out nothing known",
        "acme/ be ta native_tools, from default Broke Works → Timed out nothing known",
        "acme/ alpha native_tools, from default Works again Works → Timed out nothing known",
    ]
    assert 'href="/routes/alpha#native_tools"' in answer.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("route=beta", 1),
        ("kind=regression", 2),
        ("kind=recovery&route=alpha", 1),
        ("kind=nonsense", 0),
        ("route=no", 0),
    ],
)
async def test_filters_stand_in_the_address_and_unknown_values_find_nothing(query: str, found: int) -> None:
    answer = await get(f"/transitions?{query}")
    assert answer.status_code == 200
    assert len(lines(answer)) == found
    assert ("No change matches." in answer.text) is (found == 0)
    for pair in query.split("&"):
        assert f'<option value="{pair.partition("=")[2]}" selected>' in answer.text
    assert f'href="/transitions.atom?{"&amp;".join(sorted(query.split("&"), reverse=True))}"' in answer.text


async def test_older_pages_follow_by_link_and_keep_the_filters() -> None:
    app = served(History(changes={"alpha": [change(number) for number in range(120)]}))
    path, seen = "/transitions?route=alpha", []
    while path:
        answer = await get(path, app)
        seen.append(len(lines(answer)))
        older = re.search(r'href="(/transitions\?[^"]*)" rel="next"', answer.text)
        path = older[1].replace("&amp;", "&") if older else ""
        assert not path or "route=alpha" in path
    assert seen == [50, 50, 20]
    assert 'href="/transitions?route=alpha">Newest' in answer.text


async def test_a_cursor_of_somebody_elses_making_is_refused_in_words() -> None:
    answer = await get("/transitions?cursor=nonsense")
    assert answer.status_code == 400
    assert "cursor" in answer.text


async def test_while_the_database_is_away_the_list_says_so_and_the_feed_can_be_asked_again() -> None:
    for app in (served(up=False), served(History(error=None), up=False)):
        answer = await get("/transitions", app)
        assert answer.status_code == 200
        assert "Changes can’t be read while the database can’t be reached." in answer.text

    class Gone(History):
        async def transition_page(self, **_: Any) -> Any:
            raise ConnectionError

    assert "Changes can’t be read" in (await get("/transitions", served(Gone()))).text
    assert (await get("/transitions.atom", served(Gone()))).status_code == 503


async def test_the_feed_is_atom_with_the_filters_of_the_list() -> None:
    answer = await get("/transitions.atom?kind=regression")
    assert answer.headers["content-type"] == "application/atom+xml; charset=utf-8"
    root = ElementTree.fromstring(answer.content)
    assert root.findtext("id", namespaces=ATOM) == "https://probe.example/transitions.atom?kind=regression"
    assert root.findtext("updated", namespaces=ATOM) == "2025-03-09T03:11:07Z"
    titles = [entry.findtext("title", namespaces=ATOM) for entry in root.findall("entry", ATOM)]
    assert titles == [
        "acme/alpha: native_tools from default: broke (timed out)",
        "acme/be ta: native_tools from default: broke (timed out)",
    ]
    assert ElementTree.fromstring((await get("/transitions.atom?kind=nonsense")).content).findall("entry", ATOM) == []


async def test_a_route_has_a_feed_of_its_own() -> None:
    answer = await get("/routes/beta/transitions.atom")
    root = ElementTree.fromstring(answer.content)
    assert root.findtext("id", namespaces=ATOM) == "https://probe.example/routes/beta/transitions.atom"
    assert len(root.findall("entry", ATOM)) == 1
    assert (await get("/routes/nobody/transitions.atom")).status_code == 404


@pytest.mark.parametrize("path", ["/transitions.atom", "/badge/alpha.svg", "/badge/alpha/share.svg"])
async def test_who_has_it_already_is_told_so(path: str) -> None:
    answer = await get(path)
    assert answer.status_code == 200
    again = await get(path, if_none_match=f'"other", {answer.headers["etag"]}')
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == answer.headers["cache-control"]
    assert (await get(path, if_none_match='"other"')).status_code == 200
    assert (await get(path, method="HEAD")).status_code == 200


async def test_without_a_token_badges_are_shown_where_the_status_is_public_and_changes_never() -> None:
    public, closed = served(read_token=Secret(TOKEN)), served(read_token=Secret(TOKEN), public_status=False)
    for path in ("/badge/alpha.svg", "/badge/alpha/share.svg"):
        assert (await get(path, public)).status_code == 200
        assert (await get(path, closed)).status_code == 401
        assert (await get(path, closed, authorization=f"Bearer {TOKEN}")).status_code == 200
    for path in ("/transitions", "/transitions.atom", "/routes/alpha/transitions.atom"):
        assert (await get(path, public)).status_code == 401
        assert (await get(path, public, authorization=f"Bearer {TOKEN}")).status_code == 200


def title(answer: httpx.Response) -> str | None:
    return ElementTree.fromstring(answer.content).findtext("{http://www.w3.org/2000/svg}title")


async def test_badges_are_pictures_that_pages_elsewhere_may_show() -> None:
    answer = await get("/badge/alpha.svg")
    assert answer.headers["content-type"] == "image/svg+xml; charset=utf-8"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert title(answer) == "acme/alpha: works"
    assert title(await get("/badge/beta.svg")) == "acme/be ta: unavailable"
    unknown = await get("/badge/nobody.svg")
    assert (unknown.status_code, title(unknown)) == (404, "routeproof: no such route")
    assert (await get("/transitions")).headers["cross-origin-resource-policy"] == "same-origin"


async def test_an_id_may_hold_dots() -> None:
    shown = snapshot(row("gpt-4.1.svg", state=standing()))
    assert title(await get("/badge/gpt-4.1.svg.svg", served(shown=shown))) == "acme/gpt-4.1.svg: works"


async def test_a_muted_route_says_so_on_its_badge() -> None:
    pause = Pause(UUID(int=1), PauseScope.ROUTE, "beta", NOW - MINUTE, NOW + MINUTE)
    assert title(await get("/badge/beta.svg", served(shown=replace(CELLS, pauses=(pause,))))) == (
        "acme/be ta: unavailable, muted"
    )


@pytest.mark.parametrize(
    ("counts", "words"),
    [((281, 287), "97.9 % proven"), ((287, 287), "100 % proven"), ((0, 3), "0 % proven"), (None, "no data")],
)
async def test_the_share_of_the_last_day_is_a_badge(counts: tuple[int, int] | None, words: str) -> None:
    day = Day(shares={"alpha": counts} if counts else {})
    assert title(await get("/badge/alpha/share.svg", served(day=day))) == f"acme/alpha, 24 h: {words}"


@pytest.mark.parametrize(
    ("age", "words", "holds_s"),
    [
        (MINUTE, "works", 60),
        (15 * MINUTE - 20 * SECOND, "works", 20),
        (15 * MINUTE, "works", 0),
        (15 * MINUTE + SECOND, "works, stale", 60),
        (30 * MINUTE - 0.5 * SECOND, "works, stale", 0),
        (30 * MINUTE + SECOND, "unknown", 60),
    ],
)
async def test_no_badge_may_be_shown_beyond_the_time_that_its_proof_holds(
    age: timedelta, words: str, holds_s: int
) -> None:
    answer = await get("/badge/alpha.svg", served(now=age - MINUTE))
    assert title(answer) == f"acme/alpha: {words}"
    assert answer.headers["cache-control"] == f"no-cache, max-age={holds_s}"
    now = NOW + age - MINUTE
    expires = parsedate_to_datetime(answer.headers["expires"])
    assert now - SECOND < expires <= now + holds_s * SECOND
