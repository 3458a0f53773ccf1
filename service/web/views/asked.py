"""What a reader asks the overview for, as it stands in the URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from service.derive import Shown
from service.web.select import Selection

SIZES = (25, 100, 500)
SIZE = 100
_LONGEST = 200
_LAST_PAGE = 10_000


@dataclass(frozen=True)
class Asked:
    """Filters and a page of `size` routes. A value that names nothing known finds nothing; a page or size that is no
    number is as if it weren't given."""

    q: str = ""
    provider: str = ""
    outcome: str = ""
    tag: str = ""
    page: int = 1
    size: int = SIZE

    @staticmethod
    def of(query: Mapping[str, str]) -> Asked:
        """Read from a URL's query. Other names are left alone: someone's bookmark may have more."""
        text = {name: query.get(name, "").strip()[:_LONGEST] for name in ("q", "provider", "outcome", "tag")}
        size = _number(query.get("size", ""), SIZE)
        return Asked(
            **text, page=min(_number(query.get("page", ""), 1), _LAST_PAGE), size=size if size in SIZES else SIZE
        )

    @property
    def filtered(self) -> bool:
        return any((self.q, self.provider, self.outcome, self.tag))

    @property
    def selection(self) -> Selection | None:
        """None when nothing can match."""
        if self.outcome and self.outcome not in set(Shown):
            return None
        return Selection(
            q=self.q,
            provider=self.provider or None,
            outcomes=frozenset({Shown(self.outcome)}) if self.outcome else frozenset(),
            tags=frozenset({self.tag}) if self.tag else frozenset(),
        )

    def of_public(self) -> Asked:
        """Of what may be asked by who sees names and states only: other filters would tell more."""
        return Asked(provider=self.provider, page=self.page, size=self.size)

    def link(self, **changes: str | int) -> str:
        """The overview's address with these changes; without `page` among them it is the first page."""
        asked = replace(self, **{"page": 1, **changes})  # type: ignore[arg-type]
        said = {name: value for name, value in vars(asked).items() if value != getattr(Asked, name)}
        return f"/?{urlencode(said)}" if said else "/"


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) else otherwise
