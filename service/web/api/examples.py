"""An example of each answer and of each body, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from service.derive import Freshness, Shown
from service.gate import Reason
from service.model import Outcome, PauseScope
from service.web.api import models


def _at(minute: int, second: int = 0, *, hour: int = 3) -> datetime:
    return datetime(2026, 3, 9, hour, minute, second, tzinfo=UTC)


_CELL = models.Cell(
    location="default",
    required=True,
    outcome=Shown.VIOLATED,
    freshness=Freshness.FRESH,
    fresh_until=_at(23, 7),
    valid_until=_at(38, 7),
    since=_at(3, 2),
    last_proven_at=_at(58, hour=2),
    next_due_at=_at(13),
    interval_s=300,
    paused=False,
    confirmed=models.Confirmed(
        proven=False, since=_at(3, 2), regressed=True, regressed_since=_at(3, 2), flapping=False, broken=False
    ),
    undecided=None,
    status="stream_early_eof",
    reason="closed_after_event",
    rule_id="stream.early_eof",
    quirks=["usage_missing"],
    served_model="gpt-4o-mini-2024-07-18",
    detail="",
    observed_at=_at(8, 7),
    requests=1,
    duration_s=3.2,
    time_to_first_token_s=0.9,
    tokens_in=None,
    tokens_out=None,
    verdicts={Outcome.PROVEN: 8120, Outcome.VIOLATED: 2},
)
_ROUTE = models.Route(
    id="openai-gpt-4o-mini",
    name="openai/gpt-4o-mini",
    provider="openai",
    dialect="openai-chat",
    model="gpt-4o-mini",
    url="https://api.openai.com/v1",
    tags=["prod"],
    status_url=None,
    outcome=Shown.VIOLATED,
    stale=False,
    paused=False,
    regressed=True,
    flapping=False,
    remedy="Route around it, and show the provider the last exchange.",
    budget=models.Budget(tokens_per_day=200_000, requests_per_day=400),
    spent_today=models.Spend(tokens_in=10_400, tokens_out=2_100, requests=38, estimated=False, cost=0.00282),
    price=models.Price(input_per_million=0.15, output_per_million=0.6, currency="USD"),
    contracts=[
        models.Contract(
            contract="native_tools",
            required=True,
            outcome=Shown.VIOLATED,
            stale=False,
            proven_in=[],
            live_in=["default"],
            silent_in=[],
            cells=[_CELL],
        )
    ],
)
_VERDICT = models.Verdict(
    id=UUID("019d0b6c-7a10-7000-8000-000000000001"),
    route="openai-gpt-4o-mini",
    contract="native_tools",
    location="default",
    observed_at=_at(8, 7),
    status="stream_early_eof",
    outcome=Outcome.VIOLATED,
    reason="closed_after_event",
    rule_id="stream.early_eof",
    ruleset=1,
    quirks=["usage_missing"],
    served_model="gpt-4o-mini-2024-07-18",
    detail="",
    requests=1,
    retry_after_s=None,
    duration_s=3.2,
    time_to_first_token_s=0.9,
    tokens_in=None,
    tokens_out=None,
    fingerprint="3f2a9c1d",
    rungs=[
        models.Rung(
            rung="forced",
            shape="tools, choice forced, max_tokens",
            ended="closed",
            read="14 events, no announced end",
            status=200,
            detail="",
            duration_s=3.2,
            headers_s=0.31,
            first_token_s=0.9,
        )
    ],
    facts={},
)
_TRANSITION = models.Transition(
    id=4711,
    at=_at(8, 7),
    route="openai-gpt-4o-mini",
    contract="native_tools",
    location="default",
    kind="regression",
    from_status="tools_supported",
    from_reason=None,
    to_status="stream_early_eof",
    to_reason="closed_after_event",
    changed={"served_model": {"from": "gpt-4o-mini-2024-05-13", "to": "gpt-4o-mini-2024-07-18"}},
)
_GATE = models.Gate(
    route="openai-gpt-4o-mini",
    allowed=False,
    reasons=[Reason.NOT_PROVEN],
    valid_until=None,
    as_of=_at(12, 9),
    data_age_s=0.4,
    database_up=True,
    grounds=[
        models.Ground(
            contract="native_tools",
            location="default",
            allows=False,
            reason=Reason.NOT_PROVEN,
            outcome=Shown.VIOLATED,
            freshness=Freshness.FRESH,
            status="stream_early_eof",
            fresh_until=_at(23, 7),
        )
    ],
)
_ASKED = models.Asked(
    route="openai-gpt-4o-mini",
    cells=[
        models.AskedCell(contract="agent_turn", location="default", what="under_way", wait_s=None),
        models.AskedCell(contract="native_tools", location="default", what="due", wait_s=None),
    ],
)
_PAUSE = models.Pause(
    id=UUID("019d0b6c-7a10-7000-8000-000000000002"),
    scope=PauseScope.PROVIDER,
    target="openai",
    since=_at(15),
    until=_at(15, hour=5),
    stops=False,
    reason="maintenance that the provider announced",
    by="Ada",
)

ANSWERS: Mapping[str, tuple[int, models.Said]] = {
    "listRoutes": (200, models.Routes(items=[_ROUTE], total=1, next=None, database_up=True)),
    "getRoute": (200, _ROUTE),
    "probeRoute": (202, _ASKED),
    "listVerdicts": (200, models.Verdicts(items=[_VERDICT], next=None)),
    "listTransitions": (200, models.Transitions(items=[_TRANSITION], next=None)),
    "askGate": (200, _GATE),
    "listPauses": (200, models.Pauses(items=[_PAUSE])),
    "startPause": (201, _PAUSE),
    "endPause": (200, _PAUSE),
}
"""By operation: the status and the body of the answer that is hoped for."""

REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "startPause": {
        "scope": "provider",
        "target": "openai",
        "duration_s": 7200,
        "reason": "maintenance that the provider announced",
        "by": "Ada",
    }
}
