"""Who may see and who may change: every rule, without a network and with a clock that the test moves."""

from __future__ import annotations

import pytest

from service.model import Secret
from service.web import access as module
from service.web.access import (
    SESSION_S,
    TRIES_PER_MINUTE,
    TRIES_PER_MINUTE_OF_ALL,
    Access,
    Answer,
    LoginLimit,
    Need,
    Role,
    bearer,
    cookie_value,
    local_path,
)
from service.web.door import need_of

READ, OPERATE = Secret("r" * 20), Secret("o" * 20)
NEITHER, ONLY_READ, ONLY_OPERATE = Access(), Access(READ), Access(None, OPERATE)
BOTH, PRIVATE = Access(READ, OPERATE), Access(READ, OPERATE, public_status=False)
YES, LOG_IN, NO, NOBODY = Answer.YES, Answer.LOG_IN, Answer.NO, Answer.NOBODY


@pytest.mark.parametrize(
    ("access", "role", "answers"),
    [
        # needs:             nothing status  read    operate
        (NEITHER, None, (YES, YES, YES, NOBODY)),
        (ONLY_OPERATE, None, (YES, YES, YES, LOG_IN)),
        (ONLY_OPERATE, Role.OPERATE, (YES, YES, YES, YES)),
        (ONLY_READ, None, (YES, YES, LOG_IN, NOBODY)),
        (ONLY_READ, Role.READ, (YES, YES, YES, NOBODY)),
        (BOTH, None, (YES, YES, LOG_IN, LOG_IN)),
        (BOTH, Role.READ, (YES, YES, YES, NO)),
        (BOTH, Role.OPERATE, (YES, YES, YES, YES)),
        (PRIVATE, None, (YES, LOG_IN, LOG_IN, LOG_IN)),
        (PRIVATE, Role.READ, (YES, YES, YES, NO)),
        (Access(public_status=False), None, (YES, YES, YES, NOBODY)),
    ],
)
def test_what_a_need_meets(access: Access, role: Role | None, answers: tuple[Answer, ...]) -> None:
    assert tuple(access.answers(need, access.viewer(role)) for need in Need) == answers


@pytest.mark.parametrize(
    ("method", "path", "need"),
    [
        ("GET", "/", Need.STATUS),
        ("HEAD", "/", Need.STATUS),
        ("GET", "/badge/alpha.svg", Need.STATUS),
        ("GET", "/routes/alpha", Need.READ),
        ("GET", "/metrics", Need.READ),
        ("GET", "/openapi.json", Need.READ),
        ("GET", "/api/v1/routes", Need.READ),
        ("GET", "/a-path-of-tomorrow", Need.READ),
        ("GET", "/badgesandmore", Need.READ),
        ("OPTIONS", "/api/v1/routes", Need.READ),
        ("GET", "/livez", Need.NOTHING),
        ("GET", "/readyz", Need.NOTHING),
        ("GET", "/login", Need.NOTHING),
        ("GET", "/static/style.css", Need.NOTHING),
        ("GET", "/livez/more", Need.READ),
        ("POST", "/login", Need.NOTHING),
        ("POST", "/logout", Need.NOTHING),
        ("POST", "/livez", Need.OPERATE),
        ("POST", "/static/style.css", Need.OPERATE),
        ("POST", "/a-path-of-tomorrow", Need.OPERATE),
        ("DELETE", "/", Need.OPERATE),
        ("BREW", "/", Need.OPERATE),
        ("get", "/", Need.OPERATE),
    ],
)
def test_what_is_not_named_as_open_needs_the_most(method: str, path: str, need: Need) -> None:
    assert need_of(method, path) is need


@pytest.mark.parametrize(
    ("access", "token", "role"),
    [
        (BOTH, b"r" * 20, Role.READ),
        (BOTH, b"o" * 20, Role.OPERATE),
        (BOTH, b"r" * 19, None),
        (BOTH, b"r" * 21, None),
        (BOTH, b"R" * 20, None),
        (BOTH, b"", None),
        (BOTH, b"\xff\x00", None),
        (NEITHER, b"", None),
        (NEITHER, b"r" * 20, None),
        (ONLY_READ, b"", None),
    ],
)
def test_a_token_is_one_of_two_or_none(access: Access, token: bytes, role: Role | None) -> None:
    assert access.role_of(token) is role


def test_tokens_are_compared_in_constant_time_and_both_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append((len(given), len(known)))
        return given == known

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    for token in (b"r" * 20, b"o" * 20, b"x", b"x" * 5000):
        BOTH.role_of(token)
    assert compared == [(32, 32)] * 8


