"""What every contract is: a ladder of asks, facts read from the exchanges, and a table of rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from service.model import Ask, Exchange, Route
from service.rules import Circumstances, Conclusion, Rule
from service.seen import Seen, see


class Contract(Protocol):
    """A claim about a route. `every` and `required` are the defaults where a route only names it; `claim` is one
    sentence for people. `example` is the claim's history put right, as JSON of Chat Completions (of Anthropic
    Messages where Chat Completions can't say it); empty where no history is claimed.

    `next_ask` and `conclude` are pure functions of the exchanges so far; `nonce` is fresh for each probe.
    """

    name: str
    claim: str
    every: int
    required: bool
    max_requests: int
    example: str = ""

    @property
    def rules(self) -> Sequence[Rule[Any]]: ...

    def next_ask(self, route: Route, nonce: str, exchanges: Sequence[Exchange]) -> Ask | None:
        """The next question, None when nothing is left to ask."""
        ...

    def conclude(
        self, route: Route, exchanges: Sequence[Exchange], circumstances: Circumstances
    ) -> tuple[Conclusion, frozenset[str]]:
        """What the contract's table says, and the quirks seen."""
        ...


# What may follow a model's name in the name that serves it: a date, a revision, a tag. A short number is a model of
# its own: gpt-4.1 isn't gpt-4.
_VERSION = re.compile(r"[-@:_](?:\d{3,}(?:-\d+)*|v\d+(?:[.:-]\d+)*|latest|stable|preview|free)")


def served_model_differs(route: Route, served: str | None) -> bool:
    """Whether another model answered than the one that was asked for. A vendor prefix, a date or a version behind the
    name is no difference; `served_model_pattern` says what else is expected."""
    if not served:
        return False
    if route.served_model_pattern is not None:
        return re.fullmatch(route.served_model_pattern, served) is None
    asked, got = (name.lower().rstrip("/").rsplit("/", 1)[-1] for name in (route.model, served))
    if asked == got:
        return False
    longer, shorter = (got, asked) if len(got) > len(asked) else (asked, got)
    return not (longer.startswith(shorter) and _VERSION.fullmatch(longer[len(shorter) :]))


def flaky(exchanges: Sequence[Exchange]) -> bool:
    """Whether one request, sent twice, ended in two ways."""
    ways: dict[object, tuple[Seen, int | None]] = {}
    for exchange in exchanges:
        ask = exchange.ask
        way = (see(exchange), exchange.status)
        if ways.setdefault((ask.rung, ask.tokens_field, ask.include_usage, ask.parallel), way) != way:
            return True
    return False
