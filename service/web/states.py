"""The states of all routes, derived once for every snapshot and not for every reader."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from service.derive import RouteState
from service.model import Snapshot
from service.web.views.overview import deciding_states
from service.web.views.words import View

KEPT = timedelta(seconds=1)
"""A state that changes by its age alone is told so late at most, as one that a verdict changes is."""


class States:
    """Keeps the states of the snapshot asked about last. Called from threads: one derives, the others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._derived: tuple[Snapshot, datetime, tuple[RouteState, ...]] | None = None

    def of(self, view: View) -> tuple[RouteState, ...]:
        """`deciding_states` at `view.now` or up to 1 s before."""
        with self._lock:
            if self._derived is not None:
                snapshot, at, states = self._derived
                if snapshot is view.snapshot and timedelta(0) <= view.now - at < KEPT:
                    return states
            states = deciding_states(view.snapshot, view.now)
            self._derived = view.snapshot, view.now, states
            return states
