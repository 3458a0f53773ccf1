"""The pages: each is a path, a view model made of the board's view (and history), and a template."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from service.model import StoredVerdict, Transition
from service.web import views
from service.web.parts import Parts
from service.web.render import Templates

HISTORY_LIMIT = 50
CHANGES_LIMIT = 10
READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """All pages. A page is registered here and nowhere else."""
    pages = APIRouter(include_in_schema=False)

    @pages.api_route("/", methods=READ)
    async def overview() -> HTMLResponse:
        return await run_in_threadpool(_overview, parts.templates, await parts.board.view())

    @pages.api_route("/routes/{route_id}", methods=READ)
    async def route(route_id: str) -> HTMLResponse:
        view = await parts.board.view()
        stored: Sequence[StoredVerdict] | None = None
        changes: Sequence[Transition] = ()
        if view.database_up:
            try:
                stored = await parts.history.verdicts(route_id, HISTORY_LIMIT)
                changes = await parts.history.transitions(route_id, CHANGES_LIMIT)
            except parts.unavailable:
                stored = None  # the page says that history can't be read, and shows the rest
        shown = views.route_page(view, route_id, stored, parts.because, changes)
        if shown is None:
            raise HTTPException(404, "No route with this id is configured.")
        return parts.templates.render("route.html", page=shown, header=shown.header)

    return pages


def fault(templates: Templates, _: Request, fault: HTTPException) -> Response:
    """The page of a request that can't be answered."""
    return templates.render("fault.html", status=fault.status_code, detail=fault.detail, headers=fault.headers)


def _overview(templates: Templates, view: views.View) -> HTMLResponse:
    shown = views.overview(view)
    return templates.render("overview.html", page=shown, header=shown.header)
