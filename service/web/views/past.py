"""The past of one contract of a route, divided into equal slots: what strip and chart of a page are drawn of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from service.model import LATENCY_BOUNDS_S, Span
from service.web.charts import LatencyPoint, Slot

SLOTS = 90
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = (0,) * (len(LATENCY_BOUNDS_S) + 1)


@dataclass(frozen=True)
class Window:
    """A length of time to look back. `width` is that of a slot: of whole hours or days it is read from sums."""

    word: str
    words: str
    width: timedelta

    def bounds(self, now: datetime) -> tuple[datetime, datetime]:
        """From when until when. Slots lie on a grid of their own, so that a page that renews itself keeps them; the
        last one holds `now`."""
        end = now + self.width - (now - _EPOCH) % self.width
        return end - SLOTS * self.width, end


WINDOWS: Mapping[str, Window] = {
    window.word: window
    for window in (
        Window("6h", "6 hours", timedelta(minutes=4)),
        Window("24h", "24 hours", timedelta(minutes=16)),
        Window("7d", "7 days", timedelta(hours=2)),
        Window("30d", "30 days", timedelta(hours=8)),
        Window("360d", "360 days", timedelta(days=4)),
    )
}
WINDOW = "24h"


@dataclass(frozen=True)
class Choice:
    """One of several views of the same page."""

    words: str
    link: str
    chosen: bool


@dataclass(frozen=True)
class Past:
    """`counted` False: not a single verdict; `measured` False: nothing that was timed."""

    window: str
    contract: str
    windows: tuple[Choice, ...]
    contracts: tuple[Choice, ...]
    slots: tuple[Slot, ...]
    points: tuple[LatencyPoint, ...]
    counted: bool
    measured: bool


def past(
    spans: Sequence[Span], window: Window, now: datetime, contract: str, contracts: Sequence[str], page: str
) -> Past:
    """The whole window, oldest slot first. `contracts` are those to choose from; `page` is the path of the page."""
    since, _ = window.bounds(now)
    known = {span.start: span for span in spans}
    starts = [since + place * window.width for place in range(SLOTS)]
    slots = [Slot(at, at + window.width, known[at].counts if at in known else {}) for at in starts]
    points = [
        LatencyPoint(
            at,
            at + window.width,
            known[at].first_token if at in known else _NOTHING,
            known[at].duration if at in known else _NOTHING,
        )
        for at in starts
    ]
    return Past(
        window=window.words,
        contract=contract,
        windows=tuple(Choice(w.words, _link(page, w.word, contract), w is window) for w in WINDOWS.values()),
        contracts=tuple(Choice(name, _link(page, window.word, name), name == contract) for name in contracts),
        slots=tuple(slots),
        points=tuple(points),
        counted=any(slot.worst for slot in slots),
        measured=any(sum(point.first_token) or sum(point.duration) for point in points),
    )


def _link(page: str, window: str, contract: str) -> str:
    return f"{page}?{urlencode({'window': window, 'contract': contract})}#history"
