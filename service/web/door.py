"""Who may come in: every request passes here, and what isn't named as open needs a token where one is configured."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.web import problems
from service.web.access import Access, Answer, Need, Session, Viewer, bearer, cookie_value
from service.web.problems import Problem, is_api, refusal
from service.web.render import Templates

MAX_BODY = 64 * 1024
FORM = "application/x-www-form-urlencoded"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN = frozenset({"/livez", "/readyz", "/login"})
_OPEN_BELOW = ("/static/", "/problems/")
_STATUS = frozenset({"/"})
_STATUS_BELOW = ("/badge/",)
_OPEN_TO_CHANGE = frozenset({"/login", "/logout"})


def need_of(method: str, path: str) -> Need:
    """What a request needs. A new path needs the most that its method can, until it is named above."""
    if method not in _SAFE:
        return Need.NOTHING if path in _OPEN_TO_CHANGE else Need.OPERATE
    if path in _OPEN or path.startswith(_OPEN_BELOW):
        return Need.NOTHING
    return Need.STATUS if path in _STATUS or path.startswith(_STATUS_BELOW) else Need.READ


def viewer_of(request: Request) -> Viewer:
    """Who sent a request that has passed the door."""
    viewer = request.state.viewer
    assert isinstance(viewer, Viewer)
    return viewer


def form_fields(body: bytes) -> dict[str, str]:
    """The fields of a form sent as `application/x-www-form-urlencoded`, the last of each name. Raises `Problem`."""
    try:
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise Problem(problems.BAD_REQUEST, "The form has too many fields.") from None


class Door:
    """Finds out who sends a request and refuses what they may not do. The body of a change is read here, bounded."""

    def __init__(
        self, app: ASGIApp, access: Callable[[], Access], clock: Callable[[], float], templates: Templates
    ) -> None:
        self._app = app
        self._access = access
        self._clock = clock
        self._templates = templates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        access = self._access()
        request.state.viewer = access.viewer(None)
        try:
            session = self._identify(access, request)
            _refuse_unless_allowed(access, request)
            if request.method not in _SAFE:
                body = await _read(request)
                if session is not None:
                    _refuse_unless_ours(access, session, request, body)
                receive = _again(body, receive)
        except Problem as problem:
            await refusal(self._templates, request, problem)(scope, receive, send)
            return
        if request.method == "HEAD" and is_api(scope["path"]):
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        await self._app(scope, receive, send)

    def _identify(self, access: Access, request: Request) -> Session | None:
        """The session, if it is one; `viewer` is who it is in any case."""
        token = bearer(next((value for name, value in request.headers.raw if name == b"authorization"), None))
        open_to_all = need_of(request.method, request.scope["path"]) is Need.NOTHING
        if token is not None and access.viewer(None).may_log_in and not open_to_all:
            role = access.role_of(token)
            if role is None:
                challenge = 'Bearer realm="routeproof", error="invalid_token"'
                raise Problem(
                    problems.UNAUTHORIZED,
                    "The bearer token isn't one of this service's.",
                    headers={"www-authenticate": challenge},
                )
            request.state.viewer = access.viewer(role)
            return None
        cookies = (value for name, value in request.headers.raw if name == b"cookie")
        cookie = cookie_value(cookies, access.cookie)
        session = access.session(cookie, self._clock()) if cookie else None
        if session is not None:
            request.state.viewer = access.viewer(session.role, access.form_token(session))
        return session


def _refuse_unless_allowed(access: Access, request: Request) -> None:
    need = need_of(request.method, request.scope["path"])
    match access.answers(need, viewer_of(request)):
        case Answer.LOG_IN:
            what = "To see this" if need in (Need.STATUS, Need.READ) else "To change something"
            which = "the read or the operate token" if need in (Need.STATUS, Need.READ) else "the operate token"
            raise Problem(
                problems.UNAUTHORIZED,
                f"{what}, log in with {which}, or send it as a bearer token.",
                headers={"www-authenticate": 'Bearer realm="routeproof"'},
            )
        case Answer.NO:
            raise Problem(problems.FORBIDDEN, "The read token changes nothing: use the operate token.")
        case Answer.NOBODY:
            raise Problem(
                problems.FORBIDDEN,
                "Nothing can be changed while no operate token is configured: set service.operate_token_env or "
                "service.operate_token_file.",
            )
        case Answer.YES:
            pass


def _refuse_unless_ours(access: Access, session: Session, request: Request, body: bytes) -> None:
    """A browser sends the cookie along with a form of anybody's making."""
    headers = request.headers
    if not access.same_origin(headers.get("origin"), headers.get("sec-fetch-site"), headers.get("host", "")):
        raise Problem(problems.FORBIDDEN, "The request doesn't come from a page of this service.")
    given = headers.get("x-form-token")
    if given is None and headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        given = form_fields(body).get("form_token")
    if not access.is_form_token(given or "", session):
        raise Problem(problems.FORBIDDEN, "The form is too old or isn't of this session: load the page again.")


async def _read(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Problem(problems.TOO_LARGE, f"The body has more than {MAX_BODY // 1024} KiB.")
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more for the application, then whatever else comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay
