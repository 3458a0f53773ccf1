"""The confirmed state as a pure state machine: a verdict comes in, the next state and at most one change come out.

Only verdicts move it; time, silence, pauses, restarts and new fingerprints don't, so that an alert never resolves
because we stopped looking. Rate limits and unproven verdicts say nothing of either side: they neither add to a run nor
break it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from service.model import Change, ChangeKind, Confirmed, Mark, Outcome, Status

CONFIRMING = 2
"""Verdicts in a row that move the confirmed state; one proof is enough where nothing was confirmed before."""
FLAPPING_WITHIN = timedelta(hours=24)
"""A regression so soon after the last one isn't announced as another: the cell is flapping."""
BROKEN_AFTER = 6
"""Failures in a row after which a flapping cell is plainly broken."""
SETTLED_AFTER = 30
"""Proofs in a row after which a flapping or broken cell is proven again."""
ASKINGS = 12
"""Askings at the route's own interval after the confirmed state left proven."""

_DIFFERENCES = {
    "served_model": "served_model",
    "configuration": "fingerprint",
    "rules": "ruleset",
    "version": "version",
}
_MARKS = ("last_good", "last_bad", "first_good", "first_bad")
_TIMES = ("since", "regressed_since", "last_regression_at")
_CONFIRMED_FIELDS = tuple(field.name for field in fields(Confirmed))
_MARK_FIELDS = tuple(field.name for field in fields(Mark))
_MARK_NEEDED = frozenset(_MARK_FIELDS) - {"reason", "served_model", "version"}


def confirm(state: Confirmed, mark: Mark, judged_again: Status | None = None) -> tuple[Confirmed, Change | None]:
    """The state after one more verdict of the cell, made under its present fingerprint, and the change it brought.

    A verdict that isn't newer than the last counted one changes nothing. `judged_again` is what the verdict named by
    `to_judge_again` says under the rules of `mark`, None when it can't be judged again: then the confirmed state is
    carried over and the new verdict counts like any other.
    """
    if state.last is not None and mark.observed_at <= state.last.observed_at:
        return state, None
    asked = replace(state, askings_left=max(0, state.askings_left - 1))
    proven = _side(mark.status, mark.outcome)
    if proven is None:
        return asked, None
    counted = _count(asked, mark, proven)
    by_rules = (
        judged_again is not None
        and to_judge_again(state, mark) is not None
        and _side(judged_again, judged_again.outcome) is proven
    )
    kind = ChangeKind.RULES if by_rules else _kind(counted, mark, proven)
    return (counted, None) if kind is None else _change(counted, kind, mark, proven)


def to_judge_again(state: Confirmed, mark: Mark) -> UUID | None:
    """The stored verdict whose facts have to be judged under the rules of `mark` before `mark` is confirmed.

    It is the one that the confirmed state rests on, where `mark` contradicts it under other rules. None while the cell
    is flapping or broken: one verdict judged again is no steadiness.
    """
    grounds, proven = state.grounds, _side(mark.status, mark.outcome)
    if grounds is None or proven in (None, state.proven) or _latched(state):
        return None
    return grounds.id if grounds.ruleset != mark.ruleset else None


def wants_quick_reprobe(state: Confirmed, mark: Mark) -> bool:
    """Whether to ask again soon: `mark` is the first verdict that contradicts the confirmed state, or the first failure
    of a cell that was never judged. `state` is the one after `mark`. Never while the cell is flapping or broken."""
    contradicts = _side(mark.status, mark.outcome) is not state.proven
    return contradicts and state.run_first == mark.id and not _latched(state)


def set_back(state: Confirmed, to: datetime) -> Confirmed:
    """The state after the clock that told its times was set back `to` about this time. Its last verdict comes to lie
    just before, and with it, as far apart as they are, all that is not before it either."""
    if state.last is None:
        return state
    by = state.last.observed_at - to + timedelta(microseconds=1)
    times = {name: at - by for name in _TIMES if (at := getattr(state, name)) is not None and at >= to}
    marks = {
        name: replace(mark, observed_at=mark.observed_at - by)
        for name in _MARKS
        if (mark := getattr(state, name)) is not None and mark.observed_at >= to
    }
    return replace(state, **times, **marks)


def confirmed_values(state: Confirmed) -> dict[str, Any]:
    """The state as it is stored, in JSON."""
    values = {name: getattr(state, name) for name in _CONFIRMED_FIELDS}
    values |= {name: _iso(values[name]) for name in _TIMES}
    values |= {name: _mark_values(values[name]) for name in _MARKS}
    return values | {"run_first": str(state.run_first) if state.run_first else None}


def confirmed_of(values: Mapping[str, Any] | None) -> Confirmed:
    """The stored state read back; nothing stored is never judged.

    Another release may have written it: a key that isn't known is ignored, a missing one is as if nothing had been
    counted for it, and a verdict that lacks what it is compared by isn't known.
    """
    known = {name: values[name] for name in _CONFIRMED_FIELDS if name in values} if values else {}
    known |= {name: _moment(known[name]) for name in _TIMES if name in known}
    known |= {name: _mark_of(known[name]) for name in _MARKS if name in known}
    if known.get("run_first") is not None:
        known["run_first"] = UUID(known["run_first"])
    return Confirmed(**known)


