"""The shapes of a history, each judged by experiment and never by wording.

The shape is asked; when it is refused, its control is, the same history put right. When the control is refused as well,
a hand-made history may be at fault: the route makes a call of its own, which is replayed with every field it came with,
shape first, then control. Where there is one, the history flattened to text is asked when nothing else was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from service.contracts.replays import BESIDE_CALLS, made_calls, question, replay_reason
from service.model import Ask, Choice, Exchange, Message, PastCall, Role, Route, Status
from service.rules import GATE, Rule
from service.seen import Seen, refusal_of, see

SHAPE, CONTROL, FLATTENED = "shape", "control", "flattened"
OWN_CALL, OWN_CALL_AUTO, OWN_SHAPE, OWN_CONTROL = "own_call", "own_call_auto", "own_shape", "own_control"


@dataclass(frozen=True)
class Turn:
    """A question, the assistant's message with its calls, and these calls."""

    question: Message
    assistant: Message
    calls: tuple[PastCall, ...]


@dataclass(frozen=True)
class Form:
    """One way to write a history down. `tools` says whether the tool is declared."""

    messages: Callable[[Turn], Sequence[Message]]
    tools: bool = True
    choice: Choice = Choice.AUTO


class HistoryContract(LadderContract):
    """A claim that a history shape is accepted. `calls` is how many a hand-made history holds."""

    every = 12
    required = False
    max_requests = 8

    def __init__(
        self,
        name: str,
        claim: str,
        *,
        shape: Form,
        control: Form,
        flattened: Form | None = None,
        calls: int = 1,
        mixed: bool = False,
        example: str = "",
    ) -> None:
        self.name = name
        self.claim = claim
        self.example = example
        self._forms = {SHAPE: shape, CONTROL: control, OWN_SHAPE: shape, OWN_CONTROL: control}
        self._flattened = flattened
        self._calls = calls
        self._mixed = mixed

    @property
    def rules(self) -> Sequence[Rule[Any]]:
        return RULES

    def _first(self, route: Route, nonce: str) -> Ask | None:
        return self._ask(route, SHAPE, nonce, None)

    def _climb(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        if (shape := ladder.seen(SHAPE)) is None:  # it was asked with a field that is refused by name
            return self._ask(route, SHAPE, nonce, last)
        if shape is not Seen.REFUSED:
            return None
        if (control := ladder.seen(CONTROL)) is None:
            return self._ask(route, CONTROL, nonce, last)
        if control is not Seen.REFUSED:
            return None if ladder.confirmed(SHAPE, after=CONTROL) else self._ask(route, SHAPE, nonce, last)
        own = _own_call(ladder)
        if own is None:
            return self._ask_own_call(route, nonce, last, ladder)
        if (own_shape := ladder.seen(OWN_SHAPE)) is None:
            return self._ask(route, OWN_SHAPE, nonce, last, own)
        return self._after_own_shape(route, nonce, last, ladder, own) if own_shape is Seen.REFUSED else None

    def _ask_own_call(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        if ladder.seen(OWN_CALL) is None:
            return _call(route, OWN_CALL, nonce, last)
        if ladder.seen(OWN_CALL) is Seen.REFUSED and ladder.seen(OWN_CALL_AUTO) is None:
            return _call(route, OWN_CALL_AUTO, nonce, last)
        if ask := self._ask_flattened(route, nonce, last, ladder):
            return ask
        confirmed = ladder.confirmed(SHAPE, after=FLATTENED)
        return self._ask(route, SHAPE, nonce, last) if ladder.answered(FLATTENED) and not confirmed else None

    def _after_own_shape(self, route: Route, nonce: str, last: Exchange, ladder: Ladder, own: Exchange) -> Ask | None:
        """The flattened form goes before the own control: an answer to either says the same, and it costs one less."""
        if ask := self._ask_flattened(route, nonce, last, ladder):
            return ask
        if not ladder.answered(FLATTENED) and ladder.seen(OWN_CONTROL) is None:
            return self._ask(route, OWN_CONTROL, nonce, last, own)
        answered = next((rung for rung in (FLATTENED, OWN_CONTROL) if ladder.answered(rung)), None)
        if answered is None or ladder.confirmed(OWN_SHAPE, after=answered):
            return None
        return self._ask(route, OWN_SHAPE, nonce, last, own)

    def _ask_flattened(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        wanted = self._flattened is not None and ladder.seen(FLATTENED) is None
        return self._ask(route, FLATTENED, nonce, last) if wanted else None

    def _ask(
        self, route: Route, rung: str, nonce: str, last: Exchange | None, own: Exchange | None = None
    ) -> Ask | None:
        form = self._flattened if rung == FLATTENED else self._forms[rung]
        if form is None:
            return None
        turn = _own_turn(own) if own else _made_turn(nonce, self._calls)
        ask = Ask(
            rung=rung,
            messages=tuple(form.messages(turn)),
            tools=(TOOL,) if form.tools else (),
            choice=form.choice if form.tools else Choice.NONE,
            parallel=route.parallel_tool_calls if form.tools else None,
            mixed=self._mixed and rung in (SHAPE, OWN_SHAPE),
        )
        return as_before(ask, route, last)


def _call(route: Route, rung: str, nonce: str, last: Exchange) -> Ask:
    ask = Ask(
        rung=rung,
        messages=(Message(Role.USER, question(TOOL.name, nonce)),),
        tools=(TOOL,),
        choice=Choice.FORCED if rung == OWN_CALL else Choice.AUTO,
        parallel=route.parallel_tool_calls,
    )
    return as_before(ask, route, last)


def _own_call(ladder: Ladder) -> Exchange | None:
    """The exchange in which the route made a whole call of its own."""
    for rung in (OWN_CALL, OWN_CALL_AUTO):
        exchange = ladder.last(rung)
        if exchange is not None and see(exchange) is Seen.CALL and exchange.replay is not None:
            return exchange
    return None


def _made_turn(nonce: str, count: int) -> Turn:
    calls = made_calls(nonce, count)
    asked = Message(Role.USER, question(TOOL.name, nonce))
    return Turn(asked, Message(Role.ASSISTANT, BESIDE_CALLS, calls=calls), calls)


def _own_turn(own: Exchange) -> Turn:
    calls = own.replay.calls if own.replay else ()
    return Turn(own.ask.messages[0], Message(Role.ASSISTANT, replay=own.replay), calls)


# --- the table ----------------------------------------------------------------------------------------------


def _accepted(facts: LadderFacts) -> bool:
    return facts.ladder.answered(SHAPE) or facts.ladder.answered(OWN_SHAPE)


def _rejected(facts: LadderFacts) -> bool:
    return facts.ladder.answered(CONTROL) and facts.ladder.confirmed(SHAPE, after=CONTROL)


def _own_rejected(facts: LadderFacts) -> bool:
    return any(
        facts.ladder.answered(rung) and facts.ladder.confirmed(OWN_SHAPE, after=rung)
        for rung in (OWN_CONTROL, FLATTENED)
    )


def _only_flattened(facts: LadderFacts) -> bool:
    """The route made no call of its own that could be replayed; flattened to text its history is taken."""
    return (
        facts.ladder.answered(FLATTENED)
        and facts.ladder.seen(OWN_SHAPE) is None
        and facts.ladder.confirmed(SHAPE, after=FLATTENED)
    )


def _reason_on(*rungs: str) -> Callable[[LadderFacts], str | None]:
    def reason(facts: LadderFacts) -> str | None:
        for rung in rungs:
            exchange = facts.ladder.last(rung)
            refusal = refusal_of(exchange) if exchange else None
            if refusal is not None:
                return replay_reason(refusal)
        return None

    return reason


RULES: tuple[Rule[LadderFacts], ...] = (
    *GATE,
    Rule(
        "history.accepted",
        _accepted,
        Status.HISTORY_ACCEPTED,
        "The shape was accepted and answered.",
        no_reason,
    ),
    Rule(
        "history.empty",
        lambda facts: Seen.SILENT in (facts.ladder.seen(SHAPE), facts.ladder.seen(OWN_SHAPE)),
        Status.TURN_UNFINISHED,
        "The shape was accepted, but no answer came.",
        lambda _: "empty",
    ),
    Rule(
        "history.cut_by_our_cap",
        lambda facts: Seen.CUT in (facts.ladder.seen(SHAPE), facts.ladder.seen(OWN_SHAPE)),
        Status.TURN_UNFINISHED,
        "The shape was accepted, but our own token cap cut the answer before any text.",
        lambda _: "token_cap",
    ),
    Rule(
        "history.rejected",
        _rejected,
        Status.HISTORY_REJECTED,
        "The shape was refused, and the same history put right was accepted.",
        _reason_on(SHAPE),
    ),
    Rule(
        "history.own_rejected",
        _own_rejected,
        Status.HISTORY_REJECTED,
        "With the route's own call the shape was refused, and the same history put right was accepted.",
        _reason_on(OWN_SHAPE),
    ),
    Rule(
        "history.only_flattened",
        _only_flattened,
        Status.HISTORY_REJECTED,
        "The history was refused with and without the tool declared, and accepted when it was flattened to text.",
        _reason_on(SHAPE),
    ),
    spent("history"),
    *shared_refusals("history", SHAPE, CONTROL, OWN_CALL, OWN_CALL_AUTO),
    Rule(
        "history.control_empty",
        lambda facts: Seen.SILENT in (facts.ladder.seen(CONTROL), facts.ladder.seen(OWN_CONTROL)),
        Status.TURN_UNFINISHED,
        "The shape was refused, but its control brought no answer either: it proves nothing.",
        lambda _: "control_empty",
    ),
    Rule(
        "history.control_cut",
        lambda facts: Seen.CUT in (facts.ladder.seen(CONTROL), facts.ladder.seen(OWN_CONTROL)),
        Status.TURN_UNFINISHED,
        "The shape was refused, but our own token cap cut its control before any text: it proves nothing.",
        lambda _: "control_cut",
    ),
    Rule(
        "history.refused_in_every_form",
        lambda facts: facts.ladder.refusal(SHAPE) is not None,
        Status.PROVIDER_ERROR,
        "The control shares the refusal, so it says nothing of the shape.",
        shared_reason(SHAPE, CONTROL),
    ),
    undecided("history"),
)
"""The table of all history contracts, common rules first."""
