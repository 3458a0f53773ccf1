"""The rules, scrape configuration and Alertmanager example under deploy/, held against Prometheus's own programs.

Whether alerts fire and resolve when they should is written down in deploy/prometheus/tests/ and run by promtool.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from scripts.metric_catalogue import families, full_name
from tests.acceptance.processes import ROOT, free_port, until

PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
RULE_TESTS = sorted((PROMETHEUS / "tests").glob("*.yaml"))

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="no promtool: it comes with Debian's package prometheus"
)
needs_alertmanager = pytest.mark.skipif(
    not (shutil.which("amtool") and shutil.which("prometheus-alertmanager")),
    reason="no Alertmanager: it comes with Debian's package prometheus-alertmanager",
)


def rules(kind: str) -> list[dict[str, Any]]:
    """All rules of a kind, `alert` or `record`."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


ALERTS = {rule["alert"]: rule for rule in rules("alert")}


def command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=120)


# What is written


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md")) == sorted(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_wrong_what_to_do_next_and_where_to_look(name: str) -> None:
    rule = ALERTS[name]
    assert re.fullmatch(r"Routeproof([A-Z][a-z]+)+", name)
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["labels"]["scope"] in ("contract", "account", "provider", "prober")
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "url", "runbook_url"}
    page = "/routes/{{ $labels.route }}" if rule["labels"]["scope"] in ("contract", "account") else "/"
    assert notes["url"] == "{{ $externalLabels.routeproof_url }}" + page
    assert notes["runbook_url"] == "{{ $externalLabels.routeproof_runbooks }}/" + name + ".md"


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_is_short_and_has_the_same_parts(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "First look",
        "Three commands",
        "False causes",
        "When to escalate",
    ]
    commands = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [len(block.splitlines()) for block in commands] == [3]
    assert len(text.splitlines()) <= 45


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_names_metrics_alerts_and_log_lines_that_there_are(path: Path) -> None:
    text = path.read_text()
    metrics = [full_name(family) for family in families()]
    for name, several in re.findall(r"routeproof_(?:([a-z_]+)|\(([a-z_|]+)\))", text):
        for start in several.split("|") if several else [name]:
            assert any(metric.startswith(f"routeproof_{start}") for metric in metrics), start
    assert set(re.findall(r"Routeproof[A-Z]\w+", text)) <= set(ALERTS)
    actions = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "logs.md").read_text(), re.MULTILINE))
    searched = re.findall(r"grep (?:-E )?'?([a-z_|]+)'?$", "\n".join(re.findall(r"^journalctl.*", text, re.MULTILINE)))
    assert {action for one in searched for action in one.split("|")} <= actions


def test_no_alert_can_start_anew_because_a_reason_or_status_changed() -> None:
    for rule in ALERTS.values():
        assert not re.search(r"\b(reason|status|outcome)\b", rule["expr"]), rule["alert"]
    for rule in rules("record"):
        for by in re.findall(r"\bby \((.*?)\)", rule["expr"]):
            assert "reason" not in by, rule["record"]
            assert "status" not in by, rule["record"]


def test_the_scrape_configuration_has_the_labels_that_the_links_are_made_of() -> None:
    labels = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["external_labels"]
    used = {name for rule in ALERTS.values() for name in re.findall(r"\$externalLabels\.(\w+)", str(rule))}
    assert set(labels) == used
    assert not any(url.endswith("/") for url in labels.values())


def test_each_alert_is_seen_to_fire_and_its_words_are_written_down() -> None:
    cases = [case for path in RULE_TESTS for case in yaml.safe_load(path.read_text())["tests"]]
    worded = {case["alertname"] for test in cases for case in test.get("alert_rule_test", []) if case["exp_alerts"]}
    assert worded == set(ALERTS)
    fired = set(re.findall(r'alertname="(\w+)"', "".join(_expected(cases))))
    assert fired == set(ALERTS)


def _expected(cases: list[dict[str, Any]]) -> Iterator[str]:
    for case in cases:
        for check in case.get("promql_expr_test", []):
            yield from (sample["labels"] for sample in check["exp_samples"])


