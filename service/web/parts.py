"""What the application is made over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from service.metrics import ProcessMetrics
from service.model import AskedNow, Pause, PauseScope, Route, Span, StoredVerdict, Transition
from service.web import views
from service.web.access import Access, LoginLimit
from service.web.last_day import Day
from service.web.render import Templates


class BoardLike(Protocol):
    """Where the state of all cells is read. Never raises for a database that is down: the view says so."""

    async def view(self) -> views.View: ...

    async def renew(self) -> None:
        """Have the next view read after this call."""


class StoreLike(Protocol):
    """Where the past is read, newest first, and wishes are left. May raise one of the errors given as `unavailable`."""

    async def verdicts(self, route_id: str, limit: int) -> Sequence[StoredVerdict]: ...

    async def transitions(self, route_id: str, limit: int) -> Sequence[Transition]: ...

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
    ) -> Sequence[StoredVerdict]: ...

    async def verdicts_at(self, keys: Sequence[tuple[datetime, UUID]]) -> Sequence[StoredVerdict]: ...

    async def spans(
        self, route_id: str, contract: str, since: datetime, until: datetime, width: timedelta
    ) -> Sequence[Span]: ...

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
    ) -> Sequence[Transition]: ...

    async def ask_now(self, route_id: str, contract: str | None, not_within_s: float) -> AskedNow: ...

    async def pauses(self, ended: bool = False) -> Sequence[Pause]: ...

    async def pause(
        self, scope: PauseScope, target: str, seconds: float, stops: bool, reason: str, by: str
    ) -> Pause: ...

    async def end_pause(self, id: UUID) -> Pause | None: ...


@dataclass(frozen=True)
class Parts:
    """The parts that pages, API and machines answer from.

    `because` maps a rule id to its reason in words. `faults` says what keeps this process from doing its work, for
    `/livez`; nothing means well. `unavailable` are the errors of `store` that mean that it can't be asked now.
    `last_day` gives what is known of the last day, at once. `routes` are those that this process is configured with,
    by id: of another location's no more is known than the board holds.
    `access` gives the settings of the moment, which a reload may change; `clock` the time in seconds of the epoch.
    """

    board: BoardLike
    store: StoreLike
    process: ProcessMetrics
    templates: Templates
    access: Callable[[], Access]
    logins: LoginLimit
    clock: Callable[[], float]
    because: Mapping[str, str]
    faults: Callable[[], Sequence[str]]
    unavailable: tuple[type[Exception], ...]
    last_day: Callable[[], Day] = Day
    routes: Callable[[], Mapping[str, Route]] = dict
