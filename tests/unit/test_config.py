"""The configuration: what is taken, what is refused and in which words, and what follows from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from service import config as door
from service.config import ConfigError, adhoc_route, cells, credentials, fingerprint, load
from service.config.schema import DefaultsSection, HostSection, ProviderSection, RouteSection, ServiceSection
from service.model import (
    Auth,
    Budget,
    Cell,
    ContractUse,
    Credentials,
    Limit,
    Price,
    Route,
    RouteRow,
    Secret,
    SecretRef,
    TokenCap,
)

CASES = Path(__file__).parent / "config_cases"
HOME = {"HOME": "/home/probe"}
FULL = HOME | {"READ_TOKEN": "read-0123456789a", "OPERATE_TOKEN": "operate-01234567"}
ROUTE = "name: one, dialect: openai-chat, base_url: 'https://api.example.com/v1', model: m"


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed names, so that a new contract or dialect doesn't change the messages pinned here."""
    contracts = {
        name: SimpleNamespace(name=name, every=every, required=required, max_requests=max_requests)
        for name, every, required, max_requests in (
            ("native_tools", 1, True, 5),
            ("agent_turn", 12, True, 9),
            ("undeclared_tool_history", 12, False, 8),
        )
    }
    monkeypatch.setattr("service.contracts.CONTRACTS", contracts)
    dialects = {
        "openai-chat": SimpleNamespace(auth=Auth.BEARER),
        "anthropic-messages": SimpleNamespace(auth=Auth.X_API_KEY),
    }
    monkeypatch.setattr("service.dialects.DIALECTS", dialects)


@pytest.fixture(autouse=True)
def an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's data lies elsewhere; the suite may run as root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "routeproof.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def routes_of(tmp_path: Path, *keys: str, environ: Mapping[str, str] = HOME) -> tuple[Route, ...]:
    items = "".join(f"\n  - {{{ROUTE}, {key}}}" for key in keys)
    return load(write(tmp_path, f"routes:{items}"), environ).routes


def mistakes_of(path: Path, environ: Mapping[str, str] = HOME) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return str(caught.value).replace(str(path), "FILE")


# --- mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_mistakes_are_worded_as_pinned(expected: Path) -> None:
    lines = expected.read_text().splitlines()
    assert mistakes_of(expected.with_suffix(".yaml")).splitlines() == [f"FILE:{line}" for line in lines]


def test_every_case_is_pinned() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} - {path.stem for path in CASES.glob("*.txt")} == {"full"}


def test_one_file_reports_all_of_its_mistakes() -> None:
    with pytest.raises(ConfigError) as caught:
        load(CASES / "ten_mistakes.yaml", HOME)
    mistakes = caught.value.mistakes
    assert len(mistakes) >= 10
    assert [mistake.line for mistake in mistakes] == sorted(mistake.line for mistake in mistakes)
    assert mistakes[0].file == str(CASES / "ten_mistakes.yaml")
    assert (mistakes[0].line, mistakes[0].key) == (2, "service.listen")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "FILE:1: is empty"),
        (b"routes:\n  - name: \xff\xfe\n", "FILE:2: isn't UTF-8 text"),
        (b"routes: []\nx: a\x00b\n", "FILE:2: holds a control character"),
        (b"\xef\xbb\xbfroutes: []\n", "FILE:1: routes: must be a list of at least one route"),
        (b"routes: " + b"[" * 5000, "FILE:1: isn't valid YAML: exceeded maximum nesting depth"),
        (b"routes:\n\t- x\n", "FILE:2: isn't valid YAML: found character that cannot start any token"),
    ],
    ids=["empty", "not UTF-8", "control", "BOM", "deep", "tab"],
)
def test_a_file_that_is_no_text_or_no_yaml(tmp_path: Path, content: bytes, message: str) -> None:
    assert mistakes_of(write(tmp_path, content)) == message


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    assert mistakes_of(tmp_path / "none.yaml") == "FILE: can't be read: No such file or directory"
    assert mistakes_of(tmp_path) == "FILE: can't be read: Is a directory"


