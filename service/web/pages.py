"""The pages: each is a path, a view model made of the board's view (and history), and a template."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from service.derive import RouteState
from service.web import badges, changes, operating, problems, route_page, views
from service.web.access import Viewer
from service.web.door import viewer_of
from service.web.last_day import Day
from service.web.parts import Parts
from service.web.render import Templates
from service.web.states import States

READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """All pages. `door.need_of` names those that need no token.

    Every template is given `viewer`: what whoever asks may see and do, and the `form_token` for its forms.
    """
    pages = APIRouter(include_in_schema=False)
    states = States()

    @pages.api_route("/", methods=READ)
    async def overview(request: Request) -> HTMLResponse:
        view, asked, viewer = await parts.board.view(), views.Asked.of(request.query_params), viewer_of(request)
        day = parts.last_day()
        return await run_in_threadpool(lambda: _overview(parts.templates, view, asked, day, states.of(view), viewer))

    @pages.api_route("/problems/{word}", methods=READ)
    async def problem(word: str) -> PlainTextResponse:
        """What the `type` of a problem leads to."""
        kind = next((kind for kind in problems.KINDS if kind.word == word), None)
        if kind is None:
            raise HTTPException(404, "There is no such kind of problem.")
        return PlainTextResponse(f"{kind.title} ({kind.status})\n{kind.meaning}\n")

    for more in (route_page.router, operating.router, changes.router, badges.router):
        pages.include_router(more(parts))
    return pages


def _overview(
    templates: Templates,
    view: views.View,
    asked: views.Asked,
    day: Day,
    states: Sequence[RouteState],
    viewer: Viewer,
) -> HTMLResponse:
    shown = views.overview(view, asked if viewer.reads else asked.of_public(), day, states, reads=viewer.reads)
    template = "overview.html" if viewer.reads else "public.html"
    return templates.render(template, page=shown, header=shown.header, viewer=viewer)
