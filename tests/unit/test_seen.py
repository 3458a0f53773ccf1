"""How one exchange reads, in one word: what is said first is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.model import Body, Call, End, Exchange, Reading, Refusal, Refused
from service.seen import ACCEPTED, NO_CALL, Seen, reason_of, refusal_of, see
from tests.exchanges import (
    ASK,
    bad_call,
    broken,
    call,
    cut,
    declared_malformed,
    early_end,
    filtered,
    html,
    json_body,
    late_error,
    leak,
    no_answer,
    refused,
    silent,
    text,
    timed_out,
)

ERROR = Refusal(status=429, kind=Refused.RATE, hint=Refused.RATE, reason="http_429")
GOOD, BAD = Call(), Call("arguments_truncated", cut=True)
WRONG = Call("name_not_declared")


def streamed(end: End = End.COMPLETE, **reading: object) -> Exchange:
    return Exchange(ask=ASK, end=end, status=200, body=Body.EVENTS, reading=Reading(**reading), headers_s=0.1)  # type: ignore[arg-type]


CASES: tuple[tuple[str, Exchange, Seen, str | None], ...] = (
    ("a whole call", call(), Seen.CALL, None),
    ("a whole call, read to its end", call(end=End.COMPLETE), Seen.CALL, None),
    ("a whole call, announced before our deadline", call(end=End.DEADLINE), Seen.CALL, None),
    ("a whole call, announced before a reset", call(end=End.RESET), Seen.CALL, None),
    ("a whole call, announced before our cap", call(end=End.CAP), Seen.CALL, None),
    ("text", text(), Seen.TEXT, None),
    ("nothing", silent(), Seen.SILENT, None),
    ("a leak", leak("kimi"), Seen.LEAK, "kimi"),
    ("a leak under our token cap", leak("kimi"), Seen.LEAK, "kimi"),
    ("a cut", cut(), Seen.CUT, "token_cap"),
    ("a bad call", bad_call(), Seen.BAD_CALL, "arguments_truncated"),
    ("a bad call under our token cap", bad_call(capped=True), Seen.CUT, "token_cap"),
    (
        "a call whose name is wrong, under our token cap",
        bad_call(calls=(WRONG,), capped=True),
        Seen.BAD_CALL,
        "name_not_declared",
    ),
    (
        "a cut call beside a wrong one, under our token cap",
        bad_call(calls=(BAD, WRONG), capped=True),
        Seen.BAD_CALL,
        "name_not_declared",
    ),
    ("a good call beside a bad one", bad_call(calls=(GOOD, BAD)), Seen.BAD_CALL, "arguments_truncated"),
    ("two good calls", streamed(calls=(GOOD, GOOD), announced="tool_calls"), Seen.CALL, None),
    ("a whole call under our token cap", streamed(calls=(GOOD,), announced="length", capped=True), Seen.CALL, None),
    ("a call beside a leak", streamed(calls=(GOOD,), announced="stop", leak="kimi"), Seen.CALL, None),
    (
        "no announced end, though the call looks whole",
        streamed(calls=(GOOD,), events=2),
        Seen.EARLY_END,
        "closed_before_event",
    ),
    ("closed behind an event", early_end(), Seen.EARLY_END, "closed_after_event"),
    ("closed before the body was whole", early_end(end=End.CLOSED), Seen.EARLY_END, "closed_after_event"),
    ("reset behind an event", early_end(end=End.RESET), Seen.EARLY_END, "reset_after_event"),
    ("reset before any event", early_end(end=End.RESET, first_event_s=None), Seen.EARLY_END, "reset_before_event"),
    (
        "an empty body that was called an event stream",
        Exchange(ask=ASK, end=End.COMPLETE, status=200, reading=Reading()),
        Seen.EARLY_END,
        "closed_before_event",
    ),
    (
        "an empty body",
        Exchange(ask=ASK, end=End.COMPLETE, status=200, reading=Reading(), labelled_events=False),
        Seen.EARLY_END,
        "empty",
    ),
    (
        "an empty body that was reset",
        Exchange(ask=ASK, end=End.RESET, status=200, reading=Reading(), labelled_events=False),
        Seen.EARLY_END,
        "reset_before_event",
    ),
    ("broken framing", broken(), Seen.BROKEN, "data_not_json"),
    (
        "broken framing outranks an announced end",
        streamed(broken="x", announced="stop", calls=(GOOD,)),
        Seen.BROKEN,
        "x",
    ),
    (
        "an encoding that lies",
        Exchange(ask=ASK, end=End.ENOUGH, status=200, body=Body.UNREADABLE),
        Seen.BROKEN,
        "content_encoding",
    ),
    ("one JSON completion", json_body(), Seen.JSON, "json_completion"),
    ("one JSON body", json_body(completion=False), Seen.JSON, "json_body"),
    (
        "a JSON body that was cut",
        replace(json_body(completion=False), end=End.RESET),
        Seen.EARLY_END,
        "reset_before_event",
    ),
    ("a whole JSON completion, then a reset", replace(json_body(), end=End.RESET), Seen.JSON, "json_completion"),
    ("a page", html(), Seen.HTML, "html_page"),
    ("declared malformed", declared_malformed(), Seen.DECLARED_MALFORMED, "provider_declared_malformed"),
    (
        "declared malformed, whatever call came with it",
        streamed(announced="x", declared_malformed=True, calls=(GOOD,)),
        Seen.DECLARED_MALFORMED,
        "provider_declared_malformed",
    ),
    ("filtered", filtered(), Seen.FILTERED, None),
    ("a filter's end with a call", streamed(announced="content_filter", filtered=True, calls=(GOOD,)), Seen.CALL, None),
    ("no answer", no_answer("dns"), Seen.NO_HTTP, "dns"),
    ("no headers", timed_out(), Seen.TIMEOUT, "no_headers"),
    ("no event", timed_out(status=200, headers_s=0.1), Seen.TIMEOUT, "no_event"),
    ("stalled", timed_out(status=200, headers_s=0.1, first_event_s=0.2), Seen.TIMEOUT, "stalled"),
    ("a stalled error body", timed_out(status=400, headers_s=0.1), Seen.TIMEOUT, "stalled"),
    (
        "deltas still flowed",
        timed_out(status=200, headers_s=0.1, first_event_s=0.2, flowing=True),
        Seen.OWN_CAP,
        "deadline",
    ),
    ("our cap on bytes", streamed(End.CAP, events=9), Seen.OWN_CAP, "bytes"),
    ("our cap outranks broken framing", streamed(End.CAP, broken="x"), Seen.OWN_CAP, "bytes"),
    ("cancelled", Exchange(ask=ASK, end=End.CANCELLED), Seen.CANCELLED, None),
    ("refused", refused(400), Seen.REFUSED, "http_400"),
    ("refused in stream", streamed(error=ERROR), Seen.REFUSED, "http_429"),
    (
        "an error outranks an announced end",
        streamed(error=ERROR, announced="stop", calls=(GOOD,)),
        Seen.REFUSED,
        "http_429",
    ),
    ("an error behind a delta", late_error(), Seen.LATE_ERROR, "http_502"),
    (
        "an error behind a delta outranks the call",
        streamed(error=ERROR, error_after_delta=True, announced="tool_calls", calls=(GOOD,)),
        Seen.LATE_ERROR,
        "http_429",
    ),
    ("an error outranks our deadline", streamed(End.DEADLINE, error=ERROR), Seen.REFUSED, "http_429"),
    ("an error outranks our cap", streamed(End.CAP, error=ERROR), Seen.REFUSED, "http_429"),
    ("an error outranks broken framing", streamed(error=ERROR, broken="x"), Seen.REFUSED, "http_429"),
)


@pytest.mark.parametrize(("exchange", "word", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_exchange_reads_as(exchange: Exchange, word: Seen, reason: str | None) -> None:
    assert see(exchange) is word
    assert reason_of(exchange) == reason


def test_every_word_has_a_case() -> None:
    assert {case[2] for case in CASES} == set(Seen)


def test_what_was_accepted_announced_its_end() -> None:
    for _, exchange, word, _ in CASES:
        if word in ACCEPTED:
            assert exchange.reading is not None
            assert exchange.reading.announced
            assert refusal_of(exchange) is None


def test_no_call_is_a_part_of_what_was_accepted() -> None:
    assert NO_CALL < ACCEPTED
    assert Seen.CALL not in NO_CALL
    assert Seen.BAD_CALL not in NO_CALL


def test_a_call_is_never_seen_from_a_finish_reason_alone() -> None:
    assert see(streamed(announced="tool_calls")) is Seen.SILENT


def test_the_refusal_is_the_answers_or_the_streams() -> None:
    assert refusal_of(call()) is None
    assert refusal_of(no_answer()) is None
    assert refusal_of(streamed(error=ERROR)) is ERROR
    assert refusal_of(refused(403)) is not None
