"""One route: what was known of each contract over time, how long answers took, what was spent."""

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
    Annotations,
    board,
    chosen,
    lines,
    query,
    row,
    rows,
    steps,
    timeline,
    to_route,
    value,
    window,
)

UID = "routeproof-route"

_PLACE = "contract, location"
# A single value is filled in as it is, and isn't made a regular expression: `=`, not `=~`.
_ROUTE = 'route="$route"'
_CELLS = f'{_ROUTE}, contract=~"$contract", {q.HERE}'
_AT = "{{contract}} from {{location}}"
_YES_NO = {"1": ("yes", GREEN), "0": ("no", GREY)}


def _cell(metric: str, more: str = "", *, by: str = _PLACE) -> str:
    return q.cell(metric, more, by=by, of=_CELLS)


# Worst first: where a scrape saw two words at the same moment, the worse one is shown.
_CODES = {"violated": 1, "blocked": 2, "unavailable": 3, "proven": 4}
_STATE = " or ".join(
    [f"{code} * " + _cell("status", f'outcome="{outcome}"') for outcome, code in _CODES.items()]
    + [f"0 * {_cell('required')}"]
)
_STATES = {str(code): (outcome, OUTCOMES[outcome]) for outcome, code in _CODES.items()} | {
    "0": ("unknown", OUTCOMES["unknown"])
}


def _quantile(share: float, metric: str) -> str:
    buckets = f'routeproof_probe_{metric}_bucket{{provider="$provider", contract=~"$contract", {q.HERE}}}'
    return f"histogram_quantile({share}, sum by (le, provider, contract) (rate({buckets}[$window])))"


def _changed(matched: str) -> str:
    """When the confirmed state changed last, in milliseconds."""
    return f"1000 * {_cell('last_transition_timestamp_seconds')} {matched} on ({_PLACE}) ({_cell('regressed')} == 1)"


