"""`check`: exit codes, what stands on stdout and what on stderr, choosing, explaining, and Ctrl-C."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.demo.provider import Provider
from service.demo.scenario import End
from tests.acceptance.processes import faulty, open_folder, routeproof, run, until, write
from tests.peer import load_corpus, playing

KEYS = [
    "route",
    "provider",
    "dialect",
    "model",
    "served_model",
    "contract",
    "location",
    "status",
    "outcome",
    "reason",
    "quirks",
    "rule_id",
    "requests",
    "retry_after_s",
    "detail",
    "remedy",
    "started_at",
    "duration_s",
    "time_to_first_token_s",
    "tokens",
]
WELL = replace(load_corpus(("baseline-chat-native-tools",))[0], id="well")
BUSY = replace(load_corpus(("x-429-retry-after-seconds",))[0], id="busy")
SLOW = replace(
    WELL, id="slow", replies=tuple(replace(e, reply=replace(e.reply, body=[], end=End.HANG)) for e in WELL.replies)
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def configure(folder: Path, provider: Provider, *ids: str) -> Path:
    """A file in which every route has a name that isn't its id."""
    routes = [
        {
            "name": f"Route {id}",
            "id": id,
            "provider": "p",
            "dialect": "openai-chat",
            "base_url": provider.url(id),
            "model": "demo-model",
            "deadline": "60s",
            "contracts": ["native_tools"],
        }
        for id in ids
    ]
    return write(folder / "routes.yaml", service={"location": "here"}, routes=routes)


def parsed(out: str) -> list[dict[str, Any]]:
    assert out.startswith("[")
    assert out.endswith("]\n")
    found = json.loads(out)
    assert isinstance(found, list)
    return found


# --- what is printed, and the exit code -------------------------------------------------------------------


async def test_all_proven_is_exit_0_and_json_is_the_array_and_nothing_else(folder: Path) -> None:
    async with playing([WELL]) as provider:
        config = configure(folder, provider, "well")
        code, out, err = await run("check", "-c", config, "--format", "json")
    assert (code, err) == (0, "")
    [told] = parsed(out)
    assert list(told) == KEYS
    assert {key: told[key] for key in KEYS[:14]} == {
        "route": "well",
        "provider": "p",
        "dialect": "openai-chat",
        "model": "demo-model",
        "served_model": "demo-model",
        "contract": "native_tools",
        "location": "here",
        "status": "tools_supported",
        "outcome": "proven",
        "reason": None,
        "quirks": [],
        "rule_id": told["rule_id"],
        "requests": 1,
        "retry_after_s": None,
    }
    assert list(told["tokens"]) == ["input", "output"]
    assert all(isinstance(count, int) for count in told["tokens"].values())
    assert 0 < told["time_to_first_token_s"] < told["duration_s"] < 20
    assert told["started_at"].endswith("+00:00")
    assert isinstance(told["remedy"], str)


async def test_one_that_is_not_proven_is_exit_1_and_the_order_is_the_files(folder: Path) -> None:
    async with playing([WELL, BUSY]) as provider:
        config = configure(folder, provider, "busy", "well")
        code, out, err = await run("check", "-c", config, "--format", "json", "--concurrency", "1")
        assert [request.id for request in provider.requests] == ["busy", "well"]
    assert (code, err) == (1, "")
    busy, well = parsed(out)
    assert (busy["status"], busy["outcome"], busy["retry_after_s"]) == ("rate_limited", "blocked", 20)
    assert busy["detail"] == "Rate limit reached for requests"
    assert well["status"] == "tools_supported"


async def test_text_says_what_is_wrong_and_what_to_do(folder: Path) -> None:
    async with playing([WELL, BUSY]) as provider:
        code, out, err = await run("check", "-c", configure(folder, provider, "busy", "well"))
    assert (code, err) == (1, "")
    words = " ".join(out.split())
    assert "■ Route busy native_tools Rate limited rate_limited" in words
    assert "The provider asks to wait 20 s." in words
    assert "The provider said: Rate limit reached for requests" in words
    assert "✓ Route well native_tools Works tools_supported" in words
    assert out.splitlines()[-1] == "1 of 2 proven"


async def test_warnings_go_to_stderr_and_leave_the_array_alone(folder: Path) -> None:
    async with playing([WELL]) as provider:
        config = configure(folder, provider, "well")
        text = config.read_text().replace("  deadline: 60s", "  deadline: 60s\n  api_key_env: NOT_THERE_KEY")
        config.write_text(text)
        code, out, err = await run("check", "-c", config, "--format", "json")
        assert provider.count("well") == 0
    assert code == 1
    [told] = parsed(out)
    assert (told["status"], told["reason"], told["requests"]) == ("not_sent", "credential_missing", 0)
    assert err == "warning: env:NOT_THERE_KEY is not set: nothing is sent to well\n"


# --- choosing ---------------------------------------------------------------------------------------------


