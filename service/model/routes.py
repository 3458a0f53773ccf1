"""Routes, how they are configured, and the secrets that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal


class Secret:
    """A value that must never be shown. It prints as `***`; `reveal()` is called where it is sent or searched for."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class Auth(StrEnum):
    """How the credential is sent: `Authorization: Bearer`, a header of that name, or not at all."""

    BEARER = "bearer"
    API_KEY = "api-key"
    X_API_KEY = "x-api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    NONE = "none"


@dataclass(frozen=True)
class SecretRef:
    """Where a secret is read from, at each probe: an environment variable or a file. Never the secret itself."""

    env: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"env:{self.env}" if self.env else f"file:{self.file}"


@dataclass(frozen=True)
class TokenCap:
    """The token-cap field of a request and its value. `field` None: `max_tokens`, then `max_completion_tokens`
    when the first is refused by name."""

    field: str | None = None
    value: int = 1024


@dataclass(frozen=True)
class ContractUse:
    """One contract on one route: asked every `every`-th interval; `required` counts for the route's state."""

    name: str
    every: int = 1
    required: bool = True


@dataclass(frozen=True)
class Budget:
    """The most that a route may spend in a UTC day. None: as much as it takes."""

    tokens_per_day: int | None = None
    requests_per_day: int | None = None


@dataclass(frozen=True)
class Price:
    """What a million tokens cost, for show: it limits nothing. `currency` is a code of three capital letters."""

    input_per_million: float
    output_per_million: float
    currency: str = "USD"


@dataclass(frozen=True)
class Limit:
    """What may be sent from one location to a provider, or to a host: requests at once and requests a minute.

    `name` is that of the provider, or the host with its port as `Cell.host` has it. None: no limit.
    """

    scope: Literal["provider", "host"]
    name: str
    max_concurrency: int | None = None
    max_requests_per_minute: int | None = None


@dataclass(frozen=True)
class Route:
    """One way to reach one model, as configured. `id` is the stable key, `name` is for people. `base_url` and `proxy`
    may carry secrets of their own (userinfo, query values)."""

    id: str
    name: str
    provider: str
    dialect: str
    base_url: str
    model: str
    key: SecretRef | None = None
    auth: Auth | None = None  # the dialect's own way
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, SecretRef] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    token_cap: TokenCap = TokenCap()
    parallel_tool_calls: bool | None = None
    include_usage: bool = True
    temperature: float | None = None
    served_model_pattern: str | None = None
    proxy: str | None = None
    ca_file: str | None = None
    deadline: timedelta = timedelta(seconds=60)
    interval: timedelta = timedelta(minutes=5)
    fresh_for: float | timedelta = 3.0  # a number is a multiple of the cell's own interval
    expires_after: float | timedelta = 6.0
    contracts: tuple[ContractUse, ...] = ()
    budget: Budget | None = None
    price: Price | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Credentials:
    """The revealed secrets of a route for one probe. `missing` names the references that could not be read."""

    key: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
