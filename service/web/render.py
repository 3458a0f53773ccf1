"""Templates into answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.web import views
from service.web.charts import sparkline
from service.web.xml_text import TEXT_LIMIT, visible

HERE = Path(__file__).parent
REFRESH_S = 15


def _inert(value: object) -> object:
    """What a template is about to show: whoever wrote it, nothing in it is invisible or endless. Markup is our own."""
    return visible(value, TEXT_LIMIT) if isinstance(value, str) and not hasattr(value, "__html__") else value


class Templates:
    """The templates, compiled once. Everything is escaped, and a missing name is an error."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=_inert,
        )
        self._templates.filters["timing"] = views.timing
        self._templates.filters["sparkline"] = lru_cache(maxsize=4096)(sparkline)  # pages come more often than points

    def render(
        self, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **names: Any
    ) -> HTMLResponse:
        text = self._templates.get_template(template).render(refresh_s=REFRESH_S, status=status, **names)
        return HTMLResponse(text, status_code=status, headers={"cache-control": "no-store", **(headers or {})})
