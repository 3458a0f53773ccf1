"""Judgment as a table: ordered rules over facts, the first that matches speaks, the last matches anything.

Rule ids are permanent: a rule that is dropped leaves its id unused. `RULESET` counts the tables' versions, so that a
stored verdict says which of them judged it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.model import Exchange, Refused, Status
from service.seen import Seen, reason_of, refusal_of, see

RULESET = 1


@dataclass(frozen=True)
class Circumstances:
    """What is known beside the exchanges. `unsent` says why nothing was sent, `out_of_time` that no further request
    fitted into the probe's bound; `egress_up` says whether our own network works, None when that isn't known."""

    unsent: str | None = None
    out_of_time: bool = False
    egress_up: bool | None = None


@dataclass(frozen=True)
class Facts:
    """What every contract's rules can look at. `deciding` is the exchange that came last, None when nothing was sent;
    `control` says that it was a control, whose own faults prove nothing about the claim; `spent` that the ladder wanted
    another request and our cap on requests forbade it."""

    circumstances: Circumstances
    deciding: Exchange | None
    control: bool
    spent: bool

    @property
    def seen(self) -> Seen | None:
        return see(self.deciding) if self.deciding else None

    @property
    def settled(self) -> Refused | None:
        """What a refusal of the deciding exchange settles by structured evidence."""
        refusal = refusal_of(self.deciding) if self.deciding else None
        return refusal.kind if refusal else None

    def reason(self) -> str | None:
        return reason_of(self.deciding) if self.deciding else self.circumstances.unsent


F_contra = TypeVar("F_contra", bound=Facts, contravariant=True)
F = TypeVar("F", bound=Facts)


@dataclass(frozen=True)
class Rule(Generic[F_contra]):
    """`because` is what the route's page shows beside the verdict."""

    id: str
    when: Callable[[F_contra], bool]
    status: Status
    because: str
    reason: Callable[[F_contra], str | None] = Facts.reason


@dataclass(frozen=True)
class Conclusion:
    """What a table says of some facts."""

    status: Status
    rule_id: str
    because: str
    reason: str | None


def judge(rules: Sequence[Rule[F]], facts: F) -> Conclusion:
    """What the first rule that matches says. A table without a last rule that matches anything is a fault of ours."""
    rule = next(rule for rule in rules if rule.when(facts))
    return Conclusion(rule.status, rule.id, rule.because, rule.reason(facts))


def _saw(*words: Seen) -> Callable[[Facts], bool]:
    return lambda facts: facts.seen in words


def _claim_saw(word: Seen) -> Callable[[Facts], bool]:
    return lambda facts: facts.seen is word and not facts.control


def _settled(kind: Refused) -> Callable[[Facts], bool]:
    return lambda facts: facts.settled is kind


def _own_load(exchange: Exchange | None) -> bool:
    """Whether an exchange's silence may be our own load's."""
    return exchange is not None and (exchange.own_lag or exchange.own_queue)


_SILENCE = (Seen.NO_HTTP, Seen.TIMEOUT, Seen.EARLY_END)


