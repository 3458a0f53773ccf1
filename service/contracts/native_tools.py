"""A streamed completion with a `tools` payload returns a whole native tool call.

The ladder: a forced, named choice; the same under `auto` when forcing was refused or ignored; a control without any
tools when both were refused. A healthy route costs one request. A refusal that could pass (a 5xx without a settling
code) only counts after the same request, asked again once something else was answered, was refused again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.contracts.ladder import (
    TOOL,
    Ladder,
    LadderContract,
    LadderFacts,
    as_before,
    no_reason,
    on,
    refusal_reason,
    shared_reason,
    shared_refusals,
    spent,
    undecided,
)
from service.model import Ask, Choice, Exchange, Message, Role, Route, Status
from service.rules import GATE, Rule
from service.seen import ACCEPTED, NO_CALL, Seen, refusal_of, see

FORCED, AUTO, CONTROL = "forced", "auto", "control"
WITHOUT_FLAG = "auto_without_parallel_flag"


class NativeTools(LadderContract):
    name = "native_tools"
    claim = "A streamed completion with a tools payload returns a whole native tool call."
    every = 1
    required = True
    max_requests = 5
    controls = frozenset({CONTROL})

    @property
    def rules(self) -> Sequence[Rule[Any]]:
        return RULES

    def _first(self, route: Route, nonce: str) -> Ask:
        return _ask(route, FORCED, nonce, None)

    def _without_stream_options(self, route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
        """A refusal that names stream_options gets the control without it, and if that is answered the ladder again."""
        last = exchanges[-1]
        tried = [exchange for exchange in exchanges if not exchange.ask.include_usage]
        refusal = refusal_of(last)
        if refusal is not None and refusal.names_stream_options and route.include_usage and not tried:
            return replace(_ask(route, CONTROL, nonce, last), include_usage=False)
        if len(tried) == 1 and tried[0] is last and route.include_usage and see(last) in ACCEPTED:
            return _ask(route, FORCED, nonce, last)
        return None

    def _climb(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        forced, auto, control = (ladder.seen(rung) for rung in (FORCED, AUTO, CONTROL))
        if forced is None:
            return _ask(route, FORCED, nonce, last)
        if forced in NO_CALL:
            if auto is None:
                return _ask(route, AUTO, nonce, last)
            return _ask(route, AUTO, nonce, last, pause=True) if ladder.failed_once(AUTO) else None
        if forced is not Seen.REFUSED:
            return None
        if auto is None:
            return _ask(route, AUTO, nonce, last)
        if auto is Seen.CALL:
            return None if ladder.confirmed(FORCED, after=AUTO) else _ask(route, FORCED, nonce, last)
        if auto is not Seen.REFUSED:
            return None
        if control is None:
            return _ask(route, CONTROL, nonce, last)
        return self._confirm(route, nonce, last, ladder) if ladder.has_text(CONTROL) else None

    def _confirm(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        """Both modes were refused and the control was answered: what is to be seen again before it counts."""
        without_flag = ladder.seen(WITHOUT_FLAG)
        if route.parallel_tool_calls is not None and without_flag is None:
            return _ask(route, WITHOUT_FLAG, nonce, last)
        if not ladder.confirmed(AUTO, after=CONTROL) and without_flag is not Seen.REFUSED:
            return _ask(route, AUTO, nonce, last)
        if not ladder.confirmed(FORCED, after=CONTROL) and without_flag not in ACCEPTED:
            return _ask(route, FORCED, nonce, last)
        return None

    def _quirks(self, route: Route, exchanges: Sequence[Exchange], facts: LadderFacts) -> frozenset[str]:
        quirks = super()._quirks(route, exchanges, facts)
        forced, auto = facts.ladder.seen(FORCED), facts.ladder.seen(AUTO)
        if auto is Seen.CALL and forced is Seen.LEAK:
            quirks |= {"forced_call_leaked"}
        if auto is Seen.CALL and forced in (Seen.TEXT, Seen.SILENT):
            quirks |= {"forced_choice_ignored"}
        return quirks


def _ask(route: Route, rung: str, nonce: str, last: Exchange | None, *, pause: bool = False) -> Ask:
    control = rung == CONTROL
    text = (
        f"Say in one short sentence that everything is in place. Reference {nonce}."
        if control
        else f'Call the function {TOOL.name} once with value "ok". Do not answer in text. Reference {nonce}.'
    )
    ask = Ask(
        rung=rung,
        messages=(Message(Role.USER, text),),
        tools=() if control else (TOOL,),
        choice=Choice.NONE if control else Choice.FORCED if rung == FORCED else Choice.AUTO,
        parallel=route.parallel_tool_calls if rung in (FORCED, AUTO) else None,
        pause=pause,
    )
    return as_before(ask, route, last)


def _auto_refused(facts: LadderFacts, *, could_pass: bool) -> bool:
    refusal = facts.ladder.refusal(AUTO)
    forced = facts.ladder.seen(FORCED)
    return refusal is not None and refusal.could_pass is could_pass and (forced is Seen.CALL or forced in NO_CALL)


def _both_refused(facts: LadderFacts) -> bool:
    return facts.ladder.refusal(FORCED) is not None and facts.ladder.refusal(AUTO) is not None


def _leak_reason(facts: LadderFacts) -> str | None:
    for rung in (AUTO, FORCED):
        exchange = facts.ladder.last(rung)
        if exchange and see(exchange) is Seen.LEAK and exchange.reading:
            return exchange.reading.leak
    return None


RULES: tuple[Rule[LadderFacts], ...] = (
    *GATE,
    Rule(
        "native_tools.auto_rejected",
        lambda facts: _auto_refused(facts, could_pass=False),
        Status.AUTO_TOOL_CHOICE_REJECTED,
        "A forced choice was accepted and `auto`, which real turns send, was refused.",
        refusal_reason(AUTO),
    ),
    spent("native_tools"),
    Rule(
        "native_tools.auto_failed",
        lambda facts: _auto_refused(facts, could_pass=True),
        Status.PROVIDER_ERROR,
        "A forced choice was accepted; `auto` met a server fault, also when asked once more.",
        refusal_reason(AUTO),
    ),
    Rule(
        "native_tools.forced_call",
        on(FORCED, Seen.CALL),
        Status.TOOLS_SUPPORTED,
        "A whole native call came back in a stream that announced its end.",
        no_reason,
    ),
    Rule(
        "native_tools.auto_call",
        lambda facts: facts.ladder.seen(FORCED) in NO_CALL and facts.ladder.seen(AUTO) is Seen.CALL,
        Status.TOOLS_SUPPORTED,
        "Forcing was accepted without effect; under `auto`, which real turns send, a whole native call came back.",
        no_reason,
    ),
    Rule(
        "native_tools.forced_rejected",
        lambda facts: facts.ladder.seen(AUTO) is Seen.CALL and facts.ladder.confirmed(FORCED, after=AUTO),
        Status.FORCED_TOOL_CHOICE_REJECTED,
        "The forced choice was refused; the same request under `auto` streamed a whole call.",
        refusal_reason(FORCED),
    ),
    Rule(
        "native_tools.leaked",
        lambda facts: Seen.LEAK in (facts.ladder.seen(FORCED), facts.ladder.seen(AUTO)),
        Status.TOOL_CALL_LEAKED_AS_TEXT,
        "The markup of a call arrived as text, and no native call did: the serving side's parser is missing.",
        _leak_reason,
    ),
    Rule(
        "native_tools.cut_by_our_cap",
        lambda facts: Seen.CUT in (facts.ladder.seen(FORCED), facts.ladder.seen(AUTO)),
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Our own token cap cut the answer before a whole call.",
        lambda _: "token_cap",
    ),
    Rule(
        "native_tools.forced_ignored",
        lambda facts: facts.ladder.seen(FORCED) in NO_CALL and facts.ladder.seen(AUTO) in NO_CALL,
        Status.FORCED_TOOL_CHOICE_IGNORED,
        "Forcing was accepted and ignored, and nothing was called under `auto` either.",
        no_reason,
    ),
    Rule(
        "native_tools.text_under_auto",
        lambda facts: facts.ladder.seen(FORCED) is Seen.REFUSED and facts.ladder.seen(AUTO) in NO_CALL,
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "The forced choice was refused, and under `auto` the model chose not to call.",
        lambda _: "text_under_auto",
    ),
    Rule(
        "native_tools.parallel_flag_rejected",
        lambda facts: _both_refused(facts) and facts.ladder.seen(WITHOUT_FLAG) in ACCEPTED,
        Status.TOOLS_PAYLOAD_REJECTED,
        "Tools are refused only together with the configured parallel_tool_calls flag.",
        lambda _: "parallel_flag_rejected",
    ),
    Rule(
        "native_tools.payload_rejected",
        lambda facts: _both_refused(facts) and facts.ladder.has_text(CONTROL),
        Status.TOOLS_PAYLOAD_REJECTED,
        "Refused with tools under both modes, answered with text without them.",
        refusal_reason(AUTO),
    ),
    Rule(
        "native_tools.control_cut",
        on(CONTROL, Seen.CUT),
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Our own token cap cut the control before any text, so it proves nothing.",
        lambda _: "control_cut",
    ),
    *shared_refusals("native_tools", FORCED, AUTO, CONTROL),
    Rule(
        "native_tools.shared_refusal",
        lambda facts: facts.ladder.refusal(CONTROL) is not None,
        Status.PROVIDER_ERROR,
        "The control shares the refusal, so it says nothing of tools.",
        shared_reason(FORCED, AUTO, CONTROL),
    ),
    Rule(
        "native_tools.control_proves_nothing",
        lambda facts: facts.ladder.last(CONTROL) is not None,
        Status.PROVIDER_ERROR,
        "Tools were refused, but the control brought no text in a stream that announced its end: it proves nothing.",
        lambda facts: facts.reason() or "control_empty",
    ),
    undecided("native_tools"),
)
"""The table of this contract, common rules first."""
