"""Redaction proved: secrets echoed by a provider in every way we could think of are found in nothing that the service
writes, serves or prints, while the words around them stay."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from service.demo.provider import Provider
from service.demo.scenario import Scenario
from tests.acceptance.processes import faulty, free_port, get, open_folder, routeproof, run, until, write
from tests.peer import playing

SECRETS = {
    "key": "pk/Zq7+Tr4=vB1xN7mQ2",
    "header": 'hW"d9\\kL3&pX8v<R5tY',
    "user": "agent-7Gh2KqMz",
    "password": "pW!4zNc8@Jd/6s",
    "query": "q7Vb+9xTm 4Lw=Rk",
    "database": "dB3%yU9wQe6tPo",
}
ECHOED = [value for name, value in SECRETS.items() if name != "database"]

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "URL-encoded": lambda secret: quote(secret, safe=""),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 of a header": lambda secret: base64.b64encode(f"Bearer {secret}".encode()).decode(),
    "JSON-escaped": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "JSON-escaped throughout": lambda secret: "".join(f"\\u{ord(char):04x}" for char in secret),
    "HTML-escaped": html.escape,
    "in capitals": str.upper,
}


def traces(text: str) -> set[tuple[str, str]]:
    """Which secrets are in a text, and in which form; half of one is one. Shares nothing with the redaction."""
    views = [text]
    for _ in range(2):
        views += [decode(view) for view in views for decode in (_without_escapes, unquote, html.unescape)]
    seen = "\n".join(view.replace("\\", "").lower() for view in dict.fromkeys(views))
    found = set()
    for name, secret in SECRETS.items():
        plain = secret.replace("\\", "")
        if plain[:9].lower() in seen or plain[-9:].lower() in seen:
            found.add((name, "plain"))
        for shift in range(3):
            code = base64.b64encode(b"-" * shift + secret.encode()).decode()[4:-4]
            if code.lower() in seen:
                found.add((name, "base64"))
    return found


def _without_escapes(text: str) -> str:
    return re.sub(r"\\+u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SECRETS)
def test_a_leak_would_be_seen(name: str, form: str) -> None:
    text = f"before {FORMS[form](SECRETS[name])} after"
    for shown in (text, json.dumps(text), html.escape(text)):
        assert name in {found for found, _ in traces(shown)}


def echo(form: str = "plain") -> str:
    return "demo-model was asked with " + " and ".join(map(FORMS[form], ECHOED)) + " today"


# --- a provider that echoes ------------------------------------------------------------------------------

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream"}


def played(id: str, status: int, headers: Mapping[str, str], framing: str, body: Any) -> Scenario:
    reply = {"status": status, "headers": dict(headers), "framing": framing, "body": body}
    return Scenario.parse({"id": id, "dialect": "openai-chat", "replies": [{"when": "any", "reply": reply}]})


def refused(id: str, error: Any, status: int = 400, headers: Mapping[str, str] = JSON) -> Scenario:
    return played(id, status, headers, "json", {"error": error})


def streamed(id: str, *chunks: Any, headers: Mapping[str, str] = STREAM) -> Scenario:
    return played(id, 200, headers, "events", [f"data: {json.dumps(chunk)}" for chunk in chunks])


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **others: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "demo-model",
        "choices": [{"index": 0, "delta": dict(delta or {}), "finish_reason": finish}],
        **others,
    }


def call(name: str, arguments: str, id: str = "call_1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}]}


def in_pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def scenarios() -> list[Scenario]:
    key = SECRETS["key"]
    everything = " ".join(ECHOED)
    raw_event = f"data: {json.dumps({'error': {'message': echo(), 'code': key}})}\n\n"
    across = [("ordinary words " * 30)[: 300 - length] + key for length in (1, 6, 10, 15, 19)]
    return [
        *(refused(f"body-{number}", {"message": echo(form)}) for number, form in enumerate(FORMS)),
        *(refused(f"across-{number}", {"message": text}) for number, text in enumerate(across)),
        refused("code", {"message": "ordinary", "code": key, "type": SECRETS["header"], "param": SECRETS["query"]}),
        refused("fields", {key: everything, "metadata": {"raw": json.dumps({"error": echo("JSON-escaped")})}}, 422),
        refused("credential", {"message": f"Incorrect API key provided: {key}."}, 401),
        refused(
            "headers",
            {"message": "ordinary"},
            429,
            {
                "content-type": f"application/json; charset={key}",
                "retry-after": f"{everything}",
                "x-request-id": key,
                "x-ratelimit-reset-requests": f"6m{key}",
                "x-cache": f"{key} HIT",
                "set-cookie": f"session={FORMS['URL-encoded'](key)}",
                "www-authenticate": f'Bearer realm="{key}"',
            },
        ),
        played("redirect", 302, {"location": f"{{{{OTHER_ORIGIN}}}}/?key={quote(key, safe='')}"}, "text", everything),
        played("page", 500, {"content-type": "text/html"}, "text", f"<html><body>{html.escape(echo())}</body></html>"),
        played("words", 500, {"content-type": "text/plain"}, "text", echo()),
        played("encoding", 200, {**STREAM, "content-encoding": key}, "text", echo()),
        streamed("error-event", {"error": {"message": echo(), "type": key, "code": SECRETS["header"]}}),
        streamed("late-error-event", chunk({"content": "Hm"}), {"error": {"message": echo(), "code": key}}),
        played("segments", 200, STREAM, "segments", in_pieces(raw_event)),
        played("event-name", 200, STREAM, "text", f"event: {key}\nid: {key}\n: {key}\ndata: {{}}\n\n"),
        played("no-stream", 200, JSON, "json", {"message": everything, key: [key], "model": key}),
        streamed("model", chunk(model=key, system_fingerprint=everything), chunk({}, "stop", model=key)),
        streamed(
            "model-in-part", chunk(call("{{TOOL}}", '{"value": "ok"}'), "tool_calls", model=f"other-model-x1 {key}")
        ),
        streamed("finish", chunk({"content": "Hm"}), chunk({}, key)),
        streamed("tool", chunk(call(key, json.dumps({"value": everything}), id=key)), chunk({}, "tool_calls")),
        streamed("text", *(chunk({"content": piece}) for piece in in_pieces(echo())), chunk({}, "stop")),
        streamed("leak", chunk({"content": f'<tool_call>{{"name": "{key}"}}</tool_call>'}), chunk({}, "stop")),
        streamed("numbers", chunk({}, "stop", usage={"prompt_tokens": key, "completion_tokens": [key], key: 1})),
        refused("broken", "never asked"),
    ]


def configure(folder: Path, provider: Provider, ids: list[str], port: int) -> Path:
    def url(id: str) -> str:
        user, password = quote(SECRETS["user"], safe=""), quote(SECRETS["password"], safe="")
        base = provider.url(id).replace("http://", f"http://{user}:{password}@")
        return f"{base}?api_key={quote(SECRETS['query'], safe='')}"

    routes = [
        {
            "name": id,
            "provider": "p",
            "dialect": "openai-chat",
            "base_url": url(id),
            "model": "demo-model",
            "api_key_env": "PLANTED_KEY",
            "auth": "api-key",
            "secret_headers": {"X-Planted": {"env": "PLANTED_HEADER"}},
        }
        for id in ids
    ]
    defaults = {"interval": "5s", "deadline": "10s", "contracts": ["native_tools"]}
    return write(folder / "routes.yaml", service={"listen": f"127.0.0.1:{port}"}, defaults=defaults, routes=routes)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def environment(folder: Path) -> dict[str, str]:
    fault = faulty(folder, "broken", 'f"Illegal header value {headers!r} on the way to {url}"')
    return {**fault, "PLANTED_KEY": SECRETS["key"], "PLANTED_HEADER": SECRETS["header"]}


def dump(database_url: str) -> str:
    """Every column of every row of every table, partitions included, as text."""
    plain = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        tables = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        assert len(tables) > 10
        rows = [
            f"{schema}.{table} {row}"
            for schema, table in tables
            for (row,) in connection.execute(
                sql.SQL("SELECT to_jsonb(one)::text FROM {} AS one").format(sql.Identifier(schema, table))
            )
        ]
    return "\n".join(rows)


def verdicts(database_url: str) -> dict[str, str]:
    """Each route with what was concluded of it."""
    plain = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        return dict(connection.execute("SELECT DISTINCT route_id, status FROM verdicts").fetchall())


async def test_serve_writes_logs_and_serves_no_secret(folder: Path, database_url: str) -> None:
    port, echoing = free_port(), scenarios()
    ids = [scenario.id for scenario in echoing]
    url = make_url(database_url)
    if url.password is None:  # the server asks for none, so that any will do
        url = url.set(password=SECRETS["database"])
    env = {
        **environment(folder),
        "ROUTEPROOF_DATABASE_URL": url.render_as_string(hide_password=False),
        "ROUTEPROOF_LOG_LEVEL": "debug",
    }
    async with playing(echoing) as provider:
        config = configure(folder, provider, ids, port)
        with routeproof("serve", "-c", config, env=env) as process:
            await process.ready(port)
            await until(lambda: verdicts(database_url).keys() == {*ids} - {"broken"}, every=0.5)
            await until(lambda: '"probe_failed"' in process.err)
            paths = ["/", "/metrics", "/livez", "/readyz", *(f"/routes/{id}" for id in ids)]
            pages = {path: (await get(port, path)).text for path in paths}
            assert await process.stop() == 0
            log = process.err
            assert process.out == ""
        assert provider.count("broken") == 0
    stored = dump(database_url)

    assert traces(stored) == set()
    assert traces(log) == set()
    assert {path: found for path, page in pages.items() if (found := traces(page))} == {}

    for text in (stored, pages["/routes/body-0"]):
        assert "demo-model was asked with" in text
        assert " today" in text
    assert "ordinary words ordinary words" in pages["/routes/across-2"]
    assert "other-model-x1" in pages["/routes/model-in-part"]
    assert '"status": 422' in stored
    assert "DEBUG" in log
    assert "ValueError: Illegal header value" in log
    assert "on the way to http://" in log
    concluded = verdicts(database_url)
    assert concluded["credential"] == "endpoint_auth_failed"
    assert concluded["headers"] == "rate_limited"
    assert concluded["redirect"] == "endpoint_not_found"


@pytest.mark.parametrize("options", [["--format", "json", "--explain"], ["--explain"]], ids=" ".join)
async def test_check_prints_no_secret(folder: Path, options: list[str]) -> None:
    echoing = scenarios()
    async with playing(echoing) as provider:
        config = configure(folder, provider, [scenario.id for scenario in echoing], free_port())
        code, out, err = await run("check", "-c", config, *options, env=environment(folder))
    assert code == 1
    assert traces(out) == set()
    assert traces(err) == set()
    assert "demo-model was asked with" in " ".join(out.split())
    assert "broken: native_tools could not be probed" in err
    assert "ValueError: Illegal header value" in err
    if "json" in options:
        told = {one["route"]: one for one in json.loads(out)}
        assert told["model-in-part"]["served_model"].startswith("other-model-x1")
        assert [rung["status"] for rung in told["fields"]["ladder"]] == [422, 422, 422]
