"""All routes: what is proven, what isn't, which are worst, and what asking costs."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from grafana import queries as q
from grafana.parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    OUTCOMES,
    RED,
    board,
    chosen,
    fixed,
    lines,
    queries,
    query,
    row,
    rows,
    steps,
    to_route,
    value,
    window,
)

UID = "routeproof-overview"

_PROVEN = q.cell("proven")
_LIVE = q.cell("status", by=f"{q.BY_CELL}, outcome")
_WHOSE = "route, provider"


def _share(by: str = "") -> str:
    """Proven verdicts of those that decide something; unproven ones say nothing about the route."""
    fold = f"sum by ({by})" if by else "sum"
    proven = q.tagged(q.verdicts('outcome="proven"'))
    decided = q.tagged(q.verdicts('outcome!="unproven"'))
    return f"{fold} ({proven}) / ({fold} ({decided}) > 0)"


_TOKENS = q.tagged(q.tokens())
_PRICES = q.known(f"routeproof_route_price_per_million_tokens{{{q.ROUTES}}}", by="route, provider, kind, currency")
_SPENT = f"routeproof_route_budget_spent_ratio{{{q.ROUTES}}}"
_MONEY = f"{_PRICES} * on (route, provider, kind) group_left () ({_TOKENS}) / 1e6"


def dashboard() -> builders.Dashboard:
    return board(
        UID,
        "Routeproof: overview",
        "Does a real agent turn work on each route? Counts are of required contracts, each route and location once.",
        [
            chosen("provider", "Provider", "label_values(routeproof_route_info, provider)"),
            # Tags stand as ",prod,eu,": each word is offered. The value of "all" lets routes without a tag in too.
            chosen("tag", "Tag", "label_values(routeproof_route_info, tags)", of_all="|.*|", pattern="/([^,]+)/g"),
            chosen("route", "Route", f"label_values({q.TAGGED}, route)"),
            chosen("contract", "Contract", 'label_values(routeproof_contract_required{route=~"$route"}, contract)'),
            chosen("location", "Location", "label_values(routeproof_location_cells, location)"),
            window(),
        ],
        [
            row("Now"),
            value(
                "Proven",
                "Required contracts whose standing verdict is a proof that hasn't expired.",
                [query(q.number(q.needed(f"{_PROVEN} == 1")), "proven")],
                none="nothing is known",
                thresholds=steps(GREEN),
            ),
            value(
                "Not proven",
                "Required contracts whose standing verdict isn't a proof: violated, blocked or unavailable.",
                [query(q.number(q.needed(f"{_PROVEN} == 0")), "not proven")],
                none="nothing is known",
                thresholds=steps(GREEN, (1, RED)),
            ),
            value(
                "Unknown",
                "Required contracts that were never probed, or whose last verdict has expired.",
                [query(q.number(f"({q.REQUIRED}) unless on ({q.BY_CELL}) {_PROVEN}"), "unknown")],
                none="nothing is known",
                thresholds=steps(GREEN, (1, ORANGE)),
            ),
            value(
                "Regressed",
                "Confirmed: were proven, and have failed at least twice in a row since. This is what alerts.",
                [query(q.number(q.needed(f"{q.cell('regressed')} == 1")), "regressed")],
                none="nothing is known",
                thresholds=steps(GREEN, (1, RED)),
            ),
            value(
                "Paused",
                "Required contracts about which alerts are muted.",
                [query(q.number(q.needed(f"{q.cell('paused')} == 1")), "paused")],
                none="nothing is known",
                thresholds=steps(GREY, (1, BLUE)),
            ),
            value(
                "Share proven",
                "Of the verdicts of the window that decide something, how many are proofs.",
                [query(_share(), "share proven")],
                unit="percentunit",
                none="no verdict in the window",
                thresholds=steps(RED, (0.95, ORANGE), (0.99, GREEN)),
            ),
            lines(
                "Required contracts by outcome",
                "Unknown: never probed, or expired. A dead prober turns all into unknown.",
                [
                    query(f"count by (outcome) ({q.needed(_LIVE)})", "{{outcome}}"),
                    query(q.number(f"({q.REQUIRED}) unless on ({q.BY_CELL}) {_PROVEN}"), "unknown", "B"),
                ],
                none="nothing is known",
                stacked=True,
                colors=OUTCOMES,
                size=(16, 9),
            ),
            lines(
                "Share proven by provider",
                "Over the window before each point: of the verdicts that decide something, how many are proofs.",
                [query(_share("provider"), "{{provider}}")],
                unit="percentunit",
                none="no verdict in the window",
                size=(8, 9),
            ),
            row("Worst routes"),
            rows(
                "Worst routes",
                "Required contracts of each route, counted by place. The routes with most failures come first.",
                [
                    query(
                        f"count by ({_WHOSE}) ({q.needed(f'{_PROVEN} == 0')})", ref="failing", instant=True, rows=True
                    ),
                    query(
                        f"count by ({_WHOSE}) (({q.REQUIRED}) unless on ({q.BY_CELL}) {_PROVEN})",
                        ref="unknown",
                        instant=True,
                        rows=True,
                    ),
                    query(f"count by ({_WHOSE}) ({q.REQUIRED})", ref="required", instant=True, rows=True),
                    query(_share(_WHOSE), ref="share", instant=True, rows=True),
                ],
                none="0",
                transformations=[
                    models.DataTransformerConfig("merge", options={}),
                    models.DataTransformerConfig(
                        "organize",
                        options={
                            "excludeByName": {"Time": True},
                            "indexByName": {
                                "route": 0,
                                "provider": 1,
                                "Value #failing": 2,
                                "Value #unknown": 3,
                                "Value #required": 4,
                                "Value #share": 5,
                            },
                            "renameByName": {
                                "Value #failing": "Failing",
                                "Value #unknown": "Unknown",
                                "Value #required": "Required",
                                "Value #share": "Share proven",
                            },
                        },
                    ),
                    models.DataTransformerConfig(
                        "sortBy",
                        options={"sort": [{"field": "Failing", "desc": True}]},
                    ),
                    models.DataTransformerConfig("limit", options={"limitField": 50}),
                ],
                size=(24, 10),
            )
            .override_by_name("route", [to_route()])
            .override_by_name("Failing", [*fixed(RED), _text_in_colour()])
            .override_by_name("Unknown", [*fixed(ORANGE), _text_in_colour()])
            .override_by_name(
                "Share proven",
                [
                    models.DynamicConfigValue("unit", "percentunit"),
                    models.DynamicConfigValue("noValue", "no verdict in the window"),
                ],
            ),
            row("What asking costs"),
            lines(
                "Tokens within the window",
                "Used by probes, by the provider's own numbers, over the window before each point.",
                [query(f"sum by (provider, kind) ({_TOKENS})", "{{provider}}, {{kind}}")],
                unit="short",
                none="no route has been asked",
            ),
            lines(
                "Money within the window",
                "Tokens of the window times the configured price. Routes without a price aren't in it.",
                [query(f"sum by (currency) ({_MONEY})", "{{currency}}")],
                unit="short",
                none="no route has a price",
            ),
            lines(
                "Verdicts within the window",
                "By outcome. Unproven verdicts count as neither proof nor defect.",
                [query(f"sum by (outcome) ({q.tagged(q.verdicts())})", "{{outcome}}")],
                unit="short",
                none="no verdict in the window",
                colors=OUTCOMES,
            ),
            lines(
                "Budgets used today",
                "Share of the UTC day's budget for probing. At 100 % probing of the route stops until midnight.",
                queries({"{{route}}, {{kind}}": q.tagged(f"topk(10, {q.known(_SPENT, by='route, provider, kind')})")}),
                unit="percentunit",
                none="no route has a budget",
                thresholds=steps(GREEN, (0.8, ORANGE), (1, RED)),
            ),
        ],
    )


def _text_in_colour() -> models.DynamicConfigValue:
    return models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"})
