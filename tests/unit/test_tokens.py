"""What a probe has spent: the provider's numbers, and ours where it gives none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.dialects import DIALECTS
from service.model import Body, End, Exchange, Reading
from service.tokens import Tokens, tokens_of
from tests.exchanges import ASK, ROUTE, call, early_end, html, json_body, no_answer, refused, silent, text, timed_out

ASKED = -(-len(DIALECTS[ROUTE.dialect].encode(ROUTE, ASK).body) // 4)
"""The request's bytes at four a token, rounded up."""


def streamed(events: int, deltas: int, size: int, **reading: int) -> Exchange:
    made = Reading(events=events, deltas=deltas, announced="stop", **reading)
    return Exchange(ask=ASK, end=End.ENOUGH, status=200, body=Body.EVENTS, reading=made, bytes_read=size)


CASES: dict[str, tuple[list[Exchange], Tokens]] = {
    "nothing asked": ([], Tokens(None, None, False)),
    "named": ([streamed(5, 3, 900, tokens_in=40, tokens_out=12)], Tokens(40, 12, False)),
    "named twice": ([streamed(5, 3, 900, tokens_in=40, tokens_out=12)] * 2, Tokens(80, 24, False)),
    "named as none": ([streamed(5, 3, 900, tokens_in=0, tokens_out=0)], Tokens(0, 0, False)),
    "not named": ([streamed(14, 12, 14 * 250)], Tokens(ASKED, 12, True)),
    "much in one event": ([streamed(1, 1, 2400)], Tokens(ASKED, 500, True)),
    "an empty answer": ([silent()], Tokens(ASKED, 0, True)),
    "half of it named": ([streamed(14, 12, 3500, tokens_in=40)], Tokens(40, 12, True)),
    "the other half named": ([streamed(14, 12, 3500, tokens_out=9)], Tokens(ASKED, 9, True)),
    "one of two named": ([streamed(5, 3, 9, tokens_in=40, tokens_out=12), text()], Tokens(40 + ASKED, 12 + 2, True)),
    "cut off": ([early_end()], Tokens(ASKED, 1, True)),
    "a stall": ([timed_out(status=200, headers_s=0.1, reading=Reading(events=2, deltas=2))], Tokens(ASKED, 2, True)),
    "a JSON completion": ([replace(json_body(), bytes_read=800)], Tokens(ASKED, 100, True)),
    "refused": ([refused(400)], Tokens(0, 0, False)),
    "refused, then answered": ([refused(400), call()], Tokens(ASKED, 2, True)),
    "refused inside the stream": ([replace(silent(), refusal=refused(500).refusal)], Tokens(0, 0, False)),
    "no answer": ([no_answer(), no_answer()], Tokens(0, 0, False)),
    "no headers": ([timed_out()], Tokens(0, 0, False)),
    "a page": ([html()], Tokens(0, 0, False)),
    "JSON that is no completion": ([json_body(completion=False)], Tokens(0, 0, False)),
}


@pytest.mark.parametrize(("exchanges", "tokens"), CASES.values(), ids=CASES)
def test_tokens_are_the_providers_numbers_or_estimated_and_marked(exchanges: list[Exchange], tokens: Tokens) -> None:
    assert tokens_of(ROUTE, exchanges) == tokens


def test_a_longer_request_counts_more() -> None:
    longer = replace(ASK, messages=(replace(ASK.messages[0], text="x" * 400),))
    assert tokens_of(ROUTE, [replace(text(), ask=longer)]).input == pytest.approx(ASKED + 100, abs=1)
