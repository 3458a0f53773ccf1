"""The other side of a probe in tests: the corpus, and a provider that plays it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from service.demo.provider import Provider
from service.demo.scenario import Scenario

CORPUS = Path(__file__).parent / "corpus" / "dev.jsonl"


@cache
def _whole_corpus() -> tuple[Scenario, ...]:
    lines = CORPUS.read_text(encoding="utf-8").split("\n")
    return tuple(Scenario.parse(json.loads(line)) for line in lines if line)


def load_corpus(
    prefixes: Iterable[str] = (), dialect: str | None = None, contract: str | None = None
) -> list[Scenario]:
    """The corpus' scenarios whose id begins with one of the prefixes (none: all) and that fit the rest."""
    starts = tuple(prefixes) or ("",)
    return [
        scenario
        for scenario in _whole_corpus()
        if scenario.id.startswith(starts)
        and dialect in (None, scenario.dialect)
        and contract in (None, scenario.contract)
    ]


@asynccontextmanager
async def playing(scenarios: Iterable[Scenario]) -> AsyncIterator[Provider]:
    """A running provider; fails at its end when a request was left unanswered or strayed to the other origin."""
    async with Provider(scenarios) as provider:
        yield provider
    lost = [f"{one.method} {one.path} {dict(one.body)}" for one in provider.unanswered]
    assert not lost, "no entry of the scenario answers: " + "; ".join(lost)
    assert not provider.strayed, f"a redirect was followed: {provider.strayed[0].path}"
