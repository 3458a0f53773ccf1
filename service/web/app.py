"""The web application: pages, metrics and health, all from the board's one snapshot.

Nothing here writes, and no request brings a URL, a host or a header into a probe.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import metrics
from service.metrics import ProcessMetrics
from service.model import StoredVerdict, Transition
from service.web import views

HERE = Path(__file__).parent
HISTORY_LIMIT = 50
CHANGES_LIMIT = 10
REFRESH_S = 15
READ = ["GET", "HEAD"]
_FOR_MACHINES = frozenset({"/metrics", "/livez", "/readyz"})

SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class BoardLike(Protocol):
    """Where the state of all cells is read. Never raises for a database that is down: the view says so."""

    async def view(self) -> views.View: ...


class HistoryLike(Protocol):
    """Where the past of a route is read, newest first. May raise one of the errors given as `unavailable`."""

    async def verdicts(self, route_id: str, limit: int) -> Sequence[StoredVerdict]: ...

    async def transitions(self, route_id: str, limit: int) -> Sequence[Transition]: ...


def create_app(
    board: BoardLike,
    history: HistoryLike,
    process: ProcessMetrics,
    *,
    external_url: str,
    because: Mapping[str, str],
    faults: Callable[[], Sequence[str]],
    unavailable: tuple[type[Exception], ...] = (OSError,),
) -> FastAPI:
    """The application over its parts.

    `because` maps a rule id to its reason in words. `faults` says what keeps this process from doing its work, for
    `/livez`; nothing means well. `unavailable` are the errors of `history` that mean that it can't be read now.
    """
    app = FastAPI(title="Routeproof", docs_url=None, redoc_url=None, openapi_url=None)
    page = _Pages()

    @app.api_route("/", methods=READ)
    async def overview() -> HTMLResponse:
        return await run_in_threadpool(_overview, page, await board.view())

    @app.api_route("/routes/{route_id}", methods=READ)
    async def route(route_id: str) -> HTMLResponse:
        view = await board.view()
        stored: Sequence[StoredVerdict] | None = None
        changes: Sequence[Transition] = ()
        if view.database_up:
            try:
                stored = await history.verdicts(route_id, HISTORY_LIMIT)
                changes = await history.transitions(route_id, CHANGES_LIMIT)
            except unavailable:
                stored = None  # the page says that history can't be read, and shows the rest
        shown = views.route_page(view, route_id, stored, because, changes)
        if shown is None:
            raise HTTPException(404, "No route with this id is configured.")
        return page.render("route.html", page=shown, header=shown.header)

    @app.api_route("/metrics", methods=READ)
    async def scrape() -> Response:
        body = await run_in_threadpool(metrics.exposition, process, await board.view())
        return Response(body, media_type=metrics.CONTENT_TYPE)

    @app.api_route("/livez", methods=READ)
    async def livez() -> PlainTextResponse:
        found = faults()
        return PlainTextResponse("\n".join(found or ["ok"]) + "\n", status_code=503 if found else 200)

    @app.api_route("/readyz", methods=READ)
    async def readyz() -> PlainTextResponse:
        if views.nothing_read(await board.view()):
            return PlainTextResponse("no snapshot yet: the database has not been read\n", status_code=503)
        return PlainTextResponse("ok\n")

    @app.exception_handler(HTTPException)
    async def refused(request: Request, fault: HTTPException) -> Response:
        return page.render("fault.html", status=fault.status_code, detail=fault.detail, headers=fault.headers)

    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)
    app.add_middleware(_Guard, names=_own_names(external_url))
    return app


class _Pages:
    """The templates, compiled once. Everything is escaped, and a missing name is an error."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters["timing"] = views.timing

    def render(
        self, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **names: Any
    ) -> HTMLResponse:
        text = self._templates.get_template(template).render(refresh_s=REFRESH_S, status=status, **names)
        return HTMLResponse(text, status_code=status, headers={"cache-control": "no-store", **(headers or {})})


def _overview(page: _Pages, view: views.View) -> HTMLResponse:
    shown = views.overview(view)
    return page.render("overview.html", page=shown, header=shown.header)


# --- who may ask ------------------------------------------------------------------------------------------


class _Guard:
    """Refuses a Host that isn't ours, and puts the security headers on every answer.

    A page elsewhere can point a name of its own at this address; without the check a browser would let it read. An
    address can't be pointed elsewhere, so that health checks and scrapes may use any (a pod's own, say).
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        host = Headers(scope=scope).get("host")
        ours = host and _is_ours(host, self._names, any_address=scope["path"] in _FOR_MACHINES)
        app = self._app if ours else _refusal(host)
        await app(scope, receive, guarded)


def _refusal(host: str | None) -> ASGIApp:
    if not host:
        return PlainTextResponse("The request names no host.\n", status_code=400)
    return PlainTextResponse(
        "This host name isn't served here. Use a loopback address, or set service.external_url to the address "
        "that you use.\n",
        status_code=421,
    )


def _own_names(external_url: str) -> frozenset[str]:
    return frozenset(name for name in ("localhost", urlsplit(external_url).hostname) if name)


def _is_ours(host: str, names: frozenset[str], *, any_address: bool) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # an unclosed bracket
        return False
    if name in names:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback or any_address
    except ValueError:
        return False
