"""What a probe has spent, in tokens: the provider's own numbers, estimated where it gives none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.dialects import DIALECTS
from service.model import Exchange, Route
from service.seen import Seen, see

_BYTES_A_TOKEN = 4
_ENVELOPE = 400
"""Bytes of an event that aren't the model's: ids, names, punctuation. Servers send 100 to 400 of them."""


@dataclass(frozen=True)
class Tokens:
    """None: nothing was asked. `estimated`: a number of the sum is ours."""

    input: int | None = None
    output: int | None = None
    estimated: bool = False


def tokens_of(route: Route, exchanges: Sequence[Exchange]) -> Tokens:
    """The tokens of all requests together. One that was refused or not answered counts nothing."""
    if not exchanges:
        return Tokens()
    each = [_tokens(route, exchange) for exchange in exchanges]
    return Tokens(
        sum(given for given, _, _ in each),
        sum(taken for _, taken, _ in each),
        any(estimated for _, _, estimated in each),
    )


def _tokens(route: Route, exchange: Exchange) -> tuple[int, int, bool]:
    reading = exchange.reading
    given, taken = (reading.tokens_in, reading.tokens_out) if reading else (None, None)
    accepted = see(exchange) is not Seen.REFUSED and (reading is not None or exchange.completion)
    if not accepted or (given is not None and taken is not None):
        return given or 0, taken or 0, False
    if given is None:
        given = -(-len(DIALECTS[route.dialect].encode(route, exchange.ask).body) // _BYTES_A_TOKEN)
    if taken is None:
        taken = _estimated_output(exchange)
    return given, taken, True


def _estimated_output(exchange: Exchange) -> int:
    """A delta is a token at least. Where servers send much in one, what exceeds the envelopes of its events counts."""
    events, deltas = (exchange.reading.events, exchange.reading.deltas) if exchange.reading else (1, 1)
    return max(deltas, (exchange.bytes_read - events * _ENVELOPE) // _BYTES_A_TOKEN)
