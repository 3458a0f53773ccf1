"""The dashboards: the committed JSON is what the code builds, and asks for what there is, folded rightly.

Whether the queries find anything is tried against a live Prometheus in tests/acceptance/test_prometheus_live.py.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
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
from grafana.queries import BELIEVED
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
        for key in ("titleFormat", "textFormat", "useValueForTime"):  # the data source's own words
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
    selectors = list(parts(promql.parse(query.filled().replace(BELIEVED, ""))))
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


@pytest.mark.parametrize("query", ASKED, ids=str)
def test_a_replica_without_its_database_is_not_asked_for_what_can_go_down(query: Asked) -> None:
    of_database = re.findall(r"(routeproof_(?:contract|route|location)_\w+)\{[^}]*\}( unless)?", query.expr)
    gauges = [(name, asked_who) for name, asked_who in of_database if not name.endswith("_total")]
    assert all(asked_who for _, asked_who in gauges), gauges
    assert query.expr.count(BELIEVED) == len(gauges)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_variable_with_a_single_value_is_compared_and_one_with_several_is_matched(name: str) -> None:
    """Grafana makes a regular expression of the latter only: `=~` would take a dot of the former for any character."""
    dashboard = DASHBOARDS[name]
    several = {one["name"]: one.get("multi", False) for one in dashboard["templating"]["list"]}
    texts = [query.expr for query in ASKED if query.dashboard == name]
    texts += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    compared = [found for text in texts for found in re.findall(r'(=~?|!~)"[^"$]*\$(\w+)[^"]*"', text)]
    assert compared
    for operator, variable in compared:
        assert operator == ("=~" if several[variable] else "="), variable


STORIES = {
    "a replica that lost its database isn't believed": (
        ["1x9 0x9", "1x19"],  # `a` goes on to say what it knew last
        {
            "routeproof_contract_required{I}": ("1x19", "1x19"),
            "routeproof_contract_proven{I}": ("1x19", "1x9 0x10"),
        },
        [("Proven", 9, [1]), ("Proven", 12, [0]), ("Not proven", 12, [1]), ("Unknown", 12, [0])],
    ),
    "when all lost it, what is known ages and expires": (
        ["1x9 0x9", "1x9 0x9"],
        {
            "routeproof_contract_required{I}": ("1x19", "1x19"),
            "routeproof_contract_proven{I}": ("1x14 stale", "1x14 stale"),
        },
        [("Proven", 12, [1]), ("Proven", 16, [0]), ("Unknown", 16, [1])],
    ),
    "when nothing is scraped nothing is said to be well": (
        ["1x4 stale", "1x4 stale"],
        {
            "routeproof_contract_required{I}": ("1x4 stale", "1x4 stale"),
            "routeproof_contract_regressed{I}": ("0x4 stale", "0x4 stale"),
        },
        [("Regressed", 4, [0]), ("Regressed", 6, []), ("Proven", 6, []), ("Unknown", 6, [])],
    ),
    "what was counted within an hour, whatever replica counts and over a gap an hour ago": (
        ["1x200", "_x100 1x100"],
        {
            'routeproof_contract_verdicts_total{I,outcome="proven"}': (
                "1000+1x49 stale _x9 1060+1x39 stale",  # one more each minute; ten minutes aren't scraped
                "_x100 1100+1x60",
            )
        },
        [
            ("Verdicts within the window", minute, [counted])
            for minute, counted in ((99, 60), (115, 66), (119, 70), (125, 60), (150, 60))
        ],
    ),
    "a counter that is younger than the window began at 0, and so did one of another database": (
        ["1x200", "1x200"],
        {'routeproof_contract_verdicts_total{I,outcome="proven"}': ("5+1x99 0+1x90", "")},
        [("Verdicts within the window", 30, [35]), ("Verdicts within the window", 130, [30])],
    ),
}
CELL = 'route="r",provider="p",contract="c",location="l"'


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool isn't installed (Debian: prometheus)")
@pytest.mark.parametrize("story", STORIES)
def test_the_overview_tells_right(story: str, tmp_path: Path) -> None:
    reaching, told, expected = STORIES[story]
    queries = {query.panel: query.filled() for query in ASKED if query.dashboard == "routeproof-overview"}
    series = {
        f'routeproof_database_up{{job="j",instance="{who}",location="l"}}': said
        for who, said in zip("ab", reaching, strict=True)
    }
    series['routeproof_route_info{job="j",instance="b",route="r",provider="p",tags=""}'] = "1x200"
    for name, saids in told.items():
        for who, said in zip("ab", saids, strict=True):
            if said:
                series[name.replace("{I", f'{{job="j",instance="{who}",{CELL}')] = said
    checks = [
        {
            "expr": f"sum({queries[panel]})",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": value} for value in values],
        }
        for panel, minute, values in expected
    ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": checks}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    said = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


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
        "routeproof_contract_quirk",
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
