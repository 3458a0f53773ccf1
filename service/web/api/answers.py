"""Answers of the API: models as JSON, with the headers that go with them."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request, Response
from pydantic import BaseModel

from service.web import kept, views


def said(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The model as the body."""
    return Response(model.model_dump_json().encode(), status, headers, "application/json")


def unless_known(request: Request, view: views.View, model: BaseModel) -> Response:
    """The model as the body, or 304 to who has it already. It holds no clock, so that it stays the same while nothing
    happens; `Age` is that of the data behind it."""
    headers = {"cache-control": "private, no-cache", "age": str(max(0, int(view.age_s)))}
    return kept.unless_known(request, model.model_dump_json().encode(), "application/json", headers)
