"""The store: every method is one transaction, unless it says otherwise."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import psycopg.errors
import structlog
from sqlalchemy.exc import DataError, IntegrityError, OperationalError, StatementError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.model import (
    AskedNow,
    Cell,
    Change,
    ChangeKind,
    Claim,
    Hour,
    Limit,
    Pause,
    PauseScope,
    RouteRow,
    Snapshot,
    Span,
    StoredVerdict,
    Transition,
    Verdict,
)
from service.rejudge import Recorded
from service.store import (
    cells,
    claims,
    facts,
    history,
    limits,
    overview,
    pages,
    partitions,
    pauses,
    probers,
    rollup,
    set_back,
    spends,
    transitions,
    verdicts,
)
from service.store import snapshot as snapshots
from service.store.probers import Sign
from service.store.rows import without_details

_DROP_TRIES = 3
_SILENT_FOR = timedelta(days=1)
_FOR_THE_WORSE = frozenset({ChangeKind.REGRESSION, ChangeKind.FLAPPING, ChangeKind.BROKEN})
_REFUSALS = (StatementError, ValueError, TypeError, OverflowError)  # all but the first come as they are

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

    async def sync(
        self,
        location: str,
        config_hash: str,
        route_rows: Sequence[RouteRow],
        wanted: Sequence[Cell],
        limited: Sequence[Limit] = (),
    ) -> None:
        """Make the stored cells and limits of `location` those that are wanted. See `cells.sync`."""
        async with self._engine.begin() as connection:
            await cells.sync(connection, location, config_hash, route_rows, wanted, limited)

    async def give_up(self, location: str) -> None:
        """Nothing is asked from `location` any more. See `cells.give_up`."""
        async with self._engine.begin() as connection:
            await cells.give_up(connection, location)

    async def claim(self, location: str, config_hash: str, slots: int, prober: UUID | None = None) -> list[Claim]:
        """Lease up to `slots` due cells of `location` that fall to `prober`, longest due first, for three deadlines and
        30 s; none while another configuration is active there. See `claims.claim`."""
        async with self._engine.begin() as connection:
            claimed = await claims.claim(connection, location, config_hash, slots, prober)
        self.leases_expired += claimed.taken_over
        return list(claimed.claims)

    async def ask_now(self, route_id: str, contract: str | None, not_within_s: float) -> AskedNow:
        """Make the cells of a route due. See `claims.make_due`."""
        async with self._engine.begin() as connection:
            return await claims.make_due(connection, route_id, contract, timedelta(seconds=not_within_s))

    async def hurry(self, location: str, route_ids: Sequence[str], unless_within: timedelta) -> int:
        """Make the cells of these routes due in `location`, but for those asked lately; how many."""
        async with self._engine.begin() as connection:
            return await claims.hurry(connection, location, route_ids, unless_within)

    async def tell(self, sign: Sign) -> str | None:
        """A sign of life of a process; the hash of the configuration that is active in its location."""
        async with self._engine.begin() as connection:
            await probers.tell(connection, sign)
            return (await probers.active(connection)).get(sign.location)

    async def leave(self, prober: UUID) -> None:
        """A process says that it stops."""
        async with self._engine.begin() as connection:
            await probers.leave(connection, prober)

    async def seconds_to_next_due(self, location: str, config_hash: str, prober: UUID | None = None) -> float | None:
        """Seconds until `prober` may claim a cell of `location`; None without any cell."""
        async with self._engine.begin() as connection:
            return await claims.seconds_to_next_due(connection, location, config_hash, prober)

    async def release(self, claimed: Sequence[Claim], cancelled: Sequence[Verdict] = ()) -> None:
        """Give leases back without a verdict: the cells are due again at once. What `cancelled` ones used up counts."""
        async with self._engine.begin() as connection:
            await claims.release(connection, claimed)
            await spends.add(connection, cancelled)

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
            return await history.of_route(connection, route_id, limit)

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

    async def verdict_page(
        self,
        *,
        route_id: str | None = None,
        provider: str | None = None,
        contract: str | None = None,
        location: str | None = None,
        outcome: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: tuple[datetime, UUID] | None = None,
        limit: int = 100,
    ) -> list[StoredVerdict]:
        """Verdicts that are all of this, newest first. See `history.page`."""
        wanted = _given(route_id=route_id, contract=contract, location=location, outcome=outcome, status=status)
        async with self._engine.begin() as connection:
            return await history.page(
                connection, wanted=wanted, provider=provider, since=since, until=until, before=before, limit=limit
            )

    async def verdicts_by_id(self, ids: Sequence[UUID]) -> list[StoredVerdict]:
        """Those of these verdicts that history still holds."""
        async with self._engine.begin() as connection:
            return await history.by_ids(connection, ids)

    async def verdicts_at(self, keys: Sequence[tuple[datetime, UUID]]) -> list[StoredVerdict]:
        """Those of the verdicts with these times and ids that history still holds."""
        async with self._engine.begin() as connection:
            return await pages.verdicts_at(connection, keys)

    async def spans(
        self, route_id: str, contract: str, since: datetime, until: datetime, width: timedelta
    ) -> list[Span]:
        """The verdicts of a contract by spans of that width. See `pages.spans`."""
        async with self._engine.begin() as connection:
            return await pages.spans(connection, route_id, contract, since, until, width)

    async def transition_page(
        self,
        *,
        route_id: str | None = None,
        provider: str | None = None,
        contract: str | None = None,
        location: str | None = None,
        kinds: Sequence[str] | None = None,
        before: tuple[datetime, int] | None = None,
        limit: int = 100,
    ) -> list[Transition]:
        """Changes that are all of this, newest first. See `transitions.page`."""
        wanted = _given(route_id=route_id, contract=contract, location=location)
        async with self._engine.begin() as connection:
            return await transitions.page(
                connection, wanted=wanted, provider=provider, kinds=kinds, before=before, limit=limit
            )

    async def hours(self, route_id: str, since: datetime, until: datetime) -> list[Hour]:
        """The hourly sums of a route's cells, oldest first."""
        async with self._engine.begin() as connection:
            return await rollup.of_route(connection, route_id, since, until)

    async def shares(self, length: timedelta) -> dict[str, tuple[int, int]]:
        """Of each route, over its required contracts and that long back: proven verdicts, and all that count."""
        async with self._engine.begin() as connection:
            return await rollup.shares(connection, await partitions.clock(connection) - length)

    async def first_tokens(self) -> dict[str, tuple[float | None, ...]]:
        """Of each route the hourly medians of the time to first token over a day. See `overview.first_tokens`."""
        async with self._engine.begin() as connection:
            return await overview.first_tokens(connection, await partitions.clock(connection))

    async def pauses(self, ended: bool = False, limit: int = 100) -> list[Pause]:
        """The pauses that go on, or those that are over."""
        async with self._engine.begin() as connection:
            return await (pauses.ended(connection, limit) if ended else pauses.current(connection))

    async def pause(self, scope: PauseScope, target: str, seconds: float, stops: bool, reason: str, by: str) -> Pause:
        """Set a pause, from now on."""
        async with self._engine.begin() as connection:
            return await pauses.add(connection, scope, target, timedelta(seconds=seconds), stops, reason, by)

    async def end_pause(self, id: UUID) -> Pause | None:
        """End a pause; None when none with this id goes on."""
        async with self._engine.begin() as connection:
            return await pauses.end(connection, id)

    async def roll_up(self) -> int:
        """Sum up the hours and days that need it, one transaction each; the number of hours."""
        async with self._engine.begin() as connection:
            wanted = await rollup.outstanding(connection, await partitions.clock(connection))
        for hour in wanted:
            async with self._engine.begin() as connection:
                await rollup.roll(connection, hour, await partitions.clock(connection))
        async with self._engine.begin() as connection:
            days = await rollup.outstanding_days(connection, await partitions.clock(connection))
        for day in days:
            async with self._engine.begin() as connection:
                await rollup.roll_day(connection, day)
        return len(wanted)

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

    async def drop_largest(self, max_bytes: int) -> int:
        """Drop the oldest days until the verdicts take up no more than that, but for the last two; the number that
        went."""
        async with self._engine.begin() as connection:
            sizes = await partitions.sizes(connection)
            today = (await partitions.clock(connection)).date()
        total, gone = sum(sizes.values()), 0
        for day in sorted(sizes):
            if total <= max_bytes or day >= today - timedelta(days=1):
                break
            if await self._drop(day):
                total, gone = total - sizes[day], gone + 1
        return gone

    async def forget(self, older_than: timedelta) -> int:
        """Delete transitions, sums, spends, pauses that ended, and cells and routes that were taken out of the
        configuration, all of before `older_than` ago, and silent processes; the number of transitions that went."""
        async with self._engine.begin() as connection:
            now = await partitions.clock(connection)
            before = now - older_than
            await rollup.forget(connection, before)
            await spends.forget(connection, before.date())
            await pauses.forget(connection, before)
            await probers.forget(connection, now - _SILENT_FOR)
            await cells.note_rest(connection, now)
            await cells.forget(connection, before)
            return await transitions.forget(connection, before)

    async def forget_debits(self) -> None:
        """Delete what limits and waits no longer count. Wanted often: each probe under a limit leaves a row or two."""
        async with self._engine.begin() as connection:
            await limits.forget(connection)

    async def mind_the_clock(self) -> None:
        """Have nothing wait until it is that time again when the database's clock was set back. Wanted often."""
        async with self._engine.begin() as connection:
            brought = await set_back.bring_near(connection)
        if brought:
            _log.warning(
                "The database's clock was set back: cells are asked sooner than planned.",
                action="database_clock_set_back",
                cells=brought,
            )

    async def _apply(self, finished: Sequence[tuple[Claim, Verdict]]) -> set[UUID]:
        async with self._engine.begin() as connection:
            applied = await verdicts.apply(connection, finished)
        self.leases_lost += applied.leases_lost
        if applied.strays:
            _log.error(
                "Verdicts are void: this database doesn't have their cells.",
                action="verdicts_stray",
                verdicts=applied.strays,
            )
        for one in applied.announced:
            _tell(one.claim, one.change)
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


def _tell(claim: Claim, change: Change) -> None:
    before = change.before
    _log.log(
        logging.WARNING if change.kind in _FOR_THE_WORSE else logging.INFO,
        "A confirmed state changed.",
        action="state_changed",
        route=claim.route_id,
        contract=claim.contract,
        location=claim.location,
        kind=change.kind.value,
        from_status=before.status if before else None,
        to_status=change.after.status,
    )


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _is_about_data(error: Exception) -> bool:
    """Whether the values are at fault: refused by the server, by the driver, or before it could be asked."""
    about_data = DataError | IntegrityError | ValueError | TypeError | OverflowError
    return isinstance(error, about_data) or type(error) is StatementError
