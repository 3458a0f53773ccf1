"""Who may see and change what, over HTTP: tokens, logins, forms, and what is logged of it."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import structlog
from fastapi import FastAPI

from service.bootstrap import set_up_logs
from service.metrics import ProcessMetrics
from service.model import CellRow, PauseScope, Secret
from service.web import actions
from service.web.access import SESSION_S, Access, LoginLimit
from service.web.app import create_app
from service.web.door import MAX_BODY
from service.web.parts import Parts
from service.web.render import Templates
from tests.samples import MIXED, Board, View, row, snapshot, standing
from tests.web import OPERATE, READ, TOKENS, Clock, Store, send, web_app

ROUTE = "/routes/mistral"
PAUSE = {"scope": "route", "target": "mistral", "duration_s": 60}
HERE = {"origin": "http://127.0.0.1:8080"}
PRIVATE = Access(Secret(READ), Secret(OPERATE), False, "http://probe.example")


@pytest.fixture
def logs() -> Any:
    before = structlog.get_config()
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**before)


def client(app: FastAPI, address: str = "127.0.0.1", url: str = "http://127.0.0.1:8080") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app, client=(address, 1)), base_url=url)


async def log_in(
    browser: httpx.AsyncClient, token: str = OPERATE, back: str = "/", origin: str | None = None
) -> httpx.Response:
    headers = {"origin": origin or str(browser.base_url)}
    return await browser.post("/login", data={"token": token, "back": back}, headers=headers)


async def form_token(browser: httpx.AsyncClient) -> str:
    found = re.search('name="form_token" value="([^"]+)"', (await browser.get("/login")).text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("path", "anonymous", "private"),
    [
        ("/", 200, 401),
        (ROUTE, 401, 401),
        ("/metrics", 401, 401),
        ("/openapi.json", 401, 401),
        ("/api/v1/routes", 401, 401),
        ("/api/v1/gate/mistral", 401, 401),
        ("/nowhere", 401, 401),
        ("/livez", 200, 200),
        ("/readyz", 200, 200),
        ("/login", 200, 200),
        ("/static/style.css", 200, 200),
        ("/problems/unauthorized", 200, 200),
    ],
)
async def test_reads_need_a_token_where_one_is_configured(path: str, anonymous: int, private: int) -> None:
    for access, status in ((TOKENS, anonymous), (PRIVATE, private)):
        app = web_app(access=access)
        answer = await send(app, "GET", path)
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"] == 'Bearer realm="routeproof"'
            assert answer.headers["cache-control"] == "no-store"
        for token in (READ, OPERATE):
            assert (await send(app, "GET", path, token=token)).status_code == (404 if path == "/nowhere" else 200)


async def test_without_a_read_token_everything_may_be_read() -> None:
    for access in (Access(), Access(operate_token=Secret(OPERATE))):
        app = web_app(access=access)
        for path in ("/", ROUTE, "/metrics", "/api/v1/routes", "/openapi.json"):
            assert (await send(app, "GET", path)).status_code == 200


@pytest.mark.parametrize("client_address", ["127.0.0.1", "192.0.2.1"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/pauses"),
        ("POST", "/api/v1/routes/mistral/probe"),
        ("DELETE", "/api/v1/pauses/x"),
        ("PUT", "/"),
    ],
)
async def test_without_an_operate_token_nothing_changes_from_any_address(
    method: str, path: str, client_address: str
) -> None:
    for access in (Access(), Access(Secret(READ))):
        store = Store()
        answer = await send(web_app(store=store, access=access), method, path, json=PAUSE, client=(client_address, 1))
        assert answer.status_code == 403
        assert "set service.operate_token_env or service.operate_token_file" in answer.text
        assert store.calls == []


async def test_a_change_needs_the_operate_token() -> None:
    store = Store()
    app = web_app(store=store)
    assert (await send(app, "POST", "/api/v1/pauses", json=PAUSE)).status_code == 401
    assert (await send(app, "POST", "/api/v1/pauses", json=PAUSE, token=READ)).status_code == 403
    assert store.calls == []
    assert (await send(app, "POST", "/api/v1/pauses", json=PAUSE, token=OPERATE)).status_code == 201


async def test_a_wrong_bearer_token_is_told_even_where_none_is_needed() -> None:
    for path in ("/", "/api/v1/routes", "/metrics"):
        answer = await send(web_app(), "GET", path, token="wrong")
        assert answer.status_code == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert (await send(web_app(), "GET", "/livez", token="wrong")).status_code == 200
    assert (await send(web_app(access=Access()), "GET", "/", token="wrong")).status_code == 200
    basic = {"authorization": "Basic YTpi"}  # of a proxy in front
    assert (await send(web_app(), "GET", "/", headers=basic)).status_code == 200


async def test_without_a_token_the_overview_tells_names_and_states_and_nothing_else() -> None:
    told = row(
        "alpha",
        state=standing(detail="DETAIL", reason="REASON", quirks=("QUIRK",), rule_id="RULE"),
        url="https://URL.example",
        tags=("TAG",),
    )
    answer = await send(web_app(View(snapshot(told))), "GET", "/")
    assert answer.status_code == 200
    text = " ".join(re.sub("<[^>]+>", " ", answer.text).split())
    assert "acme/ alpha Works" in text
    assert "Log in" in text
    for kept in (
        "DETAIL",
        "REASON",
        "QUIRK",
        "RULE",
        "URL",
        "TAG",
        "native_tools",
        "model-1",
        "420 ms",
        "/routes/alpha",
    ):
        assert kept not in answer.text
    assert "420 ms" in (await send(web_app(View(snapshot(told))), "GET", "/", token=READ)).text


async def test_a_login_opens_a_session_that_is_for_our_pages_alone() -> None:
    async with client(web_app()) as browser:
        assert (await browser.get(ROUTE)).status_code == 401
        answer = await log_in(browser, READ, back=ROUTE)
        assert (answer.status_code, answer.headers["location"]) == (303, ROUTE)
        cookie = answer.headers["set-cookie"]
        assert re.fullmatch(r"routeproof=read\.[\w.-]+; HttpOnly; Max-Age=43200; Path=/; SameSite=strict", cookie)
        assert READ not in cookie
        assert (await browser.get(ROUTE)).status_code == 200
        assert (await browser.get("/api/v1/routes")).status_code == 200


async def test_a_session_by_https_is_bound_to_the_host() -> None:
    app = web_app(access=Access(Secret(READ), external_url="https://probe.example"))
    async with client(app, url="https://probe.example") as browser:
        cookie = (await log_in(browser, READ)).headers["set-cookie"]
        assert cookie.startswith("__Host-routeproof=read.")
        assert "; Secure" in cookie
        assert "Domain" not in cookie
        assert (await browser.get(ROUTE)).status_code == 200


async def test_a_login_ends_after_twelve_hours() -> None:
    clock = Clock()
    app = web_app(clock=clock)
    async with client(app) as browser:
        await log_in(browser)
        clock.now += SESSION_S - 1
        assert (await browser.get(ROUTE)).status_code == 200
        clock.now += 1
        assert (await browser.get(ROUTE)).status_code == 401


async def test_logging_out_takes_the_cookie_away() -> None:
    async with client(web_app()) as browser:
        await log_in(browser)
        token = await form_token(browser)
        refused = await browser.post("/logout", data={"form_token": "x"}, headers=HERE)
        assert refused.status_code == 403
        assert (await browser.get(ROUTE)).status_code == 200
        answer = await browser.post("/logout", data={"form_token": token}, headers=HERE)
        assert answer.status_code == 303
        assert (await browser.get(ROUTE)).status_code == 401


async def test_a_wrong_token_is_told_and_gives_no_session(logs: list[dict[str, Any]]) -> None:
    async with client(web_app()) as browser:
        answer = await log_in(browser, "wrong-but-secret")
        assert answer.status_code == 401
        assert "isn’t a token of this service" in answer.text.replace("&#39;", "’")
        assert "set-cookie" not in answer.headers
    assert [(line["action"], line["address"]) for line in logs] == [("login_failed", "127.0.0.1")]
    assert "wrong-but-secret" not in str(logs)


async def test_guessing_is_slowed_down_by_address_and_a_right_token_must_wait_as_well() -> None:
    clock = Clock()
    app = web_app(clock=clock)
    async with client(app, "192.0.2.1") as guesser, client(app, "192.0.2.2") as other:
        for _ in range(5):
            assert (await log_in(guesser, "wrong")).status_code == 401
        answer = await log_in(guesser)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "12")
        assert "Try again in 12 s." in answer.text
        assert "set-cookie" not in answer.headers
        assert (await log_in(other)).status_code == 303
        clock.now += 12
        assert (await log_in(guesser)).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "cross-site"},
    ],
)
async def test_a_form_elsewhere_can_neither_log_in_nor_change_anything(headers: dict[str, str]) -> None:
    store = Store()
    async with client(web_app(store=store)) as browser:
        answer = await browser.post("/login", data={"token": OPERATE}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        await log_in(browser)
        token = await form_token(browser)
        answer = await browser.post("/api/v1/pauses", json=PAUSE, headers={**headers, "x-form-token": token})
        assert answer.status_code == 403
        assert store.calls == []


async def test_a_change_by_cookie_needs_the_form_token_of_its_session() -> None:
    store = Store()
    app = web_app(store=store)
    async with client(app) as browser, client(app) as other:
        await log_in(browser)
        await log_in(other)
        theirs, mine = await form_token(other), await form_token(browser)
        for headers in (HERE, {**HERE, "x-form-token": ""}, {**HERE, "x-form-token": theirs}):
            answer = await browser.post("/api/v1/pauses", json=PAUSE, headers=headers)
            assert answer.status_code == 403
            assert answer.json()["type"] == "/problems/forbidden"
        in_json = {**PAUSE, "form_token": mine}
        assert (await browser.post("/api/v1/pauses", json=in_json, headers=HERE)).status_code == 403
        assert store.calls == []
        answer = await browser.post("/api/v1/pauses", json=PAUSE, headers={**HERE, "x-form-token": mine})
        assert answer.status_code == 201
        assert answer.json()["by"] == "operate session"


async def test_a_session_of_the_read_token_changes_nothing() -> None:
    store = Store()
    async with client(web_app(store=store)) as browser:
        await log_in(browser, READ)
        headers = {**HERE, "x-form-token": await form_token(browser)}
        assert (await browser.post("/api/v1/pauses", json=PAUSE, headers=headers)).status_code == 403
    assert store.calls == []


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example/", "/\\evil.example", "/a\r\nx: y"])
async def test_a_login_never_leads_elsewhere(back: str) -> None:
    async with client(web_app()) as browser:
        assert (await log_in(browser, back=back)).headers["location"] == "/"
        assert 'name="back" value="/"' in (await browser.get("/login", params={"back": back})).text


async def test_a_page_that_needs_a_login_offers_it_and_comes_back() -> None:
    answer = await send(web_app(), "GET", "/routes/mistral?window=24h&x=<b>")
    assert answer.status_code == 401
    assert 'name="back" value="/routes/mistral?window=24h&amp;x=%3Cb%3E"' in answer.text
    assert "data-refresh" not in answer.text


async def test_a_body_is_bounded_before_anybody_reads_it() -> None:
    app = web_app()
    whole = await send(app, "POST", "/api/v1/pauses", content=b" " * MAX_BODY, token=OPERATE)
    assert whole.status_code == 400
    answer = await send(app, "POST", "/api/v1/pauses", content=b" " * (MAX_BODY + 1), token=OPERATE)
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")
    answer = await send(app, "POST", "/login", content=b"a" * (MAX_BODY + 1))
    assert answer.status_code == 413
    many = "&".join(f"a{n}=1" for n in range(60)).encode()
    answer = await send(
        app, "POST", "/login", content=many, headers={"content-type": "application/x-www-form-urlencoded", **HERE}
    )
    assert answer.status_code == 400


async def test_settings_of_access_may_change_while_it_runs() -> None:
    settings = [Access()]
    app = create_app(
        Board(View(MIXED)),
        Store(),
        ProcessMetrics("default", "0"),
        access=lambda: settings[0],
        because={},
        faults=list,
    )
    assert (await send(app, "GET", ROUTE)).status_code == 200
    settings[0] = TOKENS
    assert (await send(app, "GET", ROUTE)).status_code == 401
    assert (await send(app, "GET", ROUTE, headers={"host": "probe.example"}, token=READ)).status_code == 200
    settings[0] = Access(external_url="http://other.example")
    assert (await send(app, "GET", ROUTE, headers={"host": "probe.example"})).status_code == 421


def hostile_parts(told: CellRow) -> Parts:
    return Parts(
        Board(View(snapshot(told))),
        Store(),
        ProcessMetrics("default", "0"),
        Templates(),
        access=lambda: TOKENS,
        logins=LoginLimit(),
        clock=Clock(),
        because={},
        faults=list,
        unavailable=(),
    )


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_log_line_cannot_be_forged(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = 'x\n{"event": "forged"}\r\x1b[2J\u202e\u2028'
    before = structlog.get_config()
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    set_up_logs()
    try:
        app = web_app()
        await send(app, "POST", "/api/v1/pauses", json={**PAUSE, "reason": bad}, token=OPERATE)
        await send(app, "POST", "/api/v1/pauses", json={**PAUSE, "reason": "well", "by": "Ada"}, token=OPERATE)
        await send(app, "POST", f"/api/v1/routes/{quote(bad)}/probe", headers={"user-agent": "x\ny"}, token=OPERATE)
        await send(app, "POST", "/api/v1/routes/mistral/probe", params={"contract": bad}, token=OPERATE)
        await send(app, "POST", "/login", data={"token": bad, "back": bad}, headers=HERE, client=(bad, 1))
        parts = hostile_parts(row(bad, state=standing(), contract=bad))
        viewer = TOKENS.viewer(TOKENS.role_of(OPERATE.encode()))
        await actions.pause(parts, viewer, PauseScope.ROUTE, bad, 60, True, bad, bad)
        await actions.ask_now(parts, viewer, bad, bad)
    finally:
        structlog.configure(**before)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert not any(not char.isprintable() for line in lines for char in re.sub("\x1b\\[[0-9;]*m", "", line))
    if not terminal:
        began, failed, *_ = (json.loads(line) for line in lines)
        assert (began["action"], began["who"], began["target"]) == ("pause_began", "operate token", "mistral")
        assert (began["reason"], began["by"], began["stops"]) == ("well", "Ada", False)
        assert failed["action"] == "login_failed"
