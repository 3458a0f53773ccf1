"""The series of cells, routes and locations: text made anew at each scrape.

No gauge holds a cell's value, so none can keep its last one when probing stops: what has expired is absent from the
next scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from service.derive import CellState, Freshness, Pauses, Shown, derive
from service.metrics.text import cell_texts, family, labelled, route_labels, verdict_labels, whose_labels
from service.model import Outcome, RouteRow, Snapshot, Spend

_NO_SPEND = Spend()


def render_cells(snapshot: Snapshot, now: datetime) -> str:
    """The series of every cell, route and location of a snapshot at `now`, in the text format."""
    return "".join(families(snapshot, now))


def families(snapshot: Snapshot, now: datetime) -> Iterator[str]:
    """The same, a family at a time.

    One pass over the cells, 180,000 lines when there are ten thousand: the states are let go at once, so that no
    garbage collection is due meanwhile, and what lines have in common outlasts the scrape.
    """
    flags: list[list[str]] = [[] for _ in _FLAGS]
    values: list[list[str]] = [[] for _ in _VALUES]
    status: list[str] = []
    quirks: list[str] = []
    counted: list[str] = []
    add_flags = [(lines.append, flag) for lines, (_, _, flag) in zip(flags, _FLAGS, strict=True)]
    add_values = [(lines.append, value) for lines, (_, _, value) in zip(values, _VALUES, strict=True)]
    pauses = Pauses(snapshot.pauses, now)
    for row in snapshot.cells:
        state = derive(row, now, pauses.of(row.route))
        labels, words = cell_texts(row.route.id, row.route.provider, row.cell.contract, row.cell.location)
        for add, flag in add_flags:
            if (on := flag(state)) is not None:
                add(words[on])
        for add, value in add_values:
            if (v := value(state)) is not None:
                add(f"{labels}}} {v!r}")
        if state.shown is not Shown.UNKNOWN and (s := row.standing):
            status.append(f"{labels},{verdict_labels(s.status, s.outcome, s.reason)}}} 1")
            quirks += [f"{labels},{labelled(quirk=quirk)}}} 1" for quirk in s.quirks]
        for outcome, count in zip(_OUTCOMES, {**_NONE_COUNTED, **row.counts}.values(), strict=True):
            counted.append(f"{labels},{outcome}}} {count}")
    for (name, meaning, _), lines in zip(_FLAGS, flags, strict=True):
        yield family(name, "gauge", meaning, lines)
    for (name, meaning, _), lines in zip(_VALUES, values, strict=True):
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
    routes = {row.route.id: row.route for row in snapshot.cells}.values()
    yield family(
        "routeproof_route_info",
        "gauge",
        "1, with what is configured of the route.",
        [f"{{{route_labels(route)}}} 1" for route in routes],
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
        labels = whose_labels(route.id, route.provider)
        totals.append(f'{{{labels},kind="input"}} {tokens_in}')
        totals.append(f'{{{labels},kind="output"}} {tokens_out}')
        spend = snapshot.spends.get(route.id, _NO_SPEND)
        if route.tokens_per_day:
            ratios.append(f'{{{labels},kind="tokens"}} {spend.tokens / route.tokens_per_day!r}')
        if route.requests_per_day:
            ratios.append(f'{{{labels},kind="requests"}} {spend.requests / route.requests_per_day!r}')
        if route.currency is not None:
            in_currency = f"{labels},{labelled(currency=route.currency)}"
            prices.append(f'{{{in_currency},kind="input"}} {route.input_per_million!r}')
            prices.append(f'{{{in_currency},kind="output"}} {route.output_per_million!r}')
    return (
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


def _locations(snapshot: Snapshot, now: datetime) -> Iterable[str]:
    cells: dict[str, int] = {}
    newest: dict[str, datetime] = {}
    waiting: dict[str, float] = {}
    for row in snapshot.cells:
        location = row.cell.location
        cells[location] = cells.get(location, 0) + 1
        if row.last is not None:
            newest[location] = max(row.last.observed_at, newest.get(location, row.last.observed_at))
        late = row.claimed_late_s if row.next_due_at is None else (now - row.next_due_at).total_seconds()
        waiting[location] = max(late or 0.0, waiting.get(location, 0.0))
    return (
        family(
            "routeproof_location_last_verdict_timestamp_seconds",
            "gauge",
            "When the newest verdict from this location was observed.",
            _by_location((location, at.timestamp()) for location, at in newest.items()),
        ),
        family(
            "routeproof_location_oldest_due_seconds",
            "gauge",
            "For how long the longest waiting cell has been due, or was when its probe began; 0 when none waits.",
            _by_location(waiting.items()),
        ),
        family(
            "routeproof_location_cells",
            "gauge",
            "Cells that are configured for this location.",
            _by_location(cells.items()),
        ),
    )


def _by_location(values: Iterable[tuple[str, float]]) -> list[str]:
    return [f"{{{labelled(location=location)}}} {value!r}" for location, value in values]


_NONE_COUNTED = dict.fromkeys(Outcome, 0)
_OUTCOMES = tuple(labelled(outcome=outcome.value) for outcome in _NONE_COUNTED)
