"""How long a refusal asks us to wait, in seconds, from every form in which that is said.

Sources: RFC 9110 §10.2.3 (`Retry-After`: seconds or a date), google.rpc.RetryInfo, the vendors' reset headers, and
phrases as narrow as "try again in 9m38.016s" (corpus: http-groq-429-tpd).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST = 31 * 86400.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s?(ms|d|h|m|s)(?![a-z])")
_DURATION = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?\s?(?:ms|d|h|m|s)\s?){1,6}")
_NUMBER = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,12})?")
_PHRASE = re.compile(
    r"\b(?:try again|retry|please wait|wait|available again|resets?)\s(?:in|after|for)?\s?(?:about )?"
    r"([0-9]{1,12}(?:\.[0-9]{1,12})?\s?(?:ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)"
    r"(?:\s?[0-9]{1,12}(?:\.[0-9]{1,12})?\s?(?:ms|s|m|h))*)(?![a-z])",
    re.IGNORECASE,
)
_LONG_UNITS = re.compile(r"(milliseconds?|seconds?|secs?|minutes?|mins?|hours?|days?)", re.IGNORECASE)
_RESET_HEADERS = (
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-reset",
    "anthropic-ratelimit-unified-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
    "ratelimit-reset",
)


def retry_after(
    headers: Mapping[str, str], hints: Iterable[str], text: str, now: datetime, *, resets: bool
) -> float | None:
    """The wait in seconds, None when nothing says it. `headers` have lower-case names, `hints` are values of
    RetryInfo and its like, `text` is the message, `now` turns dates into waits (the answer's own `Date` if it has
    one). `resets` lets the reset headers count: they come with every answer, and only a rate limit waits for them."""
    now = _date(headers.get("date", "")) or now
    if (milliseconds := headers.get("retry-after-ms", "").strip()) and _NUMBER.fullmatch(milliseconds):
        return _bounded(float(milliseconds) / 1000)
    if wait := headers.get("retry-after", "").strip():
        seconds = _moment_or_duration(wait, now)
        if seconds is not None:
            return seconds
    for hint in hints:
        seconds = duration(hint)
        if seconds is not None:
            return _bounded(seconds)
    if match := _PHRASE.search(text):
        seconds = duration(_LONG_UNITS.sub(_short_unit, match[1]))
        if seconds is not None:
            return _bounded(seconds)
    if not resets:
        return None
    moments = [_moment_or_duration(headers[name].strip(), now) for name in _RESET_HEADERS if name in headers]
    return min((moment for moment in moments if moment), default=None)


def duration(text: str) -> float | None:
    """Seconds of "20", "20s", "1.5s", "9m38.016s", "250ms"; None for anything else."""
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _moment_or_duration(text: str, now: datetime) -> float | None:
    seconds = duration(text)
    if seconds is None:
        moment = _date(text)
        return _bounded((moment - now).total_seconds()) if moment else None
    if seconds > 1e11:  # an epoch in milliseconds
        seconds = seconds / 1000 - now.timestamp()
    elif seconds > 1e9:  # an epoch in seconds
        seconds -= now.timestamp()
    return _bounded(seconds)


def _date(text: str) -> datetime | None:
    """An HTTP date or an RFC 3339 one, as aware UTC."""
    # fromisoformat alone would also take a long run of digits for a date.
    parse = datetime.fromisoformat if re.match("[0-9]{4}-", text) else parsedate_to_datetime
    try:
        moment = parse(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _short_unit(match: re.Match[str]) -> str:
    word = match[1].lower()
    return "ms" if word.startswith("milli") else word[0]


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST)
