"""The OpenAPI document: what FastAPI makes of the calls, with our errors, our ways in, and an example of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from service.web import problems
from service.web.api import models
from service.web.api.examples import ANSWERS, REQUESTS

_PROBLEM = "#/components/schemas/Problem"
_BEARER = "bearer"
_SESSION = "session"
_ABOUT = """What Routeproof knows of routes, for machines.

Times are RFC 3339 in UTC; lengths of time are in seconds, and their names end in `_s`. Lists come in pages: `next` is
the `cursor` of the following one. Every error is a problem (RFC 9457) with a stable `type`. Query parameters and
members that aren't known are errors. Reads need a token once one is configured, a change always the operate token."""
_WITH_ETAG = frozenset({"listRoutes", "getRoute"})
_TAGS = (
    ("routes", "Routes, their state now, and asking one at once."),
    ("gate", "The one question of a client that has a choice of routes."),
    ("history", "What was found, and what changed."),
    ("pauses", "Muting alerts for a while, or stopping probes."),
)


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented errors of a call: these, and a host that isn't ours."""
    return {status: _failure(problems.of_status(status)) for status in (*statuses, 421)}


def _failure(kind: problems.Kind) -> dict[str, Any]:
    example = problems.Problem(kind, kind.meaning)
    content = {"schema": {"$ref": _PROBLEM}, "example": problems.body(example)}
    titles = [one.title for one in problems.KINDS if one.status == kind.status]
    return {"description": "; or: ".join(titles), "content": {problems.MEDIA_TYPE: content}}


def document(calls: Sequence[BaseRoute], cookie: str) -> bytes:
    """The document of these calls, as JSON. Sessions are in a cookie of this name."""
    made = get_openapi(title="Routeproof", version=version("routeproof"), description=_ABOUT, routes=calls)
    made["tags"] = [{"name": name, "description": text} for name, text in _TAGS]
    schemas = made["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    whole = models.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(whole.pop("$defs"))
    schemas["Problem"] = whole
    made["components"]["securitySchemes"] = {
        _BEARER: {"type": "http", "scheme": "bearer", "description": "The read or the operate token."},
        _SESSION: {
            "type": "apiKey",
            "in": "cookie",
            "name": cookie,
            "description": "A login, made at /login. A change needs a matching Origin and the form token of a page of "
            "this service too, in x-form-token.",
        },
    }
    for path in made["paths"].values():
        for method, call in path.items():
            _finish(method, call)
    return json.dumps(made, ensure_ascii=False).encode()


def _finish(method: str, call: dict[str, Any]) -> None:
    call["responses"].pop("422", None)  # a mistake of the input is a 400 here
    call["security"] = [{_BEARER: []}, {_SESSION: []}, *([{}] if method == "get" else [])]
    status, example = ANSWERS[call["operationId"]]
    call["responses"][str(status)]["content"]["application/json"]["example"] = _json(example)
    if call["operationId"] in _WITH_ETAG:
        call["responses"]["304"] = {"description": "Nothing has changed since the answer that If-None-Match names"}
    if "requestBody" in call:
        call["requestBody"]["content"]["application/json"]["example"] = REQUESTS[call["operationId"]]


def _json(example: models.Said) -> Any:
    return example.model_dump(mode="json")