SECRETS = ("sk-proj-0123456789abcdefABCDEF", "hf_0123456789abcdefghijABCDEFGHIJ", "0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("key", sorted({*RouteSection.model_fields, "api_key", "apikey", "key", "Authorization"}))
def test_a_secret_in_the_wrong_place_of_a_route_is_never_repeated(tmp_path: Path, key: str, secret: str) -> None:
    for value in (secret, f"[{secret}]", f"{{{secret}}}", f"{{a: {secret}}}", f"{{{secret}: {{{secret}: a}}}}"):
        path = write(tmp_path, f"routes:\n  - x: 1\n    {key}: {value}\n")
        assert secret not in mistakes_of(path)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        "{}: x\n",
        "routes: {}\n",
        "routes: [{}]\n",
        "routes: *{}\n",
        "routes: &{0} [*{0}]\n",
        "routes: !{} x\n",
        "routes: [\n{}\n",
        'routes: "\\q{}\n',
        "? [{}]\n: x\n",
        *(f"service: {{{{{key}: {{{{{{0}}: x}}}}}}}}\n" for key in ServiceSection.model_fields),
        *(f"defaults: {{{{{key}: {{}}}}}}\n" for key in DefaultsSection.model_fields),
        *(f"{key}: {{{{{{0}}: {{{{{{0}}: x}}}}, a: {{0}}}}}}\n" for key in ("providers", "hosts")),
        *(f"providers: {{{{a: {{{{{key}: {{}}}}}}}}}}\n" for key in ProviderSection.model_fields),
        *(f"hosts: {{{{a: {{{{{key}: {{}}}}}}}}}}\n" for key in HostSection.model_fields),
    ],
)
def test_a_secret_in_the_wrong_place_of_the_file_is_never_repeated(tmp_path: Path, text: str, secret: str) -> None:
    assert secret not in mistakes_of(write(tmp_path, text.format(secret)))


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_variable_of_ours_is_never_repeated(tmp_path: Path, secret: str) -> None:
    environ = {f"ROUTEPROOF_{key.upper()}": f"!{secret}" for key in ServiceSection.model_fields} | HOME
    text = mistakes_of(write(tmp_path, "routes: []"), environ)
    assert secret not in text
    assert "environment: ROUTEPROOF_LISTEN: must be HOST:PORT" in text


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just("1h"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.just("name"), inner, max_size=3)
    ),
    max_leaves=5,
)
PLACES = [
    *(("service", key) for key in ServiceSection.model_fields),
    *(("defaults", key) for key in DefaultsSection.model_fields),
    *(("route", key) for key in RouteSection.model_fields),
    *(("api.example.com", key) for key in ProviderSection.model_fields),
    ("providers", "api.example.com"),
    ("hosts", "api.example.com"),
]


