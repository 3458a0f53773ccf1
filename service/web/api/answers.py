"""Answers of the API: models as JSON, with the headers that go with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fastapi import Request, Response
from pydantic import BaseModel

from service.web import views


def said(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The model as the body."""
    return Response(model.model_dump_json().encode(), status, headers, "application/json")


def unless_known(request: Request, view: views.View, model: BaseModel) -> Response:
    """The model as the body, or 304 to who has it already. It holds no clock, so that it stays the same while nothing
    happens; `Age` is that of the data behind it."""
    body = model.model_dump_json().encode()
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "private, no-cache", "age": str(max(0, int(view.age_s)))}
    if _names(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


def _names(header: str, tag: str) -> bool:
    known = {part.strip().removeprefix("W/") for part in header.split(",")}
    return header.strip() == "*" or tag.removeprefix("W/") in known
