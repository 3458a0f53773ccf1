"""From what the board and the store hold to what the API says."""

from __future__ import annotations

from service import gate, model
from service.derive import CellState, ContractState, RouteState
from service.web import views
from service.web.api import models
from service.web.views import words


def route(state: RouteState, view: views.View) -> models.Route:
    row = state.route
    required = [cell.row.confirmed for contract in state.contracts if contract.required for cell in contract.cells]
    return models.Route(
        id=row.id,
        name=row.name,
        provider=row.provider,
        dialect=row.dialect,
        model=row.model,
        url=row.url,
        tags=list(row.tags),
        status_url=row.status_url,
        outcome=state.shown,
        stale=words.is_stale(state),
        paused=state.pause is not None,
        regressed=any(confirmed.regressed for confirmed in required),
        flapping=any(confirmed.flapping for confirmed in required),
        remedy=words.route_remedy(state, view.snapshot.now),
        budget=models.Budget(tokens_per_day=row.tokens_per_day, requests_per_day=row.requests_per_day),
        spent_today=_spend(row, view.snapshot.spends.get(row.id, model.Spend())),
        price=_price(row),
        contracts=[_contract(contract) for contract in state.contracts],
    )


def verdict(stored: model.StoredVerdict) -> models.Verdict:
    standing = stored.standing
    return models.Verdict(
        id=standing.id,
        route=stored.route_id,
        contract=stored.contract,
        location=stored.location,
        observed_at=standing.observed_at,
        status=standing.status,
        outcome=standing.outcome,
        reason=standing.reason,
        rule_id=standing.rule_id,
        ruleset=stored.ruleset,
        quirks=list(standing.quirks),
        served_model=standing.served_model,
        detail=standing.detail,
        requests=standing.requests,
        retry_after_s=standing.retry_after_s,
        duration_s=standing.duration_s,
        time_to_first_token_s=standing.time_to_first_token_s,
        tokens_in=standing.tokens_in,
        tokens_out=standing.tokens_out,
        fingerprint=standing.fingerprint,
        rungs=[
            models.Rung(
                rung=rung.rung,
                shape=rung.shape,
                ended=rung.ended,
                read=rung.read,
                status=rung.status,
                detail=rung.detail,
                duration_s=rung.duration_s,
                headers_s=rung.headers_s,
                first_token_s=rung.first_token_s,
            )
            for rung in stored.rungs
        ],
        facts=dict(stored.facts),
    )


def transition(change: model.Transition) -> models.Transition:
    return models.Transition(
        id=change.id,
        at=change.at,
        route=change.route_id,
        contract=change.contract,
        location=change.location,
        kind=change.kind,
        from_status=change.from_status,
        from_reason=change.from_reason,
        to_status=change.to_status,
        to_reason=change.to_reason,
        changed=dict(change.changed),
    )


def decision(route_id: str, decided: gate.Decision, view: views.View) -> models.Gate:
    return models.Gate(
        route=route_id,
        allowed=decided.allowed,
        reasons=list(decided.reasons),
        valid_until=decided.valid_until,
        as_of=view.now,
        data_age_s=round(view.age_s, 3),
        database_up=view.database_up,
        grounds=[
            models.Ground(
                contract=ground.contract,
                location=ground.location,
                allows=ground.allows,
                reason=ground.reason,
                outcome=ground.state.shown,
                freshness=ground.state.freshness,
                status=ground.state.row.standing.status if ground.state.row.standing else None,
                fresh_until=gate.fresh_until(ground.state),
            )
            for ground in decided.grounds
        ],
    )


def asked(route_id: str, what: model.AskedNow) -> models.Asked:
    cells = [models.AskedCell(contract=c, location=p, what="due", wait_s=None) for c, p in what.due]
    cells += [models.AskedCell(contract=c, location=p, what="under_way", wait_s=None) for c, p in what.under_way]
    for word, held in (("paused", what.paused), ("too_soon", what.too_soon), ("waiting", what.waiting)):
        cells += [models.AskedCell(contract=c, location=p, what=word, wait_s=round(s, 3)) for c, p, s in held]
    return models.Asked(route=route_id, cells=sorted(cells, key=lambda cell: (cell.contract, cell.location)))


def pause(set_: model.Pause) -> models.Pause:
    return models.Pause(
        id=set_.id,
        scope=set_.scope,
        target=set_.target,
        since=set_.since,
        until=set_.until,
        stops=set_.stops,
        reason=set_.reason,
        by=set_.by,
    )


def _contract(state: ContractState) -> models.Contract:
    return models.Contract(
        contract=state.contract,
        required=state.required,
        outcome=state.shown,
        stale=state.stale,
        proven_in=list(state.proven_in),
        live_in=list(state.live_in),
        silent_in=list(state.silent_in),
        cells=[_cell(cell) for cell in state.cells],
    )


def _cell(state: CellState) -> models.Cell:
    row, standing, newer = state.row, state.row.standing, state.newer_unproven
    confirmed = row.confirmed
    return models.Cell(
        location=row.cell.location,
        required=row.cell.required,
        outcome=state.shown,
        freshness=state.freshness,
        fresh_until=gate.fresh_until(state),
        valid_until=state.valid_until,
        since=row.state_since,
        last_proven_at=row.last_proven_at,
        next_due_at=row.next_due_at,
        interval_s=row.cell.interval.total_seconds(),
        paused=state.pause is not None,
        confirmed=models.Confirmed(
            proven=confirmed.proven,
            since=confirmed.since,
            regressed=confirmed.regressed,
            regressed_since=confirmed.regressed_since,
            flapping=confirmed.flapping,
            broken=confirmed.broken,
        ),
        undecided=(
            models.Undecided(status=newer.status, reason=newer.reason, observed_at=newer.observed_at) if newer else None
        ),
        status=standing.status if standing else None,
        reason=standing.reason if standing else None,
        rule_id=standing.rule_id if standing else None,
        quirks=list(standing.quirks) if standing else [],
        served_model=standing.served_model if standing else None,
        detail=standing.detail if standing else None,
        observed_at=standing.observed_at if standing else None,
        requests=standing.requests if standing else None,
        duration_s=standing.duration_s if standing else None,
        time_to_first_token_s=standing.time_to_first_token_s if standing else None,
        tokens_in=standing.tokens_in if standing else None,
        tokens_out=standing.tokens_out if standing else None,
        verdicts=dict(row.counts),
    )


def _price(row: model.RouteRow) -> models.Price | None:
    if row.input_per_million is None or row.output_per_million is None or row.currency is None:
        return None
    return models.Price(
        input_per_million=row.input_per_million, output_per_million=row.output_per_million, currency=row.currency
    )


def _spend(row: model.RouteRow, spent: model.Spend) -> models.Spend:
    cost = None
    if row.input_per_million is not None and row.output_per_million is not None:
        cost = round((spent.tokens_in * row.input_per_million + spent.tokens_out * row.output_per_million) / 1e6, 6)
    return models.Spend(
        tokens_in=spent.tokens_in,
        tokens_out=spent.tokens_out,
        requests=spent.requests,
        estimated=spent.estimated,
        cost=cost,
    )
