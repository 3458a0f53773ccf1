"""Numbers in words, quantiles of buckets, shares: what charts and badges say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Quantile:
    """An estimate in seconds. `beyond`: it lies in the open bucket, and all that is known is that it's more."""

    seconds: float
    beyond: bool = False

    def __str__(self) -> str:
        return f"> {in_seconds(self.seconds)}" if self.beyond else in_seconds(self.seconds)


def quantile(bounds: Sequence[float], counts: Sequence[int], q: float) -> Quantile | None:
    """The q-quantile of a histogram, linear within a bucket as Prometheus has it; None when nothing was counted.

    `bounds` are the buckets' upper bounds in seconds, ascending, and the first bucket begins at 0. `counts` are each
    bucket's own (not cumulative) and have one more, that of the open bucket. ValueError for anything else.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"not a quantile: {q}")
    if not bounds or list(bounds) != sorted(set(bounds)) or bounds[0] <= 0:
        raise ValueError("the bounds of a histogram are positive and ascend")
    if len(counts) != len(bounds) + 1 or min(counts) < 0:
        raise ValueError("a histogram has a count for each bound and one for all beyond")
    rank = q * sum(counts)
    for place, (count, below) in enumerate(zip(counts, accumulate(counts, initial=0), strict=False)):
        if count and below + count >= rank:
            if place == len(bounds):
                return Quantile(bounds[-1], beyond=True)
            lower = bounds[place - 1] if place else 0.0
            return Quantile(min(bounds[place], lower + (bounds[place] - lower) * ((rank - below) / count)))
    return None


def percent(proven: int, counted: int) -> str | None:
    """The share with one decimal; None when nothing was counted, for no data is not bad.

    Only all is 100 % and only none is 0 %: rounding hides neither a failure nor a success.
    """
    if not 0 <= proven <= counted:
        raise ValueError(f"{proven} of {counted} is no share")
    if not counted:
        return None
    if proven in (0, counted):
        return "100 %" if proven else "0 %"
    return f"{min(max(100 * proven / counted, 0.1), 99.9):.1f} %"


def share(proven: int, counted: int) -> str | None:
    """The share with the numbers that it is of: `97.9 % (281 of 287)`."""
    written = percent(proven, counted)
    return written and f"{written} ({proven} of {counted})"


def in_seconds(value: float) -> str:
    """A length of time as short as a chart needs it: `412 ms`, `2.5 s`, `120 s`."""
    if value == 0:
        return "0 s"
    if value < 0.001:
        return "< 1 ms"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s".replace(".0 ", " ") if value < 9.95 else f"{value:.0f} s"


def counted(number: int, one: str) -> str:
    """`1 point`, `2 points`."""
    return f"{number} {one}{'' if number == 1 else 's'}"
