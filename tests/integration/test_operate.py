"""`gate`, `pause` and `location` on the command line, over a real database."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import Result
from sqlalchemy.ext.asyncio import AsyncEngine
from typer.testing import CliRunner

from service.cli import app
from service.model import Limit, Status
from service.store import Sign
from tests.integration.test_store import HASH, HERE, MINUTE, World, cell, route, verdict

OTHER = "fedcba9876543210"
FILE = """
routes:
  - {name: alpha, base_url: "http://127.0.0.1:1/v1", dialect: openai-chat, model: m}
"""


class Line:
    """The command line against one database."""

    def __init__(self, folder: Path, url: str) -> None:
        self._file = folder / "routeproof.yaml"
        self._file.write_text(FILE)
        self._env: Mapping[str, str] = {"ROUTEPROOF_DATABASE_URL": url}

    async def __call__(self, *args: str, code: int = 0) -> Result:
        """On a thread, because a command runs a loop of its own."""
        command, *rest = args
        runner = CliRunner(env=self._env)
        result = await asyncio.to_thread(runner.invoke, app, [command, *rest, "-c", str(self._file)])
        assert result.exit_code == code, result.output
        return result


@pytest.fixture
def line(tmp_path: Path, database_url: str) -> Line:
    return Line(tmp_path, database_url)


@pytest.fixture
async def world(engine: AsyncEngine) -> World:
    made = World(engine)
    await made.store.ensure_partitions()
    return made


async def test_the_gate_is_told_by_its_exit_code(world: World, line: Line) -> None:
    await world.sync(cell())
    denied = await line("gate", "alpha", code=1)
    assert denied.stdout == "alpha: denied (never)\n  native_tools from here: never\n"
    assert "allowed (never)" in (await line("gate", "alpha", "--allow-unknown")).stdout
    await world.ask()
    allowed = await line("gate", "acme/alpha", "--location", HERE)
    assert (
        "alpha: allowed (proven)\n  native_tools from here: proven, tools_supported\n  holds until " in allowed.stdout
    )
    said = json.loads((await line("gate", "alpha", "--format", "json")).stdout)
    assert (said["allowed"], said["reasons"], said["database_up"]) == (True, ["proven"], True)
    await world.ask(Status.STREAM_EARLY_EOF)
    assert "denied (not_proven)" in (await line("gate", "alpha", "--allow-unknown", code=1)).stdout


async def test_what_is_not_stored_is_no_denial(world: World, line: Line) -> None:
    await world.sync(cell())
    assert "no such route is probed" in (await line("gate", "beta", code=2)).stderr
    nowhere = await line("gate", "alpha", "--location", "mars", code=2)
    assert "isn't probed from there, but from here" in nowhere.stderr


async def test_the_gate_answers_for_the_route_that_is_meant_or_for_none(world: World, line: Line) -> None:
    names = {"alpha": "beta", "beta": "shared", "gamma": "shared"}
    await world.store.sync(HERE, HASH, [route(key, name=name) for key, name in names.items()], list(map(cell, names)))
    claims = {claim.route_id: claim for claim in await world.claim()}
    await world.store.save([(claims["beta"], verdict(claims["beta"]))])
    assert (await line("gate", "beta")).stdout.startswith("beta: allowed")  # its id, and the name of another
    assert (await line("gate", "alpha", code=1)).stdout.startswith("alpha: denied")
    assert "several routes have this name: give an id of beta, gamma" in (await line("gate", "shared", code=2)).stderr


async def test_a_pause_is_started_listed_and_ended(world: World, line: Line) -> None:
    await world.sync(cell())
    start = ("pause", "start", "provider", "acme", "--for", "2h")
    made = (await line(*start, "--stop-probing", "--reason", "moving", "--by", "Ada")).stdout
    assert "provider acme: not probed, alerts muted until " in made
    assert made.endswith(" (Ada, moving)\n")
    assert (await line("pause", "list")).stdout == made
    (pause,) = await world.store.pauses()
    assert (pause.until - pause.since, pause.stops, pause.by) == (120 * MINUTE, True, "Ada")
    assert str(pause.id) in (await line("pause", "end", str(pause.id))).stdout
    assert (await line("pause", "list")).stdout == ""
    ended = json.loads((await line("pause", "list", "--ended", "--format", "json")).stdout)
    assert [one["id"] for one in ended["items"]] == [str(pause.id)]
    assert "no pause with this id goes on" in (await line("pause", "end", str(pause.id), code=2)).stderr


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("route", "beta", "--for", "2h"), "no route of this name is probed"),
        (("tag", "alpha", "--for", "2h"), "no tag of this name is probed"),
        (("route", "alpha", "--for", "2"), "--for: must be a duration with its unit"),
        (("route", "alpha", "--for", "32d"), "duration_s: Input should be less than or equal to 2678400"),
        (("route", "alpha", "--for", "2h", "--reason", "a\nb"), "reason: "),
        (("route", "alpha", "--for", "2h", "--by", "\x1b[2J"), "by: "),
    ],
)
async def test_a_pause_that_cannot_be_is_refused_in_one_line(
    args: tuple[str, ...], why: str, world: World, line: Line
) -> None:
    await world.sync(cell())
    refused = (await line("pause", "start", *args, code=2)).stderr
    assert why in refused
    assert len(refused.splitlines()) == 1
    assert await world.store.pauses() == []


async def test_a_location_is_given_up_once_its_probers_are_stopped(world: World, line: Line) -> None:
    here = Sign(uuid4(), HERE, True, HASH, "1.0")
    await world.sync(cell())
    await world.store.sync("there", OTHER, [route()], [cell(location="there")], [Limit("provider", "acme", 1, 60)])
    await world.ask()
    await world.store.tell(here)
    assert re.fullmatch(
        "here: 1 cell, 1 prober at work, last verdict 20.* UTC\nthere: 1 cell, no prober at work, last verdict never\n",
        (await line("location", "list")).stdout,
    )
    assert "stop it first" in (await line("location", "remove", HERE, code=2)).stderr
    assert "from elsewhere, but from here, there" in (await line("location", "remove", "elsewhere", code=2)).stderr
    assert "Given up" in (await line("location", "remove", "there")).stdout
    assert [row.cell.location for row in (await world.store.snapshot()).cells] == [HERE]
    assert await world.value("SELECT count(*) FROM limits") == 0
    await world.store.leave(here.id)
    await line("location", "remove", HERE)
    assert (await line("location", "list")).stdout == ""
    assert len(await world.store.verdicts("alpha")) == 1  # history stays


async def test_a_prober_that_comes_back_to_a_location_that_was_given_up_asks_nothing_until_it_is_started_again(
    world: World, line: Line
) -> None:
    back = Sign(uuid4(), HERE, True, HASH, "1.0")
    await world.sync(cell())
    await line("location", "remove", HERE)
    await world.all_due()
    assert await world.store.tell(back) not in (HASH, None)  # what tells it that it is outdated
    assert await world.store.claim(HERE, HASH, 9, back.id) == []
    await world.sync(cell())
    await world.all_due()
    assert len(await world.store.claim(HERE, HASH, 9)) == 1
