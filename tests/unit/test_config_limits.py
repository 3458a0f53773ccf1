"""Limits, budgets, tokens and sizes of the configuration: what is read, what is doubted, and what a restart needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from service import config as door
from service.cli import app
from service.config import Config, ServiceSettings, adhoc_route, changes_needing_restart, host_of, load
from service.config.quantities import parse_count, parse_size
from service.model import Budget, Limit, Secret
from tests.unit.test_config import A_SIZE, A_TOKEN, HOME, ROUTE, mistakes_of, write

A_COUNT = "must be a whole number, such as 400, 200k or 2M"
BETWEEN = "must be between 1 and 1000M"
NOT_EMBEDDED = (
    "FILE:1: service.database_url: required under Kubernetes: the embedded server's data can go with its pod;"
    " allow_embedded: true takes it all the same"
)


@pytest.fixture(autouse=True)
def fixed_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed costs, so that a contract that asks more doesn't change the messages pinned here."""
    costs = (("native_tools", 1, 5), ("agent_turn", 12, 9))
    registry = {
        name: SimpleNamespace(name=name, every=every, required=True, max_requests=max_requests)
        for name, every, max_requests in costs
    }
    monkeypatch.setattr("service.contracts.CONTRACTS", registry)


def loaded(tmp_path: Path, sections: str, *routes: str) -> Config:
    items = "".join(f"\n  - {{{ROUTE}, {route}}}" for route in routes or ("tags: []",))
    return load(write(tmp_path, f"{sections}\nroutes:{items}"), HOME)


def warnings_of(tmp_path: Path, sections: str, *routes: str) -> list[str]:
    path = str(tmp_path / "routeproof.yaml")
    return [warning.replace(path, "FILE") for warning in loaded(tmp_path, sections, *routes).warnings]


# --- counts and sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "count"),
    [(1, 1), (400, 400), ("400", 400), ("200k", 200_000), ("2M", 2_000_000), ("1000M", 10**9), (10**9, 10**9)],
)
def test_counts(written: object, count: int) -> None:
    assert parse_count(written) == count


