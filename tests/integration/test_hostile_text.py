"""What a provider says is inert and bounded wherever it is shown: stored by the store, read back, on every page."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine

from service.metrics import ProcessMetrics
from service.model import Rung, Status
from service.store import Board
from service.store.rows import UNSTORABLE
from service.web.access import Access
from service.web.app import create_app
from service.web.last_day import Day
from tests.integration.test_store import HASH, HERE, World, cell, route, verdict

SCRIPT = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}]]>"
ANSI = "\x1b[31mred\x1b]0;title\x07\x1b[2J"
BIDI = "abc\u202egnp.exe\u2066\u200b\U000e0041\ufeff"
LONG = "w" * 10_000
NUL, SURROGATE = "before\x00after", "lone \ud800 surrogate"
TEXTS = {"script": SCRIPT, "ansi": ANSI, "bidi": BIDI, "long": LONG}
PAGES = ("/", "/routes/alpha", "/routes/alpha?contract=native_tools&window=6h", "/transitions")
XML = ("/transitions.atom", "/routes/alpha/transitions.atom", "/badge/alpha.svg", "/badge/alpha/share.svg")
API = ("/api/v1/routes", "/api/v1/routes/alpha", "/api/v1/verdicts", "/api/v1/transitions", "/api/v1/gate/alpha")
LARGEST_PAGE = 300_000
LONGEST_TEXT = 2100  # of a provider 2000, and what we say before and behind


def hostile(text: str) -> dict[str, Any]:
    """Every field of a verdict that can hold a provider's words."""
    rung = Rung(text, text, text, text, 200, text, 1.0)
    return {
        "reason": text,
        "quirks": (text,),
        "served_model": text,
        "detail": text,
        "rungs": (rung, rung),
        "facts": {"exchanges": [{"said": text, text: [text]}]},
    }


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    return World(engine)


async def told(world: World, text: str, **names: str) -> FastAPI:
    """A route that worked and then failed for good, saying this text each time; names of its own say it too."""
    row = route("alpha", **names)
    wanted = [cell(provider=row.provider), cell(contract="missing_tool_results", required=False, provider=row.provider)]
    await world.store.sync(HERE, HASH, [row], wanted)
    start = (await world.store.snapshot()).now - timedelta(minutes=20)
    by_contract = {
        "native_tools": (Status.TOOLS_SUPPORTED,) * 3 + (Status.TIMEOUT,) * 3,
        "missing_tool_results": (Status.HISTORY_ACCEPTED,) * 3 + (Status.HISTORY_REJECTED,) * 3,
    }
    await world.all_due()
    for claim in await world.store.claim(HERE, HASH, 10):
        verdicts = [
            verdict(
                claim,
                status,
                id=uuid4(),
                **{**hostile(text), "served_model": text if place < 3 else f"{text} again"},
                observed_at=start + timedelta(minutes=place),
            )
            for place, status in enumerate(by_contract[claim.contract])
        ]
        assert len(await world.store.save([(claim, each) for each in verdicts])) == len(verdicts)
    day = Day(shares={"alpha": (3, 6)})
    return create_app(
        Board(world.store),
        world.store,
        ProcessMetrics(HERE, "0"),
        access=lambda: Access(external_url="https://probe.example"),
        because={},
        faults=list,
        last_day=lambda: day,
    )


async def get(app: FastAPI, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, (path, answer.text[:300])
    return answer


class Page(HTMLParser):
    """What a browser makes of a page: its elements, and the longest text and attribute in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.longest = 0
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        for name, value in attrs:
            if name != "d":
                self.longest = max(self.longest, len(value or ""))

    def handle_data(self, data: str) -> None:
        self.longest = max(self.longest, len(data))
        self.said += data


def unseen(text: str) -> set[str]:
    """The characters that no reader sees, but for white space."""
    return {hex(ord(c)) for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co") and c not in "\n\t\r"}


async def pages_show_it_as_text_that_is_seen_and_ends(app: FastAPI, kind: str) -> None:
    for path in PAGES:
        answer = await get(app, path)
        page = Page(answer.text)
        assert unseen(page.said) == unseen(answer.text) == set(), path
        assert page.handlers == [], path
        assert "img" not in page.tags, path
        assert page.tags.count("script") == 2, path
        assert page.longest <= LONGEST_TEXT, path
        assert len(answer.text) < LARGEST_PAGE, path
    said = Page((await get(app, "/routes/alpha")).text).said
    assert {"script": SCRIPT, "ansi": "[31mred", "bidi": "[U+202E]gnp.exe", "long": "w" * 1999 + "…"}[kind] in said


async def feed_and_badges_stay_whole(app: FastAPI) -> None:
    for path in XML:
        answer = await get(app, path)
        root = ElementTree.fromstring(answer.content)
        assert unseen(answer.text) == set(), path
        assert not [element for element in root.iter() if element.tag.rpartition("}")[2] in ("script", "img")], path
        assert max(len(element.text or "") for element in root.iter()) <= 1000, path
        assert len(answer.content) < 20_000, path
    entries = ElementTree.fromstring((await get(app, "/transitions.atom")).content)
    assert len(entries.findall("{http://www.w3.org/2005/Atom}entry")) >= 3


def strings(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in (*strings(key), *strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


async def the_api_answers_json_that_no_browser_takes_for_a_page(app: FastAPI) -> None:
    for path in API:
        answer = await get(app, path)
        assert answer.headers["content-type"] == "application/json", path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert strings(json.loads(answer.content)), path
        assert not re.search(rb"[\x00-\x1f\x7f]", answer.content), path


@pytest.mark.parametrize("kind", TEXTS)
async def test_what_a_provider_says_is_inert_and_bounded_everywhere(world: World, kind: str) -> None:
    app = await told(world, TEXTS[kind])
    await pages_show_it_as_text_that_is_seen_and_ends(app, kind)
    await feed_and_badges_stay_whole(app)
    await the_api_answers_json_that_no_browser_takes_for_a_page(app)


@pytest.mark.parametrize("text", [NUL, SURROGATE], ids=["nul", "surrogate"])
async def test_what_the_database_cannot_hold_is_replaced_by_a_sentence_and_the_verdict_counts(
    world: World, text: str
) -> None:
    app = await told(world, text)
    assert world.store.refused == 12
    page = Page((await get(app, "/routes/alpha")).text)
    assert UNSTORABLE in page.said
    assert "Timed out" in page.said
    for path in (*PAGES, *XML, *API):
        answer = await get(app, path)
        assert unseen(answer.text) == set(), path


@pytest.mark.parametrize("kind", TEXTS)
async def test_names_of_the_configuration_are_shown_in_the_same_way(world: World, kind: str) -> None:
    text = TEXTS[kind]
    app = await told(world, "plain", name=text, provider=text, model=text, url=text, tags=(text,))
    for path in PAGES:
        answer = await get(app, path)
        page = Page(answer.text)
        assert unseen(answer.text) == set(), path
        assert (page.handlers, page.tags.count("script"), "img" in page.tags) == ([], 2, False), path
        assert page.longest <= LONGEST_TEXT, path
    for path in XML:
        answer = await get(app, path)
        ElementTree.fromstring(answer.content)
        assert unseen(answer.text) == set(), path
        assert len(answer.content) < 20_000, path


def test_the_texts_are_as_bad_as_they_should_be() -> None:
    assert all(unseen(text) for text in (ANSI, BIDI, NUL, SURROGATE))
    assert Page(SCRIPT).tags == ["script", "img"]