@settings(max_examples=400, deadline=None)
@given(place=st.sampled_from(PLACES), value=ANYTHING)
def test_whatever_a_key_holds_it_is_taken_or_a_mistake(
    place: tuple[str, str], value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    route: dict[str, object] = yaml.safe_load(f"{{{ROUTE}}}")
    limits: dict[str, object] = {}
    content: dict[str, Any] = {"service": {}, "defaults": {}, "providers": {}, "hosts": {}, "routes": [route]}
    section = {"route": route, "api.example.com": limits}.get(place[0])
    if place[0] == "api.example.com":
        content["providers"] = content["hosts"] = {"api.example.com": limits}
    (content[place[0]] if section is None else section)[place[1]] = value
    path = write(tmp_path_factory.getbasetemp(), json.dumps(content))
    with suppress(ConfigError):
        load(path, HOME)


# --- what is taken ----------------------------------------------------------------------------------------


def test_every_supported_key() -> None:
    config = load(CASES / "full.yaml", FULL)
    service = config.service
    assert (service.host, service.port, service.external_url) == ("::1", 9090, "https://probe.example.com")
    assert service.database_url == Secret("postgresql://probe:hunter22@db.example.com/routeproof")
    assert service.location == "eu-1"
    assert service.egress_check == ("https://one.example.com/up", "https://two.example.com/up")
    assert (service.public_status, service.allow_embedded) == (False, True)
    assert (service.read_token, service.operate_token) == (Secret("read-0123456789a"), Secret("operate-01234567"))
    assert service.max_raw_bytes == 20_000_000_000
    assert service.proxy == "http://proxy.example.com:3128"
    assert service.data_dir == Path("/home/probe/.local/share/routeproof")
    assert config.limits == (Limit("provider", "example", 4, 60), Limit("host", "[::1]:8000", 2, None))
    assert config.status_urls == {"example": "https://status.example.com/"}
    assert config.routes == (
        Route(
            id="example-big-model",
            name="Example / Big Model",
            provider="api.example.com",
            dialect="openai-chat",
            base_url="https://user:pa%20ss@api.example.com/v1?api-version=3&code=s3cretcode",
            model="big",
            key=SecretRef(env="BIG_KEY"),
            token_cap=TokenCap("max_completion_tokens", 2048),
            parallel_tool_calls=True,
            include_usage=False,
            proxy="http://proxy.example.com:3128",
            deadline=timedelta(seconds=90),
            interval=timedelta(minutes=10),
            fresh_for=2.0,
            expires_after=timedelta(hours=4),
            contracts=(
                ContractUse("native_tools", every=1, required=True),
                ContractUse("undeclared_tool_history", every=6, required=False),
            ),
            budget=Budget(tokens_per_day=200_000, requests_per_day=400),
            price=Price(0.15, 0.6),
        ),
        Route(
            id="second.route",
            name="second",
            provider="example",
            dialect="anthropic-messages",
            base_url="http://[::1]:8000/v1",
            model="1.10",
            key=SecretRef(file="/nonexistent/key"),
            auth=Auth.BEARER,
            headers={"X-Title": "probe"},
            secret_headers={"X-Org": SecretRef(env="ORG"), "X-Team": SecretRef(env="BIG_KEY")},
            body={"seed": 7, "provider": {"order": ["x"]}},
            token_cap=TokenCap(None, 4096),
            parallel_tool_calls=None,
            include_usage=True,
            temperature=0.0,
            served_model_pattern=r"^1\.",
            proxy=None,
            deadline=timedelta(milliseconds=500),
            interval=timedelta(minutes=1),
            fresh_for=timedelta(hours=1, minutes=30),
            expires_after=timedelta(days=2),
            contracts=(ContractUse("agent_turn", 12, required=False), ContractUse("native_tools", 2, required=False)),
            budget=Budget(requests_per_day=2000),
            price=Price(1.0, 2.0, "EUR"),
            tags=("prod", "eu"),
        ),
    )


def test_a_route_of_four_keys_has_the_documented_defaults(tmp_path: Path) -> None:
    config = load(write(tmp_path, f"service:\ndefaults:\nroutes:\n  - {{{ROUTE}}}\n"), HOME)
    assert config.warnings == ()
    assert (config.service.host, config.service.port) == ("127.0.0.1", 8080)
    assert config.service.external_url == "http://127.0.0.1:8080"
    assert config.service.database_url is None
    assert config.service.location == "default"
    assert config.service.public_status is True
    assert config.service.allow_embedded is False
    assert config.service.read_token is config.service.operate_token is config.service.max_raw_bytes is None
    assert (config.limits, config.status_urls) == ((), {})
    assert config.routes == (
        Route(
            id="one",
            name="one",
            provider="api.example.com",
            dialect="openai-chat",
            base_url="https://api.example.com/v1",
            model="m",
            contracts=(ContractUse("native_tools", 1, required=True), ContractUse("agent_turn", 12, required=True)),
        ),
    )


@pytest.mark.parametrize(
    ("name", "route_id"),
    [
        ("openai/gpt-4o-mini", "openai-gpt-4o-mini"),
        ("Groq: Llama 3.3 (70B)", "groq-llama-3.3-70b"),
        ("../up", "up"),
        ("a__b", "a__b"),
        ("Ünïcode", "n-code"),
    ],
)
def test_the_id_is_a_slug_of_the_name(tmp_path: Path, name: str, route_id: str) -> None:
    route = f"name: '{name}', dialect: openai-chat, base_url: 'http://127.0.0.1/v1', model: m"
    assert load(write(tmp_path, f"routes: [{{{route}}}]"), HOME).routes[0].id == route_id


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("false", False),
        ("yes", "yes"),
        ("on", "on"),
        ("True", "True"),
        ("~", None),
        ("null", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("012", "012"),
        ("0x1f", "0x1f"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("2.5e-1", 0.25),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ('"12"', "12"),
        ("'true'", "true"),
        ("|\n        a\n        b\n", "a\nb\n"),
    ],
)
def test_plain_values_of_yaml(tmp_path: Path, written: str, value: object) -> None:
    path = write(tmp_path, f"routes:\n  - {{{ROUTE}}}\n")
    text = path.read_text().replace(
        f"{{{ROUTE}}}", ROUTE.replace(", ", "\n    ") + f"\n    body:\n      it: {written}\n"
    )
    body = load(write(tmp_path, text), HOME).routes[0].body
    assert body == {"it": value}
    assert type(body["it"]) is type(value)


def test_aliases_are_taken(tmp_path: Path) -> None:
    first, second = routes_of(tmp_path, "tags: &tags [a, b]", "id: two, tags: *tags")
    assert first.tags == second.tags == ("a", "b")


@pytest.mark.parametrize(
    ("defaults", "route", "uses"),
    [
        ("{}", "contracts: [native_tools]", [("native_tools", 1, True)]),
        ("{}", "contracts: [undeclared_tool_history]", [("undeclared_tool_history", 12, False)]),
        ("{}", "contracts: [{name: agent_turn, every: 3}]", [("agent_turn", 3, True)]),
        ("{}", "required: [native_tools]", [("native_tools", 1, True), ("agent_turn", 12, False)]),
        ("{contracts: [native_tools]}", "required: []", [("native_tools", 1, False)]),
        ("{contracts: [native_tools]}", "tags: []", [("native_tools", 1, True)]),
        ("{required: [agent_turn]}", "contracts: [native_tools]", [("native_tools", 1, False)]),
        ("{contracts: [native_tools]}", "contracts: null", [("native_tools", 1, True), ("agent_turn", 12, True)]),
    ],
)
def test_which_contracts_are_asked_and_required(
    tmp_path: Path, defaults: str, route: str, uses: list[tuple[str, int, bool]]
) -> None:
    path = write(tmp_path, f"defaults: {defaults}\nroutes: [{{{ROUTE}, {route}}}]")
    assert load(path, HOME).routes[0].contracts == tuple(ContractUse(*use) for use in uses)


@pytest.mark.parametrize(
    ("keys", "header", "clash"),
    [
        ("dialect: openai-chat", "Authorization", True),
        ("dialect: openai-chat", "X-Api-Key", False),
        ("dialect: anthropic-messages", "X-Api-Key", True),
        ("dialect: anthropic-messages", "Authorization", False),
        ("dialect: anthropic-messages, auth: null", "X-Api-Key", True),
        ("dialect: anthropic-messages, auth: bearer", "X-Api-Key", False),
        ("dialect: anthropic-messages, auth: bearer", "Authorization", True),
        ("dialect: openai-chat, auth: x-goog-api-key", "X-Goog-Api-Key", True),
    ],
)
def test_a_header_must_not_stand_where_the_dialect_or_the_route_sends_the_credential(
    tmp_path: Path, keys: str, header: str, clash: bool
) -> None:
    route = f"name: one, base_url: 'https://a.example.com', model: m, api_key_env: KEY, {keys}"
    path = write(tmp_path, f"routes: [{{{route}, secret_headers: {{{header}: {{env: OTHER}}}}}}]")
    if clash:
        wanted = f"FILE:1: routes[0].secret_headers.{header}: the probe sends the credential there: drop one of the two"
        assert mistakes_of(path) == wanted
    else:
        assert load(path, HOME).routes[0].secret_headers == {header: SecretRef(env="OTHER")}


# --- durations --------------------------------------------------------------------------------------------

A_TOKEN = "must hold at least 16 characters: ASCII, no space"
A_SIZE = "must be a number of bytes or a size with its unit, such as 500MB, 20GB or 1TiB"
A_DURATION = "must be a duration with its unit, such as 500ms, 60s, 5m, 1h30m or 2d"


@pytest.mark.parametrize(
    ("written", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("60s", timedelta(seconds=60)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("90m", timedelta(minutes=90)),
        ("365d", timedelta(days=365)),
    ],
)
def test_durations(written: str, duration: timedelta) -> None:
    assert door.parse_duration(written) == duration


@pytest.mark.parametrize(
    ("written", "message"),
    [
        *(
            (text, A_DURATION)
            for text in ("", "5", "m", "5 m", "5M", "5min", "1.5h", "-5m", "30m1h", "5m5m", "5m\n", "٥m")
        ),
        *((value, A_DURATION) for value in (5, 5.0, None, True, ["5m"])),
        ("0s", "must be longer than 0s"),
        ("0d0h0m", "must be longer than 0s"),
        ("366d", "must be at most 365d"),
        ("999999999d", "must be at most 365d"),
    ],
)
def test_what_is_no_duration(written: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        door.parse_duration(written)
    assert str(caught.value) == message


@given(st.integers(1, 365 * 86_400_000))
def test_a_shown_duration_is_read_as_the_same(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert door.parse_duration(door.show_duration(duration)) == duration


# --- the environment --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("LISTEN", "0.0.0.0:80", "host", "0.0.0.0"),
        ("LISTEN", "[::]:81", "port", 81),
        ("LISTEN", "localhost:0", "host", "localhost"),
        ("LISTEN", "[::]:81", "external_url", "http://[::]:81"),
        ("EXTERNAL_URL", "https://probe.example.com/x/", "external_url", "https://probe.example.com/x"),
        ("DATABASE_URL", "postgresql:///x?host=/run/pg", "database_url", Secret("postgresql:///x?host=/run/pg")),
        ("LOCATION", "us-2", "location", "us-2"),
        ("EGRESS_CHECK", "http://a.example http://b.example", "egress_check", ("http://a.example", "http://b.example")),
        ("PUBLIC_STATUS", "true", "public_status", True),
        ("PROXY", "http://p:1", "proxy", "http://p:1"),
        ("ALLOW_EMBEDDED", "true", "allow_embedded", True),
        ("MAX_RAW_BYTES", "2GiB", "max_raw_bytes", 2 * 1024**3),
        ("MAX_RAW_BYTES", "2000000", "max_raw_bytes", 2_000_000),
        ("DATA_DIR", "/srv/data", "data_dir", Path("/srv/data")),
        ("DATA_DIR", "here", "data_dir", Path("here").absolute()),
        ("LOCATION", "", "location", "file"),
    ],
)
def test_variables_override_the_service_section(
    tmp_path: Path, variable: str, value: str, field: str, expected: object
) -> None:
    service = "{location: file, listen: '1.2.3.4:5', public_status: false, egress_check: ['http://c.example']}"
    path = write(tmp_path, f"service: {service}\nroutes: [{{{ROUTE}}}]")
    config = load(path, HOME | {f"ROUTEPROOF_{variable}": value})
    assert getattr(config.service, field) == expected


def test_the_variable_of_the_database_replaces_both_keys_of_the_file(tmp_path: Path) -> None:
    url = tmp_path / "url"
    url.write_text("postgresql://from-file/x\n")
    path = write(tmp_path, f"service: {{database_url: 'postgresql://in-yaml/x'}}\nroutes: [{{{ROUTE}}}]")
    config = load(path, HOME | {"ROUTEPROOF_DATABASE_URL_FILE": str(url)})
    assert config.service.database_url == Secret("postgresql://from-file/x")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"LISTEN": "8080"}, "ROUTEPROOF_LISTEN: must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
        ({"LISTEN": "::1:80"}, "ROUTEPROOF_LISTEN: must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
        ({"LISTEN": "a:65536"}, "ROUTEPROOF_LISTEN: must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
        ({"PUBLIC_STATUS": "yes"}, "ROUTEPROOF_PUBLIC_STATUS: must be true or false"),
        ({"LOCATION": "here there"}, "ROUTEPROOF_LOCATION: must be 1 to 64 of A-Z, a-z, 0-9, dot, _ and -"),
        ({"EGRESS_CHECK": "http://a b"}, "ROUTEPROOF_EGRESS_CHECK: must be a URL that begins with http:// or https://"),
        (
            {"DATABASE_URL": "sqlite:///x"},
            "ROUTEPROOF_DATABASE_URL: must be a PostgreSQL URL, such as postgresql://user@host/name",
        ),
        (
            {"DATABASE_URL_FILE": "/nonexistent"},
            "ROUTEPROOF_DATABASE_URL_FILE: the file can't be read (No such file or directory)",
        ),
        (
            {"DATABASE_URL": "postgresql:///x", "DATABASE_URL_FILE": "/x"},
            "ROUTEPROOF_DATABASE_URL_FILE: database_url is given too: keep one of the two",
        ),
        ({"READ_TOKEN_ENV": "TOKEN"}, "ROUTEPROOF_READ_TOKEN_ENV: the variable is not set"),
        ({"READ_TOKEN_ENV": "HOME"}, f"ROUTEPROOF_READ_TOKEN_ENV: the variable {A_TOKEN}"),
        (
            {"OPERATE_TOKEN_FILE": "/nonexistent"},
            "ROUTEPROOF_OPERATE_TOKEN_FILE: the file can't be read (No such file or directory)",
        ),
        (
            {"OPERATE_TOKEN_ENV": "TOKEN", "OPERATE_TOKEN_FILE": "/nonexistent"},
            "ROUTEPROOF_OPERATE_TOKEN_FILE: operate_token_env is given too: keep one of the two",
        ),
        ({"MAX_RAW_BYTES": "20G"}, f"ROUTEPROOF_MAX_RAW_BYTES: {A_SIZE}"),
    ],
)
def test_a_bad_variable_is_a_mistake_that_names_it(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    path = write(tmp_path, f"routes: [{{{ROUTE}}}]")
    variables = {f"ROUTEPROOF_{name}": value for name, value in environ.items()}
    assert mistakes_of(path, HOME | variables) == f"environment: {message}"


def test_a_variable_that_is_nearly_ours_warns_and_others_do_not(tmp_path: Path) -> None:
    environ = {"ROUTEPROOF_LISTNE": "x", "ROUTEPROOF_PORT": "tcp://10.0.0.1:80", "ROUTEPROOF_SERVICE_HOST": "10.0.0.1"}
    assert load(write(tmp_path, f"routes: [{{{ROUTE}}}]"), HOME | environ).warnings == (
        "environment: ROUTEPROOF_LISTNE: isn't a setting and is ignored; did you mean ROUTEPROOF_LISTEN?",
    )


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/a"}, "/home/a/.local/share/routeproof"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": "/data"}, "/data/routeproof"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": "data"}, "/home/a/.local/share/routeproof"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": "/data", "ROUTEPROOF_DATA_DIR": "/srv"}, "/srv"),
    ],
)
def test_where_data_is_kept(tmp_path: Path, environ: dict[str, str], expected: str) -> None:
    assert load(write(tmp_path, f"routes: [{{{ROUTE}}}]"), environ).service.data_dir == Path(expected)


