"""When a cell is asked next, and what a budget allows. Pure: the clock and all history are handed in.

A cell keeps its grid; what it is asked at is a point of the grid with some jitter, or sooner, to confirm a change. A
probe may be held back (a wait, a budget, blocked answers in a row), and, a wait apart, never beyond the expiry of what
is known.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from service.model import Outcome, Spend

JITTER = 0.1
LONGEST_WAIT = timedelta(hours=1)
QUICK = timedelta(seconds=30)
DEADLINES_A_PROBE = 3
KEPT_IN_RESERVE = 0.2
"""The share of a budget that only required cells in doubt may use."""
_PATIENCE = 1.1
_SPREAD = timedelta(minutes=10)
_MOST_DOUBLINGS = 20


@dataclass(frozen=True)
class Rhythm:
    """How often a cell is asked. `base` is its own interval, or its route's while it is asked more often."""

    base: timedelta
    expires_after: timedelta
    deadline: timedelta


@dataclass(frozen=True)
class Plan:
    """The next asking: `grid_at` is the point of the grid that stands behind `due_at`, `quick` that it comes before
    it; `blocked_run` counts blocked verdicts in a row."""

    grid_at: datetime
    due_at: datetime
    quick: bool = False
    blocked_run: int = 0


def plan(
    grid_at: datetime,
    rhythm: Rhythm,
    now: datetime,
    *,
    outcome: Outcome,
    blocked_run: int,
    wait_s: float | None,
    known_at: datetime | None,
    quick: bool,
    stretch: float = 1.0,
) -> Plan:
    """The next asking after a verdict with this outcome.

    `blocked_run` are the blocked verdicts before this one; `wait_s` is what the provider asked for; `known_at` is when
    the standing verdict was observed; `quick` asks for a confirmation; `stretch` is a budget's factor.
    """
    run = blocked_run + 1 if outcome is Outcome.BLOCKED else 0
    factor = max(2.0 ** min(max(run - 1, 0), _MOST_DOUBLINGS), stretch)
    grid_point = _within(next_grid_point(grid_at, rhythm.base, now), rhythm, factor, known_at or now)
    due_at = grid_point + rhythm.base * random.uniform(-JITTER, JITTER)  # noqa: S311
    wait = min(timedelta(seconds=max(wait_s or 0.0, 0.0)), LONGEST_WAIT)
    if quick:
        soon = now + max(QUICK, wait) * random.uniform(1, 1 + 2 * JITTER)  # noqa: S311
        if soon < due_at:
            return Plan(grid_point, soon, quick=True, blocked_run=run)
    return Plan(grid_point, max(due_at, now + wait), blocked_run=run)


def next_grid_point(grid_at: datetime, interval: timedelta, now: datetime) -> datetime:
    """The next point of the grid after now.

    A point nearer than the jitter is the one that this probe was early for, and doesn't count.
    """
    steps = math.floor((now + interval * JITTER - grid_at) / interval) + 1
    return grid_at + interval * steps


def _within(first: datetime, rhythm: Rhythm, factor: float, known_at: datetime) -> datetime:
    """The point of the grid `factor` intervals on (1: the first), but early enough that the answer comes before what is
    known expires."""
    edge = known_at + rhythm.expires_after - rhythm.deadline * DEADLINES_A_PROBE - rhythm.base * JITTER
    room = math.floor((edge - first) / rhythm.base)
    wanted = room if math.isinf(factor) else math.ceil(factor) - 1
    return first + rhythm.base * max(0, min(wanted, room))


def after_midnight(now: datetime, interval: timedelta) -> datetime:
    """When a cell whose budget is spent may be asked: on the next UTC day, not all cells at once."""
    midnight = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
    return midnight + min(interval, _SPREAD) * random.random()  # noqa: S311


def somewhere_in(now: datetime, interval: timedelta) -> datetime:
    return now + interval * random.random()  # noqa: S311


@dataclass(frozen=True)
class Allowance:
    """A route's budget of a UTC day; None: no bound."""

    tokens: int | None = None
    requests: int | None = None

    def used(self, spend: Spend) -> float:
        """The share that is used up: the larger of the two."""
        shares = [
            used / limit for used, limit in ((spend.tokens, self.tokens), (spend.requests, self.requests)) if limit
        ]
        return max(shares, default=0.0)


def is_spent(allowance: Allowance, spend: Spend, under_way: int, max_requests: int, *, in_doubt: bool) -> bool:
    """Whether a further probe is to be left out. `under_way` are the requests that probes of this route may still send.

    The last fifth is for required cells that aren't proven; the whole is never exceeded in requests, and in tokens by
    no more than what probes under way use.
    """
    if allowance.tokens is not None and spend.tokens >= allowance.tokens:
        return True
    requests = spend.requests + under_way
    if allowance.requests is not None and requests + max_requests > allowance.requests:
        return True
    with_others = Spend(tokens_in=spend.tokens, requests=requests)
    return not in_doubt and allowance.used(with_others) >= 1 - KEPT_IN_RESERVE


def stretch(allowance: Allowance, spend: Spend, now: datetime, *, required: bool, in_doubt: bool) -> float:
    """By how much intervals grow so that the budget lasts until the end of the UTC day; 1: not at all.

    Above the even share informational contracts are asked as seldom as their expiry allows, and required ones follow
    when that isn't enough. Cells in doubt aren't held back.
    """
    used = allowance.used(spend)
    elapsed = max((now - datetime.combine(now.astimezone(UTC).date(), time(), UTC)) / timedelta(days=1), 1 / 24)
    usable = 1 - KEPT_IN_RESERVE
    even = usable * elapsed
    if in_doubt or used <= even:
        return 1.0
    if not required or used >= usable:
        return math.inf
    if used <= even * _PATIENCE:
        return 1.0
    return max(1.0, used / elapsed * (1 - elapsed) / (usable - used))