async def test_routes_are_chosen_by_name_or_id_and_contracts_by_name_each_once(folder: Path) -> None:
    async with playing([WELL, BUSY]) as provider:
        config = configure(folder, provider, "busy", "well")
        options = ["--route", "Route well", "--route", "well", "--contract", "native_tools"]
        code, out, _ = await run("check", "-c", config, "--format", "json", *options, "--contract", "native_tools")
        assert provider.count("busy") == 0
    assert code == 0
    assert [(told["route"], told["contract"]) for told in parsed(out)] == [("well", "native_tools")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--route", "wel"], "--route: no route is called 'wel'; there are busy, well"),
        (["--contract", "native_tool"], "--contract: 'native_tool' isn't one of native_tools, agent_turn, "),
        (["--base-url", "http://127.0.0.1:1/v1"], "give either --config FILE or --base-url URL with --model NAME"),
        (["--concurrency", "0"], "Invalid value for '--concurrency'"),
        (["--format", "xml"], "Invalid value for '--format'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_wrong_usage_is_exit_2_and_says_what_there_is(folder: Path, options: list[str], says: str) -> None:
    async with playing([WELL, BUSY]) as provider:
        config = configure(folder, provider, "busy", "well")
        code, out, err = await run("check", "-c", config, *options)
        assert provider.requests == []
    assert (code, out) == (2, "")
    assert says in " ".join(err.replace("│", " ").split())


async def test_a_route_given_by_its_url(folder: Path) -> None:
    async with playing([WELL]) as provider:
        options = ["--base-url", provider.url("well"), "--model", "Some/Model-1", "--api-key-env", "A_KEY"]
        options += ["--contract", "native_tools"]
        env = {"A_KEY": "key-in-the-environment"}
        code, out, err = await run("check", *options, "--format", "json", env=env)
        [request] = provider.requests
    assert request.headers["authorization"] == "Bearer ***"
    assert (code, err) == (0, "")
    [told] = parsed(out)
    assert (told["model"], told["served_model"], told["route"]) == ("Some/Model-1", "Some/Model-1", "some-model-1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give either --config FILE or --base-url URL with --model NAME"),
        (["--base-url", "http://127.0.0.1:1/v1"], "--base-url needs --model NAME"),
        (["--base-url", "127.0.0.1:1/v1", "--model", "m"], "--base-url: must be a URL that begins with http://"),
        (["--base-url", "http://h/v1", "--model", "m", "--dialect", "d"], "--dialect: no such dialect"),
    ],
    ids=["nothing", "no model", "no URL", "no dialect"],
)
async def test_a_route_that_is_not_wholly_given_is_exit_2(options: list[str], says: str) -> None:
    code, out, err = await run("check", *options)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


# --- explaining -------------------------------------------------------------------------------------------


async def test_explain_shows_the_ladder_and_the_rule(folder: Path) -> None:
    refusing = replace(load_corpus(("http-deepseek-thinking-forced-400",))[0], id="well")
    async with playing([refusing]) as provider:
        config = configure(folder, provider, "well")
        code, out, _ = await run("check", "-c", config, "--format", "json", "--explain")
        assert code == 0
        [told] = parsed(out)
        _, text, _ = await run("check", "-c", config, "--explain")
    assert list(told) == [*KEYS, "because", "ladder"]
    assert told["status"] == "forced_tool_choice_rejected"
    assert [(rung["rung"], rung["status"]) for rung in told["ladder"]] == [("forced", 400), ("auto", 200)]
    words = " ".join(text.split())
    assert "1. forced tools, choice forced" in words
    assert "ended: HTTP 400, the body ended" in words
    assert "2. auto tools, choice auto" in words
    assert f"→ {told['rule_id']} {told['because']}" in words


# --- Ctrl-C -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["json", "text"])
async def test_ctrl_c_ends_a_hanging_check_and_prints_what_is_known(folder: Path, format: str) -> None:
    async with playing([WELL, SLOW, BUSY]) as provider:
        config = configure(folder, provider, "well", "slow", "busy")
        with routeproof("check", "-c", config, "--format", format, "--concurrency", "1") as process:
            await until(lambda: provider.count("slow"))
            code = await process.stop(signal.SIGINT)
            out, err = process.out, process.err
        assert provider.count("busy") == 0
    assert (code, err) == (1, "")
    if format == "json":
        found = [(told["route"], told["status"], told["outcome"]) for told in parsed(out)]
        assert found == [("well", "tools_supported", "proven"), ("slow", "cancelled", "unproven")]
    else:
        assert "✓ Route well" in out
        assert "? Route slow" in out
        assert out.splitlines()[-1] == "1 of 3 proven"


async def test_a_fault_of_our_own_takes_no_other_result_away(folder: Path) -> None:
    async with playing([WELL, BUSY]) as provider:
        config = configure(folder, provider, "busy", "well")
        code, out, err = await run("check", "-c", config, "--format", "json", env=faulty(folder, "busy"))
        assert provider.count("busy") == 0
    assert code == 1
    assert [(told["route"], told["status"]) for told in parsed(out)] == [("well", "tools_supported")]
    assert err.startswith("busy: native_tools could not be probed, by a fault of our own:\n")
    assert err.rstrip().endswith("ValueError: this can't be sent")
