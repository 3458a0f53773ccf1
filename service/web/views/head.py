"""The head of every page: as of when, how old the data is, who probes, and whether we ourselves are well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from service.model import Pause, PauseScope, ProberRow, RouteRow, Snapshot
from service.web.views.words import Moment, View, counted, duration, moment, muted_words, nothing_read

_AT_MOST = 5


@dataclass(frozen=True)
class Part:
    """A few words of the head. `well` False: a warning."""

    words: str
    well: bool = True


@dataclass(frozen=True)
class Held:
    """A pause that holds, in a sentence. `id` is what it is ended by; None: it stands for several."""

    words: str
    what: str = ""
    id: str | None = None
    stops: bool = False


@dataclass(frozen=True)
class Header:
    """`banner` is what every page says first when the database can't be reached; `parts` are one line, `faults` and
    `pauses` a sentence each. `data_age` None: no data has been read yet."""

    as_of: Moment
    data_age: str | None
    database_up: bool
    banner: str | None
    parts: tuple[Part, ...] = ()
    faults: tuple[str, ...] = ()
    pauses: tuple[Held, ...] = ()


def header(view: View, *, reads: bool = True) -> Header:
    """The head. Who may not read the details (`reads`) is told of the data's age alone."""
    data_age = duration(view.age_s)
    if view.database_up:
        banner = None
    elif nothing_read(view):
        banner = "The database can't be reached, and no data has been read yet."
    else:
        banner = f"The database can't be reached. This is what was known {data_age} ago; it ages and expires meanwhile."
    database = Part("database ok") if view.database_up else Part("database can’t be reached", well=False)
    known = reads and view.database_up  # who probes isn't known of a time that we didn't hear of
    return Header(
        as_of=moment(view.now, view.now),
        data_age=None if nothing_read(view) else data_age,
        database_up=view.database_up,
        banner=banner,
        parts=(_probers(view.snapshot), database, _egress(view.snapshot)) if known else (database,),
        faults=_some(list(_faults(view.snapshot))) if known else (),
        pauses=_first(holding(view)) if reads else (),
    )


def _at_work(snapshot: Snapshot) -> list[ProberRow]:
    return [prober for prober in snapshot.probers if prober.probes and not prober.superseded]


def _probers(snapshot: Snapshot) -> Part:
    at_work = _at_work(snapshot)
    missing = _without_prober(snapshot)
    words = counted(len(at_work), "prober", "probers") or "no prober"
    return Part(f"{words}, none in {', '.join(missing)}" if at_work and missing else words, not missing)


def _without_prober(snapshot: Snapshot) -> list[str]:
    wanted = {row.cell.location for row in snapshot.cells}
    return sorted(wanted - {prober.location for prober in _at_work(snapshot)})


def _egress(snapshot: Snapshot) -> Part:
    at_work = _at_work(snapshot)
    down = sorted({prober.location for prober in at_work if prober.egress_up is False})
    if down:
        return Part(f"egress down in {', '.join(down)}", well=False)
    return Part("egress ok" if any(prober.egress_up for prober in at_work) else "egress not checked")


def _faults(snapshot: Snapshot) -> Iterator[str]:
    for location in _without_prober(snapshot):
        yield f"No prober of {location} was heard of within the last minute: what is shown of it gets older."
    for location in sorted({prober.location for prober in _at_work(snapshot) if prober.egress_up is False}):
        yield f"The network of the prober in {location} is down: what it finds is held against no route."
    for prober in snapshot.probers:
        if prober.superseded:
            active = snapshot.active.get(prober.location, "")[:12]
            yield (
                f"A replica in {prober.location} has configuration {prober.config_hash[:12]}, which isn't the active "
                f"one{f' ({active})' if active else ''}: it asks nothing. Bring it up to date or stop it."
            )
    for prober in snapshot.probers:
        if prober.spooled:
            waiting = counted(prober.spooled, "verdict waits", "verdicts wait")
            yield f"{waiting} on the disk of a prober in {prober.location} to be stored."


def holding(view: View, route: RouteRow | None = None) -> tuple[Held, ...]:
    """The pauses that hold now, the first to end first: all, or those of a route."""
    pauses = (pause for pause in view.snapshot.pauses if pause.since <= view.now < pause.until)
    those = [pause for pause in pauses if route is None or _names(pause, route)]
    return tuple(_held(pause, view.now) for pause in sorted(those, key=lambda one: (one.until, one.scope, one.target)))


def _names(pause: Pause, route: RouteRow) -> bool:
    match pause.scope:
        case PauseScope.ROUTE:
            return pause.target == route.id
        case PauseScope.PROVIDER:
            return pause.target == route.provider
        case PauseScope.TAG:
            return pause.target in route.tags


def _held(pause: Pause, now: datetime) -> Held:
    what = f"{pause.scope.value} {pause.target}"
    by = f" (by {pause.by})" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return Held(f"{what[0].upper()}{what[1:]} is {muted_words(pause, now)}{why}{by}.", what, str(pause.id), pause.stops)


def _first(pauses: tuple[Held, ...]) -> tuple[Held, ...]:
    rest = len(pauses) - _AT_MOST
    return (*pauses[:_AT_MOST], Held(f"{rest} more.")) if rest > 0 else pauses


def _some(sentences: list[str]) -> tuple[str, ...]:
    rest = len(sentences) - _AT_MOST
    return (*sentences[:_AT_MOST], f"{rest} more.") if rest > 0 else tuple(sentences)
