"""Charts made on the server: inline SVG under a strict content security policy, so no `style` attribute and no script.

Pure functions of numbers. Colours and sizes are classes of `static/charts.css`; whatever a colour says is said by a
shape and in words too, and each chart but the sparkline has a table of the same numbers.
"""

from __future__ import annotations

from service.web.charts.latency import LatencyPoint, latency, latency_table
from service.web.charts.numbers import Quantile, percent, quantile, share
from service.web.charts.sparkline import sparkline
from service.web.charts.strip import Slot, strip, strip_table

__all__ = [
    "LatencyPoint",
    "Quantile",
    "Slot",
    "latency",
    "latency_table",
    "percent",
    "quantile",
    "share",
    "sparkline",
    "strip",
    "strip_table",
]