def test_root_keeps_its_data_where_the_server_can_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    file = write(tmp_path, f"routes: [{{{ROUTE}}}]")
    assert load(file, {"HOME": "/root"}).service.data_dir == Path("/var/lib/routeproof")
    assert load(file, {"HOME": "/root", "XDG_DATA_HOME": "/data"}).service.data_dir == Path("/data/routeproof")


# --- hash and fingerprint ---------------------------------------------------------------------------------


def test_the_hash_is_that_of_the_file_and_nothing_else(tmp_path: Path) -> None:
    text = f"routes: [{{{ROUTE}}}]\n"
    first = load(write(tmp_path, text), HOME)
    assert first.hash == load(write(tmp_path, text), HOME | {"ROUTEPROOF_LOCATION": "b"}).hash == "2407ae8a38a1f5c2"
    assert first.hash == door.content_hash(door.read_content(tmp_path / "routeproof.yaml"))
    assert first.hash != load(write(tmp_path, text + "# a comment\n"), HOME).hash


BASE = Route(
    id="one",
    name="one",
    provider="example",
    dialect="openai-chat",
    base_url="https://user:secret@api.example.com/v1?api-version=1&api_key=secret",
    model="m",
    key=SecretRef(env="KEY"),
    headers={"X-Title": "probe"},
    secret_headers={"X-Org": SecretRef(env="ORG")},
    body={"a": 1, "b": {"c": [1, 2]}},
)


