"""How often a route that fails at random is spoken of: simulated days, an asking every five minutes, quick re-probes.

`python -m tests.unit.test_announcements` prints the table of docs/reliability.md, from a thousand days a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from random import Random
from uuid import UUID

import pytest

from service.model import ChangeKind, Confirmed, Mark, Status
from service.regression import confirm, wants_quick_reprobe
from tests.samples import MINUTE, NOW

INTERVAL = 5 * MINUTE
REPROBE_AFTER = timedelta(seconds=35)
SEED = 20261130
FAILING = (0.05, 0.10, 0.25, 0.50)


class Plain:
    """A state that two verdicts in a row move, whatever was before."""

    def __init__(self) -> None:
        self._proven, self._against = True, 0

    def confirm(self, number: int, at: datetime, failed: bool) -> tuple[ChangeKind | None, bool]:
        self._against = self._against + 1 if failed is self._proven else 0
        if self._against < 2:
            return None, self._against == 1
        self._proven, self._against = not self._proven, 0
        return ChangeKind.RECOVERY if self._proven else ChangeKind.REGRESSION, False


class Ours:
    """The confirmed state as it is."""

    def __init__(self) -> None:
        self._state = Confirmed()

    def confirm(self, number: int, at: datetime, failed: bool) -> tuple[ChangeKind | None, bool]:
        status = Status.STREAM_EARLY_EOF if failed else Status.TOOLS_SUPPORTED
        mark = Mark(UUID(int=number), status, status.outcome, None, at, "m1", "f1", 1, "v1")
        self._state, change = confirm(self._state, mark)
        return change.kind if change and change.announced else None, wants_quick_reprobe(self._state, mark)


def announcements(cell: Plain | Ours, failing: float, days: int) -> Iterator[tuple[datetime, ChangeKind]]:
    """What is announced of a route that was proven once and whose every later asking fails with that probability."""
    chance, grid, at = Random(SEED), NOW, NOW
    for number in count(1):
        kind, soon = cell.confirm(number, at, number > 1 and chance.random() < failing)
        if kind is not None:
            yield at, kind
        if soon:
            at += REPROBE_AFTER
        else:
            at = grid = grid + INTERVAL
        if at > NOW + timedelta(days=days):
            return


def counted(cell: Plain | Ours, failing: float, days: int) -> Counter[ChangeKind]:
    return Counter(kind for _, kind in announcements(cell, failing, days))


@pytest.mark.parametrize(("failing", "regressions"), [(0.05, 0.7), (0.10, 2.9), (0.25, 16), (0.50, 36)])
def test_two_in_a_row_alone_cry_wolf(failing: float, regressions: float) -> None:
    assert counted(Plain(), failing, 60)[ChangeKind.REGRESSION] / 60 == pytest.approx(regressions, rel=0.2)


@pytest.mark.parametrize(("failing", "all_kinds"), [(0.05, 1.3), (0.10, 2.3)])
def test_a_route_that_fails_now_and_then_flaps_and_settles(failing: float, all_kinds: float) -> None:
    kinds = counted(Ours(), failing, 60)
    assert kinds.total() / 60 == pytest.approx(all_kinds, rel=0.2)
    assert kinds.total() <= counted(Plain(), failing, 60).total()
    assert kinds[ChangeKind.SETTLED] > 10
    assert kinds[ChangeKind.BROKEN] == 0


@pytest.mark.parametrize("failing", [0.25, 0.50])
def test_a_route_that_fails_often_is_announced_in_a_day_and_then_once_in_weeks(failing: float) -> None:
    said = list(announcements(Ours(), failing, 60))
    assert [kind for _, kind in said[:3]] == [ChangeKind.REGRESSION, ChangeKind.RECOVERY, ChangeKind.FLAPPING]
    assert said[2][0] < NOW + timedelta(days=1)
    assert ChangeKind.BROKEN in {kind for _, kind in said}
    assert len(said[3:]) <= 60 / 14


def _table() -> Iterator[str]:
    days = 1000
    yield "| askings that fail | regressions a day, two in a row alone | announcements a day, two in a row alone | ours | ours in 1,000 days |"
    yield "| --- | --- | --- | --- | --- |"
    for failing in FAILING:
        plain, ours = counted(Plain(), failing, days), counted(Ours(), failing, days)
        kinds = ", ".join(f"{ours[kind]} {kind}" for kind in ChangeKind if ours[kind])
        a_day = [plain[ChangeKind.REGRESSION] / days, plain.total() / days, ours.total() / days]
        yield f"| {failing:.0%} | {a_day[0]:.1f} | {a_day[1]:.1f} | {a_day[2]:.2g} | {kinds} |"


if __name__ == "__main__":
    print("\n".join(_table()))
