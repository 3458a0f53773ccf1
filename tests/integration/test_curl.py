"""The curl line of a route's page, run by a shell, sends what the prober sends."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.contracts import CONTRACTS
from service.demo.listener import Listener
from service.model import Auth, Credentials, Route, Secret, SecretRef
from service.transport import Transport
from service.web.views.configuration import lines
from service.web.views.curl import NONCE, curl

pytestmark = pytest.mark.skipif(not shutil.which("curl") or not shutil.which("bash"), reason="no curl or no bash here")

SECRETS = {"KEY": "sk-of-the-route 'quoted' \"twice\" $HOME `id`", "TEAM": "team-secret"}
Request = tuple[str, dict[str, str], bytes]


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[str, list[Request]]]:
    """A server that keeps what it is sent."""
    seen: list[Request] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *headers = head.strip().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
        seen.append((line, fields, await reader.readexactly(int(fields["content-length"]))))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    listener = Listener(answer, "127.0.0.1")
    yield f"127.0.0.1:{listener.port}", seen
    await listener.close()


async def sent_by_curl(line: str, environ: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", line, env={"PATH": "/usr/bin:/bin", **environ}, stderr=asyncio.subprocess.PIPE
    )
    _, complaints = await process.communicate()
    assert (process.returncode, complaints) == (0, b"")


async def both(route: Route, seen: list[Request], credentials: Credentials, environ: Mapping[str, str]) -> list[Any]:
    """What the prober and curl sent, but for the connection."""
    ask = CONTRACTS["native_tools"].next_ask(route, NONCE, ())
    assert ask is not None
    async with Transport() as transport:
        await transport.send(route, ask, credentials)
    await sent_by_curl(curl(route), environ)
    return [(line, {k: v for k, v in fields.items() if k != "connection"}, body) for line, fields, body in seen]


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        ("openai-chat", {}),
        ("openai-chat", {"auth": Auth.API_KEY, "base_url": "http://{host}/v1?api-version=2024-10-01"}),
        ("openai-chat", {"key": None}),
        (
            "openai-chat",
            {
                "headers": {"X-Title": 'it\'s "quoted" $HOME `id` \\', "X-Empty": ""},
                "secret_headers": {"X-Team": SecretRef(env="TEAM")},
                "body": {"note": 'it\'s $HOME `id` \\ "…" \n @file', "provider": {"order": ["x"]}},
                "model": "a/b'c",
                "temperature": 0.0,
            },
        ),
        ("openai-responses", {"parallel_tool_calls": False}),
        ("anthropic-messages", {"base_url": "http://{host}"}),
        ("gemini", {"base_url": "http://{host}/v1beta"}),
    ],
)
async def test_the_line_sends_what_the_prober_sends(dialect: str, changes: dict[str, Any]) -> None:
    async with recording() as (host, seen):
        base_url = changes.get("base_url", "http://{host}/v1").format(host=host)
        known = {"key": SecretRef(env="KEY"), "model": "model-1", **changes, "base_url": base_url}
        route = Route(id="r", name="r", provider="p", dialect=dialect, **known)
        credentials = Credentials(
            key=Secret(SECRETS["KEY"]) if route.key else None,
            headers={name: Secret(SECRETS[ref.env or ""]) for name, ref in route.secret_headers.items()},
        )
        by_prober, by_curl = await both(route, seen, credentials, SECRETS)
    assert by_curl == by_prober
    assert not [secret for secret in SECRETS.values() if secret in curl(route)]


async def test_a_key_is_read_from_its_file_and_a_secret_of_the_url_from_a_variable(tmp_path: Path) -> None:
    key = tmp_path / "the key's file"
    key.write_text("sk-from-a-file\n")
    async with recording() as (host, seen):
        route = Route(
            id="r",
            name="r",
            provider="p",
            dialect="openai-chat",
            base_url=f"http://{host}/v1?key=hidden-in-the-url&api-version=1",
            model="model-1",
            key=SecretRef(file=str(key)),
            auth=Auth.X_API_KEY,
        )
        credentials = Credentials(key=Secret("sk-from-a-file"))
        by_prober, by_curl = await both(route, seen, credentials, {"URL_SECRET": "hidden-in-the-url"})
    assert by_curl == by_prober
    assert "hidden-in-the-url" not in curl(route)


async def test_a_user_in_the_url_is_left_to_a_variable() -> None:
    async with recording() as (host, seen):
        route = Route("r", "r", "p", "openai-chat", f"http://me:my-password@{host}/v1", "model-1")
        by_prober, by_curl = await both(route, seen, Credentials(), {"URL_USER": "me:my-password"})
    assert by_prober[1]["authorization"].startswith("Basic ")
    assert by_curl == by_prober
    assert "my-password" not in curl(route)


def test_the_key_stands_as_the_variable_that_the_configuration_names() -> None:
    route = Route("r", "r", "p", "openai-chat", "https://api.example/v1", "m", key=SecretRef(env="OPENAI_API_KEY"))
    assert '-H "Authorization: Bearer $OPENAI_API_KEY"' in curl(route)
    odd = Route("r", "r", "p", "openai-chat", "https://api.example/v1", "m", key=SecretRef(env="MY-KEY"))
    assert '-H "Authorization: Bearer $(printenv MY-KEY)"' in curl(odd)


def test_there_is_no_line_for_a_route_of_another_location_nor_for_one_that_may_hold_a_secret() -> None:
    assert lines("it's", None).curl is None
    assert lines("it's", None).check == """routeproof check -c routeproof.yaml --route 'it'"'"'s' --explain"""
    leaky = Route(
        "r",
        "r",
        "p",
        "openai-chat",
        "https://api.example/v1",
        "m",
        body={"metadata": {"api_key": "sk-abcdefghijklmnop0123456789"}},
    )
    shown = lines("r", leaky)
    assert shown.curl is None
    assert shown.withheld is not None
