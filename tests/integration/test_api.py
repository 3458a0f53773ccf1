"""The API over HTTP: what it says, what it refuses, and what it documents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI

from service.metrics import ProcessMetrics
from service.model import (
    AskedNow,
    ChangeKind,
    Confirmed,
    Outcome,
    Pause,
    PauseScope,
    Snapshot,
    Spend,
    Status,
    Transition,
)
from service.web import problems
from service.web.access import Access
from service.web.api import examples, models
from service.web.api.params import Kind
from service.web.app import create_app
from service.web.xml_text import visible
from tests.samples import LADDER, MINUTE, NOW, Board, View, row, snapshot, standing, stored
from tests.web import OPERATE, READ, Store, send, web_app

OPEN = Access()
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e" + "x" * 5000
PROVEN = replace(row(state=standing()), confirmed=Confirmed(proven=True))


async def get(path: str, app: FastAPI | None = None, **params: Any) -> Any:
    answer = await send(app or web_app(access=OPEN), "GET", f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(path: str, app: FastAPI | None = None, method: str = "GET", **more: Any) -> tuple[int, Any]:
    answer = await send(app or web_app(), method, path, token=OPERATE, **more)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert models.Problem.model_validate(body).status == answer.status_code
    assert body["type"] in {f"/problems/{kind.word}" for kind in problems.KINDS}
    assert len(answer.content) < 4000
    return answer.status_code, body


def board(*rows: Any, **more: Any) -> FastAPI:
    return web_app(View(replace(snapshot(*rows), **more)), access=OPEN)


# --- routes -----------------------------------------------------------------------------------------------


async def test_routes_are_told_worst_first_or_by_id() -> None:
    worst = [route["outcome"] for route in (await get("/routes"))["items"]]
    assert worst == ["violated", "unavailable", "unknown", "unknown", "in_part", "proven", "proven"]
    ids = [route["id"] for route in (await get("/routes", order="id"))["items"]]
    assert ids == sorted(ids)
    assert len(ids) == 7


@pytest.mark.parametrize("order", ["worst", "id"])
async def test_pages_hold_every_route_once(order: str) -> None:
    seen, cursor, pages = [], None, 0
    while cursor or not pages:
        page = await get("/routes", order=order, limit=2, **({"cursor": cursor} if cursor else {}))
        assert page["total"] == 7
        seen += [route["id"] for route in page["items"]]
        cursor, pages = page["next"], pages + 1
    assert pages == 4
    assert seen == [route["id"] for route in (await get("/routes", order=order))["items"]]


async def test_the_longest_name_that_can_be_configured_does_not_end_a_walk() -> None:
    rows = [row(str(number) * 100, name="\U0001f6f0" * 200) for number in range(2)]
    app = web_app(View(snapshot(*rows)), access=OPEN)
    first = (await send(app, "GET", "/api/v1/routes", params={"limit": 1})).json()
    second = await send(app, "GET", "/api/v1/routes", params={"limit": 1, "cursor": first["next"]})
    assert [item["id"][0] for item in (*first["items"], *second.json()["items"])] == ["0", "1"]


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({"q": "QWEN"}, {"qwen3-235b-a22b-instruct-2507"}),
        ({"q": "openrouter/"}, {"qwen3-235b-a22b-instruct-2507", "deepseek-v3", "kimi-k2"}),
        ({"provider": "openai"}, {"gpt-4o-mini"}),
        ({"provider": "open"}, set()),
        ({"outcome": ["violated", "in_part"]}, {"qwen3-235b-a22b-instruct-2507", "mistral"}),
        ({"tag": ["prod", "eu"]}, {"qwen3-235b-a22b-instruct-2507"}),
        ({"tag": ["prod", "us"]}, set()),
        ({"contract": "agent_turn"}, {"gpt-4o-mini"}),
        ({"location": "us"}, {"mistral"}),
        ({"location": "us", "outcome": "proven"}, set()),
        ({"location": "eu", "outcome": "proven"}, {"mistral"}),
        ({"contract": "agent_turn", "location": "eu"}, set()),
    ],
)
async def test_filters(params: dict[str, Any], ids: set[str]) -> None:
    page = await get("/routes", **params)
    assert {route["id"] for route in page["items"]} == ids
    assert page["total"] == len(ids)


async def test_a_route_tells_all_that_is_known_of_it() -> None:
    confirmed = Confirmed(proven=False, since=NOW - MINUTE, regressed_since=NOW - MINUTE, flapping=True)
    bad = standing(Status.STREAM_EARLY_EOF, 2 * MINUTE, reason="closed_after_event", quirks=("flaky",))
    newer = standing(Status.NOT_SENT, reason="budget_spent")
    told = row("alpha", state=bad, last=newer, tags=("prod",), counts={Outcome.VIOLATED: 3})
    priced = replace(
        told.route, tokens_per_day=1000, input_per_million=0.5, output_per_million=2.0, currency="USD", status_url=None
    )
    app = board(
        replace(told, route=priced, confirmed=confirmed),
        spends={"alpha": Spend(tokens_in=2_000_000, tokens_out=500_000, requests=7, estimated=True)},
        pauses=(Pause(UUID(int=1), PauseScope.TAG, "prod", NOW - MINUTE, NOW + MINUTE),),
    )
    route = await get("/routes/alpha", app)
    assert (route["outcome"], route["paused"], route["regressed"], route["flapping"]) == ("violated", True, True, True)
    assert route["remedy"].startswith("Fail over")
    assert route["budget"] == {"tokens_per_day": 1000, "requests_per_day": None}
    assert route["price"] == {"input_per_million": 0.5, "output_per_million": 2.0, "currency": "USD"}
    assert route["spent_today"] == {
        "tokens_in": 2_000_000,
        "tokens_out": 500_000,
        "requests": 7,
        "estimated": True,
        "cost": 2.0,
    }
    (contract,) = route["contracts"]
    (cell,) = contract["cells"]
    assert cell["valid_until"] == "2025-03-09T03:40:07Z"
    assert cell["fresh_until"] == "2025-03-09T03:25:07Z"
    assert (cell["status"], cell["reason"], cell["freshness"]) == ("stream_early_eof", "closed_after_event", "fresh")
    assert cell["confirmed"] == {
        "proven": False,
        "since": "2025-03-09T03:11:07Z",
        "regressed": True,
        "regressed_since": "2025-03-09T03:11:07Z",
        "flapping": True,
        "broken": False,
    }
    assert cell["undecided"]["reason"] == "budget_spent"
    assert cell["verdicts"] == {"violated": 3}


@pytest.mark.parametrize(
    ("scope", "target", "until", "paused"),
    [
        (PauseScope.ROUTE, "alpha", MINUTE, True),
        (PauseScope.ROUTE, "acme", MINUTE, False),
        (PauseScope.PROVIDER, "acme", MINUTE, True),
        (PauseScope.TAG, "acme", MINUTE, False),
        (PauseScope.PROVIDER, "acme", -MINUTE, False),
    ],
)
async def test_a_pause_covers_what_it_names_until_it_ends(
    scope: PauseScope, target: str, until: timedelta, paused: bool
) -> None:
    pause = Pause(UUID(int=1), scope, target, NOW - 5 * MINUTE, NOW + until)
    route = await get("/routes/alpha", board(PROVEN, pauses=(pause,)))
    assert route["paused"] is paused
    assert route["contracts"][0]["cells"][0]["paused"] is paused


@pytest.mark.parametrize(
    ("age", "outcome", "freshness", "allowed"),
    [
        (15 * MINUTE, "proven", "fresh", True),
        (15 * MINUTE + timedelta(seconds=1), "proven", "stale", False),
        (30 * MINUTE, "proven", "stale", False),
        (30 * MINUTE + timedelta(seconds=1), "unknown", "expired", False),
    ],
)
async def test_a_proof_ages_at_the_moment_of_asking(
    age: timedelta, outcome: str, freshness: str, allowed: bool
) -> None:
    old = replace(row(state=standing(ago=timedelta(0))), confirmed=Confirmed(proven=True))
    app = web_app(View(snapshot(old), age_s=age.total_seconds(), database_up=False), access=OPEN)
    page = await get("/routes", app)
    assert page["database_up"] is False
    assert page["items"][0]["outcome"] == outcome
    assert page["items"][0]["contracts"][0]["cells"][0]["freshness"] == freshness
    assert (await get("/gate/alpha", app))["allowed"] is allowed


async def test_an_answer_is_known_by_its_tag_until_something_changes() -> None:
    shown = Board(View(snapshot(PROVEN)))
    app = create_app(shown, Store(), ProcessMetrics("default", "0"), access=Access, because={}, faults=list)
    first = await send(app, "GET", "/api/v1/routes")
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    assert first.headers["vary"] == "Accept-Encoding, authorization, cookie"
    shown.shown = View(snapshot(PROVEN), age_s=30)
    for header in (tag, f'"x", {tag}', tag.removeprefix("W/"), "*"):
        same = await send(app, "GET", "/api/v1/routes", headers={"if-none-match": header})
        assert (same.status_code, same.content, same.headers["etag"], same.headers["age"]) == (304, b"", tag, "30")
    assert (await send(app, "GET", "/api/v1/routes", headers={"if-none-match": 'W/"x"'})).status_code == 200
    shown.shown = View(snapshot(PROVEN), age_s=16 * 60)  # stale by now
    assert (await send(app, "GET", "/api/v1/routes", headers={"if-none-match": tag})).status_code == 200


async def test_head_says_what_get_would() -> None:
    for path in ("/api/v1/routes", "/api/v1/routes/mistral", "/openapi.json"):
        answer = await send(web_app(access=OPEN), "HEAD", path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"


# --- gate -------------------------------------------------------------------------------------------------

GOOD, BAD, NEVER = Confirmed(proven=True), Confirmed(proven=False), Confirmed()


@pytest.mark.parametrize(
    ("state", "confirmed", "reason", "allowed", "with_unknown"),
    [
        (standing(), GOOD, "proven", True, True),
        (standing(ago=20 * MINUTE), GOOD, "stale", False, True),
        (standing(ago=40 * MINUTE), GOOD, "expired", False, True),
        (None, NEVER, "never", False, True),
        (standing(), NEVER, "unconfirmed", False, True),
        (standing(), BAD, "regressed", False, False),
        (standing(ago=40 * MINUTE), BAD, "regressed", False, False),
        (standing(Status.STREAM_EARLY_EOF), GOOD, "not_proven", False, False),
        (standing(Status.RATE_LIMITED), GOOD, "not_proven", False, False),
        (standing(Status.STREAM_EARLY_EOF, 40 * MINUTE), GOOD, "expired", False, True),
        (standing(Status.STREAM_EARLY_EOF, 20 * MINUTE), BAD, "not_proven", False, False),
    ],
)
async def test_the_gate_opens_for_what_is_proven_fresh_and_confirmed(
    state: Any, confirmed: Confirmed, reason: str, allowed: bool, with_unknown: bool
) -> None:
    app = board(replace(row(state=state), confirmed=confirmed))
    said = await get("/gate/alpha", app)
    assert (said["allowed"], said["reasons"]) == (allowed, [reason])
    assert (said["valid_until"] is not None) is allowed
    assert (await get("/gate/alpha", app, unknown="allow"))["allowed"] is with_unknown
    assert (await get("/gate/alpha", app, unknown="deny"))["allowed"] is allowed


async def test_the_gate_asks_every_required_contract_in_every_place_that_is_alive() -> None:
    def cell(contract: str, location: str, ago: timedelta | None, **more: Any) -> Any:
        made = row(state=None if ago is None else standing(ago=ago), contract=contract, location=location, **more)
        return replace(made, confirmed=GOOD)

    app = board(
        cell("native_tools", "eu", MINUTE),
        cell("native_tools", "us", 3 * MINUTE),
        cell("agent_turn", "eu", 2 * MINUTE),
        cell("agent_turn", "us", None),
        cell("displaced_tool_results", "eu", 60 * MINUTE, required=False),
    )
    said = await get("/gate/alpha", app)
    assert said["allowed"] is True
    assert said["valid_until"] == "2025-03-09T03:24:07Z"
    assert said["as_of"] == "2025-03-09T03:12:07Z"
    assert [(g["contract"], g["location"]) for g in said["grounds"]] == [
        ("agent_turn", "eu"),
        ("native_tools", "eu"),
        ("native_tools", "us"),
    ]
    here = await get("/gate/alpha", app, location="us")
    assert (here["allowed"], here["reasons"]) == (False, ["never"])
    assert (await get("/gate/alpha", app, location="eu"))["allowed"] is True


async def test_a_route_that_requires_nothing_is_not_proven_by_that() -> None:
    app = board(replace(row(state=standing(), required=False), confirmed=GOOD))
    said = await get("/gate/alpha", app)
    assert (said["allowed"], said["reasons"], said["grounds"]) == (False, ["nothing_required"], [])
    assert (await get("/gate/alpha", app, unknown="allow"))["allowed"] is True


async def test_the_gate_is_answered_from_the_board_alone() -> None:
    store = Store(error=AssertionError("the store was asked"))
    app = web_app(View(snapshot(PROVEN), age_s=1, database_up=False), store, access=OPEN)
    assert (await get("/gate/alpha", app))["database_up"] is False
    assert (await refused("/api/v1/gate/beta", app))[0] == 404
    assert (await refused("/api/v1/gate/alpha?location=mars", app))[0] == 404


# --- history ----------------------------------------------------------------------------------------------


async def test_verdicts_are_paged_newest_first_with_their_ladder() -> None:
    history = [
        replace(stored(replace(standing(ago=n * MINUTE), id=UUID(int=n)), rungs=LADDER), route_id="alpha")
        for n in range(5)
    ]
    history[3] = replace(history[3], standing=replace(history[3].standing, observed_at=NOW - 2 * MINUTE))
    store = Store(stored=history)
    app = web_app(store=store, access=OPEN)
    first = await get("/verdicts", app, limit=3)
    assert [UUID(verdict["id"]).int for verdict in first["items"]] == [0, 1, 3]
    assert first["items"][0]["route"] == "alpha"
    assert first["items"][0]["rungs"][0]["read"] == "14 events, no announced end"
    rest = await get("/verdicts", app, limit=3, cursor=first["next"])
    assert [UUID(verdict["id"]).int for verdict in rest["items"]] == [2, 4]
    assert rest["next"] is None


async def test_filters_of_verdicts_reach_the_store() -> None:
    store = Store()
    asked = {
        "route": "alpha",
        "provider": "acme",
        "contract": "native_tools",
        "location": "eu",
        "outcome": "violated",
        "status": "stream_early_eof",
        "since": "2025-03-09T04:12:07+01:00",
        "until": "9999-12-31T23:59:59-11:00",
    }
    await get("/verdicts", web_app(store=store, access=OPEN), **asked)
    wanted = {**asked, "route_id": "alpha", "since": NOW, "until": datetime(3000, 1, 1, tzinfo=UTC)}
    del wanted["route"]
    assert store.calls == [("verdict_page", wanted)]


async def test_transitions_are_paged_newest_first() -> None:
    changes = [
        Transition(NOW - (n // 2) * MINUTE, "alpha", "native_tools", "default", "regression", None, None, "timeout", None, {}, n)
        for n in range(5)
    ]  # fmt: skip
    store = Store(changes=changes)
    app = web_app(store=store, access=OPEN)
    first = await get("/transitions", app, limit=2, kind=["regression", "first"])
    assert store.calls[0][1]["kinds"] == ["regression", "first"]
    assert [change["id"] for change in first["items"]] == [1, 0]
    second = await get("/transitions", app, limit=2, cursor=first["next"])
    third = await get("/transitions", app, limit=2, cursor=second["next"])
    assert [change["id"] for change in (*second["items"], *third["items"])] == [3, 2, 4]
    assert third["next"] is None


def test_every_kind_of_change_can_be_asked_for() -> None:
    assert set(Kind.__args__) == {*ChangeKind, "informational"}


async def test_what_the_provider_said_is_text_in_json_bounded_and_with_nothing_that_steers_a_terminal() -> None:
    rung = replace(LADDER[0], shape=HOSTILE, ended=HOSTILE, read=HOSTILE, detail=HOSTILE)
    said = replace(standing(detail=HOSTILE, reason=HOSTILE), served_model=HOSTILE, quirks=(HOSTILE,))
    hostile = replace(stored(said, rungs=(rung,)), facts={HOSTILE: [{"a": HOSTILE}, 1, None]})
    app = web_app(store=Store(stored=[hostile]), access=OPEN)
    answer = await send(app, "GET", "/api/v1/verdicts")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    item, inert = answer.json()["items"][0], visible(HOSTILE, 2000)
    assert len(inert) == 2000
    assert [item[name] for name in ("detail", "reason", "served_model")] == [inert] * 3
    assert item["quirks"] == [inert]
    assert {item["rungs"][0][name] for name in ("shape", "ended", "read", "detail")} == {inert}
    assert item["facts"] == {inert: [{"a": inert}, 1, None]}


# --- changes ----------------------------------------------------------------------------------------------

DUE, RUNS = ("native_tools", "default"), ("agent_turn", "default")


@pytest.mark.parametrize(
    ("asked", "status", "wait"),
    [
        (AskedNow(due=[DUE], under_way=[RUNS]), 202, None),
        (AskedNow(due=[DUE], too_soon=[(*RUNS, 12.2)]), 202, None),
        (AskedNow(under_way=[DUE, RUNS]), 409, None),
        (AskedNow(under_way=[DUE], too_soon=[(*RUNS, 12.2)]), 429, "13"),
        (AskedNow(too_soon=[(*DUE, 40.0)], waiting=[(*RUNS, 0.001)]), 429, "1"),
        (AskedNow(paused=[(*DUE, 3600.0)], under_way=[RUNS]), 409, None),
        (AskedNow(), 404, None),
    ],
)
async def test_asking_now_says_what_becomes_of_each_cell(asked: AskedNow, status: int, wait: str | None) -> None:
    store = Store(asked=asked)
    answer = await send(web_app(store=store), "POST", "/api/v1/routes/gpt-4o-mini/probe", token=OPERATE)
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, wait)
    assert store.calls == [("ask_now", ("gpt-4o-mini", None, 60.0))]
    if status != 404:
        cells = {(cell["contract"], cell["what"]) for cell in answer.json()["cells"]}
        said = [(w, c[0]) for w in ("due", "under_way", "paused", "too_soon", "waiting") for c in getattr(asked, w)]
        assert cells == {(contract, what) for what, contract in said}


async def test_a_route_that_a_pause_stops_is_said_to_be_paused_and_until_when() -> None:
    store = Store(asked=AskedNow(paused=[(*DUE, 3600.0)]))
    answer = await send(web_app(store=store), "POST", "/api/v1/routes/gpt-4o-mini/probe", token=OPERATE)
    said = answer.json()
    assert (said["type"], said["cells"][0]["what"], said["cells"][0]["wait_s"]) == ("/problems/paused", "paused", 3600)


async def test_one_contract_is_asked_and_an_unknown_one_is_not() -> None:
    store = Store()
    app = web_app(store=store)
    path = "/api/v1/routes/gpt-4o-mini/probe"
    assert (await send(app, "POST", path, params={"contract": "agent_turn"}, token=OPERATE)).status_code == 202
    assert (await refused(path, app, "POST", params={"contract": "x"}))[0] == 404
    assert (await refused("/api/v1/routes/x/probe", app, "POST"))[0] == 404
    assert store.calls == [("ask_now", ("gpt-4o-mini", "agent_turn", 60.0))]


async def test_a_pause_is_set_told_and_ended() -> None:
    app = web_app()
    wanted = {"scope": "tag", "target": "prod", "duration_s": 90.5, "stops": True, "reason": "moving", "by": "Ada"}
    made = await send(app, "POST", "/api/v1/pauses", json=wanted, token=OPERATE)
    assert made.status_code == 201
    pause = made.json()
    assert (pause["until"], pause["stops"], pause["by"]) == ("2025-03-09T03:13:37.500000Z", True, "Ada")
    assert (await send(app, "GET", "/api/v1/pauses", token=READ)).json() == {"items": [pause]}
    assert (await send(app, "GET", "/api/v1/pauses?ended=true", token=READ)).json() == {"items": []}
    path = f"/api/v1/pauses/{pause['id']}"
    assert (await send(app, "DELETE", path, token=OPERATE)).json() == pause
    assert (await refused(path, app, "DELETE"))[0] == 404


async def test_who_paused_is_the_token_unless_a_name_is_given() -> None:
    wanted = {"scope": "provider", "target": "openai", "duration_s": 60}
    made = await send(web_app(), "POST", "/api/v1/pauses", json=wanted, token=OPERATE)
    assert made.json()["by"] == "operate token"


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/routes?nope=1", "query.nope"),
        ("/routes?Q=1", "query.Q"),
        ("/routes/mistral?nope=1", "query.nope"),
        ("/gate/mistral?url=http://evil.example", "query.url"),
        ("/verdicts?host=x", "query.host"),
        ("/pauses?all=1", "query.all"),
        ("/routes?limit=501", "query.limit"),
        ("/routes?limit=0", "query.limit"),
        ("/routes?limit=x", "query.limit"),
        ("/routes?outcome=broken", "query.outcome.0"),
        ("/routes?order=name", "query.order"),
        ("/routes?provider=a%00b", "query.provider"),
        ("/routes?q=%E2%80%AE", "query.q"),
        ("/routes?contract=" + "x" * 101, "query.contract"),
        ("/verdicts?status=fine", "query.status"),
        ("/verdicts?since=yesterday", "query.since"),
        ("/verdicts?since=2025-03-09T00:00:00", "query.since"),
        ("/verdicts?since=2025-03-09", "query.since"),
        ("/verdicts?since=0", "query.since"),
        ("/transitions?kind=x", "query.kind.0"),
        ("/gate/mistral?unknown=maybe", "query.unknown"),
        ("/pauses?ended=perhaps", "query.ended"),
    ],
)
async def test_input_that_is_not_as_documented_is_named(path: str, where: str) -> None:
    status, body = await refused("/api/v1" + path)
    assert (status, body["type"]) == (400, "/problems/bad-request")
    assert [error["where"] for error in body["errors"]] == [where]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "AAAA",
        "bnVsbA",
        "W10",
        "WyJpZCIsMCwiIiwiYSJd",  # of the other order
        "W" * 999,
        "WzEsMl0",
        "WyIyMDI1LTAzLTA5VDAzOjEyOjA3IiwgMV0",  # without a zone
        "WyIyMDI1LTAzLTA5VDAzOjEyOjA3WiIsIDk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5XQ",  # a number too large
        "WyIyMDI1LTAzLTA5VDAzOjEyOjA3WiIsIHRydWVd",
        "WyIyMDI1LTAzLTA5VDAzOjEyOjA3WiIsIG51bGxd",
    ],
)
@pytest.mark.parametrize("path", ["/routes", "/verdicts", "/transitions"])
async def test_a_cursor_of_anybodys_making_is_refused(path: str, cursor: str) -> None:
    status, body = await refused(f"/api/v1{path}", params={"cursor": cursor})
    assert (status, body["errors"][0]["where"]) == (400, "query.cursor")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", "body"),
        (b"{", "body.1"),
        (b"[]", "body"),
        (b'{"scope": "route", "target": "mistral"}', "body.duration_s"),
        (b'{"scope": "world", "target": "mistral", "duration_s": 1}', "body.scope"),
        (b'{"scope": "route", "target": "", "duration_s": 1}', "body.target"),
        (b'{"scope": "route", "target": "mistral", "duration_s": 0}', "body.duration_s"),
        (b'{"scope": "route", "target": "mistral", "duration_s": 1e300}', "body.duration_s"),
        (b'{"scope": "route", "target": "mistral", "duration_s": NaN}', "body.duration_s"),
        (b'{"scope": "route", "target": "mistral", "duration_s": 1, "reason": "a\\nb"}', "body.reason"),
        (b'{"scope": "route", "target": "mistral", "duration_s": 1, "by": "\\ud800"}', "body.by"),
        (b'{"scope": "route", "target": "mistral", "duration_s": 1, "url": "http://evil.example"}', "body.url"),
    ],
)
async def test_a_body_that_is_not_as_documented_is_named(body: bytes, where: str) -> None:
    store = Store()
    headers = {"content-type": "application/json"}
    status, said = await refused("/api/v1/pauses", web_app(store=store), "POST", content=body, headers=headers)
    assert (status, said["errors"][0]["where"]) == (400, where)
    assert store.calls == []


async def test_a_form_is_told_that_json_is_wanted() -> None:
    answer = await send(web_app(), "POST", "/api/v1/pauses", data={"scope": "tag"}, token=OPERATE)
    assert answer.json()["errors"] == [{"where": "body", "what": "must be an object, sent as application/json"}]


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 60_000])
async def test_a_body_that_cannot_be_read_is_refused(body: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert (await refused("/api/v1/pauses", method="POST", content=body, headers=headers))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nowhere", 404),
        ("GET", "/api", 404),
        ("GET", "/api/v1/routes/", 404),
        ("GET", "/api/v2/routes", 404),
        ("PUT", "/api/v1/routes", 405),
        ("POST", "/api/v1/gate/mistral", 405),
        ("OPTIONS", "/api/v1/routes", 405),
        ("POST", "/openapi.json", 405),
        ("DELETE", "/api/v1/pauses/not-a-uuid", 400),
    ],
)
async def test_errors_of_paths_and_methods_are_problems_too(method: str, path: str, status: int) -> None:
    assert (await refused(path, method=method))[0] == status


async def test_what_a_sender_wrote_is_repeated_bounded_and_in_one_line() -> None:
    answer = await send(
        web_app(), "GET", "/api/v1/routes", params={f"{HOSTILE[:500]}{n}": HOSTILE[:500] for n in range(30)}, token=READ
    )
    assert answer.status_code == 400
    assert len(answer.content) < 4000
    assert len(answer.json()["errors"]) == 10
    assert not any(not char.isprintable() for error in answer.json()["errors"] for char in error["where"])


async def test_another_host_is_told_in_the_same_form() -> None:
    for host, status in (("evil.example", 421), ("", 400)):
        assert (await refused("/api/v1/routes", headers={"host": host}))[0] == status


async def test_a_database_that_is_away_is_told_with_when_to_ask_again() -> None:
    app = web_app(store=Store(error=ConnectionError("secret of the database")))
    pause = {"scope": "route", "target": "mistral", "duration_s": 60}
    for method, path, more in (
        ("GET", "/verdicts", {}),
        ("GET", "/transitions", {}),
        ("GET", "/pauses", {}),
        ("POST", "/pauses", {"json": pause}),
        ("DELETE", f"/pauses/{UUID(int=1)}", {}),
        ("POST", "/routes/mistral/probe", {}),
    ):
        answer = await send(app, method, f"/api/v1{path}", token=OPERATE, **more)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["type"] == "/problems/unavailable"
        assert "secret" not in answer.text
    nothing = web_app(View(Snapshot(NOW, ()), database_up=False))
    for path in ("/routes", "/routes/mistral", "/gate/mistral"):
        assert (await refused(f"/api/v1{path}", nothing))[0] == 503


async def test_a_fault_of_ours_is_a_problem_with_the_same_headers() -> None:
    transport = httpx.ASGITransport(
        app=web_app(store=Store(error=ZeroDivisionError("why"))), raise_app_exceptions=False
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.get("/api/v1/verdicts", headers={"authorization": f"Bearer {READ}"})
        page = await client.get("/routes/mistral", headers={"authorization": f"Bearer {READ}"})
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/our-fault")
    assert "why" not in answer.text
    assert (page.status_code, "<h1>A fault of ours</h1>" in page.text) == (500, True)
    for one in (answer, page):
        assert one.headers["content-security-policy"].startswith("default-src 'none'")
        assert one.headers["cache-control"] == "no-store"


async def test_each_type_of_problem_leads_to_its_explanation() -> None:
    for kind in problems.KINDS:
        answer = await send(web_app(), "GET", f"/problems/{kind.word}")
        assert kind.meaning in answer.text
    assert (await send(web_app(), "GET", "/problems/nothing")).status_code == 404


# --- the document -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document() -> Any:
    return asyncio.run(send(web_app(access=OPEN), "GET", "/openapi.json")).json()


def calls(document: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield path, method, call


def resolved(document: Any, schema: Any, *, seen: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every property below a schema, by name."""
    if isinstance(schema, list):
        for part in schema:
            yield from resolved(document, part, seen=seen)
    elif isinstance(schema, dict):
        reference = schema.get("$ref")
        if reference and reference not in seen:
            whole = document["components"]["schemas"][reference.rpartition("/")[2]]
            yield from resolved(document, whole, seen=(*seen, reference))
        for name, part in schema.get("properties", {}).items():
            yield name, part
        for part in schema.values():
            yield from resolved(document, part, seen=seen)


