"""The application over hand-made parts, for tests of pages, access and API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from fastapi import FastAPI

from service.metrics import ProcessMetrics
from service.model import AskedNow, Pause, PauseScope, Secret, Span, StoredVerdict, Transition
from service.web.access import Access
from service.web.app import create_app
from tests.samples import BECAUSE, MIXED, NOW, Board, View

READ = "a-token-that-may-read"
OPERATE = "a-token-that-may-change"
TOKENS = Access(Secret(READ), Secret(OPERATE), True, "http://probe.example")


@dataclass
class Store:
    """A store in memory. `error` is what every call meets."""

    stored: Sequence[StoredVerdict] = ()
    changes: Sequence[Transition] = ()
    asked: AskedNow = field(default_factory=lambda: AskedNow(due=[("native_tools", "default")]))
    paused: dict[UUID, Pause] = field(default_factory=dict)
    error: Exception | None = None
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def _call(self, name: str, what: object = None) -> None:
        self.calls.append((name, what))
        if self.error:
            raise self.error

    async def verdicts(self, route_id: str, limit: int) -> Sequence[StoredVerdict]:
        self._call("verdicts")
        return [one for one in self.stored if one.route_id == route_id][:limit]

    async def transitions(self, route_id: str, limit: int) -> Sequence[Transition]:
        self._call("transitions")
        return [one for one in self.changes if one.route_id == route_id][:limit]

    async def verdicts_at(self, keys: Sequence[tuple[datetime, UUID]]) -> Sequence[StoredVerdict]:
        self._call("verdicts_at", keys)
        return [one for one in self.stored if (one.standing.observed_at, one.standing.id) in keys]

    async def spans(self, *asked: Any) -> Sequence[Span]:
        self._call("spans", asked)
        return []

    async def verdict_page(
        self, *, before: tuple[datetime, UUID] | None = None, limit: int = 100, **wanted: Any
    ) -> Sequence[StoredVerdict]:
        self._call("verdict_page", wanted)
        newest = sorted(self.stored, key=lambda one: (one.standing.observed_at, one.standing.id), reverse=True)
        return [v for v in newest if before is None or (v.standing.observed_at, v.standing.id) < before][:limit]

    async def transition_page(
        self, *, before: tuple[datetime, int] | None = None, limit: int = 100, **wanted: Any
    ) -> Sequence[Transition]:
        self._call("transition_page", wanted)
        newest = sorted(self.changes, key=lambda one: (one.at, one.id), reverse=True)
        return [change for change in newest if before is None or (change.at, change.id) < before][:limit]

    async def ask_now(self, route_id: str, contract: str | None, not_within_s: float) -> AskedNow:
        self._call("ask_now", (route_id, contract, not_within_s))
        return self.asked

    async def pauses(self, ended: bool = False) -> Sequence[Pause]:
        self._call("pauses", ended)
        return [] if ended else list(self.paused.values())

    async def pause(self, scope: PauseScope, target: str, seconds: float, stops: bool, reason: str, by: str) -> Pause:
        self._call("pause", (scope, target, seconds, stops, reason, by))
        id = UUID(int=len(self.calls))
        self.paused[id] = Pause(id, scope, target, NOW, NOW + timedelta(seconds=seconds), stops, reason, by)
        return self.paused[id]

    async def end_pause(self, id: UUID) -> Pause | None:
        self._call("end_pause", id)
        return self.paused.pop(id, None)


@dataclass
class Clock:
    """A clock that a test moves, in seconds of the epoch."""

    now: float = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


def web_app(
    view: View | None = None,
    store: Store | None = None,
    *,
    access: Access = TOKENS,
    clock: Clock | None = None,
    board: Board | None = None,
) -> FastAPI:
    return create_app(
        board or Board(view or View(MIXED, age_s=2)),
        store or Store(),
        ProcessMetrics("default", "0"),
        access=lambda: access,
        because=BECAUSE,
        faults=list,
        unavailable=(ConnectionError,),
        clock=clock or Clock(),
    )


async def send(app: FastAPI, method: str, path: str, *, token: str | None = None, **more: Any) -> httpx.Response:
    """One request from the machine itself, with a bearer token."""
    headers = {"host": "127.0.0.1:8080", **more.pop("headers", {})}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    transport = httpx.ASGITransport(app=app, client=more.pop("client", ("127.0.0.1", 1)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        return await client.request(method, path, headers=headers, **more)