def dashboard() -> builders.Dashboard:
    made = board(
        UID,
        "Routeproof: route",
        "One route over time. Its page in Routeproof has the evidence and the next move.",
        [
            chosen("tag", "Tag", "label_values(routeproof_route_info, tags)", of_all="|.*|", pattern="/([^,]+)/g"),
            chosen("route", "Route", 'label_values(routeproof_route_info{tags=~".*,$tag,.*"}, route)', every=False),
            chosen(
                "provider", "Provider", 'label_values(routeproof_route_info{route="$route"}, provider)', every=False
            ),
            chosen("contract", "Contract", 'label_values(routeproof_contract_required{route="$route"}, contract)'),
            chosen("location", "Location", 'label_values(routeproof_contract_required{route="$route"}, location)'),
            window(),
        ],
        [
            row("Now"),
            rows(
                "The route",
                "What is configured.",
                [
                    query(
                        q.known(f"routeproof_route_info{{{_ROUTE}}}", by="route, provider, model, dialect, tags, url"),
                        instant=True,
                        rows=True,
                    )
                ],
                none="no such route",
                transformations=[
                    models.DataTransformerConfig("organize", options={"excludeByName": {"Time": True, "Value": True}})
                ],
                size=(24, 4),
            ).override_by_name("route", [to_route()]),
            value(
                "Standing verdict",
                "Of each contract from each place. Never probed or expired: nothing is known.",
                [query(f"{_cell('proven')} or {_cell('required')} * 0 - 1", _AT)],
                none="no such route",
                texts={
                    "1": ("proven", GREEN),
                    "0": ("not proven", RED),
                    "-1": ("never probed, or expired", OUTCOMES["unknown"]),
                },
                size=(6, 5),
            ),
            value(
                "Regressed",
                "Confirmed by a second failure, until proven again. This is what alerts.",
                [query(_cell("regressed"), _AT)],
                none="no such route",
                texts={"1": ("regressed", RED), "0": ("no", GREEN)},
                size=(6, 5),
            ),
            value(
                "Flapping",
                "From the second regression within a day until steadily proven or plainly broken.",
                [query(_cell("flapping"), _AT)],
                none="no such route",
                texts={"1": ("flapping", ORANGE), "0": ("no", GREEN)},
                size=(4, 5),
            ),
            value(
                "Alerts muted",
                "A pause mutes alerts about the route.",
                [query(_cell("paused"), _AT)],
                none="no such route",
                texts={"1": ("paused", BLUE), "0": ("no", GREY)},
                size=(4, 5),
            ),
            value(
                "Required",
                "Whether the route's state rests on the contract.",
                [query(_cell("required"), _AT)],
                none="no such route",
                texts=_YES_NO,
                size=(4, 5),
            ),
            value(
                "Proof lasts",
                "Time until the newest proof expires; below 0 it has.",
                [query(f"{_cell('proof_expires_timestamp_seconds')} - time()", _AT)],
                unit="s",
                none="never proven",
                thresholds=steps(RED, (0, ORANGE), (60, GREEN)),
                size=(8, 5),
            ),
            value(
                "Last verdict",
                "Age of the newest verdict, whatever it says.",
                [query(f"time() - {_cell('last_verdict_timestamp_seconds')}", _AT)],
                unit="s",
                none="never probed",
                size=(8, 5),
            ),
            value(
                "Last proven",
                "Time since the contract was last seen to hold.",
                [query(f"time() - {_cell('last_proven_timestamp_seconds')}", _AT)],
                unit="s",
                none="never proven",
                size=(8, 5),
            ),
            row("Over time"),
            timeline(
                "State",
                "The standing verdict of each contract from each place. Unknown: never probed, or expired.",
                [query(_STATE, _AT)],
                none="no such route",
                texts=_STATES,
                size=(24, 6),
            ),
            timeline(
                "Status in words",
                "While each status stood.",
                [query(_cell("status", by=f"{_PLACE}, status"), f"{_AT}: {{{{status}}}}")],
                none="never probed, or expired",
                texts={"1": ("stood", BLUE)},
                size=(24, 7),
            ),
            timeline(
                "Quirks",
                "What some clients trip on although the verdict stands. The route's page explains each.",
                [query(_cell("quirk", by=f"{_PLACE}, quirk"), f"{_AT}: {{{{quirk}}}}")],
                none="no quirks",
                texts={"1": ("seen", ORANGE)},
                size=(24, 5),
            ),
            lines(
                "Time to the first token",
                "Of the newest probe from each place.",
                [query(_cell("last_time_to_first_token_seconds"), _AT)],
                unit="s",
                none="no token came",
            ),
            lines(
                "Duration",
                "Of the newest probe from each place, all its requests together.",
                [query(_cell("last_duration_seconds"), _AT)],
                unit="s",
                none="never probed",
            ),
            lines(
                "Time to the first token, all routes of the provider",
                "Quantiles over the window, by contract.",
                [
                    query(_quantile(share, "time_to_first_token_seconds"), f"{{{{contract}}}} p{share * 100:.0f}", ref)
                    for ref, share in (("A", 0.5), ("B", 0.9), ("C", 0.99))
                ],
                unit="s",
                none="no token came in the window",
            ),
            lines(
                "Duration, all routes of the provider",
                "Quantiles over the window, by contract.",
                [
                    query(_quantile(share, "duration_seconds"), f"{{{{contract}}}} p{share * 100:.0f}", ref)
                    for ref, share in (("A", 0.5), ("B", 0.9), ("C", 0.99))
                ],
                unit="s",
                none="no probe in the window",
            ),
            row("Counted"),
            lines(
                "Verdicts within the window",
                "By outcome. Unproven verdicts count as neither proof nor defect.",
                [
                    query(
                        f"sum by (outcome) ({q.verdicts(of=_CELLS)})",
                        "{{outcome}}",
                    )
                ],
                unit="short",
                none="never probed",
                colors=OUTCOMES,
                size=(8, 8),
            ),
            lines(
                "Tokens within the window",
                "Used by probes of the route, by the provider's own numbers.",
                [
                    query(
                        q.tokens(_ROUTE),
                        "{{kind}}",
                    )
                ],
                unit="short",
                none="never probed",
                size=(8, 8),
            ),
            lines(
                "Budget used today",
                "Share of the UTC day's budget for probing. At 100 % probing stops until midnight.",
                [query(q.known(f"routeproof_route_budget_spent_ratio{{{_ROUTE}}}", by="kind"), "{{kind}}")],
                unit="percentunit",
                none="no budget",
                thresholds=steps(GREEN, (0.8, ORANGE), (1, RED)),
                size=(8, 8),
            ),
        ],
    )
    said = "{{contract}} from {{location}}"
    for mark in (
        Annotations("Regressed", _changed("and"), RED, "Regressed", said),
        Annotations("Changed", _changed("unless"), BLUE, "Confirmed state changed", said),
    ):
        made = made.annotation(mark)
    return made
