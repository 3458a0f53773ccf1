"""The web application, put together: pages, metrics and health, all from the board's one snapshot.

No request brings a URL, a host or a header into a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from service.metrics import ProcessMetrics
from service.web import machines, pages
from service.web.guard import Guard, own_names
from service.web.parts import BoardLike, HistoryLike, Parts
from service.web.render import HERE, Templates


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
    """The application over its parts; see `Parts`."""
    parts = Parts(board, history, process, Templates(), because, faults, unavailable)
    app = FastAPI(title="Routeproof", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(pages.router(parts))
    app.include_router(machines.router(parts))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, fault: HTTPException) -> Response:
        return pages.fault(parts.templates, request, fault)

    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)
    app.add_middleware(Guard, names=own_names(external_url))
    return app
