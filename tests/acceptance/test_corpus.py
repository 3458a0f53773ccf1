"""Every scenario of the corpus that this version can judge, over real sockets, held to all that it expects."""

from __future__ import annotations

import base64
import dataclasses
import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from service.contracts import CONTRACTS
from service.demo.scenario import Scenario
from service.dialects import DIALECTS
from service.facts import Lack
from service.model import Credentials, Route, Secret, TokenCap, Verdict
from service.probe import Moment, Prober
from service.rejudge import try_again
from service.transport import Transport
from tests.lived import lived
from tests.peer import load_corpus, playing

KEY = "sk-test-Zq8/Tr+4vB1=xN7m"
MODEL = "probe-model-1"

SCENARIOS = [scenario for scenario in load_corpus() if scenario.dialect in DIALECTS and scenario.contract in CONTRACTS]


def route_for(scenario: Scenario, base_url: str) -> Route:
    wanted = scenario.route
    return Route(
        id=scenario.id,
        name=scenario.id,
        provider="peer",
        dialect=scenario.dialect,
        base_url=base_url,
        model=MODEL,
        token_cap=TokenCap(field=wanted.get("token_cap_field")),
        include_usage=wanted.get("include_usage", True),
        parallel_tool_calls=wanted.get("parallel_tool_calls"),
        deadline=timedelta(seconds=wanted.get("deadline_s", 60)),
    )


def shown(verdict: Verdict) -> str:
    return json.dumps(dataclasses.asdict(verdict), default=str, ensure_ascii=False)


def fill(text: str) -> str:
    for placeholder, value in (
        ("{{KEY}}", KEY),
        ("{{KEY:b64}}", base64.b64encode(KEY.encode()).decode()),
        ("{{KEY:url}}", quote(KEY, safe="")),
        ("{{MODEL}}", MODEL),
    ):
        text = text.replace(placeholder, value)
    assert "{{KEY" not in text
    return text


def judged_again(verdict: Verdict) -> str | None:
    """What is wrong with the verdict that the stored facts give on their own."""
    again = try_again(verdict.contract, json.loads(json.dumps(verdict.facts)))
    if isinstance(again, Lack):
        return f"it can't be judged again: {again}"
    now, then = again.conclusion, (verdict.status, verdict.rule_id, verdict.reason, verdict.quirks)
    read = (now.status, now.rule_id, now.reason, again.quirks)
    return None if read == then else f"judged again it reads {read}, not {then}"


def mismatches(expect: dict[str, Any], verdict: Verdict, seconds: float) -> list[str]:
    """All that a verdict gets wrong of what a scenario expects."""
    wrong = []
    if verdict.status != expect["status"]:
        wrong.append(f"status {verdict.status}, not {expect['status']}")
    if verdict.status in expect.get("not_status", []):
        wrong.append(f"status {verdict.status} is forbidden")
    if "reason" in expect:
        reasons = [expect["reason"]] if isinstance(expect["reason"], str) else expect["reason"]
        if verdict.reason not in reasons:
            wrong.append(f"reason {verdict.reason}, not {reasons}")
    if missing := set(expect.get("quirks", [])) - set(verdict.quirks):
        wrong.append(f"quirks {missing} missing, seen {verdict.quirks}")
    if verdict.requests != expect.get("requests", verdict.requests):
        wrong.append(f"{verdict.requests} requests, not {expect['requests']}")
    if verdict.requests > expect.get("requests_max", verdict.requests):
        wrong.append(f"{verdict.requests} requests, more than {expect['requests_max']}")
    wrong.extend(f"{text!r} is shown" for text in expect.get("absent", []) if fill(text) in shown(verdict))
    wrong.extend(f"{text!r} is gone" for text in expect.get("present", []) if fill(text) not in shown(verdict))
    if "retry_after" in expect:
        low, high = expect["retry_after"]
        if verdict.retry_after_s is None or not low <= verdict.retry_after_s <= high:
            wrong.append(f"retry_after {verdict.retry_after_s}, not {low} to {high}")
    if len(verdict.detail) > expect.get("detail_max", 300):
        wrong.append(f"detail of {len(verdict.detail)} characters")
    if seconds > expect.get("seconds_max", 60):
        wrong.append(f"{seconds:.1f} s, more than {expect['seconds_max']}")
    return wrong


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
async def test_scenario(scenario: Scenario) -> None:
    async with playing([scenario]) as peer, Transport() as transport, lived() as time:
        route = route_for(scenario, peer.url(scenario.id))
        probed = await Prober(transport, "here").probe(
            route, scenario.contract, Credentials(key=Secret(KEY)), Moment.now()
        )
        sent = peer.count(scenario.id)
    wrong = mismatches(scenario.expect, probed.verdict, time.seconds)
    if sent != probed.verdict.requests:
        wrong.append(f"the provider saw {sent} requests, the verdict says {probed.verdict.requests}")
    if differs := judged_again(probed.verdict):
        wrong.append(differs)
    assert not wrong, "\n".join([scenario.id, *wrong, probed.verdict.rule_id, str(probed.verdict.rungs)])


def test_the_corpus_is_all_there() -> None:
    assert len(SCENARIOS) >= 241