def test_the_fingerprint_is_stable_over_releases() -> None:
    assert fingerprint(BASE) == "4c1b9b5e31682381"


@pytest.mark.parametrize(
    "change",
    [
        {"dialect": "anthropic-messages"},
        {"base_url": "https://user:secret@api.example.com/v2?api-version=1&api_key=secret"},
        {"base_url": "https://user:secret@api.example.com/v1?api-version=2&api_key=secret"},
        {"model": "n"},
        {"key": None},
        {"key": SecretRef(env="OTHER")},
        {"key": SecretRef(file="/KEY")},
        {"auth": Auth.API_KEY},
        {"auth": Auth.NONE},
        {"headers": {"X-Title": "other"}},
        {"headers": {}},
        {"secret_headers": {"X-Org": SecretRef(env="OTHER")}},
        {"body": {"a": 1, "b": {"c": [2, 1]}}},
        {"body": {"a": True, "b": {"c": [1, 2]}}},
        {"token_cap": TokenCap("max_tokens", 1024)},
        {"token_cap": TokenCap(None, 2048)},
        {"parallel_tool_calls": False},
        {"include_usage": False},
        {"temperature": 0.0},
    ],
)
def test_what_makes_another_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(replace(BASE, **change)) != fingerprint(BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "two", "name": "two", "provider": "other", "tags": ("a",)},
        {"base_url": "https://someone:else@api.example.com/v1?api-version=1&api_key=other"},
        {"auth": Auth.BEARER},  # as the dialect has it anyway
        {"headers": {"x-title": "probe"}},
        {"body": {"b": {"c": [1, 2]}, "a": 1}},
        {"interval": timedelta(1), "fresh_for": 9.0, "expires_after": timedelta(99), "deadline": timedelta(seconds=1)},
        {"contracts": (ContractUse("native_tools"),)},
        {"proxy": "http://p:1", "ca_file": "/ca.pem", "served_model_pattern": "x"},
        {"budget": Budget(tokens_per_day=1, requests_per_day=1), "price": Price(1.0, 2.0)},
    ],
)
def test_what_keeps_the_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(replace(BASE, **change)) == fingerprint(BASE)


