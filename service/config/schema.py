"""The sections of the file, as pydantic models: what keys there are and what each may hold.

Keys that must be there default to nothing here and are asked for by `load`, so that the rest of a section with
mistakes can still be checked.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.config.durations import Duration, Span
from service.config.quantities import Count, Size
from service.config.values import (
    MINIMUM_TOKEN_CAP,
    AbsolutePath,
    AuthName,
    BaseUrl,
    BodyKey,
    CertificateFile,
    ContractName,
    Currency,
    DatabaseUrl,
    DialectName,
    FieldName,
    HeaderName,
    HeaderValue,
    Identifier,
    Label,
    Listen,
    Pattern,
    PlainUrl,
    ProxyUrl,
    ShownHeaderName,
    SiteUrl,
    Tags,
    Text,
    TokenCapValue,
    Variable,
)


class Section(BaseModel):
    """A mapping of the file. `REQUIRED` keys must be there."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)
    REQUIRED: ClassVar[tuple[str, ...]] = ()


class ServiceSection(Section):
    listen: Listen = ("127.0.0.1", 8080)
    external_url: SiteUrl | None = None
    database_url: DatabaseUrl | None = None
    database_url_file: AbsolutePath | None = None
    location: Label = "default"
    egress_check: list[PlainUrl] = []
    read_token_env: Variable | None = None
    read_token_file: AbsolutePath | None = None
    operate_token_env: Variable | None = None
    operate_token_file: AbsolutePath | None = None
    public_status: bool = True
    proxy: ProxyUrl | None = None
    ca_file: CertificateFile | None = None
    allow_embedded: bool = False
    max_raw_bytes: Size | None = Field(default=None, description="raw verdicts are kept 30 days, or up to this size")


class TokenCapSection(Section):
    field: FieldName | None = None
    value: TokenCapValue = MINIMUM_TOKEN_CAP


def _by_name(value: object) -> object:
    """A bare name stands for a mapping that holds only the name."""
    return {"name": value} if isinstance(value, str) else value


class ContractSection(Section):
    name: ContractName
    every: int | None = Field(default=None, ge=1, le=1000, description="default: the contract's own")


ContractEntry = Annotated[
    ContractSection, BeforeValidator(_by_name, json_schema_input_type=ContractName | ContractSection)
]


class SecretSection(Section):
    env: Variable | None = None
    file: AbsolutePath | None = None


class BudgetSection(Section):
    tokens_per_day: Count | None = None
    requests_per_day: Count | None = None


class PriceSection(Section):
    input_per_million: float = Field(ge=0, le=100_000)
    output_per_million: float = Field(ge=0, le=100_000)
    currency: Currency = "USD"


class DefaultsSection(Section):
    interval: Duration = timedelta(minutes=5)
    fresh_for: Span = 3.0
    expires_after: Span = 6.0
    deadline: Duration = timedelta(seconds=60)
    contracts: Annotated[list[ContractEntry] | None, Field(min_length=1)] = None
    required: list[ContractName] | None = None
    parallel_tool_calls: bool | None = None
    include_usage: bool = True
    token_cap: TokenCapSection = TokenCapSection()
    budget: BudgetSection | None = Field(default=None, description="the most that may be spent in a UTC day")
    price: PriceSection | None = Field(default=None, description="shown as money; limits nothing")


class RouteSection(DefaultsSection):
    REQUIRED = ("name", "dialect", "base_url", "model")
    model_config = ConfigDict(json_schema_extra={"required": list(REQUIRED)})

    name: Text = Field(default_factory=str, max_length=200)
    id: Identifier | None = Field(default=None, description="default: the name in lower case, other characters as -")
    provider: Text | None = Field(default=None, max_length=100, description="default: the host of base_url")
    dialect: DialectName = Field(default_factory=str)
    base_url: BaseUrl = Field(default_factory=str)
    model: Text = Field(default_factory=str, max_length=300)
    api_key_env: Variable | None = None
    api_key_file: AbsolutePath | None = None
    auth: AuthName | None = Field(default=None, description="default: the dialect's own way")
    headers: dict[ShownHeaderName, HeaderValue] = {}
    secret_headers: dict[HeaderName, SecretSection] = {}
    body: dict[BodyKey, Any] = {}
    temperature: float | None = Field(default=None, ge=0, le=10)
    served_model_pattern: Pattern | None = None
    proxy: ProxyUrl | None = None
    ca_file: CertificateFile | None = None
    tags: Tags = []


class HostSection(Section):
    max_concurrency: int | None = Field(default=None, ge=1, le=10_000)
    max_requests_per_minute: int | None = Field(default=None, ge=1, le=100_000)


class ProviderSection(HostSection):
    status_url: PlainUrl | None = Field(default=None, description="where the provider tells of its outages")


class _File(Section):
    model_config = ConfigDict(title="routeproof.yaml")

    service: ServiceSection = ServiceSection()
    defaults: DefaultsSection = DefaultsSection()
    providers: dict[str, ProviderSection] = {}
    hosts: dict[str, HostSection] = Field(default={}, description="HOST or HOST:PORT, as base_url has it")
    routes: list[RouteSection] = Field(min_length=1)


SECTIONS = frozenset(_File.model_fields)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors: keys, types, defaults, and the names that this version knows."""
    schema = _File.model_json_schema()
    for section in (ServiceSection, DefaultsSection, RouteSection):
        defaults = section().model_dump(mode="json")
        for key, part in schema["$defs"][section.__name__]["properties"].items():
            if "default" in part:  # pydantic's own form of a duration isn't the file's
                part["default"] = defaults[key]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