def test_the_document_names_every_call_once_with_tag_summary_and_security(document: Any) -> None:
    ids = [call["operationId"] for _, _, call in calls(document)]
    assert sorted(ids) == sorted(examples.ANSWERS)
    for path, method, call in calls(document):
        assert path.startswith("/api/v1/")
        assert call["summary"]
        assert len(call["tags"]) == 1
        assert {"bearer": []} in call["security"]
        assert ({} in call["security"]) is (method == "get")
    assert set(document["components"]["securitySchemes"]) == {"bearer", "session"}
    assert {tag["name"] for tag in document["tags"]} == {call["tags"][0] for _, _, call in calls(document)}


def test_every_answer_is_documented_with_an_example_that_fits(document: Any) -> None:
    for _, method, call in calls(document):
        status, example = examples.ANSWERS[call["operationId"]]
        said = call["responses"][str(status)]["content"]["application/json"]["example"]
        assert type(example).model_validate(said) == example
        assert {"400", "401", "421", "503"} <= set(call["responses"])
        assert method == "get" or {"403", "413"} <= set(call["responses"])
        assert "422" not in call["responses"]
        for code, response in call["responses"].items():
            if code[0] in "45":
                problem = response["content"]["application/problem+json"]["example"]
                assert models.Problem.model_validate(problem).status == int(code)
        if "requestBody" in call:
            assert (
                call["requestBody"]["content"]["application/json"]["example"] == examples.REQUESTS[call["operationId"]]
            )
    assert "ValidationError" not in json.dumps(document)