# --- cells and rows ---------------------------------------------------------------------------------------


def test_cells_have_their_own_interval_and_freshness() -> None:
    config = load(CASES / "full.yaml", FULL)
    first, second = config.routes
    minutes = timedelta(minutes=1)
    assert cells(config) == (
        Cell(
            route_id="example-big-model",
            contract="native_tools",
            location="eu-1",
            required=True,
            fingerprint=fingerprint(first),
            interval=10 * minutes,
            fresh_for=20 * minutes,
            expires_after=240 * minutes,
            deadline=timedelta(seconds=90),
            provider="api.example.com",
            host="api.example.com:443",
            credential="env:BIG_KEY",
            max_requests=5,
            route_interval=10 * minutes,
        ),
        Cell(
            route_id="example-big-model",
            contract="undeclared_tool_history",
            location="eu-1",
            required=False,
            fingerprint=fingerprint(first),
            interval=60 * minutes,
            fresh_for=120 * minutes,
            expires_after=240 * minutes,
            deadline=timedelta(seconds=90),
            provider="api.example.com",
            host="api.example.com:443",
            credential="env:BIG_KEY",
            max_requests=8,
            route_interval=10 * minutes,
        ),
        Cell(
            route_id="second.route",
            contract="agent_turn",
            location="eu-1",
            required=False,
            fingerprint=fingerprint(second),
            interval=12 * minutes,
            fresh_for=90 * minutes,
            expires_after=timedelta(days=2),
            deadline=timedelta(milliseconds=500),
            provider="example",
            host="[::1]:8000",
            credential="file:/nonexistent/key",
            max_requests=9,
            route_interval=minutes,
        ),
        Cell(
            route_id="second.route",
            contract="native_tools",
            location="eu-1",
            required=False,
            fingerprint=fingerprint(second),
            interval=2 * minutes,
            fresh_for=90 * minutes,
            expires_after=timedelta(days=2),
            deadline=timedelta(milliseconds=500),
            provider="example",
            host="[::1]:8000",
            credential="file:/nonexistent/key",
            max_requests=5,
            route_interval=minutes,
        ),
    )


