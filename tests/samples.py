"""Hand-made snapshots: a few words make a cell with the verdict that a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from service.model import Cell, CellRow, Outcome, RouteRow, Snapshot, Standing, Status

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


def snapshot(*rows: CellRow, now: datetime = NOW) -> Snapshot:
    return Snapshot(now=now, cells=rows)
