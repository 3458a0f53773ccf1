"""What may be changed from outside, by pages and API alike. Each is logged with who did it and to what."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import structlog

from service.model import AskedNow, Pause, PauseScope, Snapshot
from service.web import problems, views
from service.web.access import Viewer
from service.web.parts import Parts
from service.web.problems import Problem, plain

NOT_WITHIN_S = 60.0
"""A cell isn't asked on demand more often than that."""

_log = structlog.get_logger(__name__)


async def ask_now(parts: Parts, viewer: Viewer, route_id: str, contract: str | None) -> AskedNow:
    """Have a route's cells asked at once, where that is possible. Raises `Problem` for what isn't configured."""
    view = await known(parts)
    contracts = {row.cell.contract for row in view.snapshot.cells if row.route.id == route_id}
    if not contracts:
        raise no_such_route()
    if contract is not None and contract not in contracts:
        raise Problem(problems.NOT_FOUND, "The route isn't asked this contract.")
    try:
        asked = await parts.store.ask_now(route_id, contract, NOT_WITHIN_S)
    except parts.unavailable:
        raise unavailable() from None
    await parts.board.renew()
    _told(
        "A probe was asked for.",
        "probe_asked",
        viewer,
        route=plain(route_id),
        contract=plain(contract or "all"),
        due=len(asked.due),
    )
    return asked


async def pause(
    parts: Parts, viewer: Viewer, scope: PauseScope, target: str, seconds: float, stops: bool, reason: str, by: str
) -> Pause:
    """Set a pause, from now on. Raises `Problem` for a target that isn't configured."""
    if target not in targets((await known(parts)).snapshot)[scope]:
        wrong = problems.error("body.target", f"no {scope.value} of this name is configured")
        raise Problem(problems.NOT_FOUND, "There is nothing to pause.", errors=[wrong])
    try:
        made = await parts.store.pause(scope, target, seconds, stops, reason, by or viewer.name)
    except parts.unavailable:
        raise unavailable() from None
    await parts.board.renew()
    _told("A pause began.", "pause_began", viewer, **_words(made))
    return made


async def end_pause(parts: Parts, viewer: Viewer, id: UUID) -> Pause:
    """End a pause. Raises `Problem` when none with this id goes on."""
    try:
        ended = await parts.store.end_pause(id)
    except parts.unavailable:
        raise unavailable() from None
    if ended is None:
        raise Problem(problems.NOT_FOUND, "No pause with this id goes on.")
    await parts.board.renew()
    _told("A pause was ended.", "pause_ended", viewer, **_words(ended))
    return ended


async def known(parts: Parts) -> views.View:
    """The board's view. Raises `Problem` while nothing has been read: no route is known then, or missing."""
    view = await parts.board.view()
    if views.nothing_read(view):
        raise Problem(problems.UNAVAILABLE, "The database hasn't been read yet.", headers={"retry-after": "5"})
    return view


def targets(snapshot: Snapshot) -> Mapping[PauseScope, frozenset[str]]:
    """What may be paused."""
    rows = {row.route.id: row.route for row in snapshot.cells}.values()
    return {
        PauseScope.ROUTE: frozenset(row.id for row in rows),
        PauseScope.PROVIDER: frozenset(row.provider for row in rows),
        PauseScope.TAG: frozenset(tag for row in rows for tag in row.tags),
    }


def no_such_route() -> Problem:
    return Problem(problems.NOT_FOUND, "No route with this id is configured.")


def unavailable() -> Problem:
    return Problem(problems.UNAVAILABLE, "The database can't be reached.", headers={"retry-after": "5"})


def _words(pause: Pause) -> dict[str, object]:
    return {
        "pause": str(pause.id),
        "scope": pause.scope.value,
        "target": plain(pause.target),
        "until": pause.until.isoformat(),
        "stops": pause.stops,
        "reason": plain(pause.reason),
        "by": plain(pause.by),
    }


def _told(event: str, action: str, viewer: Viewer, **what: object) -> None:
    _log.info(event, action=action, who=viewer.name, **what)