@pytest.mark.parametrize(
    ("written", "message"),
    [
        *(
            (text, A_COUNT)
            for text in ("", "k", "200K", "200 k", "1.5M", "-1", "2kk", "2G", "20GB", "2k\n", "٢k", "9" * 19)
        ),
        *((value, A_COUNT) for value in (1.0, True, None, [1])),
        *((value, BETWEEN) for value in (0, "0k", -1, "1001M", 10**9 + 1, 10**30)),
    ],
)
def test_what_is_no_count(written: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_count(written)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1_000_000, 1_000_000),
        ("1000KB", 1_000_000),
        ("977KiB", 977 * 1024),
        ("500MB", 500_000_000),
        ("20GB", 20_000_000_000),
        ("20GiB", 20 * 1024**3),
        ("1TB", 10**12),
        ("1TiB", 1024**4),
        ("1000000TB", 10**18),
    ],
)
def test_sizes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    ("written", "message"),
    [
        *((value, A_SIZE) for value in ("", "GB", "20 GB", "20G", "20gb", "1.5TB", "20k", "20B", 2.0e9, True, None)),
        *((value, "must be between 1MB and 1000000TB") for value in (0, 20, "999KB", "1000001TB", "9" * 18 + "TB")),
    ],
)
def test_what_is_no_size(written: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_size(written)
    assert str(caught.value) == message


# --- limits -----------------------------------------------------------------------------------------------

ON_8000 = "base_url: 'http://127.0.0.1:8000/v1'"
HTTPS, HTTP = "base_url: 'https://API.example.com/v1'", "base_url: 'http://api.example.com/v1'"


def a_route(name: str, url: str) -> str:
    return f"{{name: {name}, dialect: openai-chat, model: m, {url}}}"


@pytest.mark.parametrize(
    ("hosts", "limited"),
    [
        ("api.example.com", ["api.example.com:443", "api.example.com:80"]),
        ("API.Example.com", ["api.example.com:443", "api.example.com:80"]),
        ("api.example.com:80", ["api.example.com:80"]),
        ("127.0.0.1:8000", ["127.0.0.1:8000"]),
        ("127.0.0.1", []),
        ("other.example.com", []),
    ],
)
def test_a_host_without_a_port_stands_for_the_default_ports(tmp_path: Path, hosts: str, limited: list[str]) -> None:
    routes = ", ".join(a_route(f"r{index}", url) for index, url in enumerate((ON_8000, HTTPS, HTTP)))
    path = write(tmp_path, f"hosts: {{'{hosts}': {{max_concurrency: 3}}}}\nroutes: [{routes}]")
    assert load(path, HOME).limits == tuple(Limit("host", name, 3, None) for name in limited)


@pytest.mark.parametrize(
    ("sections", "warning"),
    [
        ("providers: {exampel: {}}", "FILE:1: providers.exampel: no route has this provider; did you mean example?"),
        ("providers: {zzz: {max_concurrency: 1}}", "FILE:1: providers.zzz: no route has this provider"),
        (
            "hosts: {api.exmaple.com: {max_concurrency: 1}}",
            "FILE:1: hosts.api.exmaple.com: no route has this host and port; did you mean api.example.com?",
        ),
        (
            "hosts: {api.example.com:8443: {}}",
            "FILE:1: hosts.api.example.com:8443: no route has this host and port; did you mean api.example.com?",
        ),
    ],
)
def test_a_provider_or_host_that_no_route_has_warns_and_limits_nothing(
    tmp_path: Path, sections: str, warning: str
) -> None:
    assert warnings_of(tmp_path, sections, "provider: example") == [warning]
    assert loaded(tmp_path, sections, "provider: example").limits == ()


def test_a_provider_without_a_limit_still_tells_its_status_url(tmp_path: Path) -> None:
    sections = "providers: {example: {status_url: 'https://status.example.com', max_concurrency: null}, two: null}"
    config = loaded(tmp_path, sections, "provider: example", "id: two, provider: two")
    assert (config.limits, config.warnings) == ((), ())
    assert config.status_urls == {"example": "https://status.example.com"}
    assert [row.status_url for row in door.route_rows(config)] == ["https://status.example.com", None]


@pytest.mark.parametrize(
    ("minute", "contracts", "mistake"),
    [
        (9, "[native_tools, agent_turn]", ""),
        (8, "[native_tools, agent_turn]", "one probe of agent_turn may send 9 requests: must be at least that"),
        (5, "[native_tools]", ""),
        (4, "[native_tools]", "one probe of native_tools may send 5 requests: must be at least that"),
    ],
)
def test_a_minute_must_hold_one_probe(tmp_path: Path, minute: int, contracts: str, mistake: str) -> None:
    for key, name in (("providers", "api.example.com"), ("hosts", "api.example.com")):
        text = f"{key}: {{{name}: {{max_requests_per_minute: {minute}}}}}\n"
        path = write(tmp_path, f"{text}routes: [{{{ROUTE}, contracts: {contracts}}}]")
        if mistake:
            assert mistakes_of(path) == f"FILE:1: {key}.{name}.max_requests_per_minute: {mistake}"
        else:
            assert [limit.max_requests_per_minute for limit in load(path, HOME).limits] == [minute]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://API.Example.com/v1", "api.example.com:443"),
        ("http://api.example.com/v1", "api.example.com:80"),
        ("https://user:pass@api.example.com:8443/v1?x=1", "api.example.com:8443"),
        ("http://[::1]/v1", "[::1]:80"),
        ("http://[FE80::1]:8000", "[fe80::1]:8000"),
    ],
)
def test_the_host_of_a_route_has_its_port_and_nothing_secret(url: str, host: str) -> None:
    assert host_of(adhoc_route(url, "m", "openai-chat")) == host


