"""What Prometheus scrapes: the cells' series, rendered from the snapshot, and the process's own series."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from service.metrics.cells import families, render_cells
from service.metrics.process import ProcessMetrics
from service.model import Snapshot

__all__ = ["CONTENT_TYPE", "ProcessMetrics", "View", "exposition", "render_cells"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class View(Protocol):
    """What the board holds at one moment. `now` is the database's clock, carried on when it can't be reached.

    Before the first snapshot it is empty and `database_up` False.
    """

    @property
    def now(self) -> datetime: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def database_up(self) -> bool: ...


def exposition(process: ProcessMetrics, view: View) -> bytes:
    """The whole answer to a scrape: the process's series, then those of the cells at `view.now`."""
    process.database(view.database_up)
    return b"".join([process.render(), *(family.encode() for family in families(view.snapshot, view.now))])
