"""Routeproof itself: whether it keeps its times, reaches its database and can be believed."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders

from grafana import queries as q
from grafana.parts import GREEN, GREY, ORANGE, OUTCOMES, RED, board, chosen, lines, queries, query, row, steps, value

UID = "routeproof-prober"

_WHO = "{{instance}} in {{location}}"
_BY_PROCESS = "location, instance"


def _own(fold: str, metric: str, by: str = _BY_PROCESS) -> str:
    return f"{fold} by ({by}) (routeproof_{metric}{{{q.HERE}}})"


def _place(metric: str) -> str:
    return q.known(f"routeproof_location_{metric}{{{q.HERE}}}", by="location")


# A prober whose network was never in question has no series of it and is well.
_NETWORK = (
    f"min by ({_BY_PROCESS}) (routeproof_egress_up{{{q.HERE}}} or on (job, instance) "
    f'0 * routeproof_job_last_success_timestamp_seconds{{{q.HERE}, task="dispatch"}} + 1)'
)


def _faults(metric: str) -> str:
    return f"sum by (location) (increase(routeproof_{metric}_total{{{q.HERE}}}[$__rate_interval]))"


def _lag(share: float) -> str:
    buckets = f"routeproof_schedule_lag_seconds_bucket{{{q.HERE}}}"
    return f"histogram_quantile({share}, sum by (le, location) (rate({buckets}[$__rate_interval])))"


def dashboard() -> builders.Dashboard:
    return board(
        UID,
        "Routeproof: prober",
        "Whether Routeproof itself is well. When it isn't, what it says of routes ages and then expires.",
        [chosen("location", "Location", "label_values(routeproof_build_info, location)")],
        [
            row("Now"),
            value(
                "Processes",
                "Processes that are scraped, by place and version.",
                [query(_own("sum", "build_info", "location, version"), "{{location}}, {{version}}")],
                none="nothing is scraped",
                thresholds=steps(RED, (1, GREEN)),
            ),
            value(
                "Database",
                "Whether each process reaches its database.",
                [query(_own("min", "database_up"), _WHO)],
                none="nothing is scraped",
                texts={"1": ("answers", GREEN), "0": ("away", RED)},
            ),
            value(
                "Our own network",
                "Tells our network's fault from a route's. In question only when many routes are silent at once.",
                [query(_NETWORK, _WHO)],
                none="no prober is scraped",
                texts={"1": ("works", GREEN), "0": ("down", RED)},
            ),
            value(
                "Configuration taken up",
                "Refused: the file has mistakes, and the earlier configuration stays active.",
                [query(_own("min", "config_last_reload_successful"), _WHO)],
                none="nothing is scraped",
                texts={"1": ("taken up", GREEN), "0": ("refused", RED)},
            ),
            value(
                "Different configurations",
                "More than one in a place: replicas disagree about what is to be asked.",
                [
                    query(
                        f"count by (location) (count by (location, hash) (routeproof_config_info{{{q.HERE}}}))",
                        "{{location}}",
                    )
                ],
                none="nothing is scraped",
                thresholds=steps(GREEN, (2, RED)),
            ),
            value(
                "Age of the configuration",
                "Since it was taken up last.",
                [query(f"time() - {_own('max', 'config_last_reload_success_timestamp_seconds')}", _WHO)],
                unit="s",
                none="none was taken up",
            ),
            row("Keeping time"),
            lines(
                "Schedule lag",
                "Start of a probe after it was due.",
                [query(_lag(0.5), "{{location}} p50"), query(_lag(0.99), "{{location}} p99", "B")],
                unit="s",
                none="no probe started",
                thresholds=steps(GREEN, (1, ORANGE)),
            ),
            lines(
                "Longest waiting cell",
                "For how long it has been due; 0 when none waits. What rises is more than is done.",
                [query(_place("oldest_due_seconds"), "{{location}}")],
                unit="s",
                none="nothing is scheduled",
                thresholds=steps(GREEN, (300, RED)),
            ),
            lines(
                "Probes under way",
                "At the moment of each scrape.",
                [query(_own("sum", "probes_in_flight", "location"), "{{location}}")],
                none="nothing is scraped",
                size=(8, 8),
            ),
            lines(
                "Probes a second",
                "Finished, by outcome.",
                [
                    query(
                        f"sum by (outcome) (rate(routeproof_probes_total{{{q.HERE}}}[$__rate_interval]))",
                        "{{outcome}}",
                    )
                ],
                unit="ops",
                none="no probe finished",
                stacked=True,
                colors=OUTCOMES,
                size=(8, 8),
            ),
            lines(
                "Newest verdict",
                "Its age, by place, whichever process stored it.",
                [
                    query(
                        f"time() - {_place('last_verdict_timestamp_seconds')}",
                        "{{location}}",
                    )
                ],
                unit="s",
                none="no verdict yet",
                size=(8, 8),
            ),
            row("Faults of our own"),
            lines(
                "Faults",
                "Each of these should be 0.",
                queries(
                    {
                        "{{location}}: leases ended before their probe": _faults("leases_expired"),
                        "{{location}}: runs of the clockwork missed": _faults("runs_missed"),
                        "{{location}}: database operations failed": _faults("database_errors"),
                        "{{location}}: verdicts refused by the database": _faults("verdicts_refused"),
                        "{{location}}: details withheld for a secret": _faults("redactions_refused"),
                    }
                ),
                unit="short",
                none="nothing is scraped",
                thresholds=steps(GREEN, (1, RED)),
            ),
            lines(
                "Verdicts waiting on disk",
                "Kept while the database is away, written when it is back.",
                [query(_own("sum", "spool_verdicts"), _WHO)],
                unit="short",
                none="nothing is scraped",
                thresholds=steps(GREEN, (1, RED)),
            ),
            lines(
                "Event loop",
                "How late it was at worst within the last minute. Above 1 s our slowness could look like a route's.",
                [query(_own("max", "event_loop_lag_seconds"), _WHO)],
                unit="s",
                none="not measured yet",
                thresholds=steps(GREEN, (1, RED)),
            ),
            lines(
                "Jobs of the clockwork",
                "Time since each came to its end last. Housekeeping runs once an hour, the others within minutes.",
                [
                    query(
                        f"time() - {_own('max', 'job_last_success_timestamp_seconds', f'{_BY_PROCESS}, task')}",
                        f"{{{{task}}}} of {_WHO}",
                    )
                ],
                unit="s",
                none="no job has ended yet",
            ),
            row("How much there is"),
            value(
                "Cells",
                "Contracts of routes that are configured for each place.",
                [query(_place("cells"), "{{location}}")],
                none="nothing is configured",
                thresholds=steps(GREY),
                size=(24, 4),
            ),
        ],
    )