GATE: tuple[Rule[Facts], ...] = (
    Rule(
        "gate.not_sent",
        lambda facts: facts.deciding is None,
        Status.NOT_SENT,
        "Nothing was sent, so nothing is known.",
    ),
    Rule("gate.cancelled", _saw(Seen.CANCELLED), Status.CANCELLED, "We stopped the probe ourselves."),
    Rule(
        "gate.own_load",
        lambda facts: _own_load(facts.deciding) and facts.seen in _SILENCE,
        Status.PROBER_OVERLOADED,
        "Our own event loop or resolver queue was late by more than a second meanwhile: the silence may be ours.",
        lambda facts: "event_loop_lag" if facts.deciding is not None and facts.deciding.own_lag else "resolver_queue",
    ),
    Rule(
        "gate.own_network",
        lambda facts: facts.circumstances.egress_up is False and facts.seen in (Seen.NO_HTTP, Seen.TIMEOUT),
        Status.OWN_NETWORK,
        "Neither the route nor our own egress check, where there is one, nor any other host of ours answered: "
        "the fault may be our network's.",
    ),
    Rule(
        "gate.unreachable",
        _saw(Seen.NO_HTTP),
        Status.UNREACHABLE,
        "There was no HTTP answer, and none when asked once more.",
    ),
    Rule(
        "gate.timeout",
        _saw(Seen.TIMEOUT),
        Status.TIMEOUT,
        "Our deadline passed while nothing useful was coming.",
    ),
    Rule(
        "gate.own_cap",
        _saw(Seen.OWN_CAP),
        Status.PROBE_CAP_REACHED,
        "Our own cap stopped the reading while the answer still flowed: that is no fault of the route.",
    ),
    Rule(
        "gate.cached",
        lambda facts: facts.deciding is not None and facts.deciding.cached and facts.seen is not Seen.REFUSED,
        Status.ANSWERED_FROM_CACHE,
        "A cache header says that the answer is an old one.",
        lambda _: None,
    ),
    Rule(
        "gate.credential",
        _settled(Refused.CREDENTIAL),
        Status.ENDPOINT_AUTH_FAILED,
        "The credential was refused.",
    ),
    Rule(
        "gate.credit",
        _settled(Refused.CREDIT),
        Status.QUOTA_OR_ROUTING_FAILED,
        "Credit, plan or billing is exhausted.",
    ),
    Rule(
        "gate.no_channel",
        _settled(Refused.NO_CHANNEL),
        Status.QUOTA_OR_ROUTING_FAILED,
        "The gateway has no channel for this model.",
    ),
    Rule("gate.rate", _settled(Refused.RATE), Status.RATE_LIMITED, "Too many requests or tokens; a wait helps."),
    Rule(
        "gate.overload",
        _settled(Refused.OVERLOAD),
        Status.OVERLOADED,
        "The provider says that it is out of capacity.",
    ),
    Rule(
        "gate.model",
        _settled(Refused.MODEL),
        Status.MODEL_UNAVAILABLE,
        "This model isn't known, deployed or offered in this dialect.",
    ),
    Rule(
        "gate.place",
        _settled(Refused.PLACE),
        Status.REGION_BLOCKED,
        "The prober's place or fingerprint is refused, by the provider or by its edge.",
    ),
    Rule(
        "gate.path",
        _settled(Refused.PATH),
        Status.ENDPOINT_NOT_FOUND,
        "The path or the host isn't an API of this dialect.",
    ),
    Rule(
        "gate.filter",
        lambda facts: facts.settled is Refused.FILTER or facts.seen is Seen.FILTERED,
        Status.CONTENT_FILTERED,
        "The probe's own text was refused by a filter.",
    ),
    Rule(
        "gate.token_cap",
        _settled(Refused.TOKEN_CAP),
        Status.TOKEN_CAP_REJECTED,
        "The token-cap field that the route is configured with is refused by name.",
    ),
    Rule(
        "gate.broken_call",
        _settled(Refused.BROKEN_CALL),
        Status.MALFORMED_TOOL_CALL,
        "The provider says that it could not parse the call that its own model made.",
    ),
    Rule(
        "gate.error_in_stream",
        _claim_saw(Seen.LATE_ERROR),
        Status.PROVIDER_ERROR,
        "An error came inside the stream, after a part of the answer.",
        lambda facts: facts.reason() or "error_in_stream",
    ),
    Rule(
        "gate.html",
        _claim_saw(Seen.HTML),
        Status.ENDPOINT_NOT_FOUND,
        "A web page answered instead of the API.",
    ),
    Rule(
        "gate.stream_ignored",
        _claim_saw(Seen.JSON),
        Status.STREAM_IGNORED,
        "stream: true was answered by one JSON body.",
    ),
    Rule(
        "gate.malformed_stream",
        _claim_saw(Seen.BROKEN),
        Status.MALFORMED_STREAM,
        "The framing or the order of events is broken, so nothing can be judged.",
    ),
    Rule(
        "gate.early_end",
        _claim_saw(Seen.EARLY_END),
        Status.STREAM_EARLY_EOF,
        "The body ended without announcing its end; a call that looks whole is no proof then.",
    ),
    Rule(
        "gate.declared_malformed",
        _claim_saw(Seen.DECLARED_MALFORMED),
        Status.MALFORMED_TOOL_CALL,
        "The provider itself declares its call malformed.",
    ),
    Rule(
        "gate.bad_call",
        _claim_saw(Seen.BAD_CALL),
        Status.MALFORMED_TOOL_CALL,
        "A call was streamed and announced, but it can't be dispatched as it stands.",
    ),
)
"""Rules common to all contracts: they speak of the deciding exchange alone, before the contract's own."""
