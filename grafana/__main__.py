"""Write the dashboards' JSON."""

from __future__ import annotations

from pathlib import Path

from grafana import overview, prober, route
from grafana.parts import as_json

FOLDER = Path(__file__).parent / "dashboards"


def documents() -> dict[str, str]:
    """The name of each file, and what belongs into it."""
    return {f"{part.UID}.json": as_json(part.dashboard()) for part in (overview, route, prober)}


if __name__ == "__main__":
    for name, text in documents().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
