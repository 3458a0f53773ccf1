"""What a route is configured with, as far as it may be shown, and the lines to try it by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.config.urls import redacted_url
from service.derive import RouteState
from service.dialects import DIALECTS
from service.model import CellRow, Credentials, Route
from service.redact import Redactor
from service.web.views.curl import curl
from service.web.views.words import duration


@dataclass(frozen=True)
class Lines:
    """`check` asks all that we ask. `curl` sends the first request of it; None: this process doesn't know how, or
    `withheld` says why it isn't shown."""

    check: str
    curl: str | None
    withheld: str | None = None


def lines(route_id: str, route: Route | None) -> Lines:
    """The lines for a shell; `route` is None where another location's process knows it."""
    check = f"routeproof check -c routeproof.yaml --route {shlex.quote(route_id)} --explain"
    if route is None:
        return Lines(check, None)
    shown = {"headers": dict(route.headers), "body": dict(route.body)}
    if Redactor.for_route(route, Credentials()).value(shown) != shown:
        return Lines(check, None, "No curl line: a header or the body of this route looks as if it held a secret.")
    return Lines(check, curl(route))


def route_facts(state: RouteState, rows: Sequence[CellRow], route: Route | None) -> Iterator[tuple[str, str]]:
    """Names and values; less of a route that this process isn't configured with."""
    row = state.route
    yield "Route id", row.id
    yield "Provider", row.provider
    yield "Dialect", row.dialect
    yield "Model", row.model
    yield "URL", row.url
    yield "Tags", ", ".join(row.tags) or "none"
    yield "Required contracts", ", ".join(c.contract for c in state.contracts if c.required) or "none"
    yield "Locations", ", ".join(sorted({each.cell.location for each in rows}))
    yield "Deadline of a request", duration(rows[0].cell.deadline)
    if route is not None:
        yield from _request_facts(route)


def _request_facts(route: Route) -> Iterator[tuple[str, str]]:
    redactor = Redactor.for_route(route, Credentials())
    auth = route.auth or DIALECTS[route.dialect].auth
    yield "Credential", f"{route.key}, sent as {auth}" if route.key else "none is sent"
    for name, value in route.headers.items():
        yield f"Header {name}", redactor.text(value)
    for name, ref in route.secret_headers.items():
        yield f"Header {name}", f"from {ref}"
    if route.body:
        yield "Merged into the body", json.dumps(redactor.value(dict(route.body)), ensure_ascii=False)
    yield "Token cap", f"{route.token_cap.value}{f' as {route.token_cap.field}' if route.token_cap.field else ''}"
    if route.temperature is not None:
        yield "Temperature", f"{route.temperature:g}"
    if route.parallel_tool_calls is not None:
        yield "parallel_tool_calls", str(route.parallel_tool_calls).lower()
    if not route.include_usage:
        yield "Usage", "not asked for"
    if route.served_model_pattern is not None:
        yield "Served model may be", route.served_model_pattern
    if route.proxy is not None:
        yield "Proxy", redacted_url(route.proxy)
    if route.ca_file is not None:
        yield "Authorities", route.ca_file
