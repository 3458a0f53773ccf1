"""The page of one route, over the board's view and what the store holds of its past."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from service.derive import RouteState
from service.model import LATENCY_BOUNDS_S
from service.web import charts, views
from service.web.door import viewer_of
from service.web.parts import Parts
from service.web.views.operating import operating
from service.web.views.past import WINDOW, WINDOWS, Window

VERDICTS = 50
CHANGES = 10
READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """`/routes/{id}`, with `window` and `contract` of what its charts show."""
    pages = APIRouter(include_in_schema=False)

    @pages.api_route("/routes/{route_id}", methods=READ)
    async def route(request: Request, route_id: str) -> HTMLResponse:
        view = await parts.board.view()
        state = views.state_of(view, route_id)
        if state is None:
            raise HTTPException(404, "No route with this id is configured.")
        window = WINDOWS.get(request.query_params.get("window", ""), WINDOWS[WINDOW])
        contract = views.contract_asked(state, request.query_params.get("contract", ""))
        known = await _known(parts, view, state, contract, window) if view.database_up else None
        configured, viewer = parts.routes().get(route_id), viewer_of(request)

        def render() -> HTMLResponse:
            page = views.route_page(
                view, state, known, parts.because, window=window, contract=contract, route=configured
            )
            return parts.templates.render(
                "route.html",
                page=page,
                header=page.header,
                viewer=viewer,
                charts=charts,
                bounds=LATENCY_BOUNDS_S,
                operating=operating(view, state, request.query_params),
            )

        return await run_in_threadpool(render)

    return pages


async def _known(
    parts: Parts, view: views.View, state: RouteState, contract: str, window: Window
) -> views.Known | None:
    """None when the store can't be asked now: the page says so, and shows the rest."""
    route_id, (since, until) = state.route.id, window.bounds(view.now)
    try:
        return views.Known(
            verdicts=await parts.store.verdicts(route_id, VERDICTS),
            changes=await parts.store.transitions(route_id, CHANGES),
            spoken_of=await parts.store.verdicts_at(views.spoken_of(state)),
            spans=await parts.store.spans(route_id, contract, since, until, window.width),
        )
    except parts.unavailable:
        return None
