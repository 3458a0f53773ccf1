"""From a file and the environment to a frozen `Config`, or to all of its mistakes at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from service.config import secret_refs
from service.config.limits import read_hosts, read_providers
from service.config.mistakes import COMMAND_LINE, ConfigError, Mistake, Notes, dotted
from service.config.routes import Inherited, read_defaults, read_route, read_routes
from service.config.schema import SECTIONS
from service.config.sections import unknown_key
from service.config.settings import ServiceSettings, read_settings
from service.config.values import slug
from service.config.yaml_loader import read
from service.model import Limit, Route


@dataclass(frozen=True)
class Config:
    """A configuration without mistakes. `hash` is that of the file's bytes: another hash, another configuration.

    `warnings` are sentences about what works only in part, such as a key that isn't there now. `limits` are those of
    providers and hosts that routes have; `status_urls` are by provider.
    """

    service: ServiceSettings
    routes: tuple[Route, ...]
    warnings: tuple[str, ...]
    hash: str
    limits: tuple[Limit, ...] = ()
    status_urls: Mapping[str, str] = field(default_factory=dict)


def load(path: Path, environ: Mapping[str, str], *, serving: bool = False) -> Config:
    """Read the file under the variables of `environ`. Raises `ConfigError` with every mistake there is.

    `serving`: it is to be served, so that the embedded server needs leave to run under Kubernetes.
    """
    content = read_content(path)
    document = read(content)
    notes = Notes(str(path), document.lines, document.unread)
    notes.mistakes += [Mistake(notes.file, line, dotted(loc), message) for loc, line, message in document.faults]
    data = document.data
    if not isinstance(data, dict):
        if not document.faults:
            notes.add((), "is empty" if data is None else "must be a mapping of service, defaults and routes")
        raise ConfigError(notes.mistakes)
    for key in data.keys() - SECTIONS:
        notes.add((key,), unknown_key(key, SECTIONS))
    service = read_settings(data.get("service"), environ, notes, serving=serving)
    inherited = read_defaults(data.get("defaults"), service, notes)
    routes = read_routes(data.get("routes"), inherited, notes)
    of_providers, status_urls = read_providers(data.get("providers"), routes, notes)
    limits = (*of_providers, *read_hosts(data.get("hosts"), routes, notes))
    if notes.mistakes:
        raise ConfigError(notes.mistakes)
    warnings = (*map(str, sorted(set(notes.warnings))), *secret_refs.warnings(routes, environ))
    return Config(service, routes, warnings, content_hash(content), limits, status_urls)


def changes_needing_restart(old: Config, new: Config) -> tuple[str, ...]:
    """The settings of the service that differ and that a running process can't take up."""
    before, after = _fixed(old.service), _fixed(new.service)
    return tuple(name for name in before if before[name] != after[name])


def _fixed(settings: ServiceSettings) -> dict[str, object]:
    return {
        "listen": (settings.host, settings.port),
        "database_url": settings.database_url,
        "data_dir": settings.data_dir,
        "location": settings.location,
        "allow_embedded": settings.allow_embedded,
    }


def read_content(path: Path) -> bytes:
    """The bytes of the file. Raises `ConfigError` when they can't be had."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError([Mistake(str(path), 0, "", f"can't be read: {error.strerror}")]) from None


def content_hash(content: bytes) -> str:
    """The hash that `Config` carries, as 16 hexadecimal digits; cheap to compare when looking for a change."""
    return hashlib.sha256(content).hexdigest()[:16]


def adhoc_route(base_url: str, model: str, dialect: str, api_key_env: str | None = None, **keys: Any) -> Route:
    """A route from the command line. `keys` are further keys of a route as the file has them (`deadline="30s"`).

    Raises `ConfigError`; its mistakes name options (`--base-url`).
    """
    given = {"base_url": base_url, "model": model, "dialect": dialect, "api_key_env": api_key_env, **keys}
    named = {"name": model.strip() or "adhoc", "id": slug(model) or "adhoc"}
    notes = Notes(COMMAND_LINE)
    route = read_route(named | given, (), Inherited({}), notes)
    if route is None or notes.mistakes:
        options = (replace(mistake, key="--" + mistake.key.replace("_", "-")) for mistake in notes.mistakes)
        raise ConfigError(options)
    return route
