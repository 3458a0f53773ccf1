"""The demo's provider tells the demo's story: each route, asked all of its contracts, says what it is there to show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.config import Config, ServiceSettings
from service.contracts import CONTRACTS
from service.demo import show
from service.dialects import DIALECTS
from service.model import Credentials
from service.probe import Moment, Prober
from service.transport import LoopLag, Transport
from tests.peer import playing

SCENARIOS = show.load_scenarios()
HEALTHY = {"native_tools": "tools_supported", "agent_turn": "turn_completed"}
TAKES_ALL = {
    **HEALTHY,
    "undeclared_tool_history": "history_accepted",
    "displaced_tool_results": "history_accepted",
    "missing_tool_results": "history_accepted",
    "orphaned_tool_results": "history_accepted",
    "duplicate_tool_results": "history_accepted",
    "tool_choice_none_history": "history_accepted",
    "mixed_result_carrier": "not_sent",
    "parallel_tool_calls": "parallel_calls_supported",
}
PAIRING = ("displaced_tool_results", "missing_tool_results", "orphaned_tool_results", "duplicate_tool_results")

VERDICTS: dict[str, dict[str, str]] = {
    "lighthouse/steady": HEALTHY,
    "lighthouse/responses": HEALTHY,
    "lighthouse/messages": HEALTHY,
    "lighthouse/gemini": HEALTHY,
    "lighthouse/thinking": {**HEALTHY, "native_tools": "forced_tool_choice_rejected"},
    "customs/strict": {**TAKES_ALL, **dict.fromkeys(PAIRING, "history_rejected")},
    "customs/tolerant": TAKES_ALL,
    "customs/vague": {**HEALTHY, "undeclared_tool_history": "history_rejected"},
    "harbour/weekly-storm": HEALTHY,
    "harbour/cuts-off": dict.fromkeys(HEALTHY, "stream_early_eof"),
    "atelier/no-tools": {"native_tools": "tools_payload_rejected", "agent_turn": "provider_error"},
    "atelier/talks-instead": dict.fromkeys(HEALTHY, "tool_call_leaked_as_text"),
    "atelier/double-wrapped": dict.fromkeys(HEALTHY, "malformed_tool_call"),
    "tollgate/wrong-key": dict.fromkeys(HEALTHY, "endpoint_auth_failed"),
    "tollgate/too-busy": dict.fromkeys(HEALTHY, "rate_limited"),
}


def test_every_route_of_the_story_is_judged_here_and_no_reply_is_left_over() -> None:
    assert [act.name for act in show.STORY] == list(VERDICTS)
    assert {act.scenario for act in show.STORY} | {show._BROKEN} == SCENARIOS.keys()


async def verdicts(act: show.Act) -> dict[str, str]:
    scenario = replace(SCENARIOS[act.scenario], id=act.id)
    async with playing([scenario]) as provider, LoopLag() as lag, Transport(lag) as transport:
        prober = Prober(transport, "demo")
        route = show.route_of(act, scenario.dialect, provider.url(act.id))
        asked = [use.name for use in route.contracts]
        probed = [await prober.probe(route, name, Credentials(), Moment.now()) for name in asked]
    return {one.verdict.contract: one.verdict.status.value for one in probed}


@pytest.mark.parametrize("act", show.STORY, ids=lambda act: act.name)
async def test_a_route_shows_what_it_is_there_for(act: show.Act) -> None:
    assert await verdicts(act) == VERDICTS[act.name]


async def test_the_route_that_breaks_and_heals_really_breaks() -> None:
    broken = show.Act("harbour/weekly-storm", show._BROKEN, "")
    assert await verdicts(broken) == dict.fromkeys(HEALTHY, "stream_early_eof")


def test_the_story_has_every_dialect_and_every_contract() -> None:
    assert {SCENARIOS[act.scenario].dialect for act in show.STORY} == DIALECTS.keys()
    assert {name for shown in VERDICTS.values() for name in shown} == CONTRACTS.keys()


async def test_everything_is_asked_within_ten_seconds() -> None:
    """First starts lie within the cell's own interval; two seconds are left for asking, saving and showing."""
    async with playing([replace(SCENARIOS[act.scenario], id=act.id) for act in show.STORY]) as provider:
        routes = [show.route_of(act, SCENARIOS[act.scenario].dialect, provider.url(act.id)) for act in show.STORY]
    assert max(use.every * route.interval.total_seconds() for route in routes for use in route.contracts) <= 8


def test_only_the_two_required_contracts_decide() -> None:
    for act in show.STORY:
        route = show.route_of(act, "openai-chat", "http://127.0.0.1")
        assert [use.name for use in route.contracts if use.required] == ["native_tools", "agent_turn"]


def test_the_terminal_names_every_route_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show._announce(Config(ServiceSettings(data_dir=Path(), external_url="http://127.0.0.1:1"), (), (), "demo"))
    said = capsys.readouterr().out
    for act in show.STORY:
        (line,) = [line for line in said.splitlines() if act.name in line]
        assert line.rstrip().endswith(act.shows)
    assert "http://127.0.0.1:1/\n" in said
