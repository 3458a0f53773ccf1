"""Badges for pages elsewhere: the state of a route, and the share of its last day that was proven."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import format_datetime

from fastapi import APIRouter, Request, Response

from service.web import actions, badge, views
from service.web.kept import unless_known
from service.web.parts import Parts
from service.web.views.badges import NO_SUCH_ROUTE, Badge, share_badge, status_badge

READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """`/badge/{id}.svg` and `/badge/{id}/share.svg`."""
    pages = APIRouter(include_in_schema=False)

    @pages.api_route("/badge/{route_id}.svg", methods=READ)
    async def status(request: Request, route_id: str) -> Response:
        view = await actions.known(parts)
        state = views.state_of(view, route_id)
        return _drawn(request, status_badge(state, view.now) if state else None, view.now)

    @pages.api_route("/badge/{route_id}/share.svg", methods=READ)
    async def share(request: Request, route_id: str) -> Response:
        view = await actions.known(parts)
        state = views.state_of(view, route_id)
        counts = parts.last_day().shares.get(route_id, (0, 0))
        return _drawn(request, share_badge(state, counts) if state else None, view.now)

    return pages


def _drawn(request: Request, shown: Badge | None, now: datetime) -> Response:
    """The badge. Who keeps it asks again each time (`no-cache`), and who doesn't heed that after `holds_s`."""
    drawn = shown or NO_SUCH_ROUTE
    body = badge.badge(drawn.label, drawn.message, drawn.kind).encode()
    headers = {
        "cache-control": f"no-cache, max-age={drawn.holds_s}",
        "expires": format_datetime(now + timedelta(seconds=drawn.holds_s), usegmt=True),
    }
    if shown is None:
        return Response(body, 404, headers={**headers, "content-type": badge.CONTENT_TYPE})
    return unless_known(request, body, badge.CONTENT_TYPE, headers)
