"""The API against its own OpenAPI document: calls made up from it, right and wrong ones, over a real database.

No answer may be a fault of ours or be one that the document doesn't know; what the document allows is taken, and what
it doesn't is refused. `python scripts/fuzz_api.py --examples 2000` prints what was answered how often.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from service.bootstrap import set_up_logs
from service.database import open_database
from service.metrics import ProcessMetrics
from service.model import Status
from service.store import Board, Store
from service.store.errors import DATABASE_ERRORS
from service.web.app import create_app
from tests import postgres
from tests.integration.test_store import World, cell, verdict
from tests.web import OPERATE, TOKENS

BASE = "http://127.0.0.1"
ROUTES = ("alpha", "beta.2", "gamma")
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


class Fuzzed:
    """The application over a database with some history. `answers` counts statuses by call."""

    def __init__(self, url: str) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self._url = url
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def __enter__(self) -> Fuzzed:
        self._runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _open(self) -> None:
        database = await self._stack.enter_async_context(open_database(self._url, Path()))
        world = World(database.engine)
        await world.store.ensure_partitions()
        cells = [cell(name, contract=name_) for name in ROUTES for name_ in ("native_tools", "agent_turn")]
        await world.sync(*cells)
        for status in (Status.TOOLS_SUPPORTED, Status.STREAM_EARLY_EOF, Status.STREAM_EARLY_EOF, Status.RATE_LIMITED):
            claims = await world.claim()
            await world.store.save([(claim, verdict(claim, status)) for claim in claims])
        await self._differ(world)
        self._store = Store(database.engine)
        board = Board(self._store)
        self._stack.push_async_callback(board.close)
        app = create_app(
            board,
            self._store,
            ProcessMetrics("here", "0"),
            access=lambda: TOKENS,
            because={},
            faults=list,
            unavailable=DATABASE_ERRORS,
        )
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._client = await self._stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url=BASE))

    async def _differ(self, world: World) -> None:
        """The first route may be asked now, the second was asked a moment ago, the third is being asked."""
        of_first = "(SELECT id FROM cells WHERE route_id = :route)"
        await world.sql(
            f"UPDATE latest SET last_observed_at = last_observed_at - interval '1 hour' WHERE cell_id IN {of_first}",
            route=ROUTES[0],
        )
        claims = await world.claim()
        await world.store.release([claim for claim in claims if claim.route_id != ROUTES[2]])

    def document(self) -> Any:
        return self._runner.run(self._send(method="GET", url="/openapi.json")).json()

    def known_id(self, path: str, number: int) -> str:
        """An id that the call finds something under."""
        if "/pauses/" not in path:
            return ROUTES[number % len(ROUTES)]
        pauses = self._runner.run(self._store.pauses())
        return str(pauses[number % len(pauses)].id if pauses else UUID(int=0))

    def answer(self, case: Case) -> httpx.Response:
        asked = case.as_transport_kwargs(base_url=BASE)
        asked = {name: asked[name] for name in ("method", "url", "params", "json", "data") if name in asked}
        asked["params"] = _flat(asked.get("params") or {})
        if "data" in asked:
            asked["content"] = asked.pop("data")
        kind = {"content-type": case.media_type} if case.media_type else {}
        response = self._runner.run(self._send(headers=kind, **asked))
        self.answers[case.operation.label, response.status_code] += 1
        return response

    async def _send(self, headers: dict[str, str] | None = None, **asked: Any) -> httpx.Response:
        token = {"authorization": f"Bearer {OPERATE}"}
        return await self._client.request(headers={**token, **(headers or {})}, **asked)


def run(url: str, examples: int, seed: int) -> Counter[tuple[str, int]]:
    """Make up that many right and as many wrong calls of each kind; statuses by call. Raises at the first broken
    promise, with the call that broke it."""
    with Fuzzed(url) as fuzzed:
        schema = schemathesis.openapi.from_dict(fuzzed.document())
        for result in schema.get_all_operations():
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _fuzz(fuzzed, result.ok(), mode, examples, seed)
    return fuzzed.answers


def _fuzz(fuzzed: Fuzzed, operation: Any, mode: GenerationMode, examples: int, seed: int) -> None:
    @seeded(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), number=st.integers(0, 5))
    def one(case: Case, number: int) -> None:
        if number and mode is GenerationMode.POSITIVE:
            if "id" in case.path_parameters:
                case.path_parameters["id"] = fuzzed.known_id(operation.path, number)
            if isinstance(case.body, dict) and "target" in case.body:
                case.body |= {"scope": "route", "target": ROUTES[number % len(ROUTES)]}
        response = fuzzed.answer(case)
        # Only the service makes cursors: one that fits the document is wrong all the same.
        made_up = "cursor" in (case.query or {})
        case.validate_response(response, checks=[*CHECKS, *([] if made_up else [checks.positive_data_acceptance])])

    one()


def _flat(params: dict[str, Any]) -> list[tuple[str, str]]:
    """As a URL has them: lists repeated, all else as text."""
    pairs = [(name, part) for name, value in params.items() for part in (value if isinstance(value, list) else [value])]
    return [(name, part if isinstance(part, str) else json.dumps(part)) for name, part in pairs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=500, help="of each call, right and wrong each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    set_up_logs(level=logging.WARNING)
    with postgres.template_on_server(os.environ) as template, postgres.clone(template) as url:
        answers = run(url, options.examples, options.seed)
    for (call, status), count in sorted(answers.items()):
        print(f"{count:6} {status} {call}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
