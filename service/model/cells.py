"""Cells, who probes them, and what is stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from service.model.verdicts import Rung
from service.model.words import Outcome


@dataclass(frozen=True)
class Cell:
    """One contract on one route from one location, as configured now. All durations are the cell's own."""

    route_id: str
    contract: str
    location: str
    required: bool
    fingerprint: str
    interval: timedelta
    fresh_for: timedelta
    expires_after: timedelta
    deadline: timedelta


@dataclass(frozen=True)
class Claim:
    """A due cell that this process may probe until `lease_until`. `claimed_at` and `due_at` are the database's."""

    cell_id: int
    route_id: str
    contract: str
    location: str
    fingerprint: str
    lease_id: UUID
    claimed_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Standing:
    """A stored verdict as the read side needs it: small, redacted, without its rungs."""

    id: UUID
    status: str
    outcome: Outcome
    reason: str | None
    rule_id: str
    quirks: tuple[str, ...]
    served_model: str | None
    detail: str
    requests: int
    retry_after_s: float | None
    observed_at: datetime
    duration_s: float
    time_to_first_token_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    fingerprint: str


@dataclass(frozen=True)
class StoredVerdict:
    """One verdict of the history, with its rungs and facts: what a route's page shows."""

    standing: Standing
    contract: str
    location: str
    rungs: tuple[Rung, ...]
    facts: Mapping[str, Any]
    ruleset: int


@dataclass(frozen=True)
class Transition:
    """One change of a cell's standing verdict, at the time of the verdict that brought it. `kind` is `informational`:
    that of a contract that isn't required, which weighs less.

    `changed` says what else is known to differ between the two verdicts: `served_model` and `ruleset`, each as
    `{"from": …, "to": …}`.
    """

    at: datetime
    route_id: str
    contract: str
    location: str
    kind: str
    from_status: str
    from_reason: str | None
    to_status: str
    to_reason: str | None
    changed: Mapping[str, Any]


@dataclass(frozen=True)
class RouteRow:
    """A route as stored for the read side. `url` is redacted."""

    id: str
    name: str
    provider: str
    dialect: str
    model: str
    url: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class CellRow:
    """One configured cell with what `latest` holds of it.

    `standing` is the newest verdict under the cell's fingerprint that isn't unproven, `last` the newest of all;
    `state_since` is when the run of standing verdicts with this outcome began.
    """

    cell_id: int
    route: RouteRow
    cell: Cell
    standing: Standing | None
    last: Standing | None
    last_proven_at: datetime | None
    state_since: datetime | None
    counts: Mapping[Outcome, int]
    next_due_at: datetime | None


@dataclass(frozen=True)
class Snapshot:
    """All active cells at one moment of the database's clock."""

    now: datetime
    cells: tuple[CellRow, ...]
