"""The words that the dashboards' queries share.

What the database says (`routeproof_contract_*`, `_route_*`, `_location_*`) is folded with `max by`, so that replicas
count once; what a process says is summed, or shown by instance. No recording rule is needed.
"""

from __future__ import annotations

BY_CELL = "route, provider, contract, location"
CELLS = 'provider=~"$provider", route=~"$route", contract=~"$contract", location=~"$location"'
ROUTES = 'provider=~"$provider", route=~"$route"'
HERE = 'location=~"$location"'
TAGGED = 'routeproof_route_info{provider=~"$provider", tags=~".*,$tag,.*"}'
"""A tag stands between commas. The value of "all" is an alternative that lets untagged routes in too."""


def cell(metric: str, more: str = "", *, by: str = BY_CELL) -> str:
    """A series of cells, folded; `more` are further labels or matchers."""
    return f"max by ({by}) (routeproof_contract_{metric}{{{CELLS}{', ' + more if more else ''}}})"


def tagged(query: str) -> str:
    """Only of routes with the chosen tag."""
    return f"({query}) and on (route) group by (route) ({TAGGED})"


REQUIRED = tagged(f"{cell('required')} == 1")


def needed(query: str) -> str:
    """Only of cells that a route's state rests on."""
    return f"({query}) and on ({BY_CELL}) ({REQUIRED})"


def grown(counter: str, by: str) -> str:
    """By how much a counter from the database grew within the window; it is never reset. A younger one began at 0."""
    now = f"max by ({by}) ({counter})"
    return f"({now} - (max by ({by}) ({counter} offset $window) or 0 * {now}))"


def verdicts(more: str = "") -> str:
    """Verdicts of cells within the window, by outcome; `more` are further matchers."""
    return grown(f"routeproof_contract_verdicts_total{{{CELLS}{', ' + more if more else ''}}}", f"{BY_CELL}, outcome")


TOKENS = grown(f"routeproof_route_tokens_total{{{ROUTES}}}", "route, provider, kind")
"""Tokens of routes within the window."""


def number(query: str) -> str:
    """How many; none is 0, not silence."""
    return f"count({query}) or vector(0)"
