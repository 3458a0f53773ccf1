"""Stored facts give the same verdict again, on their own; and what would read differently now is counted."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from service import rejudge_report
from service.contracts import CONTRACTS, Contract, native_tools
from service.facts import Lack, record
from service.model import Body, End, Exchange, Refused, Route, Secret, Status, TokenCap
from service.redact import Redactor
from service.rejudge import Change, Judged, Recorded, Tally, Words, judge_again, try_again
from service.rules import GATE, Circumstances
from tests.exchanges import ANSWERS, R4, R5, ROUTE, call, called, early_end, no_answer, refused, text, timed_out, to

PLAIN = Circumstances()
KEY = "sk-test-Zq8/Tr+4vB1=xN7m"
REDACTOR = Redactor([Secret(KEY)])
FLAGS = replace(ROUTE, parallel_tool_calls=False)
REQUIRED = refused(400, text="The `reasoning_content` in the thinking mode must be passed back to the API.")
INVALID = refused(400, text="Invalid `signature` in `thinking` block")
OPTIONS = refused(400, names_stream_options=True)
EMPTY = replace(early_end(), body=Body.NONE, reading=None, first_event_s=None)
CAP = replace(refused(400, Refused.TOKEN_CAP), other_cap_field="max_completion_tokens")


def whole(text: str, limit: int) -> str:
    """In place of redaction, where there is nothing to redact."""
    return text


def asked(contract: Contract, answers: Sequence[Exchange], route: Route = ROUTE) -> list[Exchange]:
    """What comes of a ladder when these are the answers, one after the other; the last one repeats."""
    exchanges: list[Exchange] = []
    while (ask := contract.next_ask(route, "bcdfgh", exchanges)) is not None:
        exchanges.append(to(ask, answers[min(len(exchanges), len(answers) - 1)]))
    return exchanges


def ladders(contract: Contract, answers: Sequence[Exchange], first: int, route: Route = ROUTE) -> list[list[Exchange]]:
    """All ladders that differ when any of these is the first answer, the second one … and then the last one repeats."""
    each = {str(found): found for row in product(answers, repeat=first) if (found := asked(contract, row, route))}
    return list(each.values())


def stored(
    route: Route,
    exchanges: Sequence[Exchange],
    circumstances: Circumstances = PLAIN,
    redact: Callable[[str, int], str] = whole,
) -> Any:
    """The facts as they come back from the database."""
    return json.loads(json.dumps(record(route, exchanges, circumstances, redact)))


def assert_the_same(
    contract: Contract, route: Route, exchanges: Sequence[Exchange], circumstances: Circumstances = PLAIN
) -> None:
    conclusion, quirks = contract.conclude(route, exchanges, circumstances)
    again = try_again(contract.name, stored(route, exchanges, circumstances))
    assert again == Judged(conclusion, tuple(sorted(quirks))), [exchange.ask.rung for exchange in exchanges]


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_verdict_is_the_same_again_whatever_was_answered(name: str) -> None:
    contract, seen = CONTRACTS[name], set()
    for exchanges in ladders(contract, [make() for make in ANSWERS], first=2):
        assert_the_same(contract, ROUTE, exchanges)
        seen.add(contract.conclude(ROUTE, exchanges, PLAIN)[0].rule_id)
    assert len(seen) > 12, f"the answers reach too few rules to mean anything: {seen}"


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_spent_bound_is_seen_again_without_the_messages_that_the_next_request_would_have_had(name: str) -> None:
    contract, seen = CONTRACTS[name], set()
    late = Circumstances(out_of_time=True)
    for exchanges in ladders(contract, [R4, R5, called(2), text()], first=4, route=FLAGS):
        for length in range(1, len(exchanges) + 1):
            assert_the_same(contract, FLAGS, exchanges[:length], late)
            seen.add(contract.conclude(FLAGS, exchanges[:length], late)[0].status)
    assert Status.PROBE_CAP_REACHED in seen
    assert len(seen) > 2


# name: (answers, route, circumstances, what the verdict says; None: no reason)
SPECIAL: dict[str, tuple[list[Exchange], Route, Circumstances, tuple[str, str | None]]] = {
    "nothing was sent": ([], ROUTE, Circumstances(unsent="credential_missing"), ("not_sent", "credential_missing")),
    "our own network was down": ([no_answer()], ROUTE, Circumstances(egress_up=False), ("own_network", "refused")),
    "our own network was up": ([no_answer()], ROUTE, Circumstances(egress_up=True), ("unreachable", "refused")),
    "no headers": ([timed_out()], ROUTE, PLAIN, ("timeout", "no_headers")),
    "no event": ([timed_out(status=200, headers_s=0.1)], ROUTE, PLAIN, ("timeout", "no_event")),
    "stalled": ([timed_out(status=200, headers_s=0.1, first_event_s=0.2)], ROUTE, PLAIN, ("timeout", "stalled")),
    "deltas still flowed": ([timed_out(flowing=True, headers_s=0.1)], ROUTE, PLAIN, ("probe_cap_reached", "deadline")),
    "our own cap on bytes": ([replace(timed_out(), end=End.CAP)], ROUTE, PLAIN, ("probe_cap_reached", "bytes")),
    "our own load": ([timed_out(own_lag=True)], ROUTE, PLAIN, ("prober_overloaded", "event_loop_lag")),
    "from a cache": ([call(cached=True)], ROUTE, PLAIN, ("answered_from_cache", None)),
    "an empty body": ([replace(EMPTY, labelled_events=False)], ROUTE, PLAIN, ("stream_early_eof", "empty")),
    "an empty stream": ([EMPTY], ROUTE, PLAIN, ("stream_early_eof", "closed_before_event")),
    "reset after an event": ([early_end(end=End.RESET)], ROUTE, PLAIN, ("stream_early_eof", "reset_after_event")),
    "a configured token cap": ([CAP], replace(ROUTE, token_cap=TokenCap(field="max_tokens")), PLAIN, ("token_cap_rejected", "http_400")),
    "the other token-cap field": ([CAP, called(), text()], ROUTE, PLAIN, ("turn_completed", None)),
    "no stream_options": ([OPTIONS, called(), text()], ROUTE, PLAIN, ("turn_completed", None)),
    "no stream_options as configured": ([OPTIONS], replace(ROUTE, include_usage=False), PLAIN, ("provider_error", "http_400")),
    "replayed reasoning is missed": ([called(), REQUIRED], ROUTE, PLAIN, ("history_rejected", "reasoning_replay_required")),
    "replayed reasoning isn't taken": ([called(), INVALID], ROUTE, PLAIN, ("history_rejected", "reasoning_replay_invalid")),
    "another model answered": ([called(), text(served_model="other")], ROUTE, PLAIN, ("turn_completed", None)),
    "a name that is expected": ([called(), text(served_model="x9")], replace(ROUTE, served_model_pattern="x."), PLAIN, ("turn_completed", None)),
    "oddities of the answer": ([called(), text(quirks=frozenset({"done_missing", "index_missing"}))], ROUTE, PLAIN, ("turn_completed", None)),
    "too long to replay": ([call()], ROUTE, PLAIN, ("probe_cap_reached", "bytes")),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_what_only_one_fact_tells_is_kept(name: str) -> None:
    answers, route, circumstances, said = SPECIAL[name]
    contract = CONTRACTS["agent_turn"]
    exchanges = asked(contract, answers, route) if answers else []
    conclusion, _ = contract.conclude(route, exchanges, circumstances)
    assert (conclusion.status, conclusion.reason) == said
    assert_the_same(contract, route, exchanges, circumstances)


def test_a_parallel_flag_of_the_route_is_kept() -> None:
    exchanges = asked(CONTRACTS["native_tools"], [R4, R4, text(), call()], FLAGS)
    assert [exchange.ask.rung for exchange in exchanges][-1] == "auto_without_parallel_flag"
    for length in range(1, 5):
        assert_the_same(CONTRACTS["native_tools"], FLAGS, exchanges[:length], Circumstances(out_of_time=True))


def test_no_text_and_no_key_is_in_the_facts() -> None:
    said = refused(400, text=f"MARKER says {KEY}", code=f"code {KEY}")
    exchanges = asked(CONTRACTS["agent_turn"], [called(served_model=f"m {KEY}"), said])
    shown = json.dumps(stored(replace(ROUTE, model=f"model-{KEY}"), exchanges, redact=REDACTOR.text))
    assert "MARKER" not in shown
    assert KEY not in shown
    assert "code" in shown


# --- what can't be judged again ---


@pytest.mark.parametrize(
    ("route", "served_model"),
    [
        pytest.param(ROUTE, f"m {KEY}", id="a served name with a key in it"),
        pytest.param(ROUTE, "m" * 101, id="a served name that is too long to be kept"),
        pytest.param(ROUTE, "m\u200b", id="a served name with invisible characters"),
        pytest.param(replace(ROUTE, model=f"m-{KEY}"), "m", id="a configured name with a key in it"),
        pytest.param(replace(ROUTE, served_model_pattern=f"(m|{KEY})"), "m", id="a pattern with a key in it"),
    ],
)
def test_names_that_redaction_changed_are_not_compared(route: Route, served_model: str) -> None:
    facts = stored(
        route, asked(CONTRACTS["native_tools"], [called(served_model=served_model)], route), redact=REDACTOR.text
    )
    assert try_again("native_tools", facts) is Lack.NAMES_REDACTED
    assert judge_again("native_tools", facts) is None


def test_a_contract_that_nobody_asks_is_not_judged() -> None:
    facts = stored(ROUTE, asked(CONTRACTS["native_tools"], [call()]))
    assert isinstance(try_again("native_tools", facts), Judged)
    assert try_again("native_tool", facts) is Lack.UNKNOWN_CONTRACT
    assert judge_again("native_tool", facts) is None


def test_a_verdict_whose_details_were_left_out_is_not_judged() -> None:
    assert try_again("native_tools", {}) is Lack.NO_FACTS


def test_words_of_a_version_to_come_are_not_guessed_at() -> None:
    facts = stored(ROUTE, asked(CONTRACTS["native_tools"], [call()]))
    facts["exchanges"][0]["end"] = "teleported"
    assert try_again("native_tools", facts) is Lack.TOO_NEW


def test_facts_that_a_version_to_come_added_are_left_aside() -> None:
    facts = stored(ROUTE, asked(CONTRACTS["native_tools"], [call()]))
    for place in (facts, facts["exchanges"][0], facts["exchanges"][0]["reading"], facts["route"]):
        place["colour"] = "blue"
    judged = judge_again("native_tools", facts)
    assert judged is not None
    assert judged.conclusion.rule_id == "native_tools.forced_call"


FULL = stored(ROUTE, asked(CONTRACTS["agent_turn"], [called(), R5, called()]))
"""The first exchange has a call, the second one a refusal."""


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        if isinstance(key, str):
            yield (*path, key)
        yield from paths(item, (*path, key))


@pytest.mark.parametrize("path", list(paths(FULL)), ids=lambda path: ".".join(map(str, path)))
def test_a_fact_that_was_not_recorded_is_not_guessed(path: tuple[str | int, ...]) -> None:
    facts = json.loads(json.dumps(FULL))
    place = facts
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    assert try_again("agent_turn", facts) is Lack.TOO_OLD


# --- what would read differently now ---

AT = datetime(2026, 3, 9, 3, 12, 7, tzinfo=UTC)


def row(number: int, answers: Sequence[Exchange], **changes: Any) -> Recorded:
    """A stored verdict of `native_tools`, with what the rules of today make of it."""
    contract = CONTRACTS["native_tools"]
    exchanges = asked(contract, answers)
    conclusion, quirks = contract.conclude(ROUTE, exchanges, PLAIN)
    made = Recorded(
        id=UUID(int=number),
        contract="native_tools",
        status=conclusion.status.value,
        rule_id=conclusion.rule_id,
        reason=conclusion.reason,
        quirks=tuple(sorted(quirks)),
        observed_at=AT + timedelta(minutes=number),
        facts=stored(ROUTE, exchanges),
    )
    return replace(made, **changes)


def test_verdicts_under_the_same_rules_read_the_same() -> None:
    tally = Tally()
    for number, make in enumerate(ANSWERS):
        tally.add(row(number, [make()]))
    assert (tally.same, tally.changed, tally.read) == (len(ANSWERS), 0, len(ANSWERS))


def test_a_new_rule_shows_in_the_verdicts_that_it_would_change_and_in_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(number, [call()]) for number in range(5)] + [row(9, [text()])]
    stricter = replace(native_tools.RULES[-1], id="native_tools.stricter", when=lambda facts: facts.seen == "call")
    monkeypatch.setattr(native_tools, "RULES", (*GATE, stricter, *native_tools.RULES))
    tally = Tally()
    for one in reversed(rows):
        tally.add(one)
    ((change, changed),) = tally.most_first()
    assert change == Change(
        contract="native_tools",
        then=Words("tools_supported", "native_tools.forced_call", None),
        now=Words("inconclusive_no_tool_call", "native_tools.stricter", "undecided"),
        quirks_gained=(),
        quirks_lost=(),
    )
    assert (changed.count, changed.first_at, changed.last_at) == (5, rows[0].observed_at, rows[4].observed_at)
    assert changed.examples == [UUID(int=4), UUID(int=3), UUID(int=2)]
    assert (tally.same, tally.changed, tally.read) == (1, 5, 6)


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"status": "turn_completed"}, lambda change: change.then.status == "turn_completed"),
        ({"rule_id": "native_tools.gone"}, lambda change: change.then.rule_id == "native_tools.gone"),
        ({"reason": "old_word"}, lambda change: (change.then.reason, change.now.reason) == ("old_word", None)),
        ({"quirks": ("flaky",)}, lambda change: (change.quirks_gained, change.quirks_lost) == ((), ("flaky",))),
    ],
)
def test_each_word_of_a_verdict_counts(changes: dict[str, Any], differs: Callable[[Change], bool]) -> None:
    tally = Tally()
    tally.add(row(1, [call()], **changes))
    ((change, _),) = tally.most_first()
    assert differs(change)


def test_a_quirk_that_is_seen_now_counts_too() -> None:
    tally = Tally()
    tally.add(row(1, [called(quirks=frozenset({"done_missing"}))], quirks=()))
    ((change, _),) = tally.most_first()
    assert (change.then, change.quirks_gained, change.quirks_lost) == (change.now, ("done_missing",), ())


def test_what_most_verdicts_would_do_comes_first_and_what_cannot_be_judged_is_counted_by_reason() -> None:
    tally = Tally()
    tally.add(row(1, [call()], reason="a"))
    tally.add(row(2, [call()], reason="b"))
    tally.add(row(3, [call()], reason="b"))
    tally.add(row(4, [call()], facts={}))
    tally.add(row(5, [call()], facts={"exchanges": []}))
    tally.add(row(6, [call()], facts={"exchanges": []}))
    assert [(change.then.reason, changed.count) for change, changed in tally.most_first()] == [("b", 2), ("a", 1)]
    assert tally.not_judged == {Lack.NO_FACTS: 1, Lack.TOO_OLD: 2}
    assert (tally.same, tally.changed, tally.read) == (0, 3, 6)


# --- shown ---

OLD = {"status": "turn_completed", "reason": "old_word", "quirks": ("flaky",)}


def printed(tally: Tally, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()
    rejudge_report.print_text(tally, out)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def mixed() -> Tally:
    tally = Tally()
    for made in (row(0, [call()], **OLD), row(90, [call()], **OLD), row(3, [R4, call()], rule_id="native_tools.gone")):
        tally.add(made)
    for made in (row(4, [call()]), row(5, [call()], facts={}), row(6, [call()], contract="gone")):
        tally.add(made)
    return tally


def test_changes_are_shown_with_what_was_said_and_what_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        printed(mixed(), 100, monkeypatch)
        == """\
