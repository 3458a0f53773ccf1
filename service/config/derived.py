"""What the store and the schedule need of a configuration: cells, rows of routes, fingerprints."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from service import dialects
from service.config.loading import Config
from service.config.routes import span_of
from service.config.urls import redacted_url
from service.model import Cell, Route, RouteRow


def fingerprint(route: Route) -> str:
    """What an earlier verdict was about, as 16 hexadecimal digits: all that shapes the request, no secret.

    The credential counts by its reference, so that a rotated key keeps the proof. Names, tags and intervals don't
    count.
    """
    parts = {
        "dialect": route.dialect,
        "base_url": redacted_url(route.base_url),
        "model": route.model,
        "key": str(route.key) if route.key else None,
        "auth": (route.auth or dialects.DIALECTS[route.dialect].auth).value,
        "headers": {name.lower(): value for name, value in route.headers.items()},
        "secret_headers": {name.lower(): str(ref) for name, ref in route.secret_headers.items()},
        "body": route.body,
        "token_cap": asdict(route.token_cap),
        "parallel_tool_calls": route.parallel_tool_calls,
        "include_usage": route.include_usage,
        "temperature": route.temperature,
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cells(config: Config) -> tuple[Cell, ...]:
    """Every cell of the configuration's location, route by route."""
    result = []
    for route in config.routes:
        mark = fingerprint(route)
        for use in route.contracts:
            interval = route.interval * use.every
            result.append(
                Cell(
                    route_id=route.id,
                    contract=use.name,
                    location=config.service.location,
                    required=use.required,
                    fingerprint=mark,
                    interval=interval,
                    fresh_for=span_of(route.fresh_for, interval),
                    expires_after=span_of(route.expires_after, interval),
                    deadline=route.deadline,
                )
            )
    return tuple(result)


def route_rows(config: Config) -> tuple[RouteRow, ...]:
    """Every route as the read side shows it; the URL is redacted."""
    return tuple(
        RouteRow(
            id=route.id,
            name=route.name,
            provider=route.provider,
            dialect=route.dialect,
            model=route.model,
            url=redacted_url(route.base_url),
            tags=route.tags,
        )
        for route in config.routes
    )
