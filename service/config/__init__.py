"""The configuration: one strict YAML file and `ROUTEPROOF_*` variables in, a frozen `Config` or all mistakes out."""

from service.config.derived import cells, fingerprint, host_of, route_rows
from service.config.durations import parse_duration, show_duration
from service.config.loading import Config, adhoc_route, changes_needing_restart, content_hash, load, read_content
from service.config.mistakes import ConfigError, Mistake
from service.config.schema import json_schema
from service.config.secret_refs import credentials
from service.config.settings import ServiceSettings
from service.config.urls import redacted_url, secrets_in_url

__all__ = [
    "Config",
    "ConfigError",
    "Mistake",
    "ServiceSettings",
    "adhoc_route",
    "cells",
    "changes_needing_restart",
    "content_hash",
    "credentials",
    "fingerprint",
    "host_of",
    "json_schema",
    "load",
    "parse_duration",
    "read_content",
    "redacted_url",
    "route_rows",
    "secrets_in_url",
    "show_duration",
]
