"""A turn as an agent makes it goes through: call, result, answer.

The call is asked for under `auto`, as real turns ask. The route's own message is replayed exactly as it came, with
reasoning fields, signatures and ids, beside a result; then an answer with text is due. When `auto` is refused, a
forced call shows whether the rest of the turn would work. It finds servers that take a forced choice and refuse
`auto`, gateways that rewrite ids and then refuse them, missing signatures, and empty answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from service.contracts.replays import question, replay_reason, results
from service.model import Ask, Choice, Exchange, Message, Refused, Role, Route, Status
from service.rules import GATE, Rule
from service.seen import ACCEPTED, NO_CALL, Seen, refusal_of, see

AUTO, FORCED, REPLAY = "auto", "forced", "replay"

# A refusal of the replay that says one of these is about the account, the rate, the place or the provider's capacity;
# anything else is about the history, since the first request of the turn was accepted.
_NOT_THE_HISTORY = frozenset(
    {
        Refused.CREDENTIAL,
        Refused.CREDIT,
        Refused.NO_CHANNEL,
        Refused.RATE,
        Refused.PLACE,
        Refused.OVERLOAD,
        Refused.FILTER,
    }
)


class AgentTurn(LadderContract):
    name = "agent_turn"
    claim = "A turn as an agent makes it goes through: call, result, answer."
    every = 12
    required = True
    max_requests = 5

    @property
    def rules(self) -> Sequence[Rule[Any]]:
        return RULES

    def _first(self, route: Route, nonce: str) -> Ask:
        return _call(route, AUTO, nonce, None)

    def _climb(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        auto, forced, replay = (ladder.seen(rung) for rung in (AUTO, FORCED, REPLAY))
        if auto is None:  # what was asked first was asked with a field that is refused by name
            return _call(route, AUTO, nonce, last)
        if last.ask.rung == REPLAY:
            return self._after_replay(route, nonce, last, ladder)
        if see(last) is Seen.CALL and replay in (None, Seen.REFUSED):
            return _replay(route, last)
        if auto is Seen.REFUSED and forced is None:
            return _call(route, FORCED, nonce, last)
        return _call(route, AUTO, nonce, last) if ladder.failed_once(AUTO) and forced in ACCEPTED else None

    def _after_replay(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        if see(last) is not Seen.REFUSED:
            return _call(route, AUTO, nonce, last) if ladder.failed_once(AUTO) else None
        if _replay_confirmed(ladder):
            return None
        return _call(route, AUTO if ladder.refusal(AUTO) is None else FORCED, nonce, last)


def _call(route: Route, rung: str, nonce: str, last: Exchange | None) -> Ask:
    ask = Ask(
        rung=rung,
        messages=(Message(Role.USER, question(TOOL.name, nonce)),),
        tools=(TOOL,),
        choice=Choice.FORCED if rung == FORCED else Choice.AUTO,
        parallel=route.parallel_tool_calls,
    )
    return as_before(ask, route, last)


def _replay(route: Route, called: Exchange) -> Ask | None:
    """The turn so far, the route's own message in it as it came, and the results of its calls."""
    if called.replay is None:
        return None
    ask = Ask(
        rung=REPLAY,
        messages=(*called.ask.messages, Message(Role.ASSISTANT, replay=called.replay), *results(called.replay.calls)),
        tools=(TOOL,),
        choice=Choice.AUTO,
        parallel=route.parallel_tool_calls,
    )
    return as_before(ask, route, called)


def _replay_confirmed(ladder: Ladder) -> bool:
    """Whether the refusal of the replay may be built upon: it could not pass, or it came again after the first request
    of the turn was taken again."""
    refusal = ladder.refusal(REPLAY)
    if refusal is None or not refusal.could_pass:
        return refusal is not None
    refused = [n for n, e in enumerate(ladder.exchanges) if e.ask.rung == REPLAY and see(e) is Seen.REFUSED]
    between = ladder.exchanges[refused[0] : refused[-1]]
    return any(exchange.ask.rung != REPLAY and see(exchange) in ACCEPTED for exchange in between)


def _auto_refused(*, could_pass: bool) -> Callable[[LadderFacts], bool]:
    def holds(facts: LadderFacts) -> bool:
        refusal, forced = facts.ladder.refusal(AUTO), facts.ladder.seen(FORCED)
        taken = forced is Seen.CALL or forced is Seen.CUT or forced in NO_CALL
        return refusal is not None and refusal.could_pass is could_pass and taken

    return holds


def _on_replay(facts: LadderFacts) -> bool:
    return facts.deciding is not None and facts.deciding.ask.rung == REPLAY


