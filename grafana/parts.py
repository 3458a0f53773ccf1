"""Panels, variables and links in the manner of these dashboards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

GREEN, RED, ORANGE, PURPLE, GREY, BLUE = "green", "red", "orange", "purple", "text", "blue"
OUTCOMES = {"proven": GREEN, "violated": RED, "blocked": ORANGE, "unavailable": PURPLE, "unknown": GREY}
DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = TypeVar("Panel", stat.Panel, timeseries.Panel, statetimeline.Panel, table.Panel)
Shown = stat.Panel | timeseries.Panel | statetimeline.Panel | table.Panel
Words = Mapping[str, tuple[str, str]]
"""What a value is called, and its colour: never a colour alone."""


def query(
    expr: str, legend: str = "", ref: str = "A", *, instant: bool = False, rows: bool = False
) -> prometheus.Dataquery:
    asked = prometheus.Dataquery().expr(expr).ref_id(ref).datasource(DATASOURCE).legend_format(legend or "__auto")
    asked = asked.instant() if instant else asked.range()
    return asked.format(PromQueryFormat.TABLE if rows else PromQueryFormat.TIME_SERIES)


def queries(named: Mapping[str, str]) -> list[prometheus.Dataquery]:
    """One query for each name in a legend, `A`, `B`, …"""
    return [query(expr, name, chr(ord("A") + index)) for index, (name, expr) in enumerate(named.items())]


def steps(base: str, *others: tuple[float, str]) -> builders.ThresholdsConfig:
    """Colours from a value on."""
    found = [dashboard.Threshold(value=None, color=base)]
    found += [dashboard.Threshold(value=value, color=color) for value, color in others]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(found)


def words(values: Words) -> list[dashboard.ValueMapping]:
    return [
        dashboard.ValueMap(
            {
                value: dashboard.ValueMappingResult(text=text, color=color, index=index)
                for index, (value, (text, color)) in enumerate(values.items())
            }
        )
    ]


def fixed(color: str) -> list[dashboard.DynamicConfigValue]:
    return [dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})]


def _common(
    panel: Panel,
    title: str,
    says: str,
    asked: Sequence[prometheus.Dataquery],
    unit: str,
    none: str,
    size: tuple[int, int],
) -> Panel:
    width, height = size
    panel = panel.title(title).description(says).datasource(DATASOURCE).unit(unit).no_value(none)
    return panel.targets(list(asked)).span(width).height(height)


def value(
    title: str,
    says: str,
    asked: Sequence[prometheus.Dataquery],
    *,
    unit: str = "none",
    none: str,
    thresholds: builders.ThresholdsConfig | None = None,
    texts: Words | None = None,
    size: tuple[int, int] = (4, 4),
) -> stat.Panel:
    """What is so now, in large letters: asked for this moment, so that what has expired isn't shown as it last was."""
    panel = _common(stat.Panel(), title, says, [one.instant() for one in asked], unit, none, size)
    panel = panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    panel = panel.color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.NONE)
    panel = panel.text_mode(common.BigValueTextMode.AUTO).thresholds(thresholds or steps(GREY))
    return panel.mappings(words(texts)) if texts else panel


def lines(
    title: str,
    says: str,
    asked: Sequence[prometheus.Dataquery],
    *,
    unit: str = "none",
    none: str,
    stacked: bool = False,
    colors: Mapping[str, str] | None = None,
    thresholds: builders.ThresholdsConfig | None = None,
    size: tuple[int, int] = (12, 8),
) -> timeseries.Panel:
    """Values over time. `colors` go by name in the legend; thresholds are drawn as lines."""
    panel = _common(timeseries.Panel(), title, says, asked, unit, none, size).min(0)
    panel = panel.legend(
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    ).tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(60)
    if thresholds is not None:
        style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(thresholds).thresholds_style(style)
    for name, color in (colors or {}).items():
        panel = panel.override_by_name(name, fixed(color))
    return panel


def timeline(
    title: str, says: str, asked: Sequence[prometheus.Dataquery], *, none: str, texts: Words, size: tuple[int, int]
) -> statetimeline.Panel:
    """States over time, in words."""
    panel = _common(statetimeline.Panel(), title, says, asked, "none", none, size).mappings(words(texts))
    return panel.merge_values(True).show_value(common.VisibilityMode.AUTO)


