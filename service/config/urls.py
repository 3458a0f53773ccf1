"""What of a URL may be shown, and what of it is secret."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus, urlsplit, urlunsplit

_SECRET_WORDS = frozenset(
    {"apikey", "auth", "authorization", "code", "credential", "credentials", "jwt", "key", "passphrase", "passwd"}
    | {"password", "pwd", "secret", "sig", "signature", "token"}
)
HIDDEN = "***"
_PORTS = {"https": 443, "http": 80}


def looks_secret(name: str) -> bool:
    """Whether a query parameter or header of this name usually carries a secret: `api_key`, `accessToken`, `sig`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", name).lower()
    return any(word in _SECRET_WORDS for word in re.split(r"[^a-z0-9]+", words)) or words.endswith(("key", "token"))


def host_and_port(url: str) -> str:
    """`api.example.com:443`: the host of an http(s) URL in lower case, with its port, which may be the scheme's."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[parts.scheme]}"


def redacted_url(url: str) -> str:
    """The URL without userinfo, and with `***` for the value of each query parameter that looks secret."""
    parts = urlsplit(url)
    query = "&".join(f"{name}={HIDDEN}" if secret else item for item, name, _, secret in _query(parts.query))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query))


def secrets_in_url(url: str) -> tuple[str, ...]:
    """What `redacted_url` takes away, as written and decoded: user name, password, secret query values."""
    parts = urlsplit(url)
    userinfo, at, _ = parts.netloc.rpartition("@")
    found = userinfo.split(":", 1) if at else []
    found += [value for _, _, value, secret in _query(parts.query) if secret]
    spellings = (spelling for text in found for spelling in (text, unquote(text), unquote_plus(text)))
    return tuple(dict.fromkeys(filter(None, spellings)))


def _query(query: str) -> list[tuple[str, str, str, bool]]:
    """Each parameter as (as written, name, value, whether it looks secret)."""
    result = []
    for item in query.split("&"):
        name, equals, value = item.partition("=")
        result.append((item, name, value, bool(equals) and looks_secret(unquote_plus(name))))
    return result
