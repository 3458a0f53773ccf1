"""The last good exchange beside the first bad one, rung by rung, and what is known to have changed between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from service.model import Confirmed, Mark, Rung, StoredVerdict
from service.remedies import in_words
from service.web.views.words import Moment, moment

_CAUSES = {
    "served_model": ("served model", "served_model"),
    "configuration": ("configuration", "fingerprint"),
    "rules": ("rules", "ruleset"),
    "version": ("version", "version"),
}
_NAMES = {"ruleset": "rules", **{word: name for word, (name, _) in _CAUSES.items()}}


@dataclass(frozen=True)
class Side:
    """One of the two verdicts. `kept` False: history holds its rungs no more."""

    at: Moment
    words: str
    kept: bool


@dataclass(frozen=True)
class Pair:
    """One rung as it went then and now; None: it wasn't asked. `differs`: the answers were read differently."""

    rung: str
    good: Rung | None
    bad: Rung | None
    differs: bool


@dataclass(frozen=True)
class Comparison:
    """`changed` is what else is known to differ: a name with its values before and after."""

    good: Side
    bad: Side
    pairs: tuple[Pair, ...]
    changed: tuple[tuple[str, str, str], ...]


def comparison(confirmed: Confirmed, kept: Mapping[UUID, StoredVerdict], now: datetime) -> Comparison | None:
    """None unless the cell was good before it turned bad."""
    good, bad = confirmed.last_good, confirmed.first_bad
    if good is None or bad is None or good.observed_at > bad.observed_at:
        return None
    rungs = [kept[mark.id].rungs if mark.id in kept else () for mark in (good, bad)]
    return Comparison(
        good=_side(good, kept, now),
        bad=_side(bad, kept, now),
        pairs=tuple(_pairs(*rungs)),
        changed=tuple(_changed(good, bad)),
    )


def wanted(confirmed: Confirmed) -> list[Mark]:
    """The verdicts that a comparison is made of."""
    good, bad = confirmed.last_good, confirmed.first_bad
    return [good, bad] if good and bad and good.observed_at <= bad.observed_at else []


def named_changes(changed: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a transition says has changed: each with its name in words, and its values before and after."""
    for what, values in sorted(changed.items()):
        name = _NAMES.get(what, what.replace("_", " "))
        yield name, str(values["from"]), str(values["to"])


def _side(mark: Mark, kept: Mapping[UUID, StoredVerdict], now: datetime) -> Side:
    return Side(moment(mark.observed_at, now), in_words(mark.status), mark.id in kept)


def _changed(good: Mark, bad: Mark) -> Iterator[tuple[str, str, str]]:
    for name, field in _CAUSES.values():
        before, after = getattr(good, field), getattr(bad, field)
        if before is not None and after is not None and before != after:
            yield name, str(before), str(after)


def _pairs(good: Sequence[Rung], bad: Sequence[Rung]) -> Iterator[Pair]:
    """A repetition stands beside the same repetition."""
    sides = [_by_turn(good), _by_turn(bad)]
    for key in dict.fromkeys([*sides[1], *sides[0]]):
        then, now = (side.get(key) for side in sides)
        rung, turn = key
        name = rung if turn == 1 else f"{rung}, asked again"
        differs = then is None or now is None or (then.status, then.read) != (now.status, now.read)
        yield Pair(name, then, now, differs)


def _by_turn(rungs: Sequence[Rung]) -> dict[tuple[str, int], Rung]:
    turns: Counter[str] = Counter()
    found = {}
    for rung in rungs:
        turns[rung.rung] += 1
        found[rung.rung, turns[rung.rung]] = rung
    return found
