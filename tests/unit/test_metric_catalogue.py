"""The catalogue of metrics against the code: what is missing, unexpected or changed is named."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.metric_catalogue import catalogue, families, full_name, labels, scrape

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"

# The public contract of operations: names and labels that dashboards and alerts of others rest on.
CELL = ("route", "provider", "contract", "location")
PROMISED = {
    "routeproof_contract_proven": CELL,
    "routeproof_contract_regressed": CELL,
    "routeproof_contract_flapping": CELL,
    "routeproof_contract_fresh": CELL,
    "routeproof_contract_required": CELL,
    "routeproof_contract_paused": CELL,
    "routeproof_contract_status": (*CELL, "status", "outcome", "reason"),
    "routeproof_contract_quirk": (*CELL, "quirk"),
    "routeproof_contract_last_verdict_timestamp_seconds": CELL,
    "routeproof_contract_last_proven_timestamp_seconds": CELL,
    "routeproof_contract_last_transition_timestamp_seconds": CELL,
    "routeproof_contract_proof_expires_timestamp_seconds": CELL,
    "routeproof_contract_verdicts_total": (*CELL, "outcome"),
    "routeproof_contract_last_time_to_first_token_seconds": CELL,
    "routeproof_contract_last_duration_seconds": CELL,
    "routeproof_route_info": ("route", "provider", "model", "dialect", "tags", "url"),
    "routeproof_route_tokens_total": ("route", "provider", "kind"),
    "routeproof_route_budget_spent_ratio": ("route", "provider", "kind"),
    "routeproof_location_last_verdict_timestamp_seconds": ("location",),
    "routeproof_location_oldest_due_seconds": ("location",),
    "routeproof_location_cells": ("location",),
    "routeproof_probes_total": ("provider", "contract", "status", "outcome", "location"),
    "routeproof_probe_duration_seconds": ("provider", "contract", "outcome", "location"),
    "routeproof_probe_time_to_first_token_seconds": ("provider", "contract", "outcome", "location"),
    "routeproof_schedule_lag_seconds": ("location",),
    "routeproof_probes_in_flight": ("location",),
    "routeproof_spool_verdicts": ("location",),
    "routeproof_database_up": ("location",),
    "routeproof_egress_up": ("location",),
    "routeproof_leases_expired_total": ("location",),
    "routeproof_runs_missed_total": ("location",),
    "routeproof_database_errors_total": ("location",),
    "routeproof_verdicts_refused_total": ("location",),
    "routeproof_redactions_refused_total": ("location",),
    "routeproof_config_last_reload_successful": ("location",),
    "routeproof_config_last_reload_success_timestamp_seconds": ("location",),
    "routeproof_config_info": ("location", "hash"),
    "routeproof_build_info": ("location", "version"),
}


def test_the_catalogue_says_what_the_code_serves() -> None:
    in_code = dict(_rows(catalogue(families())))
    in_docs = dict(_rows(DOCS.read_text()))
    assert not in_code.keys() - in_docs.keys(), "missing in docs/metrics.md"
    assert not in_docs.keys() - in_code.keys(), "in docs/metrics.md and served no more"
    assert [name for name in in_code if in_code[name] != in_docs[name]] == [], "changed"
    assert DOCS.read_text() == catalogue(families())


def test_every_promised_series_is_served_with_its_labels() -> None:
    served = {full_name(family): set(labels(family)) for family in families()}
    assert {name: served.get(name) for name in PROMISED} == {name: set(named) for name, named in PROMISED.items()}


def test_names_and_types_follow_the_conventions() -> None:
    for family in families():
        assert re.fullmatch(r"routeproof_[a-z_]+", family.name)
        assert family.documentation.endswith("."), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool isn't installed (Debian: prometheus)")
def test_promtool_finds_nothing_to_say() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape(), text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def _rows(text: str) -> list[tuple[str, str]]:
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [(row.split("`")[1], row) for row in rows]
