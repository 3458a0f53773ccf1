"""The history strip: what was seen in each slot of a window of time.

A slot is a column. What is proven fills it solid from below; above stands what isn't, each outcome with cuts of its
own, and a sign on top names the worst. A slot without data is a dash on the ground: it is not bad, it is not known.

The columns stand in parts of thirty. Wide pages put the parts side by side and narrow ones below each other, so that
a column never gets too small to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from service.model import Outcome
from service.web.charts.axes import short, span
from service.web.charts.markup import element, joined, plain, table
from service.web.charts.numbers import counted

PART = 30
NAMED = 6
"""How many slots the description of a part names; it counts the rest."""

_COLUMN, _LEFT, _WIDTH = 10.0, 1.0, 8.0
_TOP, _GROUND = 13.0, 45.0
_LEAST, _GAP = 4.0, 1.0

WORST_FIRST = (Outcome.VIOLATED, Outcome.BLOCKED, Outcome.UNAVAILABLE, Outcome.UNPROVEN, Outcome.PROVEN)
NO_DATA = "no data"

# In a box of 10 × 10.
_SIGNS: Mapping[Outcome, str] = {
    Outcome.VIOLATED: "m2 2 6 6m0-6-6 6",
    Outcome.BLOCKED: "M5 1.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 1 1 0-7M3 5h4",
    Outcome.UNAVAILABLE: "M5 1.2 8.9 8.6H1.1z",
    Outcome.UNPROVEN: "M5 3.2a1.8 1.8 0 1 1 0 3.6 1.8 1.8 0 1 1 0-3.6",
}


@dataclass(frozen=True)
class Slot:
    """What was seen from `start` until `end`: how many verdicts of each outcome. None at all is no data."""

    start: datetime
    end: datetime
    counts: Mapping[Outcome, int]

    @property
    def words(self) -> str:
        """`4 proven, 1 violated`, the good first."""
        return _words(self.counts) or NO_DATA

    @property
    def worst(self) -> Outcome | None:
        return next((outcome for outcome in WORST_FIRST if self.counts.get(outcome)), None)


def strip(slots: Sequence[Slot]) -> Markup:
    """The strip with its legend, oldest slot first."""
    if not slots:
        return element("p", "No history yet.", class_="none")
    parts = [_part(slots[at : at + PART]) for at in range(0, len(slots), PART)]
    return element(
        "figure", element("div", *parts, class_="parts"), element("figcaption", _legend(slots)), class_="chart strip"
    )


def strip_table(slots: Sequence[Slot]) -> Markup:
    """The same in words, newest first."""
    return table(
        "What was seen, the newest first",
        ("When", "Verdicts"),
        ((span(slot.start, slot.end), slot.words) for slot in reversed(slots)),
    )


def _part(slots: Sequence[Slot]) -> Markup:
    start, end = slots[0].start, slots[-1].end
    drawn = element(
        "svg",
        element("title", f"History, {span(start, end)}"),
        element("desc", _description(slots)),
        *(_column(place, slot) for place, slot in enumerate(slots)),
        viewBox=f"0 0 {PART * _COLUMN:g} 47",
        role="img",
    )
    ends = (element("time", short(at), datetime=f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}") for at in (start, end))
    return element("div", drawn, element("p", *ends, class_="ends"), class_="part")


def _description(slots: Sequence[Slot]) -> str:
    said = [f"{span(slot.start, slot.end)}: {slot.words}" for slot in slots if slot.worst not in (Outcome.PROVEN, None)]
    more = [f"and {counted(len(said) - NAMED, 'more slot')} not all proven"] if len(said) > NAMED else []
    return "; ".join((f"{counted(len(slots), 'slot')}, {_totals(slots)}", *said[:NAMED], *more)) + "."


def _column(place: int, slot: Slot) -> Markup:
    left = place * _COLUMN
    title = element("title", f"{span(slot.start, slot.end)}: {slot.words}")
    room = element("rect", x=left, y=0, width=_COLUMN, height=47, class_="room")
    if slot.worst is None:
        parts = _nothing(left + _LEFT)
    else:
        parts = joined(_segment(outcome, left + _LEFT, y, height) for outcome, y, height in _stack(slot.counts))
        if sign := _SIGNS.get(slot.worst):
            drawn = element("path", d=sign, transform=f"translate({plain(left)} 0)", class_=f"sign {slot.worst.value}")
            parts = joined((drawn, parts))
    return element("g", title, room, parts, class_="slot")


def _stack(counts: Mapping[Outcome, int]) -> Iterator[tuple[Outcome, float, float]]:
    """Each outcome with its top and its height, from the top down. Heights are proportional, but a single failure
    among hundreds is still seen."""
    seen = [outcome for outcome in WORST_FIRST if counts.get(outcome)]
    room = _GROUND - _TOP - _GAP * (len(seen) - 1)
    spare = room - _LEAST * len(seen)
    total = sum(counts[outcome] for outcome in seen)
    y = _TOP
    for outcome in seen:
        height = _LEAST + spare * counts[outcome] / total
        yield outcome, y, height
        y += height + _GAP


def _segment(outcome: Outcome, x: float, y: float, height: float) -> Markup:
    if outcome is Outcome.UNPROVEN:
        return element("rect", x=x + 2.5, y=y, width=3, height=height, class_="unproven")
    bar = element("rect", x=x, y=y, width=_WIDTH, height=height, class_=outcome.value)
    cuts = "".join(_cuts(outcome, x, y, height))
    return joined((bar, element("path", d=cuts, class_="cuts"))) if cuts else bar


def _cuts(outcome: Outcome, x: float, y: float, height: float) -> Iterator[str]:
    """Violated is cut aslant, blocked lengthwise, unavailable across; proven is whole."""
    x, bottom = round(x, 1), y + height
    if outcome is Outcome.BLOCKED:
        yield f"M{x + 4:g} {plain(y)}V{plain(bottom)}"
    if outcome is Outcome.VIOLATED:
        for n in range(int(height // 7)):
            yield f"M{x:g} {plain(y + 6.5 + 7 * n)}l8-6"
    if outcome is Outcome.UNAVAILABLE:
        for n in range(1, int((height + 1) // 4)):
            yield f"M{x:g} {plain(y + 4 * n)}h8"


def _nothing(x: float) -> Markup:
    return element("path", d=f"M{plain(x + 1.5)} {_GROUND - 1:g}h5", class_="nothing")


def _legend(slots: Sequence[Slot]) -> Markup:
    totals = _sum(slots)
    keys = [
        element("li", _key(_segment(outcome, 1, 0, 14)), f"{totals[outcome]} {outcome.value}")
        for outcome in Outcome
        if totals[outcome]
    ]
    if empty := _empty(slots):
        keys.append(element("li", _key(element("path", d="M2.5 10h5", class_="nothing")), empty))
    return element("ul", *keys, class_="legend")


def _key(drawn: Markup) -> Markup:
    return element("svg", drawn, viewBox="0 0 10 14", class_="key", aria_hidden="true")


def _totals(slots: Sequence[Slot]) -> str:
    return ", ".join(filter(None, (_words(_sum(slots)), _empty(slots))))


def _sum(slots: Iterable[Slot]) -> Counter[Outcome]:
    totals: Counter[Outcome] = Counter()
    for slot in slots:
        totals.update(slot.counts)
    return totals


def _words(counts: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{counts[o]} {o.value}" for o in Outcome if counts.get(o))


def _empty(slots: Sequence[Slot]) -> str:
    empty = sum(slot.worst is None for slot in slots)
    return f"{counted(empty, 'slot')} without data" if empty else ""
