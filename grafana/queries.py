"""The words that the dashboards' queries share.

What the database says (`routeproof_contract_*`, `_route_*`, `_location_*`) is folded with `max by`, so that replicas
count once; what a process says is summed, or shown by instance. No recording rule is needed.
"""

from __future__ import annotations

BY_CELL = "route, provider, contract, location"
CELLS = 'provider=~"$provider", route=~"$route", contract=~"$contract", location=~"$location"'
ROUTES = 'provider=~"$provider", route=~"$route"'
HERE = 'location=~"$location"'

BELIEVED = "unless on (job, instance) (routeproof_database_up == 0 and on (job) routeproof_database_up == 1)"
"""A replica that lost the database repeats what it knew last: it isn't asked while another one reaches it. When none
does, what was known goes on to age and expire."""


def known(series: str, *, by: str) -> str:
    """What the database says, each fact once."""
    return f"max by ({by}) ({series} {BELIEVED})"


def cell(metric: str, more: str = "", *, by: str = BY_CELL, of: str = CELLS) -> str:
    """A series of cells, folded; `more` are further labels or matchers."""
    return known(f"routeproof_contract_{metric}{{{of}{', ' + more if more else ''}}}", by=by)


TAGGED = 'routeproof_route_info{provider=~"$provider", tags=~".*,$tag,.*"}'
"""A tag stands between commas. The value of "all" is an alternative that lets untagged routes in too."""


def tagged(query: str) -> str:
    """Only of routes with the chosen tag."""
    return f"({query}) and on (route) {known(TAGGED, by='route')}"


REQUIRED = tagged(f"{cell('required')} == 1")


def needed(query: str) -> str:
    """Only of cells that a route's state rests on."""
    return f"({query}) and on ({BY_CELL}) ({REQUIRED})"


def grown(counter: str, by: str) -> str:
    """By how much a counter from the database grew within the window, whatever replicas came and went. One that is
    younger, or stands lower because the database is another one, began at 0; a gap in the scrapes is none."""
    now = f"max by ({by}) ({counter})"
    before = f"max by ({by}) (last_over_time({counter}[15m] offset $window))"
    return f"({now} - (({before} <= {now}) or 0 * {now}))"


def verdicts(more: str = "", *, of: str = CELLS) -> str:
    """Verdicts of cells within the window, by outcome; `more` are further matchers."""
    return grown(f"routeproof_contract_verdicts_total{{{of}{', ' + more if more else ''}}}", f"{BY_CELL}, outcome")


def tokens(of: str = ROUTES) -> str:
    """Tokens of routes within the window."""
    return grown(f"routeproof_route_tokens_total{{{of}}}", "route, provider, kind")


def number(query: str) -> str:
    """How many of the required; none is 0 while there are any, and silence when nothing is known of them."""
    return f"count({query}) or 0 * count({REQUIRED})"
