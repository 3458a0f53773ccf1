"""Write docs/metrics.md from the code: every series, its type, its labels and its meaning.

`python -m scripts.metric_catalogue` prints it; the tests say when the file is behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import ProcessMetrics, render_cells
from service.model import Cell, CellRow, Outcome, RouteRow, Snapshot, Spend, Standing, Status, Verdict

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_AN_HOUR = timedelta(hours=1)
_ID = UUID(int=0)
_INTRODUCTION = """# Metrics

Made from the code by `python -m scripts.metric_catalogue > docs/metrics.md`; a test compares the two.

`routeproof_contract_*`, `routeproof_route_*` and `routeproof_location_*` are what the database says, the same on every
replica: fold them with `max by (…)`. All others are one process's own: fold them with `sum`. A series that isn't there is
an answer: what has expired is absent, never 0. Whether alerts may rest on a series is said in `deploy/prometheus/`.

The answer is always Prometheus's text format (0.0.4), also to those who would rather have OpenMetrics, and gzipped for
those who take that.
"""


def families() -> list[Metric]:
    """One of each family that a scrape can hold."""
    return sorted(text_string_to_metric_families(scrape()), key=lambda family: family.name)


def scrape() -> str:
    """A scrape with one of each family, made by the code that serves it."""
    process = ProcessMetrics("location", "version")
    verdict = _verdict()
    process.probe_started(timedelta())
    process.probe_finished("provider", verdict)
    process.database(True)
    process.egress(True)
    process.config_loaded("hash")
    process.config_reloaded(successful=True)
    process.job_done("task")
    return process.render().decode() + render_cells(_snapshot(), _NOW)


def labels(family: Metric) -> tuple[str, ...]:
    """The labels of a family, in the order in which they are written, without a bucket's own."""
    return tuple(dict.fromkeys(name for sample in family.samples for name in sample.labels if name != "le"))


def full_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def catalogue(found: Iterable[Metric]) -> str:
    lines = [_INTRODUCTION, "| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in found:
        named = ", ".join(f"`{label}`" for label in labels(family))
        lines.append(f"| `{full_name(family)}` | {family.type} | {named} | {family.documentation} |")
    return "\n".join(lines) + "\n"


def _snapshot() -> Snapshot:
    route = RouteRow("r", "r", "p", "openai-chat", "m", "https://api.example", ("t",), 1000, 100, 1.0, 1.0, "USD")
    standing = Standing(
        id=_ID,
        status=Status.TOOLS_SUPPORTED,
        outcome=Outcome.PROVEN,
        reason=None,
        rule_id="",
        quirks=("q",),
        served_model=None,
        detail="",
        requests=1,
        retry_after_s=None,
        observed_at=_NOW,
        duration_s=1.0,
        time_to_first_token_s=0.5,
        tokens_in=1,
        tokens_out=1,
        fingerprint="",
    )
    cell = Cell("r", "c", "here", True, "", _AN_HOUR, _AN_HOUR, _AN_HOUR, _AN_HOUR)
    row = CellRow(1, route, cell, standing, standing, _NOW, _NOW, {}, _NOW, last_transition_at=_NOW)
    return Snapshot(_NOW, (row,), spends={"r": Spend(1, 1, 1)})


def _verdict() -> Verdict:
    return Verdict(
        id=_ID,
        route_id="r",
        contract="c",
        location="here",
        status=Status.TOOLS_SUPPORTED,
        rule_id="",
        reason=None,
        quirks=(),
        served_model=None,
        detail="",
        requests=1,
        retry_after_s=None,
        started_at=_NOW,
        observed_at=_NOW,
        duration_s=1.0,
        time_to_first_token_s=0.5,
        tokens_in=1,
        tokens_out=1,
        rungs=(),
        facts={},
        fingerprint="",
        ruleset=1,
    )


if __name__ == "__main__":
    sys.stdout.write(catalogue(families()))
