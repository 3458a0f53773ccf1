"""Two functions declared and both asked for come back as two whole calls in one turn.

Asked under `auto` with the flag that allows parallel calls; when that is refused, once more without the flag. One call
where two were asked for proves nothing: the model may have chosen so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from service.contracts.ladder import (
    TOOL,
    Ladder,
    LadderContract,
    LadderFacts,
    as_before,
    no_reason,
    shared_reason,
    shared_refusals,
    spent,
    undecided,
)
from service.model import Ask, Choice, Exchange, Message, Role, Route, Status, Tool
from service.rules import GATE, Rule
from service.seen import NO_CALL, Seen, see

WITH_FLAG, WITHOUT_FLAG = "auto", "auto_without_parallel_flag"

OTHER_TOOL = Tool(
    name="record_other_value_exactly_once",
    description="Records another short value. Call it once.",
    properties={"value": "string"},
    asked={"value": "ok"},
)


class ParallelToolCalls(LadderContract):
    name = "parallel_tool_calls"
    claim = "Two functions declared and both asked for come back as two whole calls in one turn."
    every = 12
    required = False
    max_requests = 5

    @property
    def rules(self) -> Sequence[Rule[Any]]:
        return RULES

    def _first(self, route: Route, nonce: str) -> Ask:
        text = (
            f'Call both functions, {TOOL.name} and {OTHER_TOOL.name}, each once with value "ok", in this one turn. '
            f"Do not answer in text. Reference {nonce}."
        )
        ask = Ask(
            rung=WITH_FLAG,
            messages=(Message(Role.USER, text),),
            tools=(TOOL, OTHER_TOOL),
            choice=Choice.AUTO,
            parallel=True,
        )
        return as_before(ask, route, None)

    def _climb(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        if last.ask.rung == WITH_FLAG and see(last) is Seen.REFUSED:
            return replace(last.ask, rung=WITHOUT_FLAG, parallel=None)
        return None

    def _quirks(self, route: Route, exchanges: Sequence[Exchange], facts: LadderFacts) -> frozenset[str]:
        quirks = super()._quirks(route, exchanges, facts)
        flag = facts.ladder.refusal(WITH_FLAG)
        taken = facts.ladder.seen(WITHOUT_FLAG) in (Seen.CALL, *NO_CALL)
        return quirks | {"parallel_flag_rejected"} if flag and not flag.could_pass and taken else quirks


def _calls(facts: LadderFacts) -> int:
    """How many whole calls the last answer brought."""
    exchange = facts.deciding
    if exchange is None or see(exchange) is not Seen.CALL or exchange.reading is None:
        return 0
    return len(exchange.reading.calls)


def _cut(facts: LadderFacts) -> bool:
    """Our own token cap ended the answer before a second whole call."""
    reading = facts.deciding.reading if facts.deciding else None
    return facts.seen is Seen.CUT or (_calls(facts) == 1 and reading is not None and reading.capped)


def _last(*words: Seen) -> Callable[[LadderFacts], bool]:
    return lambda facts: facts.seen in words


RULES: tuple[Rule[LadderFacts], ...] = (
    *GATE,
    Rule(
        "parallel_tool_calls.two_calls",
        lambda facts: _calls(facts) >= 2,
        Status.PARALLEL_CALLS_SUPPORTED,
        "Two whole calls with identities of their own came back in one turn.",
        no_reason,
    ),
    Rule(
        "parallel_tool_calls.one_call",
        lambda facts: _calls(facts) == 1 and not _cut(facts),
        Status.PARALLEL_CALLS_NOT_MADE,
        "Two calls were asked for and one came; the model may have chosen so.",
        no_reason,
    ),
    Rule(
        "parallel_tool_calls.leaked",
        _last(Seen.LEAK),
        Status.TOOL_CALL_LEAKED_AS_TEXT,
        "The markup of a call arrived as text, and no native call did: the serving side's parser is missing.",
    ),
    Rule(
        "parallel_tool_calls.cut_by_our_cap",
        _cut,
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Our own token cap cut the answer before two whole calls.",
        lambda _: "token_cap",
    ),
    Rule(
        "parallel_tool_calls.text_under_auto",
        _last(Seen.TEXT, Seen.SILENT),
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Under `auto` the model chose not to call.",
        lambda _: "text_under_auto",
    ),
    spent("parallel_tool_calls"),
    *shared_refusals("parallel_tool_calls", WITH_FLAG, WITHOUT_FLAG),
    Rule(
        "parallel_tool_calls.refused",
        _last(Seen.REFUSED),
        Status.PROVIDER_ERROR,
        "The request was refused with and without the flag, so the refusal says nothing of parallel calls.",
        shared_reason(WITH_FLAG, WITHOUT_FLAG),
    ),
    undecided("parallel_tool_calls"),
)
"""The table of this contract, common rules first."""
