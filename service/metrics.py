"""What Prometheus scrapes: the cells' series, rendered from the snapshot, and the process's own series.

Cell series are text made anew at each scrape. No gauge holds a cell's value, so none can keep its last one when
probing stops: what has expired is absent from the next scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from service.derive import CellState, Freshness, Pauses, Shown, derive
from service.model import Outcome, RouteRow, Snapshot, Spend, Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_NO_SPEND = Spend()
LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class View(Protocol):
    """What the board holds at one moment. `now` is the database's clock, carried on when it can't be reached.

    Before the first snapshot it is empty and `database_up` False.
    """

    @property
    def now(self) -> datetime: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def database_up(self) -> bool: ...


class ProcessMetrics:
    """This process's own series, in a registry of their own. All of them carry `location`."""

    def __init__(self, location: str, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it would double the number of families
        self._location = location
        self._registry = CollectorRegistry()
        self._probes = Counter(
            "routeproof_probes",
            "Probes that this process finished.",
            ("provider", "contract", "status", "outcome", "location"),
            registry=self._registry,
        )
        by_outcome = ("provider", "contract", "outcome", "location")
        self._duration = Histogram(
            "routeproof_probe_duration_seconds",
            "Duration of a whole probe.",
            by_outcome,
            buckets=SECONDS,
            registry=self._registry,
        )
        self._first_token = Histogram(
            "routeproof_probe_time_to_first_token_seconds",
            "Time from sending to the first token, where one came.",
            by_outcome,
            buckets=SECONDS,
            registry=self._registry,
        )
        self._lag = Histogram(
            "routeproof_schedule_lag_seconds",
            "Actual start of a probe minus its due time.",
            ("location",),
            buckets=LAG_SECONDS,
            registry=self._registry,
        ).labels(location)
        self._in_flight = self._gauge("routeproof_probes_in_flight", "Probes that are under way.")
        self._database_up = self._gauge("routeproof_database_up", "1 while the database answers, else 0.")
        self._egress = Gauge(
            "routeproof_egress_up",
            "1 while our own network works, else 0. Absent until that was in question.",
            ("location",),
            registry=self._registry,
        )
        self._leases_expired = self._counter("routeproof_leases_expired", "Leases that ended before their probe.")
        self._runs_missed = self._counter("routeproof_runs_missed", "Runs of the clockwork that were missed.")
        self._database_errors = self._counter("routeproof_database_errors", "Database operations that failed.")
        self._verdicts_refused = self._counter(
            "routeproof_verdicts_refused", "Verdicts that the database refused for their data."
        )
        self._redactions_refused = self._counter(
            "routeproof_redactions_refused", "Details withheld because a secret survived redaction."
        )
        self._spooled = self._gauge(
            "routeproof_spool_verdicts", "Verdicts that are kept on disk because the database is away."
        )
        self._spooled.set(0)
        self._loop_lag = self._gauge(
            "routeproof_event_loop_lag_seconds", "How late the event loop was at worst within the last minute."
        )
        self._jobs = Gauge(
            "routeproof_job_last_success_timestamp_seconds",
            "When a job of the clockwork came to its end last.",
            ("task", "location"),
            registry=self._registry,
        )
        self._reloaded = self._gauge(
            "routeproof_config_last_reload_successful", "1 when the configuration was taken up as it is now, else 0."
        )
        self._reloaded_at = self._gauge(
            "routeproof_config_last_reload_success_timestamp_seconds", "When a configuration was taken up last."
        )
        self._config = Gauge(
            "routeproof_config_info",
            "1, with the hash of the active configuration.",
            ("location", "hash"),
            registry=self._registry,
        )
        Gauge(
            "routeproof_build_info",
            "1, with the version of this build.",
            ("location", "version"),
            registry=self._registry,
        ).labels(location, version).set(1)

    def probe_started(self, lag: timedelta) -> None:
        """A probe starts, `lag` after it was due."""
        self._in_flight.inc()
        self._lag.observe(max(0.0, lag.total_seconds()))

    def probe_finished(self, provider: str, verdict: Verdict) -> None:
        """A probe that was started ended with a verdict."""
        self._in_flight.dec()
        outcome = verdict.outcome.value
        self._probes.labels(provider, verdict.contract, verdict.status.value, outcome, self._location).inc()
        labels = (provider, verdict.contract, outcome, self._location)
        self._duration.labels(*labels).observe(verdict.duration_s)
        if verdict.time_to_first_token_s is not None:
            self._first_token.labels(*labels).observe(verdict.time_to_first_token_s)

    def probe_abandoned(self) -> None:
        """A probe that was started ended without a verdict."""
        self._in_flight.dec()

    def database(self, up: bool) -> None:
        self._database_up.set(up)

    def egress(self, up: bool) -> None:
        self._egress.labels(self._location).set(up)

    def config_loaded(self, config_hash: str) -> None:
        """Another configuration is active from now on; the earlier one's series goes."""
        self._config.clear()
        self._config.labels(self._location, config_hash).set(1)

    def config_reloaded(self, *, successful: bool) -> None:
        """The configuration was taken up, at the start or later, or had mistakes."""
        self._reloaded.set(successful)
        if successful:
            self._reloaded_at.set_to_current_time()

    def spooled(self, verdicts: int) -> None:
        self._spooled.set(verdicts)

    def loop_lag(self, seconds: float) -> None:
        self._loop_lag.set(seconds)

    def job_done(self, job: str) -> None:
        self._jobs.labels(job, self._location).set_to_current_time()

    def leases_expired(self, count: int = 1) -> None:
        self._leases_expired.inc(count)

    def runs_missed(self, count: int = 1) -> None:
        self._runs_missed.inc(count)

    def database_error(self) -> None:
        self._database_errors.inc()

    def verdict_refused(self) -> None:
        self._verdicts_refused.inc()

    def redaction_refused(self) -> None:
        self._redactions_refused.inc()

    def render(self) -> bytes:
        """The process's series in the text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, ("location",), registry=self._registry).labels(self._location)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, ("location",), registry=self._registry).labels(self._location)


def exposition(process: ProcessMetrics, view: View) -> bytes:
    """The whole answer to a scrape: the process's series, then those of the cells at `view.now`."""
    process.database(view.database_up)
    return b"".join([process.render(), *(family.encode() for family in _families(view.snapshot, view.now))])


def render_cells(snapshot: Snapshot, now: datetime) -> str:
    """The series of every cell, route and location of a snapshot at `now`, in the text format."""
    return "".join(_families(snapshot, now))


def _families(snapshot: Snapshot, now: datetime) -> Iterator[str]:
    """One pass over the cells, 180,000 lines when there are ten thousand: the states are let go at once, so that no
    garbage collection is due meanwhile, and what lines have in common outlasts the scrape."""
    flags: list[list[str]] = [[] for _ in _FLAGS]
    values: list[list[str]] = [[] for _ in _VALUES]
    status: list[str] = []
    counted: list[str] = []
    add_flags = [(lines.append, flag) for lines, (_, _, flag) in zip(flags, _FLAGS, strict=True)]
    add_values = [(lines.append, value) for lines, (_, _, value) in zip(values, _VALUES, strict=True)]
    pauses = Pauses(snapshot.pauses, now)
    for row in snapshot.cells:
        state = derive(row, now, pauses.of(row.route))
        labels, words = _cell_texts(row.route.id, row.route.provider, row.cell.contract, row.cell.location)
        for add, flag in add_flags:
            if (on := flag(state)) is not None:
                add(words[on])
        for add, value in add_values:
            if (v := value(state)) is not None:
                add(f"{labels}}} {v!r}")
        if state.shown is not Shown.UNKNOWN and (s := row.standing):
            status.append(f"{labels},{_verdict_labels(s.status, s.outcome, s.reason)}}} 1")
        for outcome, count in zip(_OUTCOMES, {**_NONE_COUNTED, **row.counts}.values(), strict=True):
            counted.append(f"{labels},{outcome}}} {count}")
    for (name, meaning, _), lines in zip(_FLAGS, flags, strict=True):
        yield _family(name, "gauge", meaning, lines)
    for (name, meaning, _), lines in zip(_VALUES, values, strict=True):
        yield _family(name, "gauge", meaning, lines)
    yield _family(
        "routeproof_contract_status",
        "gauge",
        "1, with the words of the standing verdict; absent when expired.",
        status,
    )
    yield _family(
        "routeproof_contract_verdicts_total",
        "counter",
        "Verdicts stored for the cell, by outcome, since it exists.",
        counted,
    )
    routes = {row.route.id: row.route for row in snapshot.cells}.values()
    yield _family(
        "routeproof_route_info",
        "gauge",
        "1, with what is configured of the route.",
        [f"{{{_route_labels(route)}}} 1" for route in routes],
    )
    yield from _spends(snapshot)
    yield from _locations(snapshot, now)


def _proven(state: CellState) -> bool | None:
    return None if state.shown is Shown.UNKNOWN else state.shown is Shown.PROVEN


def _regressed(state: CellState) -> bool:
    return state.row.confirmed.regressed


def _flapping(state: CellState) -> bool:
    return state.row.confirmed.flapping


def _fresh(state: CellState) -> bool:
    return state.freshness is Freshness.FRESH


def _required(state: CellState) -> bool:
    return state.row.cell.required


def _paused(state: CellState) -> bool:
    return state.pause is not None


def _last_verdict(state: CellState) -> float | None:
    return state.row.last.observed_at.timestamp() if state.row.last else None


def _last_proven(state: CellState) -> float | None:
    return state.row.last_proven_at.timestamp() if state.row.last_proven_at else None


def _last_transition(state: CellState) -> float | None:
    return state.row.last_transition_at.timestamp() if state.row.last_transition_at else None


def _proof_expires(state: CellState) -> float | None:
    proven_at = state.row.last_proven_at
    return (proven_at + state.row.cell.expires_after).timestamp() if proven_at else None


def _first_token(state: CellState) -> float | None:
    return state.row.last.time_to_first_token_s if state.row.last else None


def _duration(state: CellState) -> float | None:
    return state.row.last.duration_s if state.row.last else None


_FLAGS: tuple[tuple[str, str, Callable[[CellState], bool | None]], ...] = (
    (
        "routeproof_contract_proven",
        "1 when the standing verdict proves the contract, 0 when not; absent when expired or never probed.",
        _proven,
    ),
    (
        "routeproof_contract_regressed",
        "1 from the confirmed change from proven to not proven until it is confirmed proven again, else 0.",
        _regressed,
    ),
    (
        "routeproof_contract_flapping",
        "1 from the second regression within a day until the contract is steadily proven or plainly broken, else 0.",
        _flapping,
    ),
    ("routeproof_contract_fresh", "1 while the standing verdict is fresh, else 0.", _fresh),
    ("routeproof_contract_required", "1 when the route's state rests on this contract, else 0.", _required),
    ("routeproof_contract_paused", "1 while a pause mutes alerts about the cell, else 0.", _paused),
)
_VALUES: tuple[tuple[str, str, Callable[[CellState], float | None]], ...] = (
    (
        "routeproof_contract_last_verdict_timestamp_seconds",
        "When the newest verdict was observed, whatever it says.",
        _last_verdict,
    ),
    (
        "routeproof_contract_last_proven_timestamp_seconds",
        "When the contract was last seen to hold.",
        _last_proven,
    ),
    (
        "routeproof_contract_last_transition_timestamp_seconds",
        "When the confirmed state changed last.",
        _last_transition,
    ),
    (
        "routeproof_contract_proof_expires_timestamp_seconds",
        "When the newest proof expires or did expire; it stays when a later verdict isn't a proof.",
        _proof_expires,
    ),
    (
        "routeproof_contract_last_time_to_first_token_seconds",
        "Time to the first token in the newest probe, where one came.",
        _first_token,
    ),
    ("routeproof_contract_last_duration_seconds", "Duration of the newest probe.", _duration),
)


def _spends(snapshot: Snapshot) -> Iterable[str]:
    """What routes have used, over all locations: since they exist, and of the day's budget."""
    used: dict[str, tuple[RouteRow, int, int]] = {}
    for row in snapshot.cells:
        _, tokens_in, tokens_out = used.get(row.route.id, (row.route, 0, 0))
        used[row.route.id] = (row.route, tokens_in + row.tokens_in, tokens_out + row.tokens_out)
    totals: list[str] = []
    ratios: list[str] = []
    prices: list[str] = []
    for route, tokens_in, tokens_out in used.values():
        labels = _whose_labels(route.id, route.provider)
        totals.append(f'{{{labels},kind="input"}} {tokens_in}')
        totals.append(f'{{{labels},kind="output"}} {tokens_out}')
        spend = snapshot.spends.get(route.id, _NO_SPEND)
        if route.tokens_per_day:
            ratios.append(f'{{{labels},kind="tokens"}} {spend.tokens / route.tokens_per_day!r}')
        if route.requests_per_day:
            ratios.append(f'{{{labels},kind="requests"}} {spend.requests / route.requests_per_day!r}')
        if route.currency is not None:
            in_currency = f"{labels},{_labels(currency=route.currency)}"
            prices.append(f'{{{in_currency},kind="input"}} {route.input_per_million!r}')
            prices.append(f'{{{in_currency},kind="output"}} {route.output_per_million!r}')
    return (
        _family(
            "routeproof_route_tokens_total",
            "counter",
            "Tokens that probes of the route used, by the provider's own numbers.",
            totals,
        ),
        _family(
            "routeproof_route_budget_spent_ratio",
            "gauge",
            "Share of the UTC day's budget that is used up. Absent without a budget.",
            ratios,
        ),
        _family(
            "routeproof_route_price_per_million_tokens",
            "gauge",
            "What a million tokens cost. Absent without a price.",
            prices,
        ),
    )


def _locations(snapshot: Snapshot, now: datetime) -> Iterable[str]:
    cells: dict[str, int] = {}
    newest: dict[str, datetime] = {}
    due: dict[str, datetime] = {}
    for row in snapshot.cells:
        location = row.cell.location
        cells[location] = cells.get(location, 0) + 1
        if row.last is not None:
            newest[location] = max(row.last.observed_at, newest.get(location, row.last.observed_at))
        if row.next_due_at is not None:
            due[location] = min(row.next_due_at, due.get(location, now))
    return (
        _family(
            "routeproof_location_last_verdict_timestamp_seconds",
            "gauge",
            "When the newest verdict from this location was observed.",
            _by_location((location, at.timestamp()) for location, at in newest.items()),
        ),
        _family(
            "routeproof_location_oldest_due_seconds",
            "gauge",
            "For how long the longest waiting cell has been due; 0 when none waits.",
            _by_location((location, (now - due.get(location, now)).total_seconds()) for location in cells),
        ),
        _family(
            "routeproof_location_cells",
            "gauge",
            "Cells that are configured for this location.",
            _by_location(cells.items()),
        ),
    )


def _by_location(values: Iterable[tuple[str, float]]) -> list[str]:
    return [f"{{{_labels(location=location)}}} {value!r}" for location, value in values]


def _family(name: str, kind: str, meaning: str, series: list[str]) -> str:
    """A family; of each series, what stands after the metric's name."""
    return f"# HELP {name} {meaning}\n" + f"\n{name}".join([f"# TYPE {name} {kind}", *series]) + "\n"


@lru_cache(maxsize=65536)
def _cell_texts(route: str, provider: str, contract: str, location: str) -> tuple[str, tuple[str, str]]:
    """What the series of a cell have in common: the labels, open for more; the labels with a 0, and with a 1."""
    labels = "{" + _labels(route=route, provider=provider, contract=contract, location=location)
    return labels, (labels + "} 0", labels + "} 1")


@lru_cache(maxsize=65536)
def _whose_labels(route: str, provider: str) -> str:
    return _labels(route=route, provider=provider)


@lru_cache(maxsize=65536)
def _route_labels(route: RouteRow) -> str:
    return _labels(
        route=route.id,
        provider=route.provider,
        model=route.model,
        dialect=route.dialect,
        tags=f",{','.join(route.tags)}," if route.tags else "",
        url=route.url,
    )


@lru_cache(maxsize=4096)
def _verdict_labels(status: str, outcome: Outcome, reason: str | None) -> str:
    return _labels(status=status, outcome=outcome.value, reason=reason or "")


def _labels(**values: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


_NONE_COUNTED = dict.fromkeys(Outcome, 0)
_OUTCOMES = tuple(_labels(outcome=outcome.value) for outcome in _NONE_COUNTED)
