"""The gate, pauses and locations for the command line: the same answers as the API's, from the database itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from service import gate
from service.derive import route_states
from service.model import PauseScope
from service.store import Store
from service.store.board import View
from service.web import actions
from service.web.api import models, said
from service.web.api.params import NewPause, mistakes
from service.web.views.words import counted


class RefusedError(Exception):
    """What was asked for can't be done; the message says why."""


async def ask_gate(store: Store, route: str, location: str | None, *, allow_unknown: bool) -> models.Gate:
    """Whether traffic may go to a route, by name or id. Raises `RefusedError`."""
    snapshot = await store.snapshot()
    named = {row.route.id for row in snapshot.cells if row.route.name == route}
    ids = {row.route.id for row in snapshot.cells if row.route.id == route} or named
    if not ids:
        raise RefusedError("no such route is probed: nothing is stored of it")
    if len(ids) > 1:
        raise RefusedError(f"several routes have this name: give an id of {', '.join(sorted(ids))}")
    rows = [row for row in snapshot.cells if row.route.id in ids]
    if location is not None and not any(row.cell.location == location for row in rows):
        places = sorted({row.cell.location for row in rows})
        raise RefusedError(f"the route isn't probed from there, but from {', '.join(places)}")
    state = route_states(rows, snapshot.now)[0]
    decided = gate.decide(state, location, allow_unknown=allow_unknown)
    return said.decision(state.route.id, decided, View(snapshot.now, snapshot, 0.0, True))


@dataclass(frozen=True)
class Location:
    """A vantage point that has cells: how many, when a verdict came from it last, and how many probers are at work."""

    name: str
    cells: int
    last_verdict_at: datetime | None
    probers: int


async def list_locations(store: Store) -> list[Location]:
    """Where routes are asked from."""
    snapshot = await store.snapshot()
    found = []
    for name in sorted({row.cell.location for row in snapshot.cells}):
        rows = [row for row in snapshot.cells if row.cell.location == name]
        last = max((row.last.observed_at for row in rows if row.last), default=None)
        probers = [one for one in snapshot.probers if one.location == name and one.probes]
        found.append(Location(name, len(rows), last, len(probers)))
    return found


async def remove_location(store: Store, name: str) -> Location:
    """Have nothing asked from a location any more, and nothing shown or alarmed of it. Raises `RefusedError`."""
    locations = await list_locations(store)
    found = next((one for one in locations if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in locations) or "nowhere"
        raise RefusedError(f"nothing is asked from {name}, but from {known}")
    if found.probers:
        raise RefusedError(f"a prober of {name} was heard of within the last minute: stop it first, else it goes on")
    await store.give_up(name)
    return found


def location_in_words(location: Location) -> str:
    """One location in one line."""
    last = f"{location.last_verdict_at:%Y-%m-%d %H:%M:%S} UTC" if location.last_verdict_at else "never"
    probers = counted(location.probers, "prober", "probers") or "no prober"
    return f"{location.name}: {counted(location.cells, 'cell', 'cells')}, {probers} at work, last verdict {last}"


def new_pause(scope: PauseScope, target: str, seconds: float, stops: bool, reason: str, by: str) -> NewPause:
    """What to pause, within the bounds that hold for callers of the API too. Raises `RefusedError`."""
    try:
        return NewPause(scope=scope, target=target, duration_s=seconds, stops=stops, reason=reason, by=by)
    except ValueError as error:
        raise RefusedError(mistakes(error)) from None


async def start_pause(store: Store, wanted: NewPause) -> models.Pause:
    """Set a pause, from now on. Raises `RefusedError`."""
    if wanted.target not in actions.targets(await store.snapshot())[wanted.scope]:
        raise RefusedError(f"no {wanted.scope.value} of this name is probed: nothing is stored of it")
    made = await store.pause(wanted.scope, wanted.target, wanted.duration_s, wanted.stops, wanted.reason, wanted.by)
    return said.pause(made)


async def end_pause(store: Store, id: UUID) -> models.Pause:
    """End a pause. Raises `RefusedError`."""
    ended = await store.end_pause(id)
    if ended is None:
        raise RefusedError("no pause with this id goes on")
    return said.pause(ended)


async def list_pauses(store: Store, *, ended: bool) -> models.Pauses:
    """The pauses that go on, or those that are over."""
    return models.Pauses(items=[said.pause(pause) for pause in await store.pauses(ended)])


def gate_in_words(answer: models.Gate) -> str:
    """The decision, and what each required contract says."""
    lines = [f"{answer.route}: {'allowed' if answer.allowed else 'denied'} ({', '.join(answer.reasons)})"]
    for ground in answer.grounds:
        status = f", {ground.status}" if ground.status else ""
        lines.append(f"  {ground.contract} from {ground.location}: {ground.reason.value}{status}")
    if answer.valid_until:
        lines.append(f"  holds until {answer.valid_until:%Y-%m-%d %H:%M:%S} UTC without a new proof")
    return "\n".join(lines)


def pause_in_words(pause: models.Pause) -> str:
    """One pause in one line."""
    told = ", ".join(part for part in (pause.by, pause.reason) if part)
    what = "not probed, alerts muted" if pause.stops else "alerts muted"
    until = f"{pause.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{pause.id} {pause.scope.value} {pause.target}: {what} until {until}{f' ({told})' if told else ''}"
