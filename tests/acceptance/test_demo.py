"""The demo tells its story, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import html
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.demo import show
from service.demo.provider import Provider
from service.remedies import in_words
from tests.acceptance.processes import free_port, get, open_folder, routeproof, run, servers_below, until
from tests.peer import load_corpus

STORY = {
    "lighthouse/steady": ("Works", "tools_supported"),
    "lighthouse/responses": ("Works", "tools_supported"),
    "lighthouse/messages": ("Works", "tools_supported"),
    "lighthouse/gemini": ("Works", "tools_supported"),
    "lighthouse/thinking": ("Works", "forced_tool_choice_rejected"),
    "customs/strict": ("Works", "tools_supported"),
    "customs/tolerant": ("Works", "tools_supported"),
    "customs/vague": ("Works", "tools_supported"),
    "harbour/weekly-storm": ("Works", "tools_supported"),
    "harbour/cuts-off": ("Broken", "stream_early_eof"),
    "atelier/no-tools": ("Broken", "tools_payload_rejected"),
    "atelier/talks-instead": ("Broken", "tool_call_leaked_as_text"),
    "atelier/double-wrapped": ("Broken", "malformed_tool_call"),
    "tollgate/wrong-key": ("Blocked", "endpoint_auth_failed"),
    "tollgate/too-busy": ("Blocked", "rate_limited"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def story_of(page: str) -> dict[str, tuple[str, str]]:
    """Each route of the overview with its state and its contract's words."""
    rows = re.findall(r'<th role="rowheader" scope="row">(.*?)</tr>', page, re.DOTALL)
    found = {}
    for row in rows:
        name = re.search(r'href="/routes/[^"]*">([^<]*)</a>', row)
        state = re.search(r'class="state">.*?</svg>\s*(.*?)\s*</span>', row, re.DOTALL)
        words = re.search(r"<strong>(.*?)</strong>", row)
        assert name
        assert state
        assert words
        found[html.unescape(name[1])] = (html.unescape(state[1]), html.unescape(words[1]))
    return found


async def test_the_page_tells_every_outcome_and_ctrl_c_leaves_nothing(folder: Path) -> None:
    port = free_port()
    with routeproof("demo", "--port", str(port), env={"TMPDIR": str(folder)}) as process:
        await process.ready(port)

        story = {name: (state, in_words(status)) for name, (state, status) in STORY.items()}

        async def tells_all() -> bool:
            page = (await get(port, "/")).text.replace("<wbr>", "")
            return story_of(page) == story and "6 of 15 routes cannot carry a turn" in page

        await until(tells_all, every=0.1)
        assert len(servers_below(folder)) == 1
        assert await process.stop(signal.SIGINT) == 0
        assert not servers_below(folder)
        assert list(folder.iterdir()) == []
        assert process.err == ""
        for name in STORY:
            assert name in process.out
        assert f"http://127.0.0.1:{port}/\n" in process.out


async def test_a_port_in_use_is_said_with_the_way_out(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = await run("demo", "--port", str(port), env={"TMPDIR": str(folder)})
    assert (code, out) == (2, "")
    assert err == f"can't listen on 127.0.0.1:{port}: Address already in use. Choose another port with --port.\n"
    assert list(folder.iterdir()) == []


async def test_one_route_breaks_and_heals_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: asyncio.Queue[float] = asyncio.Queue()
    go = asyncio.Event()

    async def sleep(seconds: float) -> None:
        steps.put_nowait(seconds)
        await go.wait()
        go.clear()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    well = replace(load_corpus(("baseline-chat-native-tools",))[0], id="storm")
    broken = load_corpus(("sse-silent-eof-mid-arguments",))[0]
    provider = Provider([well])
    played = []
    monkeypatch.setattr(provider, "replace", lambda id, scenario: played.append((id, scenario.what)))
    turning = asyncio.create_task(show._turn(provider, well, broken))
    for _ in range(4):
        assert await steps.get() == show.TURN_S
        go.set()
    assert await steps.get() == show.TURN_S
    turning.cancel()
    assert played == [("storm", broken.what), ("storm", well.what)] * 2