def test_rows_show_redacted_urls() -> None:
    assert door.route_rows(load(CASES / "full.yaml", FULL)) == (
        RouteRow(
            id="example-big-model",
            name="Example / Big Model",
            provider="api.example.com",
            dialect="openai-chat",
            model="big",
            url="https://api.example.com/v1?api-version=3&code=***",
            tags=(),
            tokens_per_day=200_000,
            requests_per_day=400,
            input_per_million=0.15,
            output_per_million=0.6,
            currency="USD",
        ),
        RouteRow(
            id="second.route",
            name="second",
            provider="example",
            dialect="anthropic-messages",
            model="1.10",
            url="http://[::1]:8000/v1",
            tags=("prod", "eu"),
            requests_per_day=2000,
            input_per_million=1.0,
            output_per_million=2.0,
            currency="EUR",
            status_url="https://status.example.com/",
        ),
    )


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("https://h/v1", "https://h/v1", ()),
        ("https://u@h/v1", "https://h/v1", ("u",)),
        ("https://u:p%40w@h:1/v1", "https://h:1/v1", ("u", "p%40w", "p@w")),
        ("https://h/?api-version=2024&top_k=5", "https://h/?api-version=2024&top_k=5", ()),
        ("https://h/?key=k1&x=1", "https://h/?key=***&x=1", ("k1",)),
        ("https://h/?a=1&api_key=k1&token=t1", "https://h/?a=1&api_key=***&token=***", ("k1", "t1")),
        ("https://h/?%6Bey=k1", "https://h/?%6Bey=***", ("k1",)),
        ("https://h/?accessToken=t+1", "https://h/?accessToken=***", ("t+1", "t 1")),
        ("https://h/?subscription-key=k1", "https://h/?subscription-key=***", ("k1",)),
        ("https://h/?APIKEY=k1", "https://h/?APIKEY=***", ("k1",)),
        ("https://h/?sig=s1&code=c1&password=p1", "https://h/?sig=***&code=***&password=***", ("s1", "c1", "p1")),
        ("https://h/?client_secret=s1", "https://h/?client_secret=***", ("s1",)),
        ("https://h/?key=", "https://h/?key=***", ()),
    ],
)
def test_what_of_a_url_is_secret(url: str, shown: str, secrets: tuple[str, ...]) -> None:
    assert door.redacted_url(url) == shown
    assert door.secrets_in_url(url) == secrets


# --- credentials ------------------------------------------------------------------------------------------

CANT_SEND = "holds a character that no header can carry, or has white space around it"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"KEY": "sk-1234567"}, Credentials(key=Secret("sk-1234567"))),
        ({"KEY": "schlüssel"}, Credentials(key=Secret("schlüssel"))),
        ({"KEY": "x"}, Credentials(key=Secret("x"))),
        ({}, Credentials(missing=("env:KEY",))),
        ({"KEY": ""}, Credentials(missing=("env:KEY",))),
        *(
            ({"KEY": key}, Credentials(missing=(f"env:KEY ({CANT_SEND})",)))
            for key in ("sk-1234567\n", "sk\n1234567", " sk-1234567", "sk-1\x7f234567", "sk-鍵1234567", "\x85sk-123")
        ),
    ],
)
def test_a_key_from_the_environment(environ: dict[str, str], expected: Credentials) -> None:
    assert credentials(replace(BASE, secret_headers={}), environ) == expected


