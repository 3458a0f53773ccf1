"""The latency chart: how long the first token and the whole probe took, over time.

Two plots with an axis each. A line is the median, a dashed one above it the 95th percentile; what lies between is
shaded. A span without data is shaded across the whole height, and no line crosses it.

Lines are drawn in a box of their own that is stretched to the width of the page; texts stand outside of it and keep
their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from service.web.charts.axes import Scale, scale, short, span, times
from service.web.charts.markup import element, plain, table
from service.web.charts.numbers import Quantile, counted, in_seconds, quantile

HEIGHT, TOP, BOTTOM, ACROSS = 196, 20, 168, 1000
NO_DATA = "no data"
_EDGE = 0.03  # of the width: a label nearer to an end of the axis is left out


@dataclass(frozen=True)
class LatencyPoint:
    """Probes from `start` until `end`, by how long they took: counts of the buckets of time to first token and of
    duration, each bucket's own, the open one last."""

    start: datetime
    end: datetime
    first_token: Sequence[int]
    duration: Sequence[int]


@dataclass(frozen=True)
class _Spot:
    """One point of one plot. No quantiles: nothing was measured."""

    start: datetime
    end: datetime
    median: Quantile | None
    high: Quantile | None
    count: int

    @property
    def words(self) -> str:
        if self.median is None:
            return NO_DATA
        return f"p50 {self.median}, p95 {self.high} ({self.count} measured)"


def latency(points: Sequence[LatencyPoint], bounds: Sequence[float]) -> Markup:
    """The chart over points in order of time; `bounds` are the buckets' upper bounds in seconds."""
    if not points:
        return element("p", "Nothing measured yet.", class_="none")
    plots = {name: [_spot(point, bounds, counts(point)) for point in points] for name, counts in _MEASURES.items()}
    return element(
        "figure",
        element("div", *(_plot(name, spots) for name, spots in plots.items()), class_="plots"),
        element("figcaption", _legend([*plots.values()])),
        class_="chart latency",
    )


def latency_table(points: Sequence[LatencyPoint], bounds: Sequence[float]) -> Markup:
    """The same in numbers, newest first."""
    return table(
        "Latency over time, the newest first",
        ("When", *_MEASURES),
        (
            (
                span(point.start, point.end),
                *(_spot(point, bounds, counts(point)).words for counts in _MEASURES.values()),
            )
            for point in reversed(points)
        ),
    )


_MEASURES: dict[str, Callable[[LatencyPoint], Sequence[int]]] = {
    "Time to first token": lambda point: point.first_token,
    "Duration": lambda point: point.duration,
}


def _spot(point: LatencyPoint, bounds: Sequence[float], counts: Sequence[int]) -> _Spot:
    return _Spot(point.start, point.end, quantile(bounds, counts, 0.5), quantile(bounds, counts, 0.95), sum(counts))


class _Frame:
    """Where times and values stand in a plot."""

    def __init__(self, spots: Sequence[_Spot]) -> None:
        self.start, self.end = spots[0].start, spots[-1].end
        measured = [value.seconds for spot in spots for value in (spot.median, spot.high) if value]
        self.scale: Scale = scale(measured)

    def part(self, at: datetime) -> float:
        """How far along a time is, from 0 to 1."""
        whole = self.end - self.start
        return (at - self.start) / whole if whole else 0.5

    def x(self, at: datetime) -> float:
        return ACROSS * self.part(at)

    def middle(self, spot: _Spot) -> float:
        return (self.x(spot.start) + self.x(spot.end)) / 2

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * self.scale.height(value)


def _plot(name: str, spots: Sequence[_Spot]) -> Markup:
    frame = _Frame(spots)
    runs = list(_runs(spots))
    stretched = element(
        "svg",
        *(_silence(frame, *found) for found in _silences(spots)),
        *(element("path", d=_area(frame, run), class_="between") for run in runs),
        *(element("path", d=_line(frame, run, lambda s: s.high), class_=_class("p95", run)) for run in runs),
        *(element("path", d=_line(frame, run, lambda s: s.median), class_=_class("p50", run)) for run in runs),
        *(_room(frame, spot) for spot in spots),
        viewBox=f"0 0 {ACROSS} {HEIGHT}",
        width="100%",
        height=HEIGHT,
        preserveAspectRatio="none",
    )
    drawn = element(
        "svg",
        element("title", f"{name}, {span(frame.start, frame.end)}"),
        element("desc", _description(spots)),
        *_grid(frame),
        stretched,
        *_labels(frame),
        *_beyond(frame, spots),
        width="100%",
        height=HEIGHT,
        role="img",
    )
    notes = [_newest(spots)] + (["logarithmic scale"] if frame.scale.log else [])
    heading = element("p", element("strong", name), " ", element("small", ", ".join(notes)), class_="named")
    return element("div", heading, drawn, class_="plot")


def _newest(spots: Sequence[_Spot]) -> str:
    newest = next((spot for spot in reversed(spots) if spot.median), None)
    if newest is None:
        return NO_DATA
    return f"p50 {newest.median}, p95 {newest.high}" + (
        "" if newest is spots[-1] else f" until {short(newest.end)} UTC"
    )


