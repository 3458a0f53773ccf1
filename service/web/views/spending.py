"""What a route may use up in a UTC day, and what it has: tokens, requests, money."""

from __future__ import annotations

from collections.abc import Iterator

from service.model import RouteRow, Spend

NEARLY = 0.8


def spending(route: RouteRow, spend: Spend) -> Iterator[tuple[str, str]]:
    """Facts of a page: the budget, and what is spent of it."""
    limits = [
        f"{number(most)} {what}"
        for most, what in ((route.tokens_per_day, "tokens"), (route.requests_per_day, "requests"))
        if most is not None
    ]
    yield "Budget", f"{', '.join(limits)} a UTC day" if limits else "none: as much as it takes"
    yield "Spent today", spent(route, spend)


def spent(route: RouteRow, spend: Spend) -> str:
    """`1.2k of 200k tokens, 37 requests, about 0.0006 USD today; estimated`."""
    used = [
        f"{_of(spend.tokens, route.tokens_per_day)} tokens",
        f"{_of(spend.requests, route.requests_per_day)} requests",
    ]
    cost = cost_of(route, spend)
    if cost is not None:
        used.append(f"about {money(cost)} {route.currency or ''}".rstrip())
    return f"{', '.join(used)} today{'; estimated' if spend.estimated else ''}{_warning(route, spend)}"


def cost_of(route: RouteRow, spend: Spend) -> float | None:
    """What the tokens cost, in the route's currency; None without a price."""
    if route.input_per_million is None or route.output_per_million is None:
        return None
    return (spend.tokens_in * route.input_per_million + spend.tokens_out * route.output_per_million) / 1e6


def number(value: int) -> str:
    """`950`, `1.2k`, `200k`, `3.4M`: rounded to two digits, and never up into the next unit."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= unit:
            tenths = value * 10 // unit
            return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 and tenths < 100 else ''}{letter}"
    return str(value)


def money(value: float) -> str:
    """Two decimals, and one digit of less than a cent."""
    if value >= 0.005 or value == 0:
        return f"{value:,.2f}"
    return f"{value:.1g}" if value >= 1e-4 else "0.0001 or less"


def _of(used: int, most: int | None) -> str:
    return number(used) if most is None else f"{number(used)} of {number(most)}"


def _warning(route: RouteRow, spend: Spend) -> str:
    pairs = ((spend.tokens, route.tokens_per_day), (spend.requests, route.requests_per_day))
    ratio = max((used / most for used, most in pairs if most), default=0.0)
    return (
        ". Spent: nothing is asked until the next UTC day"
        if ratio >= 1
        else ". Nearly spent"
        if ratio >= NEARLY
        else ""
    )
