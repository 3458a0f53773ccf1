"""The calls of the API: `/api/v1/…`. None takes a URL, a host or a header."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service import gate
from service.derive import RouteState, route_states
from service.web import actions, problems, views
from service.web.api import models, params, said
from service.web.api.answers import said as answered
from service.web.api.answers import unless_known
from service.web.api.document import failures
from service.web.door import viewer_of
from service.web.parts import Parts
from service.web.problems import Problem
from service.web.select import Selection, place
from service.web.states import States

RouteId = Annotated[str, Path(max_length=200, description="the id of a route")]


def router(parts: Parts) -> APIRouter:
    """All calls."""
    api = APIRouter(prefix="/api/v1")
    for add in (_routes, _history, _gate, _pauses):
        add(api, parts)
    return api


def _routes(api: APIRouter, parts: Parts) -> None:
    states = States()

    @api.get(
        "/routes",
        operation_id="listRoutes",
        tags=["routes"],
        summary="Routes and their state",
        response_model=models.Routes,
        responses=failures(400, 401, 503),
    )
    async def routes(request: Request, asked: Annotated[params.RouteQuery, Query()]) -> Response:
        view = await actions.known(parts)
        after = params.after_route(asked.cursor, asked.order) if asked.cursor else None
        return unless_known(
            request, view, await run_in_threadpool(lambda: _some_routes(states.of(view), view, asked, after))
        )

    @api.get(
        "/routes/{id}",
        operation_id="getRoute",
        tags=["routes"],
        summary="One route",
        response_model=models.Route,
        responses=failures(400, 401, 404, 503),
        dependencies=[Depends(params.only())],
    )
    async def route(request: Request, id: RouteId) -> Response:
        view = await actions.known(parts)
        return unless_known(request, view, said.route(_state_of(view, id), view))

    @api.post(
        "/routes/{id}/probe",
        operation_id="probeRoute",
        tags=["routes"],
        summary="Ask a route now",
        description="Makes its cells due at once: never twice within a minute, never while a probe of the cell is under"
        " way, and not while the provider asked us to wait or a pause stops it. Refused only when not a single cell"
        " becomes due.",
        status_code=202,
        response_model=models.Asked,
        responses=failures(400, 401, 403, 404, 409, 413, 429, 503),
    )
    async def probe(request: Request, id: RouteId, asked: Annotated[params.ProbeQuery, Query()]) -> Response:
        found = await actions.ask_now(parts, viewer_of(request), id, asked.contract)
        body = said.asked(id, found)
        if found.due:
            return answered(body, 202)
        cells = {"cells": [cell.model_dump() for cell in body.cells]}
        if found.paused:
            raise Problem(problems.PAUSED, "A pause stops this route: end that to ask now.", more=cells)
        waits = [seconds for _, _, seconds in (*found.too_soon, *found.waiting)]
        if waits:
            wait_s = max(1, math.ceil(min(waits)))
            raise Problem(
                problems.TOO_SOON,
                f"No cell can be asked yet. Try again in {wait_s} s.",
                headers={"retry-after": str(wait_s)},
                more=cells,
            )
        if found.under_way:
            raise Problem(problems.UNDER_WAY, "Every cell is being asked at this moment.", more=cells)
        raise actions.no_such_route()  # it went since the board was read


def _some_routes(
    states: Sequence[RouteState], view: views.View, asked: params.RouteQuery, after: tuple[int, str, str] | None
) -> models.Routes:
    selection = Selection(
        q=asked.q,
        provider=asked.provider,
        outcomes=frozenset(asked.outcome),
        tags=frozenset(asked.tag),
        contract=asked.contract,
        location=asked.location,
    )
    key = place(asked.order)
    found = sorted((state for state in states if selection.matches(state)), key=key)
    left = [state for state in found if after is None or key(state) > after]
    page = left[: asked.limit]
    return models.Routes(
        items=[said.route(state, view) for state in page],
        total=len(found),
        next=params.cursor(asked.order.value, *key(page[-1])) if len(left) > len(page) else None,
        database_up=view.database_up,
    )


def _state_of(view: views.View, id: str) -> RouteState:
    states = route_states((row for row in view.snapshot.cells if row.route.id == id), view.now, view.snapshot.pauses)
    if not states:
        raise actions.no_such_route()
    return states[0]


def _history(api: APIRouter, parts: Parts) -> None:
    @api.get(
        "/verdicts",
        operation_id="listVerdicts",
        tags=["history"],
        summary="Verdicts, newest first",
        response_model=models.Verdicts,
        responses=failures(400, 401, 503),
    )
    async def verdicts(asked: Annotated[params.VerdictQuery, Query()]) -> Response:
        before = params.before_verdict(asked.cursor) if asked.cursor else None
        try:
            found = await parts.store.verdict_page(
                route_id=asked.route,
                provider=asked.provider,
                contract=asked.contract,
                location=asked.location,
                outcome=asked.outcome,
                status=asked.status,
                since=asked.since,
                until=asked.until,
                before=before,
                limit=asked.limit + 1,
            )
        except parts.unavailable:
            raise actions.unavailable() from None
        page = found[: asked.limit]
        last = page[-1].standing if len(found) > len(page) else None
        following = params.cursor(last.observed_at, last.id) if last else None
        return answered(models.Verdicts(items=[said.verdict(stored) for stored in page], next=following))

    @api.get(
        "/transitions",
        operation_id="listTransitions",
        tags=["history"],
        summary="Changes of state, newest first",
        response_model=models.Transitions,
        responses=failures(400, 401, 503),
    )
    async def transitions(asked: Annotated[params.TransitionQuery, Query()]) -> Response:
        before = params.before_transition(asked.cursor) if asked.cursor else None
        try:
            found = await parts.store.transition_page(
                route_id=asked.route,
                provider=asked.provider,
                contract=asked.contract,
                location=asked.location,
                kinds=asked.kind or None,
                before=before,
                limit=asked.limit + 1,
            )
        except parts.unavailable:
            raise actions.unavailable() from None
        page = found[: asked.limit]
        following = params.cursor(page[-1].at, page[-1].id) if len(found) > len(page) else None
        return answered(models.Transitions(items=[said.transition(change) for change in page], next=following))


def _gate(api: APIRouter, parts: Parts) -> None:
    @api.get(
        "/gate/{id}",
        operation_id="askGate",
        tags=["gate"],
        summary="May tool traffic go to this route now?",
        description="Allowed when every required contract is proven, fresh and confirmed. What isn't known is refused, "
        "unless `unknown=allow`; what is known to be broken is refused always.",
        response_model=models.Gate,
        responses=failures(400, 401, 404, 503),
    )
    async def ask_gate(id: RouteId, asked: Annotated[params.GateQuery, Query()]) -> Response:
        view = await actions.known(parts)
        state = _state_of(view, id)
        places = {cell.row.cell.location for contract in state.contracts for cell in contract.cells}
        if asked.location is not None and asked.location not in places:
            raise Problem(problems.NOT_FOUND, "The route isn't probed from this location.")
        decided = gate.decide(state, asked.location, allow_unknown=asked.unknown == "allow")
        return answered(said.decision(id, decided, view))


def _pauses(api: APIRouter, parts: Parts) -> None:
    @api.get(
        "/pauses",
        operation_id="listPauses",
        tags=["pauses"],
        summary="Pauses that go on, or those that are over",
        response_model=models.Pauses,
        responses=failures(400, 401, 503),
    )
    async def pauses(asked: Annotated[params.PauseQuery, Query()]) -> Response:
        try:
            found = await parts.store.pauses(asked.ended)
        except parts.unavailable:
            raise actions.unavailable() from None
        return answered(models.Pauses(items=[said.pause(one) for one in found]))

    @api.post(
        "/pauses",
        operation_id="startPause",
        tags=["pauses"],
        summary="Pause a route, a provider or a tag",
        status_code=201,
        response_model=models.Pause,
        responses=failures(400, 401, 403, 404, 413, 503),
        dependencies=[Depends(params.only())],
    )
    async def start(request: Request, wanted: params.NewPause) -> Response:
        made = await actions.pause(
            parts,
            viewer_of(request),
            wanted.scope,
            wanted.target,
            wanted.duration_s,
            wanted.stops,
            wanted.reason,
            wanted.by,
        )
        return answered(said.pause(made), 201)

    @api.delete(
        "/pauses/{id}",
        operation_id="endPause",
        tags=["pauses"],
        summary="End a pause",
        response_model=models.Pause,
        responses=failures(400, 401, 403, 404, 413, 503),
        dependencies=[Depends(params.only())],
    )
    async def end(request: Request, id: UUID) -> Response:
        return answered(said.pause(await actions.end_pause(parts, viewer_of(request), id)))
