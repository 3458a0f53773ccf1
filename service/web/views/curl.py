"""The probe's first request as a line for a shell. Secrets stand in it as variables and files, never as themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from service.config.urls import HIDDEN, redacted_url
from service.contracts import CONTRACTS
from service.dialects import DIALECTS
from service.model import Credentials, Route, Secret, SecretRef

NONCE = "bycurl"
"""Stands where each probe has letters of its own."""
_PLACE = "\ue000"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def curl(route: Route) -> str:
    """The forced rung of `native_tools` as this route is asked it. Of a URL or a proxy with secrets in it, the shell's
    variables URL_USER, URL_SECRET and PROXY_URL are expected."""
    ask = CONTRACTS["native_tools"].next_ask(route, NONCE, ())
    assert ask is not None  # every ladder has a first rung
    dialect = DIALECTS[route.dialect]
    wire = dialect.encode(route, ask)
    sent = {
        "user-agent": "routeproof",
        "accept-encoding": "gzip, deflate",
        **wire.headers,
    }
    secrets = dict(_secret_headers(route))
    parts = ["curl -gsSN --compressed --http1.1", *_way(route), *_user(route, secrets)]
    parts += [f"-H {shlex.quote(_header(name, value))}" for name, value in sent.items() if name not in secrets]
    parts += [f'-H "{value}"' for value in secrets.values()]
    parts.append(f"--data-raw {shlex.quote(wire.body.decode())}")
    return " ".join([*parts, _url(wire.url)])


def _header(name: str, value: str) -> str:
    return f"{name}: {value}" if value else f"{name};"  # curl's way to send a header without a value


def _secret_headers(route: Route) -> Iterator[tuple[str, str]]:
    """Names of headers, and the text between double quotes that makes each."""
    for name, ref in route.secret_headers.items():
        yield name.lower(), f"{name.lower()}: {_reference(ref)}"
    if route.key is None:
        return
    for name, value in DIALECTS[route.dialect].authorize(route, Credentials(key=Secret(_PLACE))).items():
        shown = "Authorization" if name == "authorization" else name
        yield name, f"{shown}: {value.replace(_PLACE, _reference(route.key))}"


def _reference(ref: SecretRef) -> str:
    """What a shell puts in, within double quotes."""
    if ref.env is None:
        return f"$(cat {shlex.quote(ref.file or '')})"
    return f"${ref.env}" if _VARIABLE.fullmatch(ref.env) else f"$(printenv {shlex.quote(ref.env)})"


def _way(route: Route) -> Iterator[str]:
    if route.proxy is not None:
        hidden = redacted_url(route.proxy) != route.proxy
        yield '--proxy "$PROXY_URL"' if hidden else f"--proxy {shlex.quote(route.proxy)}"
    if route.ca_file is not None:
        yield f"--cacert {shlex.quote(route.ca_file)}"


def _user(route: Route, secrets: dict[str, str]) -> Iterator[str]:
    if "@" in urlsplit(route.base_url).netloc and "authorization" not in secrets:
        yield '--user "$URL_USER"'


def _url(url: str) -> str:
    """Quoted. What is secret in it is left to a variable, and so stands outside of the quotes."""
    pieces = redacted_url(url).split(HIDDEN)
    return '"$URL_SECRET"'.join(shlex.quote(piece) for piece in pieces if piece or len(pieces) == 1)
