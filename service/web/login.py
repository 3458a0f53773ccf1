"""The way in for people: a token becomes a session in a cookie."""

from __future__ import annotations

import math
from collections.abc import Mapping

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.web import problems
from service.web.access import SESSION_S, Access, local_path, page_before
from service.web.door import form_fields, viewer_of
from service.web.parts import Parts
from service.web.problems import Problem, plain, refusal

READ = ["GET", "HEAD"]

_log = structlog.get_logger(__name__)


def router(parts: Parts) -> APIRouter:
    """`/login` and `/logout`."""
    login = APIRouter(include_in_schema=False)

    def page(
        request: Request, back: str, detail: str, status: int = 200, wait: Mapping[str, str] | None = None
    ) -> Response:
        names = {"back": back, "detail": detail, "viewer": viewer_of(request)}
        return parts.templates.render("login.html", status=status, headers=wait, **names)

    @login.api_route("/login", methods=READ)
    async def show(request: Request, back: str = "") -> Response:
        return page(request, local_path(back) if back else page_before(request.headers.get("referer")), "")

    @login.post("/login")
    async def enter(request: Request) -> Response:
        access, address = parts.access(), plain(request.client.host if request.client else "unknown")
        fields, headers = form_fields(await request.body()), request.headers
        back = local_path(fields.get("back", "/"))
        if not access.same_origin(headers.get("origin"), headers.get("sec-fetch-site"), headers.get("host", "")):
            problem = Problem(problems.FORBIDDEN, "The form doesn't come from a page of this service.")
            return refusal(parts.templates, request, problem)
        now = parts.clock()
        if wait_s := math.ceil(parts.logins.wait_s(address, now)):
            _log.warning("A login was refused: too many failed.", action="login_limited", address=address)
            text = f"Too many logins failed. Try again in {wait_s} s."
            return page(request, back, text, 429, {"retry-after": str(wait_s)})
        role = access.role_of(fields.get("token", "").strip().encode())
        if role is None:
            parts.logins.failed(address, now)
            _log.warning("A login failed.", action="login_failed", address=address)
            return page(request, back, "This isn't a token of this service.", 401)
        _log.info("Logged in.", action="logged_in", who=role.value, address=address)
        answer = RedirectResponse(back, 303)
        _set_cookie(answer, access, access.open_session(role, now), SESSION_S)
        return answer

    @login.post("/logout")
    async def leave() -> Response:
        answer = RedirectResponse("/", 303)
        _set_cookie(answer, parts.access(), "", 0)
        return answer

    return login


def _set_cookie(answer: Response, access: Access, value: str, seconds: int) -> None:
    answer.set_cookie(
        access.cookie, value, max_age=seconds, path="/", secure=access.secure, httponly=True, samesite="strict"
    )
