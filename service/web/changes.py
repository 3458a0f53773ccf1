"""Changes of state over all routes: the list for people, the feed for readers of feeds."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from service.model import Transition
from service.web import actions, feed, views
from service.web.api import params
from service.web.door import viewer_of
from service.web.kept import unless_known
from service.web.parts import Parts
from service.web.views import transitions
from service.web.views.transitions import Asked

PAGE = 50
FEED = 100
READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """`/transitions`, `/transitions.atom` with the same filters, and `/routes/{id}/transitions.atom`."""
    pages = APIRouter(include_in_schema=False)

    @pages.api_route("/transitions", methods=READ)
    async def page(request: Request) -> HTMLResponse:
        view, asked = await parts.board.view(), Asked.of(request.query_params)
        found: Sequence[Transition] | None = None
        if view.database_up:
            try:
                found = await _read(parts, asked, PAGE + 1)
            except parts.unavailable:
                found = None
        older = None
        if found is not None and len(found) > PAGE:
            found = found[:PAGE]
            older = params.cursor(found[-1].at, found[-1].id)
        shown = transitions.transitions_page(view, asked, found, older)
        viewer = viewer_of(request)
        return await run_in_threadpool(
            lambda: parts.templates.render("transitions.html", page=shown, header=shown.header, viewer=viewer)
        )

    @pages.api_route("/transitions.atom", methods=READ)
    async def all_of_them(request: Request) -> Response:
        asked = Asked.of(request.query_params)
        said = f"?{urlencode(asked.filters)}" if asked.filters else ""
        return await _feed(parts, request, Asked(**asked.filters), f"/transitions.atom{said}")

    @pages.api_route("/routes/{route_id}/transitions.atom", methods=READ)
    async def of_one(request: Request, route_id: str) -> Response:
        view = await actions.known(parts)
        if views.state_of(view, route_id) is None:
            raise HTTPException(404, "No route with this id is configured.")
        return await _feed(parts, request, Asked(route=route_id), f"/routes/{route_id}/transitions.atom")

    return pages


async def _feed(parts: Parts, request: Request, asked: Asked, path: str) -> Response:
    view = await actions.known(parts)
    names = {row.route.id: row.route.name for row in view.snapshot.cells}
    try:
        found = await _read(parts, asked, FEED)
    except parts.unavailable:
        raise actions.unavailable() from None
    site = parts.access().external_url.rstrip("/")
    body = feed.feed(
        transitions.entries(found, names), site + path, site, max((one.at for one in found), default=view.now)
    )
    return unless_known(request, body, feed.CONTENT_TYPE, {"cache-control": "private, no-cache"})


async def _read(parts: Parts, asked: Asked, limit: int) -> Sequence[Transition]:
    """Newest first."""
    before = params.before_transition(asked.cursor) if asked.cursor else None
    return await parts.store.transition_page(
        route_id=asked.route or None,
        provider=asked.provider or None,
        contract=asked.contract or None,
        location=asked.location or None,
        kinds=[asked.kind] if asked.kind else None,
        before=before,
        limit=limit,
    )
