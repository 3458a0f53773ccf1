"""Stored facts judged again under the rules of this version: what a verdict would say if it were made now.

A new rule is no change of a route. So a verdict of earlier rules is judged again before it is compared with one of
today's, and where its facts don't say enough nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.contracts import CONTRACTS
from service.facts import Lack, NotRecorded, recall
from service.rules import Conclusion


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
        return Lack.CONTRACT
    try:
        observed = recall(facts)
    except NotRecorded as missing:
        return missing.lack
    conclusion, quirks = CONTRACTS[contract].conclude(observed.route, observed.exchanges, observed.circumstances)
    return Judged(conclusion, tuple(sorted(quirks)))
