"""Stored facts judged again under the rules of this version: what a verdict would say if it were made now.

A new rule is no change of a route. So a verdict of earlier rules is judged again before it is compared with one of
today's, and where its facts don't say enough nothing is concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from service.contracts import CONTRACTS
from service.facts import Lack, NotRecorded, recall
from service.rules import Conclusion

_EXAMPLES = 3


@dataclass(frozen=True)
class Judged:
    """What the rules say now, and the quirks seen."""

    conclusion: Conclusion
    quirks: tuple[str, ...]


def judge_again(contract: str, facts: Mapping[str, Any]) -> Judged | None:
    """A verdict's facts under the current rules; None when they don't say enough, or nobody asks that contract now."""
    judged = try_again(contract, facts)
    return None if isinstance(judged, Lack) else judged


def try_again(contract: str, facts: Mapping[str, Any]) -> Judged | Lack:
    """As `judge_again`, with the reason where nothing can be concluded."""
    if contract not in CONTRACTS:
        return Lack.UNKNOWN_CONTRACT
    try:
        observed = recall(facts)
    except NotRecorded as missing:
        return missing.lack
    conclusion, quirks = CONTRACTS[contract].conclude(observed.route, observed.exchanges, observed.circumstances)
    return Judged(conclusion, tuple(sorted(quirks)))


@dataclass(frozen=True)
class Recorded:
    """A stored verdict, as far as it takes to judge it again."""

    id: UUID
    contract: str
    status: str
    rule_id: str
    reason: str | None
    quirks: tuple[str, ...]
    observed_at: datetime
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Words:
    """What a verdict says."""

    status: str
    rule_id: str
    reason: str | None


@dataclass(frozen=True)
class Change:
    """One way in which verdicts would read differently now."""

    contract: str
    then: Words
    now: Words
    quirks_gained: tuple[str, ...]
    quirks_lost: tuple[str, ...]


@dataclass
class Changed:
    """The verdicts that one change applies to: how many, the times of the first and the last, and some ids."""

    count: int
    first_at: datetime
    last_at: datetime
    examples: list[UUID]


@dataclass
class Tally:
    """What came of judging stored verdicts again. It holds no verdict: any number can be added."""

    same: int = 0
    changes: dict[Change, Changed] = field(default_factory=dict)
    not_judged: Counter[Lack] = field(default_factory=Counter)

    @property
    def changed(self) -> int:
        return sum(changed.count for changed in self.changes.values())

    @property
    def read(self) -> int:
        return self.same + self.changed + self.not_judged.total()

    def add(self, verdict: Recorded) -> None:
        judged = try_again(verdict.contract, verdict.facts)
        if isinstance(judged, Lack):
            self.not_judged[judged] += 1
        elif (change := _change(verdict, judged)) is None:
            self.same += 1
        else:
            self._count(change, verdict)

    def most_first(self) -> list[tuple[Change, Changed]]:
        """The changes by how many verdicts they apply to."""
        return sorted(self.changes.items(), key=lambda item: -item[1].count)

    def _count(self, change: Change, verdict: Recorded) -> None:
        at = verdict.observed_at
        changed = self.changes.setdefault(change, Changed(0, at, at, []))
        changed.count += 1
        changed.first_at, changed.last_at = min(changed.first_at, at), max(changed.last_at, at)
        if len(changed.examples) < _EXAMPLES:
            changed.examples.append(verdict.id)


def _change(verdict: Recorded, judged: Judged) -> Change | None:
    then = Words(verdict.status, verdict.rule_id, verdict.reason)
    now = Words(judged.conclusion.status.value, judged.conclusion.rule_id, judged.conclusion.reason)
    old, new = set(verdict.quirks), set(judged.quirks)
    if then == now and old == new:
        return None
    return Change(verdict.contract, then, now, tuple(sorted(new - old)), tuple(sorted(old - new)))