# --- budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        ("budget: {requests_per_day: 312}", ""),  # 288 + 24
        ("budget: {tokens_per_day: 1}", ""),
        ("budget: {requests_per_day: 311}", "312"),
        ("budget: {requests_per_day: 311}, contracts: [native_tools]", ""),
        ("budget: {requests_per_day: 205}, contracts: [native_tools], interval: 7m", "206"),
        ("budget: {requests_per_day: 14}, interval: 1h", "26"),
    ],
)
def test_a_budget_that_can_not_carry_the_intervals_warns_with_what_they_take(
    tmp_path: Path, keys: str, warning: str
) -> None:
    text = "FILE:3: routes[0].budget.requests_per_day: the intervals take at least {} requests a day:"
    expected = [f"{text.format(warning)} they will be stretched"] if warning else []
    assert warnings_of(tmp_path, "", keys) == expected


def test_a_budget_of_the_defaults_is_doubted_there_and_once(tmp_path: Path) -> None:
    sections = "defaults:\n  interval: 5m\n  budget: {requests_per_day: 100}"
    message = "the intervals take at least 312 requests a day: they will be stretched"
    expected = [f"FILE:3: defaults.budget.requests_per_day: {message}"]
    assert warnings_of(tmp_path, sections, "id: a", "id: b", "id: c, budget: null") == expected


def test_a_budget_of_a_route_takes_the_place_of_the_default_one(tmp_path: Path) -> None:
    sections = "defaults: {budget: {tokens_per_day: 200k}}"
    routes = loaded(tmp_path, sections, "id: a", "id: b, budget: {requests_per_day: 1k}", "id: c, budget: null").routes
    assert [route.budget for route in routes] == [Budget(200_000, None), Budget(None, 1000), None]


# --- tokens -----------------------------------------------------------------------------------------------

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"


def test_a_token_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{OTHER}\n")
    path = write(tmp_path, f"service: {{read_token_env: READ, operate_token_file: {file}}}\nroutes: [{{{ROUTE}}}]")
    settings = load(path, HOME | {"READ": TOKEN}).service
    assert (settings.read_token, settings.operate_token) == (Secret(TOKEN), Secret(OTHER))
    assert TOKEN not in repr(settings)
    assert OTHER not in repr(settings)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "the variable is not set"),
        ("", "the variable is empty"),
        ("0123456789abcde", f"the variable {A_TOKEN}"),
        ("0123456789 abcdef", f"the variable {A_TOKEN}"),
        ("0123456789abcdéf", f"the variable {A_TOKEN}"),
        (" 0123456789abcdef", "the variable holds a character that no header can carry, or has white space around it"),
    ],
)
@pytest.mark.parametrize("key", ["read_token_env", "operate_token_env"])
def test_a_token_that_is_named_must_be_there_and_long(
    tmp_path: Path, key: str, value: str | None, problem: str
) -> None:
    path = write(tmp_path, f"service:\n  {key}: NAMED\nroutes: [{{{ROUTE}}}]")
    environ = HOME if value is None else HOME | {"NAMED": value}
    assert mistakes_of(path, environ) == f"FILE:2: service.{key}: {problem}"


@pytest.mark.parametrize("key", ["operate_token_env", "operate_token_file"])
def test_two_equal_tokens_are_a_mistake(tmp_path: Path, key: str) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    value = "OPERATE" if key.endswith("env") else file
    path = write(tmp_path, f"service: {{read_token_env: READ, {key}: {value}}}\nroutes: [{{{ROUTE}}}]")
    message = f"FILE:1: service.{key}: the same as the read token: who may read could operate"
    assert mistakes_of(path, HOME | {"READ": TOKEN, "OPERATE": TOKEN}) == message


def test_the_variable_of_a_token_replaces_both_keys_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, f"service: {{read_token_file: /nonexistent}}\nroutes: [{{{ROUTE}}}]")
    environ = HOME | {"ROUTEPROOF_READ_TOKEN_ENV": "READ", "READ": TOKEN}
    assert load(path, environ).service.read_token == Secret(TOKEN)


