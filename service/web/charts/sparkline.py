"""A small line for a table: how long the first token took of late."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from service.web.charts.markup import element, joined, plain
from service.web.charts.numbers import counted, in_seconds

WIDTH, HEIGHT, EDGE = 96, 24, 3


def sparkline(points: Sequence[float | None]) -> Markup:
    """Times in seconds, oldest first, as a line from 0 up, and the newest of them in words; None is a gap."""
    known = [value if value is not None and math.isfinite(value) else None for value in points]
    measured = [value for value in known if value is not None]
    if not measured:
        return element("span", "no data", class_="none")
    newest = in_seconds(measured[-1])
    drawn = element(
        "svg",
        element("title", _in_words(known, measured)),
        element("path", d=f"M{EDGE} {HEIGHT - EDGE}H{WIDTH - EDGE}", class_="ground"),
        element("path", d=_path(known, max(measured)), class_="trace"),
        element("path", d=_dots(known, max(measured)), class_="dots"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        role="img",
    )
    words = newest if known[-1] is not None else joined((newest, " ", element("small", "before a gap")))
    return element("span", drawn, element("span", words), class_="spark")


def _in_words(known: Sequence[float | None], measured: Sequence[float]) -> str:
    gaps = len(known) - len(measured)
    last = "last" if known[-1] is not None else "no data now, last"
    return (
        f"Time to first token: {last} {in_seconds(measured[-1])}, between {in_seconds(min(measured))} and "
        f"{in_seconds(max(measured))} over {counted(len(known), 'point')}"
        + (f", {gaps} of them without data" if gaps else "")
    )


def _place(at: int, value: float, count: int, most: float) -> str:
    x = EDGE + (WIDTH - 2 * EDGE) * (at / (count - 1) if count > 1 else 1)
    y = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * max(value, 0) / (most or 1)
    return f"{plain(x)} {plain(y)}"


def _path(known: Sequence[float | None], most: float) -> str:
    return "".join(
        f"{'M' if at == 0 or known[at - 1] is None else 'L'}{_place(at, value, len(known), most)}"
        for at, value in enumerate(known)
        if value is not None
    )


def _dots(known: Sequence[float | None], most: float) -> str:
    """The newest value, and those with gaps on both sides, as points: lines of no length with round ends."""
    newest = max(at for at, value in enumerate(known) if value is not None)
    padded = [None, *known, None]
    return "".join(
        f"M{_place(at, value, len(known), most)}h0"
        for at, value in enumerate(known)
        if value is not None and (at == newest or (padded[at] is None and padded[at + 2] is None))
    )
