"""The series of cells, routes and locations: text made anew at each scrape.

No gauge holds a cell's value, so none can keep its last one when probing stops: what has expired is absent from the
next scrape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from service.derive import CellState, Freshness, Pauses, Shown, derive
from service.metrics.text import cell_texts, family, labelled, route_labels, verdict_labels, whose_labels
from service.model import CellRow, Outcome, RouteRow, Snapshot, Spend

_NO_SPEND = Spend()
_FRESH, _PROVEN, _UNKNOWN = Freshness.FRESH, Shown.PROVEN, Shown.UNKNOWN
_OUTCOMES = tuple((outcome, f",{labelled(outcome=outcome.value)}}} ") for outcome in Outcome)


def render_cells(snapshot: Snapshot, now: datetime) -> str:
    """The series of every cell, route and location of a snapshot at `now`, in the text format."""
    return "".join(families(snapshot, now))


def families(snapshot: Snapshot, now: datetime) -> Iterator[str]:
    """The same, a family at a time.

    One pass over the cells, 180,000 lines when there are ten thousand: each further one would fetch them from memory
    again. The states are let go at once and sums are plain numbers, so that no garbage collection is due meanwhile;
    what lines have in common outlasts the scrape.
    """
    flags: list[list[str]] = [[] for _ in _FLAGS]
    values: list[list[str]] = [[] for _ in _VALUES]
    status: list[str] = []
    quirks: list[str] = []
    counted: list[str] = []
    routes: dict[str, RouteRow] = {}
    tokens_in: dict[str, int] = {}
    tokens_out: dict[str, int] = {}
    places: defaultdict[str, _Place] = defaultdict(_Place)
    add_flags = [lines.append for lines in flags]
    add_values = [lines.append for lines in values]
    pauses = Pauses(snapshot.pauses, now)
    for row in snapshot.cells:
        route, location = row.route, row.cell.location
        state = derive(row, now, pauses.of(route))
        labels, valued, flagged = cell_texts(route.id, route.provider, row.cell.contract, location)
        for add, on in zip(add_flags, _flags(state), strict=True):
            if on is not None:
                add(flagged[on])
        for add, value in zip(add_values, _values(row), strict=True):
            if value is not None:
                add(f"{valued}{value!r}")
        if state.shown is not _UNKNOWN and (s := row.standing):
            status.append(f"{labels},{verdict_labels(s.status, s.outcome, s.reason)}}} 1")
            quirks += [f"{labels},{labelled(quirk=quirk)}}} 1" for quirk in s.quirks]
        counts = row.counts
        counted += [f"{labels}{words}{counts.get(outcome, 0)}" for outcome, words in _OUTCOMES]
        routes[route.id] = route
        tokens_in[route.id] = tokens_in.get(route.id, 0) + row.tokens_in
        tokens_out[route.id] = tokens_out.get(route.id, 0) + row.tokens_out
        places[location].add(row)
    for (name, meaning), lines in zip(_FLAGS, flags, strict=True):
        yield family(name, "gauge", meaning, lines)
    for (name, meaning), lines in zip(_VALUES, values, strict=True):
        yield family(name, "gauge", meaning, lines)
    yield family(
        "routeproof_contract_status",
        "gauge",
        "1, with the words of the standing verdict; absent when expired.",
        status,
    )
    yield family(
        "routeproof_contract_quirk",
        "gauge",
        "1 for each quirk of the standing verdict; absent when expired.",
        quirks,
    )
    yield family(
        "routeproof_contract_verdicts_total",
        "counter",
        "Verdicts stored for the cell, by outcome, since it exists.",
        counted,
    )
    yield from _routes(routes.values(), tokens_in, tokens_out, snapshot.spends)
    yield from _locations(places, now)


@dataclass(slots=True)
class _Place:
    """The cells of one location: the newest verdict, the first that is due, and how late a probe began at most."""

    cells: int = 0
    newest: datetime | None = None
    due: datetime | None = None
    late_s: float = 0.0

    def add(self, row: CellRow) -> None:
        self.cells += 1
        if row.last is not None and (self.newest is None or row.last.observed_at > self.newest):
            self.newest = row.last.observed_at
        if row.next_due_at is None:
            self.late_s = max(row.claimed_late_s or 0.0, self.late_s)
        elif self.due is None or row.next_due_at < self.due:
            self.due = row.next_due_at

    def waiting_s(self, now: datetime) -> float:
        return self.late_s if self.due is None else max((now - self.due).total_seconds(), self.late_s)


_FLAGS = (
    (
        "routeproof_contract_proven",
        "1 when the standing verdict proves the contract, 0 when not; absent when expired or never probed.",
    ),
    (
        "routeproof_contract_regressed",
        "1 from the confirmed change from proven to not proven until it is confirmed proven again, else 0.",
    ),
    (
        "routeproof_contract_flapping",
        "1 from the second regression within a day until the contract is steadily proven or plainly broken, else 0.",
    ),
    ("routeproof_contract_fresh", "1 while the standing verdict is fresh, else 0."),
    ("routeproof_contract_required", "1 when the route's state rests on this contract, else 0."),
    ("routeproof_contract_paused", "1 while a pause mutes alerts about the cell, else 0."),
)


def _flags(state: CellState) -> tuple[bool | None, ...]:
    """What `_FLAGS` say of a cell; None: nothing."""
    row, shown = state.row, state.shown
    return (
        None if shown is _UNKNOWN else shown is _PROVEN,
        row.confirmed.regressed,
        row.confirmed.flapping,
        state.freshness is _FRESH,
        row.cell.required,
        state.pause is not None,
    )


_VALUES = (
    (
        "routeproof_contract_last_verdict_timestamp_seconds",
        "When the newest verdict was observed, whatever it says.",
    ),
    (
        "routeproof_contract_last_proven_timestamp_seconds",
        "When the contract was last seen to hold.",
    ),
    (
        "routeproof_contract_last_transition_timestamp_seconds",
        "When the confirmed state changed last.",
    ),
    (
        "routeproof_contract_proof_expires_timestamp_seconds",
        "When the newest proof expires or did expire; it stays when a later verdict isn't a proof.",
    ),
    (
        "routeproof_contract_last_time_to_first_token_seconds",
        "Time to the first token in the newest probe, where one came.",
    ),
    ("routeproof_contract_last_duration_seconds", "Duration of the newest probe."),
)


def _values(row: CellRow) -> tuple[float | None, ...]:
    """What `_VALUES` say of a cell; None: nothing."""
    last, proven_at, changed_at = row.last, row.last_proven_at, row.last_transition_at
    return (
        last.observed_at.timestamp() if last else None,
        proven_at.timestamp() if proven_at else None,
        changed_at.timestamp() if changed_at else None,
        (proven_at + row.cell.expires_after).timestamp() if proven_at else None,
        last.time_to_first_token_s if last else None,
        last.duration_s if last else None,
    )


def _routes(
    routes: Iterable[RouteRow], tokens_in: Mapping[str, int], tokens_out: Mapping[str, int], spends: Mapping[str, Spend]
) -> Iterable[str]:
    """What is configured of routes and what they have used, over all locations: since they exist, and of the day's
    budget."""
    info: list[str] = []
    totals: list[str] = []
    ratios: list[str] = []
    prices: list[str] = []
    for route in routes:
        labels = whose_labels(route.id, route.provider)
        told = route_labels(route.id, route.provider, route.model, route.dialect, route.tags, route.url)
        info.append(f"{{{told}}} 1")
        totals.append(f'{{{labels},kind="input"}} {tokens_in[route.id]}')
        totals.append(f'{{{labels},kind="output"}} {tokens_out[route.id]}')
        spend = spends.get(route.id, _NO_SPEND)
        if route.tokens_per_day:
            ratios.append(f'{{{labels},kind="tokens"}} {spend.tokens / route.tokens_per_day!r}')
        if route.requests_per_day:
            ratios.append(f'{{{labels},kind="requests"}} {spend.requests / route.requests_per_day!r}')
        if route.currency is not None:
            in_currency = f"{labels},{labelled(currency=route.currency)}"
            prices.append(f'{{{in_currency},kind="input"}} {route.input_per_million!r}')
            prices.append(f'{{{in_currency},kind="output"}} {route.output_per_million!r}')
    return (
        family("routeproof_route_info", "gauge", "1, with what is configured of the route.", info),
        family(
            "routeproof_route_tokens_total",
            "counter",
            "Tokens that probes of the route used, by the provider's own numbers.",
            totals,
        ),
        family(
            "routeproof_route_budget_spent_ratio",
            "gauge",
            "Share of the UTC day's budget that is used up. Absent without a budget.",
            ratios,
        ),
        family(
            "routeproof_route_price_per_million_tokens",
            "gauge",
            "What a million tokens cost. Absent without a price.",
            prices,
        ),
    )


def _locations(places: Mapping[str, _Place], now: datetime) -> Iterable[str]:
    return (
        family(
            "routeproof_location_last_verdict_timestamp_seconds",
            "gauge",
            "When the newest verdict from this location was observed.",
            _by_location((location, place.newest.timestamp()) for location, place in places.items() if place.newest),
        ),
        family(
            "routeproof_location_oldest_due_seconds",
            "gauge",
            "For how long the longest waiting cell has been due, or was when its probe began; 0 when none waits.",
            _by_location((location, place.waiting_s(now)) for location, place in places.items()),
        ),
        family(
            "routeproof_location_cells",
            "gauge",
            "Cells that are configured for this location.",
            _by_location((location, place.cells) for location, place in places.items()),
        ),
    )


def _by_location(values: Iterable[tuple[str, float]]) -> list[str]:
    return [f"{{{labelled(location=location)}}} {value!r}" for location, value in values]
