"""What scrapers and health checks ask."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from service import metrics
from service.web import views
from service.web.parts import Parts

PATHS = frozenset({"/metrics", "/livez", "/readyz"})
READ = ["GET", "HEAD"]


def router(parts: Parts) -> APIRouter:
    """`/metrics`, `/livez` and `/readyz`, in plain text."""
    machines = APIRouter(include_in_schema=False)

    @machines.api_route("/metrics", methods=READ)
    async def scrape() -> Response:
        body = await run_in_threadpool(metrics.exposition, parts.process, await parts.board.view())
        return Response(body, media_type=metrics.CONTENT_TYPE)

    @machines.api_route("/livez", methods=READ)
    async def livez() -> PlainTextResponse:
        found = parts.faults()
        return PlainTextResponse("\n".join(found or ["ok"]) + "\n", status_code=503 if found else 200)

    @machines.api_route("/readyz", methods=READ)
    async def readyz() -> PlainTextResponse:
        if views.nothing_read(await parts.board.view()):
            return PlainTextResponse("no snapshot yet: the database has not been read\n", status_code=503)
        return PlainTextResponse("ok\n")

    return machines
