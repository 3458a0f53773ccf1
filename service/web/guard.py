"""What holds for every answer: our own host names only, and the security headers."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fastapi import Response
from fastapi.responses import PlainTextResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.web import machines, problems
from service.web.access import Access
from service.web.problems import Problem

SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a browser would hide the origin of our own forms from us
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Refuses a Host that isn't ours, and puts the security headers on every answer.

    A page elsewhere can point a name of its own at this address; without the check a browser would let it read. An
    address can't be pointed elsewhere, so that health checks and scrapes may use any (a pod's own, say).
    """

    def __init__(self, app: ASGIApp, access: Callable[[], Access]) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                if path.startswith("/badge/"):  # shown by pages elsewhere
                    headers["cross-origin-resource-policy"] = "cross-origin"
                if not path.startswith("/static/"):
                    headers.add_vary_header("authorization, cookie")
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        path = scope["path"]
        host = Headers(scope=scope).get("host")
        names = own_names(self._access().external_url)
        ours = host and _is_ours(host, names, any_address=path in machines.PATHS)
        app = self._app if ours else _refusal(host, path)
        await app(scope, receive, guarded)


def with_security(answer: Response) -> Response:
    """An answer that is made outside of the guard, with the same headers."""
    answer.headers.update(SECURITY_HEADERS)
    return answer


def own_names(external_url: str) -> frozenset[str]:
    """The host names that this service answers to, besides loopback addresses."""
    return frozenset(name for name in ("localhost", urlsplit(external_url).hostname) if name)


def _refusal(host: str | None, path: str) -> ASGIApp:
    problem = (
        Problem(
            problems.WRONG_HOST,
            "This host name isn't served here. Use a loopback address, or set service.external_url to the address "
            "that you use.",
        )
        if host
        else Problem(problems.BAD_REQUEST, "The request names no host.")
    )
    if problems.is_api(path):
        return problems.answer(problem)
    return PlainTextResponse(f"{problem.detail}\n", problem.kind.status)


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
