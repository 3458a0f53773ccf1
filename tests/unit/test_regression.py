"""What moves a confirmed state, what is announced, and what is asked again soon.

A case is a line of verdicts, five minutes apart: P proven, V violated, B blocked, U unavailable, L rate limited,
N unproven. `P*30` is thirty of them; `!` is an asking wanted soon after it, `:kind` the change that it brings; without
them none is wanted and nothing changes. `V=P` is a verdict whose earlier one, judged again, says P. `+24h` passes time,
`f2` changes the fingerprint, `r2` the rules, `m2` the served model, `v2` our version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import Change, ChangeKind, Confirmed, Mark, Outcome, Status
from service.regression import (
    ASKINGS,
    confirm,
    confirmed_of,
    confirmed_values,
    set_back,
    to_judge_again,
    wants_quick_reprobe,
)
from tests.samples import MINUTE, NOW

NEVER = Confirmed()
STATUSES = {
    "P": Status.TOOLS_SUPPORTED,
    "V": Status.STREAM_EARLY_EOF,
    "B": Status.ENDPOINT_AUTH_FAILED,
    "U": Status.TIMEOUT,
    "L": Status.RATE_LIMITED,
    "N": Status.INCONCLUSIVE_NO_TOOL_CALL,
}
VERDICT = re.compile(r"([PVBULN])(?:\*(\d+))?(?:=(\w))?(!)?(?::(\w+))?")
FLAPPING = "P:first V! V:regression P! P:recovery V! V:flapping"


def mark(letter: str = "P", number: int = 1, **other: Any) -> Mark:
    """The verdict with that number, five minutes after the one before."""
    status = STATUSES[letter]
    made = Mark(
        id=UUID(int=number),
        status=status,
        outcome=status.outcome,
        reason=None,
        observed_at=NOW + number * 5 * MINUTE,
        served_model="m1",
        fingerprint="f1",
        ruleset=1,
        version="v1",
    )
    return replace(made, **other)


def steps(line: str) -> Iterator[tuple[Mark, Status | None, bool, str | None]]:
    """The verdicts of a line, each with what its earlier one says, whether it wants another soon, and its change."""
    number, passed, other = 0, timedelta(), dict[str, Any]()
    for token in line.split():
        if token.startswith("+"):
            passed += timedelta(hours=int(token[1:-1]))
        elif token[0] in "fmvr":
            name = {"f": "fingerprint", "m": "served_model", "v": "version", "r": "ruleset"}[token[0]]
            other[name] = int(token[1:]) if name == "ruleset" else token
        else:
            found = VERDICT.fullmatch(token)
            assert found, token
            letter, times, again, soon, kind = found.groups()
            for left in reversed(range(int(times or 1))):
                number += 1
                at = NOW + number * 5 * MINUTE + passed
                judged = STATUSES[again] if again else None
                yield (
                    mark(letter, number, observed_at=at, **other),
                    judged,
                    not left and bool(soon),
                    None if left else kind,
                )


def play(line: str) -> tuple[Confirmed, list[Change]]:
    """The state at the end of a line, and all changes."""
    state, changes = NEVER, []
    for verdict, judged, _, _ in steps(line):
        state, change = confirm(state, verdict, judged)
        changes += [change] if change else []
    return state, changes


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("P:first P P", id="one proof settles a cell that was never judged"),
        pytest.param("V! V:first V V", id="never to not proven takes two, and is no regression"),
        pytest.param("V! P:first", id="a proof settles it though a failure came first"),
        pytest.param("N L N V! N L U:first", id="what doesn't count leaves a cell never judged"),
        pytest.param("V! V:first P! P:recovery", id="proven after it never was"),
        pytest.param("P:first V! P V! P", id="one failure is no regression"),
        pytest.param("P:first V! V:regression V V", id="two failures are one, once"),
        pytest.param("P:first V! B:regression", id="blocked counts like violated"),
        pytest.param("P:first U! V:regression", id="unavailable counts like violated"),
        pytest.param("P:first B! U:regression P! V P! P:recovery", id="back after two proofs in a row"),
        pytest.param("P:first L L L N N N", id="rate limits and unproven verdicts count for nothing"),
        pytest.param("P:first V! L N V:regression", id="nor do they break a run of failures"),
        pytest.param("P:first V! V:regression P! L N P:recovery", id="nor one of proofs"),
        pytest.param("P:first +99h P +999h V! +999h V:regression", id="silence alters nothing"),
        pytest.param("P:first f2 P f3 P", id="a new fingerprint alters nothing"),
        pytest.param("P:first V! f2 V! V:regression", id="a run of failures starts anew under a new fingerprint"),
        pytest.param("P:first V! V:regression P! f2 P! P:recovery", id="and so does one of proofs"),
        pytest.param("V! f2 V! V:first", id="and that of a cell never judged"),
        pytest.param("P:first V! V:regression f2 V V", id="and a confirmed state doesn't"),
        pytest.param(FLAPPING + " V P P P V V P", id="a second regression within a day is flapping, once"),
        pytest.param(
            "P:first V! V:regression P! P:recovery +25h V! V:regression", id="a day later it is another regression"
        ),
        pytest.param(FLAPPING + " P*29 V P*30:settled P", id="flapping ends after thirty proofs in a row"),
        pytest.param(FLAPPING + " P*29 L N P:settled", id="with rate limits and unproven verdicts among them"),
        pytest.param(FLAPPING + " P*29 f2 P*29 P:settled", id="under one fingerprint"),
        pytest.param(FLAPPING + " V V V V:broken V*9", id="six failures in a row are broken, once"),
        pytest.param(FLAPPING + " P V*5 P V*6:broken", id="five are not"),
        pytest.param(FLAPPING + " V V V f2 V*5 V:broken", id="nor six under two fingerprints"),
        pytest.param(FLAPPING + " V*4:broken P*29 V*9 P*30:settled", id="broken lasts until it has settled"),
        pytest.param(FLAPPING + " P*30:settled V! V:flapping", id="a regression soon after is flapping again"),
        pytest.param(FLAPPING + " P*30:settled +24h V! V:regression", id="a day later it is a regression again"),
        pytest.param("P:first r2 V=V:rules V V", id="a new rule that fails the last proof as well is no regression"),
        pytest.param("P:first r2 V=P! V=P:regression", id="one that still proves it leaves a regression"),
        pytest.param("P:first r2 V! V:regression", id="what can't be judged again counts as it was"),
        pytest.param("P:first r2 V=N! V=L:regression", id="and so does what says neither when judged again"),
        pytest.param("P:first V=V! V=V:regression", id="nothing is judged again under the same rules"),
        pytest.param("P:first V! r2 B=U:rules", id="a run begun under the old rules is decided by the new ones"),
        pytest.param("P:first r2 P=V V=V!", id="a verdict under the new rules carries the state from then on"),
        pytest.param("P:first V! V:regression r2 P=P:rules P", id="a rule that was wrong is no recovery"),
        pytest.param("V! V:first r2 P=V! P=V:recovery", id="a route that changed is one"),
        pytest.param("V! V:first r2 N=P L=P", id="rules decide nothing by a verdict that doesn't count"),
        pytest.param(
            "P:first V! V:regression r2 P=P:rules V! V:regression", id="a regression that was none isn't counted"
        ),
        pytest.param(FLAPPING + " r2 P=P P=P", id="no verdict judged again steadies a flapping cell"),
    ],
)
def test_what_changes_and_what_is_asked_again_soon(line: str) -> None:
    state = NEVER
    for number, (verdict, judged, soon, kind) in enumerate(steps(line), 1):
        state, change = confirm(state, verdict, judged)
        assert (number, change and change.kind.value) == (number, kind)
        assert (number, wants_quick_reprobe(state, verdict)) == (number, soon)
    assert number > 1


def test_a_day_ends_after_twenty_four_hours() -> None:
    state, _ = play("P V V P P V")
    assert state.last_regression_at is not None
    day_later = state.last_regression_at + timedelta(hours=24)
    _, within = confirm(state, mark("V", 99, observed_at=day_later))
    _, after = confirm(state, mark("V", 99, observed_at=day_later + timedelta(microseconds=1)))
    assert within is not None
    assert within.kind is ChangeKind.FLAPPING
    assert after is not None
    assert after.kind is ChangeKind.REGRESSION


@pytest.mark.parametrize(
    ("line", "announced"),
    [
        ("P", ""),
        ("V V", "first"),
        (FLAPPING, "regression recovery flapping"),
        (FLAPPING + " V*9 P*29 V*9 P*30", "regression recovery flapping broken settled"),
        ("P r2 V=V r3 P=P", ""),
    ],
)
def test_a_first_proof_and_new_rules_are_not_announced(line: str, announced: str) -> None:
    assert [change.kind for change in play(line)[1] if change.announced] == announced.split()


@pytest.mark.parametrize("letter", STATUSES)
def test_a_verdict_that_is_not_newer_changes_nothing(letter: str) -> None:
    state, _ = play("P V V P")
    for number in (1, 3, 4):
        assert confirm(state, mark(letter, number)) == (state, None)


def test_a_late_verdict_does_not_complete_a_run() -> None:
    state, _ = confirm(NEVER, mark("P", 1))
    state, _ = confirm(state, mark("V", 5))
    state, change = confirm(state, mark("V", 3))
    assert change is None
    assert state.proven


@pytest.mark.parametrize(
    ("line", "regressed", "flapping", "broken"),
    [
        ("", False, False, False),
        ("P V", False, False, False),
        ("V V", False, False, False),
        ("P V V", True, False, False),
        ("P V V f2 P N", True, False, False),
        ("P V V P P", False, False, False),
        (FLAPPING, True, True, False),
        (FLAPPING + " P*29", True, True, False),
        (FLAPPING + " P*30", False, False, False),
        (FLAPPING + " V*4", True, False, True),
        (FLAPPING + " V*4 P*29", True, False, True),
        (FLAPPING + " V*4 P*30", False, False, False),
        ("P r2 V=V", False, False, False),
        ("P V V r2 P=P", False, False, False),
    ],
)
def test_what_stands(line: str, regressed: bool, flapping: bool, broken: bool) -> None:
    state, _ = play(line)
    assert (state.regressed, state.flapping, state.broken) == (regressed, flapping, broken)
    assert not regressed or state.proven is False


def test_a_route_is_broken_since_it_failed_first() -> None:
    state, changes = play("P P V N f2 V V")
    assert state.since == state.regressed_since == mark(number=3).observed_at
    assert state.last_regression_at == changes[-1].at == mark(number=6).observed_at
    assert play("P P V N f2 V V V P P")[0].since == mark(number=8).observed_at


def test_broken_keeps_the_time_of_the_regression() -> None:
    flapping, _ = play(FLAPPING)
    broken, _ = play(FLAPPING + " P V*6")
    assert broken.regressed_since == flapping.regressed_since == mark(number=6).observed_at
    assert broken.since == mark(number=9).observed_at


@pytest.mark.parametrize(
    ("line", "before", "after", "causes"),
    [
        ("P", None, 1, (1,)),
        ("V N P", None, 3, (3,)),
        ("V U", None, 1, (1, 2)),
        ("P P V N U", 2, 3, (3, 5)),
        ("P P V f2 U V", 2, 3, (4, 5)),
        ("P V V V P N P", 4, 5, (5, 7)),
        (FLAPPING, 5, 6, (6, 7)),
        (FLAPPING + " P V*6", 8, 9, (9, 14)),
        (FLAPPING + " P*30", 7, 8, (8, 37)),
        ("P P V r2 V=V", 2, 4, (2, 4)),
        ("P V V V r2 P=P", 4, 5, (4, 5)),
    ],
)
def test_a_change_lies_between_two_verdicts_and_names_its_causes(
    line: str, before: int | None, after: int, causes: tuple[int, ...]
) -> None:
    change = play(line)[1][-1]
    assert (change.before and change.before.id) == (before and UUID(int=before))
    assert change.after.id == UUID(int=after)
    assert change.causes == tuple(UUID(int=number) for number in causes)
    assert change.at == list(steps(line))[-1][0].observed_at


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("P V V", {}),
        ("P m2 V V", {"served_model": {"from": "m1", "to": "m2"}}),
        ("P V f2 V V", {}),
        ("P f2 V V", {"configuration": {"from": "f1", "to": "f2"}}),
        ("P r2 v2 V V", {"rules": {"from": 1, "to": 2}, "version": {"from": "v1", "to": "v2"}}),
        ("P r2 V=V", {"rules": {"from": 1, "to": 2}}),
        ("f1 V V f2 P P", {"configuration": {"from": "f1", "to": "f2"}}),
        ("m1 V f2 m2 V V", {}),
    ],
)
def test_what_else_changed_between_the_two(line: str, changed: dict[str, Any]) -> None:
    assert play(line)[1][-1].changed == changed


def test_only_what_both_are_known_to_have_is_said_to_differ() -> None:
    state, _ = confirm(NEVER, mark("P", 1, served_model=None))
    state, _ = confirm(state, mark("V", 2, version=None))
    _, change = confirm(state, mark("V", 3))
    assert change is not None
    assert change.changed == {}


@pytest.mark.parametrize(
    ("line", "askings"),
    [
        ("P V V", 12),
        ("P V V V N L", 9),
        ("P V V V*11", 1),
        ("P V V V*99", 0),
        ("P V V N P", 10),
        ("P V V P P", 0),
        ("V V V", 0),
        (FLAPPING, 12),
        (FLAPPING + " P*5", 7),
        (FLAPPING + " V*4", 8),
        ("P r2 V=V N", 11),
    ],
)
def test_twelve_askings_after_the_state_left_proven(line: str, askings: int) -> None:
    assert ASKINGS == 12
    assert play(line)[0].askings_left == askings


@pytest.mark.parametrize(
    ("line", "new", "earlier"),
    [
        ("", mark("V", 9, ruleset=2), None),
        ("P P", mark("V", 9, ruleset=2), 2),
        ("P P V", mark("V", 9, ruleset=2), 2),
        ("P P", mark("V", 9), None),
        ("P P", mark("P", 9, ruleset=2), None),
        ("P P", mark("N", 9, ruleset=2), None),
        ("P P", mark("L", 9, ruleset=2), None),
        ("P V V U P", mark("P", 9, ruleset=2), 4),
        (FLAPPING, mark("P", 99, ruleset=2), None),
    ],
)
def test_the_verdict_that_must_be_judged_again(line: str, new: Mark, earlier: int | None) -> None:
    assert to_judge_again(play(line)[0], new) == (earlier and UUID(int=earlier))


TOKENS = st.lists(
    st.sampled_from(
        ["P", "P", "V", "V", "U", "B", "L", "N", "f1", "f2", "r1", "r2", "V=V", "P=P", "P*31", "V*6", "+20h"]
    ),
    max_size=40,
)


@given(TOKENS)
def test_a_state_survives_its_storage(tokens: list[str]) -> None:
    state, _ = play(" ".join(tokens))
    assert confirmed_of(json.loads(json.dumps(confirmed_values(state)))) == state


@given(TOKENS, st.data())
def test_what_does_not_count_changes_nothing_wherever_it_comes(tokens: list[str], data: st.DataObject) -> None:
    counted = inserted = NEVER
    for verdict, judged, _, _ in steps(" ".join(tokens)):
        for letter in data.draw(st.sampled_from(["", "N", "L"])):
            at = verdict.observed_at - MINUTE
            inserted, nothing = confirm(inserted, mark(letter, 999, observed_at=at, fingerprint="f3", ruleset=3))
            assert nothing is None
        counted, change = confirm(counted, verdict, judged)
        inserted, same = confirm(inserted, verdict, judged)
        assert same == change
    assert replace(inserted, askings_left=0) == replace(counted, askings_left=0)
    assert inserted.askings_left <= counted.askings_left


@given(st.lists(st.sampled_from(["P", "V", "U", "L", "f1", "f2", "V*6"]), max_size=40), st.integers(0, 40))
def test_a_clock_that_is_set_back_changes_nothing_but_times(tokens: list[str], at: int) -> None:
    straight = state = NEVER
    for number, (verdict, *_) in enumerate(steps(" ".join(tokens))):
        off = timedelta(hours=1) if number >= at else timedelta()
        shifted = replace(verdict, observed_at=verdict.observed_at - off)
        if state.last is not None and state.last.observed_at >= shifted.observed_at:
            state = set_back(state, shifted.observed_at)
        straight, change = confirm(straight, verdict)
        state, same = confirm(state, shifted)
        assert (same and same.kind) == (change and change.kind)
        assert (state.run, state.run_first, state.proven) == (straight.run, straight.run_first, straight.proven)


def test_what_was_before_the_time_that_it_is_now_stays() -> None:
    state, _ = play("P V V +2h P")
    moved = set_back(state, NOW + timedelta(hours=2))
    assert state.last_good is not None
    assert moved.last_good is not None
    assert moved.last_good.observed_at == NOW + timedelta(hours=2) - timedelta(microseconds=1)
    assert replace(moved, last_good=None, first_good=None) == replace(state, last_good=None, first_good=None)
    assert set_back(NEVER, NOW) == NEVER


@given(TOKENS)
def test_regressed_from_the_change_out_of_proven_until_proven_again(tokens: list[str]) -> None:
    state, regressed = NEVER, False
    for verdict, judged, _, _ in steps(" ".join(tokens)):
        was = state.proven
        state, change = confirm(state, verdict, judged)
        left = was is True and state.proven is False
        regressed = (
            regressed or (left and change is not None and change.kind is not ChangeKind.RULES)
        ) and not state.proven
        assert state.regressed is regressed
        assert not (state.flapping and state.broken)
        assert not (state.flapping or state.broken) or state.regressed
        assert change is not None or state.proven is was


def alike(counted: list[Mark]) -> int:
    """How many of the last verdicts agree, proven or not, under one configuration."""
    last, run = counted[-1], 0
    for one in reversed(counted):
        proves = [verdict.outcome is Outcome.PROVEN for verdict in (one, last)]
        if proves[0] is not proves[1] or one.fingerprint != last.fingerprint:
            break
        run += 1
    return run


@given(TOKENS)
def test_it_takes_two_in_a_row_to_leave_proven_and_two_or_thirty_to_come_back(tokens: list[str]) -> None:
    """Told from the verdicts alone, of which those count that are neither unproven nor a rate limit."""
    state, counted = NEVER, list[Mark]()
    for verdict, judged, _, _ in steps(" ".join(tokens)):
        was = state
        state, change = confirm(state, verdict, judged)
        if verdict.outcome is Outcome.UNPROVEN or verdict.status == Status.RATE_LIMITED:
            assert (replace(state, askings_left=was.askings_left), change) == (was, None)
            continue
        counted.append(verdict)
        if change is None:
            continue
        proven = verdict.outcome is Outcome.PROVEN
        assert state.proven is proven
        match change.kind:
            case ChangeKind.FIRST:
                assert was.proven is None
                assert proven or alike(counted) >= 2
            case ChangeKind.REGRESSION | ChangeKind.FLAPPING:
                assert (was.proven, proven, alike(counted)) == (True, False, 2)
            case ChangeKind.RECOVERY:
                assert (was.proven, proven, alike(counted)) == (False, True, 2)
                assert (was.flapping, was.broken) == (False, False)
            case ChangeKind.BROKEN:
                assert (was.flapping, proven) == (True, False)
                assert alike(counted) >= 6
            case ChangeKind.SETTLED:
                assert was.flapping or was.broken
                assert (proven, alike(counted)) == (True, 30)
            case ChangeKind.RULES:
                assert judged is not None
                assert judged.outcome is not Outcome.UNPROVEN
                assert (change.announced, was.flapping, was.broken) == (False, False, False)


@given(TOKENS, st.randoms(use_true_random=False))
def test_what_comes_late_neither_announces_anything_nor_takes_anything_back(tokens: list[str], chance: Random) -> None:
    """Verdicts that come in any order do what those of them would have done alone that came in the order of time."""
    verdicts = [(verdict, judged) for verdict, judged, _, _ in steps(" ".join(tokens))]
    arriving = sorted(verdicts, key=lambda one: one[0].observed_at + chance.randrange(30) * MINUTE)
    state, in_time, found, expected, newest = NEVER, NEVER, [], [], NOW
    for verdict, judged in arriving:
        state, change = confirm(state, verdict, judged)
        found += [change] if change else []
        if verdict.outcome is Outcome.UNPROVEN or verdict.status == Status.RATE_LIMITED:
            continue
        if verdict.observed_at > newest:
            newest = verdict.observed_at
            in_time, change = confirm(in_time, verdict, judged)
            expected += [change] if change else []
    assert found == expected
    assert replace(state, askings_left=0) == replace(in_time, askings_left=0)


@pytest.mark.parametrize("values", [None, {}, {"a key of the next release": 1}])
def test_nothing_known_is_never_judged(values: dict[str, Any] | None) -> None:
    assert confirmed_of(values) == NEVER


@pytest.mark.parametrize("missing", [field.name for field in fields(Confirmed)])
def test_a_state_without_a_key_goes_on(missing: str) -> None:
    values = confirmed_values(play("P V V")[0]) | {"new": {"deep": [1]}}
    del values[missing]
    state = confirmed_of(values)
    assert getattr(state, missing) == getattr(NEVER, missing)
    for number in (10, 11):
        state, _ = confirm(state, mark("P", number))
    assert state.proven


@pytest.mark.parametrize("missing", [field.name for field in fields(Mark)])
def test_a_stored_verdict_may_lack_or_have_more_than_we_know(missing: str) -> None:
    values = confirmed_values(play("P")[0])
    values["last_good"]["new"] = 1
    del values["last_good"][missing]
    read = confirmed_of(values).last_good
    if missing in ("reason", "served_model", "version"):
        assert read == replace(mark("P", 1), **{missing: None})
    else:
        assert read is None


def test_a_status_of_another_release_counts_by_its_outcome() -> None:
    state, _ = confirm(NEVER, mark("P", 1))
    for number in (2, 3):
        state, change = confirm(state, mark("V", number, status="a_new_word", outcome=Outcome.VIOLATED))
    assert change is not None
    assert change.kind is ChangeKind.REGRESSION
