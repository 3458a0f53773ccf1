"""The application over HTTP: pages, health, metrics, and who may ask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import ProcessMetrics
from service.model import Secret, Snapshot, Status, Transition
from service.store import board as store_board
from service.web.access import Access
from service.web.app import create_app
from tests.samples import (
    BECAUSE,
    LADDER,
    MINUTE,
    MIXED,
    NOW,
    STORIES,
    Board,
    History,
    View,
    row,
    snapshot,
    standing,
    stored,
)

QWEN = "/routes/qwen3-235b-a22b-instruct-2507"
HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>{{ 7*7 }}</pre>"


def app(
    view: View | None = None,
    history: History | None = None,
    faults: Sequence[str] = (),
    access: Access = Access(external_url="http://probe.example"),  # noqa: B008 - frozen
) -> FastAPI:
    return create_app(
        Board(view or View(MIXED, age_s=2)),
        history or History(STORIES),
        ProcessMetrics("default", "0"),
        access=lambda: access,
        because=BECAUSE,
        faults=lambda: list(faults),
        unavailable=(ConnectionError,),
    )


async def get(path: str, served: FastAPI | None = None, *, method: str = "GET", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=served or app())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        return await client.request(method, path, headers=headers)


class Outline(HTMLParser):
    """The elements of a page, and a check that what is opened is closed."""

    VOID = frozenset({"meta", "link", "path", "circle", "use", "br", "img", "wbr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


async def test_the_overview_opens_with_its_sentence_and_the_age_of_its_data() -> None:
    answer = await get("/")
    assert answer.status_code == 200
    text = re.sub(r"<[^>]+>", "", answer.text)
    assert "2 of 7 routes cannot carry a turn; 1 works in some places only; 1 proof expired" in text
    assert "as of 03:12:09 UTC, data 2 s old, 3 probers, database ok, egress ok" in text
    assert text.index("openrouter/qwen3") < text.index("openai/gpt-4o-mini")
    assert 'http-equiv="refresh"' in answer.text


async def test_a_route_page_shows_rule_reason_ladder_and_history() -> None:
    answer = await get(QWEN)
    assert answer.status_code == 200
    text = re.sub(r"<[^>]+>", "", answer.text)
    for words in (
        "Broken: stream ends early",
        "The body ended before the answer announced its end.",
        "closed_after_event",
        "tools, choice forced, max_tokens",
        "14 events, no announced end",
        "No tool call made",
        "routeproof check -c routeproof.yaml --route qwen3-235b-a22b-instruct-2507 --explain",
    ):
        assert words in text


@pytest.mark.parametrize("path", ["/", QWEN, "/routes/nobody", "/routes/claude", "/routes/mistral"])
async def test_pages_are_well_formed_and_load_nothing_from_elsewhere(path: str) -> None:
    text = (await get(path)).text
    outline = Outline(text)
    for tag, attributes in outline.tags:
        for name in ("src", "href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("/", "#")), (tag, target)
            assert target is None or not target.startswith("//")
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert [tag for tag, _ in outline.tags].count("h1") == 1
    assert [a.get("src") for tag, a in outline.tags if tag == "script"] == ["/static/details.js", "/static/live.js"]


async def test_what_providers_and_configuration_say_is_escaped_everywhere() -> None:
    bad = replace(standing(detail=HOSTILE, reason=HOSTILE, quirks=(HOSTILE,), rule_id=HOSTILE), served_model=HOSTILE)
    rung = replace(LADDER[0], rung=HOSTILE, shape=HOSTILE, ended=HOSTILE, read=HOSTILE, detail=HOSTILE)
    cell = row(
        "hostile",
        state=bad,
        name=HOSTILE,
        provider=HOSTILE,
        contract=HOSTILE,
        location=HOSTILE,
        url=HOSTILE,
        tags=(HOSTILE,),
    )
    verdict = stored(bad, contract=HOSTILE, location=HOSTILE, rungs=(rung,))
    served = app(View(snapshot(cell)), History({"hostile": [verdict]}))
    for path in ("/", "/routes/hostile"):
        text = (await get(path, served)).text
        Outline(text)
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "&lt;script&gt;alert(1)" in text
        assert "{{ 7*7 }}" in text


async def test_changes_of_what_is_not_required_are_told_with_what_else_changed() -> None:
    change = Transition(
        at=NOW - 3 * MINUTE,
        route_id="qwen3-235b-a22b-instruct-2507",
        contract="displaced_tool_results",
        location="default",
        kind="informational",
        from_status="history_accepted",
        from_reason=None,
        to_status="history_rejected",
        to_reason="http_400",
        changed={"served_model": {"from": "qwen-1", "to": "<b>qwen-2</b>"}},
    )
    quiet = await get(QWEN)
    assert "None yet." in quiet.text[quiet.text.index("<h2>Changes</h2>") :]
    told = await get(QWEN, app(history=History(STORIES, {change.route_id: [change]})))
    Outline(told.text)
    words = " ".join(re.sub("<[^>]+>", " ", told.text[told.text.index("<h2>Changes</h2>") :]).split())
    assert "3 min ago displaced_tool_results Another answer, not required Accepted → History refused" in words
    assert "served model qwen-1 → &lt;b&gt;qwen-2&lt;/b&gt;" in words


async def test_an_unknown_route_is_a_404_page() -> None:
    answer = await get("/routes/%3Cscript%3E")
    assert answer.status_code == 404
    assert "No route with this id is configured." in answer.text
    assert "<script>" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_a_lost_database_is_told_first_and_history_is_not_asked() -> None:
    history = History(error=AssertionError("history was asked"))
    served = app(View(MIXED, age_s=400, database_up=False), history)
    for path in ("/", QWEN):
        answer = await get(path, served)
        assert answer.status_code == 200
        assert "This is what was known 6 min ago" in answer.text
    assert "History can’t be read" in answer.text


async def test_history_that_fails_leaves_the_rest_of_the_page() -> None:
    answer = await get(QWEN, app(history=History(error=ConnectionError("gone"))))
    assert answer.status_code == 200
    assert "Broken: stream ends early" in answer.text
    assert "History can’t be read" in answer.text


async def test_a_fault_of_ours_in_history_is_not_taken_for_a_lost_database() -> None:
    with pytest.raises(ZeroDivisionError):
        await get(QWEN, app(history=History(error=ZeroDivisionError())))


async def test_health() -> None:
    assert (await get("/livez")).text == "ok\n"
    answer = await get("/livez", app(faults=["dispatch stands still for 90 s", "event loop late by 3 s"]))
    assert (answer.status_code, answer.text) == (503, "dispatch stands still for 90 s\nevent loop late by 3 s\n")
    assert (await get("/readyz")).status_code == 200
    assert (await get("/readyz", app(View(MIXED, age_s=900, database_up=False)))).status_code == 200
    assert (await get("/readyz", app(View(snapshot(), database_up=False)))).status_code == 503


async def test_not_ready_before_the_first_read_of_the_database_and_ready_after_it() -> None:
    class Store:
        snapshots: Snapshot | Exception = OSError("not yet")

        async def snapshot(self) -> Snapshot:
            if isinstance(self.snapshots, Exception):
                raise self.snapshots
            return self.snapshots

    store, clock = Store(), [0.0]
    board = store_board.Board(store, monotonic=lambda: clock[0])
    served = create_app(
        board,
        History(),
        ProcessMetrics("default", "0"),
        access=lambda: Access(external_url="http://x"),
        because={},
        faults=list,
    )
    assert (await get("/readyz", served)).status_code == 503
    said = (await get("/", served)).text.replace("&#39;", "'")
    assert "no data has been read yet" in said
    assert "<span>data" not in said
    clock[0], store.snapshots = 2.0, MIXED
    assert (await get("/readyz", served)).status_code == 200
    clock[0], store.snapshots = 4.0, OSError("gone")
    assert (await get("/readyz", served)).status_code == 200


async def test_the_matrix_is_a_real_table_whose_cells_lead_to_the_route() -> None:
    refused = row("alpha", contract="displaced_tool_results", required=False, state=standing(Status.HISTORY_REJECTED))
    served = app(View(snapshot(row(state=standing()), refused)))
    text = (await get("/", served)).text
    outline = Outline(text)
    tables = [a for tag, a in outline.tags if tag == "table"]
    assert [(a["class"], a["role"]) for a in tables] == [("cards routes", "table"), ("cards matrix", "table")]
    assert [a["href"] for tag, a in outline.tags if tag == "a"][-1] == "/routes/alpha#displaced_tool_results"
    page = (await get("/routes/alpha", served)).text
    assert 'id="displaced_tool_results"' in page
    assert "Hoist the results: every result right behind its calls." in page
    assert "&#34;tool_call_id&#34;: &#34;c2&#34;" in page
    assert '<table class="cards matrix"' not in (await get("/")).text


async def test_metrics_are_plain_or_gzipped_as_asked() -> None:
    answer = await get("/metrics", **{"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"routeproof_contract_proven", "routeproof_database_up"} <= families
    plain = await get("/metrics", **{"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("127.3.2.1", 200),
        ("[::1]:8080", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("probe.example", 200),
        ("Probe.Example:443", 200),
        ("evil.example", 421),
        ("probe.example.evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example@localhost.evil.example", 421),
        ("[::1", 421),
        ("", 400),
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/livez", "/readyz"])
async def test_only_our_own_host_names_are_answered(path: str, host: str, status: int) -> None:
    answer = await get(path, host=host)
    assert answer.status_code == status
    if status == 421:
        assert "set service.external_url" in answer.text


@pytest.mark.parametrize("host", ["10.0.0.7:8080", "192.0.2.1", "[2001:db8::7]:8080", "0.0.0.0"])
async def test_health_checks_and_scrapes_may_use_any_address_and_readers_may_not(host: str) -> None:
    for path in ("/metrics", "/livez", "/readyz"):
        assert (await get(path, host=host)).status_code == 200
    for path in ("/", QWEN, "/static/style.css", "/metrics/", "/nowhere"):
        assert (await get(path, host=host)).status_code == 421


@pytest.mark.parametrize("host", ["10.0.0.7.evil.example", "10.0.0", "0x7f000001", "10.0.0.7@evil.example"])
async def test_what_only_looks_like_an_address_is_none(host: str) -> None:
    assert (await get("/metrics", host=host)).status_code == 421


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        (QWEN, {}),
        ("/nowhere", {}),
        ("/metrics", {}),
        ("/livez", {}),
        ("/static/style.css", {}),
        ("/", {"host": "evil.example"}),
    ],
)
async def test_every_answer_has_the_security_headers(path: str, headers: dict[str, str]) -> None:
    answer = await get(path, **headers)
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/", QWEN])
async def test_pages_are_not_kept(path: str) -> None:
    assert (await get(path)).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/static/../app.py", "/static/%2e%2e/app.py"])
async def test_nothing_else_is_served(path: str) -> None:
    assert (await get(path)).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_pages_are_only_read(method: str) -> None:
    assert (await get("/", method=method)).status_code == 403
    access = Access(operate_token=Secret("may-change-everything"))
    answer = await get("/", app(access=access), method=method, authorization="Bearer may-change-everything")
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/", QWEN, "/metrics", "/livez", "/readyz"])
async def test_head_is_answered_like_get(path: str) -> None:
    assert (await get(path, method="HEAD")).status_code == 200


async def test_a_page_without_routes_says_what_to_do() -> None:
    assert "routeproof config check" in (await get("/", app(View(snapshot())))).text
