"""Hand-made snapshots: a few words make a cell with the verdict that a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from service.model import (
    Cell,
    CellRow,
    Outcome,
    ProberRow,
    RouteRow,
    Rung,
    Snapshot,
    Span,
    Standing,
    Status,
    StoredVerdict,
    Transition,
)

NOW = datetime(2025, 3, 9, 3, 12, 7, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def standing(
    status: Status = Status.TOOLS_SUPPORTED,
    ago: timedelta = MINUTE,
    *,
    reason: str | None = None,
    detail: str = "",
    quirks: tuple[str, ...] = (),
    first_token_s: float | None = 0.42,
    rule_id: str = "RP-001",
) -> Standing:
    """A verdict as the read side holds it, observed `ago` before `NOW`."""
    return Standing(
        id=UUID(int=1),
        status=status,
        outcome=status.outcome,
        reason=reason,
        rule_id=rule_id,
        quirks=quirks,
        served_model="model-1",
        detail=detail,
        requests=1,
        retry_after_s=None,
        observed_at=NOW - ago,
        duration_s=1.5,
        time_to_first_token_s=first_token_s,
        tokens_in=40,
        tokens_out=12,
        fingerprint="f1",
    )


def row(
    route: str = "alpha",
    *,
    state: Standing | None = None,
    last: Standing | None = None,
    provider: str = "acme",
    contract: str = "native_tools",
    location: str = "default",
    required: bool = True,
    last_proven_at: datetime | None = None,
    state_since: datetime | None = None,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    url: str = "https://api.example/v1",
    counts: Mapping[Outcome, int] | None = None,
    next_due_at: datetime | None = None,
    cell_id: int = 1,
) -> CellRow:
    """A configured cell, asked every 5 minutes: fresh for 15, expired after 30. Without `state`: never probed."""
    proven = state is not None and state.outcome is Outcome.PROVEN
    return CellRow(
        cell_id=cell_id,
        route=RouteRow(
            id=route,
            name=name or f"{provider}/{route}",
            provider=provider,
            dialect="openai-chat",
            model="model-1",
            url=url,
            tags=tags,
        ),
        cell=Cell(
            route_id=route,
            contract=contract,
            location=location,
            required=required,
            fingerprint="f1",
            interval=5 * MINUTE,
            fresh_for=15 * MINUTE,
            expires_after=30 * MINUTE,
            deadline=MINUTE,
        ),
        standing=state,
        last=last or state,
        last_proven_at=last_proven_at or (state.observed_at if state and proven else None),
        state_since=state_since or (state.observed_at if state else None),
        counts=counts or {},
        next_due_at=next_due_at,
    )


def prober(location: str = "default", number: int = 1, **changes: Any) -> ProberRow:
    """A prober that is well and was heard of just now."""
    well = ProberRow(
        id=UUID(int=number),
        location=location,
        probes=True,
        config_hash="c0ffee",
        version="1.0",
        started_at=NOW - 60 * MINUTE,
        seen_at=NOW - SECOND,
        superseded=False,
        egress_up=True,
        spooled=0,
    )
    return replace(well, **changes)


def snapshot(*rows: CellRow, now: datetime = NOW, **more: Any) -> Snapshot:
    """These cells, each location with its prober."""
    places = sorted({row.cell.location for row in rows})
    more.setdefault("probers", tuple(prober(place, number) for number, place in enumerate(places, 1)))
    return Snapshot(now=now, cells=rows, **more)


@dataclass(frozen=True)
class View:
    """A board's view. `now` is the snapshot's clock, carried on by `age_s`."""

    snapshot: Snapshot
    age_s: float = 0.0
    database_up: bool = True
    at: datetime = NOW

    @property
    def now(self) -> datetime:
        return self.at + timedelta(seconds=self.age_s)


@dataclass
class Board:
    """A board that says what it was made with, and counts how often it was to read it anew."""

    shown: View
    renewed: int = 0

    async def view(self) -> View:
        return self.shown

    async def renew(self) -> None:
        self.renewed += 1


def stored(
    verdict: Standing,
    *,
    contract: str = "native_tools",
    location: str = "default",
    rungs: tuple[Rung, ...] = (),
) -> StoredVerdict:
    """A verdict of history."""
    return StoredVerdict(standing=verdict, contract=contract, location=location, rungs=rungs, facts={}, ruleset=1)


@dataclass
class History:
    """Stored verdicts by route, newest first, or the error that reading them meets."""

    by_route: Mapping[str, Sequence[StoredVerdict]] = field(default_factory=dict)
    changes: Mapping[str, Sequence[Transition]] = field(default_factory=dict)
    error: Exception | None = None
    past: Mapping[tuple[str, str], Sequence[Span]] = field(default_factory=dict)

    async def verdicts(self, route_id: str, limit: int) -> Sequence[StoredVerdict]:
        if self.error:
            raise self.error
        return self.by_route.get(route_id, ())[:limit]

    async def transitions(self, route_id: str, limit: int) -> Sequence[Transition]:
        return self.changes.get(route_id, ())[:limit]

    async def verdicts_at(self, keys: Sequence[tuple[datetime, UUID]]) -> Sequence[StoredVerdict]:
        known = [one for stored in self.by_route.values() for one in stored]
        return [one for one in known if (one.standing.observed_at, one.standing.id) in keys]

    async def spans(
        self, route_id: str, contract: str, since: datetime, until: datetime, width: timedelta
    ) -> Sequence[Span]:
        return [span for span in self.past.get((route_id, contract), ()) if since <= span.start < until]

    async def transition_page(
        self,
        *,
        route_id: str | None = None,
        kinds: Sequence[str] | None = None,
        before: tuple[datetime, int] | None = None,
        limit: int = 100,
        **_: Any,
    ) -> Sequence[Transition]:
        known = [one for changes in self.changes.values() for one in changes]
        wanted = [
            one
            for one in known
            if route_id in (None, one.route_id)
            and (kinds is None or one.kind in kinds)
            and (before is None or (one.at, one.id) < before)
        ]
        return sorted(wanted, key=lambda one: (one.at, one.id), reverse=True)[:limit]


CUT = standing(
    Status.STREAM_EARLY_EOF,
    4 * MINUTE,
    reason="closed_after_event",
    quirks=("flaky", "usage_missing"),
    detail='upstream said: {"error":{"message":"context deadline exceeded while reading from the model host"}}',
    rule_id="stream.early_eof",
)
MIXED = snapshot(
    row("gpt-4o-mini", provider="openai", state=standing(ago=2 * MINUTE), state_since=NOW - 50 * 60 * MINUTE),
    row(
        "gpt-4o-mini",
        provider="openai",
        contract="agent_turn",
        state=standing(ago=12 * MINUTE, quirks=("done_missing",)),
        state_since=NOW - 50 * 60 * MINUTE,
    ),
    row(
        "qwen3-235b-a22b-instruct-2507",
        provider="openrouter",
        state=CUT,
        last_proven_at=NOW - 9 * MINUTE,
        tags=("prod", "eu"),
        next_due_at=NOW + 20 * SECOND,
        counts={Outcome.PROVEN: 8120, Outcome.VIOLATED: 3},
    ),
    row("deepseek-v3", provider="openrouter", state=standing(ago=20 * MINUTE)),
    row("kimi-k2", provider="openrouter", state=standing(ago=45 * MINUTE)),
    row("llama-local", provider="self-hosted", state=standing(Status.UNREACHABLE, MINUTE, reason="refused")),
    row(
        "claude",
        provider="anthropic",
        last=standing(Status.NOT_SENT, MINUTE, reason="credential_missing"),
    ),
    row("mistral", provider="mistral", state=standing(), location="eu"),
    row("mistral", provider="mistral", state=standing(Status.TIMEOUT, reason="stalled"), location="us"),
)
LADDER = (
    Rung(
        rung="forced",
        shape="tools, choice forced, max_tokens",
        ended="complete",
        read="14 events, no announced end",
        status=200,
        detail="",
        duration_s=3.2,
        headers_s=0.31,
        first_token_s=0.9,
    ),
)
STORIES: Mapping[str, Sequence[StoredVerdict]] = {
    "qwen3-235b-a22b-instruct-2507": (
        stored(CUT, rungs=LADDER),
        stored(standing(ago=9 * MINUTE)),
        stored(standing(Status.RATE_LIMITED, 14 * MINUTE, reason="http_429", first_token_s=None)),
        stored(standing(Status.INCONCLUSIVE_NO_TOOL_CALL, 9 * 60 * MINUTE)),
    )
}
BECAUSE: Mapping[str, str] = {"stream.early_eof": "The body ended before the answer announced its end."}
