"""The API for machines, version 1."""

from __future__ import annotations

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from service.web.api import endpoints
from service.web.api.document import document
from service.web.parts import Parts


def include(app: FastAPI, parts: Parts) -> None:
    """Put the calls and their document into the application."""
    calls = endpoints.router(parts)
    app.include_router(calls)
    made = document(calls.routes, parts.access().cookie)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(made, headers={"cache-control": "no-cache"})
