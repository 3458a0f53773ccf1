"""The values of the file: names, URLs, headers and the like. Messages never repeat a value."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, PlainSerializer, PlainValidator, WithJsonSchema

from service import contracts, dialects
from service.config.mistakes import did_you_mean, refuse
from service.config.urls import host_and_port, looks_secret
from service.model import Auth, Secret

MINIMUM_TOKEN_CAP = 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"[^\s<>\"{}|\\^`%$@:/?#\[\]]+")

_SENT_BY_PROBE = frozenset(
    {"accept", "accept-encoding", "cache-control", "connection", "content-encoding", "content-length"}
    | {"content-type", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
CREDENTIAL_HEADERS: Mapping[Auth, str] = {
    Auth.BEARER: "authorization",
    Auth.API_KEY: "api-key",
    Auth.X_API_KEY: "x-api-key",
    Auth.X_GOOG_API_KEY: "x-goog-api-key",
}
_IN_BODY = {
    "max_completion_tokens": "use token_cap",
    "max_tokens": "use token_cap",
    "messages": "the probe's own question stands there",
    "model": "use the route's model",
    "parallel_tool_calls": "use the route's parallel_tool_calls",
    "stream": "a probe always streams",
    "stream_options": "use include_usage",
    "temperature": "use the route's temperature",
    "tool_choice": "the probe's own question stands there",
    "tools": "the probe's own question stands there",
}


def slug(name: str) -> str:
    """The id that a name gives: lower case, `[a-z0-9._-]+`, beginning with a letter or digit. Can be empty."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:100]


def _text(value: str) -> str:
    if not value.strip():
        refuse("must not be empty")
    if _CONTROL.search(value):
        refuse("holds a control character")
    if value != value.strip():
        refuse("has white space around it")
    return value