def _replay_refused_by_code(facts: LadderFacts) -> bool:
    return _on_replay(facts) and facts.settled is not None and facts.settled not in _NOT_THE_HISTORY


def _replay_reason(facts: LadderFacts) -> str | None:
    exchange = facts.ladder.last(REPLAY)
    refusal = refusal_of(exchange) if exchange else None
    return replay_reason(refusal) if refusal else None


def _leaked(facts: LadderFacts) -> bool:
    """A forced call that leaked is no fault of the turn where a native one came under `auto`."""
    auto, forced, replay = (facts.ladder.seen(rung) for rung in (AUTO, FORCED, REPLAY))
    return Seen.LEAK in (auto, replay) or (forced is Seen.LEAK and auto is not Seen.CALL)


def _leak_reason(facts: LadderFacts) -> str | None:
    return next((e.reading.leak for e in reversed(facts.ladder.exchanges) if see(e) is Seen.LEAK and e.reading), None)


RULES: tuple[Rule[LadderFacts], ...] = (
    Rule(
        "agent_turn.replay_refused_by_code",
        _replay_refused_by_code,
        Status.HISTORY_REJECTED,
        "The first request of the turn was accepted; its faithful replay with a result was refused by code.",
        _replay_reason,
    ),
    *GATE,
    Rule(
        "agent_turn.auto_rejected",
        _auto_refused(could_pass=False),
        Status.AUTO_TOOL_CHOICE_REJECTED,
        "`auto`, which real turns send, was refused; a forced choice was accepted.",
        refusal_reason(AUTO),
    ),
    Rule(
        "agent_turn.replay_rejected",
        lambda facts: _replay_confirmed(facts.ladder),
        Status.HISTORY_REJECTED,
        "The first request of the turn was accepted; its faithful replay with a result was refused.",
        _replay_reason,
    ),
    spent("agent_turn"),
    Rule(
        "agent_turn.auto_failed",
        _auto_refused(could_pass=True),
        Status.PROVIDER_ERROR,
        "A forced choice was accepted; `auto` met a server fault, also when asked once more.",
        refusal_reason(AUTO),
    ),
    Rule(
        "agent_turn.leaked",
        _leaked,
        Status.TOOL_CALL_LEAKED_AS_TEXT,
        "The markup of a call arrived as text in the turn: the serving side's parser is missing.",
        _leak_reason,
    ),
    Rule(
        "agent_turn.completed",
        lambda facts: facts.ladder.seen(AUTO) is Seen.CALL and facts.ladder.has_text(REPLAY),
        Status.TURN_COMPLETED,
        "Call, result and answer went through.",
        no_reason,
    ),
    Rule(
        "agent_turn.too_long_to_replay",
        lambda facts: facts.seen is Seen.CALL and not _on_replay(facts),
        Status.PROBE_CAP_REACHED,
        "The answer with the call is too long for us to replay.",
        lambda _: "bytes",
    ),
    Rule(
        "agent_turn.answer_cut_by_our_cap",
        on(REPLAY, Seen.CUT),
        Status.TURN_UNFINISHED,
        "Our own token cap cut the answer before any text.",
        lambda _: "token_cap",
    ),
    Rule(
        "agent_turn.empty_answer",
        on(REPLAY, Seen.SILENT),
        Status.TURN_UNFINISHED,
        "The replayed turn was accepted, but no answer came.",
        lambda _: "empty",
    ),
    Rule(
        "agent_turn.another_call",
        on(REPLAY, Seen.CALL),
        Status.TURN_UNFINISHED,
        "The replayed turn was accepted, but where an answer was due another call came.",
        lambda _: "another_call",
    ),
    Rule(
        "agent_turn.cut_by_our_cap",
        lambda facts: Seen.CUT in (facts.ladder.seen(AUTO), facts.ladder.seen(FORCED)),
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Our own token cap cut the answer before a whole call.",
        lambda _: "token_cap",
    ),
    Rule(
        "agent_turn.text_under_auto",
        lambda facts: facts.ladder.seen(AUTO) in NO_CALL,
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Under `auto` the model chose not to call, so there is no turn to go on with.",
        lambda _: "text_under_auto",
    ),
    *shared_refusals("agent_turn", AUTO, FORCED),
    Rule(
        "agent_turn.refused",
        lambda facts: facts.ladder.refusal(AUTO) is not None or facts.ladder.refusal(REPLAY) is not None,
        Status.PROVIDER_ERROR,
        "The request was refused in every form that was tried, so the refusal says nothing of the turn.",
        shared_reason(AUTO, FORCED),
    ),
    undecided("agent_turn"),
)
"""The table of this contract: what the replay alone can say, the common rules, the rest."""