def _description(spots: Sequence[_Spot]) -> str:
    known = [spot for spot in spots if spot.median and spot.high]
    if not known:
        return "Nothing was measured."
    slowest = max(known, key=lambda s: (s.high.beyond, s.high.seconds) if s.high else (False, 0.0))
    silent = len(spots) - len(known)
    return (
        f"{counted(len(spots), 'point')}, {silent or 'none'} of them without data. "
        f"Newest, {span(known[-1].start, known[-1].end)}: {known[-1].words}. "
        f"Slowest by p95, {span(slowest.start, slowest.end)}: {slowest.words}."
    )


# --- lines ------------------------------------------------------------------------------------------------


def _runs(spots: Sequence[_Spot]) -> Iterator[list[_Spot]]:
    """Neighbours that were measured; a silent point ends a run, and so does a hole in time."""
    run: list[_Spot] = []
    for spot in spots:
        if run and (spot.median is None or spot.start > run[-1].end):
            yield run
            run = []
        if spot.median is not None:
            run.append(spot)
    if run:
        yield run


def _class(name: str, run: Sequence[_Spot]) -> str:
    return name if len(run) > 1 else f"{name} alone"


def _line(frame: _Frame, run: Sequence[_Spot], which: Callable[[_Spot], Quantile | None]) -> str:
    """A run of one is a point, which a round line end makes visible."""
    places = [f"{plain(frame.middle(s))} {plain(frame.y(value.seconds))}" for s in run if (value := which(s))]
    return f"M{'L'.join(places)}{'h0' if len(places) == 1 else ''}"


def _area(frame: _Frame, run: Sequence[_Spot]) -> str:
    there = _line(frame, run, lambda s: s.high)
    back = _line(frame, run[::-1], lambda s: s.median)
    return f"{there}L{back.removeprefix('M')}z"


def _silences(spots: Sequence[_Spot]) -> list[tuple[datetime, datetime]]:
    """The spans of time without data, holes between the points too."""
    measured = [(spot.start, spot.end) for spot in spots if spot.median is not None]
    begins = [spots[0].start, *(end for _, end in measured)]
    ends = [*(start for start, _ in measured), spots[-1].end]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]


def _silence(frame: _Frame, start: datetime, end: datetime) -> Markup:
    left, right = frame.x(start), frame.x(end)
    return element("rect", x=left, y=TOP, width=right - left, height=BOTTOM - TOP, class_="silence")


def _room(frame: _Frame, spot: _Spot) -> Markup:
    """What a pointer finds over a point."""
    left, right = frame.x(spot.start), frame.x(spot.end)
    title = element("title", f"{span(spot.start, spot.end)}: {spot.words}")
    return element("rect", title, x=left, y=TOP, width=right - left, height=BOTTOM - TOP, class_="room")


# --- axes -------------------------------------------------------------------------------------------------


def _grid(frame: _Frame) -> Iterator[Markup]:
    for tick in frame.scale.ticks:
        y = frame.y(tick)
        yield element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid")
    yield element("line", x1="0", x2="100%", y1=BOTTOM, y2=BOTTOM, class_="ground")
    for _, x, _ in _times(frame):
        yield element("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 5, class_="ground")


def _labels(frame: _Frame) -> Iterator[Markup]:
    for tick in frame.scale.ticks:
        yield element("text", in_seconds(tick), x=-8, y=frame.y(tick) + 4, text_anchor="end")
    for label, x, anchor in _times(frame):
        yield element("text", label, x=x, y=HEIGHT - 8, text_anchor=anchor)


def _times(frame: _Frame) -> Iterator[tuple[str, str, str]]:
    for at, label in times(frame.start.astimezone(UTC), frame.end.astimezone(UTC)):
        part = frame.part(at)
        anchor = "start" if part < _EDGE else "end" if part > 1 - _EDGE else "middle"
        yield label, f"{plain(100 * part)}%", anchor


def _beyond(frame: _Frame, spots: Sequence[_Spot]) -> Iterator[Markup]:
    """A sign where the 95th percentile lies beyond the last bucket: it is at least there."""
    for spot in spots:
        if spot.high and _is_beyond(spot):
            x = f"{plain(frame.middle(spot) * 100 / ACROSS)}%"
            yield element("text", "▲", x=x, y=frame.y(spot.high.seconds) - 2, text_anchor="middle", class_="beyond")


def _is_beyond(spot: _Spot) -> bool:
    return spot.high is not None and spot.high.beyond


def _legend(plots: Sequence[Sequence[_Spot]]) -> Markup:
    keys = [
        _key("p50: half took no longer", "path", d="M1 7h22", class_="p50"),
        _key("p95: 95 of 100 took no longer", "path", d="M1 7h22", class_="p95"),
    ]
    if any(map(_silences, plots)):
        keys.append(_key(NO_DATA, "rect", x=1, y=1, width=22, height=12, class_="silence"))
    if any(_is_beyond(spot) for spots in plots for spot in spots):
        keys.append(_key("that or more: beyond the last bucket", "path", d="m12 2 5 9H7z", class_="beyond"))
    return element("ul", *keys, class_="legend")


def _key(words: str, shape: str, **attributes: str | float) -> Markup:
    drawn = element("svg", element(shape, **attributes), viewBox="0 0 24 14", class_="key wide", aria_hidden="true")
    return element("li", drawn, words)