# What Prometheus makes of it


@needs_promtool
def test_promtool_accepts_the_configuration_and_its_rules() -> None:
    said = command("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    assert said.returncode == 0, said.stdout + said.stderr
    for kind in ("alert", "record"):
        assert rules(kind)
    assert f"{len(rules('alert'))} rules found" in said.stdout
    assert f"{len(rules('record'))} rules found" in said.stdout


@needs_promtool
@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_stay_and_resolve_as_written(path: Path) -> None:
    said = command("promtool", "test", "rules", path)
    assert said.returncode == 0, said.stdout + said.stderr


# Where alerts go

EU = {"route": "alpha", "contract": "native_tools", "location": "eu"}


def alert(name: str, **labels: str) -> dict[str, str]:
    """The labels of an alert as Prometheus sends it."""
    return {"alertname": name, **ALERTS[name]["labels"], **labels}


@needs_alertmanager
def test_amtool_accepts_the_configuration() -> None:
    said = command("amtool", "check-config", ALERTMANAGER)
    assert said.returncode == 0, said.stdout + said.stderr


@needs_alertmanager
@pytest.mark.parametrize("name", ALERTS)
def test_what_is_critical_wakes_somebody_and_the_rest_waits(name: str) -> None:
    receiver = {"critical": "page", "warning": "notes"}[ALERTS[name]["labels"]["severity"]]
    labels = [f"{key}={value}" for key, value in alert(name, provider="acme").items()]
    said = command(
        "amtool", "config", "routes", "test", "--config.file", ALERTMANAGER, f"--verify.receivers={receiver}", *labels
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.strip() == receiver


MUTED: list[tuple[str, dict[str, str], list[dict[str, str]]]] = [
    (
        "a provider that is down mutes its contracts there",
        alert("RouteproofProviderDown", provider="acme", location="eu"),
        [
            alert("RouteproofContractRegressed", provider="acme", **EU),
            alert("RouteproofProofExpired", provider="acme", **EU),
            alert("RouteproofContractFlapping", provider="acme", **EU),
            alert("RouteproofContractInPart", provider="acme", route="alpha", contract="native_tools"),
        ],
    ),
    *(
        (
            f"{name} mutes what is seen from there",
            alert(name, location="eu"),
            [
                alert("RouteproofContractRegressed", provider="acme", **EU),
                alert("RouteproofProofExpired", provider="acme", **EU),
                alert("RouteproofProviderDown", provider="acme", location="eu"),
            ],
        )
        for name in ("RouteproofEgressDown", "RouteproofLocationStopped", "RouteproofAbsent")
    ),
    (
        "an absence explains a standstill",
        alert("RouteproofAbsent", location="eu"),
        [
            alert("RouteproofLocationStopped", location="eu"),
            alert("RouteproofLagging", location="eu"),
            alert("RouteproofJobStuck", location="eu", instance="a", task="roll_up"),
        ],
    ),
    (
        "a standstill explains lateness",
        alert("RouteproofLocationStopped", location="eu"),
        [alert("RouteproofLagging", location="eu")],
    ),
    (
        "a lost database explains a stuck job",
        alert("RouteproofCannotWrite", location="eu", instance="a"),
        [alert("RouteproofJobStuck", location="eu", instance="a", task="roll_up")],
    ),
    (
        "a standstill mutes what is seen from there, where installations are told apart",
        alert("RouteproofLocationStopped", location="eu", routeproof_url="https://a.example"),
        [alert("RouteproofContractRegressed", provider="acme", routeproof_url="https://a.example", **EU)],
    ),
    (
        "a regression explains an expired proof",
        alert("RouteproofContractRegressed", provider="acme", **EU),
        [alert("RouteproofProofExpired", provider="acme", **EU)],
    ),
]
HEARD: list[tuple[str, dict[str, str], list[dict[str, str]]]] = [
    (
        "a provider that is down mutes neither others, nor other places, nor what only a person can mend",
        alert("RouteproofProviderDown", provider="acme", location="eu"),
        [
            alert("RouteproofContractRegressed", provider="zeta", **EU),
            alert("RouteproofContractRegressed", provider="acme", **{**EU, "location": "us"}),
            alert("RouteproofContractInPart", provider="zeta", route="beta", contract="native_tools"),
            alert("RouteproofCredentialRefused", provider="acme", route="alpha", location="eu"),
            alert("RouteproofQuotaExhausted", provider="acme", route="alpha", location="eu"),
            alert("RouteproofBudgetSpent", provider="acme", route="alpha", kind="tokens"),
        ],
    ),
    (
        "a place without network mutes no other place",
        alert("RouteproofEgressDown", location="eu"),
        [
            alert("RouteproofContractRegressed", provider="zeta", **{**EU, "location": "us"}),
            alert("RouteproofProviderDown", provider="acme", location="us"),
        ],
    ),
    (
        "an absence that names no place mutes nothing that names none",
        alert("RouteproofAbsent"),
        [alert("RouteproofContractInPart", provider="acme", route="alpha", contract="native_tools")],
    ),
    (
        "another installation that calls its place and its provider alike is another one",
        alert("RouteproofLocationStopped", location="eu", provider="acme", routeproof_url="https://a.example"),
        [
            alert("RouteproofContractRegressed", provider="acme", routeproof_url="https://b.example", **EU),
            alert("RouteproofLagging", location="eu", routeproof_url="https://b.example"),
        ],
    ),
    (
        "one replica without a database mutes nothing of routes",
        alert("RouteproofCannotWrite", location="eu", instance="a"),
        [
            alert("RouteproofContractRegressed", provider="acme", **EU),
            alert("RouteproofJobStuck", location="eu", instance="b", task="roll_up"),
        ],
    ),
    (
        "a regression mutes another contract's proof not",
        alert("RouteproofContractRegressed", provider="acme", **EU),
        [alert("RouteproofProofExpired", provider="acme", **{**EU, "contract": "agent_turn"})],
    ),
]


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """A running Alertmanager with the example's configuration, its groups never due; its API's address."""
    config = yaml.safe_load(ALERTMANAGER.read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route["group_wait"] = "1h"
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus-alertmanager",
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


async def inhibited(client: httpx.AsyncClient) -> dict[frozenset[tuple[str, str]], bool]:
    """Of each alert, by its labels, whether another one mutes it."""
    found = (await client.get("/api/v2/alerts")).raise_for_status().json()
    return {frozenset(one["labels"].items()): bool(one["status"]["inhibitedBy"]) for one in found}


def apart(case: int, labels: dict[str, str]) -> dict[str, str]:
    """The same alert in a world of its own, so that cases don't mute each other."""
    return {key: f"{value}-{case}" if key in ("location", "provider") else value for key, value in labels.items()}


@needs_alertmanager
async def test_alertmanager_mutes_what_has_a_known_cause_and_nothing_else(tmp_path: Path) -> None:
    cases = [(False, *case) for case in HEARD] + [(True, *case) for case in MUTED]
    told = [
        (title, apart(number, labels), muted and labels is not cause)
        for number, (muted, title, cause, others) in enumerate(cases)
        for labels in (cause, *others)
    ]
    with alertmanager(tmp_path) as address:
        async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=10) as client:

            async def ready() -> bool:
                try:
                    return (await client.get("/-/ready")).is_success
                except httpx.TransportError:
                    return False

            async def all_are_taken_in() -> bool:
                last = told[-1][1]  # one that is muted
                return (await inhibited(client)).get(frozenset(last.items()), False)

            await until(ready)
            answer = await client.post("/api/v2/alerts", json=[{"labels": labels} for _, labels, _ in told])
            answer.raise_for_status()
            await until(all_are_taken_in)
            found = await inhibited(client)
    wrong = [(title, labels) for title, labels, muted in told if found[frozenset(labels.items())] != muted]
    assert not wrong
    assert len(found) == len(told)