def test_a_session_lasts_twelve_hours() -> None:
    cookie = BOTH.open_session(Role.OPERATE, 1000.5)
    session = BOTH.session(cookie, 1000.5)
    assert session is not None
    assert session.role is Role.OPERATE
    assert BOTH.session(cookie, 999 + SESSION_S) is not None
    assert BOTH.session(cookie, 1000 + SESSION_S) is None


@pytest.mark.parametrize(
    ("role", "other", "alive"),
    [
        (Role.READ, Access(READ, OPERATE), True),  # a replica, or the same process after a restart
        (Role.READ, Access(READ, Secret("n" * 20)), True),
        (Role.READ, Access(Secret("n" * 20), OPERATE), False),
        (Role.READ, Access(None, OPERATE), False),
        (Role.OPERATE, Access(READ, Secret("n" * 20)), False),
        (Role.OPERATE, Access(READ, None), False),
        (Role.OPERATE, Access(OPERATE, READ), False),
        (Role.OPERATE, Access(), False),
    ],
)
def test_a_changed_token_ends_its_sessions_and_no_others(role: Role, other: Access, alive: bool) -> None:
    assert (other.session(BOTH.open_session(role, 0), 1) is not None) is alive


def test_no_session_can_be_made_up_for_a_token_that_is_not_configured() -> None:
    # With no token the key is known to everybody.
    assert NEITHER.session(NEITHER.open_session(Role.OPERATE, 0), 1) is None
    assert ONLY_READ.session(ONLY_READ.open_session(Role.OPERATE, 0), 1) is None


def _tampered() -> list[str]:
    role, ends_at, nonce, signature = BOTH.open_session(Role.READ, 0).split(".")
    other = BOTH.open_session(Role.READ, 0).split(".")
    return [
        "",
        "....",
        "...",
        f"operate.{ends_at}.{nonce}.{signature}",
        f"{role}.{int(ends_at) + 1}.{nonce}.{signature}",
        f"{role}.{ends_at}.{other[2]}.{signature}",
        f"{role}.{ends_at}.{nonce}.{other[3]}",
        f"{role}.{ends_at}.{nonce}.",
        f"{role}.{ends_at}.{nonce}",
        f"{role}.{ends_at}.{nonce}.{signature}.more",
        f"{role}.{'9' * 5000}.{nonce}.{signature}",
        f"{role}.nan.{nonce}.{signature}",
        f"{role}.{ends_at}.\xff.{signature}",
        "read.1.\ud800.x",
    ]


@pytest.mark.parametrize("cookie", _tampered(), ids=range(len(_tampered())))
def test_what_was_tampered_with_is_no_session(cookie: str) -> None:
    assert BOTH.session(cookie, 1) is None


def test_a_form_token_is_good_for_its_own_session_only() -> None:
    mine, other = (BOTH.session(BOTH.open_session(Role.OPERATE, 0), 1) for _ in range(2))
    assert mine is not None
    assert other is not None
    assert BOTH.is_form_token(BOTH.form_token(mine), mine)
    assert not BOTH.is_form_token(BOTH.form_token(other), mine)
    assert not BOTH.is_form_token("", mine)
    assert not BOTH.is_form_token("\ud800é", mine)
    # The cookie itself doesn't hold it: who can set a cookie can't make a form.
    cookie = BOTH.open_session(Role.OPERATE, 0)
    session = BOTH.session(cookie, 1)
    assert session is not None
    assert BOTH.form_token(session) not in cookie


@pytest.mark.parametrize(
    ("origin", "fetch_site", "host", "ours"),
    [
        ("http://127.0.0.1:8080", None, "127.0.0.1:8080", True),
        ("http://127.0.0.1:8080", "same-origin", "127.0.0.1:8080", True),
        (None, "same-origin", "127.0.0.1:8080", True),
        ("https://probe.example", None, "probe.example", True),
        ("https://probe.example", None, "127.0.0.1:8080", True),  # a proxy that doesn't keep the host
        ("https://Probe.Example", None, "probe.example", True),
        (None, None, "probe.example", False),
        ("null", None, "probe.example", False),
        ("https://evil.example", None, "probe.example", False),
        ("https://evil.example", "same-origin", "probe.example", False),
        ("https://probe.example", "cross-site", "probe.example", False),
        ("https://probe.example", "same-site", "probe.example", False),
        ("https://probe.example", "none", "probe.example", False),
        ("https://probe.example:444", None, "probe.example", False),
        ("https://probe.example.evil.example", None, "probe.example", False),
        ("http://probe.example", None, "127.0.0.1:8080", False),
        ("", None, "", False),
    ],
)
def test_only_a_page_of_ours_counts_as_the_same_origin(
    origin: str | None, fetch_site: str | None, host: str, ours: bool
) -> None:
    access = Access(external_url="https://probe.example")
    assert access.same_origin(origin, fetch_site, host) is ours


