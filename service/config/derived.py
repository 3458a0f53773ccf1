"""What the store and the schedule need of a configuration: cells, rows of routes, fingerprints."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from service import contracts, dialects
from service.config.loading import Config
from service.config.routes import span_of
from service.config.urls import host_and_port, redacted_url
from service.model import Budget, Cell, Route, RouteRow


def fingerprint(route: Route) -> str:
    """What an earlier verdict was about, as 16 hexadecimal digits: all that shapes the request, no secret.

    The credential counts by its reference, so that a rotated key keeps the proof. Names, tags, intervals, budgets
    and prices don't count.
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


def host_of(route: Route) -> str:
    """The host that the route's requests go to, in lower case and with its port: what its limits and waits go by."""
    return host_and_port(route.base_url)


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
                    provider=route.provider,
                    host=host_of(route),
                    credential=str(route.key) if route.key else "",
                    max_requests=contracts.CONTRACTS[use.name].max_requests,
                    route_interval=route.interval,
                )
            )
    return tuple(result)


def route_rows(config: Config) -> tuple[RouteRow, ...]:
    """Every route as the read side shows it; the URL is redacted."""
    return tuple(_row(route, config.status_urls.get(route.provider)) for route in config.routes)


def _row(route: Route, status_url: str | None) -> RouteRow:
    budget, price = route.budget or Budget(), route.price
    return RouteRow(
        id=route.id,
        name=route.name,
        provider=route.provider,
        dialect=route.dialect,
        model=route.model,
        url=redacted_url(route.base_url),
        tags=route.tags,
        tokens_per_day=budget.tokens_per_day,
        requests_per_day=budget.requests_per_day,
        input_per_million=price.input_per_million if price else None,
        output_per_million=price.output_per_million if price else None,
        currency=price.currency if price else None,
        status_url=status_url,
    )