native_tools  2 verdicts
  from turn_completed · old_word  native_tools.forced_call
  to   tools_supported  native_tools.forced_call
  quirks lost: flaky
  observed from 2026-03-09 03:12 UTC to 2026-03-09 04:42 UTC
  such as 00000000-0000-0000-0000-000000000000, 00000000-0000-0000-0000-00000000005a
native_tools  1 verdict
  from forced_tool_choice_rejected · http_400  native_tools.gone
  to   forced_tool_choice_rejected · http_400  native_tools.forced_rejected
  observed 2026-03-09 03:15 UTC
  such as 00000000-0000-0000-0000-000000000003
2 verdicts can't be judged again:
  1: no facts were stored with them
  1: this version has no such contract
4 verdicts judged again: 3 would read differently."""
    )


def test_a_narrow_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(mixed(), 44, monkeypatch)
    assert max(map(len, shown.splitlines())) <= 44
    assert " ".join(shown.split()) == " ".join(printed(mixed(), 100, monkeypatch).split())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "There are no stored verdicts here."),
        ([row(1, [call()])], "1 verdict judged again: all read the same."),
        ([row(1, [call()]), row(2, [R4])], "2 verdicts judged again: all read the same."),
        ([row(1, [call()], facts={})], "No stored verdict could be judged again."),
    ],
)
def test_the_last_line_says_what_came_of_it(rows: list[Recorded], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    for one in rows:
        tally.add(one)
    assert printed(tally, 100, monkeypatch).splitlines()[-1] == said


def test_machines_get_every_word() -> None:
    shown = json.loads(rejudge_report.as_json(mixed()))
    assert (shown["read"], shown["same"], shown["changed"]) == (6, 1, 3)
    assert shown["not_judged"] == {"no_facts": 1, "unknown_contract": 1}
    assert shown["changes"][0] == {
        "contract": "native_tools",
        "count": 2,
        "from": {"status": "turn_completed", "rule_id": "native_tools.forced_call", "reason": "old_word"},
        "to": {"status": "tools_supported", "rule_id": "native_tools.forced_call", "reason": None},
        "quirks_gained": [],
        "quirks_lost": ["flaky"],
        "first_at": "2026-03-09T03:12:07+00:00",
        "last_at": "2026-03-09T04:42:07+00:00",
        "examples": [str(UUID(int=0)), str(UUID(int=90))],
    }


def test_every_reason_not_to_judge_has_words() -> None:
    assert set(rejudge_report._LACKS) == set(Lack)
