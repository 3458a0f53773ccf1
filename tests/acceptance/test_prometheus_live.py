"""The whole way of an alert, with the real programs: a route breaks, Prometheus scrapes it from the service, the rule
fires, Alertmanager sends it to a webhook, the route heals and the alert resolves. On the way every query of every
dashboard is asked of that Prometheus.

The files under deploy/ are used as they are, but for addresses and for how long things take, see `configured`.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.demo.scenario import End
from tests.acceptance.processes import PATIENCE_S, ROOT, Process, free_port, open_folder, routeproof, until, write
from tests.dashboards import Asked, asked
from tests.peer import load_corpus, playing

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("prometheus", "promtool", "prometheus-alertmanager")),
    reason="no Prometheus or Alertmanager: they come with Debian's packages prometheus and prometheus-alertmanager",
)

HEALTHY = load_corpus(("baseline-chat-native-tools",))[0]
ODD = replace(  # well, with a quirk: it never sends [DONE]
    HEALTHY, replies=tuple(replace(e, reply=replace(e.reply, body=e.reply.body[:-1])) for e in HEALTHY.replies)
)
CUT = replace(
    HEALTHY,
    replies=tuple(replace(e, reply=replace(e.reply, body=e.reply.body[:1], end=End.CUT)) for e in HEALTHY.replies),
)
REGRESSED = "RouteproofContractRegressed"
ABOUT = ("alertname", "severity", "scope", "route", "provider", "contract", "location")

OF_A_ROUTE = {"route": "lively", "provider": "harbour"}
"""What is chosen where a single value is."""


@dataclass
class Webhook:
    """What Alertmanager sent, in the order of its coming."""

    port: int
    messages: list[dict[str, Any]] = field(default_factory=list)

    def alert(self, status: str) -> dict[str, Any] | None:
        """The regression as it came to the pager last, if it came with this status."""
        of_it = [
            one
            for message in self.messages
            if message["receiver"] == "page"
            for one in message["alerts"]
            if one["labels"]["alertname"] == REGRESSED
        ]
        return next((one for one in of_it if one["status"] == status), None)


@contextmanager
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.messages.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    heard = Webhook(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def configured(folder: Path, service: int, alertmanager: int, hook: int) -> tuple[Path, Path]:
    """deploy/'s files with addresses of this test. Prometheus scrapes and evaluates each second instead of every 15;
    Alertmanager groups for a second."""
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(ROOT / "deploy/prometheus/rules/*.yml")]
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{alertmanager}"]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{service}"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    config = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text())
    for route in config["route"]["routes"]:
        for one in (route, *route["routes"]):
            one |= {"group_wait": "1s", "group_interval": "1s"}
    for receiver in config["receivers"]:
        hooked = receiver["webhook_configs"][0]
        hooked["url"] = hooked["url"].replace("127.0.0.1:9095", f"127.0.0.1:{hook}")
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    return folder / "prometheus.yml", folder / "alertmanager.yml"


@contextmanager
def running(folder: Path, *command: str) -> Iterator[None]:
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


class Prometheus:
    """Its API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ready(self) -> bool:
        try:
            return (await self._client.get("/-/ready")).is_success
        except httpx.TransportError:
            return False

    async def now(self, expr: str) -> list[dict[str, Any]]:
        """The series at this moment. Fails when the query isn't valid."""
        return await self._asked("query", query=expr)

    async def value(self, expr: str) -> float | None:
        """The value of the only series; None when there is none."""
        found = await self.now(expr)
        assert len(found) < 2, found
        return float(found[0]["value"][1]) if found else None

    async def lately(self, expr: str) -> list[dict[str, Any]]:
        """The series of the last minute, as a panel asks for them."""
        end = time.time()
        return await self._asked("query_range", query=expr, start=end - 60, end=end, step=1)

    async def _asked(self, how: str, **params: Any) -> list[dict[str, Any]]:
        answer = await self._client.post(f"/api/v1/{how}", data=params)
        assert answer.status_code == 200, f"{params['query']}: {answer.text}"
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return [
            series
            for series in found
            if any(value != "NaN" for _, value in series.get("values", [series.get("value")]))
        ]


def routes(url: str, of: str) -> list[dict[str, Any]]:
    made = [
        {"name": "lively", "provider": "harbour", "tags": ["prod", "eu"]},
        {"name": "steady", "provider": "lighthouse", "tags": ["prod"]},
        {"name": "plain", "provider": "lighthouse"},
        {"name": "keyless", "provider": "tollgate", "api_key_env": "NO_SUCH_KEY"},  # never asked: unknown
    ]
    price = {"input_per_million": 150, "output_per_million": 600, "currency": "EUR"}
    more = {"budget": {"requests_per_day": 1_000_000}, "price": price}
    return [
        {"dialect": "openai-chat", "base_url": url.replace(of, one["name"]), "model": "demo-model", **more, **one}
        for one in made
    ]


async def empty(prometheus: Prometheus, queries: Sequence[Asked]) -> set[str]:
    """The queries to which there is nothing to show."""
    found = set()
    for one in queries:
        chosen = OF_A_ROUTE if one.dashboard == "routeproof-route" else {}
        expr = one.filled(__rate_interval="10s", **chosen)
        series = await (prometheus.now(expr) if one.instant else prometheus.lately(expr))
        if not series:
            found.add(str(one))
    return found


