"""The dashboards: the committed JSON is what the code builds, and asks for what there is, folded rightly.

Whether the queries find anything is tried against a live Prometheus in tests/acceptance/test_prometheus_live.py.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from grafana.__main__ import FOLDER, documents
from scripts.metric_catalogue import families, full_name, labels
from tests.dashboards import DASHBOARDS, Asked, asked, panels, used

ASKED = list(asked())
PROVISIONING = FOLDER.parent / "provisioning"
EVERY_PANEL = [
    pytest.param(name, panel, id=f"{name}: {panel['title']}")
    for name in DASHBOARDS
    for panel in panels(DASHBOARDS[name])
]
LABELS = {full_name(family): set(labels(family)) for family in families()}
LABELS |= {f"{family.name}_bucket": set(labels(family)) | {"le"} for family in families() if family.type == "histogram"}
SCRAPED = {"instance", "job"}
OF_DATABASE = re.compile(r"routeproof_(contract|route|location)_")


def test_the_committed_files_are_what_the_code_builds() -> None:
    assert {path.name: path.read_text() for path in Path(FOLDER).iterdir()} == documents()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_schema_reads_a_dashboard_and_loses_nothing_of_it(name: str) -> None:
    written = copy.deepcopy(DASHBOARDS[name])
    for mark in written["annotations"].get("list", ()):
        for key in ("titleFormat", "textFormat", "step"):  # the data source's own words
            assert mark.pop(key)
    assert json.loads(json.dumps(models.Dashboard.from_json(written), cls=JSONEncoder)) == written


@pytest.mark.parametrize(("name", "panel"), EVERY_PANEL)
def test_a_panel_says_what_it_shows_in_which_unit_and_what_silence_means(name: str, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["noValue"]
    refs = [target["refId"] for target in panel["targets"]]
    assert all(refs)
    assert len(set(refs)) == len(refs) > 0
    assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    for mapping in defaults.get("mappings", ()):
        assert all(to["text"] and to["color"] for to in mapping["options"].values()), "a colour alone says nothing"
    if panel["type"] in ("stat", "table"):
        assert all(target["instant"] for target in panel["targets"]), "what has expired would be shown as it last was"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    shown = DASHBOARDS[name]["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    for one, other in combinations([panel["gridPos"] for panel in shown], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in shown)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_that_is_used_exists_and_every_one_that_exists_is_used(name: str) -> None:
    dashboard = DASHBOARDS[name]
    exist = {one["name"] for one in dashboard["templating"]["list"]}
    found = used(json.dumps(dashboard)) - {"__rate_interval", "__data", "__all"}
    assert found == exist
    assert len({one["uid"] for one in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_leads_to_the_status_page_and_lists_of_routes_to_the_page_of_each(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["links"][0]["url"] == "${routeproof_url:raw}/"
    for panel in panels(dashboard):
        if panel["type"] == "table":
            links = [
                v["value"] for o in panel["fieldConfig"]["overrides"] for v in o["properties"] if v["id"] == "links"
            ]
            assert links[0][0]["url"] == "${routeproof_url:raw}/routes/${__data.fields.route}"
            assert links[0][1]["url"].startswith("/d/routeproof-route?var-route=")


def parts(expr: promql.Expr) -> Iterator[tuple[promql.VectorSelector, promql.Expr | None]]:
    """Every selector, with the aggregation that folds it first, if any."""
    found: list[tuple[promql.VectorSelector, promql.Expr | None]] = []
    folds: list[promql.Expr] = []

    def enter(one: promql.Expr) -> None:
        if isinstance(one, promql.AggregateExpr):
            folds.append(one)
        if isinstance(one, promql.MatrixSelector):
            found.append((one.vector_selector, folds[-1] if folds else None))
        if isinstance(one, promql.VectorSelector):
            found.append((one, folds[-1] if folds else None))

    def leave(one: promql.Expr) -> None:
        if isinstance(one, promql.AggregateExpr):
            folds.pop()

    promql.walk(expr, enter, leave)
    yield from found


@pytest.mark.parametrize("query", ASKED, ids=str)
def test_a_query_asks_for_series_and_labels_that_exist_and_counts_each_fact_once(query: Asked) -> None:
    selectors = list(parts(promql.parse(query.filled())))
    assert selectors
    for selector, fold in selectors:
        name = str(selector.name)
        has = LABELS[name] | SCRAPED
        assert {matcher.name for matcher in selector.matchers.matchers} <= has, name
        assert fold is not None, f"{name} isn't folded: each replica would count"
        by = set(re.findall(r"\w+", str(fold.modifier))) - {"by"}
        assert by <= has, name
        if OF_DATABASE.match(name):
            assert str(fold.op) in ("max", "group"), f"{name} is the same on every replica"
            assert "instance" not in by, name


def test_the_promises_of_each_dashboard_are_kept() -> None:
    """The series without which a dashboard wouldn't be what it is for."""
    asked_for = {
        name: {str(s.name) for q in ASKED if q.dashboard == name for s, _ in parts(promql.parse(q.filled()))}
        for name in DASHBOARDS
    }
    assert asked_for["routeproof-overview"] >= {
        "routeproof_contract_proven",
        "routeproof_contract_status",
        "routeproof_contract_verdicts_total",
        "routeproof_route_tokens_total",
        "routeproof_route_price_per_million_tokens",
    }
    assert asked_for["routeproof-route"] >= {
        "routeproof_contract_status",
        "routeproof_contract_last_transition_timestamp_seconds",
        "routeproof_contract_proof_expires_timestamp_seconds",
        "routeproof_probe_duration_seconds_bucket",
        "routeproof_probe_time_to_first_token_seconds_bucket",
    }
    of_processes = {name for name in LABELS if not OF_DATABASE.match(name) and not name.endswith("_bucket")}
    left_to_others = {"routeproof_probe_duration_seconds", "routeproof_probe_time_to_first_token_seconds"}
    histograms = {"routeproof_schedule_lag_seconds"}
    assert asked_for["routeproof-prober"] >= of_processes - left_to_others - histograms
    assert "routeproof_schedule_lag_seconds_bucket" in asked_for["routeproof-prober"]


def test_provisioning_finds_one_data_source_and_the_folder_of_the_dashboards() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "${PROMETHEUS_URL}", True)
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "routeproof.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].startswith("/")
