"""What holds for every answer: our own host names only, and the security headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi.responses import PlainTextResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.web import machines

SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Refuses a Host that isn't ours, and puts the security headers on every answer.

    A page elsewhere can point a name of its own at this address; without the check a browser would let it read. An
    address can't be pointed elsewhere, so that health checks and scrapes may use any (a pod's own, say).
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        host = Headers(scope=scope).get("host")
        ours = host and _is_ours(host, self._names, any_address=scope["path"] in machines.PATHS)
        app = self._app if ours else _refusal(host)
        await app(scope, receive, guarded)


def own_names(external_url: str) -> frozenset[str]:
    """The host names that this service answers to, besides loopback addresses."""
    return frozenset(name for name in ("localhost", urlsplit(external_url).hostname) if name)


def _refusal(host: str | None) -> ASGIApp:
    if not host:
        return PlainTextResponse("The request names no host.\n", status_code=400)
    return PlainTextResponse(
        "This host name isn't served here. Use a loopback address, or set service.external_url to the address "
        "that you use.\n",
        status_code=421,
    )


def _is_ours(host: str, names: frozenset[str], *, any_address: bool) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # an unclosed bracket
        return False
    if name in names:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback or any_address
    except ValueError:
        return False
