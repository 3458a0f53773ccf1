"""When a cell is asked next, and what a budget allows: tables and properties, with every time handed in."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import Outcome, Spend
from service.pacing import (
    JITTER,
    LONGEST_WAIT,
    Allowance,
    Plan,
    Rhythm,
    after_midnight,
    is_spent,
    next_grid_point,
    plan,
    somewhere_in,
    stretch,
)
from tests.samples import MINUTE, NOW

HOUR = 60 * MINUTE
RHYTHM = Rhythm(base=5 * MINUTE, expires_after=30 * MINUTE, deadline=MINUTE)
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
spans = st.floats(0.05, 100_000).map(lambda seconds: timedelta(seconds=seconds))
outcomes = st.sampled_from(Outcome)


def planned(grid_at: Any = NOW, rhythm: Rhythm = RHYTHM, now: Any = NOW, **changes: Any) -> Plan:
    usual = {"outcome": Outcome.PROVEN, "blocked_run": 0, "wait_s": None, "known_at": now, "quick": False}
    return plan(grid_at, rhythm, now, **(usual | changes))


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)


@pytest.mark.usefixtures("no_jitter")
class TestPlan:
    """Without its jitter: five minutes' interval, thirty until expiry, a minute's deadline."""

    def test_a_cell_is_asked_at_the_next_point_of_its_grid(self) -> None:
        assert planned() == Plan(NOW + 5 * MINUTE, NOW + 5 * MINUTE)

    @pytest.mark.parametrize(
        ("run", "intervals"),
        [(0, 1), (1, 2), (2, 4), (3, 5), (9, 5), (10_000, 5)],  # 26.5 minutes are left: not six intervals
    )
    def test_blocked_answers_in_a_row_double_the_interval_up_to_the_edge_of_expiry(
        self, run: int, intervals: int
    ) -> None:
        seldom = replace(RHYTHM, expires_after=29 * MINUTE)
        asked = planned(rhythm=seldom, outcome=Outcome.BLOCKED, blocked_run=run)
        assert asked == Plan(NOW + intervals * 5 * MINUTE, NOW + intervals * 5 * MINUTE, blocked_run=run + 1)

    def test_another_answer_ends_the_run(self) -> None:
        assert planned(outcome=Outcome.UNAVAILABLE, blocked_run=7) == Plan(NOW + 5 * MINUTE, NOW + 5 * MINUTE)

    def test_the_edge_is_that_of_the_standing_verdict_not_of_the_last(self) -> None:
        held = {"outcome": Outcome.UNPROVEN, "stretch": math.inf}
        assert planned(**held).due_at == NOW + 25 * MINUTE
        assert planned(**held, known_at=NOW - 10 * MINUTE).due_at == NOW + 15 * MINUTE
        assert planned(**held, known_at=NOW - 5 * HOUR).due_at == NOW + 5 * MINUTE
        assert planned(**held, known_at=None).due_at == NOW + 25 * MINUTE

    @pytest.mark.parametrize(("factor", "intervals"), [(1.0, 1), (1.01, 2), (2.0, 2), (3.2, 4), (math.inf, 5)])
    def test_a_budget_stretches_to_whole_intervals(self, factor: float, intervals: int) -> None:
        assert planned(stretch=factor).due_at == NOW + intervals * 5 * MINUTE

    def test_the_longer_of_back_off_and_stretch_counts(self) -> None:
        assert planned(outcome=Outcome.BLOCKED, blocked_run=1, stretch=3.0).due_at == NOW + 15 * MINUTE
        assert planned(outcome=Outcome.BLOCKED, blocked_run=2, stretch=3.0).due_at == NOW + 20 * MINUTE

    @pytest.mark.parametrize(
        ("wait_s", "seconds"), [(None, 300), (-9, 300), (0, 300), (299, 300), (301, 301), (3600, 3600), (1e9, 3600)]
    )
    def test_a_wait_is_kept_up_to_an_hour(self, wait_s: float | None, seconds: int) -> None:
        asked = planned(wait_s=wait_s)
        assert asked.due_at == NOW + timedelta(seconds=seconds)
        assert asked.grid_at == NOW + 5 * MINUTE

    @pytest.mark.parametrize(("wait_s", "seconds"), [(None, 33), (1, 33), (100, 110), (250, 275)])
    def test_a_quick_re_probe_comes_after_half_a_minute_or_the_wait(self, wait_s: float | None, seconds: int) -> None:
        soon = NOW + timedelta(seconds=seconds)
        assert planned(quick=True, wait_s=wait_s) == Plan(NOW + 5 * MINUTE, soon, quick=True)

    def test_a_quick_re_probe_that_would_come_after_the_grid_point_is_none(self) -> None:
        assert planned(quick=True, wait_s=290) == Plan(NOW + 5 * MINUTE, NOW + 5 * MINUTE)
        assert planned(NOW - 280 * timedelta(seconds=1), quick=True).quick is True  # the point 20 s away is used up
        assert planned(NOW - 269 * timedelta(seconds=1), quick=True) == Plan(
            NOW + 31 * MINUTE / 60, NOW + 31 * MINUTE / 60
        )


@given(
    grid=st.floats(-1e6, 1e6),
    rhythm=st.builds(Rhythm, spans, spans, spans),
    outcome=outcomes,
    run=st.integers(0, 5000),
    wait=st.none() | st.floats(-10, 1e6),
    known=st.none() | st.floats(0, 1e6),
    quick=st.booleans(),
    factor=st.floats(1, 50) | st.just(math.inf),
)
def test_whatever_holds_a_cell_back_it_is_asked_in_time(
    grid: float,
    rhythm: Rhythm,
    outcome: Outcome,
    run: int,
    wait: float | None,
    known: float | None,
    quick: bool,
    factor: float,
) -> None:
    """Before what is known expires, by as much as a probe may last; or at the first point of the grid that is left; or
    when a wait is over."""
    grid_at, known_at = NOW + timedelta(seconds=grid), None if known is None else NOW - timedelta(seconds=known)
    asked = plan(
        grid_at,
        rhythm,
        NOW,
        outcome=outcome,
        blocked_run=run,
        wait_s=wait,
        known_at=known_at,
        quick=quick,
        stretch=factor,
    )
    slack = timedelta(microseconds=50)
    first = next_grid_point(grid_at, rhythm.base, NOW) + rhythm.base * JITTER
    edge = (known_at or NOW) + rhythm.expires_after - 3 * rhythm.deadline
    wait_over = NOW + min(timedelta(seconds=max(wait or 0, 0)), LONGEST_WAIT)
    assert asked.due_at <= max(first, edge, wait_over) + slack
    assert asked.due_at >= wait_over - slack
    assert asked.due_at > NOW - slack  # never at once: a loop without end
    off = (asked.grid_at - grid_at) % rhythm.base
    assert min(off, rhythm.base - off) <= slack * (1 + abs(grid) / rhythm.base.total_seconds())


@given(spans, st.floats(-50, 50))
def test_the_next_grid_point_is_the_first_beyond_the_jitter(interval: timedelta, intervals: float) -> None:
    grid_at = NOW + interval * intervals
    point = next_grid_point(grid_at, interval, NOW)
    slack = timedelta(microseconds=100)
    assert NOW + interval * JITTER - slack <= point <= NOW + interval * (1 + JITTER) + slack


@given(st.floats(0, 86_399.99), spans)
def test_what_is_spent_waits_for_the_next_utc_day(second: float, interval: timedelta) -> None:
    at = after_midnight(MIDNIGHT + timedelta(seconds=second), interval)
    assert MIDNIGHT + 24 * HOUR <= at <= MIDNIGHT + 24 * HOUR + min(interval, 10 * MINUTE)


@given(spans)
def test_somewhere_is_within(interval: timedelta) -> None:
    assert NOW <= somewhere_in(NOW, interval) <= NOW + interval


@pytest.mark.parametrize(
    ("allowance", "spend", "under_way", "in_doubt", "spent"),
    [
        pytest.param(Allowance(), Spend(10**9, 10**9, 10**9), 10**6, False, False, id="without a budget never"),
        pytest.param(Allowance(tokens=1000), Spend(500, 299), 0, False, False, id="below four fifths"),
        pytest.param(Allowance(tokens=1000), Spend(500, 300), 0, False, True, id="the last fifth is kept"),
        pytest.param(Allowance(tokens=1000), Spend(500, 300), 0, True, False, id="for cells in doubt"),
        pytest.param(Allowance(tokens=1000), Spend(500, 499), 0, True, False, id="to the last token"),
        pytest.param(Allowance(tokens=1000), Spend(500, 500), 0, True, True, id="and no further"),
        pytest.param(Allowance(requests=100), Spend(requests=79), 0, False, False, id="requests below four fifths"),
        pytest.param(Allowance(requests=100), Spend(requests=70), 10, False, True, id="those under way count"),
        pytest.param(Allowance(requests=100), Spend(requests=90), 5, True, False, id="a probe that fits whole"),
        pytest.param(Allowance(requests=100), Spend(requests=91), 5, True, True, id="one that may not"),
        pytest.param(Allowance(1000, 100), Spend(10, 0, 99), 0, True, True, id="either of the two"),
        pytest.param(Allowance(1000, 100), Spend(1000, 0, 9), 0, True, True, id="or the other"),
    ],
)
def test_when_a_budget_is_spent(
    allowance: Allowance, spend: Spend, under_way: int, in_doubt: bool, spent: bool
) -> None:
    assert is_spent(allowance, spend, under_way, 5, in_doubt=in_doubt) is spent


NOON = MIDNIGHT + 12 * HOUR


@pytest.mark.parametrize(
    ("used", "now", "required", "in_doubt", "factor"),
    [
        pytest.param(40, NOON, True, False, 1.0, id="the even share"),
        pytest.param(40, NOON, False, False, 1.0, id="the even share, informational"),
        pytest.param(41, NOON, False, False, math.inf, id="above it informational ones are asked as seldom as can be"),
        pytest.param(41, NOON, True, False, 1.0, id="and required ones as ever"),
        pytest.param(60, NOON, True, False, 3.0, id="that isn't enough: a third of the pace lasts for the day"),
        pytest.param(60, NOON, True, True, 1.0, id="cells in doubt aren't held back"),
        pytest.param(80, NOON, True, False, math.inf, id="the reserve is reached"),
        pytest.param(99, NOON, True, True, 1.0, id="which is theirs"),
        pytest.param(3, MIDNIGHT, True, False, 1.0, id="the first hour counts as one"),
        pytest.param(4, MIDNIGHT, False, False, math.inf, id="and no more"),
    ],
)
def test_intervals_stretch_above_the_even_share(
    used: int, now: Any, required: bool, in_doubt: bool, factor: float
) -> None:
    found = stretch(Allowance(requests=100), Spend(requests=used), now, required=required, in_doubt=in_doubt)
    assert found == pytest.approx(factor)


@given(st.integers(0, 2000), st.floats(0, 1439), st.booleans(), st.booleans())
def test_a_stretch_is_never_a_hurry(used: int, minute: float, required: bool, in_doubt: bool) -> None:
    now = MIDNIGHT + minute * MINUTE
    assert stretch(Allowance(requests=1000), Spend(requests=used), now, required=required, in_doubt=in_doubt) >= 1.0


def test_a_paced_budget_lasts_for_the_day_and_never_runs_over() -> None:
    """One required cell whose plain interval would use four times the budget, from midnight to midnight."""
    allowance, rhythm = Allowance(requests=360), Rhythm(MINUTE, 24 * HOUR, timedelta(seconds=5))
    now, grid_at, asked = MIDNIGHT, MIDNIGHT, []
    while now < MIDNIGHT + 24 * HOUR:
        spend = Spend(requests=len(asked))
        assert not is_spent(allowance, spend, 0, 5, in_doubt=False)
        asked.append(now)
        factor = stretch(allowance, Spend(requests=len(asked)), now, required=True, in_doubt=False)
        step = planned(grid_at, rhythm, now, stretch=factor)
        grid_at, now = step.grid_at, step.due_at
    assert 0.75 * 288 <= len(asked) <= 288  # four fifths of the budget
    assert asked[-1] > MIDNIGHT + 20 * HOUR
