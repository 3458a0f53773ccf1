"""What the application is made over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.metrics import ProcessMetrics
from service.model import StoredVerdict, Transition
from service.web import views
from service.web.render import Templates


class BoardLike(Protocol):
    """Where the state of all cells is read. Never raises for a database that is down: the view says so."""

    async def view(self) -> views.View: ...


class HistoryLike(Protocol):
    """Where the past of a route is read, newest first. May raise one of the errors given as `unavailable`."""

    async def verdicts(self, route_id: str, limit: int) -> Sequence[StoredVerdict]: ...

    async def transitions(self, route_id: str, limit: int) -> Sequence[Transition]: ...


@dataclass(frozen=True)
class Parts:
    """The parts that pages, API and machines answer from.

    `because` maps a rule id to its reason in words. `faults` says what keeps this process from doing its work, for
    `/livez`; nothing means well. `unavailable` are the errors of `history` that mean that it can't be read now.
    """

    board: BoardLike
    history: HistoryLike
    process: ProcessMetrics
    templates: Templates
    because: Mapping[str, str]
    faults: Callable[[], Sequence[str]]
    unavailable: tuple[type[Exception], ...]
