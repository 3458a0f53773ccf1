"""A small line for a table: how long the first token took of late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

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
    places = _places(known, max(measured))
    drawn = element(
        "svg",
        element("title", _in_words(known, measured)),
        element("path", d=f"M{EDGE} {HEIGHT - EDGE}H{WIDTH - EDGE}", class_="ground"),
        element("path", d=_path(places), class_="trace"),
        element("path", d=_dots(places), class_="dots"),
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


@lru_cache
def _columns(count: int) -> tuple[str, ...]:
    return tuple(plain(EDGE + (WIDTH - 2 * EDGE) * (at / (count - 1) if count > 1 else 1)) for at in range(count))


def _places(known: Sequence[float | None], most: float) -> list[str]:
    """Where each value is drawn, empty for a gap."""
    return [
        f"{x} {plain(HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * max(value, 0) / (most or 1))}" if value is not None else ""
        for x, value in zip(_columns(len(known)), known, strict=True)
    ]


def _path(places: Sequence[str]) -> str:
    return "".join(
        f"{'L' if before else 'M'}{place}" for before, place in zip(("", *places), places, strict=False) if place
    )


def _dots(places: Sequence[str]) -> str:
    """The newest value, and those with gaps on both sides, as points: lines of no length with round ends."""
    newest = max(at for at, place in enumerate(places) if place)
    around = zip(("", *places), places, (*places[1:], ""), strict=False)
    return "".join(
        f"M{place}h0"
        for at, (before, place, after) in enumerate(around)
        if place and (at == newest or not (before or after))
    )
