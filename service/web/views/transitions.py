"""Changes of state in words, for the page of a route, the list of all, and the feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from service.derive import Shown
from service.model import ChangeKind, RouteRow, Status, Transition
from service.remedies import first_step, in_words, remedy
from service.web.feed import Entry, entry_id
from service.web.views.compare import named_changes
from service.web.views.head import Header, header
from service.web.views.words import Moment, View, lower, moment

INFORMATIONAL = "informational"
KINDS: Mapping[str, str] = {
    ChangeKind.REGRESSION: "Broke",
    ChangeKind.FLAPPING: "Flapping: broke again within a day",
    ChangeKind.BROKEN: "Broken: was flapping, fails again and again",
    ChangeKind.RECOVERY: "Works again",
    ChangeKind.SETTLED: "Settled: works steadily",
    ChangeKind.FIRST: "First confirmed",
    ChangeKind.RULES: "Rules changed, not the route",
    INFORMATIONAL: "Another answer, not required",
}
"""Every kind of change in words, the worst first."""
_LONGEST = 200


@dataclass(frozen=True)
class Asked:
    """Which changes a list or a feed is asked for, as it stands in the URL. A value that names nothing known finds
    nothing. `cursor` is the place behind the last one of the page before."""

    route: str = ""
    provider: str = ""
    contract: str = ""
    location: str = ""
    kind: str = ""
    cursor: str = ""

    @staticmethod
    def of(query: Mapping[str, str]) -> Asked:
        names = ("route", "provider", "contract", "location", "kind")
        text = {name: query.get(name, "").strip()[:_LONGEST] for name in names}
        return Asked(**text, cursor=query.get("cursor", ""))

    @property
    def filters(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if value and name != "cursor"}

    def link(self, path: str = "/transitions", cursor: str = "") -> str:
        said = {**self.filters, **({"cursor": cursor} if cursor else {})}
        return f"{path}?{urlencode(said)}" if said else path


@dataclass(frozen=True)
class ChangeLine:
    """One change. `kind` picks colour and shape of what it is `after`; `before` None: nothing is known of before.
    `beside` is what else is known to differ."""

    at: Moment
    route_id: str
    route: str
    contract: str
    location: str
    what: str
    before: str | None
    after: str
    reason: str | None
    kind: str
    beside: str


@dataclass(frozen=True)
class Select:
    """A field of the form: each option is a value and its words."""

    name: str
    label: str
    chosen: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TransitionsPage:
    """`lines` is None when history can't be read now. `older` and `newest` are links, None where they lead nowhere."""

    header: Header
    lines: tuple[ChangeLine, ...] | None
    fields: tuple[Select, ...]
    filtered: bool
    feed: str
    older: str | None
    newest: str | None


def change_line(change: Transition, now: datetime, name: str) -> ChangeLine:
    """A change of a route of this name."""
    known = change.to_status in set(Status)
    return ChangeLine(
        at=moment(change.at, now),
        route_id=change.route_id,
        route=name,
        contract=change.contract,
        location=change.location,
        what=kind_words(change.kind),
        before=in_words(change.from_status) if change.from_status is not None else None,
        after=in_words(change.to_status),
        reason=change.to_reason,
        kind=Status(change.to_status).outcome.value if known else Shown.UNKNOWN.value,
        beside=_beside(change),
    )


def kind_words(kind: str) -> str:
    """The kind in words; one of a newer version by its own."""
    return KINDS.get(kind) or kind.replace("_", " ").capitalize()


def transitions_page(
    view: View, asked: Asked, changes: Sequence[Transition] | None, older: str | None
) -> TransitionsPage:
    """The list. `changes` are newest first; `older` is the cursor of the next page."""
    names = {route.id: route.name for route in _routes(view)}
    return TransitionsPage(
        header=header(view),
        lines=None
        if changes is None
        else tuple(change_line(change, view.now, names.get(change.route_id, change.route_id)) for change in changes),
        fields=tuple(_fields(view, asked)),
        filtered=bool(asked.filters),
        feed=asked.link("/transitions.atom"),
        older=asked.link(cursor=older) if older else None,
        newest=asked.link() if asked.cursor else None,
    )


def _fields(view: View, asked: Asked) -> Iterable[Select]:
    routes, cells = _routes(view), [row.cell for row in view.snapshot.cells]
    known: Mapping[str, tuple[str, Iterable[tuple[str, str]]]] = {
        "route": ("Route", ((route.id, route.name) for route in routes)),
        "provider": ("Provider", ((name, name) for name in sorted({route.provider for route in routes}))),
        "contract": ("Contract", ((name, name) for name in sorted({cell.contract for cell in cells}))),
        "location": ("From", ((name, name) for name in sorted({cell.location for cell in cells}))),
        "kind": ("What", KINDS.items()),
    }
    for name, (label, options) in known.items():
        chosen, values = getattr(asked, name), tuple(options)
        if chosen and chosen not in dict(values):
            values = (*values, (chosen, chosen))  # so that what is asked for stays visible
        if len(values) > 1 or chosen:
            yield Select(name, label, chosen, values)


def _routes(view: View) -> list[RouteRow]:
    found = {row.route.id: row.route for row in view.snapshot.cells}
    return sorted(found.values(), key=lambda route: (route.name, route.id))


def entries(changes: Iterable[Transition], names: Mapping[str, str]) -> list[Entry]:
    """The changes as the feed tells them; `names` by id of the route."""
    return [_entry(change, names.get(change.route_id, change.route_id)) for change in changes]


def _entry(change: Transition, name: str) -> Entry:
    known = change.to_status in set(Status)
    after = in_words(change.to_status)
    before = in_words(change.from_status) if change.from_status is not None else None
    reason = f" ({change.to_reason})" if change.to_reason else ""
    todo = first_step(
        remedy(
            change.to_status,
            change.to_reason,
            Status(change.to_status).outcome if known else None,
            change.contract,
        )
    )
    came = f"{before}, then {lower(after)}{reason}." if before else f"{after}{reason}."
    beside = _beside(change)
    return Entry(
        id=entry_id(change),
        route_id=change.route_id,
        title=f"{name}: {change.contract} from {change.location}: {lower(kind_words(change.kind))} ({lower(after)})",
        summary=f"{came} {f'Also changed: {beside}. ' if beside else ''}{todo}",
        kind=change.kind,
        updated=change.at,
    )


def _beside(change: Transition) -> str:
    return ", ".join(f"{name} {before} → {after}" for name, before, after in named_changes(change.changed))