def _like(pattern: str, message: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            refuse(message)
        return value

    return AfterValidator(check)


def _check_url(value: str, *, userinfo: bool = False) -> SplitResult:
    """The parts of an absolute http(s) URL; anything else is refused with the reason."""
    if _CONTROL.search(value) or " " in value:
        refuse("isn't a URL: it holds a space or a control character")
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        refuse("isn't a URL: its host or port can't be read")
    if url.scheme not in ("http", "https"):
        refuse("must be a URL that begins with http:// or https://")
    if not url.hostname or port == 0 or not _is_host(url.hostname):
        refuse("isn't a URL: its host or port can't be read")
    if "#" in value:
        refuse("must not hold a fragment (#)")
    if not userinfo and "@" in url.netloc:
        refuse("must not hold a user name or password")
    return url


def _is_host(host: str) -> bool:
    if ":" not in host:
        return bool(_HOST.fullmatch(host))
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _base_url(value: str) -> str:
    _check_url(value, userinfo=True)
    return value


def _proxy(value: str) -> str:
    url = _check_url(value, userinfo=True)
    if url.path not in ("", "/") or "?" in value:
        refuse("must be http://HOST:PORT, without a path or query")
    return value


def _plain_url(value: str) -> str:
    _check_url(value)
    return value


def _site(value: str) -> str:
    url = _check_url(value)
    if "?" in value:
        refuse("must not hold a query")
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


def hosts_of(key: str) -> tuple[str, ...]:
    """The hosts that `HOST` or `HOST:PORT` stands for, each with its port: without one, the ports of https and http."""
    wanted = "must be HOST or HOST:PORT, as base_url has it"
    try:
        url = _check_url(f"https://{key}")
    except ValueError:
        refuse(wanted)
    if url.netloc != key or key.endswith(":"):
        refuse(wanted)
    return tuple(dict.fromkeys(host_and_port(f"{scheme}://{key}") for scheme in ("https", "http")))


def _listen(value: object) -> tuple[str, int]:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or bracketed != (":" in host):
        refuse("must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    if not host or not _is_host(host):
        refuse("must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return host, int(port)


def database_url(value: object) -> Secret:
    """The URL of a PostgreSQL database, for the driver of this service; it can hold a password."""
    if not isinstance(value, str) or not re.match(r"postgres(ql)?(\+psycopg)?://", value):
        refuse("must be a PostgreSQL URL, such as postgresql://user@host/name")
    return Secret(value)


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        refuse(f"isn't a regular expression: wrong at character {(error.pos or 0) + 1}")
    return value


def _one_of(kind: str, known: Iterable[str], value: str) -> str:
    names = sorted(known)
    if value not in names:
        refuse(f"no such {kind}" + (did_you_mean(value, names) or f"; known: {', '.join(names)}"))
    return value


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        refuse("isn't the name of a header")
    if name.lower() in _SENT_BY_PROBE:
        refuse("the probe sends this header itself")
    return name


def _shown_header_name(name: str) -> str:
    _header_name(name)
    if name.lower() in CREDENTIAL_HEADERS.values():
        refuse("the probe sends the credential itself: use api_key_env and auth")
    if name.lower() in ("cookie", "proxy-authorization") or looks_secret(name):
        refuse("headers are shown: name a variable or file under secret_headers")
    return name


def _header_value(value: str) -> str:
    if not sendable(value):
        refuse("can't be sent in a header: it is empty, not Latin-1, or has white space around it")
    return value


def sendable(value: str) -> bool:
    """Whether a header can carry it: Latin-1 without control characters, no white space around it, not empty."""
    return bool(re.fullmatch(r"[\x20-\x7e\xa0-\xff]+", value)) and value == value.strip()


def _certificate_file(value: str) -> str:
    if not value.startswith("/") or "\0" in value:
        refuse("must be an absolute path")
    if not os.path.isfile(value) or not os.access(value, os.R_OK):
        refuse("there is no such file, or it can't be read")
    return value


def _token_cap(value: int) -> int:
    if value < MINIMUM_TOKEN_CAP:
        refuse(f"must be at least {MINIMUM_TOKEN_CAP}: reasoning models run out with less, and look broken")
    return value


def _body_key(key: str) -> str:
    if key in _IN_BODY:
        refuse(f"isn't taken here: {_IN_BODY[key]}")
    return key


TokenCapValue = Annotated[
    int, AfterValidator(_token_cap), WithJsonSchema({"type": "integer", "minimum": MINIMUM_TOKEN_CAP})
]
Text = Annotated[str, AfterValidator(_text)]
Identifier = Annotated[
    str,
    _like(
        r"[a-z0-9][a-z0-9._-]{0,99}",
        "must be of a-z, 0-9, dot, _ and -, begin with a letter or digit and have at most 100 characters",
    ),
]
Label = Annotated[str, _like(r"[A-Za-z0-9._-]{1,64}", "must be 1 to 64 of A-Z, a-z, 0-9, dot, _ and -")]
# lower case is refused because real keys (hf_…, gsk_…, hexadecimal ones) would pass for names otherwise
Variable = Annotated[
    str,
    _like(r"[A-Z_][A-Z0-9_]*", "must be the name of an environment variable (A-Z, 0-9, _), never the secret itself"),
]
AbsolutePath = Annotated[str, _like(r"/[^\x00-\x1f]+", "must be an absolute path, never the secret itself")]
CertificateFile = Annotated[str, AfterValidator(_certificate_file)]
Currency = Annotated[str, _like(r"[A-Z]{3}", "must be three capital letters, such as USD")]
FieldName = Annotated[str, _like(r"[A-Za-z_][A-Za-z0-9_]{0,63}", "must be the name of a field of the request")]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
ProxyUrl = Annotated[str, AfterValidator(_proxy)]
PlainUrl = Annotated[str, AfterValidator(_plain_url)]
SiteUrl = Annotated[str, AfterValidator(_site)]
DatabaseUrl = Annotated[Secret, PlainValidator(database_url), WithJsonSchema({"type": "string"})]
Listen = Annotated[
    tuple[str, int],
    PlainValidator(_listen),
    PlainSerializer(lambda at: f"{at[0]}:{at[1]}", return_type=str),
    WithJsonSchema({"type": "string"}),
]
Pattern = Annotated[str, AfterValidator(_regex), WithJsonSchema({"type": "string", "format": "regex"})]
DialectName = Annotated[
    str,
    AfterValidator(lambda name: _one_of("dialect", dialects.DIALECTS, name)),
    WithJsonSchema({"enum": sorted(dialects.DIALECTS)}),
]
ContractName = Annotated[
    str,
    AfterValidator(lambda name: _one_of("contract", contracts.CONTRACTS, name)),
    WithJsonSchema({"enum": sorted(contracts.CONTRACTS)}),
]
AuthName = Annotated[
    str,
    AfterValidator(lambda name: _one_of("way to send a credential", [auth.value for auth in Auth], name)),
    WithJsonSchema({"enum": [auth.value for auth in Auth]}),
]
HeaderName = Annotated[str, AfterValidator(_header_name)]
ShownHeaderName = Annotated[str, AfterValidator(_shown_header_name)]
HeaderValue = Annotated[str, AfterValidator(_header_value)]
BodyKey = Annotated[str, AfterValidator(_body_key)]
Tags = Annotated[list[Label], AfterValidator(lambda tags: list(dict.fromkeys(tags)))]
