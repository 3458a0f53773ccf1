"""What requests and events are made of in every dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from service.model import Route, Tool, WireRequest


def post(url: str, route: Route, body: dict[str, Any], **own: str) -> WireRequest:
    """A streamed request: the dialect's `own` headers, the route's, and its own `body` merged in."""
    return WireRequest(
        url=url,
        headers={
            "content-type": "application/json",
            "accept": "text/event-stream",
            "cache-control": "no-cache",
            **{name.replace("_", "-"): value for name, value in own.items()},
            **{name.lower(): value for name, value in route.headers.items()},
        },
        body=json.dumps(merge(body, route.body), ensure_ascii=False).encode(),
    )


def with_path(base: str, path: str) -> str:
    """The base with a path that isn't appended twice; its query is kept."""
    parts = urlsplit(base)
    given = parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, given if given.endswith(path) else given + path, parts.query, ""))


def merge(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A route's own `body` merged into a request; objects merge key by key, the route's values win."""
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(body.get(key), dict):
            body[key] = merge(dict(body[key]), value)
        else:
            body[key] = value
    return body


def json_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in tool.properties.items()},
        "required": list(tool.properties),
    }


def json_or_text(data: str) -> Any:
    """The JSON of an error's data, else its text."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """A count of tokens; what can't be one is none."""
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if valid else None


def as_slot(index: Any) -> int | None:
    """An index as a number; a string of digits names it all the same."""
    if isinstance(index, bool):
        return None
    if isinstance(index, int):
        return index
    if isinstance(index, str) and index.strip().isascii() and index.strip().isdigit():
        return int(index.strip()[:9])
    return None
