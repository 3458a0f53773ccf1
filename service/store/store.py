"""The store: every method is one transaction, unless it says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, timedelta
from uuid import UUID

import psycopg.errors
import structlog
from sqlalchemy.exc import DataError, IntegrityError, OperationalError, StatementError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import Cell, Claim, RouteRow, Snapshot, StoredVerdict, Transition, Verdict
from service.rejudge import Recorded
from service.store import cells, claims, facts, partitions, transitions, verdicts
from service.store import snapshot as snapshots
from service.store.rows import without_details

_DROP_TRIES = 3
_REFUSALS = (StatementError, ValueError, TypeError)  # the driver raises the latter two as they are

_log = structlog.get_logger(__name__)


class Store:
    """What is configured, who probes what, and what came of it, in PostgreSQL.

    Counts since the start of this process: `refused` verdicts whose details could not be stored, `leases_lost` that
    made a verdict void, `leases_expired` that were taken over from a prober that didn't come back.
    Raises SQLAlchemy's errors when the database can't be had.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.refused = 0
        self.leases_lost = 0
        self.leases_expired = 0
        self._engine = engine

    async def sync(self, location: str, route_rows: Sequence[RouteRow], wanted: Sequence[Cell]) -> None:
        """Make the stored cells of `location` those of `wanted`. See `cells.sync`."""
        async with self._engine.begin() as connection:
            await cells.sync(connection, location, route_rows, wanted)

    async def claim(self, location: str, slots: int) -> list[Claim]:
        """Lease up to `slots` due cells of `location`, longest due first, for three deadlines and 30 s."""
        async with self._engine.begin() as connection:
            claimed, taken_over = await claims.claim(connection, location, slots)
        self.leases_expired += taken_over
        return claimed

    async def seconds_to_next_due(self, location: str) -> float | None:
        """Seconds until a cell of `location` may be claimed; None without any cell."""
        async with self._engine.begin() as connection:
            return await claims.seconds_to_next_due(connection, location)

    async def release(self, claimed: Sequence[Claim]) -> None:
        """Give leases back without a verdict: the cells are due again at once."""
        async with self._engine.begin() as connection:
            await claims.release(connection, claimed)

    async def save(self, finished: Sequence[tuple[Claim, Verdict]]) -> set[UUID]:
        """Store verdicts and return the ids of those that this call stored. May be repeated at will.

        A verdict whose lease was lost is left out. A batch that is refused for its data is written one by one, and
        the bad one without its details, so that nothing waits behind it.
        """
        if not finished:
            return set()
        try:
            return await self._apply(finished)
        except _REFUSALS as error:
            if not _is_about_data(error):
                raise
        # Its day may have no partition: a verdict can be late.
        await self._ensure({verdict.observed_at.astimezone(UTC).date() for _, verdict in finished})
        stored: set[UUID] = set()
        for claimed, verdict in finished:
            stored |= await self._apply_one(claimed, verdict)
        return stored

    async def snapshot(self) -> Snapshot:
        """All active cells at one moment of the database's clock."""
        async with self._engine.begin() as connection:
            return await snapshots.snapshot(connection)

    async def verdicts(self, route_id: str, limit: int = 50) -> list[StoredVerdict]:
        """The newest verdicts of a route, newest first, with their rungs."""
        async with self._engine.begin() as connection:
            return await verdicts.history(connection, route_id, limit)

    async def transitions(self, route_id: str | None = None, limit: int = 50) -> list[Transition]:
        """The newest changes of standing verdicts, of one route or of all, newest first."""
        async with self._engine.begin() as connection:
            return await transitions.history(connection, route_id, limit)

    async def recorded(
        self,
        since: timedelta | None = None,
        route_id: str | None = None,
        contract: str | None = None,
        page: int = facts.PAGE,
    ) -> AsyncIterator[list[Recorded]]:
        """The verdicts of at most `since` ago, of a route, of a contract, or all, oldest first. Each page is one
        transaction, and only one is held."""
        async with self._engine.begin() as connection:
            wanted = await facts.part(connection, since, route_id, contract)
        after, more = None, True
        while more:
            async with self._engine.begin() as connection:
                found, after = await facts.page(connection, wanted, after, page)
            yield found
            more = after is not None

    async def ensure_partitions(self, days_back: int = 1, days_ahead: int = 7) -> None:
        """Make room for the verdicts of the days around today. Without it nothing can be saved."""
        async with self._engine.begin() as connection:
            today = (await partitions.clock(connection)).date()
            days = [today + timedelta(days=offset) for offset in range(-days_back, days_ahead + 1)]
            await partitions.ensure(connection, days)

    async def drop_partitions(self, older_than: timedelta) -> int:
        """Drop the days that lie wholly before `older_than` ago, one transaction each; the number that went.

        A day that readers hold for too long stays until the next time.
        """
        async with self._engine.begin() as connection:
            keep_from = await partitions.clock(connection) - older_than
            old = [day for day in await partitions.existing(connection) if partitions.end_of(day) <= keep_from]
        return sum([await self._drop(day) for day in old])

    async def forget(self, older_than: timedelta) -> int:
        """Delete the transitions of before `older_than` ago; the number that went."""
        async with self._engine.begin() as connection:
            return await transitions.forget(connection, await partitions.clock(connection) - older_than)

    async def _apply(self, finished: Sequence[tuple[Claim, Verdict]]) -> set[UUID]:
        async with self._engine.begin() as connection:
            applied = await verdicts.apply(connection, finished)
        self.leases_lost += applied.leases_lost
        return set(applied.ids)

    async def _apply_one(self, claimed: Claim, verdict: Verdict) -> set[UUID]:
        stored = await self._unless_refused(claimed, verdict)
        if stored is None:
            self.refused += 1
            stored = await self._unless_refused(claimed, without_details(verdict))
        return stored or set()  # refused even so: its lease runs out, and the cell is asked again

    async def _unless_refused(self, claimed: Claim, verdict: Verdict) -> set[UUID] | None:
        try:
            return await self._apply([(claimed, verdict)])
        except _REFUSALS as error:
            if not _is_about_data(error):
                raise
            _log.warning(
                "A verdict's details were refused by the database.",
                action="verdict_refused",
                verdict=str(verdict.id),
                route=verdict.route_id,
                error=type(error).__name__,
            )
        return None

    async def _ensure(self, days: set[date]) -> None:
        async with self._engine.begin() as connection:
            await partitions.ensure(connection, days)

    async def _drop(self, day: date) -> bool:
        for _ in range(_DROP_TRIES):
            try:
                async with self._engine.begin() as connection:
                    await partitions.drop(connection, day)
                return True
            except OperationalError as error:
                if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                    raise
        return False


def _is_about_data(error: Exception) -> bool:
    """Whether the values are at fault: refused by the server, by the driver, or before it could be asked."""
    return isinstance(error, DataError | IntegrityError | ValueError | TypeError) or type(error) is StatementError
