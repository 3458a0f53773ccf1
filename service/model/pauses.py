"""Pauses: what is muted, or not asked at all, until when and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class PauseScope(StrEnum):
    """What a pause's `target` names."""

    ROUTE = "route"
    PROVIDER = "provider"
    TAG = "tag"


@dataclass(frozen=True)
class Pause:
    """Alerts about the cells of `target` are muted from `since` to `until`; with `stops` they aren't probed either.

    `by` names who asked for it, `reason` why: both are words of a person.
    """

    id: UUID
    scope: PauseScope
    target: str
    since: datetime
    until: datetime
    stops: bool = False
    reason: str = ""
    by: str = ""
