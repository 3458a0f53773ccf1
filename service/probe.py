"""Climb a contract's ladder against a route; then judge, redact, and hand out one verdict."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import secrets
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from uuid import UUID

from service.clock import suspended_clock
from service.config import fingerprint
from service.contracts import CONTRACTS, Contract
from service.dialects import DIALECTS
from service.egress import Egress
from service.facts import record
from service.model import Ask, Credentials, End, Exchange, Route, Rung, Verdict
from service.redact import Redactor
from service.rules import RULESET, Circumstances
from service.seen import Seen, reason_of, refusal_of, see
from service.tokens import tokens_of
from service.transport import Transport

BOUND = 3
"""A probe is bounded by this many deadlines of its route."""
_PAUSE_S = (0.2, 0.6)
_NONCE_LETTERS = "bcdfghjklmnpqrstvwxz"
_TRACEBACK_LIMIT = 4000
_VERSION = version("routeproof")


@dataclasses.dataclass(frozen=True)
class Moment:
    """A trusted time (the database's at the claim, or ours for a one-shot check) and the clock's reading at it."""

    at: datetime
    reading: float

    @classmethod
    def now(cls) -> Moment:
        return cls(datetime.now(UTC), suspended_clock())

    def later(self) -> datetime:
        """That time plus what has passed since."""
        return self.at + timedelta(seconds=suspended_clock() - self.reading)


@dataclasses.dataclass(frozen=True)
class Probed:
    """A verdict with what only the one who asked may see of it now: why the rule spoke."""

    verdict: Verdict
    because: str
    redactions_refused: int


class ProbeFault(Exception):  # noqa: N818 - a fault of ours, not of a route
    """Our own inability to probe. The message is the traceback, redacted: libraries put header values into theirs."""


class Prober:
    """Probes routes from one location. `watch` tells it what else is configured, so that it can tell our own network's
    fault from a route's."""

    def __init__(self, transport: Transport, location: str) -> None:
        self._transport = transport
        self._location = location
        self._egress = Egress(transport)

    def watch(
        self,
        routes: Iterable[Route],
        egress_check: Iterable[str] = (),
        *,
        proxy: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        """What is configured now: all routes, and the URLs of the egress check with the way to them."""
        self._transport.begin_anew()
        self._egress.watch(routes, egress_check, proxy, ca_file)

    @property
    def egress_up(self) -> bool | None:
        """Whether our own network worked when that was last in question, or has come back since; None: never asked."""
        return self._egress.checked.up if self._egress.checked else None

    @property
    def egress_checked_at(self) -> datetime | None:
        """When `egress_up` was found."""
        return self._egress.checked.at if self._egress.checked else None

    async def probe(self, route: Route, contract: str, credentials: Credentials, since: Moment) -> Probed:
        """Ask until the contract's claim is decided, and conclude. Cancelling it gives the verdict `cancelled`.

        Raises `ProbeFault` for a fault of our own; a route that fails is a verdict.
        """
        redactor = Redactor.for_route(route, credentials)
        try:
            return await self._probe(route, contract, credentials, since, redactor)
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            raise ProbeFault(redactor.text(text, _TRACEBACK_LIMIT)) from None

    def unsent(self, route: Route, contract: str, reason: str, since: Moment) -> Probed:
        """The verdict of a probe that isn't made: `budget_spent` or `paused`."""
        now = since.later()
        redactor = Redactor.for_route(route, Credentials())
        return self._conclude(route, contract, [], Circumstances(unsent=reason), redactor, now, now)

    async def _probe(
        self, route: Route, contract: str, credentials: Credentials, since: Moment, redactor: Redactor
    ) -> Probed:
        started = since.later()
        if credentials.missing:
            exchanges: list[Exchange] = []
            circumstances = Circumstances(unsent="credential_missing")
        else:
            exchanges, out_of_time = await self._climb(route, CONTRACTS[contract], credentials, since)
            circumstances = Circumstances(
                unsent=None if exchanges else "not_in_dialect",
                out_of_time=out_of_time,
                egress_up=await self._check_egress(route, exchanges),
            )
        return self._conclude(route, contract, exchanges, circumstances, redactor, started, since.later())

    async def _climb(
        self, route: Route, contract: Contract, credentials: Credentials, since: Moment
    ) -> tuple[list[Exchange], bool]:
        """The exchanges, and whether time ran out before the ladder's end. No request starts that could not end
        within the probe's bound, which runs from the claim: the lease does."""
        nonce = "".join(secrets.choice(_NONCE_LETTERS) for _ in range(6))
        deadline = route.deadline.total_seconds()
        bound = since.reading + BOUND * deadline
        exchanges: list[Exchange] = []
        while (ask := contract.next_ask(route, nonce, exchanges)) is not None:
            if ask.mixed and not DIALECTS[route.dialect].mixes_results:
                return exchanges, False
            if suspended_clock() + deadline > bound + _PAUSE_S[1]:
                if not exchanges:
                    raise TimeoutError("the time for this probe was over before anything was sent")
                return exchanges, True
            exchanges.append(await self._send(route, ask, credentials))
        return exchanges, False

    async def _send(self, route: Route, ask: Ask, credentials: Credentials) -> Exchange:
        try:
            if ask.pause:
                await asyncio.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - jitter, no secret
            exchange = await self._transport.send(route, ask, credentials)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return Exchange(ask=ask, end=End.CANCELLED)
        self._egress.note(route, exchange)
        return exchange

    async def _check_egress(self, route: Route, exchanges: Sequence[Exchange]) -> bool | None:
        """Whether our own network works, asked only when the route's silence raises the question."""
        silent = bool(exchanges) and see(exchanges[-1]) in (Seen.NO_HTTP, Seen.TIMEOUT)
        return await self._egress.up(route) if silent else None

    def _conclude(
        self,
        route: Route,
        contract: str,
        exchanges: Sequence[Exchange],
        circumstances: Circumstances,
        redactor: Redactor,
        started: datetime,
        observed: datetime,
    ) -> Probed:
        conclusion, quirks = CONTRACTS[contract].conclude(route, exchanges, circumstances)
        deciding = exchanges[-1] if exchanges else None
        refusal = refusal_of(deciding) if deciding else None
        served = next(
            (e.reading.served_model for e in reversed(exchanges) if e.reading and e.reading.served_model), None
        )
        tokens = tokens_of(route, exchanges)
        verdict = Verdict(
            id=uuid7(observed),
            route_id=route.id,
            contract=contract,
            location=self._location,
            status=conclusion.status,
            rule_id=conclusion.rule_id,
            reason=conclusion.reason,
            quirks=tuple(sorted(quirks)),
            served_model=redactor.text(served) if served else None,
            detail=redactor.text(refusal.text) if refusal else "",
            requests=len(exchanges),
            retry_after_s=refusal.retry_after_s if refusal else None,
            started_at=started,
            observed_at=observed,
            duration_s=(observed - started).total_seconds(),
            time_to_first_token_s=deciding.first_token_s if deciding else None,
            tokens_in=tokens.input,
            tokens_out=tokens.output,
            tokens_estimated=tokens.estimated,
            rungs=tuple(_rung(exchange, redactor) for exchange in exchanges),
            facts=record(route, exchanges, circumstances, redactor.text),
            fingerprint=fingerprint(route),
            ruleset=RULESET,
            version=_VERSION,
        )
        return Probed(verdict, conclusion.because, redactor.refused)


_ENDED: Mapping[End, str] = {
    End.NO_ANSWER: "no HTTP answer",
    End.COMPLETE: "the body ended",
    End.ENOUGH: "read as far as needed",
    End.CLOSED: "the connection closed before the body was whole",
    End.RESET: "the connection broke",
    End.DEADLINE: "our deadline passed",
    End.CAP: "our cap on bytes was reached",
    End.CANCELLED: "we stopped it",
}


def _rung(exchange: Exchange, redactor: Redactor) -> Rung:
    refusal, reason, reading = refusal_of(exchange), reason_of(exchange), exchange.reading
    read = str(see(exchange)).replace("_", " ") + (f" ({reason})" if reason else "")
    if reading is not None and reading.announced:
        read += f", end announced by {redactor.text(reading.announced, 60)}"
    if refusal is not None and refusal.kind is not None:
        read += f", settled as {refusal.kind.replace('_', ' ')}"
    return Rung(
        rung=exchange.ask.rung,
        shape=exchange.ask.shape,
        ended=_ENDED[exchange.end] + (f" ({exchange.fault})" if exchange.fault else ""),
        read=read,
        status=exchange.status,
        detail=redactor.text(refusal.text) if refusal else "",
        duration_s=exchange.duration_s,
        headers_s=exchange.headers_s,
        first_token_s=exchange.first_token_s,
    )


def uuid7(moment: datetime) -> UUID:
    """A version 7 UUID (RFC 9562 §5.7): ordered by time, made where the verdict is made."""
    milliseconds = int(moment.timestamp() * 1000)
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | (0x7 << 76)
    return UUID(int=value & ~(0x3 << 62) | (0x2 << 62))