def rows(
    title: str,
    says: str,
    asked: Sequence[prometheus.Dataquery],
    *,
    none: str,
    transformations: Sequence[dashboard.DataTransformerConfig],
    size: tuple[int, int],
) -> table.Panel:
    """A table of the newest values."""
    panel = _common(table.Panel(), title, says, asked, "none", none, size).filterable(True)
    return panel.transformations(list(transformations))


def to_route() -> dashboard.DynamicConfigValue:
    """Links from a row to the page of its route, and to its dashboard."""
    page, over_time = "${routeproof_url:raw}/routes/${__data.fields.route}", "/d/routeproof-route?var-route="
    return dashboard.DynamicConfigValue(
        "links",
        [
            {"title": "Page in Routeproof: evidence and next move", "url": page, "targetBlank": True},
            {"title": "Over time", "url": over_time + "${__data.fields.route}&${datasource:queryparam}"},
        ],
    )


def row(title: str) -> builders.Row:
    return builders.Row(title)


class Annotations(Builder[dashboard.AnnotationQuery]):
    """Marks in all panels at the moments that a query names, in milliseconds: however long the range and its steps are,
    none falls between two of them. Title and text are the data source's, unknown to the schema."""

    def __init__(self, name: str, expr: str, color: str, title: str, text: str) -> None:
        self._made = _Annotation(name=name, datasource=DATASOURCE, icon_color=color, expr=expr)
        self._made.words = {"titleFormat": title, "textFormat": text, "useValueForTime": True}

    def build(self) -> dashboard.AnnotationQuery:
        return self._made


class _Annotation(dashboard.AnnotationQuery):
    words: Mapping[str, str | bool]

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **self.words}


_SOURCE = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
_URL = (
    builders.TextBoxVariable("routeproof_url")
    .label("Routeproof")
    .description("Where people reach Routeproof, no slash at the end: the links lead there.")
    .default_value("http://127.0.0.1:8080")
    .current(dashboard.VariableOption(text="http://127.0.0.1:8080", value="http://127.0.0.1:8080", selected=True))
)


def chosen(
    name: str, label: str, asks: str, *, every: bool = True, of_all: str = ".*", pattern: str = ""
) -> builders.QueryVariable:
    """A variable with the values that `label_values(…)` finds; `every` offers several and all."""
    made = builders.QueryVariable(name).label(label).datasource(DATASOURCE).query({"query": asks, "refId": name})
    made = made.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    if pattern:
        made = made.regex(pattern)
    if not every:
        return made
    current = dashboard.VariableOption(text="All", value="$__all", selected=True)
    return made.multi(True).include_all(True).all_value(of_all).current(current)


def window() -> builders.IntervalVariable:
    """How far shares and sums look back."""
    return (
        builders.IntervalVariable("window")
        .label("Window")
        .values("1h,6h,24h,7d,30d")
        .options(
            [dashboard.VariableOption(text=w, value=w, selected=w == "24h") for w in ("1h", "6h", "24h", "7d", "30d")]
        )
        .current(dashboard.VariableOption(text="24h", value="24h", selected=True))
    )


def board(
    uid: str,
    title: str,
    says: str,
    variables: Sequence[Builder[dashboard.VariableModel]],
    panels: Sequence[builders.Row | Shown],
) -> builders.Dashboard:
    """A dashboard of rows and panels, with links to the others and to the status page."""
    made = builders.Dashboard(title).uid(uid).description(says).tags(["routeproof"]).timezone("utc")
    made = made.time("now-24h", "now").refresh("1m").readonly().tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    for variable in (_SOURCE, *variables, _URL):
        made = made.with_variable(variable)
    made = made.link(
        builders.DashboardLink("Status page")
        .type(dashboard.DashboardLinkType.LINK)
        .url("${routeproof_url:raw}/")
        .tooltip("What is known now, in words, with evidence")
        .icon("external link")
        .target_blank(True)
    ).link(
        builders.DashboardLink("Dashboards")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags(["routeproof"])
        .keep_time(True)
        .include_vars(True)
        .icon("dashboard")
    )
    for index, panel in enumerate(panels, start=1):
        made = made.with_row(panel.id(index)) if isinstance(panel, builders.Row) else made.with_panel(panel.id(index))
    return made


def as_json(made: builders.Dashboard) -> str:
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
