"""Axes: where the ticks of values and of times stand, and how a span of time is written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MOST_TICKS, MOST_LOG_TICKS = 6, 8
WIDE = 20
"""Values of which the greatest is more than this many times the least get a logarithmic axis."""

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_TIME_STEPS = (
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 182)),
)
_MOST_STEPS = 4.5
_MONDAY = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`. Its ticks are 1, 2 or 5 times a power of ten."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool

    def height(self, value: float) -> float:
        """How far up a value stands, from 0 to 1; what lies outside stands at the end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def scale(values: Iterable[float]) -> Scale:
    """The axis for these values: linear from 0, or logarithmic where they are too far apart for that."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    if high > WIDE * low:
        return _logarithmic(_round_down(low), _round_up(high))
    step = _round_up(high / (MOST_TICKS - 1))
    steps = math.ceil(high / step - 1e-9)
    return Scale(0.0, _tidy(steps * step), tuple(_tidy(n * step) for n in range(steps + 1)), log=False)


def _logarithmic(low: float, high: float) -> Scale:
    decades = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    every = math.ceil(len(decades) / MOST_LOG_TICKS)
    fine = [_tidy(n * 10.0**e) for e in decades for n in (1, 2, 5)]
    coarse = [_tidy(10.0**e) for e in decades if e % every == 0]
    ticks = next(
        (inside for steps in (fine, coarse) if len(inside := _within(steps, low, high)) <= MOST_LOG_TICKS),
        _within(coarse, low, high),
    )
    return Scale(low, high, tuple(ticks), log=True)


def _within(values: Iterable[float], low: float, high: float) -> list[float]:
    return [value for value in values if low <= value <= high]


def _round_up(value: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is no less."""
    power = 10.0 ** math.floor(math.log10(value))
    return _tidy(next(n * power for n in (1, 2, 5, 10) if n * power >= value * (1 - 1e-9)))


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return _tidy(next(n * power for n in (10, 5, 2, 1) if n * power <= value * (1 + 1e-9)))


def _tidy(value: float) -> float:
    """Without the dust of binary fractions: 0.3 and not 0.30000000000000004."""
    return float(f"{value:.6g}")


def times(start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Round moments of UTC from start to end, a few, each with its label; dates where a day begins."""
    step = next((step for step in _TIME_STEPS if (end - start) / step <= _MOST_STEPS), (end - start) / _MOST_STEPS)
    first = _MONDAY - (_MONDAY - start) // step * step
    moments = (first + n * step for n in range(int(_MOST_STEPS) + 2))
    return [(at, f"{at:%H:%M}" if at.time() != _MONDAY.time() else day(at)) for at in moments if start <= at <= end]


def day(at: datetime) -> str:
    return f"{at.day} {at:%b}"


def short(at: datetime) -> str:
    """`30 Nov 03:00`."""
    at = at.astimezone(UTC)
    return f"{day(at)} {at:%H:%M}"


def span(start: datetime, end: datetime) -> str:
    """`2026-11-30 03:00–03:20 UTC`, with both dates where they differ."""
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    if start.date() == end.date():
        return f"{start:%Y-%m-%d %H:%M}–{end:%H:%M} UTC"
    return f"{start:%Y-%m-%d %H:%M} – {end:%Y-%m-%d %H:%M} UTC"
