"""What is configured, written down: routes, cells, and the schedule of new and changed ones.

However many there are, it takes a few statements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Row,
    and_,
    any_,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.model import Cell, Limit, RouteRow
from service.pacing import somewhere_in
from service.store import claims, limits
from service.store.given import given
from service.store.tables import cells, latest, routes, schedule

_FIRST_PACE = timedelta(seconds=1)
_GIVEN_UP = ""
"""The active configuration of a location that nothing is asked from: whoever comes back to it finds itself outdated."""


async def sync(
    connection: AsyncConnection,
    location: str,
    config_hash: str,
    route_rows: Sequence[RouteRow],
    wanted: Sequence[Cell],
    limited: Sequence[Limit] = (),
) -> None:
    """Make the stored cells and limits of `location` those that are wanted, and this configuration the active one; no
    other location's are touched.

    Cells that are gone are put to rest with their history. A cell under a new fingerprint loses its standing verdict
    and is due at once: its earlier verdicts speak of another configuration.
    """
    if any(cell.location != location for cell in wanted):
        raise ValueError(f"a cell of another location than {location}")
    await _take_turns(connection, location)
    await claims.activate(connection, location, config_hash)
    await limits.put(connection, location, limited)
    await _put_routes(connection, route_rows)
    found = await connection.execute(select(cells).where(cells.c.location == location))
    present = {(row.route_id, row.contract): row for row in found}
    now = (await connection.execute(select(func.now()))).scalar_one()
    keyed = {(cell.route_id, cell.contract): cell for cell in wanted}

    gone = [row.id for key, row in present.items() if row.active and key not in keyed]
    await connection.execute(update(cells).where(_among(cells.c.id, gone)).values(active=False, rests_since=now))

    old = [(present[key], cell) for key, cell in keyed.items() if key in present]
    await _hold(connection, [row.id for row, cell in old if _is_scheduled_anew(row, cell)])
    await _update(connection, [(row, cell) for row, cell in old if _values(cell) != _values_of(row)])
    await _forget_standing(connection, [row.id for row, cell in old if row.fingerprint != cell.fingerprint])

    added = [cell for key, cell in keyed.items() if key not in present]
    starting = await _insert(connection, added)
    starting += [(row.id, cell) for row, cell in old if not row.active]
    soonest = _shortest_intervals(wanted)
    running = [(row, cell) for row, cell in old if row.active]
    regridded = [(row.id, cell) for row, cell in running if _has_other_interval(row, cell)]
    await _set_due(connection, _first_starts(starting, soonest, now))
    await _set_due(connection, [(cell_id, *[somewhere_in(now, cell.interval)] * 2) for cell_id, cell in regridded])
    changed = [row.id for row, cell in running if row.fingerprint != cell.fingerprint]
    await connection.execute(update(schedule).where(_among(schedule.c.cell_id, changed)).values(next_due_at=now))
    await claims.resume(connection, location)


async def give_up(connection: AsyncConnection, location: str) -> None:
    """Put all cells of `location` to rest, with their history, and take its limits away."""
    await sync(connection, location, _GIVEN_UP, [], [])


async def forget(connection: AsyncConnection, before: datetime) -> None:
    """Delete what was taken out of the configuration earlier: cells, and routes that have none."""
    resting = and_(~cells.c.active, cells.c.rests_since < before)
    locations = (await connection.scalars(select(cells.c.location).where(resting).distinct())).all()
    for location in sorted(locations):
        await _take_turns(connection, location)
    gone = select(cells.c.id).where(resting, cells.c.location.in_(locations)).scalar_subquery()
    for owned in (schedule.c.cell_id, latest.c.cell_id, cells.c.id):
        await connection.execute(delete(owned.table).where(owned.in_(gone)))
    # A cell is written after its route, in one transaction: what has none once it is locked gets none.
    without = ~exists().where(cells.c.route_id == routes.c.id)
    ids = (await connection.scalars(select(routes.c.id).where(without).with_for_update(skip_locked=True))).all()
    await connection.execute(delete(routes).where(routes.c.id.in_(ids), without))


async def note_rest(connection: AsyncConnection, now: datetime) -> None:
    """Of cells that a release put to rest which didn't write down when: they rest since now."""
    resting = and_(~cells.c.active, cells.c.rests_since.is_(None))
    await connection.execute(update(cells).where(resting).values(rests_since=now))


async def _take_turns(connection: AsyncConnection, location: str) -> None:
    await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"sync {location}", 0))))


def _first_starts(
    starting: Sequence[tuple[int, Cell]], within: Mapping[str, timedelta], now: datetime
) -> list[tuple[int, datetime, datetime]]:
    """First starts, one a second but all `within` a time for each route, so that few cells answer soon and many don't
    flood; their grids lie anywhere in their own intervals."""
    total = len(starting)
    return [
        (
            cell_id,
            somewhere_in(now, cell.interval),
            now + min(within[cell.route_id], _FIRST_PACE * total) * place / total,
        )
        for place, (cell_id, cell) in enumerate(starting)
    ]


