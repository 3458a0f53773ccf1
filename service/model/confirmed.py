"""The confirmed state of a cell: latched, moved by verdicts alone, what alerts rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from service.model.words import Outcome


class ChangeKind(StrEnum):
    """What became of a confirmed state. Words are a public contract.

    `first`: never judged → proven or not proven. `regression`: proven → not proven. `recovery`: not proven → proven.
    `flapping`: the second regression within a day. `broken`: a flapping cell that now fails again and again.
    `settled`: a flapping or broken cell that is steadily proven. `rules`: the rules changed, not the route.
    """

    FIRST = "first"
    REGRESSION = "regression"
    RECOVERY = "recovery"
    FLAPPING = "flapping"
    BROKEN = "broken"
    SETTLED = "settled"
    RULES = "rules"


@dataclass(frozen=True)
class Mark:
    """A verdict as the confirmed state needs it. `version` is Routeproof's, None where it isn't known."""

    id: UUID
    status: str
    outcome: Outcome
    reason: str | None
    observed_at: datetime
    served_model: str | None
    fingerprint: str
    ruleset: int
    version: str | None


@dataclass(frozen=True)
class Confirmed:
    """The confirmed state of one cell and all that moving it needs. As made by default: never judged.

    `proven` is None until something is confirmed. `since` is the time of the first of the verdicts that led to the
    last change: a route is broken since it failed first, not since that was confirmed. `regressed_since` likewise, and
    None unless a regression stands. A cell is `flapping` or, later, `broken`, never both; either lasts until it has
    settled.

    `run` counts the latest verdicts that agree, proven or not, under one fingerprint; `run_first` is the first of them.
    `last_good` and `last_bad` are the newest verdicts of either side; `first_good` and `first_bad` those with which
    the side began last, under whatever fingerprint. `last_regression_at` is when the last regression was confirmed.
    For `askings_left` more askings a required cell is asked at its route's interval.
    """

    proven: bool | None = None
    since: datetime | None = None
    regressed_since: datetime | None = None
    flapping: bool = False
    broken: bool = False
    run: int = 0
    run_first: UUID | None = None
    last_good: Mark | None = None
    last_bad: Mark | None = None
    first_good: Mark | None = None
    first_bad: Mark | None = None
    last_regression_at: datetime | None = None
    askings_left: int = 0

    @property
    def regressed(self) -> bool:
        return self.regressed_since is not None

    @property
    def last(self) -> Mark | None:
        """The newest verdict that was counted."""
        known = [mark for mark in (self.last_good, self.last_bad) if mark is not None]
        return max(known, key=lambda mark: mark.observed_at, default=None)

    @property
    def grounds(self) -> Mark | None:
        """The verdict that the confirmed state rests on: the newest that agrees with it."""
        return None if self.proven is None else self.last_good if self.proven else self.last_bad


NEVER_JUDGED = Confirmed()


@dataclass(frozen=True)
class Change:
    """One change of a confirmed state, at the time of the verdict that confirmed it.

    It lies between `before` and `after`: of a regression the last good and the first bad verdict. `before` is None
    when nothing of the other side is known. `causes` are the first and the last of the verdicts that confirmed it;
    of `rules` the one that was judged again and the new one. `changed` says what else is known to differ between the
    two: `served_model`, `configuration`, `rules`, `version`, each as `{"from": …, "to": …}`.
    """

    kind: ChangeKind
    at: datetime
    before: Mark | None
    after: Mark
    causes: tuple[UUID, ...]
    changed: Mapping[str, Any]
    announced: bool