def _side(status: str, outcome: Outcome) -> bool | None:
    """Whether a verdict counts as proven or as not proven; None: it doesn't count."""
    if outcome is Outcome.UNPROVEN or status == Status.RATE_LIMITED:
        return None
    return outcome is Outcome.PROVEN


def _latched(state: Confirmed) -> bool:
    return state.flapping or state.broken


def _count(state: Confirmed, mark: Mark, proven: bool) -> Confirmed:
    last = state.last
    turned = last is None or _side(last.status, last.outcome) is not proven
    anew = last is None or turned or last.fingerprint != mark.fingerprint
    return replace(
        state,
        run=1 if anew else state.run + 1,
        run_first=mark.id if anew else state.run_first,
        last_good=mark if proven else state.last_good,
        last_bad=state.last_bad if proven else mark,
        first_good=mark if proven and turned else state.first_good,
        first_bad=mark if turned and not proven else state.first_bad,
    )


def _kind(state: Confirmed, mark: Mark, proven: bool) -> ChangeKind | None:
    """What the verdict that was just counted brings, None when nothing."""
    if _latched(state):
        if proven:
            return ChangeKind.SETTLED if state.run >= SETTLED_AFTER else None
        return ChangeKind.BROKEN if state.run >= BROKEN_AFTER and not state.broken else None
    if state.proven is proven:
        return None
    if state.proven is None:
        return ChangeKind.FIRST if proven or state.run >= CONFIRMING else None
    if state.run < CONFIRMING:
        return None
    if proven:
        return ChangeKind.RECOVERY
    again = state.last_regression_at is not None and mark.observed_at - state.last_regression_at <= FLAPPING_WITHIN
    return ChangeKind.FLAPPING if again else ChangeKind.REGRESSION


def _change(state: Confirmed, kind: ChangeKind, mark: Mark, proven: bool) -> tuple[Confirmed, Change]:
    """The state moved, and the change, that the verdict just counted brought."""
    rules = kind is ChangeKind.RULES
    before = None if kind is ChangeKind.FIRST else state.last_bad if proven else state.last_good
    first = mark if rules else state.first_good if proven else state.first_bad
    after = first or mark
    cause = before.id if rules and before else state.run_first
    change = Change(
        kind=kind,
        at=mark.observed_at,
        before=before,
        after=after,
        causes=tuple(dict.fromkeys(known for known in (cause, mark.id) if known is not None)),
        changed=_changed(before, after),
        announced=not rules and not (kind is ChangeKind.FIRST and proven),
    )
    return _moved(state, change, proven), change


def _moved(state: Confirmed, change: Change, proven: bool) -> Confirmed:
    regressed_since, last_regression_at = None, state.last_regression_at
    if change.kind in (ChangeKind.REGRESSION, ChangeKind.FLAPPING):
        regressed_since, last_regression_at = change.after.observed_at, change.at
    elif change.kind is ChangeKind.BROKEN:
        regressed_since = state.regressed_since
    elif change.kind is ChangeKind.RULES:  # by the present rules the last regression may have been none
        last_regression_at = None
    return replace(
        state,
        proven=proven,
        since=change.after.observed_at,
        regressed_since=regressed_since,
        flapping=change.kind is ChangeKind.FLAPPING,
        broken=change.kind is ChangeKind.BROKEN,
        last_regression_at=last_regression_at,
        askings_left=0 if proven else ASKINGS if state.proven else state.askings_left,
    )


def _changed(before: Mark | None, after: Mark) -> dict[str, Any]:
    """What is known to differ. A verdict may lack a part: another release didn't keep it, or the answer didn't say."""
    both = {
        name: {"from": getattr(before, field, None), "to": getattr(after, field)}
        for name, field in _DIFFERENCES.items()
    }
    return {
        name: pair
        for name, pair in both.items()
        if pair["from"] is not None and pair["to"] is not None and pair["from"] != pair["to"]
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat() if moment is not None else None


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None


def _mark_values(mark: Mark | None) -> dict[str, Any] | None:
    if mark is None:
        return None
    values = {name: getattr(mark, name) for name in _MARK_FIELDS}
    return values | {
        "id": str(mark.id),
        "status": str(mark.status),
        "outcome": mark.outcome.value,
        "observed_at": _iso(mark.observed_at),
    }


def _mark_of(values: Mapping[str, Any] | None) -> Mark | None:
    if values is None or not values.keys() >= _MARK_NEEDED:
        return None
    known: dict[str, Any] = {name: values.get(name) for name in _MARK_FIELDS}
    known["id"] = UUID(values["id"])
    known["outcome"] = Outcome(values["outcome"])
    known["observed_at"] = datetime.fromisoformat(values["observed_at"])
    return Mark(**known)
