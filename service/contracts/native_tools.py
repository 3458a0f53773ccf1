"""A streamed completion with a `tools` payload returns a whole native tool call.

The ladder: a forced, named choice; the same under `auto` when forcing was refused or ignored; a control without any
tools when both were refused. A healthy route costs one request. A refusal that could pass (a 5xx without a settling
code) only counts after the same request, asked again once something else was answered, was refused again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.contracts.base import flaky, served_model_differs
from service.model import Ask, Choice, Exchange, Message, Refusal, Refused, Route, Status, Tool
from service.rules import GATE, Circumstances, Conclusion, Facts, Rule, judge
from service.seen import ACCEPTED, NO_CALL, Seen, refusal_of, see

FORCED, AUTO, CONTROL = "forced", "auto", "control"
WITHOUT_FLAG = "auto_without_parallel_flag"

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

    @property
    def control_proves(self) -> bool:
        """Whether the control was answered with text in a stream that announced its end."""
        control = self.last(CONTROL)
        return bool(
            control
            and see(control) in (Seen.TEXT, Seen.CUT, Seen.LEAK)
            and control.reading
            and control.reading.has_text
        )


@dataclass(frozen=True)
class NativeToolsFacts(Facts):
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


class NativeTools:
    name = "native_tools"
    claim = "A streamed completion with a tools payload returns a whole native tool call."
    every = 1
    required = True
    max_requests = 5

    @property
    def rules(self) -> Sequence[Rule[Any]]:
        return RULES

    def next_ask(self, route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
        """The next rung, None when the claim is decided or our cap on requests is spent."""
        return None if len(exchanges) >= self.max_requests else _wanted(route, nonce, exchanges)

    def conclude(
        self, route: Route, exchanges: Sequence[Exchange], circumstances: Circumstances
    ) -> tuple[Conclusion, frozenset[str]]:
        """What the table says of the exchanges, and the quirks seen."""
        deciding = exchanges[-1] if exchanges else None
        facts = NativeToolsFacts(
            circumstances=circumstances,
            deciding=deciding,
            control=deciding is not None and deciding.ask.rung == CONTROL,
            spent=(circumstances.out_of_time or len(exchanges) >= self.max_requests)
            and _wanted(route, "", exchanges) is not None,
            ladder=live(exchanges),
        )
        return judge(RULES, facts), _quirks(route, exchanges, facts)


def _wanted(route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
    if not exchanges:
        return _ask(route, FORCED, nonce, None)
    last = exchanges[-1]
    seen = see(last)
    if seen is Seen.NO_HTTP:
        again = len(exchanges) > 1 and exchanges[-2].ask.rung == last.ask.rung and see(exchanges[-2]) is Seen.NO_HTTP
        return None if again else replace(last.ask, pause=True)
    if seen is Seen.REFUSED:
        refusal = refusal_of(last)
        if refusal is not None and refusal.kind is not None:
            return _other_cap_field(last, refusal)
    elif seen not in ACCEPTED or last.cached:
        return None
    return _without_stream_options(route, nonce, exchanges) or _climb(route, nonce, last, live(exchanges))


def _other_cap_field(last: Exchange, refusal: Refusal) -> Ask | None:
    """A route without a configured field that refuses the usual one by name is asked with the dialect's other one."""
    if refusal.kind is Refused.TOKEN_CAP and last.other_cap_field is not None:
        return replace(last.ask, tokens_field=last.other_cap_field)
    return None


