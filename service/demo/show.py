"""The demo: a scripted provider on loopback, routes that show what can go wrong, and the service that watches them.

No configuration, no key, no network. The database is an embedded one in a folder that goes when the demo ends.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from service.bootstrap import serve
from service.config import Config, ServiceSettings
from service.contracts import CONTRACTS
from service.demo.provider import Provider
from service.demo.scenario import Scenario
from service.model import ContractUse, Route

INTERVAL = timedelta(seconds=4)
SELDOM = 2
"""Whole turns and histories are asked every so many intervals: all have been asked once within ten seconds."""
TURN_S = 30.0
"""The route that breaks and heals is well for so long, then broken for so long."""


class Act(NamedTuple):
    """One route of the story: what it is called, the scenario it plays, the contracts it is asked for information, and
    what it shows, in words."""

    name: str
    scenario: str
    shows: str
    informational: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.name.replace("/", "-")

    @property
    def provider(self) -> str:
        return self.name.partition("/")[0]


_ALL = tuple(name for name, contract in CONTRACTS.items() if not contract.required)

STORY = (
    Act("lighthouse/steady", "baseline-chat-agent-turn", "healthy"),
    Act("lighthouse/responses", "baseline-responses-agent-turn", "healthy, in the Responses dialect"),
    Act("lighthouse/messages", "baseline-anthropic-agent-turn", "healthy, in Anthropic's dialect"),
    Act("lighthouse/gemini", "baseline-gemini-agent-turn", "healthy, in Gemini's dialect"),
    Act("lighthouse/thinking", "thinking", "refuses a forced choice, wants its reasoning back"),
    Act("customs/strict", "strict-pairing", "works, but refuses four shapes of history", _ALL),
    Act("customs/tolerant", "tolerant", "works, and takes them all", _ALL),
    Act(
        "customs/vague",
        "undeclared-refused-in-stream",
        "fails vaguely when a history declares no tools",
        ("undeclared_tool_history",),
    ),
    Act("harbour/weekly-storm", "baseline-chat-agent-turn", "breaks and heals every minute"),
    Act("harbour/cuts-off", "sse-silent-eof-mid-arguments", "its streams end early"),
    Act("atelier/no-tools", "http-ollama-no-tools", "refuses tools"),
    Act("atelier/talks-instead", "leak-kimi-tokens-content", "sends its calls as text"),
    Act("atelier/double-wrapped", "delta-double-encoded-oci", "encodes arguments twice"),
    Act("tollgate/wrong-key", "x-401-openai", "refuses the key"),
    Act("tollgate/too-busy", "too-busy", "answers 429"),
)
_CHANGING = "harbour-weekly-storm"
_BROKEN = "sse-silent-eof-mid-arguments"


async def show(port: int) -> None:
    """Run the demo on 127.0.0.1 until Ctrl-C. Raises what `serve` raises."""
    scenarios = load_scenarios()
    played = {act.id: replace(scenarios[act.scenario], id=act.id) for act in STORY}
    async with Provider(played.values()) as provider:
        with tempfile.TemporaryDirectory(prefix="routeproof-demo-") as folder:
            config = _config(provider, scenarios, port, Path(folder))
            turning = asyncio.create_task(_turn(provider, played[_CHANGING], scenarios[_BROKEN]))
            try:
                await serve(config, probes=True, web=True, ready=lambda: _announce(config))
            finally:
                turning.cancel()
                with suppress(asyncio.CancelledError):
                    await turning


def load_scenarios() -> dict[str, Scenario]:
    """What the demo's provider can play, by id."""
    lines = files("service.demo").joinpath("replies.jsonl").read_text(encoding="utf-8").split("\n")
    return {scenario.id: scenario for scenario in (Scenario.parse(json.loads(line)) for line in lines if line)}


def route_of(act: Act, dialect: str, base_url: str) -> Route:
    """The route as the demo watches it."""
    return Route(
        id=act.id,
        name=act.name,
        provider=act.provider,
        dialect=dialect,
        base_url=base_url,
        model="demo-model",
        interval=INTERVAL,
        deadline=timedelta(seconds=5),
        contracts=(
            ContractUse("native_tools"),
            ContractUse("agent_turn", every=SELDOM),
            *(ContractUse(name, every=SELDOM, required=False) for name in act.informational),
        ),
        tags=("demo",),
    )


def _config(provider: Provider, scenarios: Mapping[str, Scenario], port: int, folder: Path) -> Config:
    routes = tuple(route_of(act, scenarios[act.scenario].dialect, provider.url(act.id)) for act in STORY)
    settings = ServiceSettings(data_dir=folder, port=port, external_url=f"http://127.0.0.1:{port}", location="demo")
    return Config(service=settings, routes=routes, warnings=(), hash="demo")


async def _turn(provider: Provider, well: Scenario, broken: Scenario) -> None:
    while True:
        await asyncio.sleep(TURN_S)
        provider.replace(well.id, replace(broken, id=well.id))
        await asyncio.sleep(TURN_S)
        provider.replace(well.id, well)
        provider.requests.clear()  # a log for tests, which nobody reads here


def _announce(config: Config) -> None:
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for act in STORY:
        table.add_row(f"  [bold]{act.name}[/]", act.shows)
    console.print(
        f"\n[bold green]Routeproof is watching[/] {len(STORY)} demo routes: a tool call every {INTERVAL.seconds} s, "
        f"whole turns and histories every {(INTERVAL * SELDOM).seconds} s.\n"
    )
    console.print(table)
    console.print(f"\n  Open    [bold]{config.service.external_url}/[/]")
    console.print(f"  Metrics {config.service.external_url}/metrics")
    console.print("  Stop    Ctrl-C\n")