def test_the_cookie_is_bound_to_the_host_where_people_come_by_https() -> None:
    assert (Access().cookie, Access().secure) == ("routeproof", False)
    served = Access(external_url="https://probe.example")
    assert (served.cookie, served.secure) == ("__Host-routeproof", True)


def test_an_address_may_fail_five_times_and_then_waits() -> None:
    limit = LoginLimit()
    for _ in range(TRIES_PER_MINUTE):
        assert limit.wait_s("192.0.2.1", 100) == 0
        limit.failed("192.0.2.1", 100)
    assert limit.wait_s("192.0.2.1", 100) == pytest.approx(12)
    assert limit.wait_s("192.0.2.1", 111.9) > 0
    assert limit.wait_s("192.0.2.1", 112) == pytest.approx(0)
    assert limit.wait_s("192.0.2.2", 100) == 0
    limit.failed("192.0.2.1", 112)
    assert limit.wait_s("192.0.2.1", 112) == pytest.approx(12)
    assert limit.wait_s("192.0.2.1", 1e9) == 0


def test_a_clock_that_is_set_back_lets_nobody_in_and_locks_nobody_out() -> None:
    limit = LoginLimit()
    for _ in range(TRIES_PER_MINUTE):
        limit.failed("192.0.2.1", 1_000_000)
    assert 0 < limit.wait_s("192.0.2.1", 5) <= 12


def test_many_addresses_share_one_limit_and_are_not_all_remembered() -> None:
    limit = LoginLimit()
    for number in range(TRIES_PER_MINUTE_OF_ALL):
        assert limit.wait_s(f"198.51.100.{number}", 0) == 0
        limit.failed(f"198.51.100.{number}", 0)
    assert limit.wait_s("203.0.113.1", 0) == pytest.approx(1)
    for number in range(5000):
        limit.failed(f"10.0.{number // 250}.{number % 250}", number)
    assert len(limit._by_address) == 1024


def test_one_ipv6_network_is_one_address_and_whatever_is_no_address_is_bounded() -> None:
    limit = LoginLimit()
    for number in range(TRIES_PER_MINUTE):
        limit.failed(f"2001:db8:1:2::{number:x}", 0)
    assert limit.wait_s("2001:db8:1:2:ffff::9", 0) > 0
    assert limit.wait_s("2001:db8:1:3::1", 0) == 0
    limit.failed("x" * 10_000, 0)
    assert max(map(len, limit._by_address)) <= 64


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/routes/alpha?q=1&x=%20", True),
        ("/", True),
        ("", False),
        ("//evil.example", False),
        ("/\\evil.example", False),
        ("https://evil.example", False),
        ("javascript:alert(1)", False),
        ("/\t/evil.example", False),
        ("/a\r\nset-cookie: x=1", False),
        ("/ü", False),
        ("/" + "a" * 3000, False),
    ],
)
def test_a_login_leads_back_to_a_page_of_ours(path: str, kept: bool) -> None:
    assert local_path(path) == (path if kept else "/")


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer abc", b"abc"),
        (b"bearer  abc ", b"abc"),
        (b"Bearer", b""),
        (b"Basic abc", None),
        (b"", None),
        (None, None),
        (b"Bearer \xff", b"\xff"),
    ],
)
def test_a_bearer_token_is_read_and_other_schemes_are_not_for_us(header: bytes | None, token: bytes | None) -> None:
    assert bearer(header) == token


def test_the_cookie_is_found_by_its_whole_name() -> None:
    assert cookie_value([b"a=1; routeproof=x.y; routeproof=z"], "routeproof") == "x.y"
    assert cookie_value([b"a=1", b"routeproof=x"], "routeproof") == "x"
    assert cookie_value([b"xrouteproof=x; routeproof; routeproofx=1"], "routeproof") is None
    assert cookie_value([], "routeproof") is None
    assert cookie_value([b"\xff=1; =; ;;"], "routeproof") is None
