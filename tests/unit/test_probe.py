"""Verdicts of probes that send nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import pytest

from service.model import Credentials, Status
from service.probe import BOUND, Moment, ProbeFault, Prober
from service.transport import Transport
from tests.exchanges import ROUTE


@pytest.mark.parametrize("reason", ["budget_spent", "paused"])
@pytest.mark.parametrize("contract", ["native_tools", "agent_turn", "missing_tool_results", "parallel_tool_calls"])
async def test_a_cell_that_isnt_asked_gets_a_verdict_that_says_so(reason: str, contract: str) -> None:
    async with Transport() as transport:
        probed = Prober(transport, "here").unsent(ROUTE, contract, reason, Moment.now())
    verdict = probed.verdict
    assert (verdict.status, verdict.reason, verdict.rule_id) == (Status.NOT_SENT, reason, "gate.not_sent")
    assert (verdict.requests, verdict.duration_s, verdict.rungs) == (0, 0.0, ())
    assert (verdict.tokens_in, verdict.tokens_out, verdict.tokens_estimated) == (None, None, False)
    assert (verdict.route_id, verdict.contract, verdict.location) == (ROUTE.id, contract, "here")
    assert verdict.version == version("routeproof")
    assert probed.because


async def test_its_time_is_the_claims_and_not_our_own_clocks() -> None:
    claimed = datetime(2020, 1, 1, tzinfo=UTC)
    since = Moment(claimed, Moment.now().reading)
    async with Transport() as transport:
        verdict = Prober(transport, "here").unsent(ROUTE, "native_tools", "paused", since).verdict
    assert verdict.started_at == verdict.observed_at
    assert (verdict.observed_at - claimed).total_seconds() < 60


async def test_a_missing_credential_sends_nothing() -> None:
    credentials = Credentials(missing=("env:KEY",))
    async with Transport() as transport:
        probed = await Prober(transport, "here").probe(ROUTE, "native_tools", credentials, Moment.now())
    assert (probed.verdict.status, probed.verdict.reason) == (Status.NOT_SENT, "credential_missing")


async def test_a_prober_that_slept_through_its_lease_sends_nothing() -> None:
    route = replace(ROUTE, deadline=timedelta(seconds=60))
    slept = Moment(datetime(2020, 1, 1, tzinfo=UTC), Moment.now().reading - BOUND * 60)
    async with Transport() as transport:
        with pytest.raises(ProbeFault, match="over before anything was sent"):
            await Prober(transport, "here").probe(route, "native_tools", Credentials(), slept)