@pytest.mark.parametrize(
    ("content", "key", "missing"),
    [
        (b"sk-1234567", "sk-1234567", None),
        (b"sk-1234567\n", "sk-1234567", None),
        (b"sk-1234567\r\n", "sk-1234567", None),
        (b"sk-1234567\n\n", None, f" ({CANT_SEND})"),
        (b"\n", None, ""),
        (b"", None, ""),
        (b"\xff\xfe", None, " (isn't UTF-8 text)"),
        (b"x" * 70_000, None, ""),
        (None, None, ""),
    ],
)
def test_a_key_from_a_file(tmp_path: Path, content: bytes | None, key: str | None, missing: str | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    found = credentials(replace(BASE, key=SecretRef(file=str(path)), secret_headers={}), {})
    assert found.key == (Secret(key) if key else None)
    assert found.missing == (() if missing is None else (f"file:{path}{missing}",))


def test_a_key_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "key"
    route = replace(BASE, key=SecretRef(file=str(path)), secret_headers={})
    for key in ("first-key", "second-key"):
        path.write_text(key)
        assert credentials(route, {}).key == Secret(key)


def test_each_missing_secret_header_is_named() -> None:
    route = replace(BASE, secret_headers={"X-A": SecretRef(env="A"), "X-B": SecretRef(env="B")})
    assert credentials(route, {"KEY": "sk-1234567", "A": "of-a"}) == Credentials(
        key=Secret("sk-1234567"), headers={"X-A": Secret("of-a")}, missing=("env:B",)
    )


def test_load_warns_once_of_each_reference_that_can_not_be_used(tmp_path: Path) -> None:
    keys = [f"id: r{index}, api_key_env: UNSET" for index in range(5)]
    keys += ["id: a, api_key_env: SHORT", "id: b, api_key_env: GOOD", "id: c, secret_headers: {X-A: {env: ODD}}"]
    items = "".join(f"\n  - {{{ROUTE}, {key}}}" for key in keys)
    environ = HOME | {"SHORT": "1234567", "GOOD": "12345678", "ODD": "12345678\n"}
    config = load(write(tmp_path, f"routes:{items}"), environ)
    assert config.warnings == (
        "env:UNSET is not set: nothing is sent to r0, r1, r2 and 2 more",
        "env:SHORT has fewer than 8 characters: not searched for in texts of a",
        f"env:ODD {CANT_SEND}: nothing is sent to c",
    )
    assert "1234567" not in "".join(config.warnings)


# --- routes of the command line ---------------------------------------------------------------------------


def test_a_route_of_the_command_line() -> None:
    route = adhoc_route("http://127.0.0.1:1/v1", "Org/Model", "openai-chat", "KEY", deadline="5s", headers={"X-A": "b"})
    assert route == Route(
        id="org-model",
        name="Org/Model",
        provider="127.0.0.1",
        dialect="openai-chat",
        base_url="http://127.0.0.1:1/v1",
        model="Org/Model",
        key=SecretRef(env="KEY"),
        headers={"X-A": "b"},
        deadline=timedelta(seconds=5),
        contracts=(ContractUse("native_tools", 1, required=True), ContractUse("agent_turn", 12, required=True)),
    )
    assert adhoc_route("http://127.0.0.1/v1", "模型", "openai-chat").id == "adhoc"


def test_mistakes_of_the_command_line_name_options() -> None:
    with pytest.raises(ConfigError) as caught:
        adhoc_route("127.0.0.1/v1", "", "openai", "sk-0123456789", deadline="5", tokencap=5)
    assert str(caught.value).splitlines() == [
        "command line: --api-key-env: must be the name of an environment variable (A-Z, 0-9, _),"
        " never the secret itself",
        "command line: --base-url: must be a URL that begins with http:// or https://",
        f"command line: --deadline: {A_DURATION}",
        "command line: --dialect: no such dialect; did you mean openai-chat?",
        "command line: --model: must not be empty",
        "command line: --tokencap: unknown key; did you mean token_cap?",
    ]


# --- schema and layers ------------------------------------------------------------------------------------


def test_the_schema_of_the_file() -> None:
    schema = json.loads(json.dumps(door.json_schema()))
    route = schema["$defs"]["RouteSection"]
    assert schema["required"] == ["routes"]
    assert route["required"] == ["name", "dialect", "base_url", "model"]
    assert route["additionalProperties"] is False
    assert route["properties"]["interval"]["default"] == "5m"
    assert route["properties"]["expires_after"]["default"] == "6x"
    assert "openai-chat" in route["properties"]["dialect"]["enum"]
    entry = route["properties"]["contracts"]["anyOf"][0]["items"]["anyOf"]
    assert "native_tools" in entry[0]["enum"]
    assert entry[1] == {"$ref": "#/$defs/ContractSection"}
    assert "api_key" not in route["properties"]


def test_the_schema_has_every_key_that_is_taken() -> None:
    properties = door.json_schema()["$defs"]["RouteSection"]["properties"]
    first, second = yaml.safe_load((CASES / "full.yaml").read_text())["routes"]
    assert {*first, *second} == set(properties) - {"ca_file"}


def test_no_module_of_the_package_shadows_a_public_name() -> None:
    assert not {path.stem for path in Path(door.__file__).parent.glob("*.py")} & set(door.__all__)
