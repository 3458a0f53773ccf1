"""The short form of `scripts/fuzz.py`; its long runs and figures are in docs/judgment.md."""

from __future__ import annotations

import random

import pytest

from scripts import fuzz


def test_mutated_answers_break_no_promise() -> None:
    tally = fuzz.run(seconds=None, rounds=2000, seed=20260101)
    assert not tally.failures, tally.failures[0][:3000]
    assert len(tally.statuses) > 8, "the mutations reach too few verdicts to mean anything"


@pytest.mark.parametrize(
    ("body", "proof"),
    [
        (b'data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"record_probe_value_exactly_once","arguments":"{\\"value\\":\\"ok\\"}"}}]}}]}\n\ndata: [DONE]\n\n', True),
        (b'data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"record_probe_value_exactly_once","arguments":"{\\"value\\":\\"ok\\"}"}}]}}]}\n\n', False),
        (b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n', False),
        (b"data: [DONE]\n\n", False),
    ],
)  # fmt: skip
def test_the_naive_oracle_tells_calls_from_none(body: bytes, proof: bool) -> None:
    assert fuzz.naive_proof(body) is proof


def test_mutations_differ_from_their_source() -> None:
    dice, body = random.Random(1), b"data: {}\n\n" * 20
    assert sum(fuzz.mutate(body, [body], dice) != body for _ in range(100)) > 50
