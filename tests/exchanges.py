"""Hand-made exchanges: what a ladder is tested with when no socket is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.contracts import Contract
from service.contracts.native_tools import TOOL
from service.model import (
    Ask,
    Body,
    Call,
    Choice,
    End,
    Exchange,
    Message,
    PastCall,
    Reading,
    Refusal,
    Refused,
    Replay,
    Route,
)

ROUTE = Route(id="r", name="r", provider="p", dialect="openai-chat", base_url="http://127.0.0.1:1/v1", model="m")

ASK = Ask(rung="forced", messages=(Message("user", "x"),), tools=(TOOL,), choice=Choice.FORCED)


def _streamed(reading: Reading, **fields: Any) -> Exchange:
    given: dict[str, Any] = {
        "end": End.ENOUGH,
        "status": 200,
        "body": Body.EVENTS,
        "headers_s": 0.1,
        "first_event_s": 0.1,
    }
    return Exchange(ask=ASK, reading=reading, **{**given, **fields})


def call(**fields: Any) -> Exchange:
    return _streamed(Reading(events=3, deltas=2, calls=(Call(),), announced="tool_calls"), **fields)


def called(count: int = 1, **reading: Any) -> Exchange:
    """Whole calls with the message that they came in, as a later request replays it."""
    made = Reading(events=3, deltas=2, calls=(Call(),) * count, announced="tool_calls", **reading)
    calls = tuple(PastCall(f"own_{number}", TOOL.name, '{"value":"ok"}') for number in range(1, count + 1))
    return _streamed(made, replay=Replay(calls, {"role": "assistant", "own": True}))


def bad_call(problem: str = "arguments_truncated", **reading: Any) -> Exchange:
    given: dict[str, Any] = {"events": 3, "deltas": 2, "calls": (Call(problem, cut=True),), "announced": "tool_calls"}
    return _streamed(Reading(**{**given, **reading}))


def text(**reading: Any) -> Exchange:
    return _streamed(Reading(events=3, deltas=2, has_text=True, announced="stop", **reading))


def silent(**reading: Any) -> Exchange:
    return _streamed(Reading(events=1, announced="stop", **reading))


def leak(family: str = "kimi") -> Exchange:
    return text(leak=family)


def cut(*, has_text: bool = False) -> Exchange:
    return _streamed(Reading(events=3, deltas=2, has_text=has_text, announced="length", capped=True))


def early_end(**fields: Any) -> Exchange:
    return _streamed(Reading(events=1, deltas=1), **{"end": End.COMPLETE, **fields})


def broken() -> Exchange:
    return _streamed(Reading(events=1, broken="data_not_json"))


def filtered() -> Exchange:
    return _streamed(Reading(events=2, announced="content_filter", filtered=True))


def declared_malformed() -> Exchange:
    return _streamed(Reading(events=2, announced="malformed_function_call", declared_malformed=True))


def late_error(kind: Refused | None = None) -> Exchange:
    error = Refusal(status=502, kind=kind, hint=kind, reason="http_502", could_pass=kind is None)
    return _streamed(Reading(events=3, deltas=2, error=error, error_after_delta=True))


def refused(status: int = 400, kind: Refused | None = None, hint: Refused | None = None, **refusal: Any) -> Exchange:
    made = Refusal(
        status=status,
        kind=kind,
        hint=kind or hint,
        reason=f"http_{status}",
        could_pass=kind is None and status >= 500,
        **refusal,
    )
    return Exchange(ask=ASK, end=End.COMPLETE, status=status, body=Body.JSON, refusal=made, headers_s=0.1)


def no_answer(fault: str = "refused") -> Exchange:
    return Exchange(ask=ASK, end=End.NO_ANSWER, fault=fault)


def timed_out(**fields: Any) -> Exchange:
    return Exchange(ask=ASK, end=End.DEADLINE, **fields)


def html(status: int = 200) -> Exchange:
    return Exchange(ask=ASK, end=End.COMPLETE, status=status, body=Body.HTML, headers_s=0.1)


def json_body(*, completion: bool = True) -> Exchange:
    return Exchange(ask=ASK, end=End.COMPLETE, status=200, body=Body.JSON, completion=completion, headers_s=0.1)


def to(ask: Ask, exchange: Exchange) -> Exchange:
    """The same answer, to another ask."""
    other = exchange.other_cap_field if ask.tokens_field is None else None
    return replace(exchange, ask=ask, other_cap_field=other)


Script = Mapping[str, Sequence[Exchange] | Exchange]
"""The answers to each rung, one after the other; the last one of a row repeats."""


def climb(contract: Contract, script: Script, route: Route = ROUTE) -> list[Exchange]:
    """Answer each ask from the script: by rung, `rung/no_options` and `rung/max_completion_tokens` when there is one."""
    exchanges: list[Exchange] = []
    used: dict[str, int] = {}
    while (ask := contract.next_ask(route, "bcdfgh", exchanges)) is not None:
        keys = [f"{ask.rung}/no_options"] * (not ask.include_usage) + [
            f"{ask.rung}/{ask.tokens_field or 'max_tokens'}",
            ask.rung,
        ]
        key = next(key for key in keys if key in script)
        row = script[key]
        answers = [row] if isinstance(row, Exchange) else list(row)
        exchanges.append(to(ask, answers[min(used.get(key, 0), len(answers) - 1)]))
        used[key] = used.get(key, 0) + 1
    return exchanges


R4, R5, R503 = refused(400), refused(500), refused(503, hint=Refused.OVERLOAD)

ANSWERS: list[Callable[[], Exchange]] = [
    called, bad_call, text, silent, leak, cut, early_end, broken, filtered, declared_malformed, late_error,
    lambda: R4, lambda: R5, lambda: R503, lambda: refused(401, Refused.CREDENTIAL), no_answer, timed_out, html, json_body,
]  # fmt: skip
"""One of each kind of answer that there is."""
