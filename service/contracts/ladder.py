"""Climbing: what every contract that asks in rungs has in common.

A connection fault is asked once more. A refusal that structured evidence settles ends the ladder, but for a token-cap
field where the dialect has another one. A refusal that names stream_options is an experiment to make, not a verdict.
Everything else is the contract's own `_climb`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.contracts.base import flaky, served_model_differs
from service.model import Ask, Exchange, Refusal, Refused, Route, Status, Tool
from service.rules import Circumstances, Conclusion, Facts, Rule, judge
from service.seen import ACCEPTED, Seen, refusal_of, see

TOOL = Tool(
    name="record_probe_value_exactly_once",
    description="Records one short value. Call it once.",
    properties={"value": "string"},
    asked={"value": "ok"},
)


@dataclass(frozen=True)
class Ladder:
    """The exchanges by rung, without those that a changed request made obsolete; the last one of a rung counts."""

    exchanges: tuple[Exchange, ...]

    def of(self, rung: str) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.ask.rung == rung]

    def last(self, rung: str) -> Exchange | None:
        return next((exchange for exchange in reversed(self.exchanges) if exchange.ask.rung == rung), None)

    def seen(self, rung: str) -> Seen | None:
        exchange = self.last(rung)
        return see(exchange) if exchange else None

    def refusal(self, rung: str) -> Refusal | None:
        """The refusal that stands on a rung, None when it was taken or never asked."""
        exchange = self.last(rung)
        return refusal_of(exchange) if exchange and see(exchange) is Seen.REFUSED else None

    def confirmed(self, rung: str, after: str) -> bool:
        """Whether the refusal of a rung may be built upon: it could not pass, or it came again after `after` was
        answered."""
        refusal = self.refusal(rung)
        if refusal is None or not refusal.could_pass:
            return refusal is not None
        answered = next((n for n, e in enumerate(self.exchanges) if e.ask.rung == after and see(e) in ACCEPTED), None)
        latest = max(n for n, e in enumerate(self.exchanges) if e.ask.rung == rung)
        return answered is not None and latest > answered

    def failed_once(self, rung: str) -> bool:
        """Whether a rung was refused in a way that could pass, and not yet asked again since."""
        refusal = self.refusal(rung)
        times = sum(see(exchange) is Seen.REFUSED for exchange in self.of(rung))
        return refusal is not None and refusal.could_pass and times == 1

    def answered(self, rung: str) -> bool:
        """Whether a rung was answered with text or with a call, be it a broken one."""
        return self.seen(rung) in (Seen.CALL, Seen.BAD_CALL, Seen.LEAK) or self.has_text(rung)

    def has_text(self, rung: str) -> bool:
        """Whether a rung was answered with text in a stream that announced its end."""
        exchange = self.last(rung)
        taken = exchange is not None and see(exchange) in (Seen.TEXT, Seen.CUT, Seen.LEAK)
        return bool(taken and exchange and exchange.reading and exchange.reading.has_text)


@dataclass(frozen=True)
class LadderFacts(Facts):
    ladder: Ladder


def live(exchanges: Sequence[Exchange]) -> Ladder:
    """Leaves out what a later request made obsolete: the first token-cap field when a second one was tried, and what
    was asked with `stream_options` once a request without it was answered."""
    kept = list(exchanges)
    fields = [exchange.ask.tokens_field for exchange in kept]
    if len(set(fields)) > 1:
        kept = [exchange for exchange in kept if exchange.ask.tokens_field == fields[-1]]
    if any(not e.ask.include_usage and see(e) in ACCEPTED for e in kept) and any(e.ask.include_usage for e in kept):
        kept = [e for e in kept if not e.ask.include_usage]
    return Ladder(tuple(kept))


class LadderContract(ABC):
    """A contract as a ladder: subclasses give the first ask, the climb from each answer, and the rules."""

    name: str
    claim: str
    every: int
    required: bool
    max_requests: int
    example: str = ""
    controls: frozenset[str] = frozenset()
    """Rungs whose own faults prove nothing about the claim."""

    @property
    @abstractmethod
    def rules(self) -> Sequence[Rule[Any]]:
        """The table of this contract, common rules first."""

    @abstractmethod
    def _first(self, route: Route, nonce: str) -> Ask | None:
        """The first question, None where the dialect hasn't what the claim is about."""

    @abstractmethod
    def _climb(self, route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
        """The next question after an answer that was taken, or a refusal that nothing settles."""

    def next_ask(self, route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
        """The next rung, None when the claim is decided or our cap on requests is spent."""
        return None if len(exchanges) >= self.max_requests else self._wanted(route, nonce, exchanges)

    def conclude(
        self, route: Route, exchanges: Sequence[Exchange], circumstances: Circumstances
    ) -> tuple[Conclusion, frozenset[str]]:
        """What the table says of the exchanges, and the quirks seen."""
        deciding = exchanges[-1] if exchanges else None
        facts = LadderFacts(
            circumstances=circumstances,
            deciding=deciding,
            control=deciding is not None and deciding.ask.rung in self.controls,
            spent=(circumstances.out_of_time or len(exchanges) >= self.max_requests)
            and self._wanted(route, "", exchanges) is not None,
            ladder=live(exchanges),
        )
        return judge(self.rules, facts), self._quirks(route, exchanges, facts)

    def _wanted(self, route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
        if not exchanges:
            return self._first(route, nonce)
        last = exchanges[-1]
        seen = see(last)
        if seen is Seen.NO_HTTP:
            again = len(exchanges) > 1 and exchanges[-2].ask.rung == last.ask.rung and see(exchanges[-2]) is seen
            return None if again else replace(last.ask, pause=True)
        if seen is Seen.REFUSED:
            refusal = refusal_of(last)
            if refusal is not None and refusal.kind is not None:
                return _other_cap_field(last, refusal)
        elif seen not in ACCEPTED or last.cached:
            return None
        experiment = self._without_stream_options(route, nonce, exchanges)
        return experiment or self._climb(route, nonce, last, live(exchanges))

    def _without_stream_options(self, route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
        """A refusal that names stream_options is asked once more without it."""
        last = exchanges[-1]
        refusal = refusal_of(last)
        if refusal is None or not refusal.names_stream_options or not route.include_usage:
            return None
        return replace(last.ask, include_usage=False) if all(e.ask.include_usage for e in exchanges) else None

    def _quirks(self, route: Route, exchanges: Sequence[Exchange], facts: LadderFacts) -> frozenset[str]:
        quirks: set[str] = set()
        deciding, ladder = facts.deciding, facts.ladder
        if deciding is not None and deciding.reading is not None:
            quirks |= deciding.reading.quirks
            if served_model_differs(route, deciding.reading.served_model):
                quirks.add("served_model_differs")
        if flaky(exchanges):
            quirks.add("flaky")
        dropped = [exchange for exchange in exchanges if exchange not in ladder.exchanges]
        if any(exchange.ask.include_usage for exchange in dropped) and any(
            not exchange.ask.include_usage for exchange in ladder.exchanges
        ):
            quirks.add("stream_options_rejected")
        fields = [exchange.ask.tokens_field for exchange in exchanges]
        if len(set(fields)) > 1 and facts.settled is not Refused.TOKEN_CAP:
            quirks.add("max_completion_tokens_wanted")
        return frozenset(quirks)


def as_before(ask: Ask, route: Route, last: Exchange | None) -> Ask:
    """An ask with the token-cap field and the stream_options that the last exchange had, else the route's."""
    return replace(
        ask,
        include_usage=last.ask.include_usage if last else route.include_usage,
        tokens_field=last.ask.tokens_field if last else route.token_cap.field,
    )


def _other_cap_field(last: Exchange, refusal: Refusal) -> Ask | None:
    """A route without a configured field that refuses the usual one by name is asked with the dialect's other one."""
    if refusal.kind is Refused.TOKEN_CAP and last.other_cap_field is not None:
        return replace(last.ask, tokens_field=last.other_cap_field)
    return None


# --- conditions and rules that several tables use -----------------------------------------------------------


def on(rung: str, *words: Seen) -> Callable[[LadderFacts], bool]:
    """A rung ended in one of these ways."""
    return lambda facts: facts.ladder.seen(rung) in words


def shared(hint: Refused, *rungs: str) -> Callable[[LadderFacts], bool]:
    """All of these rungs were refused, and each refusal is taken to mean the same."""

    def holds(facts: LadderFacts) -> bool:
        refusals = [facts.ladder.refusal(rung) for rung in rungs]
        return all(refusal is not None and refusal.hint is hint for refusal in refusals)

    return holds


def refusal_reason(rung: str) -> Callable[[LadderFacts], str | None]:
    """The reason of the refusal that stands on a rung."""

    def reason(facts: LadderFacts) -> str | None:
        refusal = facts.ladder.refusal(rung)
        return refusal.reason if refusal else None

    return reason


def shared_reason(*rungs: str) -> Callable[[LadderFacts], str | None]:
    """`http_4xx` when all of these rungs were refused with client errors: then waiting doesn't help."""

    def reason(facts: LadderFacts) -> str | None:
        refusals = [facts.ladder.refusal(rung) for rung in rungs]
        statuses = [refusal.status for refusal in refusals if refusal and refusal.status]
        if len(set(statuses)) == 1:
            return f"http_{statuses[0]}"
        if len(statuses) == len(refusals) and all(400 <= status < 500 for status in statuses):
            return "http_4xx"
        return facts.reason()

    return reason


def no_reason(_: Facts) -> None:
    """For verdicts that need no finer word."""


def spent(prefix: str) -> Rule[LadderFacts]:
    return Rule(
        f"{prefix}.spent",
        lambda facts: facts.spent,
        Status.PROBE_CAP_REACHED,
        "Our cap on requests or time was spent before the claim was decided.",
        lambda facts: "time" if facts.circumstances.out_of_time else "requests",
    )


def shared_refusals(prefix: str, *rungs: str) -> tuple[Rule[LadderFacts], ...]:
    """What it means when every form of the request met the same bare answer."""
    return (
        Rule(
            f"{prefix}.shared_404_path",
            shared(Refused.PATH, *rungs),
            Status.ENDPOINT_NOT_FOUND,
            "Every form of the request met a bare 404: that speaks of the path.",
        ),
        Rule(
            f"{prefix}.shared_404_model",
            shared(Refused.MODEL, *rungs),
            Status.MODEL_UNAVAILABLE,
            "Every form of the request was refused with the words that the model is missing.",
        ),
        Rule(
            f"{prefix}.shared_503",
            shared(Refused.OVERLOAD, *rungs),
            Status.OVERLOADED,
            "Every form of the request met a 503.",
        ),
    )


def undecided(prefix: str) -> Rule[LadderFacts]:
    """The last rule of a table: it matches anything."""
    return Rule(
        f"{prefix}.undecided",
        lambda _: True,
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "What was seen decides nothing.",
        lambda _: "undecided",
    )
