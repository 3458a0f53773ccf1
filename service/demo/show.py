"""The demo: a scripted provider on loopback, routes that show what can go wrong, and the service that watches them.

No configuration, no key, no network. The database is an embedded one in a folder that goes when the demo ends.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.table import Table

from service.bootstrap import serve
from service.config import Config, ServiceSettings
from service.demo.provider import Provider
from service.demo.scenario import Scenario
from service.model import ContractUse, Route

INTERVAL = timedelta(seconds=4)
TURN_S = 30.0
"""The route that breaks and heals is well for so long, then broken for so long."""

_STORY: tuple[tuple[str, str, str, str], ...] = (
    ("lighthouse/steady", "lighthouse", "baseline-chat-native-tools", "healthy: one request a probe"),
    ("lighthouse/thinking", "lighthouse", "http-deepseek-thinking-forced-400", "healthy, but refuses a forced choice"),
    ("harbour/weekly-storm", "harbour", "baseline-chat-native-tools", "breaks and heals every minute"),
    ("harbour/cuts-off", "harbour", "sse-silent-eof-mid-arguments", "its streams end early"),
    ("atelier/no-tools", "atelier", "http-ollama-no-tools", "refuses tools"),
    ("atelier/talks-instead", "atelier", "leak-kimi-tokens-content", "sends its calls as text"),
    ("atelier/double-wrapped", "atelier", "delta-double-encoded-oci", "encodes arguments twice"),
    ("tollgate/wrong-key", "tollgate", "x-401-openai", "refuses the key"),
    ("tollgate/too-busy", "tollgate", "x-429-retry-after-seconds", "answers 429"),
)
_CHANGING = "harbour/weekly-storm"
_BROKEN = "sse-silent-eof-mid-arguments"


async def show(port: int) -> None:
    """Run the demo on 127.0.0.1 until Ctrl-C. Raises what `serve` raises."""
    scenarios = _scenarios()
    played = {name: replace(scenarios[id], id=_slug(name)) for name, _, id, _ in _STORY}
    async with Provider(played.values()) as provider:
        with tempfile.TemporaryDirectory(prefix="routeproof-demo-") as folder:
            config = _config(provider, port, Path(folder))
            turning = asyncio.create_task(_turn(provider, played[_CHANGING], scenarios[_BROKEN]))
            try:
                await serve(config, probes=True, web=True, ready=lambda: _announce(config))
            finally:
                turning.cancel()
                with suppress(asyncio.CancelledError):
                    await turning


def _scenarios() -> dict[str, Scenario]:
    lines = files("service.demo").joinpath("replies.jsonl").read_text(encoding="utf-8").split("\n")
    return {scenario.id: scenario for scenario in (Scenario.parse(json.loads(line)) for line in lines if line)}


def _slug(name: str) -> str:
    return name.replace("/", "-")


def _config(provider: Provider, port: int, folder: Path) -> Config:
    routes = tuple(
        Route(
            id=_slug(name),
            name=name,
            provider=group,
            dialect="openai-chat",
            base_url=provider.url(_slug(name)),
            model="demo-model",
            interval=INTERVAL,
            deadline=timedelta(seconds=5),
            contracts=(ContractUse("native_tools"),),
            tags=("demo",),
        )
        for name, group, _, _ in _STORY
    )
    settings = ServiceSettings(data_dir=folder, port=port, external_url=f"http://127.0.0.1:{port}", location="demo")
    return Config(service=settings, routes=routes, warnings=(), hash="demo")


async def _turn(provider: Provider, well: Scenario, broken: Scenario) -> None:
    while True:
        await asyncio.sleep(TURN_S)
        provider.replace(well.id, replace(broken, id=well.id))
        await asyncio.sleep(TURN_S)
        provider.replace(well.id, well)


def _announce(config: Config) -> None:
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, _, _, what in _STORY:
        table.add_row(f"  [bold]{name}[/]", what)
    console.print(
        f"\n[bold green]Routeproof is watching[/] {len(_STORY)} demo routes, each every {INTERVAL.seconds} s.\n"
    )
    console.print(table)
    console.print(f"\n  Open    [bold]{config.service.external_url}/[/]")
    console.print(f"  Metrics {config.service.external_url}/metrics")
    console.print("  Stop    Ctrl-C\n")