def test_a_variable_that_a_token_is_read_from_is_no_misspelt_setting(tmp_path: Path) -> None:
    path = write(tmp_path, f"service: {{read_token_env: ROUTEPROOF_READ_TOKEN}}\nroutes: [{{{ROUTE}}}]")
    environ = HOME | {"ROUTEPROOF_READ_TOKEN": TOKEN}
    assert load(path, environ).warnings == ()
    assert load(write(tmp_path, f"routes: [{{{ROUTE}}}]"), environ).warnings == (
        "environment: ROUTEPROOF_READ_TOKEN: isn't a setting and is ignored; did you mean ROUTEPROOF_READ_TOKEN_ENV?",
    )


# --- the embedded server under Kubernetes -----------------------------------------------------------------

POD = HOME | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("service", "environ", "mistake"),
    [
        ("{}", POD, NOT_EMBEDDED),
        ("{}", HOME, None),
        ("{allow_embedded: true}", POD, None),
        ("{database_url: 'postgresql:///x'}", POD, None),
        ("{}", POD | {"ROUTEPROOF_DATABASE_URL": "postgresql:///x"}, None),
        ("{}", POD | {"ROUTEPROOF_ALLOW_EMBEDDED": "true"}, None),
        (
            "{database_url: 'mysql:///x'}",
            POD,
            "FILE:1: service.database_url: must be a PostgreSQL URL, such as postgresql://user@host/name",
        ),
        ("{allow_embedded: yes}", POD, "FILE:1: service.allow_embedded: must be true or false"),
    ],
)
def test_what_is_served_under_kubernetes_needs_a_database_or_leave_to_embed_one(
    tmp_path: Path, service: str, environ: dict[str, str], mistake: str | None
) -> None:
    path = write(tmp_path, f"service: {service}\nroutes: [{{{ROUTE}}}]")
    if mistake is None:
        assert load(path, environ, serving=True).routes
    else:
        with pytest.raises(door.ConfigError) as caught:
            load(path, environ, serving=True)
        assert str(caught.value).replace(str(path), "FILE") == mistake


def test_serve_exits_with_2_under_kubernetes_and_config_check_does_not_mind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, f"routes: [{{{ROUTE}}}]")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("ROUTEPROOF_DATABASE_URL", raising=False)
    served = CliRunner().invoke(app, ["serve", "-c", str(path)])
    assert (served.exit_code, served.output.replace(str(path), "FILE")) == (2, f"{NOT_EMBEDDED}\n")
    assert CliRunner().invoke(app, ["config", "check", "-c", str(path)]).exit_code == 0


# --- reload -----------------------------------------------------------------------------------------------

SETTINGS = ServiceSettings(data_dir=Path("/a"), database_url=Secret("postgresql:///a"))


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        (SETTINGS, ()),
        (replace(SETTINGS, host="::1"), ("listen",)),
        (replace(SETTINGS, port=1), ("listen",)),
        (replace(SETTINGS, database_url=Secret("postgresql:///b")), ("database_url",)),
        (replace(SETTINGS, data_dir=Path("/b"), location="b"), ("data_dir", "location")),
        (replace(SETTINGS, allow_embedded=True), ("allow_embedded",)),
        (replace(SETTINGS, external_url="http://a", egress_check=("http://a",), public_status=False), ()),
        (replace(SETTINGS, proxy="http://p:1", ca_file="/a", max_raw_bytes=10**9), ()),
        (replace(SETTINGS, read_token=Secret(TOKEN), operate_token=Secret(OTHER)), ()),
    ],
)
def test_which_changes_only_a_restart_takes_up(changed: ServiceSettings, names: tuple[str, ...]) -> None:
    old, new = (Config(service=settings, routes=(), warnings=(), hash="") for settings in (SETTINGS, changed))
    assert changes_needing_restart(old, new) == names


def test_every_setting_of_the_service_is_told_of_as_swappable_or_not() -> None:
    swappable = {"external_url", "egress_check", "read_token", "operate_token", "public_status", "proxy", "ca_file"}
    fixed = {"host", "port", "database_url", "data_dir", "location", "allow_embedded"}
    assert {*ServiceSettings.__dataclass_fields__} == swappable | fixed | {"max_raw_bytes"}
