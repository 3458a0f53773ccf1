"""Who may see and who may change: tokens, the sessions that a token opens, and how often one may be guessed.

Nothing here does I/O, and every clock is handed in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from service.config.settings import ServiceSettings
from service.model import Secret

SESSION_S = 12 * 3600
"""How long a login lasts."""
TRIES_PER_MINUTE = 5
"""Failed logins of one address in a minute, and as many at once."""
TRIES_PER_MINUTE_OF_ALL = 60
_ADDRESSES = 1024


class Role(StrEnum):
    """What a token is for. Who may operate may read."""

    READ = "read"
    OPERATE = "operate"


class Need(StrEnum):
    """What a request asks of its sender. `status`: names and states only, which may be public."""

    NOTHING = "nothing"
    STATUS = "status"
    READ = "read"
    OPERATE = "operate"


class Answer(StrEnum):
    """Whether a request is answered: it is, after a login, or not by this sender, or by none as things are set."""

    YES = "yes"
    LOG_IN = "log_in"
    NO = "no"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Session:
    """One login: who it made the sender, until when (seconds of the epoch), told apart by `nonce`."""

    role: Role
    ends_at: int
    nonce: str


@dataclass(frozen=True)
class Viewer:
    """Who sent a request, and what they may do. `form_token` is there in a session, and goes into each form.

    `may_operate`: whether anybody can, by a login with the operate token.
    """

    role: Role | None = None
    reads: bool = False
    operates: bool = False
    may_log_in: bool = False
    may_operate: bool = False
    form_token: str | None = None

    @property
    def name(self) -> str:
        """Who a log line says it was."""
        if self.role is None:
            return "anonymous"
        return f"{self.role} {'session' if self.form_token else 'token'}"


@dataclass(frozen=True)
class Access:
    """What is configured about access. Without a read token everything may be read; without an operate token nothing
    may be changed, whatever the address.

    Sessions are signed by a key that comes from the token which opened them: every replica knows it, and a changed
    token ends them. A login can't be ended on the server before its time but so.
    """

    read_token: Secret | None = None
    operate_token: Secret | None = None
    public_status: bool = True
    external_url: str = "http://127.0.0.1:8080"

    @classmethod
    def of(cls, settings: ServiceSettings) -> Access:
        return cls(settings.read_token, settings.operate_token, settings.public_status, settings.external_url)

    @property
    def secure(self) -> bool:
        """Whether people come by https."""
        return urlsplit(self.external_url).scheme == "https"

    @property
    def cookie(self) -> str:
        return "__Host-routeproof" if self.secure else "routeproof"

    def role_of(self, token: bytes) -> Role | None:
        """Whose token it is. Takes as long for a wrong one as for a right one."""
        given = hashlib.sha256(token).digest()
        found = None
        for role, known in self._tokens().items():
            same = hmac.compare_digest(given, hashlib.sha256((known.reveal() if known else "").encode()).digest())
            found = role if same and known is not None else found
        return found

    def viewer(self, role: Role | None, form_token: str | None = None) -> Viewer:
        return Viewer(
            role=role,
            reads=role is not None or self.read_token is None,
            operates=role is Role.OPERATE,
            may_log_in=self.read_token is not None or self.operate_token is not None,
            may_operate=self.operate_token is not None,
            form_token=form_token,
        )

    def answers(self, need: Need, viewer: Viewer) -> Answer:
        """Whether a request with this need is answered to this viewer."""
        if need is Need.OPERATE:
            if self.operate_token is None:
                return Answer.NOBODY
            return Answer.YES if viewer.operates else Answer.LOG_IN if viewer.role is None else Answer.NO
        open_to_all = need is Need.NOTHING or (need is Need.STATUS and self.public_status)
        return Answer.YES if open_to_all or viewer.reads else Answer.LOG_IN

    def open_session(self, role: Role, now: float) -> str:
        """The value of a cookie that makes its bearer `role` until 12 h after `now`, seconds of the epoch."""
        session = Session(role, int(now) + SESSION_S, secrets.token_urlsafe(16))
        return f"{_text(session)}.{self._sign('session', session)}"

    def session(self, cookie: str, now: float) -> Session | None:
        """The session that a cookie stands for; None when it is none of ours, over, or its token is another by now."""
        if not cookie.isascii():
            return None
        try:
            role, ends_at, nonce, signature = cookie.split(".")
            session = Session(Role(role), int(ends_at), nonce)
        except ValueError:
            return None
        if self._tokens()[session.role] is None or not _same(signature, self._sign("session", session)):
            return None
        return session if now < session.ends_at else None

    def form_token(self, session: Session) -> str:
        """What a form must bring along: a page elsewhere can't read it."""
        return self._sign("form", session)

    def is_form_token(self, given: str, session: Session) -> bool:
        return _same(given, self.form_token(session))

    def same_origin(self, origin: str | None, fetch_site: str | None, host: str) -> bool:
        """Whether a browser says that a page of ours sent a request. Saying nothing isn't enough.

        A proxy in front may speak https to people and http to us, and may keep `host` or not.
        """
        if fetch_site is not None and fetch_site != "same-origin":
            return False
        if origin is None:
            return fetch_site is not None
        ours = urlsplit(self.external_url)
        return origin.lower() in {f"http://{host}".lower(), f"https://{host}".lower(), f"{ours.scheme}://{ours.netloc}"}

    def _tokens(self) -> Mapping[Role, Secret | None]:
        return {Role.READ: self.read_token, Role.OPERATE: self.operate_token}

    def _sign(self, purpose: str, session: Session) -> str:
        token = self._tokens()[session.role]
        key = hmac.digest((token.reveal() if token else "").encode(), b"routeproof sessions", "sha256")
        signed = hmac.digest(key, f"{purpose} {_text(session)}".encode(), "sha256")
        return base64.urlsafe_b64encode(signed).decode().rstrip("=")


