"""The one snapshot that a process serves from, and how it ages when the database is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from service.model import Snapshot

REFRESH_S = 1.0
PATIENCE_S = 2.0
"""Of a reader who can be served from a snapshot that is nearly new, or from the best that there is."""
LONGER_PATIENCE_S = 5.0
"""Of one who would be told by an old snapshot that the database can't be reached, when it is only slow."""
NEARLY_NEW_S = 10.0
QUERY_LIMIT_S = 10.0


class Snapshots(Protocol):
    async def snapshot(self) -> Snapshot: ...


@dataclass(frozen=True)
class View:
    """What may be shown now. `now` is the database's clock, carried on by ours while the database is away;
    `age_s` is the age of the snapshot in seconds. Before the first snapshot it is empty and `database_up` False."""

    now: datetime
    snapshot: Snapshot
    age_s: float
    database_up: bool


def seconds_awake_or_not() -> float:
    """A monotonic clock that counts a suspension of the machine too, so that a verdict doesn't stay fresh over it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Board:
    """Holds one snapshot, refreshed by whoever looks, at most once a second and by one query at a time.

    When it can't be refreshed, the old one is served on and ages. `errors` counts failed refreshes.
    """

    def __init__(self, store: Snapshots, monotonic: Callable[[], float] = seconds_awake_or_not) -> None:
        self.errors = 0
        self._store = store
        self._monotonic = monotonic
        self._snapshot: Snapshot | None = None
        self._taken_at = 0.0
        self._tried_at: float | None = None
        self._up = False
        self._refreshing: asyncio.Task[None] | None = None

    async def view(self) -> View:
        """The newest view that can be had within 2 s, or 5 s where nobody has looked for a while; never older than 1 s
        while the database answers."""
        if self._refreshing is None and self._is_due():
            self._refreshing = asyncio.create_task(self._refresh())
        if self._refreshing is not None:
            done, _ = await asyncio.wait({self._refreshing}, timeout=self._patience())
            for task in done:
                task.result()
            if not done:
                self._up = False
        return self._view()

    async def renew(self) -> None:
        """Something was changed just now: have the next view read after it, and not be of a moment before."""
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=PATIENCE_S)
        self._tried_at = None

    async def close(self) -> None:
        """Give up a refresh that is under way."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})

    def _view(self) -> View:
        if self._snapshot is None:
            now = datetime.now(UTC)
            return View(now, Snapshot(now, ()), 0.0, False)
        age = self._monotonic() - self._taken_at
        return View(self._snapshot.now + timedelta(seconds=age), self._snapshot, age, self._up)

    def _patience(self) -> float:
        old = self._monotonic() - self._taken_at > NEARLY_NEW_S
        return LONGER_PATIENCE_S if self._snapshot is None or (old and self._up) else PATIENCE_S

    def _is_due(self) -> bool:
        return self._tried_at is None or self._monotonic() - self._tried_at >= REFRESH_S

    async def _refresh(self) -> None:
        asked_at = self._tried_at = self._monotonic()
        try:
            async with asyncio.timeout(QUERY_LIMIT_S):
                snapshot = await self._store.snapshot()
        except (SQLAlchemyError, OSError):
            self.errors += 1
            self._up = False
        else:
            # Measured from the asking: the age may come out too high by the answer's way, never too low.
            self._snapshot, self._taken_at, self._up = snapshot, asked_at, True
        finally:
            self._refreshing = None
