"""Cells, who probes them, and what is stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from service.model.confirmed import NEVER_JUDGED, Confirmed
from service.model.pauses import Pause
from service.model.verdicts import Rung
from service.model.words import Outcome


@dataclass(frozen=True)
class Cell:
    """One contract on one route from one location, as configured now. All durations are the cell's own, but for
    `route_interval`: that of its route, which the contract's `every` multiplies.

    `provider`, `host` (with its port) and `credential` (a reference) say whose limits and waits it shares;
    `max_requests` is the most that one probe may send.
    """

    route_id: str
    contract: str
    location: str
    required: bool
    fingerprint: str
    interval: timedelta
    fresh_for: timedelta
    expires_after: timedelta
    deadline: timedelta
    provider: str = ""
    host: str = ""
    credential: str = ""
    max_requests: int = 1
    route_interval: timedelta = timedelta(0)


@dataclass(frozen=True)
class Claim:
    """A due cell that this process may probe until `leased_until`. All times are the database's.

    `unsent` says why nothing is to be sent: `budget_spent` or `paused`.
    """

    cell_id: int
    route_id: str
    contract: str
    location: str
    fingerprint: str
    lease_id: UUID
    claimed_at: datetime
    due_at: datetime
    leased_until: datetime
    unsent: str | None = None


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
    route_id: str = ""


@dataclass(frozen=True)
class Transition:
    """One change of a cell's state, at the time of the verdict that brought it. `kind` is a `ChangeKind`, or
    `informational`: a changed status of a contract that isn't required, which weighs less.

    `changed` says what else is known to differ between the two verdicts (`served_model`, `configuration`, `rules`,
    `version`), each as `{"from": …, "to": …}`.
    """

    at: datetime
    route_id: str
    contract: str
    location: str
    kind: str
    from_status: str | None
    from_reason: str | None
    to_status: str
    to_reason: str | None
    changed: Mapping[str, Any]
    id: int = 0
    announced: bool = False


@dataclass(frozen=True)
class AskedNow:
    """What became of a wish to ask the cells of a route at once: each is a contract and a location, and where there is
    a third part, the seconds to wait. `under_way`: a probe runs at this moment; `paused`: a pause stops it; `too_soon`:
    one ended lately; `waiting`: the provider asked us to wait."""

    due: list[tuple[str, str]] = field(default_factory=list)
    under_way: list[tuple[str, str]] = field(default_factory=list)
    paused: list[tuple[str, str, float]] = field(default_factory=list)
    too_soon: list[tuple[str, str, float]] = field(default_factory=list)
    waiting: list[tuple[str, str, float]] = field(default_factory=list)


LATENCY_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
"""The upper bounds of the buckets that latencies are counted in; one more bucket has none."""


@dataclass(frozen=True)
class Hour:
    """The verdicts of one cell in one hour, from `at` on. `first_token` and `duration` count them by bucket of seconds,
    the last one without a bound."""

    at: datetime
    contract: str
    location: str
    counts: Mapping[Outcome, int]
    statuses: Mapping[str, int]
    requests: int
    tokens_in: int
    tokens_out: int
    first_token: tuple[int, ...]
    duration: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """The verdicts of one contract of a route, over all locations, in one of the equal spans of time that a page is
    divided into, from `start` on. Buckets as in `Hour`."""

    start: datetime
    counts: Mapping[Outcome, int]
    first_token: tuple[int, ...]
    duration: tuple[int, ...]


@dataclass(frozen=True)
class RouteRow:
    """A route as stored for the read side. `url` is redacted; budgets are a UTC day's; prices are of a million tokens,
    in `currency`."""

    id: str
    name: str
    provider: str
    dialect: str
    model: str
    url: str
    tags: tuple[str, ...]
    tokens_per_day: int | None = None
    requests_per_day: int | None = None
    input_per_million: float | None = None
    output_per_million: float | None = None
    currency: str | None = None
    status_url: str | None = None


@dataclass(frozen=True)
class CellRow:
    """One configured cell with what `latest` holds of it.

    `standing` is the newest verdict under the cell's fingerprint that isn't unproven, `last` the newest of all;
    `state_since` is when the run of standing verdicts with this outcome began. `counts` and the tokens are totals since
    the cell exists. `next_due_at` is None while the cell is being asked, which
    began `claimed_late_s` late.
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
    confirmed: Confirmed = NEVER_JUDGED
    last_transition_at: datetime | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    claimed_late_s: float | None = None


@dataclass(frozen=True)
class Spend:
    """What a route has used up on one UTC day, over all locations. `estimated`: some of the tokens are our estimate."""

    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 0
    estimated: bool = False

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True)
class ProberRow:
    """One `serve` process as it last told of itself. `egress_up` None: it has no way to know."""

    id: UUID
    location: str
    probes: bool
    config_hash: str
    version: str
    started_at: datetime
    seen_at: datetime
    superseded: bool
    egress_up: bool | None
    spooled: int


@dataclass(frozen=True)
class Snapshot:
    """All active cells at one moment of the database's clock, with what holds for them now: `pauses` that haven't
    ended, `probers` heard of within the last minute, `spends` of the day by route, `active` configuration hashes by
    location."""

    now: datetime
    cells: tuple[CellRow, ...]
    pauses: tuple[Pause, ...] = ()
    probers: tuple[ProberRow, ...] = ()
    spends: Mapping[str, Spend] = field(default_factory=dict)
    active: Mapping[str, str] = field(default_factory=dict)
