"""Errors for machines: `application/problem+json` (RFC 9457). Each has a stable `type`, a path that explains it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from service.web.access import Viewer, page_before
from service.web.render import Templates

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 10
_MAX_TEXT = 200


@dataclass(frozen=True)
class Kind:
    """A kind of problem: its word in the `type`, the status that it comes with, and what it means."""

    word: str
    status: int
    title: str
    meaning: str


BAD_REQUEST = Kind(
    "bad-request", 400, "The request isn't valid", "A parameter or the body isn't as documented; `errors` says where."
)
UNAUTHORIZED = Kind("unauthorized", 401, "A token is needed", "Send a token of this service as a bearer token.")
FORBIDDEN = Kind(
    "forbidden", 403, "Not allowed", "The token doesn't allow it, none is configured that could, or a form isn't ours."
)
NOT_FOUND = Kind("not-found", 404, "Not found", "There is nothing under this path or id.")
NOT_ALLOWED = Kind("method-not-allowed", 405, "Method not allowed", "The path doesn't take this method.")
UNDER_WAY = Kind("under-way", 409, "A probe is under way", "A cell is never asked twice at once. Wait for the verdict.")
PAUSED = Kind("paused", 409, "A pause stops it", "Nothing is asked until the pause ends: end it, or wait.")
TOO_LARGE = Kind("too-large", 413, "The body is too large", "No call takes a body of more than 64 KiB.")
WRONG_HOST = Kind(
    "wrong-host", 421, "Host not served here", "Use a loopback address or the one in service.external_url."
)
TOO_SOON = Kind("too-soon", 429, "Too soon", "It was done a moment ago, or a limit or wait holds it; see Retry-After.")
OUR_FAULT = Kind("our-fault", 500, "A fault of ours", "The service failed. Its log says how.")
UNAVAILABLE = Kind("unavailable", 503, "Not available now", "The database can't be reached, or hasn't been read yet.")

KINDS: tuple[Kind, ...] = (
    BAD_REQUEST,
    UNAUTHORIZED,
    FORBIDDEN,
    NOT_FOUND,
    NOT_ALLOWED,
    UNDER_WAY,
    PAUSED,
    TOO_LARGE,
    WRONG_HOST,
    TOO_SOON,
    OUR_FAULT,
    UNAVAILABLE,
)
_BY_STATUS: Mapping[int, Kind] = {kind.status: kind for kind in reversed(KINDS)}


class Problem(Exception):  # noqa: N818 - it is what the answer is called
    """A request that can't be answered as asked. `more` are further members of the answer."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.more = dict(more or {})


def of_status(status: int) -> Kind:
    """The kind that a bare status stands for."""
    return _BY_STATUS.get(status, BAD_REQUEST if status < 500 else OUR_FAULT)


def of_fault(fault: HTTPException) -> Problem:
    """What the framework refused by itself: an unknown path, a wrong method, a body that can't be read."""
    return Problem(of_status(fault.status_code), plain(str(fault.detail)), headers=fault.headers)


def of_mistakes(found: Sequence[Mapping[str, Any]]) -> Problem:
    """Input that isn't as documented: each mistake with its place. What the sender wrote is bounded in it."""
    errors = [error(".".join(map(str, one["loc"])), _what(one)) for one in found[:MAX_ERRORS]]
    return Problem(BAD_REQUEST, "The request isn't as documented.", errors=errors)


def _what(one: Mapping[str, Any]) -> str:
    match one["type"]:
        case "extra_forbidden":
            return "unknown parameter" if one["loc"][0] == "query" else "unknown member"
        case "missing":
            return "required"
        case "json_invalid":
            return "isn't JSON"
        case "model_attributes_type":
            return "must be an object, sent as application/json"
        case "value_error":
            return str(one["ctx"]["error"])
        case _:
            return str(one["msg"])


def error(where: str, what: str) -> dict[str, str]:
    """What is wrong with one part of the input. Both are bounded, and hold no character that moves a cursor."""
    return {"where": plain(where, 80), "what": plain(what)}


def answer(problem: Problem) -> Response:
    """The answer of a problem."""
    headers = {"cache-control": "no-store", **problem.headers}
    return Response(json.dumps(body(problem)), problem.kind.status, headers, MEDIA_TYPE)


def body(problem: Problem) -> dict[str, Any]:
    """What the answer says."""
    kind = problem.kind
    said = {"type": f"/problems/{kind.word}", "title": kind.title, "status": kind.status, "detail": problem.detail}
    errors = {"errors": list(problem.errors[:MAX_ERRORS])} if problem.errors else {}
    return said | errors | problem.more


def is_api(path: str) -> bool:
    """Whether machines ask here, so that errors are problems and not pages."""
    return path.startswith("/api/") or path in ("/api", "/openapi.json")


def refusal(templates: Templates, request: Request, problem: Problem) -> Response:
    """The answer of a problem, in the form that suits the path: a problem, a line of text, or a page."""
    path, status = request.scope["path"], problem.kind.status
    if is_api(path):
        return answer(problem)
    headers = {"cache-control": "no-store", **problem.headers}
    if path == "/metrics":
        return PlainTextResponse(f"{problem.detail}\n", status, headers)
    names = {"detail": problem.detail, "viewer": getattr(request.state, "viewer", Viewer())}
    if status == 401:
        query = request.scope["query_string"].decode("latin-1")
        here = quote(path) + (f"?{query}" if query else "")
        back = here if request.method in ("GET", "HEAD") else page_before(request.headers.get("referer"))
        return templates.render("login.html", status=status, headers=headers, back=back, **names)
    return templates.render("fault.html", status=status, headers=headers, title=problem.kind.title, **names)


def plain(text: str, limit: int = _MAX_TEXT) -> str:
    """Text of a sender as it may be repeated: bounded, in one line, each character that isn't printed escaped."""
    cut = text[: limit + 1]
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
