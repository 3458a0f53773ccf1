"""The web application, put together: pages, API, metrics and health, all from the board's one snapshot.

No request brings a URL, a host or a header into a probe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from service.metrics import ProcessMetrics
from service.model import Route
from service.web import api, login, machines, pages, problems
from service.web.access import Access, LoginLimit
from service.web.door import Door
from service.web.guard import Guard, with_security
from service.web.last_day import Day
from service.web.parts import BoardLike, Parts, StoreLike
from service.web.problems import Problem
from service.web.render import HERE, Templates


def create_app(
    board: BoardLike,
    store: StoreLike,
    process: ProcessMetrics,
    *,
    access: Callable[[], Access],
    because: Mapping[str, str],
    faults: Callable[[], Sequence[str]],
    unavailable: tuple[type[Exception], ...] = (OSError,),
    clock: Callable[[], float] = time.time,
    last_day: Callable[[], Day] = Day,
    routes: Callable[[], Mapping[str, Route]] = dict,
) -> FastAPI:
    """The application over its parts; see `Parts`."""
    templates = Templates()
    parts = Parts(
        board, store, process, templates, access, LoginLimit(), clock, because, faults, unavailable, last_day, routes
    )
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for router in (pages.router, login.router, machines.router):
        app.include_router(router(parts))
    api.include(app, parts)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")

    @app.exception_handler(Problem)
    async def told(request: Request, problem: Problem) -> Response:
        return problems.refusal(templates, request, problem)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, fault: HTTPException) -> Response:
        return problems.refusal(templates, request, problems.of_fault(fault))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, fault: RequestValidationError) -> Response:
        return problems.refusal(templates, request, problems.of_mistakes(fault.errors()))

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        problem = Problem(problems.OUR_FAULT, "The service failed to answer. Its log says how.")
        return with_security(problems.refusal(templates, request, problem))

    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)
    app.add_middleware(Door, access=access, clock=clock, templates=templates)
    app.add_middleware(Guard, access=access)
    return app
