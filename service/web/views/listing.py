"""Which of all routes the overview lists: filters, order, pages, and providers folded to a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.derive import WORST_FIRST, RouteState, Shown
from service.web.views.asked import SIZE, SIZES, Asked
from service.web.views.words import STATE_WORDS, counted

FOLDED_FROM = 200
"""With more routes than that providers are one line each, and routes come a page at a time whosever they are."""
PROVIDERS = 100


@dataclass(frozen=True)
class ProviderLine:
    """A provider whose routes aren't all shown: `512 routes`, and how many of them are in which state but well."""

    name: str
    kind: str
    routes: str
    states: tuple[tuple[str, str], ...]
    link: str


@dataclass(frozen=True)
class Choice:
    """One filter to choose from: values and their words, the first of which is no filter."""

    name: str
    label: str
    chosen: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Filters:
    """What can be chosen and what is."""

    asked: Asked
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Pages:
    """Which of the found routes are shown: `routes 101 to 200 of 512`. A link is None where there is nothing."""

    words: str
    before: str | None
    after: str | None


def select(states: Sequence[RouteState], asked: Asked) -> list[RouteState]:
    selection = asked.selection
    return [state for state in states if selection.matches(state)] if selection else []


def rank(state: RouteState) -> tuple[int, bool, str, str]:
    """Worst first; what is muted comes after all alarms and before what is well."""
    muted = state.pause is not None and state.shown is not Shown.PROVEN
    shown = Shown.IN_PART if muted else state.shown
    return WORST_FIRST.index(shown), muted, state.route.name, state.route.id


def worst_of(states: Sequence[RouteState]) -> Shown:
    if not states:
        return Shown.UNKNOWN
    shown = {state.shown for state in states if state.pause is None or state.shown is Shown.PROVEN}
    return min(shown, key=WORST_FIRST.index, default=Shown.IN_PART)


def page_of(found: int, asked: Asked) -> tuple[int, Pages | None]:
    """Where the page begins, and its links; a page after the last is the last."""
    last = max(1, -(-found // asked.size))
    page = min(asked.page, last)
    start = (page - 1) * asked.size
    if last == 1:
        return start, None
    words = f"routes {start + 1} to {min(start + asked.size, found)} of {found}"
    before = asked.link(page=page - 1) if page > 1 else None
    return start, Pages(words, before, asked.link(page=page + 1) if page < last else None)


def filters_of(states: Sequence[RouteState], asked: Asked) -> Filters:
    """What there is to choose from among all routes. The size of a page is a choice where there are several."""
    providers = {state.route.provider for state in states}
    tags = {tag for state in states for tag in state.route.tags}
    choices = [
        _choice("provider", "Provider", "All", asked.provider, {name: name for name in sorted(providers)}),
        _choice("outcome", "State", "Any", asked.outcome, {shown.value: STATE_WORDS[shown] for shown in WORST_FIRST}),
    ]
    if tags or asked.tag:
        choices.append(_choice("tag", "Tag", "Any", asked.tag, {tag: tag for tag in sorted(tags)}))
    if len(states) > min(SIZES):
        sizes = {str(size): str(size) for size in SIZES if size != SIZE}
        chosen = "" if asked.size == SIZE else str(asked.size)
        choices.append(_choice("size", "On a page", str(SIZE), chosen, sizes))
    return Filters(asked, tuple(choices))


def _choice(name: str, label: str, no_filter: str, chosen: str, known: Mapping[str, str]) -> Choice:
    """A value that is asked for stays a choice even when it names nothing, so that it can be seen and undone."""
    unknown = {chosen: chosen} if chosen and chosen not in known else {}
    return Choice(name, label, chosen, tuple({"": no_filter, **known, **unknown}.items()))


def providers_of(states: Sequence[RouteState], asked: Asked) -> list[ProviderLine]:
    """The worst first, and of these the one with most routes in that state."""
    by_provider: dict[str, list[RouteState]] = {}
    for state in states:
        by_provider.setdefault(state.route.provider, []).append(state)
    lines = []
    for name, its in by_provider.items():
        shown = Counter(state.shown for state in its if state.pause is None or state.shown is Shown.PROVEN)
        muted = len(its) - shown.total()
        worst = worst_of(its)
        words = [(one.value, f"{n} {_SHORT[one]}") for one in WORST_FIRST if (n := shown[one])]
        words += [("muted", f"{muted} muted")] if muted else []
        line = ProviderLine(
            name, worst.value, counted(len(its), "route", "routes"), tuple(words), asked.link(provider=name)
        )
        lines.append(((WORST_FIRST.index(worst), -shown[worst], name), line))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


_SHORT: Mapping[Shown, str] = {
    Shown.VIOLATED: "broken",
    Shown.BLOCKED: "blocked",
    Shown.UNAVAILABLE: "unavailable",
    Shown.UNKNOWN: "unknown",
    Shown.IN_PART: "in part",
    Shown.PROVEN: "well",
}
