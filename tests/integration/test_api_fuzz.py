"""The short form of `scripts/fuzz_api.py`: no fault of ours, and no answer that the OpenAPI document doesn't know."""

from __future__ import annotations

from collections import defaultdict

import pytest
from fastapi.responses import PlainTextResponse, Response
from schemathesis.core.failures import FailureGroup

from scripts import fuzz_api
from service.web.api import endpoints

EXAMPLES = 10


def test_no_call_is_answered_in_a_way_that_is_not_documented(database_url: str) -> None:
    seen: defaultdict[str, set[int]] = defaultdict(set)
    for call, status in fuzz_api.run(database_url, EXAMPLES, seed=1):
        seen[call].add(status)
    assert dict(seen) == {
        "GET /api/v1/routes": {200, 400},
        "GET /api/v1/routes/{id}": {200, 400, 404},
        "POST /api/v1/routes/{id}/probe": {202, 400, 404, 409, 429},
        "GET /api/v1/verdicts": {200, 400},
        "GET /api/v1/transitions": {200, 400},
        "GET /api/v1/gate/{id}": {200, 400, 404},
        "GET /api/v1/pauses": {200, 400},
        "POST /api/v1/pauses": {201, 400, 404},
        "DELETE /api/v1/pauses/{id}": {200, 400, 404},
    }, "too few kinds of answers to mean anything"


@pytest.mark.parametrize(
    "wrong", [PlainTextResponse("", 418), PlainTextResponse("", 200), PlainTextResponse("{}", 200), None]
)
def test_an_answer_that_breaks_a_promise_is_noticed(
    wrong: Response | None, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "unless_known", lambda *_: wrong or 1 / 0)
    with pytest.raises(FailureGroup):
        fuzz_api.run(database_url, 2, seed=1)
