"""`rejudge`: stored verdicts, read page by page from a real PostgreSQL and judged by the rules of this version."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import Result
from sqlalchemy import insert, make_url, select
from sqlalchemy import text as text_of
from sqlalchemy.ext.asyncio import AsyncEngine
from typer.testing import CliRunner

from service.cli import app
from service.contracts import CONTRACTS
from service.facts import record
from service.model import Cell, Exchange, RouteRow, Status, Verdict
from service.rules import RULESET, Circumstances
from service.store import Store
from service.store.rows import verdict_values
from service.store.tables import cells, verdicts
from tests.acceptance.processes import open_folder, run, write
from tests.exchanges import R4, ROUTE, call, climb, text

HERE = "here"
MINUTE = timedelta(minutes=1)
NOW = datetime.now(UTC).replace(microsecond=0)
_numbers = itertools.count(1)


@pytest.fixture
def config() -> Iterator[Path]:
    route = {"provider": "p", "dialect": "openai-chat", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    routes = [{"name": f"Route {id}", "id": id, **route} for id in ("alpha", "beta")]
    with open_folder() as folder:
        yield write(folder / "routes.yaml", service={"location": HERE}, routes=routes)


def verdict(answers: Any, ago: timedelta, route_id: str = "alpha", **changes: Any) -> Verdict:
    """What a probe of `native_tools` concludes from these answers, by rung."""
    contract = CONTRACTS["native_tools"]
    exchanges: Sequence[Exchange] = climb(contract, answers)
    circumstances = Circumstances()
    conclusion, quirks = contract.conclude(ROUTE, exchanges, circumstances)
    made = Verdict(
        id=UUID(int=next(_numbers)),
        route_id=route_id,
        contract="native_tools",
        location=HERE,
        status=conclusion.status,
        rule_id=conclusion.rule_id,
        reason=conclusion.reason,
        quirks=tuple(sorted(quirks)),
        served_model=None,
        detail="",
        requests=len(exchanges),
        retry_after_s=None,
        started_at=NOW - ago,
        observed_at=NOW - ago,
        duration_s=1.0,
        time_to_first_token_s=None,
        tokens_in=None,
        tokens_out=None,
        rungs=(),
        facts=record(ROUTE, exchanges, circumstances, lambda text, limit: text[:limit]),
        fingerprint="f1",
        ruleset=RULESET,
    )
    return replace(made, **changes)


async def keep(engine: AsyncEngine, *made: Verdict) -> None:
    """Write down verdicts as a prober would have, of two routes with two contracts each."""
    store = Store(engine)
    await store.ensure_partitions(days_back=12)
    ids = ("alpha", "beta")
    rows = [RouteRow(id, id, "p", "openai-chat", "m", "http://127.0.0.1:1/v1", ()) for id in ids]
    span = dict.fromkeys(("interval", "fresh_for", "expires_after", "deadline"), MINUTE)
    wanted = [Cell(id, name, HERE, True, "f1", **span) for id in ids for name in ("native_tools", "agent_turn")]
    await store.sync(HERE, "c1", rows, wanted)
    async with engine.begin() as connection:
        found = await connection.execute(select(cells.c.id, cells.c.route_id, cells.c.contract))
        of = {(row.route_id, row.contract): row.id for row in found}
        await connection.execute(
            insert(verdicts), [verdict_values(one, of[one.route_id, one.contract]) for one in made]
        )


async def invoke(*args: str | Path, env: Mapping[str, str]) -> Result:
    """The command in this process: on a thread, because it runs a loop of its own."""
    return await asyncio.to_thread(CliRunner(env=env).invoke, app, ["rejudge", *map(str, args)])


async def test_verdicts_are_read_oldest_first_each_once_however_small_the_pages(engine: AsyncEngine) -> None:
    at_once = [verdict({"forced": call()}, 2 * MINUTE) for _ in range(4)]
    spread = [verdict({"forced": call()}, hours * timedelta(hours=20)) for hours in range(1, 6)]
    await keep(engine, *at_once, *spread)
    store = Store(engine)
    wanted = [one.id for one in sorted([*at_once, *spread], key=lambda one: (one.observed_at, one.id))]
    for size in (1, 2, 3, 9, 500):
        pages = [page async for page in store.recorded(page=size)]
        assert [one.id for page in pages for one in page] == wanted
        assert max(map(len, pages)) <= size


async def test_a_reading_ends_where_the_history_ended_when_it_began(engine: AsyncEngine) -> None:
    first, later = verdict({"forced": call()}, MINUTE), verdict({"forced": call()}, timedelta(hours=-20))
    await keep(engine, first, later)
    assert [one.id async for page in Store(engine).recorded(page=1) for one in page] == [first.id]


async def test_a_part_of_the_history_can_be_read(engine: AsyncEngine) -> None:
    new, old = verdict({"forced": call()}, MINUTE), verdict({"forced": call()}, timedelta(days=8))
    other = verdict({"forced": call()}, MINUTE, route_id="beta")
    turn = verdict({"forced": call()}, MINUTE, contract="agent_turn")
    await keep(engine, new, old, other, turn)
    store = Store(engine)
    await store.sync(HERE, "c2", [], [])  # all cells at rest: what they said is history still

    async def read(**part: Any) -> set[UUID]:
        return {one.id async for page in store.recorded(**part) for one in page}

    assert await read() == {new.id, old.id, other.id, turn.id}
    assert await read(since=timedelta(days=7)) == {new.id, other.id, turn.id}
    assert await read(route_id="alpha") == {new.id, old.id, turn.id}
    assert await read(contract="agent_turn") == {turn.id}
    assert await read(since=timedelta(days=7), route_id="beta", contract="native_tools") == {other.id}
    assert await read(route_id="gamma") == set()


async def test_what_would_read_differently_is_listed_and_nothing_is_written(
    engine: AsyncEngine, database_url: str, config: Path
) -> None:
    as_before = [verdict({"forced": call()}, MINUTE * n) for n in (1, 2, 3)]
    refused = verdict({"forced": R4, "auto": R4, "control": text()}, MINUTE, route_id="beta")
    changed = [verdict({"forced": call()}, n * MINUTE, status=Status.TURN_COMPLETED) for n in (30, 20, 10)]
    without = verdict({"forced": call()}, MINUTE, facts={"exchanges": []})
    await keep(engine, *as_before, refused, *changed, without)
    read_only = make_url(database_url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    env = {"ROUTEPROOF_DATABASE_URL": read_only.render_as_string(hide_password=False)}

    code, out, err = await run("rejudge", "-c", config, "--format", "json", env=env)
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "ruleset": RULESET,
        "read": 8,
        "same": 4,
        "changed": 3,
        "changes": [
            {
                "contract": "native_tools",
                "count": 3,
                "from": {"status": "turn_completed", "rule_id": "native_tools.forced_call", "reason": None},
                "to": {"status": "tools_supported", "rule_id": "native_tools.forced_call", "reason": None},
                "quirks_gained": [],
                "quirks_lost": [],
                "first_at": changed[0].observed_at.isoformat(),
                "last_at": changed[2].observed_at.isoformat(),
                "examples": [str(one.id) for one in changed],
            }
        ],
        "not_judged": {"too_old": 1},
    }

    result = await invoke("-c", config, "--route", "Route beta", "--since", "1h", "--format", "json", env=env)
    shown = json.loads(result.stdout)
    assert (result.exit_code, result.stderr, shown["read"], shown["same"]) == (0, "", 1, 1)

    async with engine.begin() as connection:
        await connection.execute(text_of("DROP TABLE verdicts"))
    result = await invoke("-c", config, env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "can't be read (UndefinedTable). `routeproof db upgrade` makes tables" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--route", "gamma"], "--route: no route is called 'gamma'; there are alpha, beta\n"),
        (["--contract", "turn"], "--contract: 'turn' isn't one of native_tools, "),
        (["--since", "7"], "--since: must be a duration with its unit, such as 500ms, 60s, 5m, 1h30m or 2d\n"),
    ],
)
def test_names_and_times_that_make_no_sense_are_refused(config: Path, args: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["rejudge", "-c", str(config), *args])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