async def test_a_regression_is_told_and_taken_back_and_every_panel_shows_something(database_url: str) -> None:
    service, port, alertmanager = free_port(), free_port(), free_port()
    names = ("lively", "steady", "plain", "keyless")
    with open_folder() as folder, webhook() as heard:
        async with playing([replace(ODD if name == "lively" else HEALTHY, id=name) for name in names]) as provider:
            config = write(
                folder / "routeproof.yaml",
                service={"listen": f"127.0.0.1:{service}", "database_url": database_url},
                defaults={"interval": "2s", "fresh_for": "5m", "expires_after": "10m", "contracts": ["native_tools"]},
                routes=routes(provider.url("lively"), "lively"),
            )
            its, alerts = configured(folder, service, alertmanager, heard.port)
            with (
                routeproof("serve", "-c", config, env={"ROUTEPROOF_DATA_DIR": str(folder / "data")}) as process,
                running(
                    folder,
                    "prometheus-alertmanager",
                    f"--config.file={alerts}",
                    f"--storage.path={folder / 'alertmanager'}",
                    f"--web.listen-address=127.0.0.1:{alertmanager}",
                    "--cluster.listen-address=",
                ),
                running(
                    folder,
                    "prometheus",
                    f"--config.file={its}",
                    f"--storage.tsdb.path={folder / 'prometheus'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ),
            ):
                async with httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
                ) as client:
                    await story(process, service, Prometheus(client), heard, provider)


async def story(process: Process, service: int, prometheus: Prometheus, heard: Webhook, provider: Any) -> None:
    await process.ready(service)
    await until(prometheus.ready)
    proven = "cell:routeproof_contract_proven:max"

    async def says(expr: str, value: float) -> bool:
        """A scrape that comes too late on a busy machine leaves a gap, so that values are waited for."""
        return await prometheus.value(expr) == value

    await until(lambda: says(f"sum({proven})", 3))
    await until(lambda: says("up", 1))
    await until(lambda: says('cell:routeproof_contract_regressed:max{route="lively"}', 0))
    assert not await prometheus.now(f'ALERTS{{alertname="{REGRESSED}"}}')

    provider.replace("lively", replace(CUT, id="lively"))
    await until(lambda: heard.alert("firing"))
    told = heard.alert("firing")
    assert told is not None
    assert {name: told["labels"].get(name) for name in ABOUT} == {
        "alertname": REGRESSED,
        "severity": "critical",
        "scope": "contract",
        "route": "lively",
        "provider": "harbour",
        "contract": "native_tools",
        "location": "default",
    }
    assert told["annotations"]["url"].endswith("/routes/lively")
    await until(lambda: says(f'{proven}{{route="lively"}}', 0))
    await until(lambda: says(f'{proven}{{route="steady"}}', 1))

    queries = list(asked())
    await until(lambda: all_show(prometheus, queries))
    await until(lambda: the_overview_counts(prometheus, queries))
    await a_scrape_is_well_formed(service)

    provider.replace("lively", replace(HEALTHY, id="lively"))
    await until(lambda: heard.alert("resolved"))
    resolved = heard.alert("resolved")
    assert resolved is not None
    assert resolved["labels"] == told["labels"]
    await until(lambda: says('cell:routeproof_contract_regressed:max{route="lively"}', 0))
    for name, kind in (("Regressed", "regression"), ("Changed", "recovery")):
        (mark,) = [one for one in queries if one.panel == name and one.ref == "annotation"]
        await until(lambda: tells(prometheus, mark, service, kind))  # noqa: B023


async def all_show(prometheus: Prometheus, queries: Sequence[Asked]) -> bool:
    return await empty(prometheus, queries) == set()


async def tells(prometheus: Prometheus, mark: Asked, service: int, kind: str) -> bool:
    """Whether the mark stands where the API tells of the change."""
    return await at(prometheus, mark) == [await changed(service, kind)]


async def at(prometheus: Prometheus, mark: Asked) -> list[float]:
    """The newest moment that a mark over the panels names, as a Unix time, of each contract and place."""
    series = await prometheus.lately(mark.filled(**OF_A_ROUTE))
    return [pytest.approx(float(one["values"][-1][1]) / 1000, abs=0.001) for one in series]


async def changed(service: int, kind: str) -> float:
    """When the route's state changed last in this way, as its API tells it."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service}", trust_env=False, timeout=PATIENCE_S) as client:
        answer = await client.get("/api/v1/transitions", params={"route": "lively", "kind": kind})
    return datetime.fromisoformat(answer.raise_for_status().json()["items"][0]["at"]).timestamp()


async def the_overview_counts(prometheus: Prometheus, queries: Sequence[Asked]) -> bool:
    """Whether the overview has the right numbers while one of three routes is broken, over all and by tag."""
    by_title = {one.panel: one for one in queries if one.dashboard == "routeproof-overview"}

    async def said(title: str, **chosen: str) -> float | None:
        return await prometheus.value(by_title[title].filled(**chosen))

    titles = ("Proven", "Not proven", "Unknown", "Regressed", "Paused")
    numbers: list[tuple[dict[str, str], list[float]]] = [
        ({}, [2, 1, 1, 1, 0]),
        ({"tag": "prod"}, [1, 1, 0, 1, 0]),
        ({"tag": "eu"}, [0, 1, 0, 1, 0]),
        ({"tag": "(eu|nowhere)"}, [0, 1, 0, 1, 0]),
        ({"provider": "lighthouse"}, [2, 0, 0, 0, 0]),
    ]
    share, money = await said("Share proven"), await said("Money within the window")
    return (
        all([[await said(title, **chosen) for title in titles] == wanted for chosen, wanted in numbers])
        and share is not None
        and 0 < share < 1
        and await said("Share proven", tag="nowhere") is None
        and money is not None
        and money > 0
    )


async def a_scrape_is_well_formed(service: int) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        url = f"http://127.0.0.1:{service}/metrics"
        async with client.stream("GET", url, headers={"accept-encoding": "gzip"}) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            text = gzip.decompress(b"".join([part async for part in answer.aiter_raw()]))
    said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")
