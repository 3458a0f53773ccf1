"""docs/contracts.md agrees with the code: its names, statuses, defaults and examples."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from service.config import load
from service.contracts import CONTRACTS
from service.demo import show
from service.demo.scenario import Entry, Scenario
from service.dialects import DIALECTS
from service.model import Ask, Credentials, Route, Status
from service.probe import Moment, Prober
from service.transport import LoopLag, Transport
from tests.peer import playing

DOC = Path(__file__).parents[2] / "docs" / "contracts.md"
TEXT = DOC.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
REQUESTS = {
    "openai/chat": "https://api.openai.com/v1/chat/completions",
    "openai/responses": "https://api.openai.com/v1/responses",
    "azure/gpt-4o-mini": "https://RESOURCE.openai.azure.com/openai/deployments/DEPLOYMENT/chat/completions"
    "?api-version=2024-10-21",
    "anthropic": "https://api.anthropic.com/v1/messages",
    "gemini/native": "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    "gemini/compatible": "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
    "groq": "https://api.groq.com/openai/v1/chat/completions",
    "openrouter": "https://openrouter.ai/api/v1/chat/completions",
    "vllm": "http://127.0.0.1:8000/v1/chat/completions",
    "ollama": "http://127.0.0.1:11434/v1/chat/completions",
    "litellm": "http://127.0.0.1:4000/v1/chat/completions",
}


def routes(example: str, folder: Path) -> tuple[Route, ...]:
    file = folder / "routeproof.yaml"
    file.write_text(example, encoding="utf-8")
    return load(file, {}).routes


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    table = TEXT.split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_contract_has_its_claim_and_its_cost() -> None:
    assert [row[0].strip("`") for row in rows("contract | claim")] == list(CONTRACTS)
    assert [row[0].strip("`") for row in rows("contract | healthy")] == list(CONTRACTS)


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_cap_and_the_cadence_are_those_of_the_code(name: str) -> None:
    (row,) = [row for row in rows("contract | healthy") if row[0] == f"`{name}`"]
    every = CONTRACTS[name].every
    assert row[4] == str(CONTRACTS[name].max_requests)
    assert row[6] == ("interval" if every == 1 else f"{every} intervals")


@pytest.mark.parametrize("status", Status)
def test_every_status_is_told(status: Status) -> None:
    assert f"`{status}`" in TEXT


def test_required_decides_and_every_multiplies(tmp_path: Path) -> None:
    plain, gateway, summaries = routes(EXAMPLES[0], tmp_path)
    assert [(use.name, use.every, use.required) for use in plain.contracts] == [
        ("native_tools", 1, True),
        ("agent_turn", 12, True),
    ]
    assert [(use.name, use.every, use.required) for use in gateway.contracts] == [
        ("native_tools", 1, True),
        ("agent_turn", 3, True),
        ("undeclared_tool_history", 12, False),
        ("displaced_tool_results", 288, False),
        ("parallel_tool_calls", 288, False),
    ]
    assert all(use.required for use in summaries.contracts)


def test_every_base_leads_to_its_api(tmp_path: Path) -> None:
    asked = {
        route.name: DIALECTS[route.dialect].encode(route, _first(route)).url for route in routes(EXAMPLES[1], tmp_path)
    }
    assert asked == REQUESTS


def _first(route: Route) -> Ask:
    ask = CONTRACTS["native_tools"].next_ask(route, "nonce", ())
    assert ask is not None
    return ask


# --- what it costs, counted -----------------------------------------------------------------------------------

WELL = show.load_scenarios()


def fails(status: int, *, when: str | list[str] = "any") -> Entry:
    body = {"error": {"message": "This is refused.", "type": "some_error"}}
    reply = {"status": status, "headers": {"content-type": "application/json"}, "framing": "json", "body": body}
    return Entry.parse({"when": when, "reply": reply})


# What makes a working route break each claim.
REFUSED_WHEN: dict[str, str | list[str]] = {
    "native_tools": "not:no_tools",
    "agent_turn": "has_tool_history",
    "undeclared_tool_history": "undeclared_history",
    "displaced_tool_results": "displaced",
    "missing_tool_results": "missing_result",
    "orphaned_tool_results": "orphaned_result",
    "duplicate_tool_results": "duplicate_result",
    "tool_choice_none_history": ["has_tool_history", "not:auto", "not:forced"],
    "parallel_tool_calls": "parallel_flag",
}


def well(name: str) -> Scenario:
    return WELL["baseline-anthropic-agent-turn" if name == "mixed_result_carrier" else "tolerant"]


async def asked(name: str, scenario: Scenario) -> tuple[int, float]:
    """How many requests a probe sends, and their bytes by four."""
    async with playing([scenario]) as provider, LoopLag() as lag, Transport(lag) as transport:
        act = show.Act("docs/route", scenario.id, "")
        route = show.route_of(act, scenario.dialect, provider.url(scenario.id))
        probed = await Prober(transport, "docs").probe(route, name, Credentials(), Moment.now())
        size = sum(len(json.dumps(dict(one.body), separators=(",", ":"))) for one in provider.requests)
    return probed.verdict.requests, size / 4


@pytest.mark.parametrize("name", CONTRACTS)
async def test_the_costs_are_those_that_are_counted(name: str) -> None:
    (row,) = [row for row in rows("contract | healthy") if row[0] == f"`{name}`"]
    requests, tokens = await asked(name, well(name))
    assert row[1] == str(requests)
    assert tokens == pytest.approx(int(row[5]), rel=0.1)
    outage = await asked(name, replace(well(name), replies=(fails(500),)))
    assert row[3] == str(outage[0])
    if name in REFUSED_WHEN:
        strict = replace(well(name), replies=(fails(400, when=REFUSED_WHEN[name]), *well(name).replies))
        assert row[2] == str((await asked(name, strict))[0])
