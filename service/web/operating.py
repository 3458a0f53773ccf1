"""What a person with the operate token does from the pages: ask a route now, pause it, end a pause.

The door has checked the token, the origin and the form token before anything here runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.model import PauseScope, RouteRow
from service.web import actions, views
from service.web.access import page_before
from service.web.api.params import NewPause, wrong
from service.web.door import form_fields, viewer_of
from service.web.parts import Parts
from service.web.views.operating import LENGTHS, WRONG, Pausable, PauseForm, became, pausable

READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """`/routes/{id}/probe`, `/routes/{id}/pause` with its form, and `/pauses/{id}/end`."""
    pages = APIRouter(include_in_schema=False)

    async def known(route_id: str) -> tuple[RouteRow, Sequence[Pausable]]:
        view = await actions.known(parts)
        state = views.state_of(view, route_id)
        if state is None:
            raise actions.no_such_route()
        return state.route, pausable(view, state.route)

    def form(
        request: Request, route: RouteRow, choices: Sequence[Pausable], filled: PauseForm, mistakes: Sequence[str]
    ) -> Response:
        return parts.templates.render(
            "pause.html",
            status=400 if mistakes else 200,
            viewer=viewer_of(request),
            route=route,
            back=_page(route.id),
            choices=choices,
            form=filled,
            mistakes=mistakes,
            lengths=LENGTHS,
        )

    @pages.post("/routes/{route_id}/probe")
    async def probe(request: Request, route_id: str) -> Response:
        asked = await actions.ask_now(parts, viewer_of(request), route_id, None)
        now = (await parts.board.view()).now
        return RedirectResponse(f"{_page(route_id)}?{became(asked, now)}#operate", 303)

    @pages.api_route("/routes/{route_id}/pause", methods=READ)
    async def show(request: Request, route_id: str) -> Response:
        route, choices = await known(route_id)
        return form(request, route, choices, PauseForm(), ())

    @pages.post("/routes/{route_id}/pause")
    async def pause(request: Request, route_id: str) -> Response:
        (route, choices), filled = await known(route_id), PauseForm.of(form_fields(await request.body()))
        chosen = next((one for one in choices if one.value == filled.what), None)
        try:
            wanted = NewPause(
                scope=chosen.scope if chosen else PauseScope.ROUTE,
                target=chosen.target if chosen else "",
                duration_s=filled.seconds,
                stops=filled.stops,
                reason=filled.reason,
                by=filled.by,
            )
        except ValueError as error:
            mistakes = [words for name, words in WRONG.items() if name in wrong(error)]
            return form(request, route, choices, filled, mistakes)
        await actions.pause(
            parts,
            viewer_of(request),
            wanted.scope,
            wanted.target,
            wanted.duration_s,
            wanted.stops,
            wanted.reason,
            wanted.by,
        )
        return RedirectResponse(f"{_page(route_id)}#operate", 303)

    @pages.post("/pauses/{pause_id}/end")
    async def end(request: Request, pause_id: UUID) -> Response:
        await actions.end_pause(parts, viewer_of(request), pause_id)
        return RedirectResponse(page_before(request.headers.get("referer")), 303)

    return pages


def _page(route_id: str) -> str:
    return f"/routes/{quote(route_id, safe='')}"