def _shortest_intervals(wanted: Iterable[Cell]) -> dict[str, timedelta]:
    """The interval of the most often asked cell of each route: a contract that is asked seldom doesn't wait for its
    own before its first start."""
    shortest: dict[str, timedelta] = {}
    for cell in wanted:
        shortest[cell.route_id] = min(cell.interval, shortest.get(cell.route_id, cell.interval))
    return shortest


async def _put_routes(connection: AsyncConnection, rows: Sequence[RouteRow]) -> None:
    if not rows:
        return
    names = tuple(field.name for field in fields(RouteRow))
    handed = given([routes.c[name] for name in names], [{**vars(row), "tags": list(row.tags)} for row in rows])
    ordered = select(handed).order_by(handed.c.id)  # the same order everywhere, so that two locations don't deadlock
    put = insert(routes).from_select(names, ordered)
    changing = [name for name in names if name != "id"]
    await connection.execute(
        put.on_conflict_do_update(
            index_elements=[routes.c.id],
            set_={name: put.excluded[name] for name in changing},
            where=or_(*(routes.c[name].is_distinct_from(put.excluded[name]) for name in changing)),
        )
    )


async def _insert(connection: AsyncConnection, added: Sequence[Cell]) -> list[tuple[int, Cell]]:
    if not added:
        return []
    rows = [{**{name: getattr(cell, name) for name in _KEY}, **_values(cell)} for cell in added]
    handed = given([cells.c[name] for name in rows[0]], rows)
    put = insert(cells).from_select(list(rows[0]), select(handed))
    found = await connection.execute(put.returning(cells.c.id, *(cells.c[name] for name in _KEY)))
    ids = {tuple(key): id for id, *key in found}
    new = [(ids[tuple(getattr(cell, name) for name in _KEY)], cell) for cell in added]
    await connection.execute(insert(latest).from_select(["cell_id"], select(func.unnest(_array(ids.values())))))
    return new


async def _update(connection: AsyncConnection, changes: Sequence[tuple[Row[Any], Cell]]) -> None:
    if changes:
        rows = [{"id": row.id, **_values(cell)} for row, cell in changes]
        handed = given([cells.c[name] for name in rows[0]], rows)
        changed = {name: handed.c[name] for name in rows[0] if name != "id"}
        await connection.execute(update(cells).where(cells.c.id == handed.c.id).values(changed))


def _is_scheduled_anew(row: Row[Any], cell: Cell) -> bool:
    return not row.active or row.fingerprint != cell.fingerprint or _has_other_interval(row, cell)


def _has_other_interval(row: Row[Any], cell: Cell) -> bool:
    return bool(row.interval_s != cell.interval.total_seconds())


async def _hold(connection: AsyncConnection, cell_ids: Collection[int]) -> None:
    """Lock schedule rows, all that will be written at once and in the order of a save, so that the two don't deadlock
    and the verdict of a save in progress doesn't stand when it is forgotten here."""
    held = select(schedule.c.cell_id).where(_among(schedule.c.cell_id, cell_ids)).order_by(schedule.c.cell_id)
    await connection.execute(held.with_for_update())


async def _forget_standing(connection: AsyncConnection, cell_ids: Collection[int]) -> None:
    await connection.execute(
        update(latest)
        .where(_among(latest.c.cell_id, cell_ids))
        .values(standing=None, standing_observed_at=None, state_since=None)
    )


async def _set_due(connection: AsyncConnection, due: Sequence[tuple[int, datetime, datetime]]) -> None:
    """What is asked soon to confirm a change stays so. Cells may be new to the schedule."""
    if due:
        names = ("cell_id", "grid_at", "next_due_at")
        rows = [dict(zip(names, (cell_id, *times), strict=True)) for cell_id, *times in due]
        put = insert(schedule).from_select(names, select(given([schedule.c[name] for name in names], rows)))
        at = put.excluded.next_due_at
        sooner = case((schedule.c.quick, func.least(schedule.c.next_due_at, at)), else_=at)
        await connection.execute(
            put.on_conflict_do_update(
                index_elements=[schedule.c.cell_id], set_={"grid_at": put.excluded.grid_at, "next_due_at": sooner}
            )
        )


def _among(wanted: Column[int], ids: Collection[int]) -> ColumnElement[bool]:
    return wanted == any_(_array(ids))


def _array(ids: Collection[int]) -> ColumnElement[Any]:
    return literal(list(ids), ARRAY(BigInteger))


_KEY = ("route_id", "contract", "location")
_DURATIONS = ("interval", "fresh_for", "expires_after", "deadline", "route_interval")
_PLAIN = ("required", "fingerprint", "provider", "host", "credential", "max_requests")


def _values(cell: Cell) -> dict[str, Any]:
    durations = {f"{name}_s": getattr(cell, name).total_seconds() for name in _DURATIONS}
    return {**{name: getattr(cell, name) for name in _PLAIN}, **durations, "active": True, "rests_since": None}


def _values_of(row: Row[Any]) -> dict[str, Any]:
    names = (*_PLAIN, *(f"{name}_s" for name in _DURATIONS), "active", "rests_since")
    return {name: row._mapping[name] for name in names}
