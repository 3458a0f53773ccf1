"""Prometheus's text format, as far as series of cells need it."""

from __future__ import annotations

from functools import lru_cache

from service.model import Outcome


def family(name: str, kind: str, meaning: str, series: list[str]) -> str:
    """A family; of each series, what stands after the metric's name."""
    text = f"\n{name}".join([f"# HELP {name} {meaning}\n# TYPE {name} {kind}", *series])
    text += "\n"  # of megabytes, and not copied for a line end
    return text


@lru_cache(maxsize=65536)
def cell_texts(route: str, provider: str, contract: str, location: str) -> tuple[str, str, tuple[str, str]]:
    """What the series of a cell have in common: the labels, open for more; the labels before a value; with a 0 and
    with a 1."""
    labels = "{" + labelled(route=route, provider=provider, contract=contract, location=location)
    return labels, labels + "} ", (labels + "} 0", labels + "} 1")


@lru_cache(maxsize=65536)
def whose_labels(route: str, provider: str) -> str:
    return labelled(route=route, provider=provider)


@lru_cache(maxsize=65536)
def route_labels(route: str, provider: str, model: str, dialect: str, tags: tuple[str, ...], url: str) -> str:
    listed = f",{','.join(tags)}," if tags else ""
    return labelled(route=route, provider=provider, model=model, dialect=dialect, tags=listed, url=url)


@lru_cache(maxsize=4096)
def verdict_labels(status: str, outcome: Outcome, reason: str | None) -> str:
    return labelled(status=status, outcome=outcome.value, reason=reason or "")


def labelled(**values: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