async def test_the_example_of_a_body_is_taken() -> None:
    for wanted in examples.REQUESTS.values():
        assert (await send(web_app(), "POST", "/api/v1/pauses", json=wanted, token=OPERATE)).status_code == 201


def test_no_call_takes_a_url_a_host_or_a_header(document: Any) -> None:
    taken: list[tuple[str, Any]] = []
    for _, _, call in calls(document):
        for parameter in call.get("parameters", ()):
            assert parameter["in"] in ("path", "query")
            taken.append((parameter["name"], parameter["schema"]))
        taken += resolved(document, call.get("requestBody", {}).get("content", {}))
    names = {name for name, _ in taken}
    assert {"id", "limit", "cursor", "scope", "target", "duration_s", "by"} <= names
    for word in ("url", "uri", "host", "header", "proxy", "base", "endpoint", "address", "webhook", "callback", "key"):
        assert not [name for name in names if word in name.lower()]
    assert {form for _, schema in taken for form in _formats(schema)} <= {"date-time", "uuid"}


def _formats(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("format"), str):
            yield schema["format"]
        for part in schema.values():
            yield from _formats(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _formats(part)


def test_lengths_of_time_and_times_are_named_alike_everywhere(document: Any) -> None:
    for name, schema in resolved(document, document["components"]["schemas"]):
        if any(word in name for word in ("duration", "wait", "interval", "age", "first_token", "headers_")):
            assert name.endswith("_s"), name
        if name.endswith(("_at", "_until", "since")) or name in ("at", "as_of", "until"):
            assert "date-time" in json.dumps(schema), name
