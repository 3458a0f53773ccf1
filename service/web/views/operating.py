"""What may be done from the page of a route, and what became of it: words for the buttons and the pause form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import urlencode

from service.derive import RouteState
from service.model import AskedNow, PauseScope, RouteRow
from service.web.views.head import Held, holding
from service.web.views.words import View, moment

TOLD_FOR = timedelta(minutes=1)
"""How long a page says what became of a wish: it is in its address, and the page is loaded again and again."""
OTHER = "other"
LENGTHS: Mapping[str, str] = {"1": "1 hour", "4": "4 hours", "24": "1 day", "168": "7 days", OTHER: "Other"}
"""How long a pause may be, in hours."""
_BECAME: Mapping[str, str] = {
    "due": "Asked now",
    "under_way": "Being asked already",
    "paused": "Not asked, because a pause stops it",
    "too_soon": "Asked less than a minute ago, so not again yet",
    "waiting": "The provider wants us to wait",
}


class Query(Protocol):
    """The parameters of an address."""

    def getlist(self, key: str) -> list[str]: ...


@dataclass(frozen=True)
class Operating:
    """`told` says what became of the cells that were asked a moment ago; `pauses` are those that hold for the route,
    and with `stopped` one of them keeps it from being asked at all."""

    told: tuple[str, ...]
    pauses: tuple[Held, ...]
    stopped: bool


def operating(view: View, state: RouteState, query: Query) -> Operating:
    pauses = holding(view, state.route)
    stopped = any(pause.stops for pause in pauses)
    return Operating(() if stopped else _told(state, query, view.now), pauses, stopped)


def became(asked: AskedNow, now: datetime) -> str:
    """What became of a wish to ask a route's cells, as the query of its page."""
    cells = [("due", *cell) for cell in asked.due]
    cells += [("under_way", *cell) for cell in asked.under_way]
    cells += [("paused", *cell[:2]) for cell in asked.paused]
    cells += [("too_soon", *cell[:2]) for cell in asked.too_soon]
    cells += [("waiting", *cell[:2]) for cell in asked.waiting]
    pairs = [("at", str(int(now.timestamp())))]
    pairs += [(word, _cell(contract, location)) for word, contract, location in cells]
    held = [seconds for _, _, seconds in (*asked.too_soon, *asked.waiting)]
    return urlencode([*pairs, *([("again", str(int(now.timestamp() + min(held)) + 1))] if held else [])])


def _told(state: RouteState, query: Query, now: datetime) -> tuple[str, ...]:
    """An address can be anybody's: only times and names of this route's own cells are taken from it."""
    at = _time(query, "at")
    if at is None or not abs(now - at) <= TOLD_FOR:
        return ()
    cells = [cell.row.cell for contract in state.contracts for cell in contract.cells]
    places = len({cell.location for cell in cells}) > 1
    names = {
        _cell(cell.contract, cell.location): f"{cell.contract} from {cell.location}" if places else cell.contract
        for cell in sorted(cells, key=lambda cell: (cell.contract, cell.location))
    }
    found = {word: [names[key] for key in names if key in query.getlist(word)] for word in _BECAME}
    told = [f"{words}: {', '.join(found[word])}." for word, words in _BECAME.items() if found[word]]
    again = _time(query, "again")
    if again is not None and (found["too_soon"] or found["waiting"]):
        told.append(f"The next can be asked from {moment(again, now).clock} on.")
    return tuple(told)


def _cell(contract: str, location: str) -> str:
    return f"{contract}@{location}"


def _time(query: Query, name: str) -> datetime | None:
    given = "".join(query.getlist(name)[:1])
    seconds = int(given) if given.isascii() and given.isdigit() and len(given) < 12 else None
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None


@dataclass(frozen=True)
class Pausable:
    """What may be paused from the page of a route: `value` is what its form sends."""

    value: str
    scope: PauseScope
    target: str
    words: str


def pausable(view: View, route: RouteRow) -> tuple[Pausable, ...]:
    """The route, its provider, and each of its tags, with how many routes that is."""
    others = {row.route.id: row.route for row in view.snapshot.cells}.values()
    of_provider = sum(other.provider == route.provider for other in others)
    found = [
        Pausable("route", PauseScope.ROUTE, route.id, "This route"),
        Pausable("provider", PauseScope.PROVIDER, route.provider, _all(of_provider, f"of {route.provider}")),
    ]
    for tag in route.tags:
        tagged = sum(tag in other.tags for other in others)
        found.append(Pausable(f"tag:{tag}", PauseScope.TAG, tag, _all(tagged, f"with the tag {tag}")))
    return tuple(found)


def _all(count: int, what: str) -> str:
    return f"All routes {what}: {f'{count} of them' if count > 1 else 'none but this one'}"


@dataclass(frozen=True)
class PauseForm:
    """What was chosen and typed. `hours` counts where `length` is `other`."""

    what: str = "route"
    length: str = "1"
    hours: str = ""
    stops: bool = False
    reason: str = ""
    by: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> PauseForm:
        return cls(
            what=fields.get("what", ""),
            length=fields.get("length", ""),
            hours=fields.get("hours", "").strip(),
            stops=fields.get("stops") == "yes",
            reason=fields.get("reason", "").strip(),
            by=fields.get("by", "").strip(),
        )

    @property
    def seconds(self) -> float:
        """How long it is to be; not a number where none was given."""
        try:
            return float(self.hours if self.length == OTHER else self.length) * 3600
        except ValueError:
            return float("nan")


WRONG: Mapping[str, str] = {
    "target": "Choose what to pause.",
    "duration_s": "Say for how many hours: more than 0, and 744 (31 days) at most.",
    "reason": "The reason is one line of 300 characters at most.",
    "by": "The name is one line of 100 characters at most.",
}
"""What is wrong with a member of the pause that the form asks for."""
