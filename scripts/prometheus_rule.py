"""Write deploy/kubernetes/prometheusrule.yaml from the rules of deploy/prometheus/rules.

`python -m scripts.prometheus_rule`; the tests say when the file is behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
MANIFEST = DEPLOY / "kubernetes" / "prometheusrule.yaml"
_HEAD = "# Made by `python -m scripts.prometheus_rule` from deploy/prometheus/rules: change those.\n"


def manifest() -> str:
    groups: list[Any] = []
    for path in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"), reverse=True):  # what alerts rest on first
        groups += yaml.safe_load(path.read_text())["groups"]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "routeproof"},
        "spec": {"groups": groups},
    }
    return _HEAD + yaml.safe_dump(rule, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    MANIFEST.write_text(manifest())
