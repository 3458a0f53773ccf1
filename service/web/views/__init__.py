"""View models: what a page says, decided here as plain text, so that templates only lay it out.

Pure functions of the board's view. Every text that comes from a provider stays text; the templates escape it.
"""

from __future__ import annotations

from service.web.views.asked import Asked
from service.web.views.head import Header, Held, Part, header
from service.web.views.headline import Headline, headline
from service.web.views.listing import Choice, Filters, Pages, ProviderLine
from service.web.views.matrix import Matrix, MatrixLine, matrix
from service.web.views.overview import Overview, RouteLine, Share, overview
from service.web.views.panel import CellPanel, Ladder
from service.web.views.route import Known, RoutePage, VerdictLine, contract_asked, route_page, spoken_of, state_of
from service.web.views.transitions import ChangeLine
from service.web.views.words import View, cell_remedy, duration, moment, nothing_read, timing

__all__ = [
    "Asked",
    "CellPanel",
    "ChangeLine",
    "Choice",
    "Filters",
    "Header",
    "Headline",
    "Held",
    "Known",
    "Ladder",
    "Matrix",
    "MatrixLine",
    "Overview",
    "Pages",
    "Part",
    "ProviderLine",
    "RouteLine",
    "RoutePage",
    "Share",
    "VerdictLine",
    "View",
    "cell_remedy",
    "contract_asked",
    "duration",
    "header",
    "headline",
    "matrix",
    "moment",
    "nothing_read",
    "overview",
    "route_page",
    "spoken_of",
    "state_of",
    "timing",
]
