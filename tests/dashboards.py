"""The dashboards' queries as tests ask them: with the variables filled in as Grafana does it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"
DASHBOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}

# "All" of each variable, and what Grafana brings itself.
_GIVEN = {"__rate_interval": "1m", "window": "1h"}
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)[^}]*\})")


@dataclass(frozen=True)
class Asked:
    """A query: of which dashboard and panel, its expression as it is written, and whether it is about this moment."""

    dashboard: str
    panel: str
    ref: str
    expr: str
    instant: bool = False

    def __str__(self) -> str:
        return f"{self.dashboard.removeprefix('routeproof-')}: {self.panel} ({self.ref})"

    def filled(self, **chosen: str) -> str:
        """The expression with every variable at "all", or as chosen. Those that take a single value are "one"."""
        return fill(self.expr, every(DASHBOARDS[self.dashboard]) | chosen)


def every(dashboard: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("allValue", "one") for one in dashboard["templating"]["list"]} | _GIVEN


def fill(text: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: values[found[1] or found[2]], text)


def used(text: str) -> set[str]:
    """The variables that a text names."""
    return {found[1] or found[2] for found in _VARIABLE.finditer(text)}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Panels that show something: no rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def asked() -> Iterator[Asked]:
    """Every query of every panel and of every mark over the panels."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Asked(name, panel["title"], target["refId"], target["expr"], target["instant"])
        for mark in dashboard["annotations"].get("list", ()):
            yield Asked(name, mark["name"], "annotation", mark["expr"])
