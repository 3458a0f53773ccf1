"""What the overview shows of the last day: sums that change slowly, kept so that no page waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import structlog

LENGTH = timedelta(hours=24)
REFRESH_S = 60.0
KEPT_S = 3600.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Day:
    """By route: of how many verdicts that count how many were proven, and the hourly medians of the time to first
    token in seconds, oldest first. A route that isn't there has nothing to show."""

    shares: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    first_tokens: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


class Sums(Protocol):
    async def shares(self, length: timedelta) -> Mapping[str, tuple[int, int]]: ...

    async def first_tokens(self) -> Mapping[str, Sequence[float | None]]: ...


class LastDay:
    """Holds what is known of the last day. Whoever looks has it read anew in the background, at most once a minute.

    When it can't be read, the old sums are shown for up to an hour; the page says that the database is away.
    """

    def __init__(
        self,
        store: Sums,
        unavailable: tuple[type[Exception], ...] = (OSError,),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._unavailable = unavailable
        self._monotonic = monotonic
        self._day = Day()
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    def get(self) -> Day:
        """What is known now; nothing until it was read for the first time."""
        now = self._monotonic()
        if self._reading is None and (self._tried_at is None or now - self._tried_at >= REFRESH_S):
            self._tried_at = now
            self._reading = asyncio.create_task(self._read(now))
        known = self._read_at is not None and now - self._read_at <= KEPT_S
        return self._day if known else Day()

    async def close(self) -> None:
        """Give up what is being read."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self, asked_at: float) -> None:
        try:
            self._day = Day(await self._store.shares(LENGTH), await self._store.first_tokens())
            self._read_at = asked_at
        except self._unavailable as error:
            _log.warning("The last day could not be read.", action="last_day_unread", error=type(error).__name__)
        finally:
            self._reading = None
