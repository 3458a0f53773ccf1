"""The API for machines, version 1."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI, Response
from starlette.concurrency import run_in_threadpool

from service.web.api import endpoints
from service.web.api.document import document
from service.web.parts import Parts


def include(app: FastAPI, parts: Parts) -> None:
    """Put the calls and their document into the application."""
    calls = endpoints.router(parts)
    app.include_router(calls)

    @cache
    def made(cookie: str) -> bytes:  # when it is first asked for: it takes a third of a second
        return document(calls.routes, cookie)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        body = await run_in_threadpool(made, parts.access().cookie)
        return Response(body, headers={"cache-control": "no-cache"}, media_type="application/json")
