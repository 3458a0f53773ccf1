"""How long a refusal asks us to wait, in every form in which that is said, and in none that isn't one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.refusal import read_refusal, read_stream_error
from service.waits import LONGEST, duration, retry_after

NOW = datetime(2025, 3, 9, 3, 12, 7, tzinfo=UTC)


def http_date(seconds: float, now: datetime = NOW) -> str:
    return format_datetime(now + timedelta(seconds=seconds), usegmt=True)


def wait(text: str = "", hints: tuple[str, ...] = (), resets: bool = True, **headers: str) -> float | None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return retry_after(given, hints, text, NOW, resets=resets)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20", 20),
        ("0", 0),
        ("1.5", 1.5),
        ("20s", 20),
        ("250ms", 0.25),
        ("6m0s", 360),
        ("9m38.016s", 578.016),
        ("1h2m3s", 3723),
        ("1d", 86400),
        ("17.334s", 17.334),
        (" 5 s ", 5),
        ("1H", 3600),
    ],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "soon",
            "-5",
            "+5",
            "NaN",
            "inf",
            "-inf",
            "1e5",
            "1e400",
            "5x",
            "5 seconds",
            "s",
            "m5",
            "1,5",
            "0x10",
        ),
        *("٥", "５s", "²", "1_000", "5s and more", "1:30", "None", "\x00", "1" * 17, "\ud800"),
    ],
)
def test_no_duration(text: str) -> None:
    assert duration(text) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("20", 20),
        ("0", 0),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("20s", 20),
        (http_date(90), 90),
        (http_date(-90), 0),
        ("Sun, 09 Mar 2025 03:13:07 GMT", 60),
        ("Sun, 09-Mar-25 03:13:07 GMT", 60),
        ("Sunday, 09-Mar-25 03:13:07 GMT", 60),
        ("2025-03-09T03:13:07Z", 60),
        ("2025-03-09T04:13:07+01:00", 60),
        (str(int(NOW.timestamp()) + 30), 30),
        (str(10**15), LONGEST),
        ("9" * 9, LONGEST),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, seconds: float) -> None:
    assert wait(retry_after=value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", "soon", "-5", "NaN", "inf", "1e400", "٥", "Sun, 99 Foo 2025", "\ud800", "1" * 5000]
)
def test_a_retry_after_that_says_nothing_gives_way_to_the_next(value: str) -> None:
    assert wait(retry_after=value) is None
    assert wait(retry_after=value, hints=("3s",)) == 3


@pytest.mark.parametrize("skew", [-86400, -61, 0, 61, 86400])
def test_a_date_is_counted_from_the_answers_own_clock(skew: float) -> None:
    theirs = NOW + timedelta(seconds=skew)
    assert wait(retry_after=http_date(45, theirs), date=http_date(0, theirs)) == pytest.approx(45, abs=1)


def test_a_broken_date_leaves_our_own_clock() -> None:
    assert wait(retry_after=http_date(45), date="yesterday") == pytest.approx(45)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after_ms": "x", "retry_after": "2"}, 2),
        ({"retry_after_ms": "-1", "retry_after": "2"}, 2),
        ({"retry_after_ms": "9" * 16}, LONGEST),
    ],
)
def test_milliseconds_are_the_finer_word(headers: dict[str, str], seconds: float) -> None:
    assert wait(**headers) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"anthropic_ratelimit_requests_reset": "2025-03-09T03:12:19Z"}, 12),
        ({"anthropic_ratelimit_tokens_reset": "2025-03-09T03:12:19.5+00:00"}, 12.5),
        ({"anthropic_ratelimit_input_tokens_reset": "2025-03-09T03:12:19Z"}, 12),
        ({"anthropic_ratelimit_unified_reset": str(int(NOW.timestamp()) + 600)}, 600),
        ({"x_ratelimit_reset_requests": "6m0s"}, 360),
        ({"x_ratelimit_reset_tokens": "1s"}, 1),
        ({"x_ratelimit_reset_requests": "120ms"}, 0.12),
        ({"x_ratelimit_reset": str(int(NOW.timestamp() * 1000) + 30_000)}, 30),
        ({"x_ratelimit_reset": "60"}, 60),
        ({"ratelimit_reset": "5"}, 5),
        ({"x_ratelimit_reset_requests": "0s", "x_ratelimit_reset_tokens": "2s"}, 2),
        ({"x_ratelimit_reset_requests": "9s", "x_ratelimit_reset_tokens": "2s"}, 2),
        ({"x_ratelimit_reset": "never"}, None),
    ],
)
def test_reset_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert wait(**headers) == (None if seconds is None else pytest.approx(seconds))
    assert wait(**headers, resets=False) is None


def test_the_order_of_the_forms() -> None:
    every = {"retry_after_ms": "1000", "retry_after": "2", "x_ratelimit_reset": "5"}
    for seconds in (1, 2):
        assert wait("try again in 4s", ("3s",), **every) == seconds
        every.pop("retry_after_ms", None) or every.pop("retry_after")
    every.pop("retry_after", None)
    assert wait("try again in 4s", ("nonsense", "3s"), **every) == 3
    assert wait("try again in 4s", **every) == 4
    assert wait("", **every) == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 20s.", 20),
        ("Please try again in 9m38.016s. Visit the page.", 578.016),
        ("Please try again in 50.597142857s.", 50.597142857),
        ("Please try again in 120ms.", 0.12),
        ("try again in 1h2m3s", 3723),
        ("Try again in 5 seconds.", 5),
        ("Please retry after 60 seconds.", 60),
        ("Please retry in 17.334s.", 17.334),
        ("please wait 2 minutes", 120),
        ("Wait for 3 hours", 10800),
        ("quota resets in 1 day", 86400),
        ("will reset after 7s", 7),
        ("available again in 30 secs", 30),
        ("try again in about 2 mins", 120),
        ("retry after 250 milliseconds", 0.25),
        ("Please try again in 6m0s", 360),
        ("TRY AGAIN IN 5S", 5),
        ("try again in 99999999 days", LONGEST),
    ],
)
def test_a_phrase(text: str, seconds: float) -> None:
    assert wait(text) == pytest.approx(seconds)
    assert wait(f"Rate limit reached for model x: Limit 7000. {text} More words.") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "Please try again later.",
        "try again in a while",
        "within the last 5 minutes, please wait a moment and try again",
        "try again in 5",
        "retry 3 times",
        "limit 20s",
        "wait 5 more seconds",
        "try again in 5 months",
        "try again in 5sx",
        "try again in -5s",
        "try again in ٥s",
        "await 5s",
        "timeout after 30s",
        "Your limit will reset at 2025-03-09 05:38:28",
    ],
)
def test_no_phrase(text: str) -> None:
    assert wait(text) is None


def read(status: int, body: bytes, **headers: str) -> float | None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_refusal(status, given, body, cap_field="max_tokens", now=NOW).retry_after_s


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"17s"}]}}', 17),
        (b'{"error":{"details":[{"retryDelay":"3.002899s"}]}}', 3.002899),
        (b'{"error":{"message":"x"},"retry_after":2.5}', 2.5),
        (b'{"detail":"x","retry_after_seconds":"9"}', 9),
        (b'{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}', 3600),
        (b'{"error":{"message":"Rate limit is exceeded. Try again in 4 seconds."}}', 4),
        (
            b'{"error":{"code":429,"metadata":{"headers":{"X-RateLimit-Reset":"%d"}}}}'
            % (NOW.timestamp() * 1000 + 8000),
            8,
        ),
        (b'{"error":{"code":429,"metadata":{"headers":{"Retry-After":"6"}}}}', 6),
        (b'{"error":{"message":"x"},"retry_after":true}', None),
        (b'{"error":{"message":"x"},"retry_after":NaN}', None),
        (b'{"error":{"message":"x"},"retry_after":1e999}', None),
        (b'{"error":{"message":"x"},"retry_after":-3}', None),
        (b'{"error":{"message":"x"},"retry_after":null}', None),
        (b'{"error":{"message":"x"},"retry_after":{"seconds":1}}', None),
        (b'{"error":{"code":429,"metadata":{"headers":{"Retry-After":6}}}}', None),
        (b"slow down", None),
    ],
)
def test_a_wait_in_the_body(body: bytes, seconds: float | None) -> None:
    assert read(429, body) == (None if seconds is None else pytest.approx(seconds))


def test_the_answers_own_headers_outrank_the_ones_that_a_gateway_quotes() -> None:
    body = b'{"error":{"code":429,"metadata":{"headers":{"Retry-After":"6","Date":"Sun, 09 Mar 2025 00:00:00 GMT"}}}}'
    assert read(429, body, retry_after="2") == 2


def test_reset_headers_come_with_every_answer_and_count_for_a_rate_limit_only() -> None:
    resets = {"x_ratelimit_reset_requests": "8m", "anthropic_ratelimit_tokens_reset": "2025-03-10T03:12:07Z"}
    assert read(429, b"", **resets) == 480
    for status in (400, 401, 402, 403, 404, 500, 503, 529):
        assert read(status, b"", **resets) is None
    assert read(503, b"", **resets, retry_after="5") == 5


def test_a_wait_inside_a_stream() -> None:
    data = {"response": {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 6s."}}}
    assert read_stream_error(data, {}, cap_field="max_tokens", now=NOW).retry_after_s == 6


HOSTILE = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="0123456789.smhd -:TZ+,eE٥²MonJaGT", max_size=40),
    st.from_regex(r"\A[0-9]{1,30}(\.[0-9]{1,30})?(ms|s|m|h|d)?\Z"),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: format_datetime(moment)),
)
NAMES = st.sampled_from(
    [
        "retry-after",
        "retry-after-ms",
        "date",
        "x-ratelimit-reset",
        "anthropic-ratelimit-tokens-reset",
        "ratelimit-reset",
    ]
)


@given(st.dictionaries(NAMES, HOSTILE), st.lists(HOSTILE, max_size=3), HOSTILE, st.datetimes(timezones=st.just(UTC)))
@settings(max_examples=400, deadline=None)
def test_no_wait_raises_or_is_negative_or_endless(
    headers: dict[str, str], hints: list[str], text: str, now: datetime
) -> None:
    seconds = retry_after(headers, hints, f"try again in {text}", now, resets=True)
    assert seconds is None or 0 <= seconds <= LONGEST