def _without_stream_options(route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
    """A refusal that names stream_options gets the control without it, and if that is answered the ladder again."""
    last = exchanges[-1]
    tried = [exchange for exchange in exchanges if not exchange.ask.include_usage]
    refusal = refusal_of(last)
    if refusal is not None and refusal.names_stream_options and route.include_usage and not tried:
        return replace(_ask(route, CONTROL, nonce, last), include_usage=False)
    if len(tried) == 1 and tried[0] is last and route.include_usage and see(last) in ACCEPTED:
        return _ask(route, FORCED, nonce, last)
    return None


def _climb(route: Route, nonce: str, last: Exchange, ladder: Ladder) -> Ask | None:
    forced, auto, control = (ladder.seen(rung) for rung in (FORCED, AUTO, CONTROL))
    if forced is None:
        return _ask(route, FORCED, nonce, last)
    if forced in NO_CALL:
        if auto is None:
            return _ask(route, AUTO, nonce, last)
        refusal = ladder.refusal(AUTO)
        if refusal and refusal.could_pass and len(ladder.of(AUTO)) == 1:
            return _ask(route, AUTO, nonce, last, pause=True)
        return None
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
    if not ladder.control_proves:
        return None
    if route.parallel_tool_calls is not None and ladder.seen(WITHOUT_FLAG) is None:
        return _ask(route, WITHOUT_FLAG, nonce, last)
    if not ladder.confirmed(AUTO, after=CONTROL) and ladder.seen(WITHOUT_FLAG) is not Seen.REFUSED:
        return _ask(route, AUTO, nonce, last)
    if not ladder.confirmed(FORCED, after=CONTROL) and ladder.seen(WITHOUT_FLAG) not in ACCEPTED:
        return _ask(route, FORCED, nonce, last)
    return None


def _ask(route: Route, rung: str, nonce: str, last: Exchange | None, *, pause: bool = False) -> Ask:
    """The request of a rung; the token-cap field and stream_options stay as the last exchange had them."""
    control = rung == CONTROL
    text = (
        f"Say in one short sentence that everything is in place. Reference {nonce}."
        if control
        else f'Call the function {TOOL.name} once with value "ok". Do not answer in text. Reference {nonce}.'
    )
    return Ask(
        rung=rung,
        messages=(Message("user", text),),
        tools=() if control else (TOOL,),
        choice=Choice.NONE if control else Choice.FORCED if rung == FORCED else Choice.AUTO,
        parallel=route.parallel_tool_calls if rung in (FORCED, AUTO) else None,
        include_usage=last.ask.include_usage if last else route.include_usage,
        tokens_field=last.ask.tokens_field if last else route.token_cap.field,
        pause=pause,
    )


def _quirks(route: Route, exchanges: Sequence[Exchange], facts: NativeToolsFacts) -> frozenset[str]:
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
    if ladder.seen(FORCED) is Seen.LEAK and ladder.seen(AUTO) is Seen.CALL:
        quirks.add("forced_call_leaked")
    if ladder.seen(FORCED) in (Seen.TEXT, Seen.SILENT) and ladder.seen(AUTO) is Seen.CALL:
        quirks.add("forced_choice_ignored")
    return frozenset(quirks)


def _seen(rung: str, *words: Seen) -> Callable[[NativeToolsFacts], bool]:
    return lambda facts: facts.ladder.seen(rung) in words


def _auto_refused(facts: NativeToolsFacts, *, could_pass: bool) -> bool:
    refusal = facts.ladder.refusal(AUTO)
    forced = facts.ladder.seen(FORCED)
    return refusal is not None and refusal.could_pass is could_pass and (forced is Seen.CALL or forced in NO_CALL)


def _both_refused(facts: NativeToolsFacts) -> bool:
    return facts.ladder.refusal(FORCED) is not None and facts.ladder.refusal(AUTO) is not None


def _shared(hint: Refused) -> Callable[[NativeToolsFacts], bool]:
    """Every rung and the control were refused, and each refusal is taken to mean the same."""

    def holds(facts: NativeToolsFacts) -> bool:
        refusals = [facts.ladder.refusal(rung) for rung in (FORCED, AUTO, CONTROL)]
        return all(refusal is not None and refusal.hint is hint for refusal in refusals)

    return holds


def _refusal_reason(rung: str) -> Callable[[NativeToolsFacts], str | None]:
    def reason(facts: NativeToolsFacts) -> str | None:
        refusal = facts.ladder.refusal(rung)
        return refusal.reason if refusal else None

    return reason


def _leak_reason(facts: NativeToolsFacts) -> str | None:
    for rung in (AUTO, FORCED):
        exchange = facts.ladder.last(rung)
        if exchange and see(exchange) is Seen.LEAK and exchange.reading:
            return exchange.reading.leak
    return None


def _shared_reason(facts: NativeToolsFacts) -> str | None:
    """`http_4xx` when every rung and the control were refused with client errors: then waiting doesn't help."""
    refusals = [facts.ladder.refusal(rung) for rung in (FORCED, AUTO, CONTROL)]
    statuses = [refusal.status for refusal in refusals if refusal and refusal.status]
    if len(set(statuses)) == 1:
        return f"http_{statuses[0]}"
    if len(statuses) == len(refusals) and all(400 <= status < 500 for status in statuses):
        return "http_4xx"
    return facts.reason()


def _none(_: NativeToolsFacts) -> None:
    return None


RULES: tuple[Rule[NativeToolsFacts], ...] = (
    *GATE,
    Rule(
        "native_tools.auto_rejected",
        lambda facts: _auto_refused(facts, could_pass=False),
        Status.AUTO_TOOL_CHOICE_REJECTED,
        "A forced choice was accepted and `auto`, which real turns send, was refused.",
        _refusal_reason(AUTO),
    ),
    Rule(
        "native_tools.auto_failed",
        lambda facts: _auto_refused(facts, could_pass=True),
        Status.PROVIDER_ERROR,
        "A forced choice was accepted; `auto` met a server fault, also when asked once more.",
        _refusal_reason(AUTO),
    ),
    Rule(
        "native_tools.forced_call",
        _seen(FORCED, Seen.CALL),
        Status.TOOLS_SUPPORTED,
        "A whole native call came back in a stream that announced its end.",
        _none,
    ),
    Rule(
        "native_tools.auto_call",
        lambda facts: facts.ladder.seen(FORCED) in NO_CALL and facts.ladder.seen(AUTO) is Seen.CALL,
        Status.TOOLS_SUPPORTED,
        "Forcing was accepted without effect; under `auto`, which real turns send, a whole native call came back.",
        _none,
    ),
    Rule(
        "native_tools.forced_rejected",
        lambda facts: facts.ladder.seen(AUTO) is Seen.CALL and facts.ladder.confirmed(FORCED, after=AUTO),
        Status.FORCED_TOOL_CHOICE_REJECTED,
        "The forced choice was refused; the same request under `auto` streamed a whole call.",
        _refusal_reason(FORCED),
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
        _none,
    ),
    Rule(
        "native_tools.text_under_auto",
        lambda facts: facts.ladder.seen(FORCED) is Seen.REFUSED and facts.ladder.seen(AUTO) in NO_CALL,
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "The forced choice was refused, and under `auto` the model chose not to call.",
        lambda _: "text_under_auto",
    ),
    Rule(
        "native_tools.spent",
        lambda facts: facts.spent,
        Status.PROBE_CAP_REACHED,
        "Our cap on requests or time was spent before the claim was decided.",
        lambda facts: "time" if facts.circumstances.out_of_time else "requests",
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
        lambda facts: _both_refused(facts) and facts.ladder.control_proves,
        Status.TOOLS_PAYLOAD_REJECTED,
        "Refused with tools under both modes, answered with text without them.",
        _refusal_reason(AUTO),
    ),
    Rule(
        "native_tools.control_cut",
        _seen(CONTROL, Seen.CUT),
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "Our own token cap cut the control before any text, so it proves nothing.",
        lambda _: "control_cut",
    ),
    Rule(
        "native_tools.shared_404_path",
        _shared(Refused.PATH),
        Status.ENDPOINT_NOT_FOUND,
        "Every form of the request met a bare 404: that speaks of the path.",
    ),
    Rule(
        "native_tools.shared_404_model",
        _shared(Refused.MODEL),
        Status.MODEL_UNAVAILABLE,
        "Every form of the request was refused with the words that the model is missing.",
    ),
    Rule(
        "native_tools.shared_503",
        _shared(Refused.OVERLOAD),
        Status.OVERLOADED,
        "Every form of the request met a 503.",
    ),
    Rule(
        "native_tools.shared_refusal",
        lambda facts: facts.ladder.refusal(CONTROL) is not None,
        Status.PROVIDER_ERROR,
        "The control shares the refusal, so it says nothing of tools.",
        _shared_reason,
    ),
    Rule(
        "native_tools.control_proves_nothing",
        lambda facts: facts.ladder.last(CONTROL) is not None,
        Status.PROVIDER_ERROR,
        "Tools were refused, but the control brought no text in a stream that announced its end: it proves nothing.",
        lambda facts: facts.reason() or "control_empty",
    ),
    Rule(
        "native_tools.undecided",
        lambda _: True,
        Status.INCONCLUSIVE_NO_TOOL_CALL,
        "What was seen decides nothing.",
        lambda _: "undecided",
    ),
)
"""The table of this contract, common rules first."""