def _text(session: Session) -> str:
    return f"{session.role}.{session.ends_at}.{session.nonce}"


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), known.encode())


def bearer(authorization: bytes | None) -> bytes | None:
    """The token of an `Authorization` header; None for another scheme, which isn't for us."""
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


@dataclass
class _Bucket:
    left: float
    at: float


class LoginLimit:
    """How often a wrong token may be tried: by one address, and by all together. A right one costs nothing.

    Every time is in seconds of one clock. Of addresses the last 1,024 are remembered; who comes from more than
    that still meets the limit of all.
    """

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, _Bucket] = OrderedDict()
        self._all = _Bucket(TRIES_PER_MINUTE_OF_ALL, 0.0)

    def wait_s(self, address: str, now: float) -> float:
        """Seconds until a login may be tried from `address`; 0: now."""
        mine = self._by_address.get(_network(address))
        waits = [_wait(self._all, TRIES_PER_MINUTE_OF_ALL, now)]
        waits += [_wait(mine, TRIES_PER_MINUTE, now)] if mine else []
        return max(waits)

    def failed(self, address: str, now: float) -> None:
        """A wrong token came from `address`."""
        network = _network(address)
        mine = self._by_address.pop(network, None) or _Bucket(TRIES_PER_MINUTE, now)
        self._by_address[network] = mine
        while len(self._by_address) > _ADDRESSES:
            self._by_address.popitem(last=False)
        for bucket, size in ((mine, TRIES_PER_MINUTE), (self._all, TRIES_PER_MINUTE_OF_ALL)):
            bucket.left = _left(bucket, size, now) - 1
            bucket.at = now


def _left(bucket: _Bucket, size: int, now: float) -> float:
    return min(size, bucket.left + max(0.0, now - bucket.at) * size / 60)


def _wait(bucket: _Bucket, size: int, now: float) -> float:
    return max(0.0, (1 - _left(bucket, size, now)) * 60 / size)


def _network(address: str) -> str:
    """Who has one IPv6 address has 2^64 of them."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)


def local_path(path: str) -> str:
    """`path` if it leads to a page of ours, else the first page: a link elsewhere mustn't come back from a login."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and path.isascii()
    return path if safe and len(path) <= 2000 else "/"


def page_before(referer: str | None) -> str:
    """The page of ours that a form was sent from, by its `Referer`; the first page where it isn't told."""
    try:
        parts = urlsplit(referer or "/")
    except ValueError:
        return "/"
    path = local_path(parts.path + (f"?{parts.query}" if parts.query else ""))
    return "/" if path.startswith("/login") else path


def cookie_value(cookies: Iterable[bytes], name: str) -> str | None:
    """The first cookie of this name among `Cookie` headers."""
    for header in cookies:
        for pair in header.decode("latin-1").split(";"):
            key, separator, value = pair.strip().partition("=")
            if separator and key == name:
                return value
    return None
