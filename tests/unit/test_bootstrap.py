"""What the service does around its parts: signals, and what `/livez` says of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest

from service.bootstrap import STALLED_S, _hangup, _Service, _signals
from service.clockwork import Clockwork
from service.metrics import ProcessMetrics
from service.reload import Reload
from service.transport import LoopLag


class Told:
    """Says what it was made to say, as a clockwork, and as a measure of lateness."""

    def __init__(self, *faults: str, late: float = 0.0) -> None:
        self._faults, self._late = list(faults), late

    def faults(self) -> list[str]:
        return self._faults

    def worst_since(self, _: float) -> float:
        return self._late


def service(clockwork: Told | None = None) -> _Service:
    made = _Service(cast(Any, None), cast(Any, None), ProcessMetrics("here", "0"))
    made._clockwork = cast(Clockwork, clockwork)
    return made


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (0.0, []),
        (STALLED_S, []),
        (STALLED_S + 2, ["the event loop was late by 12 s within the last minute"]),
    ],
)
def test_an_event_loop_that_stood_still_is_a_fault(late: float, said: list[str]) -> None:
    assert service()._faults(cast(LoopLag, Told(late=late))) == said


def test_a_process_that_only_serves_pages_tells_of_its_jobs_too() -> None:
    stuck = service(Told("reload has not come to its end for 400 s"))
    assert stuck._faults(cast(LoopLag, Told())) == ["reload has not come to its end for 400 s"]


@pytest.fixture
def ended_by_a_hangup() -> Iterator[None]:
    outside = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    yield
    signal.signal(signal.SIGHUP, outside)


@pytest.mark.usefixtures("ended_by_a_hangup")
async def test_a_hangup_ends_nothing_while_the_service_starts_or_stops() -> None:
    reload = Told()
    with _signals(asyncio.Event()):
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        with _hangup(cast(Reload, type("", (), {"force": reload.faults})())):
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
